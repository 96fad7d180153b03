//! Votes: what the lanes of a warp say about a predicate.

use crate::target::target;

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.vote.all.sync"]
        pub fn all(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.any.sync"]
        pub fn any(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.ballot.sync"]
        pub fn ballot(mask: u32, predicate: bool) -> u32;
    }
}

/// Whether `predicate` holds in every lane of `mask`.
///
/// # Safety
/// The calling lane is in `mask`, and every lane of `mask` that has not returned makes the same call.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    target!(gpu {
        // SAFETY: the caller's promise is the instruction's only demand.
        unsafe { llvm::all(mask, predicate) }
    } cpu { crate::cpu::warp_collective("vote.all", mask, predicate, all) })
}

/// Whether `predicate` holds in any lane of `mask`.
///
/// # Safety
/// As for [`warp_vote_all`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    target!(gpu {
        // SAFETY: the caller's promise is the instruction's only demand.
        unsafe { llvm::any(mask, predicate) }
    } cpu { crate::cpu::warp_collective("vote.any", mask, predicate, any) })
}

/// The lanes of `mask` in which `predicate` holds; the bits of other lanes are 0.
///
/// # Safety
/// As for [`warp_vote_all`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    target!(gpu {
        // SAFETY: the caller's promise is the instruction's only demand.
        unsafe { llvm::ballot(mask, predicate) }
    } cpu { crate::cpu::warp_collective("vote.ballot", mask, predicate, ballot) })
}

#[cfg(not(target_os = "cuda"))]
fn all(lanes: &[Option<bool>; 32]) -> [bool; 32] {
    [lanes.iter().flatten().all(|&predicate| predicate); 32]
}

#[cfg(not(target_os = "cuda"))]
fn any(lanes: &[Option<bool>; 32]) -> [bool; 32] {
    [lanes.iter().flatten().any(|&predicate| predicate); 32]
}

#[cfg(not(target_os = "cuda"))]
fn ballot(lanes: &[Option<bool>; 32]) -> [u32; 32] {
    let votes = lanes.iter().enumerate().filter(|(_, vote)| **vote == Some(true));
    [votes.fold(0, |bits, (lane, _)| bits | 1 << lane); 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes 0, 3 and 31 take part; 3 alone says no.
    #[test]
    fn a_vote_counts_the_lanes_of_the_mask_alone() {
        let mut lanes = [None; 32];
        (lanes[0], lanes[3], lanes[31]) = (Some(true), Some(false), Some(true));
        assert!(!all(&lanes)[0]);
        assert!(any(&lanes)[0]);
        assert_eq!(ballot(&lanes)[0], 1 << 31 | 1);
        lanes[3] = Some(true);
        assert!(all(&lanes)[31]);
        (lanes[0], lanes[3], lanes[31]) = (Some(false), Some(false), Some(false));
        assert!(!any(&lanes)[0]);
        assert_eq!(ballot(&lanes)[0], 0);
    }
}
