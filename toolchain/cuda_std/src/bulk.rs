//! The bulk copy engine (`cp.async.bulk`, sm_90 and later): one thread starts a copy of many bytes.
//!
//! Into shared memory, a copy counts its bytes on an [`mbarrier`](crate::mbarrier) when it is done; out of shared memory, it
//! belongs to a bulk group of the thread that started it. Addresses are aligned to 16 bytes and sizes are multiples of 16.
//! What threads wrote to shared memory is seen by the engine after [`fence_shared`] in the writing threads and a barrier.
//!
//! On the CPU target a copy is done when it is started. The tensor forms take a `CUtensorMap`, whose bits only the driver
//! knows, and exist on the GPU alone; so does all of this module on the sm_80 image.

use crate::mbarrier::Barrier;
use crate::target::target;

/// Shows the copy engine what this thread wrote to shared memory (`fence.proxy.async`).
#[inline(always)]
pub fn fence_shared() {
    #[cfg(target_os = "cuda")]
    // SAFETY: a fence.
    unsafe {
        core::arch::asm!("fence.proxy.async.shared::cta;", options(nostack))
    }
}

/// Starts a copy of `bytes` from global to shared memory; `barrier` counts them when they have arrived.
///
/// # Safety
/// `to` points into shared memory and `from` into global memory, both valid for `bytes` and aligned to 16; `bytes` is a
/// multiple of 16; `barrier` was set up and expects the bytes. `to` is not accessed until the barrier's phase is over.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn global_to_shared<T>(to: *mut T, from: *const T, bytes: u32, barrier: *mut Barrier) {
    target!(gpu {
        // SAFETY: the caller's promise.
        unsafe {
            core::arch::asm!(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{from}], {bytes}, [{barrier}];",
                to = in(reg32) crate::ptr::shared_address(to.cast_const()),
                from = in(reg64) crate::ptr::convert_generic_to_specific_address_space(from, crate::ptr::AddressSpace::Global),
                bytes = in(reg32) bytes,
                barrier = in(reg32) crate::ptr::shared_address(barrier.cast_const()),
                options(nostack)
            )
        }
    } cpu {
        check(to.cast(), from.cast(), bytes);
        // SAFETY: the caller's promise.
        unsafe {
            core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes as usize);
            crate::mbarrier::complete_tx(barrier, bytes)
        }
    })
}

/// Starts a copy of `bytes` from shared to global memory, in this thread's current bulk group.
///
/// # Safety
/// `to` points into global memory and `from` into shared memory, both valid for `bytes` and aligned to 16; `bytes` is a
/// multiple of 16. `from` is not written until [`wait_group_read`], nor `to` accessed until [`wait_group`], says so.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn shared_to_global<T>(to: *mut T, from: *const T, bytes: u32) {
    target!(gpu {
        // SAFETY: the caller's promise.
        unsafe {
            core::arch::asm!(
                "cp.async.bulk.global.shared::cta.bulk_group [{to}], [{from}], {bytes};",
                to = in(reg64) crate::ptr::convert_generic_to_specific_address_space(to.cast_const(), crate::ptr::AddressSpace::Global),
                from = in(reg32) crate::ptr::shared_address(from),
                bytes = in(reg32) bytes,
                options(nostack)
            )
        }
    } cpu {
        check(to.cast(), from.cast(), bytes);
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes as usize) }
    })
}

/// Closes this thread's copies out of shared memory since the last call into a bulk group.
#[inline(always)]
pub fn commit_group() {
    #[cfg(target_os = "cuda")]
    // SAFETY: orders the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.bulk.commit_group;", options(nostack))
    }
}

/// Waits until at most the newest `N` bulk groups of this thread are under way.
#[inline(always)]
pub fn wait_group<const N: usize>() {
    #[cfg(target_os = "cuda")]
    // SAFETY: waits for the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.bulk.wait_group {n};", n = const N, options(nostack))
    }
}

