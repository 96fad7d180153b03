//! Case V: warp operations with partial masks and widths below 32.

use std::fmt::Debug;

use bytemuck::Pod;
use cuda_std::launch::{DeviceSlice, DeviceSliceMut, Launch};
use cuda_std::shape::LaunchShape;
use cuda_std::{bf16, f16};
use test_kernels::warp;

use super::{Backend, random_bits, unwritten};

/// All lanes, single lanes at both ends, halves, every other, and no pattern.
const MASKS: [u32; 8] = [u32::MAX, 1, 1 << 31, 0xffff, 0xffff_0000, 0x5555_5555, 0x8000_0001, 0x9e37_79b9];

fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// The source lane of each mode (idx, up, down, xor) for lane `lane`, or `None` if it is out of range.
fn source(mode: usize, lane: usize, b: usize, width: usize) -> Option<usize> {
    let (start, b) = (lane / width * width, b % 32);
    let candidate = match mode {
        0 => return Some(start + b % width),
        1 => lane.checked_sub(b).filter(|&source| source >= start),
        2 => Some(lane + b),
        _ => Some(lane ^ b),
    };
    candidate.filter(|&source| source < start + width)
}

type ShuffleLaunch<T> =
    for<'a> fn(DeviceSlice<'a, T>, DeviceSliceMut<'a, T>, DeviceSliceMut<'a, u32>, u32, u32, u32) -> Launch;

fn shuffle<B: Backend, T: Pod + PartialEq + Debug + Send + Sync>(
    backend: &B,
    name: &str,
    launch: ShuffleLaunch<T>,
    from_bits: impl Fn(u64) -> T,
) {
    let values: Vec<T> = random_bits(7).take(32).map(&from_bits).collect();
    let filler = from_bits(u64::MAX / 3);
    let input = backend.upload(&values);
    for mask in MASKS {
        for width in [1, 2, 4, 8, 16, 32] {
            for b in [0, 1, 3, 8, 17, 31] {
                let (out, flags) = (unwritten(backend, 128, filler), unwritten(backend, 128, u32::MAX));
                let launch =
                    launch(backend.view(&input), backend.view_mut(&out), backend.view_mut(&flags), mask, b, width);
                backend.run(LaunchShape::linear(1, 32), launch).unwrap();
                let (out, flags) = (backend.read(&out), backend.read(&flags));
                for (mode, lane) in (0..4).flat_map(|mode| (0..32).map(move |lane| (mode, lane))) {
                    let what = format!("{name}: mode {mode}, lane {lane}, mask {mask:#x}, b {b}, width {width}");
                    let at = mode * 32 + lane;
                    if mask >> lane & 1 == 0 {
                        assert_eq!((out[at], flags[at]), (filler, u32::MAX), "{what}: not in the mask");
                        continue;
                    }
                    let source = source(mode, lane, b as usize, width as usize);
                    assert_eq!(flags[at], source.is_some() as u32, "{what}: in range");
                    let source = source.unwrap_or(lane);
                    // The value of a lane outside the mask is unspecified.
                    if mask >> source & 1 == 1 {
                        assert_eq!(out[at], values[source], "{what}");
                    }
                }
            }
        }
    }
}

pub fn shuffles<B: Backend>(backend: &B) {
    shuffle(backend, "u8", warp::shuffle_u8::launch, |bits| bits as u8);
    shuffle(backend, "i16", warp::shuffle_i16::launch, |bits| bits as i16);
    shuffle(backend, "f16", warp::shuffle_f16::launch, |bits| f16::from_f32((bits % 2048) as f32));
    shuffle(backend, "bf16", warp::shuffle_bf16::launch, |bits| bf16::from_f32((bits % 256) as f32));
    shuffle(backend, "u32", warp::shuffle_u32::launch, |bits| bits as u32);
    shuffle(backend, "f32", warp::shuffle_f32::launch, |bits| bits as f32);
    shuffle(backend, "i64", warp::shuffle_i64::launch, |bits| bits as i64);
    shuffle(backend, "f64", warp::shuffle_f64::launch, |bits| bits as f64);
    shuffle(backend, "u128", warp::shuffle_u128::launch, |bits| u128::from(bits) << 64 | u128::from(!bits));
}

