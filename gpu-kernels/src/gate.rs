//! Which updates are applied, and the scalars of those that are.
//!
//! The step is gated when the objective or the norm of theta's gradient is not finite: then nothing that is learned changes. A
//! learner other than theta is gated as well by its own loss and its own norm. A gated learner takes 1 back off its counter, so
//! that bias correction counts applied updates.
//!
//! | value | equation |
//! |---|---|
//! | gradient_scale | min(1, clip / norm) (Pascanu et al. 2013, algorithm 1) |
//! | clip | the control clip; for theta with the adaptive clip, once clip_ema has had a sample, min(control clip, 2 clip_ema) |
//! | corrections | 1 / (1 - beta^t), t applied updates with this one (Kingma and Ba 2015, algorithm 1) |
//!
//! The powers of beta are worked out in f64 by repeated squaring, at most 62 roundings: in f32 1 - 0.999^t would be 3e-5 off
//! for t = 1.

use cuda_std::prelude::*;
use shared_types::{
    Counters, GateParams, GradientNorm, LearnerRange, LossTotals, SnapshotProducts, StepScalars, UpdateScalars,
    VaccineScalars, isv, learner, nan_flags,
};

use crate::lanes::{self, N_LANES};
use crate::{adamw, math, non_finite, norm, vaccine};

const N_THREADS: u32 = (learner::N_LEARNERS * N_LANES) as u32;

/// Launch of [`gate_step()`]: one block, a warp a learner, or one thread for all.
pub const fn gate_step_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// Adds up the norms, decides what is gated, and fills each learner's scalars.
///
/// Shapes: totals \[1\], of which it reads J; head_losses \[6\], the own loss of each learner but theta, in the learners' order, 0
/// for one without (the attention descends J); ranges \[7\] and partials as
/// [`gradient_norm`](crate::norm::gradient_norm()) has them; products from [`snapshot_products`](vaccine::snapshot_products()),
/// none without the vaccine; step \[1\]; bus \[64\] as the step began, of which it reads clip_ema and phi;
/// seeded \[1\], the averages of the bus that have had a sample, bit by index; counters \[1\], of the step, from which gated learners
/// take 1 back; gate \[1\], 1 when the whole step is gated, else 0; scalars \[7\]; vaccine \[1\]; flags \[7\], to which it adds what gated an update,
/// under `forward` (J), `gradient` (theta's norm) and `aux` (a head). Launch: [`gate_step_shape`].
#[kernel(cooperative, max_threads = 224)]
pub fn gate_step(
    totals: GlobalSlice<LossTotals>,
    head_losses: GlobalSlice<f32>,
    ranges: GlobalSlice<LearnerRange>,
    partials: GlobalSlice<GradientNorm>,
    products: GlobalSlice<SnapshotProducts>,
    step: GlobalSlice<StepScalars>,
    bus: GlobalSlice<f32>,
    seeded: GlobalSlice<u64>,
    counters: GlobalSliceMut<Counters>,
    gate: GlobalSliceMut<u32>,
    scalars: GlobalSliceMut<UpdateScalars>,
    vaccine: GlobalSliceMut<VaccineScalars>,
    flags: GlobalSliceMut<u32>,
    params: GateParams,
) {
    let memory = Memory { totals, head_losses, step, bus, seeded, counters, gate, scalars, vaccine, flags, params };
    if lanes::of_block(N_THREADS) == 1 {
        let theta = norm::combined(&partials, &ranges.get(learner::THETA), 0);
        let theta = memory.vaccinate(theta, vaccine::combined(&products, 0));
        let theta_norm = theta.sum_of_squares;
        let mut gated = 0;
        for learner in 0..learner::N_LEARNERS {
            let found =
                if learner == learner::THETA { theta } else { norm::combined(&partials, &ranges.get(learner), 0) };
            gated |= (memory.decide(learner, found, theta_norm) as u32) << learner;
        }
        memory.take_back(gated);
        return;
    }
    let thread = thread::thread_idx_x() as usize;
    let (learner, lane) = (thread / N_LANES, thread % N_LANES);
    let theta_norm = shared_slice![f32; 1];
    let taken_back = shared_slice![u32; learner::N_LEARNERS];
    let mut found = norm::combined(&partials, &ranges.get(learner), lane);
    // The whole warp passes the same branch.
    if learner == learner::THETA {
        let products = vaccine::combined(&products, lane);
        if lane == 0 {
            found = memory.vaccinate(found, products);
        }
    }
    if thread == 0 {
        theta_norm.set(0, found.sum_of_squares);
    }
    // Between theta's norm and everyone's reads of it.
    thread::sync_threads();
    if lane == 0 {
        taken_back.set(learner, memory.decide(learner, found, theta_norm.get(0)) as u32);
    }
    // Between each learner's verdict, and its read of the counters, and the one write of all counters.
    thread::sync_threads();
    if thread == 0 {
        memory.take_back((0..learner::N_LEARNERS).fold(0, |gated, one| gated | taken_back.get(one) << one));
    }
}

