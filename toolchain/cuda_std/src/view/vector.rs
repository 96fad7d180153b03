//! Loads and stores of 8 or 16 bytes in one instruction: of one word in PTX; on the CPU the array's own copy is one.

#[cfg(target_os = "cuda")]
use core::mem::{MaybeUninit, transmute_copy};

use crate::target::target;

/// Compile-time check of a vector's size.
const fn assert_size<T, const N: usize>() {
    assert!(
        N * size_of::<T>() == 8 || N * size_of::<T>() == 16,
        "a vector access takes 8 or 16 bytes: choose N so that N elements make one of them"
    );
}

/// Loads `N` elements at once.
///
/// # Safety
/// `ptr` is valid for reads of them and a multiple of their size in bytes.
#[inline(always)]
pub(super) unsafe fn load<T: Copy, const N: usize>(ptr: *const T) -> [T; N] {
    const { assert_size::<T, N>() };
    target!(gpu {
        if N * size_of::<T>() == 16 {
            // SAFETY: valid and aligned by the caller's promise; `u128` is 16 bytes with that alignment.
            let word = unsafe { ptr.cast::<MaybeUninit<u128>>().read() };
            // SAFETY: the same bytes, as many as the array has; they were `N` values of `T` in memory.
            unsafe { transmute_copy(&word) }
        } else {
            // SAFETY: as above, with 8 bytes.
            let word = unsafe { ptr.cast::<MaybeUninit<u64>>().read() };
            // SAFETY: as above.
            unsafe { transmute_copy(&word) }
        }
    } cpu {
        // SAFETY: valid and aligned by the caller's promise.
        unsafe { ptr.cast::<[T; N]>().read() }
    })
}

/// Stores `N` elements at once.
///
/// # Safety
/// `ptr` is valid for writes of them and a multiple of their size in bytes.
#[inline(always)]
pub(super) unsafe fn store<T: Copy, const N: usize>(ptr: *mut T, values: [T; N]) {
    const { assert_size::<T, N>() };
    target!(gpu {
        if N * size_of::<T>() == 16 {
            // SAFETY: 16 bytes are read from an array of as many; any bytes are a `MaybeUninit`.
            let word: MaybeUninit<u128> = unsafe { transmute_copy(&values) };
            // SAFETY: valid and aligned by the caller's promise.
            unsafe { ptr.cast::<MaybeUninit<u128>>().write(word) };
        } else {
            // SAFETY: as above, with 8 bytes.
            let word: MaybeUninit<u64> = unsafe { transmute_copy(&values) };
            // SAFETY: as above.
            unsafe { ptr.cast::<MaybeUninit<u64>>().write(word) };
        }
    } cpu {
        // SAFETY: valid and aligned by the caller's promise.
        unsafe { ptr.cast::<[T; N]>().write(values) }
    })
}
