//! Evaluation paths: the agent's, and the baselines' on the same costs and cap.

use std::ops::Range;

use gpu_kernels::market::account::{self, Recent};
use gpu_kernels::market::environment::{environment_shape, observe, observe_shape};
use gpu_kernels::market::evaluation::{BUY_AND_HOLD, FLAT, RANDOM, SCRIPT, baseline_path, evaluation_step};
use shared_types::market::{N_ACCOUNT, N_BRANCHES, N_RECENT, direction};
use shared_types::{BarRecord, EnvParams, EnvState, Isv, isv};

use super::fold::FoldMarket;
use super::{Runner, Step};
use crate::device::{Buffer, Device, Part};
use crate::error::DeviceError;

/// Goal of an evaluation.
const GOAL: f32 = 1.0;
/// Seeds of the random baseline.
pub const N_RANDOM: usize = 100;
/// Room for the records of baselines that run side by side, on the device and once more on the host.
const RECORDS_BYTES: usize = 256 << 20;

/// How many paths over a part of `n_bars` run side by side where nobody needs all of them at once: so many that their records
/// have the room of `RECORDS_BYTES`, but one at least.
pub fn n_side_by_side(n_bars: usize) -> usize {
    (RECORDS_BYTES / (n_bars.max(1) * size_of::<BarRecord>())).max(1)
}

/// What trades without a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// Never.
    Flat,
    /// One market entry at full size at the start.
    BuyAndHold,
    /// At every bar a direction drawn uniformly, at full size by market order: so many paths from the seed `first` on, of
    /// [`N_RANDOM`] in all.
    Random {
        /// The first path's seed.
        first: usize,
        /// Paths.
        n_paths: usize,
    },
}

/// A part cut into paths that trade side by side, each starting flat and closed at its end. Between two bars each path has
/// seen a bar close and decides next.
///
/// A bar of all paths is: [`observe`](Self::observe), the policy writes `actions`, [`step`](Self::step);
/// [`n_steps`](Self::n_steps) times. Paths that have ended stay as they are.
pub struct Paths {
    /// Constants; the fold's, with the part's bars.
    pub params: Buffer<EnvParams>,
    /// The bus as evaluation has it: epsilon 0, kelly_cap fixed.
    pub bus: Buffer<f32>,
    /// States, \[P\].
    pub states: Buffer<EnvState>,
    /// What the agent sees of its accounts, \[P, 16\].
    pub portfolio: Buffer<f32>,
    /// Choices, \[P\]; written by the policy.
    pub actions: Buffer<[u8; N_BRANCHES]>,
    returns: Buffer<f32>,
    records: Buffer<BarRecord>,
    layout: Layout,
    n_steps: usize,
}

/// How a part is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// So many paths over the whole part, behind some that have ended before their first bar: a random path's draws follow from
    /// its place.
    Copies { n_ended: usize, n_paths: usize },
    /// Paths of episode_len bars side by side, the last one shorter.
    Segments,
}

impl Layout {
    /// Paths that have ended before their first bar.
    fn n_ended(self) -> usize {
        match self {
            Self::Copies { n_ended, .. } => n_ended,
            Self::Segments => 0,
        }
    }

    /// The bars of each path that has not ended; it records one bar fewer than its range has.
    fn ranges(self, params: &EnvParams, part: &Range<usize>) -> Vec<Range<usize>> {
        match self {
            Self::Copies { n_paths, .. } => vec![part.clone(); n_paths],
            Self::Segments => {
                let (length, last) = (params.episode_len as usize, part.end.saturating_sub(1));
                let cut = |start: usize| start..(start + length).min(last) + 1;
                (part.start..last).step_by(length).map(cut).collect()
            }
        }
    }
}

/// What the buffers hold before the first bar.
struct Start {
    bus: Isv,
    states: Vec<EnvState>,
    portfolio: Vec<f32>,
    n_records: usize,
    n_steps: usize,
}

