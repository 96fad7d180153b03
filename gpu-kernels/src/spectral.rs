//! Spectral norms of the trunk's matrices by one power iteration a step, and the operands that they scale.
//!
//! | value | equation |
//! |---|---|
//! | v | W^T u / (\|W^T u\| + 1e-12) |
//! | u' | W v / (\|W v\| + 1e-12) |
//! | sigma | u'^T W v |
//! | scale | 1 / max(1, sigma / sigma_max) |
//! | operand | scale W, rounded once |
//!
//! Source: Miyato et al. 2018 (arXiv:1802.05957), algorithm 1. On purpose unlike it: weights are only scaled down, and sigma is a
//! constant in the gradient, which is multiplied by `scale`.
//!
//! Three launches for all matrices of both networks, the step's grid being (blocks of a matrix, matrices): first the online
//! network's in the table's order, then the target's, which lie at the same offsets; the first alone where there is no target.
//! Sums run in a fixed order, one for blocks of 256 threads and another for blocks of one, as the CPU has them. u enters only
//! through its direction, so the start vector need not be normalised.

mod alone;
mod sizes;

use cuda_std::prelude::*;
use cuda_std::shape::Dim3;
use shared_types::{Precision, SpectralMatrix, stream};

pub use sizes::SpectralSizes;

use crate::lanes::{self, N_LANES};
use crate::{math, operand, philox};

/// Added to the norms.
pub const POWER_EPSILON: f32 = 1e-12;
/// Iterations on the initial weights.
pub const N_START_ITERATIONS: usize = 15;
/// Columns, and rows, of a matrix at most.
pub const MAX_WIDTH: usize = 2048;

const N_THREADS: u32 = 256;
const N_WARPS: usize = N_THREADS as usize / N_LANES;
const VECTOR: usize = 4;
/// Rows that a block takes in the first two launches.
const SLAB: usize = 32;
/// Threads that share the columns of one half of a slab.
const HALF: usize = N_THREADS as usize / 2;
/// Elements that a block scales in the third launch.
const TILE: usize = 8192;

/// Launch of [`spectral_columns()`] and [`spectral_rows()`].
pub const fn spectral_slabs_shape(sizes: &SpectralSizes, lanes: u32) -> LaunchShape {
    shape(sizes, sizes.rows.div_ceil(SLAB), lanes)
}

/// Launch of [`spectral_scale()`].
pub const fn spectral_scale_shape(sizes: &SpectralSizes, lanes: u32) -> LaunchShape {
    shape(sizes, sizes.elements.div_ceil(TILE), lanes)
}

const fn shape(sizes: &SpectralSizes, n_blocks: usize, lanes: u32) -> LaunchShape {
    let n_threads = lanes::block_threads(N_THREADS, lanes);
    LaunchShape::new(Dim3::new(n_blocks as u32, sizes.n_scales() as u32, 1), Dim3::new(n_threads, 1, 1))
}

/// Start vectors: element i of each network's u is a standard normal, element i of stream `SPECTRAL` at rng_step 0. Shapes: u
/// `[networks, u_len]`, online then target. Launch: [`philox_shape`](crate::philox::philox_shape) of its length.
#[kernel]
pub fn spectral_start(u: GlobalSliceMut<f32>, u_len: u32, seed: [u32; 2]) {
    let index = thread::index_1d();
    if (index as usize) < u.len() {
        u.set(index as usize, philox::normal(seed, stream::SPECTRAL, 0, index % u_len));
    }
}

/// First launch: W^T u over each slab of 32 rows.
///
/// Shapes: params, target, the flat parameters of both networks, the second empty without a target; matrices, the table; u
/// `[networks, u_len]`; partials [[`SpectralSizes::partials_len`]], `[2 n_matrices, slabs, cols]` whether there is a target or not.
/// Launch: [`spectral_slabs_shape`]. With `enabled` 0 it does nothing.
#[kernel(cooperative, max_threads = 256)]
pub fn spectral_columns(
    params: GlobalSlice<f32>,
    target: GlobalSlice<f32>,
    matrices: GlobalSlice<SpectralMatrix>,
    u: GlobalSlice<f32>,
    partials: GlobalSliceMut<f32>,
    enabled: u32,
) {
    let lower_sums = shared_slice![f32; HALF * VECTOR];
    let place = Place::here(&matrices, u.len());
    let first_row = thread::block_idx_x() as usize * SLAB;
    // The whole block takes the same way here.
    if enabled == 0 || first_row >= place.n_rows {
        return;
    }
    let w = place.weights(&params, &target);
    let u = u.sub(place.u_start..place.u_start + place.n_rows);
    let out = place.slab(partials.len(), matrices.len(), thread::block_idx_x() as usize);
    if lanes::of_block(N_THREADS) == 1 {
        alone::columns(&w, &u, first_row..place.n_rows.min(first_row + SLAB), place.n_cols, &partials, out);
        return;
    }
    let (half, column) = (thread::thread_idx_x() as usize / HALF, thread::thread_idx_x() as usize % HALF);
    let rows = first_row + half * (SLAB / 2)..place.n_rows.min(first_row + (half + 1) * (SLAB / 2));
    for first_column in (0..place.n_cols).step_by(HALF * VECTOR) {
        let at = first_column + column * VECTOR;
        let mut sums = [0.0; VECTOR];
        if at < place.n_cols {
            for row in rows.clone() {
                let (weights, by): ([f32; VECTOR], f32) = (w.load(row * place.n_cols + at), u.get(row));
                sums = core::array::from_fn(|i| sums[i] + weights[i] * by);
            }
        }
        if half == 1 {
            lower_sums.store(column * VECTOR, sums);
        }
        // Between the second half's sums and the first half's reads of them.
        thread::sync_threads();
        if half == 0 && at < place.n_cols {
            let lower: [f32; VECTOR] = lower_sums.load(column * VECTOR);
            partials.store::<VECTOR>(out + at, core::array::from_fn(|i| sums[i] + lower[i]));
        }
        // Between those reads and the next columns' sums.
        thread::sync_threads();
    }
}

