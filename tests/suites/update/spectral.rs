//! Spectral norms, against the reference.

use gpu_kernels::philox::philox_shape;
use gpu_kernels::spectral::{N_START_ITERATIONS, spectral_start};
use half::bf16;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Tolerance, bits};
use onegraph_tests::{Case, Outcome, case};
use reference::matrix::{Matrix, norm};
use reference::philox;
use reference::spectral::{self, PowerIteration};
use shared_types::{Precision, stream};

use crate::spectral_world::{SIGMA_MAX, World, range};
use crate::world::POISON;

pub fn cases() -> Vec<Case> {
    vec![
        case("spectral::an_iteration_follows_the_reference", |device| {
            Lab::on_all_lanes(device, an_iteration_follows_the_reference)
        }),
        case("spectral::operands_are_the_scaled_weights_and_nothing_else", |device| {
            Lab::on_all_lanes(device, operands_are_the_scaled_weights)
        }),
        case("spectral::start_vectors_follow_the_reference", |device| {
            Lab::on_all_lanes(device, start_vectors_follow_the_reference)
        }),
        case("spectral::off_it_leaves_the_weights_unscaled", |device| {
            Lab::on_all_lanes(device, off_it_leaves_the_weights_unscaled)
        }),
        case("spectral::weights_at_the_ends_of_the_numbers", |device| {
            Lab::on_all_lanes(device, weights_at_the_ends_of_the_numbers)
        }),
        case("spectral::without_a_target_the_rest_is_the_same", |device| {
            Lab::on_all_lanes(device, without_a_target_the_rest_is_the_same)
        }),
        case("spectral::the_same_weights_give_the_same_bits", |device| {
            Lab::on_all_lanes(device, the_same_weights_give_the_same_bits)
        }),
    ]
}

/// Rows and columns: of `tiny`, of nothing, and past a slab, a sweep of the columns and a block's tile.
const SHAPES: [(usize, usize); 5] = [(32, 200), (1, 4), (33, 36), (65, 1028), (3, 12)];

/// Error of W v, and so of u' |W v| and of sigma, from `iteration` on the same numbers in float64.
///
/// Roundings are taken as independent (Higham and Mary 2019), six standard deviations of them: a term of a column's sum passes up to
/// 18 + slabs of them, one of a row's ceil(cols / 128) + 8, so the error of the whole vector is that root times the root of the sum
/// of all (w u)^2, or (w v)^2. The first is divided by |W^T u| and passed on by W, whose norm is under Frobenius's F; norms,
/// divisions and the dot product add a dozen.
fn error(w: &Matrix, u: &[f64], iteration: &PowerIteration) -> f64 {
    let elements = || (0..w.n_rows).flat_map(|i| (0..w.n_cols).map(move |j| (i, j)));
    let root = |of: &dyn Fn(usize, usize) -> f64| elements().map(|(i, j)| of(i, j).powi(2)).sum::<f64>().sqrt();
    let wtu: Vec<f64> = (0..w.n_cols).map(|j| (0..w.n_rows).map(|i| w[(i, j)] * u[i]).sum()).collect();
    let columns = ((18 + w.n_rows.div_ceil(32)) as f64).sqrt() * root(&|i, j| w[(i, j)] * u[i]) / norm(&wtu);
    let rows = ((w.n_cols.div_ceil(128) + 8) as f64).sqrt() * root(&|i, j| w[(i, j)] * iteration.v[j]);
    2f64.powi(-24) * (6.0 * columns * root(&|i, j| w[(i, j)]) + 6.0 * rows + 12.0 * iteration.sigma)
}

/// The distance of two vectors.
fn check_vector(what: &str, got: &[f32], want: &[f64], bound: f64) -> Outcome {
    let difference: Vec<f64> = got.iter().zip(want).map(|(got, want)| f64::from(*got) - want).collect();
    Tolerance { absolute: bound, relative: 0.0 }.check(what, &[norm(&difference) as f32], &[0.0])
}

