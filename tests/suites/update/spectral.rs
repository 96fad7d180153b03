//! Spectral norms, against the reference.

use gpu_kernels::philox::philox_shape;
use gpu_kernels::spectral::{
    N_START_ITERATIONS, SpectralSizes, spectral_columns, spectral_rows, spectral_scale, spectral_scale_shape,
    spectral_slabs_shape, spectral_start,
};
use half::bf16;
use host::device::{Buffer, Device};
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Outcome, case};
use reference::matrix::{Matrix, norm};
use reference::philox;
use reference::spectral::{self, PowerIteration};
use shared_types::{Precision, SpectralMatrix, stream};

use crate::world::{POISON, symmetric};

pub fn cases() -> Vec<Case> {
    vec![
        case("spectral::an_iteration_follows_the_reference", an_iteration_follows_the_reference),
        case("spectral::operands_are_the_scaled_weights_and_nothing_else", operands_are_the_scaled_weights),
        case("spectral::start_vectors_follow_the_reference", start_vectors_follow_the_reference),
        case("spectral::off_it_leaves_the_weights_unscaled", off_it_leaves_the_weights_unscaled),
        case("spectral::weights_at_the_ends_of_the_numbers", weights_at_the_ends_of_the_numbers),
        case("spectral::the_same_weights_give_the_same_bits", the_same_weights_give_the_same_bits),
    ]
}

const SIGMA_MAX: f32 = 3.0;
/// Rows and columns: of `tiny`, of nothing, and past a slab, a sweep of the columns and a block's tile.
const SHAPES: [(usize, usize); 5] = [(32, 200), (1, 4), (33, 36), (65, 1028), (3, 12)];

/// Matrices of both networks, and the buffers of the launches.
struct World<'a> {
    lab: &'a Lab<'a>,
    table: Vec<SpectralMatrix>,
    networks: [Vec<f32>; 2],
    u: Buffer<f32>,
    products: Buffer<f32>,
    scales: Buffer<f32>,
    shadows: [Buffer<u16>; 2],
    enabled: u32,
    precision: Precision,
}

impl<'a> World<'a> {
    /// Matrices of these shapes with elements in (-1, 1) times what makes each norm about `sigma`, with a gap before and after each.
    fn new(lab: &'a Lab<'a>, shapes: &[(usize, usize)], sigma: f32, precision: Precision) -> Result<Self, DeviceError> {
        let (mut table, mut offset, mut u_len) = (Vec::new(), 64, 0);
        for &(n_rows, n_cols) in shapes {
            table.push(SpectralMatrix {
                offset: offset as u32,
                n_rows: n_rows as u32,
                n_cols: n_cols as u32,
                u_offset: u_len as u32,
            });
            offset += (n_rows * n_cols).div_ceil(64) * 64 + 64;
            u_len += n_rows;
        }
        let mut numbers = Numbers::new(3);
        let mut network = || -> Vec<f32> {
            let mut flat = vec![0.0; offset];
            for matrix in &table {
                fill(&mut flat[range(matrix)], matrix, sigma, &mut numbers);
            }
            flat
        };
        let networks = [network(), network()];
        let u: Vec<f32> = (0..2 * u_len).map(|_| symmetric(&mut numbers)).collect();
        let poison = vec![POISON; offset * precision.words()];
        Ok(Self {
            lab,
            table,
            networks,
            u: lab.upload(&u)?,
            products: lab.poisoned(2 * u_len)?,
            scales: lab.poisoned(2 * shapes.len())?,
            shadows: [lab.upload(&poison)?, lab.upload(&poison)?],
            enabled: 1,
            precision,
        })
    }

    fn iterate(&self) -> Result<(), DeviceError> {
        let sizes = SpectralSizes::of(&self.table);
        let (table, partials) = (self.lab.upload(&self.table)?, self.lab.poisoned(sizes.partials_len())?);
        let [online, target] = [self.lab.upload(&self.networks[0])?, self.lab.upload(&self.networks[1])?];
        let columns = spectral_columns::launch(
            online.view(),
            target.view(),
            table.view(),
            self.u.view(),
            partials.view_mut(),
            self.enabled,
        );
        let rows = spectral_rows::launch(
            online.view(),
            target.view(),
            table.view(),
            partials.view(),
            self.products.view_mut(),
            self.enabled,
        );
        let scale = spectral_scale::launch(
            online.view(),
            target.view(),
            table.view(),
            self.products.view(),
            self.u.view_mut(),
            self.scales.view_mut(),
            self.shadows[0].view_mut(),
            self.shadows[1].view_mut(),
            SIGMA_MAX,
            self.enabled,
            self.precision,
        );
        self.lab.run_all(vec![
            (spectral_slabs_shape(&sizes), columns),
            (spectral_slabs_shape(&sizes), rows),
            (spectral_scale_shape(&sizes), scale),
        ])
    }

