//! Whole-warp exchanges. All 32 lanes of the warp call each of these together.

use cuda_std::warp::{self, WarpReductionOp};

/// Lanes of a warp.
pub(crate) const N_LANES: usize = 32;
const WHOLE_WARP: u32 = u32::MAX;

/// The value of the lane whose number differs by the bits of `lane_mask`.
#[inline(always)]
pub(crate) fn across(value: f32, lane_mask: u32) -> f32 {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_xor(WHOLE_WARP, value, lane_mask, N_LANES as u32) }.0
}

/// Combines the values of all lanes; every lane gets the result. `combine` must not depend on the order of its two values,
/// which differs from lane to lane.
#[inline(always)]
pub(crate) fn all(mut value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut distance = N_LANES as u32 / 2;
    while distance > 0 {
        value = combine(value, across(value, distance));
        distance /= 2;
    }
    value
}

/// The largest of the lanes' values.
#[inline(always)]
pub(crate) fn largest(value: u32) -> u32 {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_reduce(WHOLE_WARP, value, WarpReductionOp::Max) }
}

/// Sum of the values of this lane and all lanes before it, modulo 2^64.
#[inline(always)]
pub(crate) fn running_sum(mut value: u64, lane: usize) -> u64 {
    let mut distance = 1;
    while distance < N_LANES {
        // SAFETY: all lanes of the warp take part, as this module demands of its callers.
        let (before, _) = unsafe { warp::warp_shuffle_up(WHOLE_WARP, value, distance as u32, N_LANES as u32) };
        if lane >= distance {
            value = value.wrapping_add(before);
        }
        distance *= 2;
    }
    value
}

/// The value of lane `lane`, which is the same for all lanes.
#[inline(always)]
pub(crate) fn from(value: u64, lane: usize) -> u64 {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_idx(WHOLE_WARP, value, lane as u32, N_LANES as u32) }.0
}
