//! Spectral norm of the trunk's matrices: power iterations and the operands they scale.

use cuda_std::launch::Launch;
use gpu_kernels::philox::philox_shape;
use gpu_kernels::spectral::{
    N_START_ITERATIONS, SpectralSizes, spectral_columns, spectral_rows, spectral_scale, spectral_scale_shape,
    spectral_slabs_shape, spectral_start,
};
use shared_types::SpectralMatrix;

use super::Parameters;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::market::Step;

/// State of the power iterations.
pub struct SpectralNorm {
    /// Left vectors of all matrices, of the online network, then of the target unless there is none.
    pub u: Buffer<f32>,
    /// 1 / max(1, sigma / sigma_max) of each matrix, of the online network, then of the target unless there is none.
    pub scales: Buffer<f32>,
    /// Networks that have them.
    pub n_networks: usize,
    table: Buffer<SpectralMatrix>,
    partials: Buffer<f32>,
    products: Buffer<f32>,
    sizes: SpectralSizes,
    /// Elements of all matrices of one network.
    n_elements: usize,
    sigma_max: f32,
    enabled: bool,
    lanes: u32,
}

impl SpectralNorm {
    /// Memory for the matrices that the layout marks.
    pub fn new(device: &Device, parameters: &Parameters, sigma_max: f32, enabled: bool) -> Result<Self, DeviceError> {
        let mut table = Vec::new();
        let mut u_offset = 0;
        for tensor in parameters.layout.tensors().iter().filter(|tensor| tensor.spectral) {
            let [n_rows, n_cols] = [tensor.shape[0], tensor.shape[1]].map(|extent| extent as u32);
            table.push(SpectralMatrix { offset: tensor.offset as u32, n_rows, n_cols, u_offset });
            u_offset += n_rows;
        }
        let n_networks = if parameters.target.flat.is_empty() { 1 } else { 2 };
        let sizes = SpectralSizes::of(&table, n_networks);
        let n_elements = table.iter().map(|matrix| (matrix.n_rows * matrix.n_cols) as usize).sum();
        Ok(Self {
            u: device.alloc_zeroed(sizes.all_u_len())?,
            scales: device.alloc_zeroed(sizes.n_scales())?,
            n_networks,
            table: device.upload(&table)?,
            partials: device.alloc_zeroed(sizes.partials_len())?,
            products: device.alloc_zeroed(sizes.all_u_len())?,
            sizes,
            n_elements,
            sigma_max,
            enabled,
            lanes: device.row_lanes(),
        })
    }

    /// One power iteration on every matrix, and their operands.
    pub fn iterate(&self, parameters: &Parameters) -> Vec<Step> {
        let (online, target) = (&parameters.online, &parameters.target);
        let enabled = u32::from(self.enabled);
        let columns = spectral_columns::launch(
            online.flat.view(),
            target.flat.view(),
            self.table.view(),
            self.u.view(),
            self.partials.view_mut(),
            enabled,
        );
        let rows = spectral_rows::launch(
            online.flat.view(),
            target.flat.view(),
            self.table.view(),
            self.partials.view(),
            self.products.view_mut(),
            enabled,
        );
        let scale = spectral_scale::launch(
            online.flat.view(),
            target.flat.view(),
            self.table.view(),
            self.products.view(),
            self.u.view_mut(),
            self.scales.view_mut(),
            online.shadow.view_mut(),
            target.shadow.view_mut(),
            self.sigma_max,
            enabled,
            parameters.precision,
        );
        let (weights, operands) = (size_of::<f32>() * self.n_elements, size_of::<u16>() * self.n_elements);
        let iterated = if self.enabled { weights } else { 0 };
        let of_target = |bytes: usize| if self.n_networks == 2 { bytes } else { 0 };
        let of_matrices =
            |launch: Launch, bytes: usize| launch.moves("params", bytes).moves("target", of_target(bytes));
        let (columns, rows) = (of_matrices(columns, iterated), of_matrices(rows, iterated));
        let shadows = operands * parameters.precision.words();
        let scale = of_matrices(scale, weights).moves("shadow", shadows).moves("target_shadow", of_target(shadows));
        let slabs = spectral_slabs_shape(&self.sizes, self.lanes);
        vec![(slabs, columns), (slabs, rows), (spectral_scale_shape(&self.sizes, self.lanes), scale)]
    }

    /// Start vectors and the iterations on the initial weights.
    pub fn start(&self, parameters: &Parameters, seed: [u32; 2]) -> Vec<Step> {
        let start = spectral_start::launch(self.u.view_mut(), self.sizes.u_len as u32, seed);
        let mut steps = vec![(philox_shape(self.u.len()), start)];
        (0..N_START_ITERATIONS).for_each(|_| steps.extend(self.iterate(parameters)));
        steps
    }
}
