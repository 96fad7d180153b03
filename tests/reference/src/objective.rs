//! The objective J = mean_i(w_i CE_i) + alpha_cql CQL + lambda_iqn readiness L_iqn, its value and its gradient.

use crate::c51::{self, Losses};
use crate::config::{Config, N_BRANCHES};
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::network::{self, NetworkPass};
use crate::trunk::TrunkContext;
use crate::{cql, iqn};

/// All that J depends on beside theta and the attention; constant in its gradient.
#[derive(Clone, Debug)]
pub struct Constants<'a> {
    /// s `[B, state_dim or wider]`.
    pub states: &'a Matrix,
    /// Actions taken.
    pub actions: &'a [[usize; N_BRANCHES]],
    /// Importance weights w `[B]`.
    pub weights: &'a [f64],
    /// Target distributions of each branch `[B, K]`.
    pub targets: &'a [Matrix],
    /// Target quantiles, `[row][branch][N']`; `None` with IQN off.
    pub quantile_targets: Option<&'a [[Vec<f64>; N_BRANCHES]]>,
    /// Atoms of each branch.
    pub atoms: &'a [Vec<f64>],
    /// sigma, the internal state vector and the depth masks, as they enter the trunk.
    pub context: &'a TrunkContext,
    /// Parameters that hold the denoise bottleneck and IQN's head.
    pub heads: &'a Tensors,
    /// iqn_readiness as the step began.
    pub readiness: f64,
}

/// J and its parts.
#[derive(Clone, Debug)]
pub struct Objective {
    /// J.
    pub total: f64,
    /// mean_i(w_i CE_i).
    pub weighted_cross_entropy: f64,
    /// CQL, before alpha_cql; 0 when off.
    pub cql: f64,
    /// L_iqn, before its weight; 0 when off.
    pub iqn: f64,
    /// Cross-entropies, TD errors, mse.
    pub losses: Losses,
    /// The online pass on s.
    pub pass: NetworkPass,
    /// IQN's head on it, unless off.
    pub iqn_pass: Option<iqn::IqnPass>,
}

/// J at `p`.
pub fn objective(config: &Config, p: &Tensors, c: &Constants) -> Objective {
    let pass = network::forward(config, p, c.heads, c.states, c.context, c.atoms);
    let losses = c51::losses(&pass.distributions, c.actions, c.targets, c.atoms);
    let weighted: f64 = losses.cross_entropy.iter().zip(c.weights).map(|(ce, w)| ce * w).sum();
    let weighted_cross_entropy = weighted / c.weights.len() as f64;
    let cql = if config.learners.cql { cql::value(&pass.distributions, c.actions) } else { 0.0 };
    let iqn_pass =
        c.quantile_targets.map(|_| iqn::forward(&config.sizes, config.precision, c.heads, &pass.trunk.output));
    let iqn = match (&iqn_pass, c.quantile_targets) {
        (Some(pass), Some(targets)) => iqn::loss(pass, c.actions, targets).0,
        _ => 0.0,
    };
    let total = weighted_cross_entropy + config.alpha_cql * cql + config.lambda_iqn * c.readiness * iqn;
    Objective { total, weighted_cross_entropy, cql, iqn, losses, pass, iqn_pass }
}

/// Gradients of a step's first three learners.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// dJ/dtheta and dJ/dattention; and, in the range of IQN's head, the gradient of that head's own L_iqn.
    pub params: Tensors,
    /// dJ/dlogits of each branch `[B, n_b K]`.
    pub dlogits: Vec<Matrix>,
    /// What IQN adds to dJ/dh `[B, H]`, unless off.
    pub dh_iqn: Option<Matrix>,
}

/// The gradient at `p`, by one backward pass: CQL joins at the logits, IQN at h.
pub fn gradients(config: &Config, p: &Tensors, c: &Constants, at: &Objective) -> Gradients {
    let mut params = Tensors::zeros(&p.layout);
    let d = &at.pass.distributions;
    let mut dlogits = c51::loss_dlogits(d, c.actions, c.targets, c.weights);
    if config.learners.cql {
        for (total, part) in dlogits.iter_mut().zip(cql::dlogits(d, c.actions, c.atoms, config.alpha_cql)) {
            total.add(&part);
        }
    }
    let dh_iqn = match (&at.iqn_pass, c.quantile_targets) {
        (Some(pass), Some(targets)) => {
            let (_, dquantiles) = iqn::loss(pass, c.actions, targets);
            let dh = iqn::backward(&config.sizes, config.precision, c.heads, pass, &dquantiles, &mut params);
            Some(dh.map(|d| config.lambda_iqn * c.readiness * d))
        }
        _ => None,
    };
    network::backward(config, p, (&at.pass, c.context), &dlogits, dh_iqn.as_ref(), &mut params);
    Gradients { params, dlogits, dh_iqn }
}
