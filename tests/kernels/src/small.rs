//! A kernel that does next to nothing, to measure what a launch costs.

use cuda_std::prelude::*;

/// Writes `value` into every element of `target`. Launch: 1-D, thread = element.
#[kernel]
pub fn fill_u32(target: GlobalSliceMut<u32>, value: u32) {
    let index = thread::index_1d() as usize;
    if index < target.len() {
        target.set(index, value);
    }
}
