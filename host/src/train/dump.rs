//! Every named buffer of a step as safetensors, for comparison with another implementation. `docs/dump.md` says of each name
//! which symbol of the equations it is, with shape and unit.

use std::io;
use std::path::Path;

use bytemuck::Pod;
use gpu_kernels::c51::row_loss;
use gpu_kernels::heads::HeadColumns;
use gpu_kernels::iqn::{N_QUANTILES, QUANTILE_STRIDE};
use shared_types::market::{N_BRANCHES, N_FEATURES};
use shared_types::{PopArt, Precision, isv, learner};

use super::Trainer;
use crate::agent::layout::{HEAD_NAMES, Layout, N_BLOCKS, Tensor};
use crate::agent::{Backward, Denoise, Pass, Risk, Selectivity, ValueHeads, Weights, width};
use crate::device::{Buffer, dtype_of};
use crate::error::DeviceError;
use crate::run::{Dtype, TensorFile};

/// A step that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// What is overwritten in a step, as it was before.
pub struct Before {
    parameters: Vec<f32>,
    target: Vec<f32>,
    first_moments: Vec<f32>,
    second_moments: Vec<f32>,
    spacing: Vec<f32>,
    snapshot: Vec<f32>,
    bus: Vec<f32>,
    iqn_averages: Vec<f64>,
    popart: PopArt,
}

impl Before {
    /// Copies it from the device.
    pub fn read(trainer: &Trainer) -> Result<Self, DeviceError> {
        let (agent, parameters) = (&trainer.agent, &trainer.agent.parameters);
        Ok(Self {
            parameters: parameters.online.flat.read()?,
            target: parameters.target.flat.read()?,
            first_moments: parameters.first_moments.read()?,
            second_moments: parameters.second_moments.read()?,
            spacing: agent.spacing.read()?,
            snapshot: agent.snapshot.read()?,
            bus: agent.bus.read()?,
            iqn_averages: agent.iqn_averages.read()?,
            popart: agent.popart.read()?[0],
        })
    }
}

/// Writes the latest step to `path`, which must not exist; `before` was read before it. The number of tensors.
pub fn write(trainer: &Trainer, before: &Before, path: &Path) -> Result<usize, DumpError> {
    let memory = trainer.memory();
    let mut dump = Dump::create(trainer, path)?;
    dump.batch(trainer)?;
    for (name, pass) in
        [("online", &memory.online), ("online_next", &memory.online_next), ("target_next", &memory.target_next)]
    {
        dump.pass(name, pass)?;
    }
    dump.losses(trainer)?;
    dump.iqn(trainer, before)?;
    dump.backward(&memory.backward)?;
    dump.learners(trainer, before)?;
    dump.parameters(trainer, before)?;
    dump.state(trainer, before)?;
    dump.file.finish()?;
    Ok(dump.n_tensors)
}

/// A column of the ring at the batch's slots.
fn of_slots<T: Pod>(slots: &[u32], column: &[T]) -> Vec<T> {
    slots.iter().map(|&slot| column[slot as usize]).collect()
}

/// The file, with the sizes that give its tensors their shapes.
struct Dump {
    file: TensorFile,
    n_tensors: usize,
    precision: Precision,
    n_rows: usize,
    hidden: usize,
    branch_hidden: usize,
    atoms: usize,
    stride: usize,
    head_stride: usize,
}

/// Each field of a struct as a tensor of no dimension, named after it.
macro_rules! fields {
    ($dump:expr, $name:expr, $value:expr, [$($field:ident),* $(,)?]) => {{
        let (value, name) = ($value, $name);
        $($dump.values(&format!("{name}.{}", stringify!($field)), &[], &[value.$field])?;)*
    }};
}

impl Dump {
    fn create(trainer: &Trainer, path: &Path) -> io::Result<Self> {
        let sizes = trainer.agent.sizes();
        Ok(Self {
            file: TensorFile::create(path)?,
            n_tensors: 0,
            precision: trainer.agent.parameters.precision,
            n_rows: trainer.memory().batch.indices.len(),
            hidden: sizes.hidden,
            branch_hidden: sizes.branch_hidden,
            atoms: sizes.atoms,
            stride: sizes.state_stride(),
            head_stride: HeadColumns::new(sizes.atoms).stride as usize,
        })
    }

