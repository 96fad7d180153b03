//! The columns of sampled transitions, all but the states.

use cuda_std::prelude::*;

/// Launch of [`gather_transitions()`] for `n_rows`: a thread a row.
pub const fn gather_transitions_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::cover(n_rows, 256)
}

/// Picks the columns of the slots `indices`.
///
/// Shapes: indices `[B]`, under N; actions, rewards, dones, discount_powers `[N]`; the batch's the same, `[B]`. Launch:
/// [`gather_transitions_shape`].
#[kernel]
pub fn gather_transitions(
    indices: GlobalSlice<u32>,
    actions: GlobalSlice<[u8; 4]>,
    rewards: GlobalSlice<f32>,
    dones: GlobalSlice<u8>,
    discount_powers: GlobalSlice<f32>,
    batch_actions: GlobalSliceMut<[u8; 4]>,
    batch_rewards: GlobalSliceMut<f32>,
    batch_dones: GlobalSliceMut<u8>,
    batch_discount_powers: GlobalSliceMut<f32>,
) {
    let row = thread::index_1d() as usize;
    if row >= indices.len() {
        return;
    }
    let slot = indices.get(row) as usize;
    batch_actions.set(row, actions.get(slot));
    batch_rewards.set(row, rewards.get(slot));
    batch_dones.set(row, dones.get(slot));
    batch_discount_powers.set(row, discount_powers.get(slot));
}
