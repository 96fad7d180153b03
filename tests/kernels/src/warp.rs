//! Warp operations, each over whatever mask, width and arguments the test chooses.
//!
//! One block of 32 threads unless said otherwise; lane l of the mask works on element l and the others return at once.

use cuda_std::prelude::*;
use cuda_std::warp::{self, WarpReduceValue, WarpReductionOp, WarpShuffleValue};

use crate::put_rows;

/// The lane, if it takes part.
#[inline(always)]
fn lane_of(mask: u32) -> Option<usize> {
    let lane = warp::lane_id();
    (mask >> lane & 1 == 1).then_some(lane as usize)
}

macro_rules! shuffles {
    ($($name:ident: $type:ty;)*) => {$(
        /// Shuffles `values[lane]` by `b` within `width`, in all four modes: rows idx, up, down, xor of 32 values, and of 32
        /// flags (1: the source was in range).
        #[kernel(cooperative)]
        pub fn $name(
            values: GlobalSlice<$type>,
            out: GlobalSliceMut<$type>,
            in_range: GlobalSliceMut<u32>,
            mask: u32,
            b: u32,
            width: u32,
        ) {
            if let Some(lane) = lane_of(mask) {
                // SAFETY: exactly the lanes of the mask come here, all with the same arguments.
                let results = unsafe { all_modes(mask, values.get(lane), b, width) };
                put_rows(&out, lane, 32, results.map(|(value, _)| value));
                put_rows(&in_range, lane, 32, results.map(|(_, flag)| flag as u32));
            }
        }
    )*};
}

/// Shuffles in the order idx, up, down, xor.
///
/// # Safety
/// As for the shuffles.
#[inline(always)]
unsafe fn all_modes<T: WarpShuffleValue + Copy>(mask: u32, value: T, b: u32, width: u32) -> [(T, bool); 4] {
    // SAFETY: passed on.
    unsafe {
        [
            warp::warp_shuffle_idx(mask, value, b, width),
            warp::warp_shuffle_up(mask, value, b, width),
            warp::warp_shuffle_down(mask, value, b, width),
            warp::warp_shuffle_xor(mask, value, b, width),
        ]
    }
}

shuffles! {
    shuffle_u8: u8;
    shuffle_i16: i16;
    shuffle_f16: f16;
    shuffle_bf16: bf16;
    shuffle_u32: u32;
    shuffle_f32: f32;
    shuffle_i64: i64;
    shuffle_f64: f64;
    shuffle_u128: u128;
}

/// Votes and matches over the mask: rows all, any, ballot, match any, match all (the mask, or 0), elect, of 32 values.
#[kernel(cooperative)]
pub fn votes(predicates: GlobalSlice<u32>, out: GlobalSliceMut<u32>, mask: u32) {
    if let Some(lane) = lane_of(mask) {
        let value = predicates.get(lane);
        // SAFETY: exactly the lanes of the mask come here.
        let results = unsafe {
            [
                warp::warp_vote_all(mask, value != 0) as u32,
                warp::warp_vote_any(mask, value != 0) as u32,
                warp::warp_vote_ballot(mask, value != 0),
                warp::warp_match_any(mask, value),
                warp::warp_match_all(mask, value).unwrap_or(0),
                warp::elect(mask) as u32,
            ]
        };
        put_rows(&out, lane, 32, results);
    }
}

/// Matches 64-bit values: rows match any, match all of 32 values.
#[kernel(cooperative)]
pub fn match_f64(values: GlobalSlice<f64>, out: GlobalSliceMut<u32>, mask: u32) {
    if let Some(lane) = lane_of(mask) {
        let value = values.get(lane);
        // SAFETY: exactly the lanes of the mask come here.
        let (any, all) = unsafe { (warp::warp_match_any(mask, value), warp::warp_match_all(mask, value)) };
        out.set(lane, any);
        out.set(32 + lane, all.unwrap_or(0));
    }
}

macro_rules! reductions {
    ($($name:ident: $type:ty;)*) => {$(
        /// Reduces over the mask: rows add, min, max, and, or, xor of 32 values.
        #[kernel(cooperative)]
        pub fn $name(values: GlobalSlice<$type>, out: GlobalSliceMut<$type>, mask: u32) {
            if let Some(lane) = lane_of(mask) {
                // SAFETY: exactly the lanes of the mask come here.
                let results = unsafe { all_reductions(mask, values.get(lane)) };
                put_rows(&out, lane, 32, results);
            }
        }
    )*};
}

/// Reductions in the order of the operations' declaration.
///
/// # Safety
/// As for [`warp::warp_reduce`].
#[inline(always)]
unsafe fn all_reductions<T: WarpReduceValue + Copy>(mask: u32, value: T) -> [T; 6] {
    use WarpReductionOp::{Add, And, Max, Min, Or, Xor};
    // SAFETY: passed on.
    unsafe {
        [
            warp::warp_reduce(mask, value, Add),
            warp::warp_reduce(mask, value, Min),
            warp::warp_reduce(mask, value, Max),
            warp::warp_reduce(mask, value, And),
            warp::warp_reduce(mask, value, Or),
            warp::warp_reduce(mask, value, Xor),
        ]
    }
}

reductions! {
    reduce_u32: u32;
    reduce_i32: i32;
    reduce_i64: i64;
    reduce_u128: u128;
    reduce_f32: f32;
    reduce_f64: f64;
}

/// A whole warp's sum by `redux`, its own kernel so that the PTX can be read: one `redux.sync.add`.
#[kernel(cooperative)]
pub fn sum_of_a_warp(values: GlobalSlice<u32>, out: GlobalSliceMut<u32>) {
    let index = thread::index_1d() as usize;
    // SAFETY: every lane comes here.
    let sum = unsafe { warp::warp_reduce(warp::FULL_MASK, values.get(index), WarpReductionOp::Add) };
    out.set(index, sum);
}

/// Both arms of a divergent branch end at one shuffle: the PTX must hold one, not one an arm.
#[kernel(cooperative)]
pub fn shuffle_after_a_branch(values: GlobalSlice<u32>, out: GlobalSliceMut<u32>) {
    let index = thread::index_1d() as usize;
    let value = values.get(index);
    let value = if value.is_multiple_of(2) { value / 2 } else { value * 3 + 1 };
    // SAFETY: every lane comes here.
    let (next, _) = unsafe { warp::warp_shuffle_down(warp::FULL_MASK, value, 1, 32) };
    out.set(index, next);
}
