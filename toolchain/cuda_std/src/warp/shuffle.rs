//! Shuffles: lanes read each other's values.
//!
//! `width` (1, 2, 4, 8, 16 or 32) cuts the warp into segments that shuffle each for itself. The source lane of lane l, in
//! a segment that starts at s:
//!
//! | mode | source | in range |
//! |---|---|---|
//! | idx | s + b mod width | always |
//! | up | l - b | source >= s |
//! | down | l + b | source < s + width |
//! | xor | l ^ b | source < s + width |
//!
//! Out of range, a lane keeps its own value, and the returned flag is false. `b` counts modulo 32.
//! (Source: PTX ISA, `shfl.sync`.)

use half::{bf16, f16};

use crate::target::target;

/// How the source lane is found.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpShuffleMode {
    /// From a lower lane.
    Up,
    /// From a higher lane.
    Down,
    /// From a lane by its index in the segment.
    Idx,
    /// From the lane whose index differs in the given bits.
    Xor,
}

/// A value that lanes can exchange: integers and floats of 8 to 128 bits. Each 32 bits of it are one `shfl`; 8 and 16 bits
/// cost as much as 32.
pub trait WarpShuffleValue: Sized {
    /// Shuffles; `mode` should be a constant.
    ///
    /// # Safety
    /// As for [`warp_shuffle_idx`].
    unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, value: Self, b: u32, width: u32) -> (Self, bool);
}

