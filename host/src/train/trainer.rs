//! A fold in training: everything on the device that learns from one training part, restarted in place for the next.

use std::ops::Range;
use std::sync::Arc;

use gpu_kernels::boundary::{EpsilonSchedule, boundary_shape, epsilon_update, gamma_update, tau_update};
use shared_types::market::N_BRANCHES;
use shared_types::{BarRecord, Collector, EnvParams, Isv};

use super::TrainError;
use super::collection::Collection;
use super::step_loop::StepLoop;
use super::tester::SCALES;
use crate::agent::{Agent, NetworkPolicy};
use crate::config::Config;
use crate::data::Bars;
use crate::device::{Buffer, Device, Module, Stored, Stream};
use crate::error::DeviceError;
use crate::eval::backtest::{Backtest, Terms};
use crate::graph::ParentGraph;
use crate::images::KERNELS;
use crate::interrupt::Interrupt;
use crate::market::fold::FoldMarket;
use crate::market::rules::Rules;
use crate::market::series::Series;
use crate::market::walk_forward::Fold;
use crate::market::{Runner, Step};
use crate::metrics::ActionMix;
use crate::step::{self, ControlPage, Pages, Published, ReadbackReader, Replay, Rescoring, StepMemory, StepParts};

/// What is on the device for a run. Graphs come first: they go before what they reach.
pub struct Trainer {
    step_graph: ParentGraph,
    collection: Collection,
    backtests: [Option<Backtest>; 2],
    /// The agent.
    pub agent: Agent,
    /// Transitions and priorities.
    pub replay: Replay,
    memory: StepMemory,
    rescoring: Rescoring,
    reader: ReadbackReader,
    control: ControlPage,
    pages: Arc<Pages>,
    market: FoldMarket,
    series: Series,
    no_draws: Buffer<Collector>,
    module: Module,
    stream: Stream,
    device: Device,
    config: Config,
    params: EnvParams,
    bars_done: u64,
    steps_done: u64,
    interrupt: Interrupt,
}

/// Parts that are traded at every boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentedPart {
    /// Chooses the checkpoint.
    Validation,
    /// As many bars at the training part's end, to be seen beside it.
    Training,
}

impl Trainer {
    /// Takes the memory, uploads the series and captures the graphs.
    pub fn new(device: &Device, config: &Config, bars: &Bars) -> Result<Self, TrainError> {
        let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
        let runner = Runner { device, module: &module, stream: &stream };
        let series = Series::upload(device, bars)?;
        runner.run(series.features())?;
        let market = FoldMarket::new(device, series.len())?;
        let agent = Agent::new(device, config)?;
        let replay = Replay::new(device, config.capacity, config.window as usize)?;
        let memory = StepMemory::new(device, config, &agent)?;
        let pages = Pages::new(device)?;
        let collection = Collection::new(device, config, &agent, &market, &replay)?;
        let parts = StepParts {
            device,
            config,
            agent: &agent,
            replay: &replay,
            collector: &collection.envs.collector,
            memory: &memory,
            pages: &pages,
        };
        Ok(Self {
            step_graph: step::compose(&parts)?,
            collection,
            backtests: [None, None],
            reader: ReadbackReader::new(Arc::clone(&pages)),
            control: ControlPage::new(Arc::clone(&pages)),
            pages,
            no_draws: device.alloc_zeroed(1)?,
            rescoring: Rescoring::new(device, config)?,
            agent,
            replay,
            memory,
            market,
            series,
            module,
            stream,
            device: device.clone(),
            config: config.clone(),
            params: EnvParams::default(),
            bars_done: 0,
            steps_done: 0,
            interrupt: Interrupt::default(),
        })
    }

    /// From now on collection and the trading of parts end with [`TrainError::Interrupted`] when `interrupt` asks for it. What they were
    /// at is then half done: nothing but a fold's start or a checkpoint goes on from there.
    pub fn heed(&mut self, interrupt: &Interrupt) {
        self.interrupt = interrupt.clone();
    }

