//! Where a thread stands in its grid, barriers of its block, and memory fences.
//!
//! A grid is made of blocks and a block of threads, each in up to three dimensions; x runs fastest.

use vek::{Vec2, Vec3};

use crate::target::target;

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
        pub safe fn thread_idx_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.tid.y"]
        pub safe fn thread_idx_y() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.tid.z"]
        pub safe fn thread_idx_z() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
        pub safe fn block_idx_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.y"]
        pub safe fn block_idx_y() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.z"]
        pub safe fn block_idx_z() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
        pub safe fn block_dim_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.y"]
        pub safe fn block_dim_y() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.z"]
        pub safe fn block_dim_z() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.x"]
        pub safe fn grid_dim_x() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.y"]
        pub safe fn grid_dim_y() -> u32;
        #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.z"]
        pub safe fn grid_dim_z() -> u32;
        #[link_name = "llvm.nvvm.barrier0"]
        pub safe fn barrier();
        #[link_name = "llvm.nvvm.barrier0.popc"]
        pub safe fn barrier_count(predicate: u32) -> u32;
        #[link_name = "llvm.nvvm.barrier0.and"]
        pub safe fn barrier_and(predicate: u32) -> u32;
        #[link_name = "llvm.nvvm.barrier0.or"]
        pub safe fn barrier_or(predicate: u32) -> u32;
        #[link_name = "llvm.nvvm.membar.gl"]
        pub safe fn fence_device();
        #[link_name = "llvm.nvvm.membar.sys"]
        pub safe fn fence_system();
        #[link_name = "llvm.nvvm.membar.cta"]
        pub safe fn fence_block();
        #[link_name = "llvm.nvvm.nanosleep"]
        pub safe fn nanosleep(nanos: u32);
    }
}

macro_rules! coordinates {
    ($($(#[$doc:meta])* $name:ident = $field:ident . $axis:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            target!(gpu { llvm::$name() } cpu { crate::cpu::position().$field.$axis })
        }
    )*};
}

coordinates! {
    /// The thread's index in its block, first dimension.
    thread_idx_x = thread_idx.x;
    /// The thread's index in its block, second dimension.
    thread_idx_y = thread_idx.y;
    /// The thread's index in its block, third dimension.
    thread_idx_z = thread_idx.z;
    /// The block's index in its grid, first dimension.
    block_idx_x = block_idx.x;
    /// The block's index in its grid, second dimension.
    block_idx_y = block_idx.y;
    /// The block's index in its grid, third dimension.
    block_idx_z = block_idx.z;
    /// Threads in a block, first dimension.
    block_dim_x = block_dim.x;
    /// Threads in a block, second dimension.
    block_dim_y = block_dim.y;
    /// Threads in a block, third dimension.
    block_dim_z = block_dim.z;
    /// Blocks in the grid, first dimension.
    grid_dim_x = grid_dim.x;
    /// Blocks in the grid, second dimension.
    grid_dim_y = grid_dim.y;
    /// Blocks in the grid, third dimension.
    grid_dim_z = grid_dim.z;
}

/// The thread's index in its block.
#[inline(always)]
pub fn thread_idx() -> Vec3<u32> {
    Vec3::new(thread_idx_x(), thread_idx_y(), thread_idx_z())
}

/// The block's index in its grid.
#[inline(always)]
pub fn block_idx() -> Vec3<u32> {
    Vec3::new(block_idx_x(), block_idx_y(), block_idx_z())
}

/// Threads in a block, along each dimension.
#[inline(always)]
pub fn block_dim() -> Vec3<u32> {
    Vec3::new(block_dim_x(), block_dim_y(), block_dim_z())
}

/// Blocks in the grid, along each dimension.
#[inline(always)]
pub fn grid_dim() -> Vec3<u32> {
    Vec3::new(grid_dim_x(), grid_dim_y(), grid_dim_z())
}

/// The thread's number in its block, all three dimensions counted, x fastest.
#[inline(always)]
pub fn index_in_block() -> u32 {
    (thread_idx_z() * block_dim_y() + thread_idx_y()) * block_dim_x() + thread_idx_x()
}