fn an_iteration_follows_the_reference(lab: &Lab) -> Outcome {
    let preset = [(512, 200), (512, 512), (512, 512), (512, 512), (512, 512)];
    for (shapes, sigma) in [(&SHAPES[..], 10.0), (&SHAPES[..], 0.5), (&preset[..], 20.0)] {
        let world = World::new(lab, shapes, sigma, Precision::Bf16)?;
        let before: Vec<f64> = world.u.read()?.iter().map(|u| f64::from(*u)).collect();
        world.iterate()?;
        let (after, scales) = (world.u.read()?, world.scales.read()?);
        for ((w, at), scale) in world.matrices().into_iter().zip(scales) {
            let u = &before[at.clone()];
            let want = spectral::power_iteration(&w, u);
            let error = error(&w, u, &want);
            let name = format!("[{}, {}], sigma {sigma}", w.n_rows, w.n_cols);
            check_vector(&format!("u of {name}"), &after[at], &want.u, error / want.sigma)?;
            let want_scale = spectral::scale(want.sigma, f64::from(SIGMA_MAX));
            let absolute = error / want.sigma * want_scale;
            Tolerance { absolute, relative: 0.0 }.check(&format!("scale of {name}"), &[scale], &[want_scale])?;
            assert_eq!(scale == 1.0, want_scale == 1.0, "{name}: weights are only scaled down");
        }
    }
    Ok(())
}

fn operands_are_the_scaled_weights(lab: &Lab) -> Outcome {
    for precision in [Precision::Bf16, Precision::F32] {
        let world = World::new(lab, &SHAPES, 10.0, precision)?;
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
fn start_vectors_follow_the_reference(lab: &Lab) -> Outcome {
    let world = World::new(lab, &SHAPES, 2.0, Precision::Bf16)?;
    let seed = 0x1234_5678_9abc_def0u64;
    lab.run(
        philox_shape(world.u.len()),
        spectral_start::launch(world.u.view_mut(), world.u.len() as u32 / 2, [seed as u32, (seed >> 32) as u32]),
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

fn off_it_leaves_the_weights_unscaled(lab: &Lab) -> Outcome {
    let mut world = World::new(lab, &SHAPES, 10.0, Precision::F32)?;
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
fn weights_at_the_ends_of_the_numbers(lab: &Lab) -> Outcome {
    for (value, spoilt) in [(0.0, false), (f32::NAN, true), (f32::INFINITY, true), (3e38, true)] {
        let mut world = World::new(lab, &SHAPES, 10.0, Precision::Bf16)?;
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

fn without_a_target_the_rest_is_the_same(lab: &Lab) -> Outcome {
    let both = World::new(lab, &SHAPES, 10.0, Precision::Bf16)?;
    let alone = World::new(lab, &SHAPES, 10.0, Precision::Bf16)?.without_target()?;
    let seed = [1, 2];
    for world in [&both, &alone] {
        let u_len = both.u.len() as u32 / 2;
        lab.run(philox_shape(world.u.len()), spectral_start::launch(world.u.view_mut(), u_len, seed))?;
        world.iterate()?;
        world.iterate()?;
    }
    for (of_both, of_alone) in [(&both.u, &alone.u), (&both.scales, &alone.scales)] {
        assert_eq!(bits(&of_alone.read()?), bits(&of_both.read()?[..of_both.len() / 2]));
    }
    assert_eq!(alone.shadows[0].read()?, both.shadows[0].read()?);
    Ok(())
}

fn the_same_weights_give_the_same_bits(lab: &Lab) -> Outcome {
    let run = || -> Result<_, DeviceError> {
        let world = World::new(lab, &SHAPES, 10.0, Precision::Bf16)?;
        for _ in 0..3 {
            world.iterate()?;
        }
        Ok((bits(&world.u.read()?), bits(&world.scales.read()?), world.shadows[1].read()?))
    };
    assert!(run()? == run()?);
    Ok(())
}
