//! Products on the tensor cores and the loads and stores that feed them.

use cuda_std::prelude::*;
use cuda_std::{matrix, mma, shared_array, warp};

/// D = A B + C of one warp, A 16x16 and B 16x8 row-major bf16, C 16x8 f32, fragments from `ldmatrix`.
#[kernel(cooperative)]
pub fn mma_bf16(a: GlobalSlice<u16>, b: GlobalSlice<u16>, c: GlobalSlice<f32>, d: GlobalSliceMut<f32>) {
    // SAFETY: one warp, all of which comes here.
    unsafe { mma_16_bits(&a, &b, &c, &d, mma::m16n8k16_bf16) }
}

/// The same of f16.
#[kernel(cooperative)]
pub fn mma_f16(a: GlobalSlice<u16>, b: GlobalSlice<u16>, c: GlobalSlice<f32>, d: GlobalSliceMut<f32>) {
    // SAFETY: one warp, all of which comes here.
    unsafe { mma_16_bits(&a, &b, &c, &d, mma::m16n8k16_f16) }
}

/// # Safety
/// The whole warp calls, and is its block.
#[inline(always)]
unsafe fn mma_16_bits(
    a: &GlobalSlice<u16>,
    b: &GlobalSlice<u16>,
    c: &GlobalSlice<f32>,
    d: &GlobalSliceMut<f32>,
    product: unsafe fn([u32; 4], [u32; 2], [f32; 4]) -> [f32; 4],
) {
    let lane = warp::lane_id();
    let (a_tile, b_tile) = (shared_array![[u16; 16]; 16], shared_array![[u16; 8]; 16]);
    // SAFETY: each lane writes its own elements; `sync_warp` separates them from the loads of others. Row r of a matrix of
    // `a` starts at an even multiple of eight elements, that is, at 16 bytes.
    unsafe {
        for index in (lane as usize..256).step_by(32) {
            (*a_tile.add(index / 16))[index % 16] = a.get(index);
        }
        for index in (lane as usize..128).step_by(32) {
            (*b_tile.add(index / 8))[index % 8] = b.get(index);
        }
        warp::sync_warp(warp::FULL_MASK);
        // Matrices 0 and 1 are the upper and lower rows of the left half of A, 2 and 3 of the right half.
        let (row, half) = (lane as usize % 16, lane as usize / 16);
        let a_fragment = matrix::load_x4((a_tile.add(row) as *const u16).add(8 * half));
        let b_fragment = matrix::load_x2_trans(b_tile.add(row).cast_const());
        let places = [0, 1, 2, 3].map(|i| {
            let (row, column) = mma::c(lane, i);
            (row * 8 + column) as usize
        });
        let result = product(a_fragment, b_fragment, places.map(|at| c.get(at)));
        d.set(places[0], result[0]);
        d.set(places[1], result[1]);
        d.set(places[2], result[2]);
        d.set(places[3], result[3]);
    }
}

/// D = A B + C of one warp, A 16x8 and B 8x8 row-major f32 taken as tf32, C 16x8.
#[kernel(cooperative)]
pub fn mma_tf32(a: GlobalSlice<f32>, b: GlobalSlice<f32>, c: GlobalSlice<f32>, d: GlobalSliceMut<f32>) {
    let lane = warp::lane_id();
    let at = |(row, column): (u32, u32)| (row * 8 + column) as usize;
    let a_fragment = [0, 1, 2, 3].map(|i| a.get(at(mma::a_tf32(lane, i))).to_bits());
    let b_fragment = [0, 1].map(|i| b.get(at(mma::b_tf32(lane, i))).to_bits());
    let places = [0, 1, 2, 3].map(|i| at(mma::c(lane, i)));
    // SAFETY: the whole warp comes here.
    let result = unsafe { mma::m16n8k8_tf32(a_fragment, b_fragment, places.map(|at| c.get(at))) };
    d.set(places[0], result[0]);
    d.set(places[1], result[1]);
    d.set(places[2], result[2]);
    d.set(places[3], result[3]);
}

/// Four 8x8 matrices of 16-bit elements go through `ldmatrix` and come back transposed through `stmatrix`: 32 rows of 8.
#[kernel(cooperative)]
pub fn transpose_matrices(values: GlobalSlice<u16>, out: GlobalSliceMut<u16>) {
    let lane = warp::lane_id() as usize;
    let (from, to) = (shared_array![[u16; 8]; 32], shared_array![[u16; 8]; 32]);
    // SAFETY: each lane writes and gives out its own row; `sync_warp` and the operations themselves separate.
    unsafe {
        for column in 0..8 {
            (*from.add(lane))[column] = values.get(8 * lane + column);
        }
        warp::sync_warp(warp::FULL_MASK);
        let fragments = matrix::load_x4(from.add(lane).cast_const());
        matrix::store_x4_trans(to.add(lane), fragments);
        warp::sync_warp(warp::FULL_MASK);
        for column in 0..8 {
            out.set(8 * lane + column, (*to.add(lane))[column]);
        }
    }
}

