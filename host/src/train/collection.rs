//! Collection: all environments over a bar, as one captured graph.

use gpu_kernels::explore::ActRule;
use shared_types::EnvParams;

use super::TrainError;
use crate::agent::{Agent, NetworkPolicy};
use crate::config::Config;
use crate::device::{Buffer, Device, Stream};
use crate::error::DeviceError;
use crate::eval::backtest::Policy;
use crate::graph::{ChildGraph, ParentGraph};
use crate::images::KERNELS;
use crate::interrupt::Interrupt;
use crate::market::environments::Environments;
use crate::market::fold::FoldMarket;
use crate::market::{Runner, Step};
use crate::step::Replay;

/// Environments, and the graphs that take them over a bar.
pub struct Collection {
    /// A bar whose transitions go into the ring. The graphs first: they go before what they reach.
    collect: ParentGraph,
    /// A bar after which no transition is complete yet.
    fill: ParentGraph,
    /// The environments.
    pub envs: Environments,
    n_step: u32,
}

impl Collection {
    /// Captures the graphs.
    pub fn new(
        device: &Device,
        config: &Config,
        agent: &Agent,
        market: &FoldMarket,
        replay: &Replay,
    ) -> Result<Self, DeviceError> {
        let envs = Environments::new(device, config.environments, config.n_step as usize)?;
        let rows = device.alloc_zeroed(config.environments * agent.sizes().state_stride())?;
        let parts = Parts { device, config, agent, market, replay, envs: &envs, rows: &rows };
        Ok(Self { collect: parts.capture(true)?, fill: parts.capture(false)?, envs, n_step: config.n_step })
    }

    /// Starts a fold: every environment's first episode.
    pub fn restart(&self, runner: Runner<'_>, params: &EnvParams, bus: &Buffer<f32>) -> Result<(), DeviceError> {
        self.envs.begin_fold(params)?;
        runner.run([self.envs.reset(bus)])
    }

    /// Takes all environments over `n_bars` bars, of which `n_done` have gone by in this fold.
    pub fn run(&self, stream: &Stream, n_done: u64, n_bars: u64, interrupt: &Interrupt) -> Result<(), TrainError> {
        for bar in n_done..n_done + n_bars {
            interrupt.check()?;
            let graph = if bar + 1 < u64::from(self.n_step) { &self.fill } else { &self.collect };
            graph.launch(stream)?;
        }
        Ok(())
    }
}

struct Parts<'a> {
    device: &'a Device,
    config: &'a Config,
    agent: &'a Agent,
    market: &'a FoldMarket,
    replay: &'a Replay,
    envs: &'a Environments,
    rows: &'a Buffer<f32>,
}

impl Parts<'_> {
    fn capture(&self, inserts: bool) -> Result<ParentGraph, DeviceError> {
        let (envs, agent, bus) = (self.envs, self.agent, &self.agent.bus);
        let rule = ActRule {
            seed: [self.config.seed as u32, (self.config.seed >> 32) as u32],
            explore: 1,
            select_threshold: agent.select_threshold,
            select_from: select_from(self.config),
        };
        let policy = NetworkPolicy::new(self.device, agent, rule, &envs.collector);
        let mut steps: Vec<Step> = vec![envs.observe(self.market, bus, self.rows)];
        steps.extend(policy.act(self.rows, &envs.actions)?);
        steps.push(envs.step(self.market, bus));
        if inserts {
            steps.push(envs.insert(self.market, bus, &agent.counters, &self.replay.ring));
            steps.extend(self.replay.tree_memory().insert(envs.slots.view().memory()));
        }
        steps.push(envs.advance(&self.replay.ring));
        let child = ChildGraph::capture(self.device, "collect", &KERNELS, |recorder| {
            steps.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
        })?;
        ParentGraph::compose(self.device, vec![child])
    }
}

/// Epoch from which greedy draws of collection obey selectivity, as applied updates.
fn select_from(config: &Config) -> i32 {
    const FIRST_EPOCH: u32 = 5;
    i32::try_from(FIRST_EPOCH.saturating_mul(config.steps_per_epoch)).unwrap_or(i32::MAX)
}
