//! The first kernel of a step: counters, and what the schedules make of them.
//!
//! | value | equation |
//! |---|---|
//! | tau | (tau_final + (tau_init - tau_final) (1 + cos(pi p)) / 2) (0.5 + 0.5 health_e), p = min(adam_t / anneal_steps, 1) |
//! | beta | beta0 + (1 - beta0) min(adam_t / total_steps, 1) (Schaul et al. 2016, section 3.4) |
//! | depth_mask of block l of L | 1 with probability 1 - (l / L)(1 - depth_keep_last) (Huang et al. 2016, equation 4), else 0 |
//! | word of a kind of work that is due every n steps | rng_step where rng_step mod n = 0, else 0 |
//!
//! health_e is health as it was at the last epoch boundary, so that tau is smooth within an epoch.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::atomic_load_32_system;
use cuda_std::prelude::*;
use shared_types::{Control, Counters, N_DEPTH_BLOCKS, Schedule, StepScalars, due, isv, stream};

use crate::philox;

/// Launch of [`increment_step_counters()`]: one thread.
pub const fn increment_step_counters_shape() -> LaunchShape {
    LaunchShape::linear(1, 1)
}

/// Adds 1 to all eight counters, then fills the step's scalars and ISV's tau, and says what is due.
///
/// The only reader of the control page, once a step: over the bus a read is slow, so the rest of the step uses `scalars`. The
/// host may write the page at any time: each field is one relaxed load of system scope, and a step may see one field's new
/// value beside another's old one. Shapes: one element each; `bus` the 64 entries of the internal state vector, of which it
/// writes tau; `due` a word for each kind of work in [`due`]. Launch: [`increment_step_counters_shape`].
///
/// # Safety
/// `control` points to one [`Control`], written at the same time by whole fields alone.
#[kernel]
pub unsafe fn increment_step_counters(
    control: *const Control,
    counters: GlobalSliceMut<Counters>,
    scalars: GlobalSliceMut<StepScalars>,
    bus: GlobalSliceMut<f32>,
    due: GlobalSliceMut<u32>,
    schedule: Schedule,
) {
    if thread::index_1d() != 0 {
        return;
    }
    let counted = incremented(counters.get(0));
    // SAFETY: the caller's promise, which is this kernel's own `# Safety`.
    let inputs = unsafe { read_inputs(control) };
    let next = step_scalars(&inputs, &counted, scalars.get(0).health_at_epoch, &schedule);
    counters.set(0, counted);
    scalars.set(0, next);
    bus.set(isv::TAU, next.tau);
    for work in 0..due::N {
        due.set(work, due_word(counted.rng_step as u32, schedule.every[work]));
    }
}

/// The host's inputs, as they stand now; the fields that are the device's are 0.
///
/// # Safety
/// `control` points to one [`Control`], written at the same time by whole fields alone.
#[inline(always)]
unsafe fn read_inputs(control: *const Control) -> Control {
    // Not through a view, whose loads are `ld.global.nc`: undefined for memory that is written meanwhile.
    // SAFETY: the caller's promise, which is this function's own `# Safety`; each field is an aligned word.
    let load = |field: *const u32| unsafe { atomic_load_32_system(field.cast_mut(), Ordering::Relaxed) };
    // SAFETY: the fields lie inside the page, which the caller vouches for.
    let (lr, clip, beta0, flags) = unsafe {
        (&raw const (*control).lr, &raw const (*control).clip, &raw const (*control).beta0, &raw const (*control).flags)
    };
    Control {
        lr: f32::from_bits(load(lr.cast())),
        clip: f32::from_bits(load(clip.cast())),
        beta0: f32::from_bits(load(beta0.cast())),
        flags: load(flags),
        stamp_begin: 0,
        stamp_end: 0,
        reserved: [0; 10],
    }
}

/// All counters one further.
#[inline]
pub fn incremented(counters: Counters) -> Counters {
    Counters {
        adam_t: counters.adam_t.wrapping_add(1),
        sel_t: counters.sel_t.wrapping_add(1),
        denoise_t: counters.denoise_t.wrapping_add(1),
        iql_t: counters.iql_t.wrapping_add(1),
        iql_low_t: counters.iql_low_t.wrapping_add(1),
        iqn_t: counters.iqn_t.wrapping_add(1),
        attn_t: counters.attn_t.wrapping_add(1),
        rng_step: counters.rng_step.wrapping_add(1),
    }
}

/// The scalars of the step that `counters`, already incremented, stand at.
#[inline]
pub fn step_scalars(control: &Control, counters: &Counters, health_at_epoch: f32, schedule: &Schedule) -> StepScalars {
    let mut depth_mask = [0.0; N_DEPTH_BLOCKS];
    for (block, mask) in depth_mask.iter_mut().enumerate() {
        let xi = philox::uniform(schedule.seed, stream::DEPTH, counters.rng_step as u32, block as u32);
        *mask = if xi < depth_keep(block, schedule.depth_keep_last) { 1.0 } else { 0.0 };
    }
    StepScalars {
        lr: control.lr,
        clip: control.clip,
        beta: control.beta0 + (1.0 - control.beta0) * progress(counters.adam_t, schedule.total_steps),
        tau: tau_cosine(progress(counters.adam_t, schedule.anneal_steps), schedule) * (0.5 + 0.5 * health_at_epoch),
        depth_mask,
        health_at_epoch,
        flags: control.flags,
    }
}

/// The word of work that is due every `every` steps, never for 0, in step `step`.
#[inline]
pub fn due_word(step: u32, every: u32) -> u32 {
    if every > 0 && step.is_multiple_of(every) { step } else { 0 }
}

/// min(step / n_steps, 1); 1 when `n_steps` is 0.
#[inline]
pub fn progress(step: i32, n_steps: u32) -> f32 {
    if step as i64 >= n_steps as i64 { 1.0 } else { step as f32 / n_steps as f32 }
}

/// tau before health scales it.
#[inline]
pub fn tau_cosine(progress: f32, schedule: &Schedule) -> f32 {
    let fall = 0.5 * (1.0 + philox::cos_turns(0.5 * progress));
    schedule.tau_final + (schedule.tau_init - schedule.tau_final) * fall
}

/// Probability that residual block `block` (from 0) is kept.
#[inline]
pub fn depth_keep(block: usize, keep_last: f32) -> f32 {
    1.0 - (block + 1) as f32 / N_DEPTH_BLOCKS as f32 * (1.0 - keep_last)
}
