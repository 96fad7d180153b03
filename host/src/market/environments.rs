//! The parallel environments of collection.

use gpu_kernels::market::collector::{
    N_PARTIALS, collector_advance, collector_partials, collector_partials_shape, kelly_cap_update, regime_update,
    single_shape,
};
use gpu_kernels::market::environment::{
    environment_reset, environment_shape, environment_step, observe, observe_shape,
};
use gpu_kernels::market::insertion::{insert_transitions, insert_transitions_shape};
use shared_types::market::{MAX_N_STEP, N_ACCOUNT, N_BRANCHES, N_RECENT};
use shared_types::{Collector, CollectorSums, Counters, EnvParams, EnvState, PendingStep};

use super::Step;
use super::fold::FoldMarket;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::replay::Ring;

/// E environments. One bar of all is: [`observe`](Self::observe), the policy writes `actions`, [`step`](Self::step),
/// [`insert`](Self::insert) (once `n_step` - 1 bars have gone by), [`advance`](Self::advance).
///
/// All that collection needs to go on where it stopped is in the public buffers.
pub struct Environments {
    /// Constants of the fold; written by the host.
    pub params: Buffer<EnvParams>,
    /// Where collection stands.
    pub collector: Buffer<Collector>,
    /// States, \[E\].
    pub states: Buffer<EnvState>,
    /// Latest log returns of equity, \[20, E\].
    pub returns: Buffer<f32>,
    /// What the agents see of their accounts, \[E, 16\].
    pub portfolio: Buffer<f32>,
    /// Choices, \[E\]; written by the policy.
    pub actions: Buffer<[u8; N_BRANCHES]>,
    /// Steps whose transition is not complete, \[n_step, E\].
    pub queue: Buffer<PendingStep>,
    /// Accounts before and after those steps, \[n_step, E, 2, 16\].
    pub accounts: Buffer<f32>,
    /// Slots of the ring that the latest bar filled, \[E\].
    pub slots: Buffer<u32>,
    partials: Buffer<CollectorSums>,
    n_step: usize,
}

impl Environments {
    /// Buffers of `n_envs` environments.
    ///
    /// # Panics
    /// If `n_envs` is 0 or `n_step` is not 1 to 8.
    pub fn new(device: &Device, n_envs: usize, n_step: usize) -> Result<Self, DeviceError> {
        assert!(n_envs > 0 && (1..=MAX_N_STEP).contains(&n_step), "{n_envs} environments, n_step {n_step}");
        Ok(Self {
            params: device.alloc_zeroed(1)?,
            collector: device.alloc_zeroed(1)?,
            states: device.alloc_zeroed(n_envs)?,
            returns: device.alloc_zeroed(N_RECENT * n_envs)?,
            portfolio: device.alloc_zeroed(n_envs * N_ACCOUNT)?,
            actions: device.alloc_zeroed(n_envs)?,
            queue: device.alloc_zeroed(n_step * n_envs)?,
            accounts: device.alloc_zeroed(n_step * n_envs * 2 * N_ACCOUNT)?,
            slots: device.alloc_zeroed(n_envs)?,
            partials: device.alloc_zeroed(N_PARTIALS)?,
            n_step,
        })
    }

    /// E.
    pub fn n_envs(&self) -> usize {
        self.states.len()
    }

    /// Forgets everything collected and takes over a fold's constants; [`reset`](Self::reset) must follow. Not for the hot
    /// path.
    ///
    /// # Panics
    /// If `params` ask for another n-step sum than the queue was made for.
    pub fn begin_fold(&self, params: &EnvParams) -> Result<(), DeviceError> {
        assert_eq!(params.n_step as usize, self.n_step, "the queue's n_step");
        self.params.write(&[*params])?;
        self.collector.write(&[Collector::default()])
    }

    /// Starts the first episode of every environment.
    pub fn reset(&self, bus: &Buffer<f32>) -> Step {
        let launch = environment_reset::launch(
            self.params.view(),
            bus.view(),
            self.collector.view(),
            self.states.view_mut(),
            self.portfolio.view_mut(),
        );
        (environment_shape(self.n_envs()), launch)
    }

    /// Writes what every environment sees into `rows`, \[E, stride\], padded with zeros.
    pub fn observe(&self, market: &FoldMarket, bus: &Buffer<f32>, rows: &Buffer<f32>) -> Step {
        let launch = observe::launch(
            self.params.view(),
            bus.view(),
            market.features.view(),
            self.states.view(),
            self.portfolio.view(),
            rows.view_mut(),
        );
        (observe_shape(self.n_envs(), rows.len() / self.n_envs()), launch)
    }

    /// Takes every environment over the next bar with `actions`.
    pub fn step(&self, market: &FoldMarket, bus: &Buffer<f32>) -> Step {
        let launch = environment_step::launch(
            self.params.view(),
            bus.view(),
            self.collector.view(),
            market.bars.view(),
            self.actions.view(),
            self.states.view_mut(),
            self.returns.view_mut(),
            self.portfolio.view_mut(),
            self.queue.view_mut(),
            self.accounts.view_mut(),
        );
        (environment_shape(self.n_envs()), launch)
    }

    /// Writes the transitions that became complete into the ring, and their slots into `slots`.
    pub fn insert(&self, market: &FoldMarket, bus: &Buffer<f32>, counters: &Buffer<Counters>, ring: &Ring) -> Step {
        let launch = insert_transitions::launch(
            self.params.view(),
            bus.view(),
            counters.view(),
            self.collector.view(),
            market.features.view(),
            self.queue.view(),
            self.accounts.view(),
            ring.states.view_mut(),
            ring.next_states.view_mut(),
            ring.actions.view_mut(),
            ring.rewards.view_mut(),
            ring.dones.view_mut(),
            ring.episode_ids.view_mut(),
            ring.discount_powers.view_mut(),
            ring.achieved.view_mut(),
            ring.last_scored.view_mut(),
            self.slots.view_mut(),
        );
        (insert_transitions_shape(self.n_envs(), ring.states.len() / ring.n_slots()), launch)
    }

    /// Counts the bar and the slots it filled.
    pub fn advance(&self, ring: &Ring) -> Step {
        let (n_envs, n_slots) = (self.n_envs() as u32, ring.n_slots() as u32);
        let launch = collector_advance::launch(self.params.view(), self.collector.view_mut(), n_envs, n_slots);
        (single_shape(), launch)
    }

    /// What the epoch boundary does with the environments: the market's regime and the cap on positions, into the bus.
    pub fn boundary(&self, market: &FoldMarket, bus: &Buffer<f32>) -> Vec<Step> {
        let n_envs = self.n_envs() as u32;
        let (bars, states, returns) = (market.bars.view(), self.states.view(), self.returns.view());
        let partials = collector_partials::launch(bars, states, returns, self.partials.view_mut());
        let regime = regime_update::launch(self.partials.view(), bus.view_mut(), n_envs);
        let kelly = kelly_cap_update::launch(self.partials.view(), bus.view_mut(), n_envs);
        vec![(collector_partials_shape(), partials), (single_shape(), regime), (single_shape(), kelly)]
    }
}
