//! From the gradient of the head's first product to those of h and of phi's layer.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::loss::weight;
use super::{N_COSINES, N_QUANTILES};
use crate::columns::{Stretch, column_partials_shape};
use crate::sweep::{self, VECTOR, Vector, each, unrolled};
use crate::{lanes, operand};

/// Lanes that share a level's partial sums.
const SHARERS: usize = lanes::N_LANES / N_QUANTILES;
/// Partial sums whose loads a lane has in flight.
const AHEAD: usize = 8;
// A lane writes two columns of a row of dW_phi.
const _: () = assert!(N_COSINES == 2 * lanes::N_LANES);

/// Launch of [`iqn_product_backward()`]: a thread for a stretch of rows and four columns.
pub const fn iqn_product_backward_shape(n_rows: usize, hidden: usize) -> LaunchShape {
    column_partials_shape(n_rows, hidden)
}

/// Gradient of the objective by h, lambda_iqn iqn_readiness sum_n d_n phi_n, and partial sums over rows of d_n h, the gradient of L by
/// phi, where d is L's by h * phi.
///
/// One reading of d, the largest matrix of the head: both sums are taken from the same registers. Error of dh: 9 x 2^-24 of its terms'
/// magnitudes. Shapes: d_product `[8 B, H]`, row i 8 + n; h, dh `[B, H]`; phi `[8, H]`; bus \[64\]; partials `[P, 8 H]`, P of
/// [`n_column_partials`](crate::columns::n_column_partials) (B), column n H + j. Launch: [`iqn_product_backward_shape`].
#[kernel(max_threads = 128, min_blocks = 4)]
pub fn iqn_product_backward(
    d_product: GlobalSlice<f32>,
    h: GlobalSlice<f32>,
    phi: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    lambda: f32,
    dh: GlobalSliceMut<f32>,
    partials: GlobalSliceMut<f32>,
) {
    let width = phi.len() / N_QUANTILES;
    let Some(stretch) = Stretch::of_thread(sweep::n_rows(h.len(), width), width) else { return };
    let (column, weight) = (stretch.column, weight(&bus, lambda));
    let phi: [Vector; N_QUANTILES] = core::array::from_fn(|n| phi.load(n * width + column));
    let mut sums = [[0.0; VECTOR]; N_QUANTILES];
    for row in stretch.rows {
        let at = row * width + column;
        let h: Vector = h.load(at);
        let d: [Vector; N_QUANTILES] =
            core::array::from_fn(|n| d_product.load((row * N_QUANTILES + n) * width + column));
        let mut through = [0.0; VECTOR];
        unrolled::<N_QUANTILES>(|n| {
            sweep::add(&mut through, |k| d[n][k] * phi[n][k]);
            sweep::add(&mut sums[n], |k| d[n][k] * h[k]);
        });
        dh.store(at, each(|k| weight * through[k]));
    }
    unrolled::<N_QUANTILES>(|n| partials.store((stretch.partial * N_QUANTILES + n) * width + column, sums[n]));
}

/// Gradients of W_phi and its bias: with e = sum over rows of d_n h where phi_n > 0, else 0, db = sum_n e_n and
/// dW_phi = sum_n e_n cos_n, both operands of the second rounded.
///
/// Of a column's 32 lanes four share a level, and add its partial sums p mod 4; the four and then the levels add by halves. A lane alone
/// adds in order. Shapes: partials `[P, 8 H]` of [`iqn_product_backward()`], P > 0; phi `[8, H]`; cosines operand `[8, 64]`; d_weight
/// `[H, 64]`; d_bias `[H]`. Launch: [`lanes::row_shape`] (H, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn iqn_phi_gradient(
    partials: GlobalSlice<f32>,
    phi: GlobalSlice<f32>,
    cosines: GlobalSlice<u16>,
    d_weight: GlobalSliceMut<f32>,
    d_bias: GlobalSliceMut<f32>,
    precision: Precision,
) {
    let width = d_bias.len();
    let Some(column) = lanes::row_index(width) else { return };
    let stride = N_QUANTILES * width;
    let n_partials = sweep::n_rows(partials.len(), stride);
    let sum = |n: usize, first: usize, step: usize| {
        let mut sum = 0.0;
        let load = |partial: usize| partials.get(partial * stride + n * width + column);
        sweep::ahead::<AHEAD, f32>(first, n_partials, step, load, |_, value| sum += value);
        sum
    };
    let masked = |n: usize, sum: f32| if phi.get(n * width + column) > 0.0 { sum } else { 0.0 };
    if lanes::of_row() == 1 {
        let d: [f32; N_QUANTILES] = core::array::from_fn(|n| masked(n, sum(n, 0, 1)));
        d_bias.set(column, d.iter().fold(0.0, |sum, d| sum + d));
        for at in (0..N_COSINES).step_by(VECTOR) {
            let mut sums = [0.0; VECTOR];
            for (n, d) in d.iter().enumerate() {
                let (d, c) = (operand::rounded(*d, precision), operand::load4(&cosines, n * N_COSINES + at, precision));
                sweep::add(&mut sums, |k| d * c[k]);
            }
            d_weight.store(column * N_COSINES + at, sums);
        }
        return;
    }
    let lane = thread::thread_idx_x() as usize;
    let (n, sharer) = (lane % N_QUANTILES, lane / N_QUANTILES);
    let mut own = sum(n, sharer, SHARERS);
    own += lanes::across(own, N_QUANTILES as u32);
    own += lanes::across(own, 2 * N_QUANTILES as u32);
    let own = masked(n, own);
    let mut bias = own + lanes::across(own, 1);
    bias += lanes::across(bias, 2);
    bias += lanes::across(bias, 4);
    if lane == 0 {
        d_bias.set(column, bias);
    }
    let own = operand::rounded(own, precision);
    let mut pair = [0.0; 2];
    for n in 0..N_QUANTILES {
        let (d, at) = (lanes::of_lane(own, n), n * N_COSINES + 2 * lane);
        pair = core::array::from_fn(|k| pair[k] + d * operand::load(&cosines, at + k, precision));
    }
    d_weight.store(column * N_COSINES + 2 * lane, pair);
}
