//! An agent with its step over transitions that a test makes up.

use std::sync::Arc;

use cuda_std::cpu::ExecutorOptions;
use host::agent::Agent;
use host::config::Config;
use host::device::{Buffer, Device, Module, Stream};
use host::graph::ParentGraph;
use host::images::KERNELS;
use host::market::{Runner, Step};
use host::step::{self, ControlPage, Pages, ReadbackReader, Replay, StepMemory, StepParts};
use onegraph_tests::{Failed, Outcome};
use shared_types::Collector;

/// A transition of the ring that does not end the episode.
pub struct Transition {
    /// \[state_dim\].
    pub state: Vec<f32>,
    /// \[state_dim\].
    pub next_state: Vec<f32>,
    pub actions: [u8; 4],
    pub reward: f32,
    /// Power of gamma that discounts the next state.
    pub n: u32,
}

/// The device, without the checker on the CPU: thousands of steps take minutes under it, and no kernel is met here that the other
/// suites do not check. One thread: cases run side by side.
pub fn unchecked(device: &Device) -> Device {
    match device.backend_name() {
        "cpu" => Device::cpu_with(ExecutorOptions { check: false, threads: 1, ..ExecutorOptions::default() }),
        _ => device.clone(),
    }
}

/// The graph comes first: it goes before what it reaches.
pub struct Learner {
    pub graph: ParentGraph,
    pub agent: Agent,
    pub replay: Replay,
    pub memory: StepMemory,
    pub control: ControlPage,
    pub reader: ReadbackReader,
    collector: Buffer<Collector>,
    pages: Arc<Pages>,
    module: Module,
    stream: Stream,
    device: Device,
    config: Config,
}

impl Learner {
    /// A fresh agent. The transitions lie in the ring's first slots, each with priority 1; the slots behind them have none.
    pub fn new(device: &Device, config: Config, transitions: &[Transition]) -> Result<Self, Failed> {
        let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
        let runner = Runner { device, module: &module, stream: &stream };
        let agent = Agent::new(device, &config)?;
        agent.restart(runner)?;
        let replay = Replay::new(device, config.capacity, config.window as usize)?;
        fill(&replay, transitions)?;
        let mut tree = vec![0.0f32; replay.tree.len()];
        tree[config.capacity..][..transitions.len()].fill(1.0);
        replay.tree.write(&tree)?;
        runner.run(replay.tree_memory().build())?;
        let memory = StepMemory::new(device, &config, &agent)?;
        let pages = Pages::new(device)?;
        let control = ControlPage::new(pages.clone());
        control.set_lr(config.lr as f32);
        control.set_clip(config.clip as f32);
        control.set_beta0(config.per.beta0 as f32);
        let collector = device.alloc_zeroed(1)?;
        let parts = StepParts {
            device,
            config: &config,
            agent: &agent,
            replay: &replay,
            collector: &collector,
            memory: &memory,
            pages: &pages,
        };
        Ok(Self {
            graph: step::compose(&parts)?,
            reader: ReadbackReader::new(Arc::clone(&pages)),
            device: device.clone(),
            agent,
            replay,
            collector,
            memory,
            control,
            pages,
            module,
            stream,
            config,
        })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn runner(&self) -> Runner<'_> {
        Runner { device: &self.device, module: &self.module, stream: &self.stream }
    }

    /// So many replays of the graph.
    pub fn steps(&self, n: usize) -> Outcome {
        (0..n).try_for_each(|_| self.graph.launch(&self.stream))?;
        Ok(self.stream.synchronize()?)
    }

    /// The step's children with their launches.
    pub fn children(&self) -> Vec<(&'static str, Vec<Step>)> {
        step::children(&StepParts {
            device: &self.device,
            config: &self.config,
            agent: &self.agent,
            replay: &self.replay,
            collector: &self.collector,
            memory: &self.memory,
            pages: &self.pages,
        })
    }

    /// A step launch by launch, without the graph.
    pub fn step_without_graph(&self) -> Outcome {
        self.step_with(|_| Ok(()))
    }

    /// The same, with something done behind each child, whose name it gets.
    pub fn step_with(&self, behind: impl Fn(&str) -> Outcome) -> Outcome {
        for (name, launches) in self.children() {
            self.runner().run(launches)?;
            behind(name)?;
        }
        Ok(self.stream.synchronize()?)
    }
}

fn fill(replay: &Replay, transitions: &[Transition]) -> Outcome {
    let ring = &replay.ring;
    let n_rest = ring.n_slots() - transitions.len();
    fn column<T: bytemuck::Pod>(to: &Buffer<T>, values: impl Iterator<Item = T>, rest: usize) -> Outcome {
        let rest = std::iter::repeat_n(T::zeroed(), rest);
        Ok(to.write(&values.chain(rest).collect::<Vec<_>>())?)
    }
    let rest_of_rows = n_rest * (ring.states.len() / ring.n_slots());
    column(&ring.states, transitions.iter().flat_map(|t| t.state.iter().copied()), rest_of_rows)?;
    column(&ring.next_states, transitions.iter().flat_map(|t| t.next_state.iter().copied()), rest_of_rows)?;
    column(&ring.actions, transitions.iter().map(|t| t.actions), n_rest)?;
    column(&ring.rewards, transitions.iter().map(|t| t.reward), n_rest)?;
    column(&ring.discount_powers, transitions.iter().map(|t| t.n as f32), n_rest)
}
