//! Clocks, and the crates that `cuda_std` hands on.

use cuda_std::shape::LaunchShape;
use test_kernels::reexports;

use super::{Backend, unwritten};

/// The cycle counter moves forward, and neither clock jumps: a minute of either would be a unit mistaken.
pub fn clocks<B: Backend>(backend: &B) {
    let out = unwritten(backend, 128, u64::MAX);
    backend.run(LaunchShape::linear(2, 32), reexports::clocks::launch(backend.view_mut(&out))).unwrap();
    for pair in backend.read(&out).chunks(2) {
        assert!(pair[0] > 0 && pair[0] < 1 << 40 && pair[1] < 60_000_000_000, "{pair:?}");
    }
}

/// Small whole numbers and powers of two, so that every result is exact, in whatever order it is summed.
pub fn glam_and_vek<B: Backend>(backend: &B) {
    let points: Vec<[f32; 3]> = (0..100).map(|i| [i as f32, (7 * i % 31) as f32 - 15.0, -(i as f32)]).collect();
    let n = points.len();
    let (input, out) = (backend.upload(&points), unwritten(backend, 3 * n, [f32::NAN; 3]));
    let launch = reexports::transform::launch(backend.view(&input), backend.view_mut(&out));
    backend.run(LaunchShape::cover(n, 32), launch).unwrap();
    let got = backend.read(&out);
    for (i, &[x, y, z]) in points.iter().enumerate() {
        assert_eq!(got[i], [2.0 * x + 1.0, 4.0 * y - 2.0, 0.5 * z + 3.0], "{x} {y} {z}");
        assert_eq!(got[n + i], [x, y, z]);
        let cross = [y - z, z - x, x - y];
        assert_eq!(got[2 * n + i], [4.0, x + y + z, cross.iter().map(|c| c * c).sum()], "{x} {y} {z}");
    }
}

/// Worked by hand: exact values, ties to even, overflow, subnormals.
pub fn halves<B: Backend>(backend: &B) {
    let cases: [(f32, u16, u16); 10] = [
        (0.0, 0x0000, 0x0000),
        (-0.0, 0x8000, 0x8000),
        (1.0, 0x3C00, 0x3F80),
        (-2.5, 0xC100, 0xC020),
        (1.0 + 1.0 / 2048.0, 0x3C00, 0x3F80), // half a step of f16 above 1: to even, down
        (1.0 + 3.0 / 2048.0, 0x3C02, 0x3F80), // to even, up
        (1.0 + 3.0 / 256.0, 0x3C0C, 0x3F82),  // exact in f16; for bf16 a tie, to even, up
        (65_520.0, 0x7C00, 0x4780),           // the least that overflows f16
        (5.960_464_5e-8, 0x0001, 0x3380),     // f16's least subnormal, 2^-24
        (f32::INFINITY, 0x7C00, 0x7F80),
    ];
    let numbers = cases.map(|(number, ..)| number);
    let (input, out) = (backend.upload(&numbers), unwritten(backend, 2 * cases.len(), u16::MAX));
    let launch = reexports::halves::launch(backend.view(&input), backend.view_mut(&out));
    backend.run(LaunchShape::linear(1, 32), launch).unwrap();
    let got = backend.read(&out);
    for (i, (number, f16, bf16)) in cases.into_iter().enumerate() {
        assert_eq!(
            (got[i], got[cases.len() + i]),
            (f16, bf16),
            "{number}: {:04x} {:04x}",
            got[i],
            got[cases.len() + i]
        );
    }
}
