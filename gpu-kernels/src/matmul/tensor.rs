//! Products of bf16 operands on the tensor cores.
//!
//! A block of eight warps makes 128 x 128 of C, a warp 64 x 32 of it. Tiles of A and B, 32 deep, go to shared memory by
//! asynchronous copies of 16 bytes, three tiles in flight. A stored row of a tile is cut into units of 16 bytes, and unit u of row r
//! lies at unit u xor f(r), so that the eight rows that an `ldmatrix` reads lie in different banks.

use cuda_std::prelude::*;
use cuda_std::{cp_async, matrix, mma, shared_array};
use shared_types::{Epilogue, Precision, Product};

use super::epilogue::Results;
use super::{Place, Stored, TENSOR_TILE, place};
use crate::fragments::each;
use crate::lanes;

const TILE: u32 = TENSOR_TILE;
const DEPTH: u32 = 32;
const N_STAGES: u32 = 3;
const N_THREADS: u32 = 256;
/// Elements of an operand's tile.
const TILE_LEN: usize = (TILE * DEPTH) as usize;
/// Elements in 16 bytes.
const UNIT: u32 = 8;
/// Rows and columns of C of one warp.
const WARP_ROWS: u32 = 64;
const WARP_COLUMNS: u32 = 32;
/// Fragments of one warp: of 16 rows, of 8 columns.
const N_ROW_FRAGMENTS: usize = 4;
const N_COLUMN_FRAGMENTS: usize = 4;

/// f32 from a staged row of sums to the next: four more than it has, so that eight rows begin in different banks.
const STAGE_STRIDE: usize = WARP_COLUMNS as usize + 4;
/// f32 that a warp stages at a time: 16 rows.
const STAGE_LEN: usize = 16 * STAGE_STRIDE;
const _: () = assert!(STAGE_LEN * 4 * (N_THREADS as usize / 32) <= TILE_LEN * 2 * N_STAGES as usize);

type Sums = [[[f32; 4]; N_COLUMN_FRAGMENTS]; N_ROW_FRAGMENTS];

macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $a_across:literal, $b_across:literal) => {
        $(#[$doc])*
        ///
        /// Sums in f32, in an order of the tensor core's own: off by at most k 2^-23 sum |a b|. Shapes: products \[any\]; bias, c
        /// and d as the epilogue uses them, else empty; with `n_parts` > 1 the sums' part p goes to C at p `part_len`. Launch:
        /// [`super::matmul_shape`].
        ///
        /// # Safety
        /// `a` and `b` hold what the products name; each stored row is readable up to the next multiple of 8 elements, and
        /// where that passes the length of the sums, A holds zeros there.
        #[kernel(cooperative, conditional, max_threads = 256)]
        pub unsafe fn $name(
            a: *const u16,
            b: *const u16,
            products: GlobalSlice<Product>,
            bias: GlobalSlice<f32>,
            c: GlobalSliceMut<f32>,
            d: GlobalSliceMut<u16>,
            epilogue: Epilogue,
            n_parts: u32,
            part_len: u32,
        ) {
            let Some(at) = place(&products, [TILE; 2], DEPTH, n_parts) else { return };
            let part_offset = at.part as usize * part_len as usize;
            let results = Results { bias: &bias, c: &c, d: &d, epilogue, precision: Precision::Bf16, part_offset };
            // SAFETY: the caller's promise, which is this kernel's own `# Safety`; the whole block calls.
            unsafe { multiply::<$a_across, $b_across>(a, b, &at, &results) }
        }
    };
}

product!(
    /// C = A B^T, A `[m, k]`, B `[n, k]`.
    matmul_nt, false, false
);
product!(
    /// C = A B, A `[m, k]`, B `[k, n]`.
    matmul_nn, false, true
);
product!(
    /// C = A^T B, A `[k, m]`, B `[k, n]`.
    matmul_tn, true, true
);

