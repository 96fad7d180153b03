//! The whole network: state -> u -> trunk -> branches -> distributions, and its one backward pass.

use crate::branches::{self, BranchesPass};
use crate::c51::Distributions;
use crate::config::{Config, Sizes};
use crate::denoise;
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::trunk::{self, TrunkContext, TrunkPass};
use crate::{attention, temporal};

/// A pass through the network.
#[derive(Clone, Debug)]
pub struct NetworkPass {
    /// Trunk's input `[B, 200]`.
    pub u: Matrix,
    /// Temporal block, unless off.
    pub temporal: Option<temporal::TemporalPass>,
    /// Attention, unless off.
    pub attention: Option<attention::AttentionPass>,
    /// Trunk.
    pub trunk: TrunkPass,
    /// Branches.
    pub branches: BranchesPass,
    /// Distributions of all actions.
    pub distributions: Distributions,
}

/// Bars of all rows `[B T, F]`, from states `[B, state_dim or wider]`: oldest bar first.
pub fn bars_of(s: &Sizes, states: &Matrix) -> Matrix {
    Matrix::from_fn(states.n_rows * s.window, s.features, |row, f| {
        states[(row / s.window, row % s.window * s.features + f)]
    })
}

/// Features of the last bar `[B, F]`.
pub fn last_bar_of(s: &Sizes, states: &Matrix) -> Matrix {
    states.columns((s.window - 1) * s.features..s.window * s.features)
}

/// Column of a state that holds the goal.
pub fn goal_column(s: &Sizes) -> usize {
    s.window * s.features + s.portfolio
}

/// Runs the network. `shared` holds the denoise bottleneck, which online and target network share.
pub fn forward(
    config: &Config,
    p: &Tensors,
    shared: &Tensors,
    states: &Matrix,
    context: &TrunkContext,
    atoms: &[Vec<f64>],
) -> NetworkPass {
    let (s, precision, on) = (&config.sizes, config.precision, &config.learners);
    let (bars, last) = (bars_of(s, states), last_bar_of(s, states));
    let columns = s.input();
    let mut u = Matrix::zeros(states.n_rows, columns.width);
    u.add_to_columns(0, &last);
    u.add_to_columns(columns.portfolio, &states.columns(s.window * s.features..s.state_dim()));
    let temporal = on.temporal.then(|| temporal::forward(s, precision, p, &bars));
    if let Some(pass) = &temporal {
        u.add_to_columns(columns.temporal, &pass.output);
    }
    let attention = on.attention.then(|| attention::forward(s, precision, p, &bars));
    if let Some(pass) = &attention {
        u.add_to_columns(columns.attention, &pass.output);
    }
    if on.denoise {
        u.add_to_columns(columns.bottleneck, &denoise::encode(precision, shared, &last));
    }
    let trunk = trunk::forward(s, precision, p, &u, context);
    let branches = branches::forward(s, precision, p, &trunk.output, on.selection);
    let distributions = Distributions::new(&branches.logits, atoms);
    NetworkPass { u, temporal, attention, trunk, branches, distributions }
}

/// Adds the gradients of theta and the attention to `grads`, given those of the logits and what else reaches h.
pub fn backward(
    config: &Config,
    p: &Tensors,
    (pass, context): (&NetworkPass, &TrunkContext),
    dlogits: &[Matrix],
    dh_added: Option<&Matrix>,
    grads: &mut Tensors,
) {
    let (s, precision) = (&config.sizes, config.precision);
    let mut dh = branches::backward(s, precision, p, &pass.branches, dlogits, grads);
    if let Some(added) = dh_added {
        dh.add(added);
    }
    let du = trunk::backward(s, precision, p, (&pass.trunk, context), &dh, grads);
    let columns = s.input();
    if let Some(pass) = &pass.temporal {
        let d = du.columns(columns.temporal..columns.attention);
        temporal::backward(s, precision, p, pass, &d, grads);
    }
    if let Some(pass) = &pass.attention {
        let d = du.columns(columns.attention..columns.bottleneck);
        attention::backward(s, precision, p, pass, &d, grads);
    }
}