/// The thread's number in the grid: unique for every thread of the launch, whatever its dimensions (modulo 2^32). Blocks
/// are numbered x fastest, and threads within their block likewise.
#[inline(always)]
pub fn index() -> u32 {
    let block = (block_idx_z() * grid_dim_y() + block_idx_y()) * grid_dim_x() + block_idx_x();
    block * (block_dim_x() * block_dim_y() * block_dim_z()) + index_in_block()
}

/// The thread's index in a one-dimensional grid. In a grid of more dimensions several threads share it.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// The thread's index in a two-dimensional grid.
#[inline(always)]
pub fn index_2d() -> Vec2<u32> {
    Vec2::new(index_1d(), block_idx_y() * block_dim_y() + thread_idx_y())
}

/// The thread's index in a three-dimensional grid.
#[inline(always)]
pub fn index_3d() -> Vec3<u32> {
    let plane = index_2d();
    Vec3::new(plane.x, plane.y, block_idx_z() * block_dim_z() + thread_idx_z())
}

/// Whether this is the thread at index zero of the block at index zero: true for exactly one thread of a launch.
#[inline(always)]
pub fn first() -> bool {
    block_idx() == Vec3::zero() && thread_idx() == Vec3::zero()
}

/// Threads in a warp: 32 on every GPU so far, and on the CPU target.
#[inline(always)]
pub fn warp_size() -> u32 {
    crate::warp::WARP_SIZE
}

/// Waits until every thread of the block is here. What any of them wrote to global or shared memory before is seen by all
/// of them after. All threads of the block must arrive at the same call, or have returned.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn sync_threads() {
    target!(gpu { llvm::barrier() } cpu { crate::cpu::barrier() })
}

/// [`sync_threads`], then the number of threads whose `predicate` is not zero.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn sync_threads_count(predicate: u32) -> u32 {
    target!(gpu { llvm::barrier_count(predicate) } cpu { crate::cpu::barrier_reduce(predicate != 0).count })
}

/// [`sync_threads`], then 1 if every thread's `predicate` is not zero, else 0.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn sync_threads_and(predicate: u32) -> u32 {
    target!(gpu { llvm::barrier_and(predicate) } cpu { crate::cpu::barrier_reduce(predicate != 0).and as u32 })
}

/// [`sync_threads`], then 1 if any thread's `predicate` is not zero, else 0.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn sync_threads_or(predicate: u32) -> u32 {
    target!(gpu { llvm::barrier_or(predicate) } cpu { crate::cpu::barrier_reduce(predicate != 0).or as u32 })
}

/// Orders this thread's memory accesses as all threads of the grid see them. It waits for nobody.
#[inline(always)]
pub fn grid_fence() {
    device_fence();
}

/// Orders this thread's memory accesses as all threads of the device see them. It waits for nobody.
#[inline(always)]
pub fn device_fence() {
    target!(gpu { llvm::fence_device() } cpu { host_fence() })
}

/// Orders this thread's memory accesses as all threads of the block see them. It waits for nobody.
#[inline(always)]
pub fn block_fence() {
    target!(gpu { llvm::fence_block() } cpu { core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst) })
}

/// Orders this thread's memory accesses as the host and other devices see them. It waits for nobody.
#[inline(always)]
pub fn system_fence() {
    target!(gpu { llvm::fence_system() } cpu { host_fence() })
}

/// A fence on the CPU target, which its checker is told of.
#[cfg(not(target_os = "cuda"))]
fn host_fence() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    crate::cpu::fence();
}

/// Suspends the thread for about `nanos` nanoseconds, at most a millisecond, as a back-off while it polls. On the CPU
/// target it lets the operating system run another thread; to wait for a thread of the same block, use an operation that
/// waits ([`sync_threads`], [`crate::mbarrier`], [`crate::flag::wait`]), since the block runs on one thread there.
#[inline(always)]
pub fn nanosleep(nanos: u32) {
    target!(gpu { llvm::nanosleep(nanos) } cpu {
        let _ = nanos;
        std::thread::yield_now()
    })
}
