//! The replay ring: N transitions in columns.

use shared_types::market::{N_BRANCHES, state_dim};

use crate::device::{Buffer, Device};
use crate::error::DeviceError;

/// Columns of the ring, all N long; written by `insert_transitions` alone, but for `last_scored`.
pub struct Ring {
    /// States, \[N, state_dim\].
    pub states: Buffer<f32>,
    /// States n bars on, \[N, state_dim\].
    pub next_states: Buffer<f32>,
    /// Choice of each branch, direction as executed.
    pub actions: Buffer<[u8; N_BRANCHES]>,
    /// n-step reward with the goal term, scaled.
    pub rewards: Buffer<f32>,
    /// 1 if the equity fell under half by the next state.
    pub dones: Buffer<u8>,
    /// Identity of the episode.
    pub episode_ids: Buffer<u32>,
    /// n: the power of gamma that discounts the next state.
    pub discount_powers: Buffer<f32>,
    /// ln(equity / start) / (s sqrt(episode_len)) at the next state.
    pub achieved: Buffer<f32>,
    /// rng_step at which the priority was last worked out; written by `per_priority` and re-scoring, too.
    pub last_scored: Buffer<u32>,
}

impl Ring {
    /// A ring of `n_slots` for windows of so many bars.
    pub fn new(device: &Device, n_slots: usize, window: usize) -> Result<Self, DeviceError> {
        let width = state_dim(window);
        Ok(Self {
            states: device.alloc_zeroed(n_slots * width)?,
            next_states: device.alloc_zeroed(n_slots * width)?,
            actions: device.alloc_zeroed(n_slots)?,
            rewards: device.alloc_zeroed(n_slots)?,
            dones: device.alloc_zeroed(n_slots)?,
            episode_ids: device.alloc_zeroed(n_slots)?,
            discount_powers: device.alloc_zeroed(n_slots)?,
            achieved: device.alloc_zeroed(n_slots)?,
            last_scored: device.alloc_zeroed(n_slots)?,
        })
    }

    /// Slots.
    pub fn n_slots(&self) -> usize {
        self.rewards.len()
    }
}
