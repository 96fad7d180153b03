//! A checkpoint's agent on a series: all that a test takes, and nothing that learns.

use std::ops::Range;

use shared_types::{Collector, EnvParams, Isv};

use super::TrainError;
use crate::agent::{Agent, NetworkPolicy};
use crate::config::Config;
use crate::data::Bars;
use crate::device::{Buffer, Device, Module, Stored, Stream};
use crate::eval::backtest::evaluate;
use crate::eval::evaluation::{FoldTest, Selection};
use crate::eval::random::{RandomPaths, Tested};
use crate::eval::records::PathRecords;
use crate::eval::threshold_rule::Deviating;
use crate::images::KERNELS;
use crate::interrupt::Interrupt;
use crate::market::Runner;
use crate::market::fold::FoldMarket;
use crate::market::series::Series;
use crate::run::Checkpoint;

/// Name in a checkpoint of mean and deviation of each feature over the training part. Bar sigma is the first feature's.
pub(super) const SCALES: &str = "market.scales";

/// What a test is made on. Nothing is fitted: scales and bar sigma are the checkpoint's, whatever the series.
pub struct Tester {
    agent: Agent,
    market: FoldMarket,
    series: Series,
    no_draws: Buffer<Collector>,
    module: Module,
    stream: Stream,
    device: Device,
    config: Config,
    bar_sigma: f32,
    interrupt: Interrupt,
}

/// A simulated market that returns to somewhere, for the rule that sees it.
#[derive(Clone, Copy)]
pub struct Returning<'a> {
    /// Deviation of each bar.
    pub deviations: &'a [f64],
    /// The bars that the rule is fitted to.
    pub train: &'a Range<usize>,
}

impl Tester {
    /// Takes the memory and uploads the series. Tests end with [`TrainError::Interrupted`] when `interrupt` asks for it.
    pub fn new(device: &Device, config: &Config, bars: &Bars, interrupt: &Interrupt) -> Result<Self, TrainError> {
        let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
        let series = Series::upload(device, bars)?;
        Runner { device, module: &module, stream: &stream }.run(series.features())?;
        Ok(Self {
            agent: Agent::new(device, config)?,
            market: FoldMarket::new(device, series.len())?,
            series,
            no_draws: device.alloc_zeroed(1)?,
            module,
            stream,
            device: device.clone(),
            config: config.clone(),
            bar_sigma: 0.0,
            interrupt: interrupt.clone(),
        })
    }

    /// Takes over a checkpoint's agent and scales, and scales the series by them.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let mut state = self.agent.state();
        state.push((SCALES, self.market.scales()));
        load_state(state, checkpoint, &self.config)?;
        let costs = self.config.market_rules().costs;
        self.bar_sigma = self.market.apply(self.runner(), &self.series, &costs)?.bar_sigma;
        Ok(())
    }

    /// The terms on which the checkpoint trades `part`.
    pub fn terms(&self, part: &Range<usize>) -> Result<Tested, TrainError> {
        let params: EnvParams = self.config.market_rules().params(part, self.bar_sigma, self.config.seed)?;
        let bus = Isv { entries: self.agent.bus.read()?.try_into().expect("64 entries") };
        Ok(Tested { part: part.clone(), params, bus })
    }

    /// The median of the random paths over `tests`, each on its own checkpoint's terms.
    pub fn random(&self, tests: &[Tested], bars_a_year: f64) -> Result<PathRecords, TrainError> {
        Ok(RandomPaths::new(self.runner(), &self.market, tests, &self.interrupt).median(bars_a_year)?)
    }

    /// Tests the checkpoint on `part` under every scenario, with buy-and-hold and the threshold rule where there is one.
    pub fn test(
        &self,
        part: &Range<usize>,
        selection: Selection,
        returning: Option<Returning<'_>>,
    ) -> Result<FoldTest, TrainError> {
        let Tested { params, bus, .. } = self.terms(part)?;
        let policy = NetworkPolicy::greedy(&self.device, &self.agent, &self.no_draws);
        let threshold_rule = match returning {
            Some(Returning { deviations, train }) => {
                let (market, interrupt) = (&self.market, &self.interrupt);
                let deviating = Deviating { market, params: &params, bus: &bus, deviations, interrupt };
                Some(deviating.test(self.runner(), train, part)?)
            }
            None => None,
        };
        let records = evaluate(self.runner(), &self.market, &params, &bus, part, &policy, &self.interrupt)?;
        Ok(FoldTest { selection, records, threshold_rule })
    }

    fn runner(&self) -> Runner<'_> {
        Runner { device: &self.device, module: &self.module, stream: &self.stream }
    }
}

/// Overwrites buffers with what a checkpoint holds under their names.
pub(super) fn load_state(
    state: Vec<(&'static str, &dyn Stored)>,
    checkpoint: &Checkpoint,
    config: &Config,
) -> Result<(), TrainError> {
    let refuse = |reason: String| TrainError::Checkpoint { path: checkpoint.path().to_owned(), reason };
    if checkpoint.meta().config_fingerprint != config.fingerprint() {
        return Err(refuse("it was written with another configuration".into()));
    }
    for (name, buffer) in state {
        let tensor = checkpoint.tensor(name);
        let tensor =
            tensor.ok_or_else(|| refuse(format!("it lacks `{name}`: another version of onegraph wrote it")))?;
        let fits = tensor.dtype == buffer.dtype() && tensor.shape == [buffer.n_elements()];
        if !fits {
            return Err(refuse(format!("`{name}` is {:?} {:?}", tensor.dtype, tensor.shape)));
        }
        buffer.write_bytes(tensor.bytes)?;
    }
    Ok(())
}
