//! Matrices with spectral norms on a device, and one iteration of all.

use gpu_kernels::spectral::{
    SpectralSizes, spectral_columns, spectral_rows, spectral_scale, spectral_scale_shape, spectral_slabs_shape,
};
use host::device::Buffer;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers};
use reference::matrix::{Matrix, norm};
use shared_types::{Precision, SpectralMatrix};

use crate::world::{POISON, symmetric};

/// Norms over this are scaled down to it.
pub const SIGMA_MAX: f32 = 3.0;

/// Matrices of both networks, the second empty without a target, and the buffers of the launches.
pub struct World<'a> {
    pub lab: &'a Lab<'a>,
    pub table: Vec<SpectralMatrix>,
    pub networks: [Vec<f32>; 2],
    pub u: Buffer<f32>,
    pub products: Buffer<f32>,
    pub scales: Buffer<f32>,
    pub shadows: [Buffer<u16>; 2],
    pub enabled: u32,
    pub precision: Precision,
}

impl<'a> World<'a> {
    /// Matrices of these shapes with elements in (-1, 1) times what makes each norm about `sigma`, with a gap before and after each.
    pub fn new(
        lab: &'a Lab<'a>,
        shapes: &[(usize, usize)],
        sigma: f32,
        precision: Precision,
    ) -> Result<Self, DeviceError> {
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

    /// The same without a target.
    pub fn without_target(self) -> Result<Self, DeviceError> {
        let lab = self.lab;
        let [online, _] = self.networks;
        let [shadow, _] = self.shadows;
        let u = self.u.read()?;
        Ok(Self {
            networks: [online, Vec::new()],
            u: lab.upload(&u[..u.len() / 2])?,
            products: lab.poisoned(u.len() / 2)?,
            scales: lab.poisoned(self.table.len())?,
            shadows: [shadow, lab.zeroed(0)?],
            ..self
        })
    }

    fn sizes(&self) -> SpectralSizes {
        SpectralSizes::of(&self.table, if self.networks[1].is_empty() { 1 } else { 2 })
    }

    pub fn iterate(&self) -> Result<(), DeviceError> {
        let sizes = self.sizes();
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
            (spectral_slabs_shape(&sizes, self.lab.lanes()), columns),
            (spectral_slabs_shape(&sizes, self.lab.lanes()), rows),
            (spectral_scale_shape(&sizes, self.lab.lanes()), scale),
        ])
    }

    /// Each matrix of both networks with its part of a list of all u.
    pub fn matrices(&self) -> Vec<(Matrix, std::ops::Range<usize>)> {
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

/// A matrix's elements in the flat parameters.
pub fn range(matrix: &SpectralMatrix) -> std::ops::Range<usize> {
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
