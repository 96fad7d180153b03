//! Products of bf16 operands by warpgroups (`wgmma`), for Hopper alone.
//!
//! A block of two warpgroups makes 128 x 128 or 128 x 256 of C, a warpgroup 64 rows of it. Tiles of A and B, 64 deep, go to
//! dynamic shared memory by asynchronous copies of 16 bytes, the next two always under way. A tile is cut into panels of
//! stored rows of 128 bytes: all of its m or n by 64 of k, or, where the operand is stored along m or n, 64 of those by 64 of
//! k. Unit u of 16 bytes of row r lies at unit u xor r mod 8: the 128-byte swizzle, as which the tensor cores read it.

use cuda_std::prelude::*;
use cuda_std::shared::dynamic_shared_mem;
use cuda_std::wgmma::{self, Descriptor, Swizzle};
use cuda_std::{bulk, cp_async};
use shared_types::{Epilogue, Precision, Product};

use super::epilogue::Results;
use super::{Place, Stored, TENSOR_TILE, WGMMA_DEPTH, WgmmaTile, place};
use crate::fragments::each;
use crate::lanes;

const ROWS: u32 = TENSOR_TILE;
const DEPTH: u32 = WGMMA_DEPTH;
const N_THREADS: u32 = 256;
/// Elements in 16 bytes, in a stored row of a tile, and in 64 of them.
const UNIT: u32 = 8;
const ROW: u32 = 64;
const PANEL: u32 = 64 * ROW;
/// Bytes from eight rows to the next, and from a panel to the next.
const GROUP_STRIDE: u32 = 8 * ROW * 2;
const PANEL_STRIDE: u32 = PANEL * 2;
/// Rows of C of one warp.
const WARP_ROWS: u32 = 16;

/// A thread's accumulators of its warpgroup's rows of C.
trait Sums {
    const TILE: WgmmaTile;
    const COLUMNS: u32 = Self::TILE.columns();
    /// f32 from a staged row to the next: eight more than it has, so that four rows begin in different banks.
    const STAGE_STRIDE: usize = Self::COLUMNS as usize + 8;
    /// f32 that a warp stages.
    const STAGE_LEN: usize = WARP_ROWS as usize * Self::STAGE_STRIDE;
    const ZERO: Self;

    /// Adds the product of 16 steps of k.
    ///
    /// # Safety
    /// As for the products of [`wgmma`].
    unsafe fn add<const A_ACROSS: bool, const B_ACROSS: bool>(
        &mut self,
        a: Descriptor<A_ACROSS>,
        b: Descriptor<B_ACROSS>,
    );

    /// Writes the warp's rows to `stage`.
    fn stage(&self, stage: &SharedSlice<f32>, lane: u32);
}

macro_rules! sums {
    ($n:literal, $tile:ident, $product:ident, [$($j:literal)*]) => {
        impl Sums for [f32; $n] {
            const TILE: WgmmaTile = WgmmaTile::$tile;
            const ZERO: Self = [0.0; $n];

            #[inline(always)]
            unsafe fn add<const A_ACROSS: bool, const B_ACROSS: bool>(
                &mut self,
                a: Descriptor<A_ACROSS>,
                b: Descriptor<B_ACROSS>,
            ) {
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                unsafe { wgmma::$product(self, a, b, true) }
            }

            #[inline(always)]
            fn stage(&self, stage: &SharedSlice<f32>, lane: u32) {
                let (row, column) = (lane as usize / 4, lane as usize % 4 * 2);
                // The places are those of `wgmma::place`.
                each!(J in [$($j)*] {
                    stage.store(row * Self::STAGE_STRIDE + 8 * J + column, [self[4 * J], self[4 * J + 1]]);
                    stage.store((row + 8) * Self::STAGE_STRIDE + 8 * J + column, [self[4 * J + 2], self[4 * J + 3]]);
                });
            }
        }

        const _: () = assert!(
            <[f32; $n] as Sums>::STAGE_LEN * 4 * (N_THREADS as usize / 32) <= WgmmaTile::$tile.shared_bytes() as usize,
        );
    };
}

sums!(64, Columns128, m64n128k16_bf16, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
sums!(128, Columns256, m64n256k16_bf16, [
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
]);

macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $sums:ty, $a_across:literal, $b_across:literal, $min_blocks:tt) => {
        $(#[$doc])*
        ///
        /// Sums, shapes and arguments as for [`super::matmul_nt()`]. Launch: [`super::matmul_wgmma_shape`].
        ///
        /// # Safety
        /// As for [`super::matmul_nt()`].
        #[kernel(cooperative, conditional, max_threads = 256, min_blocks = $min_blocks)]
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
            let columns = <$sums as Sums>::COLUMNS;
            let Some(at) = place(&products, [ROWS, columns], DEPTH, n_parts) else { return };
            let part_offset = at.part as usize * part_len as usize;
            let results = Results { bias: &bias, c: &c, d: &d, epilogue, precision: Precision::Bf16, part_offset };
            // SAFETY: the caller's promise, which is this kernel's own `# Safety`; the whole block calls.
            unsafe { multiply::<$sums, $a_across, $b_across>(a, b, &at, &results) }
        }
    };
}

