//! Every named buffer of a step as safetensors, for comparison with another implementation. `docs/dump.md` says of each name
//! which symbol of the equations it is, with shape and unit.

use std::path::Path;

use bytemuck::Pod;
use gpu_kernels::c51::row_loss;
use gpu_kernels::heads::HeadColumns;
use shared_types::market::N_BRANCHES;
use shared_types::{Precision, isv, learner};

use super::{TrainError, Trainer};
use crate::agent::layout::{HEAD_NAMES, Layout, N_BLOCKS};
use crate::agent::{Backward, Pass, width};
use crate::device::{Buffer, dtype_of};
use crate::run::{Dtype, RunError, TensorFile};

/// What is overwritten in a step, as it was before.
pub struct Before {
    parameters: Vec<f32>,
    target: Vec<f32>,
    first_moments: Vec<f32>,
    second_moments: Vec<f32>,
    spacing: Vec<f32>,
    snapshot: Vec<f32>,
    bus: Vec<f32>,
}

impl Before {
    /// Copies it from the device.
    pub fn read(trainer: &Trainer) -> Result<Self, TrainError> {
        let (agent, parameters) = (&trainer.agent, &trainer.agent.parameters);
        Ok(Self {
            parameters: parameters.online.flat.read()?,
            target: parameters.target.flat.read()?,
            first_moments: parameters.first_moments.read()?,
            second_moments: parameters.second_moments.read()?,
            spacing: agent.spacing.read()?,
            snapshot: agent.snapshot.read()?,
            bus: agent.bus.read()?,
        })
    }
}

/// Writes the latest step to `path`, which must not exist; `before` was read before it. The number of tensors.
pub fn write(trainer: &Trainer, before: &Before, path: &Path) -> Result<usize, TrainError> {
    let memory = trainer.memory();
    let mut dump = Dump::create(trainer, path)?;
    dump.batch(trainer)?;
    for (name, pass) in
        [("online", &memory.online), ("online_next", &memory.online_next), ("target_next", &memory.target_next)]
    {
        dump.pass(name, pass)?;
    }
    dump.losses(trainer)?;
    dump.backward(&memory.backward)?;
    dump.parameters(trainer, before)?;
    dump.state(trainer, before)?;
    dump.file.finish()?;
    Ok(dump.n_tensors)
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
    fn create(trainer: &Trainer, path: &Path) -> Result<Self, RunError> {
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

    fn bytes(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<(), TrainError> {
        self.n_tensors += 1;
        Ok(self.file.tensor(name, dtype, shape, bytes)?)
    }

    fn values<T: Pod>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), TrainError> {
        self.bytes(name, dtype_of::<T>(), shape, bytemuck::cast_slice(values))
    }

    fn buffer<T: Pod>(&mut self, name: &str, shape: &[usize], buffer: &Buffer<T>) -> Result<(), TrainError> {
        self.values(name, shape, &buffer.read()?)
    }

    /// What a product takes: bf16, or f32 in two words.
    fn operand(&mut self, name: &str, shape: &[usize], buffer: &Buffer<u16>) -> Result<(), TrainError> {
        let dtype = match self.precision {
            Precision::Bf16 => Dtype::BF16,
            Precision::F32 => Dtype::F32,
        };
        self.bytes(name, dtype, shape, bytemuck::cast_slice(&buffer.read()?))
    }

    /// A tensor for each of the layout's that lies in `flat`.
    fn flat(&mut self, name: &str, layout: &Layout, flat: &[f32]) -> Result<(), TrainError> {
        for tensor in layout.tensors().iter().filter(|tensor| tensor.range().end <= flat.len()) {
            self.values(&format!("{name}.{}", tensor.name), &tensor.shape, &flat[tensor.range()])?;
        }
        Ok(())
    }

    fn batch(&mut self, trainer: &Trainer) -> Result<(), TrainError> {
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
        let tree = replay.tree.read()?;
        let leaves = &tree[tree.len() / 2..];
        let after: Vec<f32> = batch.indices.read()?.iter().map(|&slot| leaves[slot as usize]).collect();
        self.values("priority.after", &[n], &after)?;
        self.values("priority.total", &[], &tree[1..2])?;
        self.buffer("priority.max", &[], &replay.max_priority)
    }

    fn pass(&mut self, pass_name: &str, pass: &Pass) -> Result<(), TrainError> {
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

    fn losses(&mut self, trainer: &Trainer) -> Result<(), TrainError> {
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

    fn backward(&mut self, backward: &Backward) -> Result<(), TrainError> {
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

    fn parameters(&mut self, trainer: &Trainer, before: &Before) -> Result<(), TrainError> {
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
        let vaccine = trainer.memory().vaccine.read()?[0];
        fields!(self, "vaccine", vaccine, [multiple, cosine, compared]);
        self.buffer("masks", &[trainer.agent.masks.len()], &trainer.agent.masks)
    }

    fn state(&mut self, trainer: &Trainer, before: &Before) -> Result<(), TrainError> {
        let (agent, memory) = (&trainer.agent, trainer.memory());
        self.values("isv.before", &[isv::LEN], &before.bus)?;
        self.buffer("isv.after", &[isv::LEN], &agent.bus)?;
        self.buffer("atoms", &[N_BRANCHES, self.atoms], &agent.atoms)?;
        self.values("spacing.before", &[N_BRANCHES, self.atoms - 1], &before.spacing)?;
        self.buffer("spacing.after", &[N_BRANCHES, self.atoms - 1], &agent.spacing)?;
        let n_matrices = agent.spectral.scales.len() / 2;
        self.buffer("spectral.scales", &[2, n_matrices], &agent.spectral.scales)?;
        self.buffer("spectral.u", &[2, agent.spectral.u.len() / 2], &agent.spectral.u)?;
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