    /// Each matrix of both networks with its part of a list of all u.
    fn matrices(&self) -> Vec<(Matrix, std::ops::Range<usize>)> {
        let u_len: usize = self.table.iter().map(|matrix| matrix.n_rows as usize).sum();
        let of = |network: usize| {
            self.table.iter().map(move |matrix| {
                let flat: Vec<f64> = self.networks[network][range(matrix)].iter().map(|w| f64::from(*w)).collect();
                let start = matrix.u_offset as usize + network * u_len;
                let w = Matrix::from_values(matrix.n_rows as usize, matrix.n_cols as usize, flat);
                (w, start..start + matrix.n_rows as usize)
            })
        };
        of(0).chain(of(1)).collect()
    }
}

fn range(matrix: &SpectralMatrix) -> std::ops::Range<usize> {
    matrix.offset as usize..(matrix.offset + matrix.n_rows * matrix.n_cols) as usize
}

/// sigma a b^T, with a and b unit vectors, and noise of a fifth of its norm.
fn fill(w: &mut [f32], matrix: &SpectralMatrix, sigma: f32, numbers: &mut Numbers) {
    let (rows, cols) = (matrix.n_rows as usize, matrix.n_cols as usize);
    let mut unit = |n: usize| -> Vec<f64> {
        let x: Vec<f64> = (0..n).map(|_| f64::from(symmetric(numbers)) + 0.1).collect();
        let length = norm(&x);
        x.into_iter().map(|x| x / length).collect()
    };
    let (a, b) = (unit(rows), unit(cols));
    let noise = 0.2 / ((rows * cols) as f64).sqrt();
    for (i, w) in w.iter_mut().enumerate() {
        let x = a[i / cols] * b[i % cols] + noise * f64::from(symmetric(numbers));
        *w = sigma * x as f32;
    }
}

/// Error of W v and so of u' |W v| and of sigma, from `iteration` on the same numbers in float64.
///
/// A column's sum is off by at most 16 + 1 + slabs + 1 roundings of sum |w u|, and v besides by its norm's and a division, under 30;
/// a row's by ceil(cols / 128) + 8 of sum |w v|. Both sums are at most the Frobenius norm F, and the first is divided by |W^T u|.
fn error(w: &Matrix, u: &[f64], iteration: &PowerIteration) -> f64 {
    let frobenius = norm(&(0..w.n_rows).flat_map(|i| w.row(i).to_vec()).collect::<Vec<_>>());
    let wtu: Vec<f64> = (0..w.n_cols).map(|j| (0..w.n_rows).map(|i| w[(i, j)] * u[i]).sum()).collect();
    let columns = (18 + w.n_rows.div_ceil(32)) as f64 * frobenius * norm(u) / norm(&wtu) + 30.0;
    let rows = (w.n_cols.div_ceil(128) + 8) as f64 * frobenius;
    2f64.powi(-24) * (columns * frobenius + rows + 40.0 * iteration.sigma)
}

fn an_iteration_follows_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let preset = [(512, 200), (512, 512), (512, 512), (512, 512), (512, 512)];
    for (shapes, sigma) in [(&SHAPES[..], 10.0), (&SHAPES[..], 0.5), (&preset[..], 4.0)] {
        let world = World::new(&lab, shapes, sigma, Precision::Bf16)?;
        let before: Vec<f64> = world.u.read()?.iter().map(|u| f64::from(*u)).collect();
        world.iterate()?;
        let (after, scales) = (world.u.read()?, world.scales.read()?);
        for ((w, at), scale) in world.matrices().into_iter().zip(scales) {
            let u = &before[at.clone()];
            let want = spectral::power_iteration(&w, u);
            let error = error(&w, u, &want);
            let name = format!("[{}, {}], sigma {sigma}", w.n_rows, w.n_cols);
            // Dividing an error of the vector by its length adds the length's own error.
            Tolerance { absolute: 2.0 * error / want.sigma, relative: 0.0 }.check(
                &format!("u of {name}"),
                &after[at],
                &want.u,
            )?;
            let want_scale = spectral::scale(want.sigma, f64::from(SIGMA_MAX));
            let absolute = error / want.sigma * want_scale;
            Tolerance { absolute, relative: 0.0 }.check(&format!("scale of {name}"), &[scale], &[want_scale])?;
            assert!(if sigma > 1.0 { scale < 1.0 } else { scale == 1.0 }, "{name}: weights are only scaled down");
        }
    }
    Ok(())
}