/// Waits until all but the newest `N` bulk groups of this thread have read shared memory, so that it may be written again.
#[inline(always)]
pub fn wait_group_read<const N: usize>() {
    #[cfg(target_os = "cuda")]
    // SAFETY: waits for the thread's own copies.
    unsafe {
        core::arch::asm!("cp.async.bulk.wait_group.read {n};", n = const N, options(nostack))
    }
}

#[cfg(not(target_os = "cuda"))]
#[track_caller]
fn check(to: *const u8, from: *const u8, bytes: u32) {
    if !(to.addr() | from.addr() | bytes as usize).is_multiple_of(16) {
        crate::cpu::fault(format_args!(
            "a bulk copy of {bytes} bytes from {from:p} to {to:p}: size and addresses must be multiples of 16"
        ));
    }
}

/// A tensor's description, made by `cuTensorMapEncodeTiled` on the host and passed to the kernel by address in global
/// memory; aligned to 64 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap([u64; 16]);

impl TensorMap {
    /// From the driver's 128 bytes.
    pub const fn new(opaque: [u64; 16]) -> Self {
        Self(opaque)
    }
}

#[cfg(target_os = "cuda")]
macro_rules! tensor {
    ($load:ident, $store:ident, $dimensions:literal, $coordinates:literal, [$($c:ident)*]) => {
        #[doc = concat!("Starts a copy of one tile of a ", $dimensions, " tensor into shared memory, from these coordinates on.")]
        ///
        /// # Safety
        /// As for [`global_to_shared`], with `to` aligned to 128 bytes and as large as the map's box; the map is in global,
        /// constant or parameter memory and describes a live tensor.
        #[inline(always)]
        pub unsafe fn $load<T>(to: *mut T, map: *const TensorMap, $($c: i32,)* barrier: *mut Barrier) {
            // SAFETY: the caller's promise.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "cp.async.bulk.tensor.", $dimensions,
                        ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [{to}], [{map}, {{", $coordinates, "}}], [{barrier}];"
                    ),
                    to = in(reg32) crate::ptr::shared_address(to.cast_const()),
                    map = in(reg64) map,
                    $($c = in(reg32) $c,)*
                    barrier = in(reg32) crate::ptr::shared_address(barrier.cast_const()),
                    options(nostack)
                )
            }
        }

        #[doc = concat!("Starts a copy of one tile out of shared memory into a ", $dimensions, " tensor, in this thread's current bulk group.")]
        ///
        /// # Safety
        /// As for [`shared_to_global`], with `from` aligned to 128 bytes and as large as the map's box; the map is in global,
        /// constant or parameter memory and describes a live tensor.
        #[inline(always)]
        pub unsafe fn $store<T>(map: *const TensorMap, $($c: i32,)* from: *const T) {
            // SAFETY: the caller's promise.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "cp.async.bulk.tensor.", $dimensions,
                        ".global.shared::cta.tile.bulk_group [{map}, {{", $coordinates, "}}], [{from}];"
                    ),
                    map = in(reg64) map,
                    $($c = in(reg32) $c,)*
                    from = in(reg32) crate::ptr::shared_address(from),
                    options(nostack)
                )
            }
        }
    };
}

#[cfg(target_os = "cuda")]
tensor!(tensor_1d_to_shared, shared_to_tensor_1d, "1d", "{x}", [x]);
#[cfg(target_os = "cuda")]
tensor!(tensor_2d_to_shared, shared_to_tensor_2d, "2d", "{x}, {y}", [x y]);

/// Asks for a tensor map to be brought into the cache of descriptors.
///
/// # Safety
/// The map is valid.
#[cfg(target_os = "cuda")]
#[inline(always)]
pub unsafe fn prefetch_tensor_map(map: *const TensorMap) {
    // SAFETY: the caller's promise.
    unsafe { core::arch::asm!("prefetch.tensormap [{}];", in(reg64) map, options(nostack)) }
}
