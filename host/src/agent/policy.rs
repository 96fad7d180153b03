//! The agent as what chooses actions.

use gpu_kernels::c51::c51_cvar;
use gpu_kernels::explore::{ActRule, act, act_shape};
use gpu_kernels::lanes::row_shape;
use shared_types::Collector;

use super::{Agent, Pass, TradeProbability, width};
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::eval::backtest::Policy;
use crate::market::Step;

/// Actions by the network's CVaR, explored or greedy.
pub struct NetworkPolicy<'a> {
    device: &'a Device,
    agent: &'a Agent,
    rule: ActRule,
    /// Says which random numbers are drawn.
    collector: &'a Buffer<Collector>,
}

impl<'a> NetworkPolicy<'a> {
    /// A policy that follows `rule`; its draws are those of the collector's step.
    pub fn new(device: &'a Device, agent: &'a Agent, rule: ActRule, collector: &'a Buffer<Collector>) -> Self {
        Self { device, agent, rule, collector }
    }

    /// The policy of evaluation: it never explores, goes flat under selectivity's threshold, and draws nothing from `no_draws`, which only has to be there.
    pub fn greedy(device: &'a Device, agent: &'a Agent, no_draws: &'a Buffer<Collector>) -> Self {
        let select_threshold = agent.select_threshold;
        let rule = ActRule { seed: [0, 0], explore: 0, select_threshold, select_from: 0 };
        Self::new(device, agent, rule, no_draws)
    }
}

impl Policy for NetworkPolicy<'_> {
    fn act(&self, rows: &Buffer<f32>, actions: &Buffer<[u8; 4]>) -> Result<Vec<Step>, DeviceError> {
        let agent = self.agent;
        let pass = Pass::new(self.device, &agent.parameters, actions.len(), &agent.learners)?;
        let ranks = self.device.alloc_zeroed(actions.len() * width::ACTIONS)?;
        let n_selected = if agent.learners.selectivity { actions.len() } else { 0 };
        let selectivity = TradeProbability::new(self.device, n_selected)?;
        let online = &agent.parameters.online;
        let mut steps = pass.forward(rows, online, &online.flat, &agent.keep, &agent.bus);
        if agent.learners.selectivity {
            steps.push(selectivity.launch(self.device, &pass, &agent.parameters));
        }
        let cvar = c51_cvar::launch(
            pass.heads.view(),
            agent.atoms.view(),
            agent.columns(),
            agent.bus.view(),
            ranks.view_mut(),
        );
        let act = act::launch(
            ranks.view(),
            selectivity.p_trade.view(),
            agent.bus.view(),
            self.collector.view(),
            agent.counters.view(),
            self.rule,
            actions.view_mut(),
        );
        steps.push((row_shape(actions.len(), self.device.row_lanes()), cvar));
        steps.push((act_shape(actions.len()), act));
        Ok(steps)
    }

    fn state_stride(&self) -> usize {
        self.agent.sizes().state_stride()
    }
}
