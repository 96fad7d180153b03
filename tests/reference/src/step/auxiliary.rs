//! The learners beside theta and the attention: losses and gradients of a step, before anything is written.

use super::{Batch, Draws, QStatistics, State};
use crate::adam::group_norm;
use crate::c51::Distributions;
use crate::config::Config;
use crate::iql::{self, PopArt};
use crate::isv::index;
use crate::layout::{Group, Tensors};
use crate::matrix::Matrix;
use crate::objective::{Gradients, Objective};
use crate::{denoise, network, risk, selectivity};

/// A head's loss and gradient norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadLoss {
    /// Its plain batch mean.
    pub loss: f64,
    /// Norm of its gradient.
    pub norm: f64,
}

impl HeadLoss {
    pub(super) fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_finite()
    }
}

/// Child graphs `aux` and `post_aux`, before anything is written.
#[derive(Clone, Debug)]
pub struct Auxiliary {
    /// q = 1/4 sum_b Q_b(s, a_b) `[B]`.
    pub q: Vec<f64>,
    /// PopArt with this batch.
    pub popart: PopArt,
    /// Parameters with both IQL heads rescaled, what the heads' passes ran on.
    pub rescaled: Tensors,
    /// V_high `[B]`.
    pub v_high: Vec<f64>,
    /// V_low `[B]`.
    pub v_low: Vec<f64>,
    /// Gradients of all heads; zero elsewhere.
    pub grads: Tensors,
    /// Loss and norm of each head that is on.
    pub losses: Vec<(Group, HeadLoss)>,
    /// P(trade) `[B]`.
    pub p_trade: Vec<f64>,
    /// Rows that count for selectivity.
    pub labels: Vec<Option<bool>>,
    /// cvar_loss.
    pub cvar_loss: f64,
    /// Statistics of Q over batch, branches and actions.
    pub q_statistics: QStatistics,
}

impl Auxiliary {
    pub(super) fn new(
        config: &Config,
        before: &State,
        batch: &Batch,
        draws: &Draws,
        at: &Objective,
        first: &Gradients,
    ) -> Self {
        let (on, h, d) = (&config.learners, &at.pass.trunk.output, &at.pass.distributions);
        let q: Vec<f64> = batch.actions.iter().enumerate().map(|(i, taken)| d.mean_q(i, taken)).collect();
        let popart = if on.iql && on.popart { before.popart.updated(&q) } else { before.popart };
        let mut aux = Self {
            popart,
            rescaled: before.params.clone(),
            v_high: Vec::new(),
            v_low: Vec::new(),
            grads: Tensors::zeros(&before.params.layout),
            losses: Vec::new(),
            p_trade: Vec::new(),
            labels: labels(config, batch, d),
            cvar_loss: risk::cvar_loss(d, &batch.actions, &before.atoms, before.isv.entries[index::RISK_ETA]),
            q_statistics: QStatistics::new(d),
            q,
        };
        if on.iqn {
            let range = before.params.layout.range(Group::Iqn);
            aux.grads.flat[range.clone()].copy_from_slice(&first.params.flat[range]);
            aux.close(Group::Iqn, at.iqn);
        }
        if on.iql {
            let (high, low) = config.expectiles;
            aux.v_high = aux.value_head(config, before, (Group::IqlHigh, "iql_high", high), h);
            aux.v_low = aux.value_head(config, before, (Group::IqlLow, "iql_low", low), h);
        }
        if on.selectivity {
            let result = selectivity::loss(&before.params, h, &aux.labels, &mut aux.grads);
            aux.p_trade = result.p_trade;
            aux.close(Group::Selectivity, result.loss);
        }
        if on.denoise {
            let clean = network::last_bar_of(&config.sizes, &batch.states);
            let noisy = clean.zip(&draws.denoise_normals, |x, noise| x + config.denoise_noise * noise);
            let loss = denoise::loss(config.precision, &before.params, &noisy, &clean, &mut aux.grads);
            aux.close(Group::Denoise, loss);
        }
        aux
    }

    fn close(&mut self, group: Group, loss: f64) {
        self.losses.push((group, HeadLoss { loss, norm: group_norm(&self.grads, group) }));
    }

    /// Rescales a head, adds its gradient, and returns its values in units of q.
    fn value_head(
        &mut self,
        config: &Config,
        before: &State,
        (group, name, expectile): (Group, &str, f64),
        h: &Matrix,
    ) -> Vec<f64> {
        before.popart.rescale(&self.popart, &mut self.rescaled, name);
        let pass = iql::forward(config.precision, &self.rescaled, name, h);
        let targets: Vec<f64> = self.q.iter().map(|q| self.popart.normalised(*q)).collect();
        let (loss, doutputs) = iql::loss(&pass, expectile, &targets);
        iql::backward(config.precision, &self.rescaled, name, &pass, &doutputs, &mut self.grads);
        self.close(group, loss);
        pass.outputs.iter().map(|output| self.popart.value(*output)).collect()
    }

    /// Loss of a head; NaN for one that is off, which no average takes in.
    pub(super) fn loss_of(&self, group: Group) -> f64 {
        self.losses.iter().find(|(of, _)| *of == group).map_or(f64::NAN, |(_, head)| head.loss)
    }
}

/// Selectivity's labels: whether the market part of a row's reward is positive.
fn labels(config: &Config, batch: &Batch, d: &Distributions) -> Vec<Option<bool>> {
    let goal_column = network::goal_column(&config.sizes);
    (0..batch.actions.len())
        .map(|i| {
            let market = selectivity::market_part(
                batch.rewards[i],
                config.reward_scale,
                config.her_weight,
                batch.states[(i, goal_column)],
                batch.achieved[i],
            );
            selectivity::counts(batch.actions[i][0], d.greedy(i)[0]).then_some(market > 0.0)
        })
        .collect()
}