/// What the verdicts read and write, as [`gate_step()`] names it.
struct Memory<'a> {
    totals: GlobalSlice<'a, LossTotals>,
    head_losses: GlobalSlice<'a, f32>,
    step: GlobalSlice<'a, StepScalars>,
    bus: GlobalSlice<'a, f32>,
    seeded: GlobalSlice<'a, u64>,
    counters: GlobalSliceMut<'a, Counters>,
    gate: GlobalSliceMut<'a, u32>,
    scalars: GlobalSliceMut<'a, UpdateScalars>,
    vaccine: GlobalSliceMut<'a, VaccineScalars>,
    flags: GlobalSliceMut<'a, u32>,
    params: GateParams,
}

impl Memory<'_> {
    /// Compares theta's gradient with the last applied one, and notes what is added; the norm with it.
    #[inline(always)]
    fn vaccinate(&self, found: GradientNorm, products: SnapshotProducts) -> GradientNorm {
        let phi = self.bus.get(isv::VACCINE_COS_EMA);
        let (scalars, found) = vaccine::vaccinated(found, products, phi, self.params.vaccine_weight);
        self.vaccine.set(0, scalars);
        found
    }

    /// A learner's verdict, scalars and flags; whether its counter is to be taken back.
    #[inline(always)]
    fn decide(&self, learner: usize, found: GradientNorm, theta_norm: f32) -> bool {
        let (params, flags) = (&self.params, &self.flags);
        let total = self.totals.get(0).objective;
        let step_gated = !(total.is_finite() && theta_norm.is_finite());
        let on = params.learners >> learner & 1 != 0;
        let loss = if learner == learner::THETA { total } else { self.head_losses.get(learner - 1) };
        let own = non_finite::of_number(loss) | found.flags | non_finite::of_number(found.sum_of_squares);
        let gated = step_gated || !on || own != 0;
        if learner == learner::THETA {
            report(flags, nan_flags::FORWARD, non_finite::of_number(total));
            report(flags, nan_flags::GRADIENT, found.flags | non_finite::of_number(found.sum_of_squares));
            self.gate.set(0, step_gated as u32);
        } else if on {
            report(flags, nan_flags::AUX, own);
        }
        let clip_ema = (self.seeded.get(0) >> isv::CLIP_EMA & 1 != 0).then(|| self.bus.get(isv::CLIP_EMA));
        let adapts = learner == learner::THETA && params.adaptive_clip != 0;
        let step = self.step.get(0);
        let applied = self.counters.get(0).applied(learner);
        let norm = math::sqrt(found.sum_of_squares);
        self.scalars.set(
            learner,
            UpdateScalars {
                gate: gate_bits(gated, step_gated),
                lr: step.lr,
                gradient_scale: clip_scale(norm, clip(step.clip, clip_ema.filter(|_| adapts))),
                first_correction: correction(adamw::BETAS.0, applied),
                second_correction: correction(adamw::BETAS.1, applied),
                weight_decay: if learner == learner::THETA { params.weight_decay } else { 0.0 },
                tau: step.tau,
                squared_norm: found.sum_of_squares,
            },
        );
        on && gated
    }

    /// Takes 1 back off the counters of the learners whose bits are set.
    #[inline(always)]
    fn take_back(&self, gated: u32) {
        self.counters.set(0, self.counters.get(0).without(gated));
    }
}

/// The bits of a learner's gate.
#[inline(always)]
fn gate_bits(gated: bool, step_gated: bool) -> u32 {
    let own = if gated { UpdateScalars::GATED } else { 0 };
    own | if step_gated { UpdateScalars::STEP_GATED } else { 0 }
}

/// Notes that a stage's update was gated for what was found, if anything.
#[inline(always)]
fn report(flags: &GlobalSliceMut<u32>, stage: usize, found: u32) {
    if found != 0 {
        flags.fetch_or(stage, found | nan_flags::GATED);
    }
}

/// The clip: the control's, or at most twice clip_ema.
#[inline]
pub fn clip(control_clip: f32, clip_ema: Option<f32>) -> f32 {
    match clip_ema {
        Some(ema) => control_clip.min(2.0 * ema),
        None => control_clip,
    }
}

/// min(1, clip / norm).
#[inline]
pub fn clip_scale(norm: f32, clip: f32) -> f32 {
    if norm > clip { clip / norm } else { 1.0 }
}

/// 1 / (1 - beta^applied); 1 for no update yet.
#[inline]
pub fn correction(beta: f64, applied: i32) -> f32 {
    if applied < 1 { 1.0 } else { (1.0 / (1.0 - math::power(beta, applied as u32))) as f32 }
}
