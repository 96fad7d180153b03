//! Gradients of weights: dW = dy^T x over all rows.

use gpu_kernels::matmul::{sum_parts, sum_parts_shape};
use shared_types::{Precision, Product, ProductForm};

use crate::device::{Buffer, Device, Matmul, Output, Part};
use crate::error::DeviceError;
use crate::market::Step;

/// Rows and columns of a weight gradient that a block makes.
const TILE: u32 = 128;
/// Blocks that fill a GPU: two on each of 132 multiprocessors. One block more would begin a second wave.
const ENOUGH_BLOCKS: u32 = 264;
/// Rows that a part of a sum has at least.
const LEAST_ROWS: u32 = 256;

/// Weight gradients that share their operands' buffers.
///
/// The sums over rows are cut into parts so that a GPU is filled; the parts are added in order and multiplied by the factor
/// that the weight's operand carries (spectral norm's 1 / max(1, sigma / sigma_max)).
pub struct WeightGradient {
    matmul: Matmul,
    parts: Buffer<f32>,
    part_len: usize,
    largest: usize,
    no_factors: Buffer<f32>,
}

impl WeightGradient {
    /// `list` names operands; C is taken by the parts, and D is where the gradient begins in the flat vector.
    pub fn new(device: &Device, precision: Precision, mut list: Vec<Product>) -> Result<Self, DeviceError> {
        let mut part_len = 0;
        let mut n_blocks = 0;
        for product in &mut list {
            product.c = part_len;
            product.c_stride = product.n;
            part_len += product.m * product.n;
            n_blocks += product.m.div_ceil(TILE) * product.n.div_ceil(TILE);
        }
        let n_rows = list.iter().map(|product| product.k).max().unwrap_or(0);
        let n_parts =
            if device.row_lanes() == 1 { 1 } else { (ENOUGH_BLOCKS / n_blocks).min(n_rows / LEAST_ROWS).max(1) };
        let largest = list.iter().map(|product| (product.m * product.n) as usize).max().unwrap_or(0);
        Ok(Self {
            matmul: Matmul::in_parts(device, ProductForm::Tn, precision, list, n_parts, part_len)?,
            parts: device.alloc_zeroed((n_parts * part_len) as usize)?,
            part_len: part_len as usize,
            largest,
            no_factors: device.alloc(0)?,
        })
    }

    /// The launches, with dy in `a` and x in `b`; `factors` has one number a product, or there is none.
    pub fn launch(
        &self,
        a: Part<'_, u16>,
        b: Part<'_, u16>,
        factors: Option<Part<'_, f32>>,
        gradient: &Buffer<f32>,
    ) -> [Step; 2] {
        self.launch_into(a, b, factors, gradient.all())
    }

    /// The same with a part of the flat gradient, from whose beginning D counts: what writes other parts may run beside it.
    pub fn launch_into(
        &self,
        a: Part<'_, u16>,
        b: Part<'_, u16>,
        factors: Option<Part<'_, f32>>,
        gradient: Part<'_, f32>,
    ) -> [Step; 2] {
        let sum = sum_parts::launch(
            self.matmul.table().view(),
            self.parts.view(),
            factors.unwrap_or(self.no_factors.all()).view(),
            gradient.view_mut(),
            self.part_len as u32,
        );
        let sum = sum.moves("out", size_of::<f32>() * self.part_len);
        let n_products = self.matmul.products().len() as u32;
        [
            self.matmul.launch(a, b, Output::Store(self.parts.all(), None)),
            (sum_parts_shape(self.largest, n_products), sum),
        ]
    }
}
