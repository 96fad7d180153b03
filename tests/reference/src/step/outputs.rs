//! What a step computes, with names, for comparison with a dump.

use super::{Auxiliary, NextState, ThetaUpdate};
use crate::activation::argmax;
use crate::c51::Distributions;
use crate::config::{BRANCH_NAMES, BRANCH_SIZES};
use crate::layout::{Group, Tensors};
use crate::matrix::{Matrix, mean, variance};
use crate::objective::{Gradients, Objective};
use crate::spectral::PowerIteration;

/// Q statistics of the readback: of the online mean on s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QStatistics {
    /// Mean over batch, branches and actions.
    pub mean: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
    /// Population variance.
    pub variance: f64,
    /// Mean over batch and branches of max_a Q.
    pub avg_max: f64,
}

impl QStatistics {
    /// Of a batch.
    pub fn new(d: &Distributions) -> Self {
        let all = d.all_q();
        let maxima: Vec<f64> = d.q.iter().flat_map(|q| (0..q.n_rows).map(move |i| q[(i, argmax(q.row(i)))])).collect();
        Self {
            mean: mean(&all),
            min: all.iter().copied().fold(f64::INFINITY, f64::min),
            max: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            variance: variance(&all),
            avg_max: mean(&maxima),
        }
    }
}

/// What a step did to a learner with an Adam of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadUpdate {
    /// Which.
    pub group: Group,
    /// Its loss; 0 for the attention, whose gradient is J's.
    pub loss: f64,
    /// Norm of its gradient.
    pub norm: f64,
    /// Clip's factor.
    pub scale: f64,
    /// Whether its parameters moved.
    pub applied: bool,
}

/// All that a step computed.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Whether the step was gated.
    pub gated: bool,
    /// Rate of the target EMA.
    pub tau: f64,
    /// Power iterations of online and target network.
    pub spectra: [Vec<PowerIteration>; 2],
    /// Passes on s' and targets.
    pub next: NextState,
    /// J and the passes on s.
    pub at: Objective,
    /// Gradients before masks, vaccine and clip.
    pub first: Gradients,
    /// The other learners.
    pub aux: Auxiliary,
    /// What became of theta's gradient.
    pub update: ThetaUpdate,
    /// What happened to each other learner.
    pub heads: Vec<HeadUpdate>,
    /// Sensitivity of each feature, when due.
    pub causal: Option<Vec<f64>>,
    /// TD errors after modulation `[B]`, before their rounding to bf16.
    pub td_modulated: Vec<f64>,
    /// New leaf of each row; `None` keeps the old one.
    pub priorities: Vec<Option<f64>>,
}

/// A named array.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Name, after the design's symbols.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub values: Vec<f64>,
}

impl Named {
    fn vector(name: &str, values: &[f64]) -> Self {
        Self { name: name.to_owned(), shape: vec![values.len()], values: values.to_vec() }
    }

    fn scalar(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), shape: Vec::new(), values: vec![value] }
    }

    fn matrix(name: &str, m: &Matrix) -> Self {
        Self { name: name.to_owned(), shape: vec![m.n_rows, m.n_cols], values: m.values.clone() }
    }
}

/// Every tensor of a layout under `prefix.tensor`.
pub fn named_tensors(prefix: &str, tensors: &Tensors) -> Vec<Named> {
    let named = |spec: &crate::layout::TensorSpec| Named {
        name: format!("{prefix}.{}", spec.name),
        shape: spec.shape.clone(),
        values: tensors.flat[spec.range()].to_vec(),
    };
    tensors.layout.tensors.iter().map(named).collect()
}

impl Outputs {
    /// Every buffer that a dump may be compared with.
    ///
    /// | name | what |
    /// |---|---|
    /// | `u`, `h`, `u_next`, `h_next`, `h_next_target` | trunk's input and output |
    /// | `logits.B`, `q.B`, `q_next.B`, `target.B` | per branch; logits `[B, n, K]` |
    /// | `ce`, `td`, `td_modulated`, `q`, `v_high`, `v_low`, `p_trade` | per row |
    /// | `J`, `weighted_ce`, `cql`, `iqn`, `mse`, `cvar_loss`, `grad_norm`, `clip`, `tau` | scalars |
    /// | `dlogits.B`, `grad.TENSOR` | gradients: of J, of a head's own loss in a head; before masks, vaccine and clip |
    /// | `sigma.online`, `sigma.target` | spectral norms, in the trunk's order |
    /// | `causal` | sensitivities, when due |
    pub fn named(&self) -> Vec<Named> {
        let (pass, next) = (&self.at.pass, &self.next);
        let mut all = vec![
            Named::matrix("u", &pass.u),
            Named::matrix("h", &pass.trunk.output),
            Named::matrix("u_next", &next.online.u),
            Named::matrix("h_next", &next.online.trunk.output),
            Named::matrix("h_next_target", &next.target.trunk.output),
        ];
        for (b, name) in BRANCH_NAMES.into_iter().enumerate() {
            let per_action = |prefix: &str, m: &Matrix| Named {
                name: format!("{prefix}.{name}"),
                shape: vec![m.n_rows, BRANCH_SIZES[b], m.n_cols / BRANCH_SIZES[b]],
                values: m.values.clone(),
            };
            all.push(per_action("logits", &pass.branches.logits[b]));
            all.push(per_action("dlogits", &self.first.dlogits[b]));
            all.push(Named::matrix(&format!("q.{name}"), &pass.distributions.q[b]));
            all.push(Named::matrix(&format!("q_next.{name}"), &next.online.distributions.q[b]));
            all.push(Named::matrix(&format!("target.{name}"), &next.targets[b]));
        }
        for (name, values) in [
            ("ce", &self.at.losses.cross_entropy),
            ("td", &self.at.losses.td),
            ("td_modulated", &self.td_modulated),
            ("q", &self.aux.q),
            ("v_high", &self.aux.v_high),
            ("v_low", &self.aux.v_low),
            ("p_trade", &self.aux.p_trade),
        ] {
            all.push(Named::vector(name, values));
        }
        for (name, value) in [
            ("J", self.at.total),
            ("weighted_ce", self.at.weighted_cross_entropy),
            ("cql", self.at.cql),
            ("iqn", self.at.iqn),
            ("mse", self.at.losses.mse),
            ("cvar_loss", self.aux.cvar_loss),
            ("grad_norm", self.update.norm),
            ("clip", self.update.clip),
            ("tau", self.tau),
        ] {
            all.push(Named::scalar(name, value));
        }
        for (name, spectra) in ["sigma.online", "sigma.target"].into_iter().zip(&self.spectra) {
            all.push(Named::vector(name, &spectra.iter().map(|one| one.sigma).collect::<Vec<_>>()));
        }
        let mut grads = self.aux.grads.clone();
        for group in [Group::Theta, Group::Attention] {
            let range = grads.layout.range(group);
            grads.flat[range.clone()].copy_from_slice(&self.first.params.flat[range]);
        }
        all.extend(named_tensors("grad", &grads));
        all.extend(self.causal.iter().map(|causal| Named::vector("causal", causal)));
        all
    }
}