/// D = A B^T of one warpgroup, A 64x64 and B 128x64, row-major bf16 in tiles folded by the 128-byte swizzle: four products of
/// k = 16. Dynamic shared memory: 24,576 bytes.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
#[kernel(cooperative, max_threads = 128)]
pub fn wgmma_bf16(a: GlobalSlice<u16>, b: GlobalSlice<u16>, d: GlobalSliceMut<f32>) {
    // SAFETY: one warpgroup, all of which comes here.
    unsafe { wgmma_64x128x64::<false, false>(&a, &b, &d) }
}

/// The same of D = A B, B stored 64x128.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
#[kernel(cooperative, max_threads = 128)]
pub fn wgmma_bf16_nn(a: GlobalSlice<u16>, b: GlobalSlice<u16>, d: GlobalSliceMut<f32>) {
    // SAFETY: one warpgroup, all of which comes here.
    unsafe { wgmma_64x128x64::<false, true>(&a, &b, &d) }
}

/// The same of D = A^T B, A stored 64x64 and B 64x128.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
#[kernel(cooperative, max_threads = 128)]
pub fn wgmma_bf16_tn(a: GlobalSlice<u16>, b: GlobalSlice<u16>, d: GlobalSliceMut<f32>) {
    // SAFETY: one warpgroup, all of which comes here.
    unsafe { wgmma_64x128x64::<true, true>(&a, &b, &d) }
}

/// # Safety
/// The whole warpgroup calls, and is its block.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
#[inline(always)]
unsafe fn wgmma_64x128x64<const A_ACROSS: bool, const B_ACROSS: bool>(
    a: &GlobalSlice<u16>,
    b: &GlobalSlice<u16>,
    d: &GlobalSliceMut<f32>,
) {
    use cuda_std::wgmma::{self, Descriptor, Swizzle};
    let thread = thread::thread_idx_x();
    let a_tile = cuda_std::shared::dynamic_shared_mem::<u16>();
    let b_tile = a_tile.wrapping_add(64 * 64);
    // A tile is panels of 64 rows of 128 bytes. Element (row, column): unit column / 8 of 16 bytes goes to the unit of that
    // number xor row mod 8.
    let folded = |row: usize, column: usize| row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8;
    // SAFETY: each thread writes its own elements; the fence and the block's barrier separate them from the products. The
    // tiles are aligned to 1,024 bytes, eight rows; the whole warpgroup takes part.
    unsafe {
        for index in (thread as usize..64 * 64).step_by(128) {
            a_tile.add(folded(index / 64, index % 64)).write(a.get(index));
        }
        for index in (thread as usize..128 * 64).step_by(128) {
            let (row, column, panel) =
                if B_ACROSS { (index / 128, index % 64, index / 64 % 2) } else { (index / 64, index % 64, 0) };
            b_tile.add(panel * 64 * 64 + folded(row, column)).write(b.get(index));
        }
        cuda_std::bulk::fence_shared();
        thread::sync_threads();
        let mut sums = [0f32; 64];
        let a = Descriptor::<A_ACROSS>::new(a_tile.cast_const(), 8192, 1024, Swizzle::Bytes128);
        let b = Descriptor::<B_ACROSS>::new(b_tile.cast_const(), 8192, 1024, Swizzle::Bytes128);
        let (a_step, b_step) = (if A_ACROSS { 2048 } else { 32 }, if B_ACROSS { 2048 } else { 32 });
        wgmma::fence();
        wgmma::m64n128k16_bf16(&mut sums, a, b, false);
        wgmma::m64n128k16_bf16(&mut sums, a.advanced(a_step), b.advanced(b_step), true);
        wgmma::m64n128k16_bf16(&mut sums, a.advanced(2 * a_step), b.advanced(2 * b_step), true);
        wgmma::m64n128k16_bf16(&mut sums, a.advanced(3 * a_step), b.advanced(3 * b_step), true);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        let _: [(); 64] = core::array::from_fn(|i| {
            let (row, column) = wgmma::place(thread, i as u32);
            d.set((row * 128 + column) as usize, sums[i]);
        });
    }
}
