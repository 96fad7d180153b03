//! The attention over bars, then over channels, after TLOB (Berti and Kasneci 2025, arXiv:2502.15757), forward and backward.
//!
//! X = x W_e^T + b_e + positions `[T, 64]`, T bars of a row; X = RMSNorm(X + MHA(X)) with the bars as tokens; the same on X^T, whose
//! 64 tokens have width T; the output is the mean over bars. With \[Q | K | V\] = X \[W_q | W_k | W_v\]^T, of which a head takes a
//! quarter, P = softmax(Q K^T / sqrt(head width)) and MHA(X) = P V W_o^T (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2); no biases,
//! mask or MLP.
//!
//! Backward, with dX of RMSNorm's input: dM = dX W_o, dV = P^T dM, dP = dM V^T, dS = P (dP - sum_j P dP), dQ = dS K / sqrt(width),
//! dK = dS^T Q / sqrt(width), and dQ W_q + dK W_k + dV W_v is added to dX.
//!
//! | file | holds |
//! |---|---|
//! | `axis` | what differs between the two attentions, over bars (`bars`) and over channels (`channels`) |
//! | `softmax` | P, and dS |
//! | `forward`, `backward` | the passes over a tile |
//! | `parameters` | where the tensors lie |
//! | `tensor_*` | the passes on the tensor cores |
//!
//! | kernels | operands | for |
//! |---|---|---|
//! | [`attention_forward()`], [`attention_backward()`] | bf16 or f32, by multiply-adds | the CPU with one thread a block; f32, or windows past 16 bars, on a GPU, 256 threads |
//! | [`attention_forward_tensor()`], [`attention_backward_tensor()`] | bf16, by `mma.sync`, windows of at most 16 bars | a GPU |
//! | [`attention_gradient()`] | - | after either backward |
//!
//! On the tensor cores a warp goes through a row, which fills the 16 rows of a fragment, by itself: X stays in its accumulators, and only
//! what a product takes across goes through its shared memory. Over channels a head has T / 4 columns, of the 16 that a product sums over;
//! the four heads have four each, zeros behind those that they use.
//!
//! Both attentions keep X as `[bars, 64]`: over channels a head's Q, K and V are `[head width, 64]`, so that no product needs a
//! transposed operand. A head's scores lie as `[keys, queries]`, 16 KB at most, and are made again in the backward pass.
//!
//! **What is kept for the backward pass: nothing.** It makes everything again from the rows, as the temporal block's does; what it
//! has made of the attention over bars waits in global memory while the one over channels is gone through, or is made once more on the
//! tensor cores. Products of a row at T = 8: forward 0.23 million multiply-adds, backward 0.75 million; 16,384 exponentials in each.
//!
//! **Order of sums.** By multiply-adds a block takes tiles of at most 64 bars, whole rows, tile b, b + n, b + 2 n, ... of n blocks, and keeps gradients of
//! its own; [`attention_gradient()`] adds those in the order of the blocks. The number of blocks depends on R, T and the threads a
//! block alone. On the tensor cores it takes eight rows, one a warp, at a time, and their number depends on R alone.
//!
//! **Precision.** Both operands of products with weights, of Q K^T and of P V are rounded once, forwards and backwards; the rest is f32.

mod axis;
mod backward;
mod bars;
mod channels;
mod forward;
mod parameters;
mod softmax;
mod tensor_backward;
mod tensor_bars;
mod tensor_channels;
mod tensor_channels_backward;
mod tensor_forward;
mod tensor_gradients;
mod tensor_row;
mod tensor_weights;

pub use backward::{KEPT, attention_backward, attention_backward_shape};
use cuda_std::prelude::*;
pub use forward::{attention_forward, attention_forward_shape};
pub use parameters::{Block, EMBED, EMBED_BIAS, n_parameters};
pub use tensor_backward::{attention_backward_tensor, attention_backward_tensor_shape};
pub use tensor_forward::{attention_forward_tensor, attention_forward_tensor_shape};

use crate::tile;

/// Features of a bar.
pub const N_FEATURES: usize = shared_types::market::N_FEATURES;
/// Width of a bar's embedding, channels, and width of the output.
pub const WIDTH: usize = 64;
/// Heads of each attention.
pub const N_HEADS: usize = 4;
/// The longest window of the kernels on the tensor cores.
pub const TENSOR_BARS: usize = 16;

/// Sinusoidal position (Vaswani et al. 2017, section 3.5): sin(t / 10000^(2i/64)) at column 2i, the cosine at 2i + 1. For the host,
/// which gives the kernels a table.
pub fn position(bar: usize, column: usize) -> f32 {
    let angle = bar as f64 / libm::pow(10_000.0, (column - column % 2) as f64 / WIDTH as f64);
    (if column.is_multiple_of(2) { libm::sin(angle) } else { libm::cos(angle) }) as f32
}

/// Blocks that leave gradients of their own, for `n_rows` rows of `window` bars: the parts of [`attention_backward()`] in blocks of
/// `n_threads`.
pub const fn attention_n_parts(n_rows: usize, window: usize, n_threads: u32) -> usize {
    tile::n_gradient_parts(n_rows, window, n_threads)
}

/// Operations of the products forwards, a multiplication and an addition counted as two: the embedding, and of each attention those
/// with its four matrices, Q K^T and P V.
pub const fn attention_forward_operations(n_rows: usize, window: usize) -> u64 {
    let over_bars = 4 * window * WIDTH * WIDTH + 2 * window * window * WIDTH;
    let over_channels = 4 * WIDTH * window * window + 2 * WIDTH * WIDTH * window;
    2 * n_rows as u64 * (window * WIDTH * N_FEATURES + over_bars + over_channels) as u64
}

/// The same backwards: the products are made again, and each has a gradient by both of its factors, but for the features.
pub const fn attention_backward_operations(n_rows: usize, window: usize) -> u64 {
    3 * attention_forward_operations(n_rows, window) - 2 * (n_rows * window * WIDTH * N_FEATURES) as u64
}

/// Blocks of the kernels on the tensor cores for so many pieces of work: one a multiprocessor of an H200 at most.
const fn n_blocks_of(n_pieces: usize) -> usize {
    match n_pieces {
        0 => 1,
        1..132 => n_pieces,
        _ => 132,
    }
}

/// The parts of [`attention_backward_tensor()`] for `n_rows` rows.
pub const fn attention_tensor_n_parts(n_rows: usize) -> usize {
    n_blocks_of(n_rows.div_ceil(tensor_gradients::N_WARPS))
}

/// Launch of [`attention_gradient()`] for a window.
pub const fn attention_gradient_shape(window: usize) -> LaunchShape {
    LaunchShape::cover(n_parameters(window), 128)
}

/// Adds the blocks' gradients in order: gradient_i = sum_p parts\[p, i\].
///
/// Shapes: parts `[n_parts, `[`n_parameters`]`]`; gradient `[`[`n_parameters`]`]`, the attention's part of the flat gradient,
/// overwritten; its gaps become 0. Launch: [`attention_gradient_shape`].
#[kernel]
pub fn attention_gradient(parts: GlobalSlice<f32>, gradient: GlobalSliceMut<f32>) {
    tile::add_parts(&parts, &gradient);
}
