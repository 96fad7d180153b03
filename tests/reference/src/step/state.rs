//! What a step reads and moves on, and what it draws.

use std::sync::Arc;

use super::QStatistics;
use crate::adam::Moments;
use crate::atoms;
use crate::config::{Config, N_BRANCHES};
use crate::init::initial_values;
use crate::iql::PopArt;
use crate::iqn;
use crate::isv::{Isv, RATE, index};
use crate::layout::{Group, Layout, Tensors, trunk_matrices};
use crate::matrix::Matrix;
use crate::philox;
use crate::schedule::Counters;
use crate::spectral;

/// A batch after hindsight relabelling.
#[derive(Clone, Debug)]
pub struct Batch {
    /// s `[B, state_dim or wider]`.
    pub states: Matrix,
    /// s' `[B, state_dim or wider]`.
    pub next_states: Matrix,
    /// Actions taken.
    pub actions: Vec<[usize; N_BRANCHES]>,
    /// n-step rewards as stored, relabelled.
    pub rewards: Vec<f64>,
    /// Terminal transitions.
    pub dones: Vec<bool>,
    /// n of each n-step return.
    pub n_steps: Vec<u32>,
    /// What each row achieved, in episode sigmas.
    pub achieved: Vec<f64>,
    /// Importance weights.
    pub weights: Vec<f64>,
    /// Rows whose goal was replaced.
    pub relabelled: Vec<bool>,
}

/// Random numbers of a step, in place of their streams.
#[derive(Clone, Debug)]
pub struct Draws {
    /// One uniform a residual block.
    pub depth_uniforms: Vec<f64>,
    /// One normal a row and feature `[B, F]`.
    pub denoise_normals: Matrix,
    /// Uniform that chooses the causal shift.
    pub causal_uniform: f64,
}

/// The agent between steps.
#[derive(Clone, Debug)]
pub struct State {
    /// Sizes, switches, constants.
    pub config: Config,
    /// Parameters of every learner.
    pub params: Tensors,
    /// Target network, in the range [`Layout::target_range`]; without one nothing reads it.
    pub target: Tensors,
    /// Adam's moments.
    pub moments: Moments,
    /// Pruning masks: 1 kept, 0 pruned.
    pub masks: Tensors,
    /// u of each trunk matrix, online.
    pub online_u: Vec<Vec<f64>>,
    /// u of each trunk matrix, target.
    pub target_u: Vec<Vec<f64>>,
    /// Counters.
    pub counters: Counters,
    /// Internal state vector.
    pub isv: Isv,
    /// Health at the last epoch boundary.
    pub health_at_epoch: f64,
    /// Spacing of each branch's atoms.
    pub spacing: Vec<Vec<f64>>,
    /// Atoms of each branch, fixed within an epoch.
    pub atoms: Vec<Vec<f64>>,
    /// PopArt.
    pub popart: PopArt,
    /// IQN's own averages.
    pub iqn: IqnAverages,
    /// Last applied step's masked gradient of theta.
    pub snapshot: Option<Vec<f64>>,
    /// Moving average of the vaccine's cosine.
    pub vaccine_phi: f64,
    /// Greatest priority so far.
    pub max_priority: f64,
    /// Q statistics of the last step that took them.
    pub q_statistics: Option<QStatistics>,
}

/// What IQN's readiness is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IqnAverages {
    /// Moving average of the head's loss and the first loss; `None` before the first applied update.
    pub ema_and_first: Option<(f64, f64)>,
}

impl State {
    /// The agent before its first step. `spectral_stream` is the stream of the power iteration's start vectors, whose element counts
    /// through all vectors, matrix after matrix.
    pub fn new(config: Config, seed: u64, epsilon_start: f64, spectral_stream: u32) -> Self {
        let layout = Arc::new(Layout::new(&config.sizes));
        let params = initial_values(&layout, seed);
        let u = start_vectors(&config, &params, seed, spectral_stream);
        let spacing = vec![vec![0.0; config.sizes.atoms - 1]; N_BRANCHES];
        Self {
            target: params.clone(),
            moments: Moments { first: Tensors::zeros(&layout), second: Tensors::zeros(&layout) },
            masks: Tensors::filled(&layout, 1.0),
            online_u: u.clone(),
            target_u: u,
            counters: Counters::default(),
            isv: Isv::at_start(config.tau.0, epsilon_start, config.atom_bounds),
            health_at_epoch: 1.0,
            atoms: spacing.iter().map(|one| atoms::atoms(one, config.atom_bounds)).collect(),
            spacing,
            popart: PopArt { moments: None },
            iqn: IqnAverages::default(),
            snapshot: None,
            vaccine_phi: 0.0,
            max_priority: 1.0,
            q_statistics: None,
            params,
            config,
        }
    }

    /// `atoms_update` of the epoch boundary.
    pub fn refresh_atoms(&mut self) {
        self.atoms = self.spacing.iter().map(|one| atoms::atoms(one, self.config.atom_bounds)).collect();
    }

    /// `tau_update` of the epoch boundary.
    pub fn refresh_tau(&mut self) {
        self.health_at_epoch = self.isv.entries[index::HEALTH];
    }

    /// iqn_readiness, 0 before the head's first update.
    pub fn readiness(&self) -> f64 {
        self.iqn.ema_and_first.map_or(0.0, |(ema, first)| iqn::readiness(ema, first))
    }

    pub(super) fn close_iqn(&mut self, loss: f64) {
        self.iqn.ema_and_first =
            Some(self.iqn.ema_and_first.map_or((loss, loss), |(ema, first)| (ema + RATE * (loss - ema), first)));
    }

    /// The counter of a group's learner.
    pub fn counter(&mut self, group: Group) -> &mut u64 {
        let c = &mut self.counters;
        match group {
            Group::Theta => &mut c.adam_t,
            Group::Attention => &mut c.attn_t,
            Group::Iqn => &mut c.iqn_t,
            Group::IqlHigh => &mut c.iql_t,
            Group::IqlLow => &mut c.iql_low_t,
            Group::Selectivity => &mut c.sel_t,
            Group::Denoise => &mut c.denoise_t,
        }
    }
}

fn start_vectors(config: &Config, params: &Tensors, seed: u64, stream: u32) -> Vec<Vec<f64>> {
    let mut element = 0;
    trunk_matrices(&config.sizes)
        .iter()
        .map(|name| {
            let w = params.matrix(name);
            let normals: Vec<f64> =
                (element..element + w.n_rows as u32).map(|e| philox::normal(seed, stream, 0, e)).collect();
            element += w.n_rows as u32;
            spectral::start_vector(&w, &normals)
        })
        .collect()
}