/// The block's tile of C. `A_ACROSS`: A's stored rows run along m, not along k; `B_ACROSS`: B's along n.
///
/// # Safety
/// As for the kernels; the whole block calls.
#[inline(always)]
unsafe fn multiply<const A_ACROSS: bool, const B_ACROSS: bool>(
    a: *const u16,
    b: *const u16,
    at: &Place,
    results: &Results<'_>,
) {
    let a_tiles = shared_array![u16; TILE_LEN * N_STAGES as usize];
    let b_tiles = shared_array![u16; TILE_LEN * N_STAGES as usize];
    let p = &at.product;
    let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % 32);
    let (warp_row, warp_column) = (thread / 128 * WARP_ROWS, thread / 32 % 4 * WARP_COLUMNS);
    let n_tiles = (at.end - at.start).div_ceil(DEPTH);
    let tile = |tiles: *mut u16, number: u32| tiles.wrapping_add((number % N_STAGES) as usize * TILE_LEN);
    let fetch = |number: u32| {
        if number < n_tiles {
            let start = at.start + number * DEPTH;
            let a = Stored { from: a.wrapping_add(p.a as usize), stride: p.a_stride, end: p.m, sum_end: at.end };
            let b = Stored { from: b.wrapping_add(p.b as usize), stride: p.b_stride, end: p.n, sum_end: at.end };
            // SAFETY: the caller's promise; a tile is written after all warps have read what it held, by the barrier below.
            unsafe {
                a.fetch::<A_ACROSS>(tile(a_tiles, number), at.row, start, thread);
                b.fetch::<B_ACROSS>(tile(b_tiles, number), at.column, start, thread);
            }
        }
        // A group for each tile, empty or not, so that the wait below counts tiles.
        cp_async::commit();
    };
    fetch(0);
    fetch(1);
    let mut sums: Sums = [[[0.0; 4]; N_COLUMN_FRAGMENTS]; N_ROW_FRAGMENTS];
    let mut number = 0;
    while number < n_tiles {
        cp_async::wait_group::<1>();
        // The tile has arrived for all threads, and all warps are done with the one before it.
        thread::sync_threads();
        fetch(number + 2);
        let (a_tile, b_tile) = (tile(a_tiles, number), tile(b_tiles, number));
        // SAFETY: the tiles are in shared memory and complete; the whole warp calls.
        unsafe {
            accumulate::<A_ACROSS, B_ACROSS>(&mut sums, a_tile, b_tile, warp_row, warp_column, 0, lane);
            accumulate::<A_ACROSS, B_ACROSS>(&mut sums, a_tile, b_tile, warp_row, warp_column, 16, lane);
        }
        number += 1;
    }
    cp_async::wait_all();
    // The tiles' memory now takes the sums, once all warps are done with what it held.
    thread::sync_threads();
    let warp = (thread / 32) as usize;
    // SAFETY: the block's own shared memory, aligned to 16 bytes; each warp has its own 16 rows of it.
    let stage = unsafe { SharedSlice::from_raw(a_tiles.cast::<f32>().wrapping_add(warp * STAGE_LEN), STAGE_LEN) };
    each!(I in [0 1 2 3] {
        let (row, column) = (lane as usize / 4, lane as usize % 4 * 2);
        each!(J in [0 1 2 3] {
            let [upper_0, upper_1, lower_0, lower_1] = sums[I][J];
            stage.store(row * STAGE_STRIDE + 8 * J + column, [upper_0, upper_1]);
            stage.store((row + 8) * STAGE_STRIDE + 8 * J + column, [lower_0, lower_1]);
        });
        lanes::sync();
        // Eight lanes a row, so that results leave in whole sectors. A loop: written out, the code would not fit its cache.
        let (mut row, column) = (lane / 8, lane % 8 * 4);
        while row < 16 {
            let row_sums: [f32; 4] = stage.load(row as usize * STAGE_STRIDE + column as usize);
            let place = (at.row + warp_row + 16 * I as u32 + row, at.column + warp_column + column);
            results.put_rows(p, place.0, place.1, [row_sums]);
            row += 4;
        }
        lanes::sync();
    });
}

