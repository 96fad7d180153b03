//! The temporal block: one Mamba2 block (Dao and Gu 2024, arXiv:2405.21060, section 7) over the bars of the window, forward
//! and backward.
//!
//! With e_t = W_e x_t + b_e and \[z | x | B | C | dt_raw\] = W_in e_t, a causal convolution of four taps and SiLU over (x, B, C), and
//! per head dt_t = softplus(dt_raw + dt_bias), a_t = exp(-exp(A_log) dt_t): S_t = a_t S_{t-1} + dt_t x_t B_t^T,
//! y_t = S_t C_t + D x_t. Output: W_out RMSNorm(y SiLU(z)) of the last bar.
//!
//! Only the last bar T is asked for, so the state S `[32, 16]` is never formed. In the dual form (the same paper, section 6)
//!
//!   y_T = sum_t w_t x_t + D x_T,  w_t = L_t dt_t (B_t . C_T),  L_t = exp(-exp(A_log) sum_{s > t} dt_s),
//!
//! a head costs T numbers w_t. With g_t = dy . x_t, and b_s = sum_{t < s} g_t w_t the gradient by log a_s, the backward pass is
//! dx_t = w_t dy (+ D dy at T), ds_t = sum over heads of g_t L_t dt_t, dB_t = ds_t C_T, dC_T = sum_t ds_t B_t,
//! ddt_t = g_t L_t (B_t . C_T) - exp(A_log) b_t, dA_log = -exp(A_log) sum_t dt_t b_t, dD = g_T. z, the gate, the norm and out_proj are
//! made of the last bar alone.
//!
//! **What is kept for the backward pass: nothing.** It makes everything again from the rows. At R = 8,192, T = 16 the values that
//! would be kept, in_proj's outputs and the embeddings in f32, are 120 MB, written once and read once, 56 us at 4.3 TB/s; making
//! them again costs 3.3 GFLOP and 12.6 MB of rows. Forward: 3.4 GFLOP (0.42 MFLOP a row) and 14.7 MB; backward: 9.7 GFLOP, 14.7 MB
//! and the partial gradients, 132 of 119 KB.
//!
//! | kernels | operands | for |
//! |---|---|---|
//! | [`temporal_forward()`], [`temporal_backward()`] | bf16 or f32, by multiply-adds | the CPU with one thread a block; f32 on a GPU, 256 threads |
//! | [`temporal_forward_tensor()`], [`temporal_backward_tensor()`] | bf16, by `mma.sync` | a GPU |
//! | [`temporal_gradient()`] | - | after either backward |
//!
//! **Order of sums.** A block takes tiles of at most 64 bars, whole rows, tile b, b + n, b + 2 n, ... of n blocks, and keeps gradients of
//! its own; [`temporal_gradient()`] adds those in the order of the blocks. The number of blocks depends on R, T and the threads a
//! block alone.
//!
//! **Precision.** The operands of products with W_e, W_in, W_out are rounded once, forwards and backwards; the rest is f32.

mod backward;
mod forward;
mod parameters;
mod scan;
mod scan_backward;
mod tensor_backward;
mod tensor_forward;
mod tensor_gradients;
mod tile;

pub use backward::{temporal_backward, temporal_backward_shape};
use cuda_std::prelude::*;
pub use forward::{temporal_forward, temporal_forward_shape};
pub use parameters::{N_PARAMETERS, offset};
pub use tensor_backward::{temporal_backward_tensor, temporal_backward_tensor_shape};
pub use tensor_forward::{temporal_forward_tensor, temporal_forward_tensor_shape};

/// Features of a bar.
pub const N_FEATURES: usize = shared_types::market::N_FEATURES;
/// Width of a bar's embedding and of the output.
pub const WIDTH: usize = 64;
/// Channels of z, x and y.
pub const INNER: usize = 128;
/// Heads of the scan.
pub const N_HEADS: usize = 4;
/// Columns of a head's state: width of B and C.
pub const STATE: usize = 16;
/// Channels that the convolution sees: x, B, C.
pub const CHANNELS: usize = INNER + 2 * STATE;
/// Outputs of in_proj: z, x, B, C, dt.
pub const PROJECTED: usize = INNER + CHANNELS + N_HEADS;
/// Taps of the convolution; the last lies on the present bar.
pub const TAPS: usize = 4;

/// Channels of a head.
const HEAD_WIDTH: usize = INNER / N_HEADS;
/// Outputs of in_proj that every bar needs: x, B, C, dt.
const SCANNED: usize = CHANNELS + N_HEADS;

/// Blocks that leave gradients of their own, for `n_rows` rows of `window` bars: the parts of [`temporal_backward()`] in blocks of
/// `n_threads`, or with 512 those of [`temporal_backward_tensor()`].
pub const fn temporal_n_parts(n_rows: usize, window: usize, n_threads: u32) -> usize {
    crate::tile::n_gradient_parts(n_rows, window, n_threads)
}

/// Operations of the products forwards, a multiplication and an addition counted as two: embedding and in_proj of every bar, z
/// and out_proj of the last.
pub const fn temporal_forward_operations(n_rows: usize, window: usize) -> u64 {
    2 * n_rows as u64 * (window * (WIDTH * N_FEATURES + SCANNED * WIDTH) + 2 * INNER * WIDTH) as u64
}

/// The same backwards: the products are made again, and each has a gradient by its weights and by its input, but for the features.
pub const fn temporal_backward_operations(n_rows: usize, window: usize) -> u64 {
    3 * temporal_forward_operations(n_rows, window) - 2 * (n_rows * window * WIDTH * N_FEATURES) as u64
}

/// Launch of [`temporal_gradient()`].
pub const fn temporal_gradient_shape() -> LaunchShape {
    LaunchShape::cover(N_PARAMETERS, 128)
}

/// Adds the blocks' gradients in order: gradient_i = sum_p parts\[p, i\].
///
/// Shapes: parts `[n_parts, `[`N_PARAMETERS`]`]`; gradient `[`[`N_PARAMETERS`]`]`, the temporal part of the flat gradient, overwritten;
/// its gaps become 0. Launch: [`temporal_gradient_shape`].
#[kernel]
pub fn temporal_gradient(parts: GlobalSlice<f32>, gradient: GlobalSliceMut<f32>) {
    crate::tile::add_parts(&parts, &gradient);
}
