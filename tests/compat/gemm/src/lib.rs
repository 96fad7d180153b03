//! A matrix product through tiles in shared memory, two-dimensional indices and structs by value.

use cuda_std::prelude::*;
use cuda_std::{address_space, gpu_only, shared_array, vek::Vec2};

const TILE: usize = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// One element a thread, C = alpha A B + beta C, all row-major.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc, clippy::too_many_arguments)]
pub unsafe fn gemm_naive(a: &[f32], b: &[f32], c: *mut f32, shape: Shape, alpha: f32, beta: f32) {
    let i: Vec2<u32> = thread::index_2d();
    let (row, col) = (i.y as usize, i.x as usize);
    if row < shape.m && col < shape.n {
        let mut sum = 0.0f32;
        for k in 0..shape.k {
            sum += a[row * shape.k + k] * b[k * shape.n + col];
        }
        let at = row * shape.n + col;
        *c.add(at) = alpha * sum + beta * *c.add(at);
    }
}

/// The same through shared memory: each block brings one tile of A and of B at a time.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc, clippy::too_many_arguments)]
pub unsafe fn gemm_tiled(a: &[f32], b: &[f32], c: *mut f32, m: usize, n: usize, k: usize, alpha: f32, beta: f32) {
    let tile_a = shared_array![f32; TILE * TILE];
    let tile_b = shared_array![f32; TILE * TILE];
    let (tx, ty) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let row = thread::block_idx_y() as usize * TILE + ty;
    let col = thread::block_idx_x() as usize * TILE + tx;
    let mut sum = 0.0f32;
    for start in (0..k).step_by(TILE) {
        let own = ty * TILE + tx;
        *tile_a.add(own) = if row < m && start + tx < k { a[row * k + start + tx] } else { 0.0 };
        *tile_b.add(own) = if start + ty < k && col < n { b[(start + ty) * n + col] } else { 0.0 };
        thread::sync_threads();
        for i in 0..TILE {
            sum += *tile_a.add(ty * TILE + i) * *tile_b.add(i * TILE + tx);
        }
        thread::sync_threads();
    }
    if row < m && col < n {
        let elem = &mut *c.add(row * n + col);
        *elem = alpha * sum + beta * *elem;
    }
}

#[address_space(shared)]
static mut ROW: core::mem::MaybeUninit<[f64; 32]> = core::mem::MaybeUninit::uninit();

#[gpu_only]
fn scale(value: f64) -> f64 {
    value.sqrt().mul_add(2.0, 1.0)
}

/// A static in shared memory, math through `GpuFloat`, and what the prelude brings of `alloc`.
#[kernel]
#[allow(clippy::missing_safety_doc, static_mut_refs)]
pub unsafe fn rotate(values: *mut f64) {
    let lane = thread::thread_idx_x() as usize;
    ROW.as_mut_ptr().cast::<f64>().add(lane).write(scale(*values.add(lane)));
    thread::sync_threads();
    let boxed = Box::new(ROW.assume_init_ref()[(lane + 1) % 32]);
    let all: Vec<f64> = Vec::from([*boxed; 2]);
    *values.add(lane) = all[0] + all[1];
    if thread::first() {
        println!("rotated {} values, the first is {}", 32, *values);
    }
}