impl Start {
    fn new(params: &EnvParams, bus: &Isv, layout: Layout, part: &Range<usize>) -> Self {
        let ranges = layout.ranges(params, part);
        assert!(!ranges.is_empty() && ranges.iter().all(|bars| bars.len() > 1), "a path has two bars at least");
        let mut bus = *bus;
        bus.entries[isv::EPSILON] = 0.0;
        let cap = bus.entries[isv::KELLY_CAP];
        let ended = EnvState { status: EnvState::FINISHED, ..EnvState::default() };
        let (mut states, mut n_records) = (vec![ended; layout.n_ended()], 0);
        let mut portfolio = vec![0.0; N_ACCOUNT * states.len()];
        for bars in &ranges {
            let state = EnvState {
                bar: bars.start as u32,
                last_bar: bars.end as u32 - 1,
                length: params.episode_len,
                goal: GOAL,
                last_direction: direction::FLAT as u32,
                record_idx: n_records as u32,
                ..EnvState::default()
            };
            n_records += bars.len() - 1;
            portfolio.extend(account::features(&state, &Recent::default(), cap, 0.0, params));
            states.push(state);
        }
        let n_steps = ranges.iter().map(|bars| bars.len() - 1).max().unwrap_or(0);
        Self { bus, states, portfolio, n_records, n_steps }
    }
}

impl Paths {
    /// One path over the decisions on all bars of `part` but the last, whose close ends it.
    pub fn continuous(
        device: &Device,
        params: &EnvParams,
        bus: &Isv,
        part: &Range<usize>,
    ) -> Result<Self, DeviceError> {
        Self::new(device, params, bus, part, Layout::Copies { n_ended: 0, n_paths: 1 })
    }

    /// Paths of episode_len bars side by side, the last one shorter.
    pub fn segments(device: &Device, params: &EnvParams, bus: &Isv, part: &Range<usize>) -> Result<Self, DeviceError> {
        Self::new(device, params, bus, part, Layout::Segments)
    }

    fn new(
        device: &Device,
        params: &EnvParams,
        bus: &Isv,
        part: &Range<usize>,
        layout: Layout,
    ) -> Result<Self, DeviceError> {
        let start = Start::new(params, bus, layout, part);
        let n_paths = start.states.len();
        Ok(Self {
            params: device.upload(&[*params])?,
            bus: device.upload(&start.bus.entries)?,
            states: device.upload(&start.states)?,
            portfolio: device.upload(&start.portfolio)?,
            actions: device.alloc_zeroed(n_paths)?,
            returns: device.alloc_zeroed(N_RECENT * n_paths)?,
            records: device.alloc_zeroed(start.n_records)?,
            layout,
            n_steps: start.n_steps,
        })
    }

    /// Puts the paths back to the start of `part`, which may be another one of the same length, under other constants.
    /// What was captured with these paths stays valid.
    ///
    /// # Panics
    /// If the part is cut into other paths than before.
    pub fn rewind(&self, params: &EnvParams, bus: &Isv, part: &Range<usize>) -> Result<(), DeviceError> {
        let start = Start::new(params, bus, self.layout, part);
        let (now, before) =
            ((start.states.len(), start.n_steps, start.n_records), (self.n_paths(), self.n_steps, self.records.len()));
        assert_eq!(now, before, "paths, steps and records of another part");
        self.params.write(&[*params])?;
        self.bus.write(&start.bus.entries)?;
        self.states.write(&start.states)?;
        self.portfolio.write(&start.portfolio)
    }

    /// P.
    pub fn n_paths(&self) -> usize {
        self.states.len()
    }

    /// Bars that the longest path goes over.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Writes what every path sees into `rows`, \[P, stride\], padded with zeros.
    pub fn observe(&self, market: &FoldMarket, rows: &Buffer<f32>) -> Step {
        self.observe_into(market, &rows.all())
    }

    /// As [`observe`](Self::observe), into a part of a buffer that several paths share.
    pub fn observe_into(&self, market: &FoldMarket, rows: &Part<'_, f32>) -> Step {
        let launch = observe::launch(
            self.params.view(),
            self.bus.view(),
            market.features.view(),
            self.states.view(),
            self.portfolio.view(),
            rows.view_mut(),
        );
        (observe_shape(self.n_paths(), rows.len() / self.n_paths()), launch)
    }

    /// Takes every path over its next bar with `actions`.
    pub fn step(&self, market: &FoldMarket) -> Step {
        self.step_with(market, &self.actions.all())
    }