fn operands_are_the_scaled_weights(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for precision in [Precision::Bf16, Precision::F32] {
        let world = World::new(&lab, &SHAPES, 10.0, precision)?;
        world.iterate()?;
        let scales = world.scales.read()?;
        for network in 0..2 {
            let mut want = vec![POISON; world.networks[network].len() * precision.words()];
            for (k, matrix) in world.table.iter().enumerate() {
                for at in range(matrix) {
                    let scaled = scales[network * world.table.len() + k] * world.networks[network][at];
                    match precision {
                        Precision::Bf16 => want[at] = bf16::from_f32(scaled).to_bits(),
                        Precision::F32 => want[2 * at..2 * at + 2].copy_from_slice(&words(scaled)),
                    }
                }
            }
            assert_eq!(world.shadows[network].read()?, want, "network {network}, {precision:?}");
        }
    }
    Ok(())
}

fn words(value: f32) -> [u16; 2] {
    [value.to_bits() as u16, (value.to_bits() >> 16) as u16]
}

/// The gap between the first two norms is wide, so an iteration's error shrinks in the next ones: the bound is that of an iteration
/// at the end, twice.
fn start_vectors_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab, &SHAPES, 2.0, Precision::Bf16)?;
    let seed = 0x1234_5678_9abc_def0u64;
    lab.run(
        philox_shape(world.u.len()),
        spectral_start::launch(world.u.view_mut(), [seed as u32, (seed >> 32) as u32]),
    )?;
    let start = world.u.read()?;
    let normals: Vec<f64> = (0..start.len() / 2).map(|i| philox::normal(seed, stream::SPECTRAL, 0, i as u32)).collect();
    // As the kernels' own normals: see the random generator's tests.
    let tolerance = Tolerance { absolute: 5.8 * 2f64.powi(-23), relative: 4.0 * 2f64.powi(-24) };
    for half in start.chunks(start.len() / 2) {
        tolerance.check("start vectors", half, &normals)?;
    }
    for _ in 0..N_START_ITERATIONS {
        world.iterate()?;
    }
    let after = world.u.read()?;
    for (w, at) in world.matrices() {
        let first = at.start % normals.len();
        let want = spectral::start_vector(&w, &normals[first..first + w.n_rows]);
        let last = spectral::power_iteration(&w, &want);
        let absolute = 4.0 * error(&w, &want, &last) / last.sigma;
        Tolerance { absolute, relative: 0.0 }.check(
            &format!("u of [{}, {}]", w.n_rows, w.n_cols),
            &after[at],
            &want,
        )?;
    }
    Ok(())
}

fn off_it_leaves_the_weights_unscaled(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut world = World::new(&lab, &SHAPES, 10.0, Precision::F32)?;
    world.enabled = 0;
    let before = bits(&world.u.read()?);
    world.iterate()?;
    assert_eq!(bits(&world.u.read()?), before);
    assert_eq!(world.scales.read()?, vec![1.0; 2 * SHAPES.len()]);
    for (network, shadow) in world.networks.iter().zip(&world.shadows) {
        let shadow = shadow.read()?;
        for at in world.table.iter().flat_map(range) {
            assert_eq!(shadow[2 * at..2 * at + 2], words(network[at]));
        }
    }
    Ok(())
}

/// Zero weights have sigma 0 and leave u zero; weights past the numbers leave u as it was, and scale 1. Neither touches the others.
fn weights_at_the_ends_of_the_numbers(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (value, spoilt) in [(0.0, false), (f32::NAN, true), (f32::INFINITY, true), (3e38, true)] {
        let mut world = World::new(&lab, &SHAPES, 10.0, Precision::Bf16)?;
        let before = world.u.read()?;
        world.iterate()?;
        let (usual, usual_scales) = (world.u.read()?, world.scales.read()?);
        world.u.write(&before)?;
        let at = range(&world.table[2]);
        world.networks[0][at].fill(value);
        world.iterate()?;
        let (u, scales) = (world.u.read()?, world.scales.read()?);
        let own = world.matrices()[2].1.clone();
        let kept = if spoilt { before[own.clone()].to_vec() } else { vec![0.0; own.len()] };
        assert_eq!((&u[own.clone()], scales[2]), (&kept[..], 1.0), "weights {value}");
        for i in (0..u.len()).filter(|i| !own.contains(i)) {
            assert_eq!(u[i].to_bits(), usual[i].to_bits(), "weights {value}: u[{i}] of another matrix");
        }
        for k in (0..scales.len()).filter(|k| *k != 2) {
            assert_eq!(scales[k].to_bits(), usual_scales[k].to_bits());
        }
    }
    Ok(())
}

fn the_same_weights_give_the_same_bits(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let run = || -> Result<_, DeviceError> {
        let world = World::new(&lab, &SHAPES, 10.0, Precision::Bf16)?;
        for _ in 0..3 {
            world.iterate()?;
        }
        Ok((bits(&world.u.read()?), bits(&world.scales.read()?), world.shadows[1].read()?))
    };
    assert!(run()? == run()?);
    Ok(())
}
