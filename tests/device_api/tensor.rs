//! Products of small integers, which every precision and order of summation gives exactly.

use cuda_std::shape::LaunchShape;
use cuda_std::{bf16, f16};
use test_kernels::tensor;

use super::{Backend, random_bits, unwritten};

/// Integers in -4..=4.
fn small(seed: u64, n: usize) -> Vec<f32> {
    random_bits(seed).take(n).map(|bits| (bits % 9) as f32 - 4.0).collect()
}

/// Row-major C + A B, A m x k, B k x n.
fn product(a: &[f32], b: &[f32], c: &[f32], k: usize, n: usize) -> Vec<f32> {
    (0..c.len()).map(|at| c[at] + (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f32>()).collect()
}

pub fn mma_16_bits<B: Backend>(backend: &B) {
    let (a, b, c) = (small(43, 256), small(47, 128), small(53, 128));
    let want = product(&a, &b, &c, 16, 8);
    let bits = |values: &[f32], to_bits: fn(f32) -> u16| -> Vec<u16> { values.iter().map(|&v| to_bits(v)).collect() };
    for (name, to_bits) in
        [("bf16", (|v| bf16::from_f32(v).to_bits()) as fn(f32) -> u16), ("f16", |v| f16::from_f32(v).to_bits())]
    {
        let (a, b, c) = (backend.upload(&bits(&a, to_bits)), backend.upload(&bits(&b, to_bits)), backend.upload(&c));
        let d = unwritten(backend, 128, f32::NAN);
        let (a, b, c, out) = (backend.view(&a), backend.view(&b), backend.view(&c), backend.view_mut(&d));
        let launch =
            if name == "f16" { tensor::mma_f16::launch(a, b, c, out) } else { tensor::mma_bf16::launch(a, b, c, out) };
        backend.run(LaunchShape::linear(1, 32), launch).unwrap();
        assert_eq!(backend.read(&d), want, "{name}");
    }
}

pub fn mma_tf32<B: Backend>(backend: &B) {
    let (a, b, c) = (small(59, 128), small(61, 64), small(67, 128));
    let want = product(&a, &b, &c, 8, 8);
    let (a, b, c, d) = (backend.upload(&a), backend.upload(&b), backend.upload(&c), unwritten(backend, 128, f32::NAN));
    let launch = tensor::mma_tf32::launch(backend.view(&a), backend.view(&b), backend.view(&c), backend.view_mut(&d));
    backend.run(LaunchShape::linear(1, 32), launch).unwrap();
    assert_eq!(backend.read(&d), want);
}

pub fn transpose<B: Backend>(backend: &B) {
    let values: Vec<u16> = (0..256).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 256, u16::MAX));
    backend
        .run(
            LaunchShape::linear(1, 32),
            tensor::transpose_matrices::launch(backend.view(&input), backend.view_mut(&out)),
        )
        .unwrap();
    let want: Vec<u16> = (0..256).map(|at| at / 64 * 64 + at % 8 * 8 + at / 8 % 8).collect();
    assert_eq!(backend.read(&out), want);
}

/// In the three forms.
pub fn wgmma<B: Backend>(backend: &B) {
    let (a, b) = (small(71, 64 * 64), small(73, 64 * 128));
    let transposed = |values: &[f32], width: usize| -> Vec<f32> {
        let height = values.len() / width;
        (0..values.len()).map(|at| values[at % height * width + at / height]).collect()
    };
    let want = product(&a, &b, &[0.0; 64 * 128], 64, 128);
    let bits = |values: &[f32]| -> Vec<u16> { values.iter().map(|&v| bf16::from_f32(v).to_bits()).collect() };
    for (form, stored_a, stored_b) in
        [("nt", a.clone(), transposed(&b, 128)), ("nn", a.clone(), b.clone()), ("tn", transposed(&a, 64), b.clone())]
    {
        let (a, b) = (backend.upload(&bits(&stored_a)), backend.upload(&bits(&stored_b)));
        let d = unwritten(backend, 64 * 128, f32::NAN);
        let (a, b, out) = (backend.view(&a), backend.view(&b), backend.view_mut(&d));
        let launch = match form {
            "nt" => tensor::wgmma_bf16::launch(a, b, out),
            "nn" => tensor::wgmma_bf16_nn::launch(a, b, out),
            _ => tensor::wgmma_bf16_tn::launch(a, b, out),
        };
        backend.run(LaunchShape::linear(1, 128).with_shared(24_576), launch).unwrap();
        let got = backend.read(&d);
        let wrong: Vec<usize> = (0..want.len()).filter(|&at| got[at] != want[at]).collect();
        let shown: Vec<_> = wrong.iter().take(8).map(|&at| (at / 128, at % 128, got[at], want[at])).collect();
        assert!(
            wrong.is_empty(),
            "{form}: {} of {} wrong; (row, column, got, want): {shown:?}",
            wrong.len(),
            want.len()
        );
    }
}
