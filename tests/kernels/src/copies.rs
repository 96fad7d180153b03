//! A plain copy, vector accesses, asynchronous copies, barriers that count bytes, the bulk copy engine.

use cuda_std::mbarrier::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{cp_async, shared_array, shared_static, vector};

/// Copies `source` times `scale` to `target`, element by element: the plain kernel of the device's and graphs' suites. Launch:
/// 1-D, thread = element; `target` is as long as `source`.
#[kernel]
pub fn copy_f32(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>, scale: f32) {
    let index = thread::index_1d() as usize;
    if index < source.len() {
        target.set(index, source.get(index) * scale);
    }
}

/// Copies `n` float4 with 16-byte accesses past the caches.
///
/// # Safety
/// Both hold `n`, and are disjoint.
#[kernel]
pub unsafe fn copy_vectors(source: *const [f32; 4], target: *mut [f32; 4], n: u32) {
    let index = thread::index_1d();
    if index < n {
        // SAFETY: the caller's promise; arrays of four floats from an allocation are aligned to 16.
        unsafe {
            let value = vector::load_nc(source.add(index as usize));
            vector::store_streaming(target.add(index as usize), value);
        }
    }
}

/// Copies 64 values of 16 bytes in two groups through shared memory; values whose index is odd become zero.
///
/// # Safety
/// Both hold 64 vectors.
#[kernel(cooperative)]
pub unsafe fn copy_asynchronously(source: *const [f32; 4], target: *mut [f32; 4]) {
    let thread = thread::thread_idx_x() as usize;
    let (first, second) = (shared_array![[f32; 4]; 32], shared_array![[f32; 4]; 32]);
    // SAFETY: 32 threads, each with its own element; the wait and the barrier stand before the reads.
    unsafe {
        cp_async::copy_or_zero::<16, _>(first.add(thread), source.add(thread), thread.is_multiple_of(2));
        cp_async::commit();
        cp_async::copy::<8, _>(second.add(thread), source.add(32 + thread));
        let half = |pointer: *mut [f32; 4]| pointer.cast::<f32>().add(2);
        cp_async::copy::<4, _>(half(second.add(thread)), source.add(32 + thread).cast::<f32>().add(2));
        cp_async::copy::<4, _>(half(second.add(thread)).add(1), source.add(32 + thread).cast::<f32>().add(3));
        cp_async::commit();
        cp_async::wait_group::<1>();
        thread::sync_threads();
        vector::store(target.add(thread), vector::load(first.add(31 - thread)));
        cp_async::wait_all();
        thread::sync_threads();
        vector::store(target.add(32 + thread), vector::load(second.add(31 - thread)));
    }
}

/// Thread 0 reads what all threads of the block wrote once they have arrived at a barrier in shared memory, twice over: the
/// sums of squares of the values and of their doubles.
#[kernel(cooperative)]
pub fn barrier_in_shared_memory(values: GlobalSlice<u32>, sums: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    let n = thread::block_dim_x();
    let squares = shared_array![u32; 64];
    let barrier = shared_static!(Barrier);
    // SAFETY: the barrier is set up before the block's barrier; each thread writes its own element before it arrives, and
    // thread 0 alone reads after the phase; the block's barrier separates the rounds.
    unsafe {
        if thread == 0 {
            mbarrier::init(barrier, n);
            mbarrier::fence_init();
        }
        thread::sync_threads();
        for round in 0..2 {
            let value = values.get(thread) << round;
            squares.add(thread).write(value * value);
            let phase = mbarrier::arrive(barrier);
            if thread == 0 {
                mbarrier::wait(barrier, phase);
                sums.set(round, (0..n as usize).map(|index| squares.add(index).read()).sum());
            }
            thread::sync_threads();
        }
    }
}

/// Copies two tiles of 1,024 bytes through shared memory by the bulk engine and doubles them on the way. The two phases of
/// one barrier bring the tiles.
///
/// # Safety
/// Both hold 512 values, aligned to 16 bytes.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
#[kernel(cooperative)]
pub unsafe fn copy_in_bulk(source: *const f32, target: *mut f32) {
    use cuda_std::bulk;
    let thread = thread::thread_idx_x() as usize;
    let tile = shared_array![f32; 256];
    let barrier = shared_static!(Barrier);
    // SAFETY: one thread sets the barrier up and starts copies; all wait for the phase before they touch the tile, and the
    // fence and the block's barrier stand between their writes and the copy back.
    unsafe {
        if thread == 0 {
            mbarrier::init(barrier, 1);
            mbarrier::fence_init();
        }
        thread::sync_threads();
        for part in 0..2 {
            if thread == 0 {
                mbarrier::arrive_expect_tx(barrier, 1024);
                bulk::global_to_shared(tile, source.add(256 * part), 1024, barrier);
            }
            mbarrier::wait_parity(barrier, part as u32);
            let element = tile.add(thread);
            element.write(2.0 * element.read());
            bulk::fence_shared();
            thread::sync_threads();
            if thread == 0 {
                bulk::shared_to_global(target.add(256 * part), tile, 1024);
                bulk::commit_group();
                bulk::wait_group::<0>();
            }
            thread::sync_threads();
        }
    }
}
