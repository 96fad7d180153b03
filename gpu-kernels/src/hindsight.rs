//! Hindsight experience replay: rows of a batch take for their goal what their own episode achieved later (Andrychowicz et al.
//! 2017, section 4.5, strategy "future").

use cuda_std::prelude::*;
use shared_types::{Collector, Counters, stream};

use crate::philox;

/// Launch of [`her_relabel()`] for `n` rows: a thread a row.
pub const fn her_relabel_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 64)
}

/// Column of the goal in a state's row, which it ends.
pub const fn goal_column(window: usize) -> usize {
    shared_types::market::state_dim(window) - 1
}

/// Where slot i's episode goes on in the ring: slots i + jE mod N, up to the write head.
#[derive(Clone, Copy)]
struct Ring {
    n_slots: usize,
    n_envs: usize,
    head: usize,
}

impl Ring {
    fn later(&self, slot: usize, j: usize) -> usize {
        (slot + j * self.n_envs) % self.n_slots
    }

    /// The most j that the head leaves to `slot`; the head's own slot is the oldest of a full ring.
    fn until_head(&self, slot: usize) -> usize {
        let ahead = (self.head + self.n_slots - slot) % self.n_slots;
        (if ahead == 0 { self.n_slots } else { ahead } - 1) / self.n_envs
    }

    /// M: later transitions of the slot's episode. They follow each other, so their end is found by halving.
    fn n_donors(&self, slot: usize, episodes: GlobalSlice<u32>) -> usize {
        let episode = episodes.get(slot);
        let (mut of_episode, mut beyond) = (0, self.until_head(slot) + 1);
        while beyond - of_episode > 1 {
            let middle = of_episode + (beyond - of_episode) / 2;
            if episodes.get(self.later(slot, middle)) == episode {
                of_episode = middle;
            } else {
                beyond = middle;
            }
        }
        of_episode
    }
}

/// Relabels each row whose uniform is under `ratio` and whose episode went on: goal' = what donor j = 1 + floor(xi M) achieved,
/// in both states, and r' = r + `weight` (|goal - a| - |goal' - a|), a being the row's own achieved and `weight` = reward_scale
/// her.weight. `relabelled` says which rows; these do not write their priority.
///
/// Assumes that an environment's episodes have numbers of their own, E divides N, and no slot beyond the head is drawn before the
/// ring is full. Shapes: indices `[B]`, under N; episodes, achieved `[N]`; counters, collector \[1\]; states, next_states
/// `[B, stride]` with the goal at `goal`; rewards, relabelled `[B]`. Launch: [`her_relabel_shape`].
#[kernel]
pub fn her_relabel(
    indices: GlobalSlice<u32>,
    episodes: GlobalSlice<u32>,
    achieved: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    collector: GlobalSlice<Collector>,
    states: GlobalSliceMut<f32>,
    next_states: GlobalSliceMut<f32>,
    rewards: GlobalSliceMut<f32>,
    relabelled: GlobalSliceMut<u8>,
    seed: [u32; 2],
    n_envs: u32,
    goal: u32,
    ratio: f32,
    weight: f32,
) {
    let row = thread::index_1d() as usize;
    if row >= indices.len() {
        return;
    }
    let (slot, step) = (indices.get(row) as usize, counters.get(0).rng_step as u32);
    let uniform = |stream| philox::uniform(seed, stream, step, row as u32);
    let ring = Ring { n_slots: episodes.len(), n_envs: n_envs as usize, head: collector.get(0).head as usize };
    let picked = uniform(stream::HER_PICK) < ratio;
    let n_donors = if picked { ring.n_donors(slot, episodes) } else { 0 };
    relabelled.set(row, (n_donors > 0).into());
    if n_donors == 0 {
        return;
    }
    let donor = ring.later(slot, 1 + (uniform(stream::HER_DONOR) * n_donors as f32) as usize);
    let (own, new_goal) = (achieved.get(slot), achieved.get(donor));
    let at = states.len() / indices.len() * row + goal as usize;
    let off = |goal: f32| (goal - own).abs();
    rewards.set(row, rewards.get(row) + weight * (off(states.get(at)) - off(new_goal)));
    states.set(at, new_goal);
    next_states.set(at, new_goal);
}