product!(
    /// C = A B^T, A `[m, k]`, B `[n, k]`, by tiles of 128 columns.
    matmul_nt_wgmma_128, [f32; 64], false, false, 2
);
product!(
    /// C = A B^T, A `[m, k]`, B `[n, k]`, by tiles of 256 columns.
    matmul_nt_wgmma_256, [f32; 128], false, false, 1
);
product!(
    /// C = A B, A `[m, k]`, B `[k, n]`, by tiles of 128 columns.
    matmul_nn_wgmma_128, [f32; 64], false, true, 2
);
product!(
    /// C = A B, A `[m, k]`, B `[k, n]`, by tiles of 256 columns.
    matmul_nn_wgmma_256, [f32; 128], false, true, 1
);
product!(
    /// C = A^T B, A `[k, m]`, B `[k, n]`, by tiles of 128 columns.
    matmul_tn_wgmma_128, [f32; 64], true, true, 2
);
product!(
    /// C = A^T B, A `[k, m]`, B `[k, n]`, by tiles of 256 columns.
    matmul_tn_wgmma_256, [f32; 128], true, true, 1
);

/// The block's tile of C. `A_ACROSS`: A's stored rows run along m, not along k; `B_ACROSS`: B's along n.
///
/// # Safety
/// As for the kernels; the whole block calls.
#[inline(always)]
unsafe fn multiply<S: Sums, const A_ACROSS: bool, const B_ACROSS: bool>(
    a: *const u16,
    b: *const u16,
    at: &Place,
    results: &Results<'_>,
) {
    let p = &at.product;
    let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % 32);
    let (a_len, b_len) = ((ROWS * DEPTH) as usize, (S::COLUMNS * DEPTH) as usize);
    let a_tiles = dynamic_shared_mem::<u16>();
    let b_tiles = a_tiles.wrapping_add(S::TILE.n_stages() as usize * a_len);
    let stage = |number: u32| (number % S::TILE.n_stages()) as usize;
    let a = Stored { from: a.wrapping_add(p.a as usize), stride: p.a_stride, end: p.m, sum_end: at.end };
    let b = Stored { from: b.wrapping_add(p.b as usize), stride: p.b_stride, end: p.n, sum_end: at.end };
    let a = Share::<A_ACROSS>::new(&a, ROWS, at.row, at.start, thread);
    let b = Share::<B_ACROSS>::new(&b, S::COLUMNS, at.column, at.start, thread);
    let n_tiles = (at.end - at.start).div_ceil(DEPTH);
    let fetch = |number: u32| {
        if number < n_tiles {
            // SAFETY: the caller's promise; what the tile held was read by all products, as the loop below says.
            unsafe {
                a.fetch(a_tiles.wrapping_add(stage(number) * a_len), number);
                b.fetch(b_tiles.wrapping_add(stage(number) * b_len), number);
            }
        }
        // A group for each tile, empty or not, so that the wait below counts tiles.
        cp_async::commit();
    };
    fetch(0);
    fetch(1);
    let mut sums = S::ZERO;
    let mut number = 0;
    if n_tiles > 0 {
        while number < n_tiles {
            cp_async::wait_group::<1>();
            // The copies are ordinary stores, which the tensor cores see after this.
            bulk::fence_shared();
            // The tile has arrived for all threads, and all warpgroups are done with the tile before the last one, or with
            // three stages with the last one: the tile that the copies below overwrite.
            thread::sync_threads();
            let a_tile = a_tiles.wrapping_add(stage(number) * a_len + (thread / 128 * PANEL) as usize).cast_const();
            let b_tile = b_tiles.wrapping_add(stage(number) * b_len).cast_const();
            let (a_step, b_step) = (step::<A_ACROSS>(), step::<B_ACROSS>());
            // SAFETY: the tiles are complete, in shared memory, aligned to 1,024 bytes, laid out as the descriptors say, and not
            // written before the wait; the whole warpgroup calls.
            unsafe {
                let a = Descriptor::<A_ACROSS>::new(a_tile, PANEL_STRIDE, GROUP_STRIDE, Swizzle::Bytes128);
                let b = Descriptor::<B_ACROSS>::new(b_tile, PANEL_STRIDE, GROUP_STRIDE, Swizzle::Bytes128);
                wgmma::fence();
                sums.add(a, b);
                sums.add(a.advanced(a_step), b.advanced(b_step));
                sums.add(a.advanced(2 * a_step), b.advanced(2 * b_step));
                sums.add(a.advanced(3 * a_step), b.advanced(3 * b_step));
                wgmma::commit_group();
            }
            fetch(number + 2);
            // SAFETY: the whole warpgroup calls.
            unsafe {
                if S::TILE.n_stages() == 3 {
                    wgmma::wait_group::<0>();
                } else {
                    wgmma::wait_group::<1>();
                }
            }
            number += 1;
        }
        // In this branch, so that no copy of the accumulators for where it ends stands before the wait.
        // SAFETY: the whole warpgroup calls.
        unsafe { wgmma::wait_group::<0>() };
    }
    cp_async::wait_all();
    // The tiles' memory now takes the sums, once all warpgroups are done with what it held.
    thread::sync_threads();
    let warp = thread / 32;
    let stage = SharedSlice::dynamic(warp as usize * S::STAGE_LEN * 4, S::STAGE_LEN);
    sums.stage(&stage, lane);
    lanes::sync();
    // A warp a row, so that results leave in whole sectors. Loops: written out, the code would not fit its cache.
    let mut column = lane * 4;
    while column < S::COLUMNS {
        let mut row = 0;
        while row < WARP_ROWS {
            let rows: [[f32; 4]; 4] =
                core::array::from_fn(|i| stage.load((row as usize + i) * S::STAGE_STRIDE + column as usize));
            results.put_rows(p, at.row + warp * WARP_ROWS + row, at.column + column, rows);
            row += 4;
        }
        column += 128;
    }
}

