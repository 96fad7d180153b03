//! Where a thread stands in its grid.

#[cfg(target_os = "cuda")]
mod sreg {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
        pub fn tid_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
        pub fn ctaid_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
        pub fn ntid_x() -> u32;
    }
}

/// The thread's index in its block, first dimension.
#[inline(always)]
pub fn thread_idx_x() -> u32 {
    #[cfg(target_os = "cuda")]
    // SAFETY: reads a special register.
    return unsafe { sreg::tid_x() };
    #[cfg(not(target_os = "cuda"))]
    crate::cpu::position().thread_idx.x
}

/// The block's index in its grid, first dimension.
#[inline(always)]
pub fn block_idx_x() -> u32 {
    #[cfg(target_os = "cuda")]
    // SAFETY: reads a special register.
    return unsafe { sreg::ctaid_x() };
    #[cfg(not(target_os = "cuda"))]
    crate::cpu::position().block_idx.x
}

/// The number of threads in a block, first dimension.
#[inline(always)]
pub fn block_dim_x() -> u32 {
    #[cfg(target_os = "cuda")]
    // SAFETY: reads a special register.
    return unsafe { sreg::ntid_x() };
    #[cfg(not(target_os = "cuda"))]
    crate::cpu::position().block_dim.x
}

/// The thread's index in a one-dimensional grid.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}