    /// What is heeded; never asking at first.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// For work outside the graphs.
    pub fn runner(&self) -> Runner<'_> {
        Runner { device: &self.device, module: &self.module, stream: &self.stream }
    }

    /// Buffers that the step works on.
    pub fn memory(&self) -> &StepMemory {
        &self.memory
    }

    /// The step's graph.
    pub fn step_graph(&self) -> &ParentGraph {
        &self.step_graph
    }

    /// The step's children with their launches, for measurements.
    pub fn children(&self) -> Vec<(&'static str, Vec<Step>)> {
        step::children(&self.parts())
    }

    fn parts(&self) -> StepParts<'_> {
        StepParts {
            device: &self.device,
            config: &self.config,
            agent: &self.agent,
            replay: &self.replay,
            collector: &self.collection.envs.collector,
            memory: &self.memory,
            pages: &self.pages,
        }
    }

    /// The environments' constants on `part`.
    pub fn params_of(&self, part: &Range<usize>) -> Result<EnvParams, TrainError> {
        let rules: Rules = self.config.market_rules();
        Ok(rules.params(part, self.params.bar_sigma, self.config.seed)?)
    }

    /// Fits the market to the fold's training part, and starts everything over.
    pub fn begin_fold(&mut self, fold: &Fold) -> Result<(), TrainError> {
        let rules = self.config.market_rules();
        let fitted = self.market.fit(self.runner(), &self.series, &fold.train, &rules.costs)?;
        self.params = rules.params(&fold.train, fitted.bar_sigma, self.config.seed)?;
        self.agent.restart(self.runner())?;
        self.replay.restart()?;
        self.collection.restart(self.runner(), &self.params, &self.agent.bus)?;
        self.control.set_lr(self.config.lr as f32);
        self.control.set_clip(self.config.clip as f32);
        self.control.set_beta0(self.config.per.beta0 as f32);
        (self.bars_done, self.steps_done) = (0, 0);
        Ok(())
    }

    /// Lets the environments fill the ring with what must be there before the first step.
    pub fn warm_up(&mut self) -> Result<(), TrainError> {
        self.collect(self.config.warmup_bars())
    }

    /// Takes all environments over `n_bars` bars.
    pub fn collect(&mut self, n_bars: u64) -> Result<(), TrainError> {
        self.collection.run(&self.stream, self.bars_done, n_bars, &self.interrupt)?;
        self.bars_done += n_bars;
        Ok(self.stream.synchronize()?)
    }

    /// What may be used between two steps.
    pub fn step_loop(&mut self) -> StepLoop<'_> {
        let Self { step_graph: graph, stream, reader, steps_done, .. } = self;
        StepLoop { graph, stream, reader, steps_done }
    }

    /// Launches a training step: one call of the driver.
    pub fn step(&mut self) -> Result<(), DeviceError> {
        self.step_loop().launch()
    }

    /// Waits for every step launched.
    pub fn finish_steps(&self) -> Result<(), TrainError> {
        Ok(self.stream.synchronize()?)
    }

    /// Training steps of the fold so far.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// What the latest finished step told.
    pub fn published(&self) -> Option<Published> {
        self.reader.read()
    }

    /// What an epoch's boundary does to the agent: the trunk's operands, the market's regime, the schedules, the atoms, the
    /// quantiles' range over the last step's batch.
    pub fn boundary(&self) -> Result<(), TrainError> {
        let (agent, bus) = (&self.agent, &self.agent.bus);
        let schedule = EpsilonSchedule {
            start: self.config.e_start as f32,
            end: self.config.e_end as f32,
            decay: self.config.decay as f32,
            steps_per_epoch: self.config.steps_per_epoch,
        };
        let mut steps: Vec<Step> = agent.spectral.iterate(&agent.parameters);
        steps.extend(self.collection.envs.boundary(&self.market, bus));
        let tau = tau_update::launch(bus.view(), agent.scalars.view_mut());
        let gamma = gamma_update::launch(bus.view_mut());
        let epsilon = epsilon_update::launch(bus.view_mut(), agent.counters.view(), schedule);
        steps.extend([tau, gamma, epsilon].map(|launch| (boundary_shape(), launch)));
        steps.push(agent.update_atoms());
        steps.extend(self.memory.iqn.iter().map(|iqn| iqn.refresh_iqr(&self.memory.q, bus)));
        self.runner().run(steps)?;
        Ok(self.stream.synchronize()?)
    }

    /// Works out anew the priorities of the `per.rescore` transitions that were scored longest ago, with the network of now.
    pub fn rescore(&self) -> Result<(), TrainError> {
        let n_filled = self.collection.envs.collector.read()?[0].filled;
        self.runner().run(self.rescoring.launches(&self.parts(), n_filled))?;
        Ok(self.stream.synchronize()?)
    }

    /// The internal state vector as it stands on the device.
    pub fn bus(&self) -> Result<Isv, TrainError> {
        let entries = self.agent.bus.read()?;
        Ok(Isv { entries: entries.try_into().expect("64 entries") })
    }

    /// Trades `part` under the policy of now, as segments of episode_len bars side by side. A part of the same number is of
    /// the same length in every fold.
    pub fn trade_segments(&mut self, number: SegmentedPart, part: &Range<usize>) -> Result<Vec<BarRecord>, TrainError> {
        let (params, bus) = (self.params_of(part)?, self.bus()?);
        let terms = Terms { params: &params, bus: &bus };
        match &self.backtests[number as usize] {
            Some(backtest) => backtest.rewind(terms, part)?,
            None => {
                let policy = self.greedy();
                let backtest = Backtest::segments(&self.device, &self.market, terms, part, &policy)?;
                self.backtests[number as usize] = Some(backtest);
            }
        }
        let backtest = self.backtests[number as usize].as_ref().expect("just made");
        Ok(backtest.run(self.runner(), &self.interrupt)?.concat())
    }

    fn greedy(&self) -> NetworkPolicy<'_> {
        NetworkPolicy::greedy(&self.device, &self.agent, &self.no_draws)
    }

    /// How often each action was taken in the last `n_bars` bars of collection, as far as the ring still has them.
    pub fn action_mix(&self, n_bars: u64) -> Result<ActionMix, TrainError> {
        let actions = self.replay.ring.actions.read()?;
        let collector = self.collection.envs.collector.read()?[0];
        let n = (n_bars * self.config.environments as u64).min(u64::from(collector.filled)) as usize;
        let mut counts = [[0u64; 4]; N_BRANCHES];
        for back in 1..=n {
            let slot = (collector.head as usize + actions.len() - back) % actions.len();
            for (counts, action) in counts.iter_mut().zip(actions[slot]) {
                counts[usize::from(action)] += 1;
            }
        }
        let share = |branch: usize, action: usize| counts[branch][action] as f64 / n.max(1) as f64;
        Ok(ActionMix {
            direction: std::array::from_fn(|action| share(0, action)),
            size: std::array::from_fn(|action| share(1, action)),
            order: std::array::from_fn(|action| share(2, action)),
            hold: std::array::from_fn(|action| share(3, action)),
        })
    }

    /// Everything that a run needs to go on from here, by name.
    pub fn state(&self) -> Vec<(&'static str, &dyn Stored)> {
        let mut state = self.agent_state();
        state.extend(self.experience());
        state
    }

    /// What of it the agent is, with the scales of what it sees: enough to test it.
    pub fn agent_state(&self) -> Vec<(&'static str, &dyn Stored)> {
        let mut state = self.agent.state();
        let others: [(&'static str, &dyn Stored); 2] =
            [(SCALES, self.market.scales()), ("readback", &self.memory.readback)];
        state.extend(others);
        state
    }

    /// The rest: replay ring and environments.
    fn experience(&self) -> Vec<(&'static str, &dyn Stored)> {
        let (replay, envs) = (&self.replay, &self.collection.envs);
        let ring = &replay.ring;
        vec![
            ("replay.states", &ring.states),
            ("replay.next_states", &ring.next_states),
            ("replay.actions", &ring.actions),
            ("replay.rewards", &ring.rewards),
            ("replay.dones", &ring.dones),
            ("replay.episode_ids", &ring.episode_ids),
            ("replay.discount_powers", &ring.discount_powers),
            ("replay.achieved", &ring.achieved),
            ("replay.last_scored", &ring.last_scored),
            ("replay.tree", &replay.tree),
            ("replay.tree_owners", &replay.owners),
            ("replay.max_priority", &replay.max_priority),
            ("envs.collector", &envs.collector),
            ("envs.states", &envs.states),
            ("envs.returns", &envs.returns),
            ("envs.portfolio", &envs.portfolio),
            ("envs.actions", &envs.actions),
            ("envs.queue", &envs.queue),
            ("envs.accounts", &envs.accounts),
        ]
    }

    /// Takes over how far the fold has come, once [`state`](Self::state) has been loaded.
    pub fn resume_at(&mut self, steps_done: u64) -> Result<(), TrainError> {
        self.steps_done = steps_done;
        self.bars_done = u64::from(self.collection.envs.collector.read()?[0].step);
        Ok(())
    }
}
