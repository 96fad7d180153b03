//! A policy taken over paths bar by bar. What a bar takes is captured once, so that each bar is one graph launch.

use std::ops::Range;

use shared_types::{BarRecord, EnvParams, Isv, isv};

use super::EvalError;
use super::records::PathRecords;
use super::scenario::Scenario;
use super::statistics;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::graph::{ChildGraph, ParentGraph};
use crate::images::{Images, KERNELS};
use crate::interrupt::Interrupt;
use crate::market::fold::FoldMarket;
use crate::market::paths::{Baseline, Paths, baseline};
use crate::market::{Runner, Step};

/// What chooses actions from what is seen.
pub trait Policy {
    /// The launches that read `rows`, \[n, [`state_stride`](Self::state_stride)\], and write `actions`, \[n\]. They are
    /// captured once and replayed at every bar; memory of the policy's own that they reach lives as long as the graph.
    /// No launch at all leaves `actions` as it is.
    fn act(&self, rows: &Buffer<f32>, actions: &Buffer<[u8; 4]>) -> Result<Vec<Step>, DeviceError>;

    /// Width of a row: [window x F | portfolio | goal | zeros].
    fn state_stride(&self) -> usize;

    /// Where the launches' kernels are from.
    fn images(&self) -> &Images {
        &KERNELS
    }
}

/// Constants of the paths, and the bus whose kelly_cap they trade under; epsilon is 0 whatever the bus says.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Constants of the fold.
    pub params: &'a EnvParams,
    /// The checkpoint's bus.
    pub bus: &'a Isv,
}

/// Paths of one part, and the graph that takes all of them over one bar. It can be run again and again: the weights that
/// the policy's launches read are those of then, the part and the constants those of the latest [`rewind`](Self::rewind).
pub struct Backtest {
    /// The graph first: it goes before what it reaches.
    graph: ParentGraph,
    scenarios: Vec<(Scenario, Paths)>,
}

impl Backtest {
    /// One continuous path over `part` for each of `scenarios`, all side by side.
    ///
    /// # Panics
    /// If there is no scenario, or `part` has fewer than two bars.
    pub fn continuous(
        device: &Device,
        market: &FoldMarket,
        terms: Terms<'_>,
        part: &Range<usize>,
        scenarios: &[Scenario],
        policy: &dyn Policy,
    ) -> Result<Self, DeviceError> {
        let paths = |scenario: &Scenario| {
            let (params, bus) = (scenario.params(terms.params), scenario.bus(terms.bus));
            Ok((*scenario, Paths::continuous(device, &params, &bus, part)?))
        };
        Self::capture(device, market, scenarios.iter().map(paths).collect::<Result<_, DeviceError>>()?, policy)
    }

    /// `part` as paths of episode_len bars side by side, each starting flat and closed at its end.
    ///
    /// # Panics
    /// If `part` has fewer than two bars.
    pub fn segments(
        device: &Device,
        market: &FoldMarket,
        terms: Terms<'_>,
        part: &Range<usize>,
        policy: &dyn Policy,
    ) -> Result<Self, DeviceError> {
        let paths = Paths::segments(device, terms.params, terms.bus, part)?;
        Self::capture(device, market, vec![(Scenario::Configured, paths)], policy)
    }

    fn capture(
        device: &Device,
        market: &FoldMarket,
        scenarios: Vec<(Scenario, Paths)>,
        policy: &dyn Policy,
    ) -> Result<Self, DeviceError> {
        let (stride, n_paths) = (policy.state_stride(), scenarios.iter().map(|(_, paths)| paths.n_paths()).sum());
        let rows = device.alloc_zeroed::<f32>(n_paths * stride)?;
        let actions = device.alloc_zeroed::<[u8; 4]>(n_paths)?;
        let (mut observe, mut step, mut first) = (Vec::new(), Vec::new(), 0);
        for (_, paths) in &scenarios {
            let own = first..first + paths.n_paths();
            observe.push(paths.observe_into(market, &rows.slice(own.start * stride..own.end * stride)));
            step.push(paths.step_with(market, &actions.slice(own.clone())));
            first = own.end;
        }
        let act = policy.act(&rows, &actions)?;
        let child = |name: &str, images: &Images, steps: Vec<Step>| {
            ChildGraph::capture(device, name, images, |recorder| {
                steps.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
            })
        };
        let mut children = vec![child("observe", &KERNELS, observe)?];
        if !act.is_empty() {
            children.push(child("policy", policy.images(), act)?);
        }
        children.push(child("step", &KERNELS, step)?);
        Ok(Self { graph: ParentGraph::compose(device, children)?, scenarios })
    }

