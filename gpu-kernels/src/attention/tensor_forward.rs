//! The forward pass on the tensor cores, a warp a row: operands bf16.

use cuda_std::prelude::*;

use super::tensor_bars as bars;
use super::tensor_channels::{Channels, mean_of_norm};
use super::tensor_row::{embed, features, operands};
use super::tensor_weights::TensorWeights;
use super::{TENSOR_BARS, WIDTH};
use crate::fragments::{Lane, Stored};
use crate::tile::Taker;

const N_THREADS: u32 = 512;
const N_WARPS: usize = N_THREADS as usize / 32;
/// Bytes of a matrix `[16, 64]`.
pub(super) const ROW_BYTES: u32 = Stored::bytes(TENSOR_BARS, WIDTH);
/// Matrices of a warp.
const N_STORED: u32 = 4;

/// Launch of [`attention_forward_tensor()`] for `n_rows` rows.
pub const fn attention_forward_tensor_shape(n_rows: usize) -> LaunchShape {
    let n_blocks = super::n_blocks_of(n_rows);
    LaunchShape::linear(n_blocks as u32, N_THREADS)
        .with_shared(TensorWeights::BYTES + N_WARPS as u32 * N_STORED * ROW_BYTES)
}

/// [`attention_forward()`](super::attention_forward()) of bf16 operands on the tensor cores, for windows of at most [`TENSOR_BARS`]
/// bars; it differs by the order of the products' sums.
///
/// Shapes: as there. Launch: [`attention_forward_tensor_shape`].
#[kernel(cooperative, conditional, max_threads = 512, min_blocks = 1)]
pub fn attention_forward_tensor(
    rows: GlobalSlice<f32>,
    operands_of: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    positions: GlobalSlice<f32>,
    output: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
) {
    let (stride, window) = (stride as usize, window as usize);
    let w = TensorWeights::load(&operands_of, &parameters, &positions, window);
    let warp = Lane::new().warp;
    let channels = take_channels(warp);
    // Few rows spread over all blocks.
    let (block, n_blocks) = (thread::block_idx_x() as usize, thread::grid_dim_x() as usize);
    for row in (block + warp * n_blocks..output.len() / WIDTH).step_by(N_WARPS * n_blocks) {
        let mut x = embed(&w, &features(&rows, row * stride, window, Lane::new()), Lane::new());
        let from = operands(&x);
        bars::attend(&w, &from, &mut x, |_, _| ());
        let mut x = bars::norm(&w, &x);
        channels.attend(&w, &mut x, |_, _| ());
        mean_of_norm(&w, &x, |channel, means| output.store(row * WIDTH + channel, means));
    }
}

/// What is mixed replaces the queries, which its scores have used up.
#[inline(always)]
fn take_channels(warp: usize) -> Channels {
    let mut taker = Taker::from(TensorWeights::BYTES + warp as u32 * N_STORED * ROW_BYTES);
    let mut take = || Stored::take(&mut taker, TENSOR_BARS, WIDTH);
    let (x, q, k, v) = (take(), take(), take(), take());
    Channels { x, q, k, v, mixed: q }
}
