//! The device heap, and the sizes of a block's shared memory.
//!
//! On the GPU the crate `alloc` (`Box`, `Vec`, `String`, ...) allocates with the device's own `malloc` and `free`. The heap
//! is shared by all threads and slow; its size is the limit `CU_LIMIT_MALLOC_HEAP_SIZE`, 8 MB unless the host sets it. An
//! allocation that fails ends the kernel.

use crate::target::target;

#[cfg(target_os = "cuda")]
mod device {
    use core::alloc::{GlobalAlloc, Layout};
    use core::ffi::c_void;

    unsafe extern "C" {
        /// Allocates on the device heap, aligned to 16 bytes; null if the heap is full.
        pub fn malloc(size: usize) -> *mut c_void;
        /// Frees what [`malloc`] gave.
        pub fn free(ptr: *mut c_void);
    }

    /// What `malloc` aligns to.
    const MALLOC_ALIGN: usize = 16;

    // SAFETY: the memory comes from `malloc`, is at least as large as asked, and is aligned: by `malloc` itself, or by
    // taking more and rounding up, with the block's own address kept in the word before the memory.
    unsafe impl GlobalAlloc for super::CUDAAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() <= MALLOC_ALIGN {
                // SAFETY: any size is allowed.
                return unsafe { malloc(layout.size()) }.cast();
            }
            // SAFETY: as above; room for the rounding is added.
            let block = unsafe { malloc(layout.size() + layout.align()) }.cast::<u8>();
            if block.is_null() {
                return block;
            }
            // At least one word, since the block is aligned to 16 and not to more than `align`.
            let memory = block.wrapping_add(layout.align() - block.addr() % layout.align());
            // SAFETY: the word before `memory` lies in the block.
            unsafe { memory.cast::<*mut u8>().sub(1).write(block) };
            memory
        }

        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            let block =
                // SAFETY: `alloc` left the block's address there.
                if layout.align() <= MALLOC_ALIGN { ptr } else { unsafe { ptr.cast::<*mut u8>().sub(1).read() } };
            // SAFETY: the block comes from `malloc` and is freed once.
            unsafe { free(block.cast()) }
        }
    }

    /// The allocator of the crate `alloc`.
    #[global_allocator]
    pub static GLOBAL_ALLOCATOR: super::CUDAAllocator = super::CUDAAllocator;
}

#[cfg(target_os = "cuda")]
pub use device::{GLOBAL_ALLOCATOR, free, malloc};

/// Allocates on the device heap.
pub struct CUDAAllocator;

/// Dynamic shared memory of a block, bytes.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn dynamic_smem_size() -> u32 {
    target!(gpu {
        let bytes: u32;
        // SAFETY: reads a special register.
        unsafe {
            core::arch::asm!(
                "mov.u32 {}, %dynamic_smem_size;",
                out(reg32) bytes,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        bytes
    } cpu { crate::cpu::dynamic_shared().1 as u32 })
}

/// Static and dynamic shared memory of a block, bytes, rounded as the GPU allots it. On the CPU target: the dynamic part.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn total_smem_size() -> u32 {
    target!(gpu {
        let bytes: u32;
        // SAFETY: reads a special register.
        unsafe {
            core::arch::asm!(
                "mov.u32 {}, %total_smem_size;",
                out(reg32) bytes,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        bytes
    } cpu { dynamic_smem_size() })
}
