//! Copies: what comes out is what went in, or its stated function.

use cuda_std::shape::LaunchShape;
use test_kernels::copies;

use super::{Backend, unwritten};

fn vectors_of(n: usize) -> Vec<[f32; 4]> {
    (0..n).map(|i| [0, 1, 2, 3].map(|j| (4 * i + j) as f32)).collect()
}

pub fn vectors<B: Backend>(backend: &B) {
    let values = vectors_of(77);
    let (source, target) = (backend.upload(&values), unwritten(backend, 78, [f32::MAX; 4]));
    // SAFETY: both hold 77 vectors.
    let launch = unsafe { copies::copy_vectors::launch(backend.ptr(&source), backend.ptr_mut(&target), 77) };
    backend.run(LaunchShape::cover(77, 32), launch).unwrap();
    let mut want = values;
    want.push([f32::MAX; 4]);
    assert_eq!(backend.read(&target), want);
}

pub fn asynchronous<B: Backend>(backend: &B) {
    let values = vectors_of(64);
    let (source, target) = (backend.upload(&values), unwritten(backend, 64, [f32::MAX; 4]));
    // SAFETY: both hold 64 vectors.
    let launch = unsafe { copies::copy_asynchronously::launch(backend.ptr(&source), backend.ptr_mut(&target)) };
    backend.run(LaunchShape::linear(1, 32), launch).unwrap();
    let first = (0..32).rev().map(|i| if i % 2 == 0 { values[i] } else { [0.0; 4] });
    let want: Vec<_> = first.chain(values[32..].iter().rev().copied()).collect();
    assert_eq!(backend.read(&target), want);
}

pub fn barrier<B: Backend>(backend: &B) {
    let values: Vec<u32> = (1..=50).collect();
    let (input, sums) = (backend.upload(&values), unwritten(backend, 2, u32::MAX));
    let launch = copies::barrier_in_shared_memory::launch(backend.view(&input), backend.view_mut(&sums));
    backend.run(LaunchShape::linear(1, 50), launch).unwrap();
    let squares: u32 = values.iter().map(|v| v * v).sum();
    assert_eq!(backend.read(&sums), [squares, 4 * squares]);
}

pub fn bulk<B: Backend>(backend: &B) {
    let values: Vec<f32> = (0..512).map(|i| i as f32 - 100.0).collect();
    let (source, target) = (backend.upload(&values), unwritten(backend, 512, f32::NAN));
    // SAFETY: both hold 512 values.
    let launch = unsafe { copies::copy_in_bulk::launch(backend.ptr(&source), backend.ptr_mut(&target)) };
    backend.run(LaunchShape::linear(1, 256), launch).unwrap();
    assert_eq!(backend.read(&target), values.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
}
