//! Operations of a warp: 32 threads that run together.
//!
//! Each takes a `mask` of the lanes that take part (bit i is lane i, [`FULL_MASK`] is all). Every lane of the mask must
//! execute the same operation with the same mask; it waits for them, and orders memory among them. On the CPU target a
//! lane that has returned no longer counts.

mod matching;
mod reduce;
mod shuffle;
mod vote;

pub use matching::{WarpMatchValue, warp_match_all, warp_match_any};
pub use reduce::{WarpReduceValue, WarpReductionOp, warp_reduce};
pub use shuffle::{
    WarpShuffleMode, WarpShuffleValue, warp_shuffle_down, warp_shuffle_idx, warp_shuffle_up, warp_shuffle_xor,
};
pub use vote::{warp_vote_all, warp_vote_any, warp_vote_ballot};

use crate::target::target;

/// Threads in a warp.
pub const WARP_SIZE: u32 = 32;

/// Every lane of the warp.
pub const FULL_MASK: u32 = u32::MAX;

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
        pub safe fn lane_id() -> u32;
        #[link_name = "llvm.nvvm.activemask"]
        pub safe fn active_mask() -> u32;
        #[link_name = "llvm.nvvm.bar.warp.sync"]
        pub fn sync_warp(mask: u32);
    }
}

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    target!(gpu { llvm::lane_id() } cpu { crate::cpu::lane_id() })
}

/// The warp's number in its block: the thread's number in the block over 32. It comes from the thread's index, since the
/// special register `%warpid` may change while a thread runs.
#[inline(always)]
pub fn warp_id() -> u32 {
    target!(gpu { crate::thread::index_in_block() / WARP_SIZE } cpu { crate::cpu::warp_id() })
}

/// The lanes that happen to run together now. On a GPU lanes of one branch may be split for no visible reason, so a mask
/// for the operations below comes from the program's logic, not from here. On the CPU target: the lanes that exist and
/// have not returned.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn activemask() -> u32 {
    target!(gpu { llvm::active_mask() } cpu { crate::cpu::active_mask() })
}

/// The lanes below this one.
#[inline(always)]
pub fn lanes_below() -> u32 {
    (1 << lane_id()) - 1
}

/// Waits for the lanes of `mask`, and orders memory among them.
///
/// # Safety
/// The calling lane is in `mask`, and every lane of `mask` that has not returned makes the same call.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn sync_warp(mask: u32) {
    target!(gpu {
        // SAFETY: the caller's promise is the instruction's only demand.
        unsafe { llvm::sync_warp(mask) }
    } cpu { crate::cpu::warp_barrier(mask) })
}

/// Elects one lane of `mask`, the same for all of them: true in that lane alone. It is the lowest lane of the mask.
///
/// On a GPU, `elect.sync` may be told from a comparison by `ptxas`, which then keeps uniform what the lane does; it exists
/// from sm_90 on.
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn elect(mask: u32) -> bool {
    target!(gpu {
        #[cfg(target_feature = "sm_90")]
        {
            let elected: u32;
            // SAFETY: the caller's promise is the instruction's only demand.
            unsafe {
                core::arch::asm!(
                    "{{ .reg .pred %elected; elect.sync _|%elected, {mask}; selp.b32 {out}, 1, 0, %elected; }}",
                    mask = in(reg32) mask,
                    out = out(reg32) elected,
                    options(nostack, preserves_flags)
                );
            }
            elected != 0
        }
        #[cfg(not(target_feature = "sm_90"))]
        {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { sync_warp(mask) };
            lane_id() == mask.trailing_zeros()
        }
    } cpu {
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        unsafe { sync_warp(mask) };
        lane_id() == mask.trailing_zeros()
    })
}

/// Applies `lane` to each of the 32 lanes, for the CPU target's collectives.
#[cfg(not(target_os = "cuda"))]
pub(crate) fn each_lane<R: Copy>(lane: impl FnMut(usize) -> R) -> [R; 32] {
    core::array::from_fn(lane)
}
