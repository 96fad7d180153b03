//! Reductions over the lanes of a warp, the result in every lane.
//!
//! 32-bit integers are one `redux` (sm_80 and later). Other types combine in a tree over the mask's lanes in their order:
//! at distance 1, then 2, 4, 8 and 16 places in the mask. The order depends on the mask alone, so floats give the same bits
//! on every run and on both targets.

use crate::target::target;

/// What a reduction does with two values.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpReductionOp {
    /// The sum; integers wrap.
    Add,
    /// The smaller; a NaN gives way to a number.
    Min,
    /// The larger; a NaN gives way to a number.
    Max,
    /// Bitwise and; of floats, of their bits.
    And,
    /// Bitwise or; of floats, of their bits.
    Or,
    /// Bitwise exclusive or; of floats, of their bits.
    Xor,
}

/// A value that a warp can reduce.
pub trait WarpReduceValue: Sized {
    /// As [`warp_reduce`]; `op` should be a constant.
    ///
    /// # Safety
    /// As for [`warp_reduce`].
    unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self;
}

/// Reduces `value` over the lanes of `mask` and gives the result to each of them.
///
/// # Safety
/// The calling lane is in `mask`, and every lane of `mask` makes the same call with the same `op`; none of them has
/// returned.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_reduce<T: WarpReduceValue>(mask: u32, value: T, op: WarpReductionOp) -> T {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { T::reduce(mask, value, op) }
}

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.redux.sync.add"]
        pub fn add(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.umin"]
        pub fn min_u32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.umax"]
        pub fn max_u32(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.min"]
        pub fn min_i32(value: i32, mask: u32) -> i32;
        #[link_name = "llvm.nvvm.redux.sync.max"]
        pub fn max_i32(value: i32, mask: u32) -> i32;
        #[link_name = "llvm.nvvm.redux.sync.and"]
        pub fn and(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.or"]
        pub fn or(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.redux.sync.xor"]
        pub fn xor(value: u32, mask: u32) -> u32;
        #[link_name = "llvm.nvvm.fns"]
        pub safe fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32;
    }
}

macro_rules! combine {
    (int $name:ident, $type:ident) => {
        #[inline(always)]
        fn $name(op: WarpReductionOp, a: $type, b: $type) -> $type {
            match op {
                WarpReductionOp::Add => a.wrapping_add(b),
                WarpReductionOp::Min => a.min(b),
                WarpReductionOp::Max => a.max(b),
                WarpReductionOp::And => a & b,
                WarpReductionOp::Or => a | b,
                WarpReductionOp::Xor => a ^ b,
            }
        }
    };
    (float $name:ident, $type:ident) => {
        #[inline(always)]
        fn $name(op: WarpReductionOp, a: $type, b: $type) -> $type {
            match op {
                WarpReductionOp::Add => a + b,
                WarpReductionOp::Min => a.min(b),
                WarpReductionOp::Max => a.max(b),
                WarpReductionOp::And => $type::from_bits(a.to_bits() & b.to_bits()),
                WarpReductionOp::Or => $type::from_bits(a.to_bits() | b.to_bits()),
                WarpReductionOp::Xor => $type::from_bits(a.to_bits() ^ b.to_bits()),
            }
        }
    };
}

/// The tree as the GPU walks it: rank r of the mask takes in rank r + distance, if there is one; rank 0 ends with the whole
/// and hands it out.
#[cfg(target_os = "cuda")]
#[inline(always)]
unsafe fn tree<T: super::WarpShuffleValue + Copy>(mask: u32, mut value: T, combine: impl Fn(T, T) -> T) -> T {
    if mask == super::FULL_MASK {
        // Every lane walks the tree from its own end; a butterfly's steps commute, so all end with lane 0's bits.
        let mut distance = 1;
        while distance < 32 {
            // SAFETY: the caller promises that every lane of the mask is here.
            value = combine(value, unsafe { super::warp_shuffle_xor(mask, value, distance, 32) }.0);
            distance *= 2;
        }
        return value;
    }
    let rank = (mask & super::lanes_below()).count_ones();
    let n_lanes = mask.count_ones();
    let mut distance = 1;
    while distance < n_lanes {
        let partner = rank + distance;
        let source = if partner < n_lanes { llvm::find_nth_set(mask, 0, partner as i32 + 1) } else { super::lane_id() };
        // SAFETY: the caller promises that every lane of the mask is here; the source is one of them.
        let (other, _) = unsafe { super::warp_shuffle_idx(mask, value, source, 32) };
        if partner < n_lanes {
            value = combine(value, other);
        }
        distance *= 2;
    }
    // SAFETY: the caller promises that every lane of the mask is here; its lowest lane is one of them.
    unsafe { super::warp_shuffle_idx(mask, value, mask.trailing_zeros(), 32) }.0
}

/// The same tree over the values of the lanes that take part.
#[cfg(not(target_os = "cuda"))]
fn tree<T: Copy>(lanes: &[Option<(WarpReductionOp, T)>; 32], combine: fn(WarpReductionOp, T, T) -> T) -> [T; 32] {
    let mut ranks: Vec<_> = lanes.iter().flatten().copied().collect();
    let mut distance = 1;
    while distance < ranks.len() {
        for rank in (0..ranks.len() - distance).step_by(2 * distance) {
            let (op, value) = ranks[rank];
            ranks[rank].1 = combine(op, value, ranks[rank + distance].1);
        }
        distance *= 2;
    }
    [ranks[0].1; 32]
}

macro_rules! impl_redux {
    ($type:ident, $combine:ident, $min:ident, $max:ident) => {
        #[cfg(not(target_os = "cuda"))]
        combine!(int $combine, $type);
        impl WarpReduceValue for $type {
            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self {
                target!(gpu {
                    // SAFETY: the caller's promise is the instruction's only demand.
                    unsafe {
                        match op {
                            WarpReductionOp::Add => llvm::add(value as u32, mask) as $type,
                            WarpReductionOp::Min => llvm::$min(value, mask),
                            WarpReductionOp::Max => llvm::$max(value, mask),
                            WarpReductionOp::And => llvm::and(value as u32, mask) as $type,
                            WarpReductionOp::Or => llvm::or(value as u32, mask) as $type,
                            WarpReductionOp::Xor => llvm::xor(value as u32, mask) as $type,
                        }
                    }
                } cpu { crate::cpu::warp_collective("reduce", mask, (op, value), |lanes| tree(lanes, $combine)) })
            }
        }
    };
}

macro_rules! impl_tree {
    ($kind:ident $type:ident, $combine:ident) => {
        combine!($kind $combine, $type);
        impl WarpReduceValue for $type {
            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self {
                target!(gpu {
                    // SAFETY: the caller's promise, which is this function's own `# Safety`.
                    unsafe { tree(mask, value, |a, b| $combine(op, a, b)) }
                } cpu { crate::cpu::warp_collective("reduce", mask, (op, value), |lanes| tree(lanes, $combine)) })
            }
        }
    };
}

impl_redux!(u32, combine_u32, min_u32, max_u32);
impl_redux!(i32, combine_i32, min_i32, max_i32);
impl_tree!(int u64, combine_u64);
impl_tree!(int i64, combine_i64);
impl_tree!(int u128, combine_u128);
impl_tree!(int i128, combine_i128);
impl_tree!(float f32, combine_f32);
impl_tree!(float f64, combine_f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes<T: Copy>(op: WarpReductionOp, values: &[(usize, T)]) -> [Option<(WarpReductionOp, T)>; 32] {
        let mut lanes = [None; 32];
        for &(lane, value) in values {
            lanes[lane] = Some((op, value));
        }
        lanes
    }

    #[test]
    fn the_tree_takes_every_lane_of_the_mask_once() {
        for n in 1..=32 {
            let values: Vec<_> = (0..n).map(|lane| (lane, 1u64 << lane)).collect();
            assert_eq!(tree(&lanes(WarpReductionOp::Add, &values), combine_u64)[0], (1u64 << n) - 1, "{n} lanes");
        }
    }

    /// With three lanes of 2^24, 1, 1 the sum depends on the order: (2^24 + 1) + 1 stays at 2^24 in f32.
    #[test]
    fn floats_combine_in_the_documented_order() {
        let values = [(4, 16_777_216f32), (9, 1.0), (30, 1.0)];
        assert_eq!(tree(&lanes(WarpReductionOp::Add, &values), combine_f32)[4], 16_777_216.0);
        let values = [(4, 1.0f32), (9, 1.0), (30, 16_777_216.0)];
        assert_eq!(tree(&lanes(WarpReductionOp::Add, &values), combine_f32)[4], 16_777_218.0);
    }

    #[test]
    fn a_nan_gives_way_to_a_number() {
        let values = [(0, f32::NAN), (1, 2.0), (2, -1.0)];
        assert_eq!(tree(&lanes(WarpReductionOp::Max, &values), combine_f32)[0], 2.0);
        assert_eq!(tree(&lanes(WarpReductionOp::Min, &values), combine_f32)[0], -1.0);
    }
}
