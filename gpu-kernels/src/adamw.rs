//! The update of every learner's parameters in one sweep: AdamW, the targets' EMA, the operands of the products.
//!
//! | value | equation |
//! |---|---|
//! | g | the gradient, plus for theta a multiple of the last applied one ([`vaccine`](crate::vaccine)); 0 where pruned |
//! | m | 0.9 m + 0.1 s g, s = min(1, clip / norm) |
//! | v | 0.999 v + 0.001 (s g)^2 |
//! | w | w - lr (m c1 / (sqrt(v c2) + 1e-8) + wd w), c = 1 / (1 - beta^t); 0 where pruned |
//! | w' | w' + tau (w - w'), w as before the update |
//!
//! Source: Loshchilov and Hutter 2019, algorithm 2, the decay multiplied by the learning rate alone; Lillicrap et al. 2016,
//! section 3, for w'. The target's EMA is in this sweep because it has to be gated with the update, and reads the same
//! parameters; it comes before the update in each element.
//!
//! The flat vectors are swept in chunks of 64 elements, the alignment of tensors. A chunk's byte says which learner it is of, so
//! that one launch does all learners, and what is done besides; gaps between tensors are 0 and stay so.

use cuda_std::prelude::*;
use shared_types::{Precision, UpdateScalars, VaccineScalars, nan_flags};

use crate::{lanes, math, non_finite, operand, prune};

/// Rates of the two moments.
pub const BETAS: (f64, f64) = (0.9, 0.999);
/// Added to the root of the second moment.
pub const EPSILON: f32 = 1e-8;

/// Elements that a chunk's byte speaks for.
pub const CHUNK: usize = 64;
/// Bits of a chunk's byte: the learner.
pub const CHUNK_LEARNER: u8 = 7;
/// Bit of a chunk's byte: weight decay applies, if its learner has any.
pub const CHUNK_DECAYS: u8 = 1 << 6;
/// Bit of a chunk's byte: operands of the new parameters, and of the new target, are written. Not for the trunk's matrices,
/// whose operands are scaled by their spectral norms.
pub const CHUNK_SHADOW: u8 = 1 << 7;

const N_THREADS: u32 = 256;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;

/// Elements of a block of one thread.
const TILE_ALONE: usize = 64 * CHUNK;

/// Launch of [`adamw()`] for `n` elements: four a thread, or 4,096 for a block of one thread.
pub const fn adamw_shape(n: usize, lanes: u32) -> LaunchShape {
    if lanes == 1 { LaunchShape::cover(n.div_ceil(TILE_ALONE), 1) } else { LaunchShape::cover(n / VECTOR, N_THREADS) }
}

/// One update of the elements of all learners that are not gated, and of their targets where the step is not.
///
/// A parameter or moment that would not be a finite number stays with its moments as it is, and is flagged under `update`: the
/// gate has seen to the gradient, so this takes a learning rate or weights that are beyond f32. So does a target.
/// Shapes: gradient, params, first, second `[n]`, n a multiple of 64; chunks `[n / 64]`; scalars `[L]`; vaccine \[1\]; masks as
/// [`prune`] has them; snapshot, the first elements of the gradient before, or empty without the vaccine; target `[n_target]`, that of the
/// first n_target elements, a multiple of 64; shadow, target_shadow `[n]` and `[n_target]` operands, read as matrices at the
/// parameters' offsets; flags, the step's words as far as `update`'s. Launch: [`adamw_shape`].
#[kernel(max_threads = 256)]
pub fn adamw(
    gradient: GlobalSlice<f32>,
    chunks: GlobalSlice<u8>,
    scalars: GlobalSlice<UpdateScalars>,
    vaccine: GlobalSlice<VaccineScalars>,
    masks: GlobalSlice<u32>,
    snapshot: GlobalSliceMut<f32>,
    params: GlobalSliceMut<f32>,
    first: GlobalSliceMut<f32>,
    second: GlobalSliceMut<f32>,
    target: GlobalSliceMut<f32>,
    shadow: GlobalSliceMut<u16>,
    target_shadow: GlobalSliceMut<u16>,
    flags: GlobalSliceMut<u32>,
    precision: Precision,
) {
    let memory = Memory {
        gradient,
        chunks,
        scalars,
        multiple: vaccine.get(0).multiple,
        masks,
        snapshot,
        params,
        first,
        second,
        target,
        shadow,
        target_shadow,
        flags,
        precision,
    };
    let n = memory.params.len();
    if lanes::of_block(N_THREADS) == 1 {
        let start = thread::block_idx_x() as usize * TILE_ALONE;
        for chunk in (start..n.min(start + TILE_ALONE)).step_by(CHUNK) {
            memory.update(chunk, CHUNK);
        }
        return;
    }
    let at = thread::index_1d() as usize * VECTOR;
    if at < n {
        memory.update(at, VECTOR);
    }
}

