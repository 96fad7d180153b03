//! Atomics; float additions are case W.

use cuda_std::shape::LaunchShape;
use test_kernels::atomics;

use super::{Backend, random_bits, unwritten};

/// Integers below 2^24 add exactly in f32, in whatever order.
pub fn float_sum<B: Backend>(backend: &B) {
    let values: Vec<f32> = (0..1000).map(|i| (i % 7) as f32).collect();
    let (input, sum) = (backend.upload(&values), backend.upload(&[0.5f32]));
    // SAFETY: the sum is accessed by this launch alone.
    let launch = unsafe { atomics::atomic_add_f32::launch(backend.view(&input), backend.ptr_mut(&sum)) };
    backend.run(LaunchShape::cover(1000, 96), launch).unwrap();
    assert_eq!(backend.read(&sum), [0.5 + values.iter().sum::<f32>()]);
}

pub fn every_operation<B: Backend>(backend: &B) {
    macro_rules! check {
        ($kernel:ident, $type:ident) => {
            let values: Vec<$type> = random_bits(13).take(333).map(|bits| bits as $type).collect();
            let start: [$type; 7] = [3, 5, $type::MAX, $type::MIN, !0, 0, 77];
            let (input, words) = (backend.upload(&values), backend.upload(&start));
            // SAFETY: the words are accessed by this launch alone.
            let launch = unsafe { atomics::$kernel::launch(backend.view(&input), backend.ptr_mut(&words)) };
            backend.run(LaunchShape::cover(333, 64), launch).unwrap();
            let want = values.iter().fold(start, |[add, sub, min, max, and, or, xor], &v| {
                [add.wrapping_add(v), sub.wrapping_sub(v), min.min(v), max.max(v), and & v, or | v, xor ^ v]
            });
            assert_eq!(backend.read(&words), want, stringify!($kernel));
        };
    }
    check!(atomics_u32, u32);
    check!(atomics_i64, i64);
}

pub fn in_shared_memory<B: Backend>(backend: &B) {
    let values: Vec<f32> = (0..256).map(|i| i as f32 * 0.25).collect();
    let (input, sums) = (backend.upload(&values), unwritten(backend, 4, f64::NAN));
    let launch = atomics::atomics_in_shared_memory::launch(backend.view(&input), backend.view_mut(&sums));
    backend.run(LaunchShape::linear(2, 128), launch).unwrap();
    let want: Vec<f64> = values.chunks(128).flat_map(|chunk| [f64::from(chunk.iter().sum::<f32>()); 2]).collect();
    assert_eq!(backend.read(&sums), want);
}

pub fn bytes<B: Backend>(backend: &B) {
    let values: Vec<u8> = random_bits(17).take(3000).map(|bits| (bits % 9) as u8).collect();
    let (input, counters) = (backend.upload(&values), backend.upload(&[0u32; 64]));
    // SAFETY: any bytes are values of the kernel's element, a number.
    let bytes = unsafe { cuda_std::launch::DevicePtrMut::new(backend.ptr_mut(&counters).memory().clone()) };
    // SAFETY: the counters are accessed by this launch alone.
    let launch = unsafe { atomics::byte_histogram::launch(backend.view(&input), bytes) };
    backend.run(LaunchShape::cover(3000, 128), launch).unwrap();
    let mut want = [0u8; 256];
    for value in values {
        want[value as usize] = want[value as usize].wrapping_add(1);
    }
    let got: Vec<u8> = backend.read(&counters).into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(got, want);
}

pub fn exchange<B: Backend>(backend: &B) {
    let counter = backend.upload(&[1u64]);
    // SAFETY: as above.
    let typed = unsafe { cuda_std::launch::DevicePtr::new(backend.ptr(&counter).memory().clone()) };
    backend.run(LaunchShape::linear(5, 40), atomics::compare_and_exchange::launch(typed)).unwrap();
    assert_eq!(backend.read(&counter), [1 + (0..200).sum::<u64>()]);
}

pub fn stamp<B: Backend>(backend: &B) {
    let (values, stamp) = (unwritten(backend, 5, u32::MAX), backend.upload(&[0u64]));
    // SAFETY: the stamp is accessed by this launch alone.
    let launch = unsafe { atomics::release_a_stamp::launch(backend.view_mut(&values), backend.ptr_mut(&stamp), 41) };
    backend.run(LaunchShape::linear(2, 32), launch).unwrap();
    assert_eq!((backend.read(&values), backend.read(&stamp)), (vec![41, 42, 43, 44, 45], vec![41]));
}