macro_rules! shuffle_function {
    ($(#[$doc:meta])* $name:ident, $mode:ident, $b:ident) => {
        $(#[$doc])*
        ///
        /// Returns the source lane's value, and whether the source was in range.
        ///
        /// # Panics
        /// If `width` is not a power of two of at most 32.
        ///
        /// # Safety
        /// The calling lane is in `mask`, and every lane of `mask` that has not returned makes the same call. If the source
        /// lane is not in `mask` the value is unspecified.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub unsafe fn $name<T: WarpShuffleValue>(mask: u32, value: T, $b: u32, width: u32) -> (T, bool) {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { T::shuffle(WarpShuffleMode::$mode, mask, value, $b, width) }
        }
    };
}

shuffle_function!(
    /// The value of the lane `delta` above, within segments of `width` lanes.
    warp_shuffle_down, Down, delta
);
shuffle_function!(
    /// The value of the lane `delta` below, within segments of `width` lanes.
    warp_shuffle_up, Up, delta
);
shuffle_function!(
    /// The value of the lane `idx` of this lane's segment of `width` lanes.
    warp_shuffle_idx, Idx, idx
);
shuffle_function!(
    /// The value of the lane whose index is this one's xor `lane_mask`. With a `width` below 32 a lane reads its own
    /// segment and lower ones, not higher ones.
    warp_shuffle_xor, Xor, lane_mask
);

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
        pub fn up(mask: u32, value: u32, b: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
        pub fn down(mask: u32, value: u32, b: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
        pub fn idx(mask: u32, value: u32, b: u32, clamp: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
        pub fn xor(mask: u32, value: u32, b: u32, clamp: u32) -> u32;
    }
}

/// The source lane, or `None` if it is out of range.
#[inline(always)]
fn source(mode: WarpShuffleMode, lane: u32, b: u32, width: u32) -> Option<u32> {
    let (start, b) = (lane & !(width - 1), b & 31);
    let end = start + width;
    match mode {
        WarpShuffleMode::Idx => Some(start + (b & (width - 1))),
        WarpShuffleMode::Up => (lane >= start + b).then(|| lane - b),
        WarpShuffleMode::Down => (lane + b < end).then_some(lane + b),
        WarpShuffleMode::Xor => (lane ^ b < end).then_some(lane ^ b),
    }
}

#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
fn check_width(width: u32) {
    assert!(width.is_power_of_two() && width <= 32, "a shuffle's width is a power of two of at most 32");
}

#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
unsafe fn shuffle_words<const N: usize>(
    mode: WarpShuffleMode,
    mask: u32,
    words: [u32; N],
    b: u32,
    width: u32,
) -> ([u32; N], bool) {
    check_width(width);
    target!(gpu {
        // The low five bits hold the segment's last lane for all modes but `up`, which counts downwards to its first.
        let clamp = (32 - width) << 8 | if matches!(mode, WarpShuffleMode::Up) { 0 } else { 31 };
        let shuffled = words.map(|word| {
            // SAFETY: the caller's promise is the instruction's only demand.
            unsafe {
                match mode {
                    WarpShuffleMode::Up => llvm::up(mask, word, b, clamp),
                    WarpShuffleMode::Down => llvm::down(mask, word, b, clamp),
                    WarpShuffleMode::Idx => llvm::idx(mask, word, b, clamp),
                    WarpShuffleMode::Xor => llvm::xor(mask, word, b, clamp),
                }
            }
        });
        (shuffled, source(mode, super::lane_id(), b, width).is_some())
    } cpu { crate::cpu::warp_collective("shuffle", mask, Request { mode, words, b, width }, answer) })
}

/// What one lane brings to a shuffle on the CPU target.
#[cfg(not(target_os = "cuda"))]
#[derive(Clone, Copy)]
struct Request<const N: usize> {
    mode: WarpShuffleMode,
    words: [u32; N],
    b: u32,
    width: u32,
}

/// A lane whose source does not take part keeps its own value, which is as good as any.
#[cfg(not(target_os = "cuda"))]
fn answer<const N: usize>(lanes: &[Option<Request<N>>; 32]) -> [([u32; N], bool); 32] {
    super::each_lane(|lane| {
        let Some(request) = lanes[lane] else { return ([0; N], false) };
        let source = source(request.mode, lane as u32, request.b, request.width);
        let value = source.and_then(|source| lanes[source as usize]).unwrap_or(request);
        (value.words, source.is_some())
    })
}

macro_rules! impl_shuffle {
    ($($type:ty: $words:literal, |$value:ident| $split:expr, |$parts:ident| $join:expr;)*) => {$(
        impl WarpShuffleValue for $type {
            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, $value: Self, b: u32, width: u32) -> (Self, bool) {
                let words: [u32; $words] = $split;
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                let ($parts, in_range) = unsafe { shuffle_words(mode, mask, words, b, width) };
                ($join, in_range)
            }
        }
    )*};
}

#[inline(always)]
fn split_64(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[inline(always)]
fn join_64(words: [u32; 2]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}

#[inline(always)]
fn split_128(value: u128) -> [u32; 4] {
    [value as u32, (value >> 32) as u32, (value >> 64) as u32, (value >> 96) as u32]
}

#[inline(always)]
fn join_128(words: [u32; 4]) -> u128 {
    u128::from(join_64([words[0], words[1]])) | u128::from(join_64([words[2], words[3]])) << 64
}

impl_shuffle! {
    u8: 1, |value| [value.into()], |words| words[0] as u8;
    i8: 1, |value| [value as u32], |words| words[0] as i8;
    u16: 1, |value| [value.into()], |words| words[0] as u16;
    i16: 1, |value| [value as u32], |words| words[0] as i16;
    f16: 1, |value| [value.to_bits().into()], |words| f16::from_bits(words[0] as u16);
    bf16: 1, |value| [value.to_bits().into()], |words| bf16::from_bits(words[0] as u16);
    u32: 1, |value| [value], |words| words[0];
    i32: 1, |value| [value as u32], |words| words[0] as i32;
    f32: 1, |value| [value.to_bits()], |words| f32::from_bits(words[0]);
    u64: 2, |value| split_64(value), |words| join_64(words);
    i64: 2, |value| split_64(value as u64), |words| join_64(words) as i64;
    f64: 2, |value| split_64(value.to_bits()), |words| f64::from_bits(join_64(words));
    u128: 4, |value| split_128(value), |words| join_128(words);
    i128: 4, |value| split_128(value as u128), |words| join_128(words) as i128;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_follow_the_table_of_the_ptx_isa() {
        use WarpShuffleMode::{Down, Idx, Up, Xor};
        for (why, mode, lane, b, width, want) in [
            ("idx counts within the segment", Idx, 13, 2, 8, Some(10)),
            ("idx wraps at the width", Idx, 13, 9, 8, Some(9)),
            ("up stops at the segment's start", Up, 9, 2, 8, None),
            ("up inside the segment", Up, 10, 2, 8, Some(8)),
            ("down stops at the segment's end", Down, 14, 2, 8, None),
            ("down inside the segment", Down, 13, 2, 8, Some(15)),
            ("down across the whole warp", Down, 0, 31, 32, Some(31)),
            ("xor inside the segment", Xor, 13, 3, 8, Some(14)),
            ("xor never reads a higher segment", Xor, 5, 8, 8, None),
            ("xor may read a lower segment", Xor, 13, 8, 8, Some(5)),
        ] {
            assert_eq!(source(mode, lane, b, width), want, "{why}");
        }
    }

    #[test]
    fn wide_values_survive_the_cut_into_words() {
        let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210u128;
        assert_eq!(join_128(split_128(value)), value);
        assert_eq!(join_64(split_64(value as u64)), value as u64);
    }

    #[test]
    fn a_lane_out_of_range_keeps_its_value() {
        let mut lanes = [None; 32];
        for (lane, slot) in lanes.iter_mut().enumerate() {
            *slot = Some(Request { mode: WarpShuffleMode::Down, words: [lane as u32], b: 1, width: 16 });
        }
        let answers = answer(&lanes);
        assert_eq!(answers[14], ([15], true));
        assert_eq!(answers[15], ([15], false));
        assert_eq!(answers[31], ([31], false));
    }
}
