//! Match: which lanes hold the same value.

use crate::target::target;

/// A value whose bits lanes can compare.
pub trait WarpMatchValue: Sized {
    /// As [`warp_match_any`].
    ///
    /// # Safety
    /// As for [`warp_match_any`].
    unsafe fn match_any(mask: u32, value: Self) -> u32;

    /// As [`warp_match_all`].
    ///
    /// # Safety
    /// As for [`warp_match_any`].
    unsafe fn match_all(mask: u32, value: Self) -> Option<u32>;
}

/// The lanes of `mask` that hold the same bits as this lane. Floats compare by their bits: 0.0 and -0.0 differ, equal NaNs
/// match. One `match.any`.
///
/// # Safety
/// The calling lane is in `mask`, and every lane of `mask` that has not returned makes the same call.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_match_any<T: WarpMatchValue>(mask: u32, value: T) -> u32 {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { T::match_any(mask, value) }
}

/// `Some(mask)` if all lanes of `mask` hold the same bits, else `None`. One `match.all`.
///
/// # Safety
/// As for [`warp_match_any`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_match_all<T: WarpMatchValue>(mask: u32, value: T) -> Option<u32> {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { T::match_all(mask, value) }
}

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.match.any.sync.i32"]
        pub fn any_u32(mask: u32, value: u32) -> u32;
        #[link_name = "llvm.nvvm.match.any.sync.i64"]
        pub fn any_u64(mask: u32, value: u64) -> u32;
    }
}

macro_rules! match_all {
    ($name:ident, $bits:ident, $reg:ident, $instruction:literal) => {
        #[cfg(target_os = "cuda")]
        #[inline(always)]
        unsafe fn $name(mask: u32, value: $bits) -> bool {
            let equal: u32;
            // SAFETY: the caller of the public function promises all that the instruction demands.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .pred %equal;",
                    concat!($instruction, " _|%equal, {value}, {mask};"),
                    "selp.b32 {equal}, 1, 0, %equal; }}",
                    value = in($reg) value,
                    mask = in(reg32) mask,
                    equal = out(reg32) equal,
                    options(nostack, preserves_flags)
                );
            }
            equal != 0
        }
    };
}

match_all!(all_u32, u32, reg32, "match.all.sync.b32");
match_all!(all_u64, u64, reg64, "match.all.sync.b64");

macro_rules! impl_match {
    ($($type:ty as $bits:ident via $to_bits:expr, $any:ident, $all:ident;)*) => {$(
        impl WarpMatchValue for $type {
            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            unsafe fn match_any(mask: u32, value: Self) -> u32 {
                let bits: $bits = $to_bits(value);
                target!(gpu {
                    // SAFETY: the caller's promise is the instruction's only demand.
                    unsafe { llvm::$any(mask, bits) }
                } cpu { crate::cpu::warp_collective("match.any", mask, bits, any) })
            }

            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            unsafe fn match_all(mask: u32, value: Self) -> Option<u32> {
                let bits: $bits = $to_bits(value);
                let equal = target!(gpu {
                    // SAFETY: the caller's promise is the instruction's only demand.
                    unsafe { $all(mask, bits) }
                } cpu { crate::cpu::warp_collective("match.all", mask, bits, all) });
                equal.then_some(mask)
            }
        }
    )*};
}

impl_match! {
    u32 as u32 via core::convert::identity, any_u32, all_u32;
    i32 as u32 via i32::cast_unsigned, any_u32, all_u32;
    f32 as u32 via f32::to_bits, any_u32, all_u32;
    u64 as u64 via core::convert::identity, any_u64, all_u64;
    i64 as u64 via i64::cast_unsigned, any_u64, all_u64;
    f64 as u64 via f64::to_bits, any_u64, all_u64;
}

#[cfg(not(target_os = "cuda"))]
fn any<T: Copy + PartialEq>(lanes: &[Option<T>; 32]) -> [u32; 32] {
    super::each_lane(|lane| {
        let own = lanes[lane];
        (0..32).filter(|&other| own.is_some() && lanes[other] == own).fold(0, |bits, other| bits | 1 << other)
    })
}

#[cfg(not(target_os = "cuda"))]
fn all<T: Copy + PartialEq>(lanes: &[Option<T>; 32]) -> [bool; 32] {
    let mut present = lanes.iter().flatten();
    let first = present.next();
    [present.all(|value| Some(value) == first); 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_outside_the_mask_never_match() {
        let mut lanes = [None; 32];
        (lanes[1], lanes[2], lanes[9]) = (Some(7u32), Some(8), Some(7));
        assert_eq!(any(&lanes)[1], 1 << 9 | 1 << 1);
        assert_eq!(any(&lanes)[2], 1 << 2);
        assert_eq!(any(&lanes)[0], 0);
        assert!(!all(&lanes)[1]);
        lanes[2] = Some(7);
        assert!(all(&lanes)[1]);
    }
}