/// What the sweep reads and writes, as [`adamw()`] names it.
struct Memory<'a> {
    gradient: GlobalSlice<'a, f32>,
    chunks: GlobalSlice<'a, u8>,
    scalars: GlobalSlice<'a, UpdateScalars>,
    /// Of the snapshot, that is added to the gradient.
    multiple: f32,
    masks: GlobalSlice<'a, u32>,
    snapshot: GlobalSliceMut<'a, f32>,
    params: GlobalSliceMut<'a, f32>,
    first: GlobalSliceMut<'a, f32>,
    second: GlobalSliceMut<'a, f32>,
    target: GlobalSliceMut<'a, f32>,
    shadow: GlobalSliceMut<'a, u16>,
    target_shadow: GlobalSliceMut<'a, u16>,
    flags: GlobalSliceMut<'a, u32>,
    precision: Precision,
}

impl Memory<'_> {
    /// Elements `start..start + n` of one chunk.
    #[inline(always)]
    fn update(&self, start: usize, n: usize) {
        let chunk = self.chunks.get(start / CHUNK);
        let by = self.scalars.get((chunk & CHUNK_LEARNER) as usize);
        if by.gate & UpdateScalars::STEP_GATED != 0 {
            return;
        }
        let mut found = 0;
        let mut at = start;
        while at < start + n {
            found |= self.update_vector(at, chunk, &by);
            at += VECTOR;
        }
        if found != 0 {
            self.flags.fetch_or(nan_flags::UPDATE, found);
        }
    }

    /// Four elements; what they would have been besides numbers.
    #[inline(always)]
    fn update_vector(&self, at: usize, chunk: u8, by: &UpdateScalars) -> u32 {
        let shadowed = chunk & CHUNK_SHADOW != 0;
        let before: [f32; VECTOR] = self.params.load(at);
        let mut found = 0;
        if at < self.target.len() {
            let old: [f32; VECTOR] = self.target.load(at);
            let mut moved = core::array::from_fn(|i| moved_target(old[i], before[i], by.tau));
            if !non_finite::are_numbers(&[moved]) {
                moved = core::array::from_fn(|i| kept(moved[i], old[i], &mut found));
            }
            self.target.store(at, moved);
            if shadowed {
                operand::store4(&self.target_shadow, at, moved, self.precision);
            }
        }
        if by.gate & UpdateScalars::GATED == 0 {
            let decay = if chunk & CHUNK_DECAYS != 0 { by.weight_decay } else { 0.0 };
            let (m, v): ([f32; VECTOR], [f32; VECTOR]) = (self.first.load(at), self.second.load(at));
            let g = self.vaccinated(at);
            let next: [_; VECTOR] = core::array::from_fn(|i| element(before[i], g[i], m[i], v[i], decay, by));
            let mut after = [next.map(|next| next.0), next.map(|next| next.1), next.map(|next| next.2)];
            // Seldom: one by one, since what would be no number stays with its moments as it is.
            if !non_finite::are_numbers(&after) {
                for i in 0..VECTOR {
                    let odd = after.iter().fold(0, |odd, after| odd | non_finite::of_number(after[i]));
                    found |= odd;
                    if odd != 0 {
                        (after[0][i], after[1][i], after[2][i]) = (before[i], m[i], v[i]);
                    }
                }
            }
            let [params, first, second] = after;
            let params = prune::kept(&self.masks, at, params);
            self.params.store(at, params);
            self.first.store(at, first);
            self.second.store(at, second);
            if shadowed {
                operand::store4(&self.shadow, at, params, self.precision);
            }
        }
        found
    }
}

impl Memory<'_> {
    /// The gradient of four elements with what the vaccine adds, where the masks keep it. The snapshot becomes the gradient without.
    #[inline(always)]
    fn vaccinated(&self, at: usize) -> [f32; VECTOR] {
        let gradient = prune::kept(&self.masks, at, self.gradient.load(at));
        if at >= self.snapshot.len() {
            return gradient;
        }
        let snapshot: [f32; VECTOR] = prune::kept(&self.masks, at, self.snapshot.load(at));
        self.snapshot.store(at, gradient);
        core::array::from_fn(|i| gradient[i] + self.multiple * snapshot[i])
    }
}

/// `new` if it is a number, else `old`, with what it was added to `found`.
#[inline(always)]
fn kept(new: f32, old: f32, found: &mut u32) -> f32 {
    let odd = non_finite::of_number(new);
    *found |= odd;
    if odd == 0 { new } else { old }
}

/// One element: (w, m, v) after the update.
#[inline(always)]
pub fn element(w: f32, gradient: f32, m: f32, v: f32, decay: f32, by: &UpdateScalars) -> (f32, f32, f32) {
    const FIRST: f32 = (1.0 - BETAS.0) as f32;
    const SECOND: f32 = (1.0 - BETAS.1) as f32;
    let g = by.gradient_scale * gradient;
    let m = m + FIRST * (g - m);
    let v = v + SECOND * (g * g - v);
    let step = m * by.first_correction / (math::sqrt(v * by.second_correction) + EPSILON);
    (w - by.lr * (step + decay * w), m, v)
}

/// One element of the target: w' + tau (w - w').
#[inline(always)]
pub fn moved_target(target: f32, w: f32, tau: f32) -> f32 {
    target + tau * (w - target)
}
