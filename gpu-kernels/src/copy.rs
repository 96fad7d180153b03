//! Plain copies, at the speed of the memory.

use cuda_std::prelude::*;

const N_THREADS: u32 = 256;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;
/// Vectors a thread loads before it stores the first: enough bytes in flight to cover the memory's latency.
const UNROLL: usize = 4;
/// f32 that a block copies.
const TILE: usize = N_THREADS as usize * VECTOR * UNROLL;

/// Launch of [`copy_vectors()`] for `n` elements: a block for each 4,096.
pub const fn copy_vectors_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n.div_ceil(VECTOR * UNROLL), N_THREADS)
}

/// Copies `source` to `target`. Shapes: source, target `[n]`, both starting at a multiple of 16 bytes. Launch:
/// [`copy_vectors_shape`].
#[kernel(max_threads = 256)]
pub fn copy_vectors(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>) {
    let first = thread::block_idx_x() as usize * TILE + thread::thread_idx_x() as usize * VECTOR;
    let stride = N_THREADS as usize * VECTOR;
    let n = source.len();
    if first + stride * (UNROLL - 1) + VECTOR <= n {
        let vectors: [[f32; VECTOR]; UNROLL] = core::array::from_fn(|step| source.load(first + step * stride));
        for (step, vector) in vectors.iter().enumerate() {
            target.store(first + step * stride, *vector);
        }
        return;
    }
    for step in 0..UNROLL {
        let start = first + step * stride;
        for index in start..n.min(start + VECTOR) {
            target.set(index, source.get(index));
        }
    }
}
