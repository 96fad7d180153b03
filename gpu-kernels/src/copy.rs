//! Plain copies.

use cuda_std::prelude::*;

/// Copies `source` to `target`, element by element. Launch: 1-D, thread = element; `target` is as long as `source`.
#[kernel]
pub fn copy_f32(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>, scale: f32) {
    let index = thread::index_1d() as usize;
    if index < source.len() {
        target.set(index, source.get(index) * scale);
    }
}