    /// Puts all paths back to the start of `part`, which may be another fold's part of the same length.
    ///
    /// # Panics
    /// If the part is cut into other paths than before.
    pub fn rewind(&self, terms: Terms<'_>, part: &Range<usize>) -> Result<(), DeviceError> {
        self.scenarios.iter().try_for_each(|(scenario, paths)| {
            paths.rewind(&scenario.params(terms.params), &scenario.bus(terms.bus), part)
        })
    }

    /// Takes all paths to their ends: as many graph launches as the longest has bars. The bars of each scenario, path
    /// after path. Once it has run, or was interrupted, [`rewind`](Self::rewind) must come first.
    pub fn run(&self, runner: Runner<'_>, interrupt: &Interrupt) -> Result<Vec<Vec<BarRecord>>, EvalError> {
        let n_steps = self.scenarios.iter().map(|(_, paths)| paths.n_steps()).max().unwrap_or(0);
        for _ in 0..n_steps {
            interrupt.check()?;
            self.graph.launch(runner.stream)?;
        }
        let records = self.scenarios.iter().map(|(_, paths)| paths.records());
        Ok(records.collect::<Result<_, DeviceError>>()?)
    }
}

/// A part under all scenarios, the agent and buy-and-hold.
#[derive(Clone, Debug, PartialEq)]
pub struct PartRecords {
    /// The part: the first decision is on its first bar, each later bar is recorded.
    pub part: Range<usize>,
    /// Cap on positions, of equity.
    pub kelly_cap: f32,
    /// The policy, under [`Scenario::ALL`].
    pub agent: Vec<PathRecords>,
    /// One market entry at full size, under [`Scenario::ALL`].
    pub buy_and_hold: Vec<PathRecords>,
}

/// Tests a policy on `part`: one continuous path from its first bar to its last, goal 1, epsilon 0, the kelly_cap of `bus`
/// throughout, under every scenario; buy-and-hold on the same costs and cap.
pub fn evaluate(
    runner: Runner<'_>,
    market: &FoldMarket,
    params: &EnvParams,
    bus: &Isv,
    part: &Range<usize>,
    policy: &dyn Policy,
    interrupt: &Interrupt,
) -> Result<PartRecords, EvalError> {
    let terms = Terms { params, bus };
    let backtest = Backtest::continuous(runner.device, market, terms, part, &Scenario::ALL, policy)?;
    let agent = backtest.run(runner, interrupt)?.iter().map(|path| PathRecords::of(path)).collect();
    // Its records go before the baselines take room for theirs.
    drop(backtest);
    let mut buy_and_hold = Vec::new();
    for scenario in Scenario::ALL {
        interrupt.check()?;
        let (params, bus) = (scenario.params(params), scenario.bus(bus));
        let paths = baseline(runner, market, &params, &bus, part, Baseline::BuyAndHold)?;
        buy_and_hold.extend(paths.iter().map(|path| PathRecords::of(path)));
    }
    Ok(PartRecords { part: part.clone(), kelly_cap: bus.entries[isv::KELLY_CAP], agent, buy_and_hold })
}

/// What chooses among checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Validation {
    /// Annual Sharpe ratio of the segments' bars, one after the other.
    pub sharpe: f64,
    /// Trades closed, the closing at a segment's end included.
    pub n_trades: u64,
    /// Sum of ln(1 + net return).
    pub log_growth: f64,
}

impl Validation {
    /// Of the bars of all segments.
    pub fn of(records: &[BarRecord], bars_a_year: f64) -> Self {
        let returns: Vec<f64> = records.iter().map(|record| f64::from(record.net_return)).collect();
        let n_trades = records.iter().filter(|record| record.flags & BarRecord::CLOSED != 0).count();
        Self {
            sharpe: statistics::sharpe(&returns, bars_a_year),
            n_trades: n_trades as u64,
            log_growth: statistics::log_growth(&returns),
        }
    }
}

/// Tries a policy on `part` as [`evaluate`] does, but cut into segments of episode_len bars that run side by side. To try
/// it often, keep a [`Backtest::segments`] and rewind it.
pub fn validate(
    runner: Runner<'_>,
    market: &FoldMarket,
    params: &EnvParams,
    bus: &Isv,
    part: &Range<usize>,
    bars_a_year: f64,
    policy: &dyn Policy,
) -> Result<Validation, EvalError> {
    let backtest = Backtest::segments(runner.device, market, Terms { params, bus }, part, policy)?;
    Ok(Validation::of(&backtest.run(runner, &Interrupt::default())?.concat(), bars_a_year))
}
