//! An agent's flat parameters on a device, beside the reference's layout, and one update of them.

use std::sync::Arc;

use gpu_kernels::adamw::{CHUNK, CHUNK_DECAYS, CHUNK_SHADOW, adamw, adamw_shape};
use gpu_kernels::gate::{gate_step, gate_step_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape, learner_range, n_partial_norms};
use gpu_kernels::vaccine::{snapshot_products, snapshot_products_shape};
use half::bf16;
use host::device::Buffer;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, bits};
use reference::config::Sizes;
use reference::layout::{Group, Layout, trunk_matrices};
use shared_types::learner::{N_LEARNERS, THETA};
use shared_types::{
    Counters, GateParams, GradientNorm, LearnerRange, LossTotals, Precision, SnapshotProducts, StepScalars,
    UpdateScalars, VaccineScalars, isv,
};

/// The groups in the order of the learners' numbers.
pub const GROUPS: [Group; N_LEARNERS] =
    [Group::Theta, Group::Attention, Group::Iqn, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];

/// All learners on, the design's weight decay, the adaptive clip.
pub const PARAMS: GateParams = GateParams { learners: 0x7f, adaptive_clip: 1, weight_decay: 1e-4, vaccine_weight: 1.0 };

/// What a step begins with besides its gradient.
#[derive(Clone)]
pub struct Step {
    pub totals: LossTotals,
    pub head_losses: [f32; N_LEARNERS - 1],
    pub scalars: StepScalars,
}

impl Default for Step {
    fn default() -> Self {
        let scalars = StepScalars { lr: 2e-3, clip: 10.0, tau: 0.05, health_at_epoch: 1.0, ..StepScalars::default() };
        let totals = LossTotals { objective: 1.5, weighted_ce: 1.25, mse: 0.5, ..LossTotals::default() };
        Self { totals, head_losses: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5], scalars }
    }
}

pub struct World<'a> {
    pub lab: &'a Lab<'a>,
    pub layout: Arc<Layout>,
    pub precision: Precision,
    pub ranges: Vec<LearnerRange>,
    pub chunks: Vec<u8>,
    pub params: Buffer<f32>,
    pub first: Buffer<f32>,
    pub second: Buffer<f32>,
    pub target: Buffer<f32>,
    pub shadow: Buffer<u16>,
    pub target_shadow: Buffer<u16>,
    pub counters: Buffer<Counters>,
    pub bus: Buffer<f32>,
    pub seeded: Buffer<u64>,
    pub gate: Buffer<u32>,
    pub scalars: Buffer<UpdateScalars>,
    /// Empty: no pruning.
    pub masks: Buffer<u32>,
    /// Empty: no vaccine.
    pub snapshot: Buffer<f32>,
    pub vaccine: Buffer<VaccineScalars>,
    pub flags: Buffer<u32>,
}

/// What an operand holds where nothing was written: no number that rounding gives here.
pub const POISON: u16 = 0x7fab;

impl<'a> World<'a> {
    /// Random parameters and target, moments zero, operands poisoned, counters as in the first step.
    pub fn new(lab: &'a Lab<'a>, sizes: Sizes, precision: Precision) -> Result<Self, DeviceError> {
        let layout = Arc::new(Layout::new(&sizes));
        let mut ranges: Vec<LearnerRange> = Vec::new();
        for group in GROUPS {
            let range = layout.range(group);
            ranges.push(learner_range(range.start, range.len(), ranges.last().copied()));
        }
        let (n, n_target) = (layout.len(), layout.target_range().end);
        let mut numbers = Numbers::new(n as u64);
        let params = values(&layout, || 0.2 * symmetric(&mut numbers));
        let target = values(&layout, || 0.2 * symmetric(&mut numbers));
        let shadow = vec![POISON; n * precision.words()];
        Ok(Self {
            lab,
            precision,
            chunks: chunks(&layout, &sizes),
            params: lab.upload(&params)?,
            first: lab.zeroed(n)?,
            second: lab.zeroed(n)?,
            target: lab.upload(&target[..n_target])?,
            shadow: lab.upload(&shadow)?,
            target_shadow: lab.upload(&shadow[..n_target * precision.words()])?,
            counters: lab.upload(&[bytemuck::cast::<_, Counters>([1i32; 8])])?,
            bus: lab.zeroed(isv::LEN)?,
            seeded: lab.zeroed(1)?,
            gate: lab.upload(&[7u32])?,
            scalars: lab.zeroed(N_LEARNERS)?,
            masks: lab.zeroed(0)?,
            snapshot: lab.zeroed(0)?,
            vaccine: lab.zeroed(1)?,
            flags: lab.zeroed(7)?,
            ranges,
            layout,
        })
    }

