//! The backward pass on the tensor cores, a warp a row: operands bf16.
//!
//! A warp goes forwards through a row, backwards through the attention over channels, forwards through the one over bars again, which is a
//! tenth of the work and needs no memory meanwhile, and backwards through it. What it leaves in shared memory the block's warps
//! together turn into gradients, each those of a part of the weights.

use cuda_std::prelude::*;

use super::parameters::n_parameters;
use super::tensor_bars as bars;
use super::tensor_gradients::{self as gradients, Left, N_WARPS};
use super::tensor_row::{embed, features, operands, over_column, put};
use super::tensor_weights::TensorWeights;
use super::{WIDTH, attention_tensor_n_parts};
use crate::fragments::{Lane, each};
use crate::lanes;
use crate::tile::Team;

const N_THREADS: u32 = 32 * N_WARPS as u32;

/// Launch of [`attention_backward_tensor()`] for `n_rows` rows.
pub const fn attention_backward_tensor_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::linear(attention_tensor_n_parts(n_rows) as u32, N_THREADS).with_shared(Left::END)
}

/// [`attention_backward()`](super::attention_backward()) of bf16 operands on the tensor cores, for windows of at most
/// [`TENSOR_BARS`](super::TENSOR_BARS) bars; it differs by the order of the products' sums.
///
/// Shapes: as there, but parts `[`[`attention_tensor_n_parts`]`, `[`n_parameters`]`]`. Launch: [`attention_backward_tensor_shape`].
#[kernel(cooperative, max_threads = 256, min_blocks = 1)]
pub fn attention_backward_tensor(
    rows: GlobalSlice<f32>,
    operands_of: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    positions: GlobalSlice<f32>,
    doutput: GlobalSlice<f32>,
    parts: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
) {
    let (stride, window, block) = (stride as usize, window as usize, thread::block_idx_x() as usize);
    let n_parameters = n_parameters(window);
    let part = parts.sub(block * n_parameters..(block + 1) * n_parameters);
    Team::new().each(n_parameters / 4).for_each(|piece| part.store(4 * piece, [0.0f32; 4]));
    // Its barrier also stands between the zeros above and their sums.
    let w = TensorWeights::load(&operands_of, &parameters, &positions, window);
    let n_rows = rows.len() / stride;
    let warp = Lane::new().warp;
    let left = Left::of_warp(warp);
    for first in (block * N_WARPS..n_rows).step_by(thread::grid_dim_x() as usize * N_WARPS) {
        let row = first + warp;
        if row < n_rows {
            row_backward(&w, &left, &rows, row * stride, &doutput, row * WIDTH);
        } else {
            left.clear();
        }
        // What the warps leave is complete.
        thread::sync_threads();
        gradients::add(&part, window);
        // The next rows overwrite what the sums have read.
        thread::sync_threads();
    }
}

/// Leaves a row's share of all gradients.
#[inline(always)]
fn row_backward(
    w: &TensorWeights<'_>,
    left: &Left,
    rows: &GlobalSlice<f32>,
    first: usize,
    doutput: &GlobalSlice<f32>,
    first_of_doutput: usize,
) {
    let read = features(rows, first, w.window, Lane::new());
    let mut x = embed(w, &read, Lane::new());
    let from = operands(&x);
    bars::attend(w, &from, &mut x, |_, _| ());
    let mut x = bars::norm(w, &x);
    left.channels.forward.attend(w, &mut x, |query, shift| left.channels.shifts.set(query, shift));
    let d = left.channels.run(w, x, doutput, first_of_doutput, &left.channels_gradient);
    // The attention over channels has been read where that over bars comes.
    lanes::sync();
    let at = Lane::new();
    let read = features(rows, first, w.window, at);
    left.features.put(at, 0, read[0]);
    left.features.put(at, 16, read[1]);
    let mut x = embed(w, &read, at);
    let from = operands(&x);
    put(&left.bars.x, &from, at);
    bars::attend(w, &from, &mut x, |head, mixed| left.bars.mixed.put(Lane::new(), 16 * head, mixed));
    let dx = bars::backward(w, &left.bars, &from, &x, d, |column, sum| left.put_bars_gain(column, sum));
    let at = Lane::new();
    each!(J in [0 1 2 3 4 5 6 7] {
        each!(I in [0 1] {
            let sum = over_column(dx[J][I] + dx[J][2 + I]);
            if at.row() == 0 {
                left.put_bias(8 * J + at.column() + I, sum);
            }
        });
    });
}
