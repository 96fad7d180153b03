//! Flags and stamps that order memory between threads, or between the device and the host.
//!
//! The writer fills the data, then calls [`release`]; the reader calls [`acquire`] or [`wait`] and, once it sees the new
//! value, sees the data. One `st.release.sys` or `ld.acquire.sys` each: valid towards the host in mapped pinned memory.

use core::sync::atomic::Ordering;

use crate::atomic::mid;

/// A type of flag.
pub trait Flag: Copy {
    /// As [`release`].
    ///
    /// # Safety
    /// As for [`release`].
    unsafe fn release(ptr: *mut Self, value: Self);
    /// As [`acquire`].
    ///
    /// # Safety
    /// As for [`acquire`].
    unsafe fn acquire(ptr: *const Self) -> Self;
}

macro_rules! flag {
    ($type:ident as $bits:ident, $load:ident, $store:ident) => {
        impl Flag for $type {
            #[inline(always)]
            unsafe fn release(ptr: *mut Self, value: Self) {
                // SAFETY: the caller's promise, which is this function's own `# Safety`; the types have the same size and alignment.
                unsafe { mid::$store(ptr.cast(), Ordering::Release, value as $bits) }
            }

            #[inline(always)]
            unsafe fn acquire(ptr: *const Self) -> Self {
                // SAFETY: the caller's promise, as in `release`; the load does not write.
                unsafe { mid::$load(ptr.cast_mut().cast(), Ordering::Acquire) as Self }
            }
        }
    };
}

flag!(u32 as u32, atomic_load_32_system, atomic_store_32_system);
flag!(i32 as u32, atomic_load_32_system, atomic_store_32_system);
flag!(u64 as u64, atomic_load_64_system, atomic_store_64_system);
flag!(i64 as u64, atomic_load_64_system, atomic_store_64_system);

/// Writes `value` after everything that this thread wrote before, for all threads of the system.
///
/// # Safety
/// `ptr` is valid and aligned, and at the same time accessed by atomics or flags alone.
#[inline(always)]
pub unsafe fn release<T: Flag>(ptr: *mut T, value: T) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { T::release(ptr, value) }
}

/// Reads a flag; what its writer wrote before it is then seen too.
///
/// # Safety
/// `ptr` is valid and aligned, and at the same time written by atomics or flags alone.
#[inline(always)]
pub unsafe fn acquire<T: Flag>(ptr: *const T) -> T {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { T::acquire(ptr) }
}

/// Waits until the flag satisfies `ready`, and returns its value. The writer must be running, or have run: another thread
/// of the block, or a block that is resident at the same time.
///
/// # Safety
/// As for [`acquire`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn wait<T: Flag>(ptr: *const T, ready: impl Fn(T) -> bool) -> T {
    #[cfg(not(target_os = "cuda"))]
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    crate::cpu::wait_until("flag", || ready(unsafe { acquire(ptr) }));
    loop {
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        let value = unsafe { acquire(ptr) };
        if ready(value) {
            return value;
        }
    }
}
