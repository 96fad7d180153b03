//! Rows picked by index into padded rows: the way of sampled states into the trainer's buffers.
//!
//! `target[r, c] = source[indices[r], c]` for c < width, 0 for width <= c < stride.

use cuda_std::prelude::*;

const N_THREADS: u32 = 256;
const LANES: usize = 32;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;
/// Vectors a lane loads before it stores the first. Four cover a row of 448 f32, so that all of it is in flight at once.
const UNROLL: usize = 4;

/// Launch of [`gather_f32_rows_padded()`] for `n_rows`: a warp a row.
pub const fn gather_f32_rows_padded_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::cover(n_rows * LANES, N_THREADS)
}

/// Gathers rows of `width` f32 into rows of `stride` f32, zeros in the padding.
///
/// Shapes: source `[any, width]`, indices `[n_rows]` under the number of source rows, target `[n_rows, stride]`, stride >= width.
/// Accesses are of 16 bytes when width and stride are multiples of 4 (and both buffers start at a multiple of 16 bytes),
/// of 4 bytes otherwise. Launch: [`gather_f32_rows_padded_shape`].
#[kernel(max_threads = 256)]
pub fn gather_f32_rows_padded(
    source: GlobalSlice<f32>,
    indices: GlobalSlice<u32>,
    target: GlobalSliceMut<f32>,
    width: u32,
    stride: u32,
) {
    let thread = thread::index_1d() as usize;
    let (row, lane) = (thread / LANES, thread % LANES);
    if row >= indices.len() {
        return;
    }
    let (width, stride) = (width as usize, stride as usize);
    let (from, to) = (indices.get(row) as usize * width, row * stride);
    if (width | stride).is_multiple_of(VECTOR) {
        gather_vectors(&source, &target, from, to, width, stride, lane);
    } else {
        gather_elements(&source, &target, from, to, width, stride, lane);
    }
}

/// A lane's share of a row whose ends lie at multiples of 16 bytes.
#[inline(always)]
fn gather_vectors(
    source: &GlobalSlice<f32>,
    target: &GlobalSliceMut<f32>,
    from: usize,
    to: usize,
    width: usize,
    stride: usize,
    lane: usize,
) {
    let mut column = lane * VECTOR;
    while column < stride {
        let mut vectors = [[0.0; VECTOR]; UNROLL];
        for (step, vector) in vectors.iter_mut().enumerate() {
            let at = column + step * LANES * VECTOR;
            if at < width {
                *vector = source.load(from + at);
            }
        }
        for (step, vector) in vectors.iter().enumerate() {
            let at = column + step * LANES * VECTOR;
            if at < stride {
                target.store(to + at, *vector);
            }
        }
        column += UNROLL * LANES * VECTOR;
    }
}

/// A lane's share of a row of any width.
#[inline(always)]
fn gather_elements(
    source: &GlobalSlice<f32>,
    target: &GlobalSliceMut<f32>,
    from: usize,
    to: usize,
    width: usize,
    stride: usize,
    lane: usize,
) {
    for column in (lane..stride).step_by(LANES) {
        let value = if column < width { source.get(from + column) } else { 0.0 };
        target.set(to + column, value);
    }
}