    /// As [`step`](Self::step), with choices that lie elsewhere, \[P\].
    pub fn step_with(&self, market: &FoldMarket, actions: &Part<'_, [u8; N_BRANCHES]>) -> Step {
        let launch = evaluation_step::launch(
            self.params.view(),
            self.bus.view(),
            market.bars.view(),
            actions.view(),
            self.states.view_mut(),
            self.returns.view_mut(),
            self.portfolio.view_mut(),
            self.records.view_mut(),
        );
        (environment_shape(self.n_paths()), launch)
    }

    /// Runs all paths, of one length, to their ends in one launch.
    fn run_whole(
        &self,
        runner: Runner<'_>,
        market: &FoldMarket,
        scripts: &[[u8; N_BRANCHES]],
        policy: u32,
    ) -> Result<Vec<Vec<BarRecord>>, DeviceError> {
        let scripts = runner.device.upload(scripts)?;
        let launch = baseline_path::launch(
            self.params.view(),
            self.bus.view(),
            market.bars.view(),
            scripts.view(),
            self.states.view_mut(),
            self.records.view_mut(),
            policy,
        );
        runner.run([(environment_shape(self.n_paths()), launch)])?;
        let bars = |first: usize| self.records.slice(first..first + self.n_steps).read();
        (0..self.records.len()).step_by(self.n_steps).map(bars).collect()
    }

    /// Every path's records, one after the other. Those of [`segments`](Self::segments) are the part's bars in order.
    pub fn records(&self) -> Result<Vec<BarRecord>, DeviceError> {
        self.records.read()
    }
}

/// A baseline's paths over `part`, each a record a bar, on the costs of `params` and the cap in `bus`. The minimum hold is 1.
pub fn baseline(
    runner: Runner<'_>,
    market: &FoldMarket,
    params: &EnvParams,
    bus: &Isv,
    part: &Range<usize>,
    baseline: Baseline,
) -> Result<Vec<Vec<BarRecord>>, DeviceError> {
    let (policy, n_ended, n_paths) = match baseline {
        Baseline::Flat => (FLAT, 0, 1),
        Baseline::BuyAndHold => (BUY_AND_HOLD, 0, 1),
        Baseline::Random { first, n_paths } => (RANDOM, first, n_paths),
    };
    let params = EnvParams { min_hold: [1; 3], ..*params };
    let paths = Paths::new(runner.device, &params, bus, part, Layout::Copies { n_ended, n_paths })?;
    paths.run_whole(runner, market, &[], policy)
}

/// Paths over `part` that do what scripts say: `scripts` has `part.len() - 1` actions for each, one path after the other.
///
/// # Panics
/// If the scripts are not of that length.
pub fn scripted(
    runner: Runner<'_>,
    market: &FoldMarket,
    params: &EnvParams,
    bus: &Isv,
    part: &Range<usize>,
    scripts: &[[u8; N_BRANCHES]],
) -> Result<Vec<Vec<BarRecord>>, DeviceError> {
    let n_steps = part.len() - 1;
    assert!(scripts.len().is_multiple_of(n_steps), "{} actions for paths of {n_steps} bars", scripts.len());
    let layout = Layout::Copies { n_ended: 0, n_paths: scripts.len() / n_steps };
    let paths = Paths::new(runner.device, params, bus, part, layout)?;
    paths.run_whole(runner, market, scripts, SCRIPT)
}

/// The position of the median (the lower one of two) of `scores`: which of the random paths is reported.
///
/// # Panics
/// If there is no score.
pub fn median_idx(scores: &[f64]) -> usize {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    order[(order.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_paths_side_by_side_have_a_bound() {
        assert!(n_side_by_side(8_000) >= N_RANDOM, "a usual test runs all at once");
        for n_bars in [0, 1, 83_886, 100_000, 2_000_000, 7_000_000] {
            let n_paths = n_side_by_side(n_bars);
            assert!(n_paths >= 1 && n_paths * n_bars * size_of::<BarRecord>() <= RECORDS_BYTES, "{n_bars}: {n_paths}");
        }
        assert_eq!(n_side_by_side(100_000_000), 1);
    }
}
