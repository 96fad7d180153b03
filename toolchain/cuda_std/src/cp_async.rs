//! Copies from global to shared memory that run while the thread goes on (`cp.async`, sm_80 and later).
//!
//! A thread starts copies, closes them into a group with [`commit`], and waits until all but the newest N groups have
//! arrived with [`wait_group`]. It waits for its own copies alone; a barrier then shows them to the block. On the CPU target
//! a copy is done when it is started.

use crate::target::target;

/// Starts a copy of `BYTES` (4, 8 or 16) bytes. Copies of 16 bytes bypass L1 (`.cg`).
///
/// # Safety
/// `to` points into shared memory and `from` into global memory, both aligned to and valid for `BYTES` bytes; `to` is not
/// accessed until the copy was waited for.
#[inline(always)]
pub unsafe fn copy<const BYTES: usize, T>(to: *mut T, from: *const T) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { copy_or_zero::<BYTES, T>(to, from, true) }
}

/// Starts a copy of `BYTES` (4, 8 or 16) bytes, or, if not `take`, writes zeros and does not read.
///
/// # Safety
/// As for [`copy`]; `from` need not be valid if not `take`.
#[inline(always)]
pub unsafe fn copy_or_zero<const BYTES: usize, T>(to: *mut T, from: *const T, take: bool) {
    const { assert!(matches!(BYTES, 4 | 8 | 16), "an asynchronous copy is of 4, 8 or 16 bytes") };
    target!(gpu {
        let bytes = if take { BYTES as u32 } else { 0 };
        macro_rules! start {
            ($cache:literal, $n:literal) => {
                // SAFETY: the caller's promise.
                unsafe {
                    let to = crate::ptr::shared_address(to.cast_const());
                    let from =
                        crate::ptr::convert_generic_to_specific_address_space(from, crate::ptr::AddressSpace::Global);
                    core::arch::asm!(
                        concat!("cp.async.", $cache, ".shared.global [{to}], [{from}], ", $n, ", {bytes};"),
                        to = in(reg32) to,
                        from = in(reg64) from,
                        bytes = in(reg32) bytes,
                        options(nostack, preserves_flags)
                    )
                }
            };
        }
        match BYTES {
            4 => start!("ca", "4"),
            8 => start!("ca", "8"),
            _ => start!("cg", "16"),
        }
    } cpu {
        // SAFETY: the caller's promise.
        unsafe {
            if take {
                core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), BYTES);
            } else {
                to.cast::<u8>().write_bytes(0, BYTES);
            }
        }
    })
}

/// Closes this thread's copies since the last call into a group.
#[inline(always)]
pub fn commit() {
    #[cfg(target_os = "cuda")]
    // SAFETY: orders the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.commit_group;", options(nostack, preserves_flags))
    }
}

/// Waits until at most the newest `N` groups of this thread are under way.
#[inline(always)]
pub fn wait_group<const N: usize>() {
    #[cfg(target_os = "cuda")]
    // SAFETY: waits for the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.wait_group {n};", n = const N, options(nostack, preserves_flags))
    }
}

/// Waits until all of this thread's copies have arrived.
#[inline(always)]
pub fn wait_all() {
    #[cfg(target_os = "cuda")]
    // SAFETY: waits for the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.wait_all;", options(nostack, preserves_flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_moves_its_bytes_or_zeros() {
        let (from, mut to) = ([1u32, 2, 3, 4, 5], [9u32; 5]);
        // SAFETY: both arrays are valid for 16 bytes.
        unsafe { copy::<16, _>(to.as_mut_ptr(), from.as_ptr()) };
        assert_eq!(to, [1, 2, 3, 4, 9]);
        // SAFETY: valid for 8 bytes; nothing is read.
        unsafe { copy_or_zero::<8, _>(to.as_mut_ptr(), core::ptr::null(), false) };
        assert_eq!(to, [0, 0, 3, 4, 9]);
    }
}