    fn bytes(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<(), DumpError> {
        self.n_tensors += 1;
        Ok(self.file.tensor(name, dtype, shape, bytes)?)
    }

    fn values<T: Pod>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), DumpError> {
        self.bytes(name, dtype_of::<T>(), shape, bytemuck::cast_slice(values))
    }

    fn buffer<T: Pod>(&mut self, name: &str, shape: &[usize], buffer: &Buffer<T>) -> Result<(), DumpError> {
        self.values(name, shape, &buffer.read()?)
    }

    /// What a product takes: bf16, or f32 in two words.
    fn operand(&mut self, name: &str, shape: &[usize], buffer: &Buffer<u16>) -> Result<(), DumpError> {
        self.bytes(name, self.operand_type(), shape, bytemuck::cast_slice(&buffer.read()?))
    }

    fn operand_type(&self) -> Dtype {
        match self.precision {
            Precision::Bf16 => Dtype::BF16,
            Precision::F32 => Dtype::F32,
        }
    }

    /// A tensor for each of the layout's that lies in `flat`.
    fn flat(&mut self, name: &str, layout: &Layout, flat: &[f32]) -> Result<(), DumpError> {
        for tensor in layout.tensors().iter().filter(|tensor| tensor.range().end <= flat.len()) {
            self.values(&format!("{name}.{}", tensor.name), &tensor.shape, &flat[tensor.range()])?;
        }
        Ok(())
    }

    /// The operand of each matrix that has one.
    fn shadows(&mut self, name: &str, layout: &Layout, weights: &Weights) -> Result<(), DumpError> {
        let (words, n_words) = (weights.shadow.read()?, self.precision.words());
        let has_operand = |tensor: &&Tensor| tensor.has_operand() && tensor.range().end * n_words <= words.len();
        for tensor in layout.tensors().iter().filter(has_operand) {
            let range = tensor.range();
            let operand = &words[range.start * n_words..range.end * n_words];
            let dtype = self.operand_type();
            self.bytes(&format!("{name}.{}", tensor.name), dtype, &tensor.shape, bytemuck::cast_slice(operand))?;
        }
        Ok(())
    }

    fn batch(&mut self, trainer: &Trainer) -> Result<(), DumpError> {
        let (batch, replay, n) = (&trainer.memory().batch, &trainer.replay, self.n_rows);
        self.buffer("batch.indices", &[n], &batch.indices)?;
        self.buffer("batch.states", &[n, self.stride], &batch.states)?;
        self.buffer("batch.next_states", &[n, self.stride], &batch.next_states)?;
        let actions: Vec<u8> = batch.actions.read()?.into_flattened();
        self.values("batch.actions", &[n, N_BRANCHES], &actions)?;
        self.buffer("batch.rewards", &[n], &batch.rewards)?;
        self.buffer("batch.dones", &[n], &batch.dones)?;
        self.buffer("batch.discount_powers", &[n], &batch.discount_powers)?;
        self.buffer("batch.relabelled", &[n], &batch.relabelled)?;
        self.buffer("batch.weights", &[n], &batch.weights)?;
        self.buffer("priority.before", &[n], &batch.priorities)?;
        let (slots, tree, ring) = (batch.indices.read()?, replay.tree.read()?, &replay.ring);
        self.values("batch.episode_ids", &[n], &of_slots(&slots, &ring.episode_ids.read()?))?;
        self.values("batch.achieved", &[n], &of_slots(&slots, &ring.achieved.read()?))?;
        self.values("priority.after", &[n], &of_slots(&slots, &tree[tree.len() / 2..]))?;
        self.values("priority.total", &[], &tree[1..2])?;
        self.buffer("priority.max", &[], &replay.max_priority)
    }

