//! Distributions of returns: C51 (Bellemare, Dabney, Munos 2017, arXiv:1707.06887) on branches (Tavakoli et al. 2018) with
//! dueling heads (Wang et al. 2016, equation 9), double DQN (van Hasselt et al. 2016) and CQL (Kumar et al. 2020).
//!
//! | kernel | what it gives |
//! |---|---|
//! | [`c51_q()`] | Q_{b,a} = sum_k p_k z_k, and the greedy action of each branch |
//! | [`c51_cvar()`] | the mean of the worst share eta of each distribution |
//! | [`c51_targets()`] | r + gamma^n (1 - done) Z(s', a*), projected onto the atoms |
//! | [`c51_loss()`] | a row's losses, and the gradient of the objective by the heads' outputs |
//! | [`loss_partials()`], [`loss_totals()`] | their means over the batch |
//! | [`td_error_bf16()`] | TD errors as priorities take them |
//!
//! logits_{b,a} = V_b + A_{b,a} - mean_a A_{b,a}, atom by atom; p = softmax over the K atoms. Columns: [`crate::heads`].
//!
//! **A warp has a row** (or a row's branch), and lane l of it the atoms l and l + 32 of whatever distribution is at hand, in
//! registers; on the CPU one lane has all atoms, in arrays of 64 whose loops the compiler vectorises. Both are the same
//! function, generic over the number of lanes. Sums go over a lane's atoms, then by halves over the lanes: a fixed order.

#![allow(
    clippy::needless_range_loop,
    reason = "a slot or an action indexes several arrays at once, and an array's own iterator would put it into local memory"
)]

mod cvar;
mod loss;
mod q;
mod slots;
mod targets;
mod td;
mod totals;

pub use cvar::*;
pub use loss::*;
pub use q::*;
pub use targets::*;
pub use td::*;
pub use totals::*;
