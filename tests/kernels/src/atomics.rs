//! Atomics of each scope and type.

use core::sync::atomic::Ordering;

use cuda_std::atomic::{self, Scope, mid};
use cuda_std::prelude::*;
use cuda_std::{flag, shared_array};

/// Adds each value to one f32 in device memory: one `red` instruction.
///
/// # Safety
/// `sum` is valid, and during the launch accessed by this kernel's atomics alone.
#[kernel]
pub unsafe fn atomic_add_f32(values: GlobalSlice<f32>, sum: *mut f32) {
    let index = thread::index_1d() as usize;
    if index < values.len() {
        // SAFETY: the caller's promise.
        unsafe { mid::atomic_fetch_add_f32_device(sum, Ordering::Relaxed, values.get(index)) };
    }
}

macro_rules! every_operation {
    ($name:ident, $type:ident, [$add:ident, $sub:ident, $min:ident, $max:ident, $and:ident, $or:ident, $xor:ident]) => {
        /// Applies each operation to a word of its own: add, sub, min, max, and, or, xor.
        ///
        /// # Safety
        /// `words` holds seven, and during the launch is accessed by this kernel's atomics alone.
        #[kernel]
        pub unsafe fn $name(values: GlobalSlice<$type>, words: *mut $type) {
            let index = thread::index_1d() as usize;
            if index < values.len() {
                let value = values.get(index);
                // SAFETY: the caller's promise.
                unsafe {
                    mid::$add(words, Ordering::Relaxed, value);
                    mid::$sub(words.add(1), Ordering::AcqRel, value);
                    mid::$min(words.add(2), Ordering::Acquire, value);
                    mid::$max(words.add(3), Ordering::Release, value);
                    mid::$and(words.add(4), Ordering::SeqCst, value);
                    mid::$or(words.add(5), Ordering::Relaxed, value);
                    mid::$xor(words.add(6), Ordering::Relaxed, value);
                }
            }
        }
    };
}

every_operation!(
    atomics_u32,
    u32,
    [
        atomic_fetch_add_u32_device,
        atomic_fetch_sub_u32_device,
        atomic_fetch_min_u32_device,
        atomic_fetch_max_u32_device,
        atomic_fetch_and_u32_device,
        atomic_fetch_or_u32_device,
        atomic_fetch_xor_u32_device
    ]
);
every_operation!(
    atomics_i64,
    i64,
    [
        atomic_fetch_add_i64_system,
        atomic_fetch_sub_i64_system,
        atomic_fetch_min_i64_system,
        atomic_fetch_max_i64_system,
        atomic_fetch_and_i64_system,
        atomic_fetch_or_i64_system,
        atomic_fetch_xor_i64_system
    ]
);

/// Sums a block's values in shared memory, as f32 and f64, then gives the sums out: block b's at 2 b and 2 b + 1.
#[kernel(cooperative)]
pub fn atomics_in_shared_memory(values: GlobalSlice<f32>, sums: GlobalSliceMut<f64>) {
    let (single, double) = (shared_array![f32; 1], shared_array![f64; 1]);
    let thread = thread::thread_idx_x() as usize;
    let value = values.get(thread::index_1d() as usize);
    // SAFETY: thread 0 alone writes before the barrier and reads after the second; atomics of the block in between.
    unsafe {
        if thread == 0 {
            single.write(0.0);
            double.write(0.0);
        }
        thread::sync_threads();
        mid::atomic_fetch_add_f32_block(single, Ordering::Relaxed, value);
        mid::atomic_fetch_add_f64_block(double, Ordering::Relaxed, value.into());
        thread::sync_threads();
        if thread == 0 {
            let block = thread::block_idx_x() as usize;
            sums.set(2 * block, single.read().into());
            sums.set(2 * block + 1, double.read());
        }
    }
}

/// A histogram of bytes in 8-bit counters, which wrap, four to a word.
///
/// # Safety
/// `counters` holds 256, aligned to four, and during the launch is accessed by this kernel's atomics alone.
#[kernel]
pub unsafe fn byte_histogram(values: GlobalSlice<u8>, counters: *mut u8) {
    let index = thread::index_1d() as usize;
    if index < values.len() {
        let counter = counters.wrapping_add(values.get(index).into());
        // SAFETY: the caller's promise; a byte is an index under 256.
        unsafe { atomic::fetch_add_u8(counter, 1, Ordering::Relaxed, Scope::Device) };
    }
}

/// Counts in the type itself, by compare-and-exchange: each thread adds its index.
#[kernel]
pub fn compare_and_exchange(counter: &'static atomic::AtomicU64) {
    let mut old = counter.load(Ordering::Relaxed);
    while let Err(seen) =
        counter.compare_exchange(old, old + u64::from(thread::index_1d()), Ordering::AcqRel, Ordering::Relaxed)
    {
        old = seen;
    }
}

/// Writes values and then a stamp that releases them, as the readback does: one thread.
///
/// # Safety
/// `stamp` is valid and accessed by flags alone.
#[kernel]
pub unsafe fn release_a_stamp(values: GlobalSliceMut<u32>, stamp: *mut u64, step: u64) {
    if thread::first() {
        for index in 0..values.len() {
            values.set(index, step as u32 + index as u32);
        }
        // SAFETY: the caller's promise.
        unsafe { flag::release(stamp, step) };
    }
}
