//! y = a x + y: gpu-kernels/src/axpy.rs, with `pub mod axpy;` in gpu-kernels/src/lib.rs.

use cuda_std::prelude::*;

/// y = a x + y, elementwise. Launch: thread = element; `x` is at least as long as `y`.
#[kernel]
pub fn axpy(a: f32, x: GlobalSlice<f32>, y: GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    if index < y.len() {
        y.set(index, a * x.get(index) + y.get(index));
    }
}
