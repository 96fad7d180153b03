//! Risk: what the level eta of CVaR descends.

use cuda_std::prelude::*;
use shared_types::market::N_BRANCHES;

use crate::block::{self, N_WARPS};
use crate::heads::{N_ACTIONS, first_action};

/// Launch of [`cvar_loss()`].
pub const fn cvar_loss_shape(lanes: u32) -> LaunchShape {
    block::shape(lanes)
}

/// - mean over batch and branches of the CVaR of the actions taken (Rockafellar and Uryasev 2000).
///
/// Shapes: ranks `[B, 13]` of [`c51_cvar`](crate::c51::c51_cvar()) on s; actions `[B]`; loss \[1\]. Launch: [`cvar_loss_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn cvar_loss(ranks: GlobalSlice<f32>, actions: GlobalSlice<[u8; 4]>, loss: GlobalSliceMut<f32>) {
    let scratch = shared_slice![f64; N_WARPS];
    let n_rows = actions.len();
    let mut sum = 0.0;
    block::for_rows(n_rows, |row| {
        let [direction, size, order, hold] = actions.get(row);
        let of = |branch: usize, action: u8| ranks.get(row * N_ACTIONS + first_action(branch) + action as usize) as f64;
        sum += (of(0, direction) + of(1, size)) + (of(2, order) + of(3, hold));
    });
    let [total] = block::sums([sum], &scratch);
    if thread::thread_idx_x() == 0 {
        loss.set(0, (-total / (n_rows * N_BRANCHES) as f64) as f32);
    }
}

/// eta - lr (cvar_loss - target), in [0.05, 1]; eta where the loss is no finite number.
#[inline]
pub fn next_eta(eta: f32, cvar_loss: f32, lr: f32, target: f32) -> f32 {
    if cvar_loss.is_finite() { (eta - lr * (cvar_loss - target)).clamp(0.05, 1.0) } else { eta }
}
