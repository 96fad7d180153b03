//! Products of f32 operands by multiply-adds, for parity.

use cuda_std::prelude::*;
use cuda_std::shared_slice;
use shared_types::{Epilogue, Precision, Product, ProductForm};

use super::epilogue::Results;
use super::{PLAIN_TILE, place};
use crate::{operand, sweep};

const TILE: usize = PLAIN_TILE as usize;
const DEPTH: usize = 16;
const N_THREADS: usize = 256;
/// Rows and columns of C of one thread.
const EACH: usize = 4;
/// Threads beside each other in a row of the tile.
const ACROSS: usize = TILE / EACH;

/// C = A B of f32 operands in any form. Sums over k in ascending order, in f32 with fused multiply-adds: off by at most
/// k 2^-24 sum |a b|.
///
/// Shapes as for [`super::matmul_nt()`], operands of two words. Launch: [`super::matmul_f32_shape`].
#[kernel(cooperative, conditional, max_threads = 256)]
pub fn matmul_f32(
    a: GlobalSlice<u16>,
    b: GlobalSlice<u16>,
    products: GlobalSlice<Product>,
    bias: GlobalSlice<f32>,
    c: GlobalSliceMut<f32>,
    d: GlobalSliceMut<u16>,
    form: ProductForm,
    epilogue: Epilogue,
    n_parts: u32,
    part_len: u32,
) {
    let Some(at) = place(&products, [PLAIN_TILE; 2], DEPTH as u32, n_parts) else { return };
    let p = at.product;
    let (a_tile, b_tile) = (shared_slice![f32; DEPTH * TILE], shared_slice![f32; DEPTH * TILE]);
    let thread = thread::thread_idx_x() as usize;
    let (own_row, own_column) = (thread / ACROSS * EACH, thread % ACROSS * EACH);
    let mut sums = [[0.0f32; EACH]; EACH];
    let mut start = at.start;
    while start < at.end {
        for step in 0..DEPTH * TILE / N_THREADS {
            // Neighbouring threads read neighbouring addresses: along k where that is the stored row, else across.
            let index = step * N_THREADS + thread;
            let along = (index % DEPTH, index / DEPTH);
            let across = (index / TILE, index % TILE);
            let (k, row) = if matches!(form, ProductForm::Tn) { across } else { along };
            let (m, deep) = (at.row + row as u32, start + k as u32);
            let place = if matches!(form, ProductForm::Tn) { (deep, m) } else { (m, deep) };
            let inside = m < p.m && deep < at.end;
            a_tile.set(k * TILE + row, element(&a, p.a, p.a_stride, place, inside));
            let (k, column) = if matches!(form, ProductForm::Nt) { along } else { across };
            let (n, deep) = (at.column + column as u32, start + k as u32);
            let place = if matches!(form, ProductForm::Nt) { (n, deep) } else { (deep, n) };
            let inside = n < p.n && deep < at.end;
            b_tile.set(k * TILE + column, element(&b, p.b, p.b_stride, place, inside));
        }
        thread::sync_threads();
        for k in 0..DEPTH {
            let left: [f32; EACH] = a_tile.load(k * TILE + own_row);
            let right: [f32; EACH] = b_tile.load(k * TILE + own_column);
            sweep::unrolled::<EACH>(|i| {
                sums[i] = core::array::from_fn(|j| left[i].mul_add(right[j], sums[i][j]));
            });
        }
        // Before the next tile overwrites this one.
        thread::sync_threads();
        start += DEPTH as u32;
    }
    let part_offset = at.part as usize * part_len as usize;
    let results = Results { bias: &bias, c: &c, d: &d, epilogue, precision: Precision::F32, part_offset };
    results.put_rows(&p, at.row + own_row as u32, at.column + own_column as u32, sums);
}

/// Element (row, column) of a stored matrix, 0 outside.
#[inline(always)]
fn element(matrix: &GlobalSlice<u16>, first: u32, stride: u32, (row, column): (u32, u32), inside: bool) -> f32 {
    if inside {
        operand::load(matrix, first as usize + row as usize * stride as usize + column as usize, Precision::F32)
    } else {
        0.0
    }
}
