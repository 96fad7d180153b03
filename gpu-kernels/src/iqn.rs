//! IQN's head (Dabney, Ostrovski, Silver, Munos 2018, arXiv:1806.06923) between its matrix products: quantiles of the return from
//! the trunk's output h, at fixed levels.
//!
//! | value | equation |
//! |---|---|
//! | tau_n | (n + 1/2) / 8, n = 0..7; on purpose not drawn as in the paper: phi is the same for all rows, and computed once a pass |
//! | phi_n | ReLU(W_phi cos(pi i tau_n), i = 0..63, + b) (equation 4) |
//! | Z_n | W_out SiLU(W_hid (h * phi_n) + b_hid) + b_out, a value for each of the 13 actions |
//! | T_m | r + gamma^n (1 - done) Z'_m(h'(s'), a*), of the target net, a* the online net's greedy action |
//! | L | mean over batch and branches of sum_n mean_m \|tau_n - 1(delta < 0)\| Huber(delta), delta = T_m - Z_n(s, a), kappa 1 (equation 3) |
//!
//! | file | kernels | when |
//! |---|---|---|
//! | [`forward`] | `iqn_phi`, `iqn_product` | of the target net on s', of the online net on s |
//! | [`loss`] | `iqn_loss`, `iqn_total` | every step |
//! | [`backward`] | `iqn_product_backward`, `iqn_phi_gradient` | every step |
//! | [`boundary`] | `refresh_iqn_iqr` | every epoch |
//!
//! **Rows of the products are i 8 + n**: the eight quantiles of a batch row are one stretch of memory. So a warp takes all that the loss
//! of a row needs in one sweep, and a matrix `[8 B, C]` is one of `[B, 8 C]` too, which lets one thread write the eight products of
//! an h that it has read once, and sum their gradients over n (for h) and over i (for phi) in one reading of d(h * phi).

use shared_types::market::{BRANCH_SIZES, N_BRANCHES};

use crate::heads::{N_ACTIONS, first_action};

pub mod backward;
pub mod boundary;
pub mod forward;
pub mod loss;

/// Quantiles N of the online net, and N' of the target net.
pub const N_QUANTILES: usize = 8;
/// Cosines of a level's embedding.
pub const N_COSINES: usize = 64;
/// Elements from a row of quantiles to the next: a value an action, and three that are unused, since rows of operands begin at 16
/// bytes.
pub const QUANTILE_STRIDE: usize = N_ACTIONS.next_multiple_of(8);

/// Level of quantile `n`; exact.
#[inline(always)]
pub const fn level(n: usize) -> f32 {
    (n as f32 + 0.5) / N_QUANTILES as f32
}

/// First action of a branch whose number is not constant: by arithmetic, since an indexed table would lie in local memory.
#[inline(always)]
fn first_of(branch: usize) -> usize {
    if branch == 0 { 0 } else { BRANCH_SIZES[0] + (branch - 1) * BRANCH_SIZES[1] }
}
const _: () = {
    let mut branch = 0;
    while branch < N_BRANCHES {
        let first = if branch == 0 { 0 } else { BRANCH_SIZES[0] + (branch - 1) * BRANCH_SIZES[1] };
        assert!(first == first_action(branch));
        branch += 1;
    }
};

/// Action of a branch whose number is not constant.
#[inline(always)]
fn action_of(actions: [u8; N_BRANCHES], branch: usize) -> usize {
    (u32::from_le_bytes(actions) >> (8 * branch)) as u8 as usize
}
