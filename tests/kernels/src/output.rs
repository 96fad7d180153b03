//! Printing, assertions, the device heap.

use cuda_std::prelude::*;
use cuda_std::{assert, assert_eq, println};

/// Prints one line from the first thread; `name` is printed too. The test reads standard output.
#[kernel]
pub fn print_values(count: u32, ratio: f32) {
    if thread::first() {
        let name = "onegraph";
        println!("{name}: {count} of {:>5} at {ratio:.3}, {:#x} {:?} 100%", -7i8, 48879u16, true);
    }
}

/// Fails in the thread whose index is `at`.
#[kernel]
pub fn assert_below(limit: u32) {
    let index = thread::index_1d();
    assert!(index < limit, "index {} reached the limit", index);
}

/// Fails unless the two are equal, and shows them.
#[kernel]
pub fn assert_equal(left: u32, right: u32) {
    assert_eq!(left, right);
}

/// Each thread builds a vector of its first `n` squares on the device heap, grown one by one, and sums it.
#[kernel]
pub fn sum_on_the_heap(out: GlobalSliceMut<u64>, n: u32) {
    let index = thread::index_1d() as usize;
    if index < out.len() {
        let squares: Vec<u64> = (0..u64::from(n)).map(|i| i * i + index as u64).collect();
        let boxed = Box::new(Aligned(squares.iter().sum()));
        out.set(index, boxed.0 + (&raw const *boxed).addr() as u64 % 64);
    }
}

/// More than the device heap's own alignment.
#[repr(align(64))]
struct Aligned(u64);