/// Second launch: v from the slabs' sums, then W v, 32 rows a block, four a warp.
///
/// Shapes: as [`spectral_columns()`] has them; products `[networks, u_len]`, W v of each matrix. Launch:
/// [`spectral_slabs_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn spectral_rows(
    params: GlobalSlice<f32>,
    target: GlobalSlice<f32>,
    matrices: GlobalSlice<SpectralMatrix>,
    partials: GlobalSlice<f32>,
    products: GlobalSliceMut<f32>,
    enabled: u32,
) {
    let v = shared_slice![f32; MAX_WIDTH];
    let warp_sums = shared_slice![f32; N_WARPS];
    let place = Place::here(&matrices, products.len());
    let first_row = thread::block_idx_x() as usize * SLAB;
    // The whole block takes the same way here.
    if enabled == 0 || first_row >= place.n_rows {
        return;
    }
    let w = place.weights(&params, &target);
    let thread = thread::thread_idx_x() as usize;
    let n_threads = lanes::of_block(N_THREADS);
    let mut squares = 0.0;
    for at in (thread * VECTOR..place.n_cols).step_by(n_threads * VECTOR) {
        let mut sums = [0.0; VECTOR];
        for slab in 0..place.n_rows.div_ceil(SLAB) {
            let part: [f32; VECTOR] = partials.load(place.slab(partials.len(), matrices.len(), slab) + at);
            sums = core::array::from_fn(|i| sums[i] + part[i]);
        }
        v.store(at, sums);
        squares += sums[0] * sums[0] + sums[1] * sums[1] + (sums[2] * sums[2] + sums[3] * sums[3]);
    }
    if n_threads == 1 {
        let length = alone::length(&v, place.n_cols);
        for at in (0..place.n_cols).step_by(VECTOR) {
            v.store(at, v.load::<VECTOR>(at).map(|sum| sum / length));
        }
        for row in first_row..place.n_rows.min(first_row + SLAB) {
            products.set(place.u_start + row, alone::product(&w, &v, row, place.n_cols));
        }
        return;
    }
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let length = math::sqrt(block_sum(squares, &warp_sums, warp, lane)) + POWER_EPSILON;
    for at in (thread * VECTOR..place.n_cols).step_by(N_THREADS as usize * VECTOR) {
        v.store(at, v.load::<VECTOR>(at).map(|sum| sum / length));
    }
    // Between each thread's part of v and everyone's reads of all.
    thread::sync_threads();
    for row in (first_row + warp..place.n_rows.min(first_row + SLAB)).step_by(N_WARPS) {
        let mut sums = [0.0; VECTOR];
        for at in (lane * VECTOR..place.n_cols).step_by(N_LANES * VECTOR) {
            let (weights, by): ([f32; VECTOR], [f32; VECTOR]) = (w.load(row * place.n_cols + at), v.load(at));
            sums = core::array::from_fn(|i| sums[i] + weights[i] * by[i]);
        }
        let product = lanes::all((sums[0] + sums[1]) + (sums[2] + sums[3]), |a, b| a + b);
        if lane == 0 {
            products.set(place.u_start + row, product);
        }
    }
}