pub fn votes_and_matches<B: Backend>(backend: &B) {
    let patterns: [fn(usize) -> u32; 4] = [|_| 0, |_| 1, |lane| (lane % 3) as u32, |lane| (lane == 5) as u32];
    for mask in MASKS {
        for pattern in patterns {
            let values: Vec<u32> = (0..32).map(pattern).collect();
            let (input, out) = (backend.upload(&values), unwritten(backend, 192, u32::MAX / 3));
            let launch = warp::votes::launch(backend.view(&input), backend.view_mut(&out), mask);
            backend.run(LaunchShape::linear(1, 32), launch).unwrap();
            let out = backend.read(&out);
            let bits = |holds: &dyn Fn(usize) -> bool| {
                lanes(mask).filter(|&lane| holds(lane)).fold(0u32, |bits, lane| bits | 1 << lane)
            };
            let ballot = bits(&|lane| values[lane] != 0);
            for lane in lanes(mask) {
                let same = bits(&|other| values[other] == values[lane]);
                let want = [
                    (ballot == mask) as u32,
                    (ballot != 0) as u32,
                    ballot,
                    same,
                    if same == mask { mask } else { 0 },
                    (lane as u32 == mask.trailing_zeros()) as u32,
                ];
                let got: Vec<u32> = (0..6).map(|row| out[row * 32 + lane]).collect();
                assert_eq!(got, want, "lane {lane}, mask {mask:#x}, values {values:?}");
            }
        }
        let values: Vec<f64> = (0..32).map(|lane| [0.0, -0.0, f64::NAN, 1.5][lane % 4]).collect();
        let (input, out) = (backend.upload(&values), unwritten(backend, 64, u32::MAX / 3));
        let launch = warp::match_f64::launch(backend.view(&input), backend.view_mut(&out), mask);
        backend.run(LaunchShape::linear(1, 32), launch).unwrap();
        let out = backend.read(&out);
        for lane in lanes(mask) {
            let same = lanes(mask).filter(|other| other % 4 == lane % 4).fold(0u32, |bits, other| bits | 1 << other);
            assert_eq!(out[lane], same, "bits of floats, lane {lane}, mask {mask:#x}");
            assert_eq!(out[32 + lane], if same == mask { mask } else { 0 }, "lane {lane}, mask {mask:#x}");
        }
    }
}

type ReduceLaunch<T> = for<'a> fn(DeviceSlice<'a, T>, DeviceSliceMut<'a, T>, u32) -> Launch;

/// Reduces by the documented tree: neighbours in the mask at distance 1, then 2, 4, 8, 16.
fn tree<T: Copy>(mut values: Vec<T>, combine: impl Fn(T, T) -> T) -> T {
    while values.len() > 1 {
        values = values.chunks(2).map(|pair| if let [a, b] = *pair { combine(a, b) } else { pair[0] }).collect();
    }
    values[0]
}

fn reduce<B: Backend, T: Pod + PartialEq + Debug + Send + Sync>(
    backend: &B,
    launch: ReduceLaunch<T>,
    from_bits: impl Fn(u64) -> T,
    operations: &[fn(T, T) -> T],
) {
    let values: Vec<T> = random_bits(11).take(32).map(&from_bits).collect();
    let input = backend.upload(&values);
    for mask in MASKS {
        let out = unwritten(backend, 192, from_bits(1));
        backend.run(LaunchShape::linear(1, 32), launch(backend.view(&input), backend.view_mut(&out), mask)).unwrap();
        let out = backend.read(&out);
        for (row, operation) in operations.iter().enumerate() {
            let want = tree(lanes(mask).map(|lane| values[lane]).collect(), operation);
            for lane in lanes(mask) {
                assert_eq!(out[row * 32 + lane], want, "operation {row}, lane {lane}, mask {mask:#x}");
            }
        }
    }
}

/// Floats too are compared exactly: the order of a reduction is part of its contract.
pub fn reductions<B: Backend>(backend: &B) {
    macro_rules! integers {
        ($launch:ident, $type:ident) => {
            reduce(
                backend,
                warp::$launch::launch,
                |bits| (bits as $type).wrapping_mul(bits as $type),
                &[$type::wrapping_add, $type::min, $type::max, |a, b| a & b, |a, b| a | b, |a, b| a ^ b],
            );
        };
    }
    integers!(reduce_u32, u32);
    integers!(reduce_i32, i32);
    integers!(reduce_i64, i64);
    integers!(reduce_u128, u128);
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    reduce(backend, warp::reduce_f32::launch, |bits| unit(bits) as f32, &[|a, b| a + b, f32::min, f32::max]);
    reduce(backend, warp::reduce_f64::launch, unit, &[|a, b| a + b, f64::min, f64::max]);
}

pub fn shuffle_after_a_branch<B: Backend>(backend: &B) {
    let values: Vec<u32> = (100..132).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 32, u32::MAX));
    let launch = warp::shuffle_after_a_branch::launch(backend.view(&input), backend.view_mut(&out));
    backend.run(LaunchShape::linear(1, 32), launch).unwrap();
    let step = |value: u32| if value.is_multiple_of(2) { value / 2 } else { 3 * value + 1 };
    let want: Vec<u32> = (0..32).map(|lane| step(values[(lane + 1).min(31)])).collect();
    assert_eq!(backend.read(&out), want);
    let (values, sums) = (backend.upload(&values), unwritten(backend, 32, 0));
    let launch = warp::sum_of_a_warp::launch(backend.view(&values), backend.view_mut(&sums));
    backend.run(LaunchShape::linear(1, 32), launch).unwrap();
    assert_eq!(backend.read(&sums), vec![(100..132).sum::<u32>(); 32]);
}