    fn pass(&mut self, pass_name: &str, pass: &Pass) -> Result<(), DumpError> {
        let (n, h, m, n_heads) = (self.n_rows, self.hidden, self.branch_hidden, HEAD_NAMES.len());
        let name = |part: &str| format!("{pass_name}.{part}");
        if let Some(block) = &pass.temporal {
            self.buffer(&name("temporal"), &[n, width::TEMPORAL], &block.output)?;
        }
        if let Some(attention) = &pass.attention {
            self.buffer(&name("attention"), &[n, width::ATTENTION], &attention.output)?;
        }
        self.operand(&name("u"), &[n, width::INPUT], &pass.u)?;
        self.buffer(&name("pre_in"), &[n, h], &pass.pre_in)?;
        self.buffer(&name("film"), &[2, h], &pass.film)?;
        self.buffer(&name("film_inputs"), &[width::FILM_INPUTS], &pass.film_inputs)?;
        for (at, stream) in pass.h.iter().enumerate() {
            self.buffer(&name(&format!("h.{at}")), &[n, h], stream)?;
        }
        for block in 0..N_BLOCKS {
            self.operand(&name(&format!("n.{block}")), &[n, h], &pass.normed[block])?;
            self.buffer(&name(&format!("pre1.{block}")), &[n, h], &pass.pre[block])?;
            self.operand(&name(&format!("s.{block}")), &[n, h], &pass.hidden[block])?;
        }
        self.buffer(&name(&format!("z.{}", N_BLOCKS - 1)), &[n, h], &pass.added)?;
        self.operand(&name("branch_in"), &[n_heads, n, h], &pass.branch_in)?;
        self.buffer(&name("gate_logits"), &[n, N_BRANCHES, width::GROUPS], &pass.gate_logits)?;
        self.buffer(&name("gates"), &[n, N_BRANCHES, width::GROUPS], &pass.gates)?;
        self.buffer(&name("head_pre"), &[n_heads, n, m], &pass.head_pre)?;
        self.operand(&name("head_hidden"), &[n_heads, n, m], &pass.head_hidden)?;
        self.buffer(&name("heads"), &[n, self.head_stride], &pass.heads)
    }

    fn losses(&mut self, trainer: &Trainer) -> Result<(), DumpError> {
        let (memory, n) = (trainer.memory(), self.n_rows);
        self.buffer("next_q", &[n, width::ACTIONS], &memory.next_q)?;
        self.values("next_actions", &[n, N_BRANCHES], &memory.next_actions.read()?.into_flattened())?;
        self.buffer("targets", &[n, N_BRANCHES, self.atoms], &memory.targets)?;
        self.buffer("q", &[n, width::ACTIONS], &memory.q)?;
        self.buffer("row_losses", &[n, row_loss::N], &memory.row_losses)?;
        self.buffer("td_errors", &[n], &memory.td_errors)?;
        self.buffer("head_losses", &[learner::N_LEARNERS - 1], &memory.head_losses)?;
        self.buffer("gate", &[], &memory.gate)?;
        fields!(
            self,
            "totals",
            memory.totals.read()?[0],
            [
                weighted_ce,
                td_mean,
                td_var,
                mse,
                cql,
                objective,
                q_mean,
                q_min,
                q_max,
                q_variance,
                avg_max_q,
                reward_mean,
                reward_var
            ]
        );
        for (learner, update) in learner::NAMES.into_iter().zip(memory.update.read()?) {
            fields!(
                self,
                format!("update.{learner}"),
                update,
                [gate, lr, gradient_scale, first_correction, second_correction, weight_decay, tau, squared_norm]
            );
        }
        Ok(())
    }