/// Bytes from 16 steps of k to the next in a tile.
#[inline(always)]
const fn step<const ACROSS: bool>() -> u32 {
    if ACROSS { 2 * GROUP_STRIDE } else { 32 }
}

/// A thread's share of the copies of an operand's tiles: a unit in every so many stored rows.
struct Share<const ACROSS: bool> {
    /// The first one of the first tile.
    from: *const u16,
    stride: usize,
    /// Its stored row and column, and where those end.
    row: u32,
    column: u32,
    row_end: u32,
    column_end: u32,
    /// Where it goes in a tile, elements.
    to: usize,
    /// m or n of a tile.
    extent: u32,
}

impl<const ACROSS: bool> Share<ACROSS> {
    /// Of tiles of `extent` of m or n from `first`, and of k from `start`.
    #[inline(always)]
    fn new(stored: &Stored, extent: u32, first: u32, start: u32, thread: u32) -> Self {
        let units_a_row = if ACROSS { extent / UNIT } else { DEPTH / UNIT };
        let (row, unit) = (thread / units_a_row, thread % units_a_row);
        let to = unit / 8 * PANEL + row * ROW + ((unit % 8) ^ (row % 8)) * UNIT;
        let (row, column, row_end, column_end) = if ACROSS {
            (start + row, first + unit * UNIT, stored.sum_end, stored.end)
        } else {
            (first + row, start + unit * UNIT, stored.end, stored.sum_end)
        };
        let stride = stored.stride as usize;
        let from = stored.from.wrapping_add(row as usize * stride + column as usize);
        Self { from, stride, row, column, row_end, column_end, to: to as usize, extent }
    }

    /// Starts the share of the copy of tile `number`; zeros outside of the operand.
    ///
    /// # Safety
    /// As for the kernels; nobody else touches the tile.
    #[inline(always)]
    unsafe fn fetch(&self, tile: *mut u16, number: u32) {
        // A multiple of 8, so that the swizzle is the same in all rows of a thread.
        let rows_apart = if ACROSS { N_THREADS * UNIT / self.extent } else { N_THREADS * UNIT / DEPTH };
        let along = number * DEPTH;
        let (row, column) = if ACROSS { (self.row + along, self.column) } else { (self.row, self.column + along) };
        let from = self.from.wrapping_add(if ACROSS { along as usize * self.stride } else { along as usize });
        for i in 0..self.extent * DEPTH / (N_THREADS * UNIT) {
            let down = i * rows_apart;
            let inside = row + down < self.row_end && column < self.column_end;
            let from = from.wrapping_add(down as usize * self.stride);
            // SAFETY: inside the tile; where `inside`, the 16 bytes are readable by the caller's promise, and aligned since
            // offset, stride and column are multiples of 8.
            unsafe { cp_async::copy_or_zero::<16, _>(tile.add(self.to + (down * ROW) as usize), from, inside) };
        }
    }
}
