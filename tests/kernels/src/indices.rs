//! Where threads stand, and barriers that count.

use cuda_std::prelude::*;

/// Each thread writes 20 values at 20 times its index in the grid: thread, block, block size, grid size (x, y, z each),
/// `index_1d`, `index_2d` (2), `index_3d` (3), `first`, the warp's size.
#[kernel]
pub fn thread_indices(out: GlobalSliceMut<u32>) {
    let (plane, volume) = (thread::index_2d(), thread::index_3d());
    let values = [
        thread::thread_idx_x(),
        thread::thread_idx_y(),
        thread::thread_idx_z(),
        thread::block_idx_x(),
        thread::block_idx_y(),
        thread::block_idx_z(),
        thread::block_dim().x,
        thread::block_dim().y,
        thread::block_dim().z,
        thread::grid_dim().x,
        thread::grid_dim().y,
        thread::grid_dim().z,
        thread::index_1d(),
        plane.x,
        plane.y,
        volume.x,
        volume.y,
        volume.z,
        thread::first() as u32,
        thread::warp_size(),
    ];
    crate::put_rows(&out, 20 * thread::index() as usize, 1, values);
}

/// Barriers that count, over one block: rows count, and, or of one value a thread.
#[kernel(cooperative)]
pub fn counting_barriers(predicates: GlobalSlice<u32>, out: GlobalSliceMut<u32>) {
    let (thread, n) = (thread::thread_idx_x() as usize, thread::block_dim_x() as usize);
    let predicate = predicates.get(thread);
    out.set(thread, thread::sync_threads_count(predicate));
    out.set(n + thread, (thread::sync_threads_and(predicate) != 0) as u32);
    out.set(2 * n + thread, (thread::sync_threads_or(predicate) != 0) as u32);
}
