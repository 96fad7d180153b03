//! What `cuda_std` tells of its target, and what it hands on: `cfg`, `misc`, and the crates `glam`, `vek` and `half`.

use cuda_std::cfg::ComputeCapability;
use cuda_std::glam::{Mat3, Mat4, Vec3};
use cuda_std::prelude::*;
use cuda_std::{misc, vek};

/// Writes the capability that the image is compiled for, as the enum's number, and whether a branch takes it for 9.0 or later.
#[kernel]
pub fn capability(out: GlobalSliceMut<u32>) {
    let capability = ComputeCapability::from_cuda_arch_env();
    out.set(0, capability as u32);
    out.set(1, u32::from(capability >= ComputeCapability::Compute90));
}

/// Waits until the cycle counter has moved; writes by how much it did, and how many nanoseconds the global timer counted.
#[kernel]
pub fn clocks(out: GlobalSliceMut<u64>) {
    let index = 2 * thread::index_1d() as usize;
    let (start, start_ns) = (misc::clock(), misc::global_timer_ns());
    misc::profiler_counter(3);
    while misc::clock() == start {}
    out.set(index, misc::clock().wrapping_sub(start));
    out.set(index + 1, misc::global_timer_ns().wrapping_sub(start_ns));
}

/// Ends with an error: `how` 0 by a trap, 1 at a breakpoint without a debugger.
#[kernel]
pub fn end_early(how: u32) {
    match how {
        0 => misc::trap(),
        _ => misc::breakpoint(),
    }
}

/// For each point p, in three rows: M p with M = translation (1, -2, 3) after scaling (2, 4, 0.5); its way back by M's
/// inverse; and (det M, p . e, |p x e|^2) with e = (1, 1, 1), of which `vek` computes the last two.
#[kernel]
pub fn transform(points: GlobalSlice<[f32; 3]>, out: GlobalSliceMut<[f32; 3]>) {
    let index = thread::index_1d() as usize;
    if index >= points.len() {
        return;
    }
    let [x, y, z] = points.get(index);
    let matrix = Mat4::from_translation(Vec3::new(1.0, -2.0, 3.0))
        * Mat4::from_mat3(Mat3::from_diagonal(Vec3::new(2.0, 4.0, 0.5)));
    let moved = matrix.transform_point3(Vec3::new(x, y, z));
    let (p, e) = (vek::Vec3::new(x, y, z), vek::Vec3::new(1.0, 1.0, 1.0));
    let products = [matrix.determinant(), p.dot(e), p.cross(e).magnitude_squared()];
    crate::put_rows(
        &out,
        index,
        points.len(),
        [moved.to_array(), matrix.inverse().transform_point3(moved).to_array(), products],
    );
}

/// Rounds each number to f16 and to bf16 and writes the two, as bits, in two rows.
#[kernel]
pub fn halves(numbers: GlobalSlice<f32>, out: GlobalSliceMut<u16>) {
    let index = thread::index_1d() as usize;
    if index < numbers.len() {
        let number = numbers.get(index);
        crate::put_rows(
            &out,
            index,
            numbers.len(),
            [f16::from_f32(number).to_bits(), bf16::from_f32(number).to_bits()],
        );
    }
}