    /// A gradient, 0 in the gaps, of elements of about `scale`.
    pub fn gradient(&self, numbers: &mut Numbers, scale: f32) -> Vec<f32> {
        values(&self.layout, || scale * symmetric(numbers))
    }

    /// Norms, gate and sweep.
    pub fn update(&self, gradient: &[f32], step: &Step, params: GateParams) -> Result<(), DeviceError> {
        let (gradient, ranges) = (self.lab.upload(gradient)?, self.lab.upload(&self.ranges)?);
        let partials = self.lab.zeroed::<GradientNorm>(n_partial_norms(&self.ranges))?;
        let launch = gradient_norm::launch(gradient.view(), self.masks.view(), ranges.view(), partials.view_mut());
        self.lab.run(gradient_norm_shape(&self.ranges, self.lab.lanes()), launch)?;
        let theta = &self.ranges[THETA];
        let n_products = if self.snapshot.is_empty() { 0 } else { theta.n_partials as usize };
        let products = self.lab.zeroed::<SnapshotProducts>(n_products)?;
        if n_products > 0 {
            let (snapshot, masks) = (self.snapshot.view(), self.masks.view());
            let launch = snapshot_products::launch(gradient.view(), snapshot, masks, products.view_mut());
            self.lab.run(snapshot_products_shape(theta, self.lab.lanes()), launch)?;
        }
        let (totals, losses) = (self.lab.upload(&[step.totals])?, self.lab.upload(&step.head_losses)?);
        let scalars = self.lab.upload(&[step.scalars])?;
        let launch = gate_step::launch(
            totals.view(),
            losses.view(),
            ranges.view(),
            partials.view(),
            products.view(),
            scalars.view(),
            self.bus.view(),
            self.seeded.view(),
            self.counters.view_mut(),
            self.gate.view_mut(),
            self.scalars.view_mut(),
            self.vaccine.view_mut(),
            self.flags.view_mut(),
            params,
        );
        self.lab.run(gate_step_shape(self.lab.lanes()), launch)?;
        self.sweep(&gradient)
    }

    /// The sweep alone.
    pub fn sweep(&self, gradient: &Buffer<f32>) -> Result<(), DeviceError> {
        let chunks = self.lab.upload(&self.chunks)?;
        let launch = adamw::launch(
            gradient.view(),
            chunks.view(),
            self.scalars.view(),
            self.vaccine.view(),
            self.masks.view(),
            self.snapshot.view_mut(),
            self.params.view_mut(),
            self.first.view_mut(),
            self.second.view_mut(),
            self.target.view_mut(),
            self.shadow.view_mut(),
            self.target_shadow.view_mut(),
            self.flags.view_mut(),
            self.precision,
        );
        self.lab.run(adamw_shape(self.params.len(), self.lab.lanes()), launch)
    }

    /// Bits of parameters, both moments, target, and both operands: all that an update may change.
    pub fn learned(&self) -> Result<[Vec<u32>; 6], DeviceError> {
        let words = |operands: Vec<u16>| operands.into_iter().map(u32::from).collect();
        Ok([
            bits(&self.params.read()?),
            bits(&self.first.read()?),
            bits(&self.second.read()?),
            bits(&self.target.read()?),
            words(self.shadow.read()?),
            words(self.target_shadow.read()?),
        ])
    }

    /// The operand of a value, as words.
    pub fn operand(&self, value: f32) -> Vec<u16> {
        match self.precision {
            Precision::Bf16 => vec![bf16::from_f32(value).to_bits()],
            Precision::F32 => vec![value.to_bits() as u16, (value.to_bits() >> 16) as u16],
        }
    }
}

/// Uniform in (-1, 1).
pub fn symmetric(numbers: &mut Numbers) -> f32 {
    (2.0 * numbers.unit() - 1.0) as f32
}

fn values(layout: &Layout, mut next: impl FnMut() -> f32) -> Vec<f32> {
    let mut values = vec![0.0; layout.len()];
    for tensor in &layout.tensors {
        values[tensor.range()].fill_with(&mut next);
    }
    values
}

/// A byte for each 64 elements: operands are written of every matrix but the trunk's.
fn chunks(layout: &Layout, sizes: &Sizes) -> Vec<u8> {
    let trunk = trunk_matrices(sizes);
    let mut chunks = vec![0; layout.len() / CHUNK];
    for tensor in &layout.tensors {
        let learner = GROUPS.iter().position(|group| *group == tensor.group).expect("a group has a number") as u8;
        let decays = if tensor.decays { CHUNK_DECAYS } else { 0 };
        let shadow = if tensor.shape.len() == 2 && !trunk.contains(&tensor.name) { CHUNK_SHADOW } else { 0 };
        chunks[tensor.offset / CHUNK..tensor.range().end.div_ceil(CHUNK)].fill(learner | decays | shadow);
    }
    chunks
}