/// Third launch: u', sigma, the scale, and the scaled operands.
///
/// A matrix whose product is not finite keeps its u and has scale 1: the step's loss will tell.
/// Shapes: as [`spectral_rows()`] has them; scales `[networks, n_matrices]`; shadow, target_shadow, operands of both networks at the
/// parameters' offsets, of which it writes the matrices'. With `enabled` 0 the scales are 1 and u stays. Launch:
/// [`spectral_scale_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn spectral_scale(
    params: GlobalSlice<f32>,
    target: GlobalSlice<f32>,
    matrices: GlobalSlice<SpectralMatrix>,
    products: GlobalSlice<f32>,
    u: GlobalSliceMut<f32>,
    scales: GlobalSliceMut<f32>,
    shadow: GlobalSliceMut<u16>,
    target_shadow: GlobalSliceMut<u16>,
    sigma_max: f32,
    enabled: u32,
    precision: Precision,
) {
    let warp_sums = shared_slice![f32; N_WARPS];
    let warp_dots = shared_slice![f32; N_WARPS];
    let place = Place::here(&matrices, u.len());
    let n = place.n_rows * place.n_cols;
    let first = thread::block_idx_x() as usize * TILE;
    // The whole block takes the same way here.
    if first >= n {
        return;
    }
    let thread = thread::thread_idx_x() as usize;
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let n_threads = lanes::of_block(N_THREADS);
    let mut scale = 1.0;
    if enabled != 0 {
        let products = products.sub(place.u_start..place.u_start + place.n_rows);
        let mut squares = 0.0;
        if n_threads == 1 {
            squares = alone::squares(&products);
        } else {
            for row in (thread..place.n_rows).step_by(n_threads) {
                squares += products.get(row) * products.get(row);
            }
            squares = block_sum(squares, &warp_sums, warp, lane);
        }
        let length = math::sqrt(squares) + POWER_EPSILON;
        let mut dot = 0.0;
        for row in (thread..place.n_rows).step_by(n_threads) {
            let next = products.get(row) / length;
            dot += next * products.get(row);
            if first == 0 && squares.is_finite() {
                u.set(place.u_start + row, next);
            }
        }
        let sigma =
            if n_threads == 1 { alone::sigma(&products, length) } else { block_sum(dot, &warp_dots, warp, lane) };
        // A NaN gives 1.
        scale = if squares.is_finite() { 1.0 / (sigma / sigma_max).max(1.0) } else { 1.0 };
    }
    if first == 0 && thread == 0 {
        scales.set(place.number, scale);
    }
    let w = place.weights(&params, &target);
    for at in (first + thread * VECTOR..n.min(first + TILE)).step_by(n_threads * VECTOR) {
        let scaled = w.load::<VECTOR>(at).map(|w| scale * w);
        if place.of_target {
            operand::store4(&target_shadow, place.offset + at, scaled, precision);
        } else {
            operand::store4(&shadow, place.offset + at, scaled, precision);
        }
    }
}

/// The matrix that this block works on.
struct Place {
    /// Number in the list of all networks' matrices.
    number: usize,
    of_target: bool,
    offset: usize,
    n_rows: usize,
    n_cols: usize,
    /// First element of its u, W v.
    u_start: usize,
}

impl Place {
    #[inline(always)]
    fn here(matrices: &GlobalSlice<SpectralMatrix>, all_u_len: usize) -> Self {
        let number = thread::block_idx_y() as usize;
        let of_target = number >= matrices.len();
        let matrix = matrices.get(if of_target { number - matrices.len() } else { number });
        Self {
            number,
            of_target,
            offset: matrix.offset as usize,
            n_rows: matrix.n_rows as usize,
            n_cols: matrix.n_cols as usize,
            u_start: matrix.u_offset as usize + if of_target { all_u_len / 2 } else { 0 },
        }
    }

    #[inline(always)]
    fn weights<'a>(&self, params: &'a GlobalSlice<f32>, target: &'a GlobalSlice<f32>) -> GlobalSlice<'a, f32> {
        let range = self.offset..self.offset + self.n_rows * self.n_cols;
        if self.of_target { target.sub(range) } else { params.sub(range) }
    }

    /// Where the sums over slab `slab` begin in the scratch memory; the grid has as many blocks as a matrix has slabs at most.
    #[inline(always)]
    fn slab(&self, partials_len: usize, n_matrices: usize, slab: usize) -> usize {
        let n_slabs = thread::grid_dim_x() as usize;
        let n_cols = partials_len / (2 * n_matrices * n_slabs);
        (self.number * n_slabs + slab) * n_cols
    }
}

/// The sum over the block's threads, in all of them. Each use needs `warp_sums` of its own.
#[inline(always)]
fn block_sum(value: f32, warp_sums: &SharedSlice<f32>, warp: usize, lane: usize) -> f32 {
    let sum = lanes::all(value, |a, b| a + b);
    if lane == 0 {
        warp_sums.set(warp, sum);
    }
    // Between each warp's write of its sum and everyone's reads of all.
    thread::sync_threads();
    lanes::all(if lane < N_WARPS { warp_sums.get(lane) } else { 0.0 }, |a, b| a + b)
}