    /// IQN's head, unless off.
    fn iqn(&mut self, trainer: &Trainer, before: &Before) -> Result<(), DumpError> {
        let Some(head) = &trainer.memory().iqn else { return Ok(()) };
        let (n, h, m) = (self.n_rows, self.hidden, self.branch_hidden);
        let of_rows = |width: usize| [n, N_QUANTILES, width];
        self.buffer("iqn.phi", &[N_QUANTILES, h], &head.phi)?;
        self.operand("iqn.product", &of_rows(h), &head.product)?;
        self.buffer("iqn.pre", &of_rows(m), &head.pre)?;
        self.operand("iqn.hidden", &of_rows(m), &head.hidden)?;
        self.buffer("iqn.quantiles", &of_rows(QUANTILE_STRIDE), &head.quantiles)?;
        self.buffer("iqn.next_quantiles", &of_rows(QUANTILE_STRIDE), &head.next_quantiles)?;
        self.buffer("iqn.row_losses", &[n], &head.row_losses)?;
        self.operand("iqn.d_quantiles", &of_rows(QUANTILE_STRIDE), &head.d_quantiles)?;
        self.operand("iqn.d_pre", &of_rows(m), &head.d_pre)?;
        self.buffer("iqn.d_product", &of_rows(h), &head.d_product)?;
        self.buffer("iqn.d_h", &[n, h], &head.d_h)?;
        let after = trainer.agent.iqn_averages.read()?;
        for (name, averages) in [("iqn.averages.before", &before.iqn_averages), ("iqn.averages.after", &after)] {
            let averages: Vec<f32> = averages.iter().map(|&average| average as f32).collect();
            self.values(name, &[2], &averages)?;
        }
        Ok(())
    }

    fn backward(&mut self, backward: &Backward) -> Result<(), DumpError> {
        let (n, h, n_heads) = (self.n_rows, self.hidden, HEAD_NAMES.len());
        self.operand("d_heads", &[n, self.head_stride], &backward.d_heads)?;
        self.operand("d_head_pre", &[n_heads, n, self.branch_hidden], &backward.d_head_pre)?;
        self.buffer("d_branch_in", &[n_heads, n, h], &backward.d_branch_in)?;
        self.operand("d_gate_logits", &[n, N_BRANCHES, width::GROUPS], &backward.d_gate_logits)?;
        self.buffer("d_h.0", &[n, h], &backward.d_h)?;
        for block in 0..N_BLOCKS {
            self.operand(&format!("d_z.{block}"), &[n, h], &backward.d_added[block])?;
            self.operand(&format!("d_pre1.{block}"), &[n, h], &backward.d_pre[block])?;
        }
        self.buffer("d_n.0", &[n, h], &backward.d_normed)?;
        self.operand("d_pre_in", &[n, h], &backward.d_pre_in)?;
        if let Some(block) = &backward.temporal {
            self.buffer("d_temporal", &[n, width::TEMPORAL], &block.d_output)?;
        }
        if let Some(attention) = &backward.attention {
            self.buffer("d_attention", &[n, width::ATTENTION], &attention.d_output)?;
        }
        Ok(())
    }

    /// Of the auxiliary learners that are on.
    fn learners(&mut self, trainer: &Trainer, before: &Before) -> Result<(), DumpError> {
        let memory = trainer.memory();
        if let Some(heads) = &memory.value_heads {
            self.value_heads(heads)?;
        }
        if memory.value_heads.is_some() && trainer.agent.learners.popart {
            for (when, popart) in [("before", before.popart), ("after", trainer.agent.popart.read()?[0])] {
                fields!(self, format!("popart.{when}"), popart, [mean, square, seeded]);
            }
        }
        memory.selectivity.iter().try_for_each(|learner| self.selectivity(learner))?;
        memory.denoise.iter().try_for_each(|learner| self.denoise(learner))?;
        memory.risk.iter().try_for_each(|learner| self.risk(learner))
    }

    fn value_heads(&mut self, heads: &ValueHeads) -> Result<(), DumpError> {
        let n = self.n_rows;
        self.buffer("iql.pre", &[2, n, width::IQL_HIDDEN], &heads.pre)?;
        self.buffer("iql.out", &[n, 2], &heads.outputs)?;
        self.buffer("q_taken", &[n], &heads.q_taken)?;
        let values = heads.values.read()?;
        self.values("v_high", &[n], &values[..n])?;
        self.values("v_low", &[n], &values[n..])?;
        self.buffer("d_iql.out", &[n, 2], &heads.d_outputs)?;
        self.operand("d_iql.pre", &[2, n, width::IQL_HIDDEN], &heads.d_pre)?;
        fields!(self, "iql", heads.totals.read()?[0], [std, shrink, shift, gap]);
        Ok(())
    }