impl Stored {
    /// Starts this thread's share of the copy of a tile: 128 of m or n from `first`, 32 of k from `start`; zeros outside.
    ///
    /// # Safety
    /// As for the kernels; nobody else touches the tile.
    #[inline(always)]
    unsafe fn fetch<const ACROSS: bool>(&self, tile: *mut u16, first: u32, start: u32, thread: u32) {
        const N_UNITS: u32 = TILE * DEPTH / UNIT;
        for step in 0..N_UNITS / N_THREADS {
            let index = step * N_THREADS + thread;
            let units_a_row = if ACROSS { TILE / UNIT } else { DEPTH / UNIT };
            let (row, unit) = (index / units_a_row, index % units_a_row);
            let (stored_row, stored_column, inside) = if ACROSS {
                (start + row, first + unit * UNIT, start + row < self.sum_end && first + unit * UNIT < self.end)
            } else {
                (first + row, start + unit * UNIT, first + row < self.end && start + unit * UNIT < self.sum_end)
            };
            let from = self.from.wrapping_add(stored_row as usize * self.stride as usize + stored_column as usize);
            // SAFETY: inside the tile; where `inside`, the 16 bytes are readable by the caller's promise, and aligned since
            // offset, stride and column are multiples of 8.
            unsafe {
                let to = tile.add(unit_of::<ACROSS>(row, unit));
                cp_async::copy_or_zero::<16, _>(to, from, inside);
            }
        }
    }
}

/// Where unit `unit` of stored row `row` lies in a tile, in elements.
#[inline(always)]
fn unit_of<const ACROSS: bool>(row: u32, unit: u32) -> usize {
    let at = if ACROSS { row * TILE + (unit ^ (row & 7)) * UNIT } else { row * DEPTH + (unit ^ (row >> 1 & 3)) * UNIT };
    at as usize
}

/// Adds the products of 16 steps of k from `k` on.
///
/// # Safety
/// The tiles are complete, in shared memory; the whole warp calls.
#[inline(always)]
unsafe fn accumulate<const A_ACROSS: bool, const B_ACROSS: bool>(
    sums: &mut Sums,
    a_tile: *const u16,
    b_tile: *const u16,
    warp_row: u32,
    warp_column: u32,
    k: u32,
    lane: u32,
) {
    // Matrices in the order of the fragments' registers: for A (rows 0-7, 8-15) x k 0-7, then x k 8-15; for B two columns'
    // fragments, each k 0-7, 8-15.
    let (low, middle, high) = (lane % 8, lane / 8 % 2, lane / 16);
    let a_fragment = |i: u32| {
        let first = warp_row + 16 * i;
        // SAFETY: an aligned unit of the tile, by `unit_of`; the whole warp calls.
        unsafe {
            if A_ACROSS {
                matrix::load_x4_trans(a_tile.add(unit_of::<true>(k + low + 8 * high, first / UNIT + middle)))
            } else {
                matrix::load_x4(a_tile.add(unit_of::<false>(first + low + 8 * middle, k / UNIT + high)))
            }
        }
    };
    let b_fragments = |j: u32| {
        let first = warp_column + 16 * j;
        // SAFETY: as above.
        unsafe {
            if B_ACROSS {
                matrix::load_x4_trans(b_tile.add(unit_of::<true>(k + low + 8 * middle, first / UNIT + high)))
            } else {
                matrix::load_x4(b_tile.add(unit_of::<false>(first + low + 8 * high, k / UNIT + middle)))
            }
        }
    };
    let [b0, b1, b2, b3] = b_fragments(0);
    let [b4, b5, b6, b7] = b_fragments(1);
    each!(I in [0 1 2 3] {
        let a = a_fragment(I as u32);
        // SAFETY: the whole warp calls.
        unsafe {
            sums[I][0] = mma::m16n8k16_bf16(a, [b0, b1], sums[I][0]);
            sums[I][1] = mma::m16n8k16_bf16(a, [b2, b3], sums[I][1]);
            sums[I][2] = mma::m16n8k16_bf16(a, [b4, b5], sums[I][2]);
            sums[I][3] = mma::m16n8k16_bf16(a, [b6, b7], sums[I][3]);
        }
    });
}
