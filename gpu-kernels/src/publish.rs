//! The last kernel of a step: what the host sees of it.
//!
//! The host reads pinned, mapped pages while later steps run; they are a mirror of device memory, written here alone, between two
//! stamps of the control page. Order, all of system scope: `stamp_begin` = rng_step, a fence, the mirrors, a fence,
//! `stamp_end` = rng_step. A reader that finds `stamp_end` = n, copies, and then finds `stamp_begin` = n as well, has copied step n
//! alone: were one word of step n + 1 among them, the fence before that word would show it `stamp_begin` = n + 1 too.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::{atomic_store_32_system, system_thread_fence};
use cuda_std::prelude::*;
use shared_types::{Control, Counters, Isv, LossTotals, Readback, UpdateScalars, isv, learner, nan_flags};

use crate::lanes::N_LANES;

/// Launch of [`publish()`]: one warp.
pub const fn publish_shape() -> LaunchShape {
    LaunchShape::linear(1, N_LANES as u32)
}

const COUNTER_WORDS: usize = size_of::<Counters>() / 4;
const READBACK_WORDS: usize = size_of::<Readback>() / 4;

/// Completes the readback, mirrors it with counters and internal state vector into the host's pages, and clears the step's flags
/// for the next.
///
/// Shapes: totals \[1\]; scalars `[L]` of [`gate_step`](crate::gate::gate_step()), of which it reads theta's; counters \[1\]; bus \[64\];
/// flags \[7\]; readback \[1\], on the device, whose `causal_mean_sens` is `maintenance`'s and whose Q statistics change when rng_step
/// mod `stats_every` = 0, and never if that is 0. The pages hold one element each. Launch: [`publish_shape`].
///
/// # Safety
/// The four pages point to one element each. While the kernel runs nothing else writes them, but for the host, by whole fields, the
/// inputs of `control`.
#[kernel(cooperative, max_threads = 32)]
pub unsafe fn publish(
    totals: GlobalSlice<LossTotals>,
    scalars: GlobalSlice<UpdateScalars>,
    counters: GlobalSlice<Counters>,
    bus: GlobalSlice<f32>,
    flags: GlobalSliceMut<u32>,
    readback: GlobalSliceMut<Readback>,
    control: *mut Control,
    counters_page: *mut Counters,
    isv_page: *mut Isv,
    readback_page: *mut Readback,
    stats_every: u32,
) {
    let words = shared_slice![u32; READBACK_WORDS + COUNTER_WORDS];
    let lane = thread::thread_idx_x() as usize;
    let step = counters.get(0).rng_step as u32;
    if lane == 0 {
        let flags = core::array::from_fn(|stage| flags.get(stage));
        let due = step.is_multiple_of(stats_every);
        let next = filled(readback.get(0), &totals.get(0), &scalars.get(learner::THETA), flags, due);
        readback.set(0, next);
        let [a, b, c, d]: [[u32; 4]; READBACK_WORDS / 4] = bytemuck::cast(next);
        let [e, f]: [[u32; 4]; COUNTER_WORDS / 4] = bytemuck::cast(counters.get(0));
        // One by one: a loop over an array would keep it in local memory.
        words.store(0, a);
        words.store(4, b);
        words.store(8, c);
        words.store(12, d);
        words.store(16, e);
        words.store(20, f);
        // SAFETY: the caller's page; the stamps are this kernel's.
        unsafe { put(&raw mut (*control).stamp_begin, step) };
    }
    // Between the words and their reads, the flags' reads and their clearing, and `stamp_begin` and the mirrors.
    thread::sync_threads();
    system_thread_fence(Ordering::AcqRel);
    if lane < nan_flags::N_STAGES {
        flags.set(lane, 0);
    }
    for at in (lane..isv::LEN).step_by(N_LANES) {
        // SAFETY: a word of the caller's page.
        unsafe { put(isv_page.cast::<u32>().add(at), bus.get(at).to_bits()) };
    }
    if lane < READBACK_WORDS {
        // SAFETY: a word of the caller's page.
        unsafe { put(readback_page.cast::<u32>().add(lane), words.get(lane)) };
    } else if lane < READBACK_WORDS + COUNTER_WORDS {
        // SAFETY: a word of the caller's page.
        unsafe { put(counters_page.cast::<u32>().add(lane - READBACK_WORDS), words.get(lane)) };
    }
    system_thread_fence(Ordering::AcqRel);
    // Between the mirrors and `stamp_end`.
    thread::sync_threads();
    if lane == 0 {
        // SAFETY: the caller's page; the stamps are this kernel's.
        unsafe { atomic_store_32_system(&raw mut (*control).stamp_end, Ordering::Release, step) };
    }
}

/// Writes a word that the host may read at the same time.
///
/// # Safety
/// `page` is a word of pinned memory, accessed at the same time by atomics alone.
#[inline(always)]
unsafe fn put(page: *mut u32, word: u32) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { atomic_store_32_system(page, Ordering::Relaxed, word) }
}

/// The readback after a step; `due` when the step takes statistics of Q.
#[inline]
pub fn filled(
    before: Readback,
    totals: &LossTotals,
    theta: &UpdateScalars,
    nan_flags: [u32; nan_flags::N_STAGES],
    due: bool,
) -> Readback {
    let mut next = Readback {
        total_loss: totals.objective,
        mse_loss: totals.mse,
        grad_norm_sq: theta.squared_norm,
        nan_flags,
        ..before
    };
    if due {
        next.q_mean = totals.q_mean;
        next.q_min = totals.q_min;
        next.q_max = totals.q_max;
        next.q_variance = totals.q_variance;
        next.avg_max_q = totals.avg_max_q;
    }
    next
}