    fn selectivity(&mut self, learner: &Selectivity) -> Result<(), DumpError> {
        self.buffer("select.logits", &[self.n_rows], &learner.probability.logits)?;
        self.buffer("p_trade", &[self.n_rows], &learner.probability.p_trade)?;
        self.buffer("d_select.logits", &[self.n_rows], &learner.d_logits)?;
        self.buffer("select.rate", &[], &learner.rate)
    }

    fn denoise(&mut self, learner: &Denoise) -> Result<(), DumpError> {
        let shape = [self.n_rows, N_FEATURES + width::BOTTLENECK];
        self.operand("denoise.inputs", &shape, &learner.inputs)?;
        self.operand("d_denoise", &shape, &learner.gradients)?;
        self.buffer("denoise.row_losses", &[self.n_rows], &learner.row_losses)
    }

    fn risk(&mut self, learner: &Risk) -> Result<(), DumpError> {
        self.buffer("cvar", &[self.n_rows, width::ACTIONS], &learner.cvar)?;
        self.buffer("cvar_loss", &[], &learner.loss)
    }

    fn parameters(&mut self, trainer: &Trainer, before: &Before) -> Result<(), DumpError> {
        let p = &trainer.agent.parameters;
        let all: [(&str, &[f32], &Buffer<f32>); 4] = [
            ("param", &before.parameters, &p.online.flat),
            ("target", &before.target, &p.target.flat),
            ("first_moment", &before.first_moments, &p.first_moments),
            ("second_moment", &before.second_moments, &p.second_moments),
        ];
        for (name, before, after) in all {
            self.flat(&format!("{name}.before"), &p.layout, before)?;
            self.flat(&format!("{name}.after"), &p.layout, &after.read()?)?;
        }
        self.flat("gradient", &p.layout, &p.gradient.read()?)?;
        self.flat("snapshot.before", &p.layout, &before.snapshot)?;
        self.flat("snapshot.after", &p.layout, &trainer.agent.snapshot.read()?)?;
        for (name, weights) in [("shadow", &p.online), ("target_shadow", &p.target)] {
            self.shadows(name, &p.layout, weights)?;
        }
        let vaccine = trainer.memory().vaccine.read()?[0];
        fields!(self, "vaccine", vaccine, [multiple, cosine, compared]);
        self.buffer("masks", &[trainer.agent.masks.len()], &trainer.agent.masks)
    }

    fn state(&mut self, trainer: &Trainer, before: &Before) -> Result<(), DumpError> {
        let (agent, memory) = (&trainer.agent, trainer.memory());
        if let Some(causal) = &memory.causal {
            self.buffer("causal.sensitivity", &[N_FEATURES], &causal.sensitivity)?;
        }
        self.values("isv.before", &[isv::LEN], &before.bus)?;
        self.buffer("isv.after", &[isv::LEN], &agent.bus)?;
        self.buffer("atoms", &[N_BRANCHES, self.atoms], &agent.atoms)?;
        self.values("spacing.before", &[N_BRANCHES, self.atoms - 1], &before.spacing)?;
        self.buffer("spacing.after", &[N_BRANCHES, self.atoms - 1], &agent.spacing)?;
        let spectral = &agent.spectral;
        for (name, buffer) in [("spectral.scales", &spectral.scales), ("spectral.u", &spectral.u)] {
            self.buffer(name, &[spectral.n_networks, buffer.len() / spectral.n_networks], buffer)?;
        }
        fields!(
            self,
            "counters",
            agent.counters.read()?[0],
            [adam_t, sel_t, denoise_t, iql_t, iql_low_t, iqn_t, attn_t, rng_step]
        );
        let scalars = agent.scalars.read()?[0];
        fields!(self, "scalars", scalars, [lr, clip, beta, tau, health_at_epoch, flags]);
        self.values("scalars.depth_mask", &[N_BLOCKS], &scalars.depth_mask)?;
        let readback = memory.readback.read()?[0];
        fields!(
            self,
            "readback",
            readback,
            [total_loss, mse_loss, grad_norm_sq, q_mean, q_min, q_max, q_variance, avg_max_q, causal_mean_sens]
        );
        self.values("readback.nan_flags", &[readback.nan_flags.len()], &readback.nan_flags)
    }
}
