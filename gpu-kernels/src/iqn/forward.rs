//! From h to the head's first product.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::{N_COSINES, N_QUANTILES};
use crate::operand;
use crate::sweep::{self, VECTOR, Vector, each, unrolled};

/// Launch of [`iqn_phi()`]: a thread for each level of each column.
pub const fn iqn_phi_shape(hidden: usize) -> LaunchShape {
    LaunchShape::cover(N_QUANTILES * hidden, 128)
}

/// Launch of [`iqn_product()`]: a thread for four columns of a row of h.
pub const fn iqn_product_shape(n_rows: usize, hidden: usize) -> LaunchShape {
    LaunchShape::cover(n_rows * hidden / VECTOR, 256)
}

/// phi = ReLU(cos W_phi^T + b) of every level. A NaN goes through.
///
/// Threads of a column lie together, so that its weights are read once. Error: 19 x 2^-24 sum |cos W| beside the operands' own.
/// Shapes: cosines operand `[8, 64]`, cos(pi i tau_n); weight operand `[H, 64]`; bias `[H]`; phi `[8, H]`. Launch: [`iqn_phi_shape`].
#[kernel(max_threads = 128)]
pub fn iqn_phi(
    cosines: GlobalSlice<u16>,
    weight: GlobalSlice<u16>,
    bias: GlobalSlice<f32>,
    phi: GlobalSliceMut<f32>,
    precision: Precision,
) {
    let width = bias.len();
    let (column, n) = (thread::index_1d() as usize / N_QUANTILES, thread::index_1d() as usize % N_QUANTILES);
    if column >= width {
        return;
    }
    let mut sums = [0.0; VECTOR];
    for at in (0..N_COSINES).step_by(VECTOR) {
        let c: Vector = operand::load4(&cosines, n * N_COSINES + at, precision);
        let w: Vector = operand::load4(&weight, column * N_COSINES + at, precision);
        sweep::add(&mut sums, |k| c[k] * w[k]);
    }
    let [s0, s1, s2, s3] = sums;
    let pre = ((s0 + s1) + (s2 + s3)) + bias.get(column);
    phi.set(n * width + column, if pre <= 0.0 { 0.0 } else { pre });
}

/// h * phi_n as operands, rounded once.
///
/// Shapes: h `[B, H]`, H a multiple of 4; phi `[8, H]`; product operand `[8 B, H]`, row i 8 + n. Launch: [`iqn_product_shape`].
#[kernel(max_threads = 256)]
pub fn iqn_product(h: GlobalSlice<f32>, phi: GlobalSlice<f32>, product: GlobalSliceMut<u16>, precision: Precision) {
    let at = thread::index_1d() as usize * VECTOR;
    if at >= h.len() {
        return;
    }
    let width = phi.len() / N_QUANTILES;
    let (row, column) = ((at as u32 / width as u32) as usize, (at as u32 % width as u32) as usize);
    let h: Vector = h.load(at);
    unrolled::<N_QUANTILES>(|n| {
        let phi: Vector = phi.load(n * width + column);
        operand::store4(&product, (row * N_QUANTILES + n) * width + column, each(|k| h[k] * phi[k]), precision);
    });
}
