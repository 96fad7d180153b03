//! Shared memory: every size of store, arrays of arrays, generic places, statics, dynamic memory.

use core::mem::MaybeUninit;

use cuda_std::{address_space, prelude::*, shared};

/// Threads of a block in this module.
pub const N_THREADS: usize = 64;

/// Reverses a block's values through a shared array of its own, for any type.
///
/// # Safety
/// The block has [`N_THREADS`] threads, all of which call.
#[inline(always)]
unsafe fn reverse_in_block<T: Copy>(values: &GlobalSlice<T>, out: &GlobalSliceMut<T>) {
    let thread = thread::thread_idx_x() as usize;
    let tile = shared_array![T; N_THREADS];
    // SAFETY: each thread writes its own element; the barrier separates the writes from the reads of others.
    unsafe {
        tile.add(thread).write(values.get(thread));
        thread::sync_threads();
        out.set(thread, tile.add(N_THREADS - 1 - thread).read());
        // Separates the reads from the next use of the same array.
        thread::sync_threads();
    }
}

/// Reverses 64 values of each size, 1 to 16 bytes, and once more in a loop, where the array must be the same one.
#[kernel(cooperative)]
#[allow(clippy::too_many_arguments, reason = "two buffers for each size")]
pub fn shared_stores_of_every_size(
    v8: GlobalSlice<u8>,
    v16: GlobalSlice<u16>,
    v32: GlobalSlice<f32>,
    v64: GlobalSlice<u64>,
    v128: GlobalSlice<u128>,
    o8: GlobalSliceMut<u8>,
    o16: GlobalSliceMut<u16>,
    o32: GlobalSliceMut<f32>,
    o64: GlobalSliceMut<u64>,
    o128: GlobalSliceMut<u128>,
) {
    // SAFETY: the whole block comes here, and it has `N_THREADS` threads by the launch.
    unsafe {
        reverse_in_block(&v8, &o8);
        reverse_in_block(&v16, &o16);
        reverse_in_block(&v32, &o32);
        reverse_in_block(&v64, &o64);
        reverse_in_block(&v128, &o128);
    }
}

/// The sum over four rounds of what the left neighbour wrote in the round before: the array that a loop declares is one
/// array, though the loop is unrolled.
#[kernel(cooperative)]
pub fn shared_array_in_a_loop(out: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    let mut sum = 0;
    for round in 0..4u32 {
        let tile = shared_array![u32; N_THREADS];
        // SAFETY: each thread writes its own element; barriers separate writes and reads.
        unsafe {
            if round > 0 {
                sum += tile.add((thread + N_THREADS - 1) % N_THREADS).read();
            }
            thread::sync_threads();
            tile.add(thread).write(round * 100 + thread as u32);
            thread::sync_threads();
        }
    }
    out.set(thread, sum);
}

/// Transposes an 8x8 matrix through an array of arrays, whose rows are padded to nine.
#[kernel(cooperative)]
pub fn shared_array_of_arrays(values: GlobalSlice<u32>, out: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    let (row, column) = (thread / 8, thread % 8);
    let rows = shared_array![[u32; 9]; 8];
    // SAFETY: each thread writes its own element; the barrier separates the writes from the reads of others.
    unsafe {
        (*rows.add(row))[column] = values.get(thread);
        thread::sync_threads();
        out.set(thread, (*rows.add(column))[row]);
    }
}

#[address_space(shared)]
static mut TILE: MaybeUninit<[f32; N_THREADS]> = MaybeUninit::uninit();

/// The first of two functions that name the same static.
///
/// # Safety
/// Every thread of the block calls with its own index.
#[inline(always)]
unsafe fn fill_tile(thread: usize, value: f32) {
    // SAFETY: each thread writes its own element.
    unsafe {
        #[allow(static_mut_refs, reason = "the lint takes it for one variable of all threads; it is the block's")]
        TILE.as_mut_ptr().cast::<f32>().add(thread).write(value);
    }
}

/// Rotates 64 values by one through a shared static.
#[kernel(cooperative)]
pub fn shared_static_rotates(values: GlobalSlice<f32>, out: GlobalSliceMut<f32>) {
    let thread = thread::thread_idx_x() as usize;
    // SAFETY: each thread writes its own element; the barrier separates the writes from the reads of others.
    unsafe {
        fill_tile(thread, values.get(thread));
        thread::sync_threads();
        #[allow(static_mut_refs, reason = "the lint takes it for one variable of all threads; it is the block's")]
        out.set(thread, TILE.assume_init_ref()[(thread + 1) % N_THREADS]);
    }
}

/// Rotates 64 values by `step` through dynamic shared memory, of 512 bytes; the last element also tells its size.
#[kernel(cooperative)]
pub fn dynamic_shared_rotates(values: GlobalSlice<u64>, out: GlobalSliceMut<u64>, step: u32) {
    let thread = thread::thread_idx_x() as usize;
    let memory = shared::dynamic_shared_mem::<u64>();
    // SAFETY: the launch gives 64 elements; each thread writes its own, and the barrier separates.
    unsafe {
        memory.add(thread).write(values.get(thread));
        thread::sync_threads();
        out.set(thread, memory.add((thread + step as usize) % N_THREADS).read());
    }
    if thread == 0 {
        out.set(N_THREADS, cuda_std::mem::dynamic_smem_size().into());
    }
}
