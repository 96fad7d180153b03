//! Case W and its neighbours: shared memory.

use cuda_std::shape::LaunchShape;
use test_kernels::shared;

use super::{Backend, random_bits, unwritten};

const BLOCK: LaunchShape = LaunchShape::linear(1, shared::N_THREADS as u32);

pub fn stores_of_every_size<B: Backend>(backend: &B) {
    let bits: Vec<u64> = random_bits(3).take(shared::N_THREADS).collect();
    macro_rules! values {
        ($($input:ident, $out:ident, $values:ident: |$bits:ident| $make:expr, $filler:expr;)*) => {$(
            let $values: Vec<_> = bits.iter().map(|&$bits| $make).collect();
            let ($input, $out) = (backend.upload(&$values), unwritten(backend, shared::N_THREADS, $filler));
        )*};
    }
    values! {
        i8_, o8, v8: |bits| bits as u8, 0;
        i16_, o16, v16: |bits| bits as u16, 0;
        i32_, o32, v32: |bits| (bits >> 40) as f32, 0.0;
        i64_, o64, v64: |bits| bits, 0;
        i128_, o128, v128: |bits| u128::from(bits) << 64 | u128::from(bits ^ 5), 0;
    }
    let launch = shared::shared_stores_of_every_size::launch(
        backend.view(&i8_),
        backend.view(&i16_),
        backend.view(&i32_),
        backend.view(&i64_),
        backend.view(&i128_),
        backend.view_mut(&o8),
        backend.view_mut(&o16),
        backend.view_mut(&o32),
        backend.view_mut(&o64),
        backend.view_mut(&o128),
    );
    backend.run(BLOCK, launch).unwrap();
    assert!(backend.read(&o8).iter().eq(v8.iter().rev()));
    assert!(backend.read(&o16).iter().eq(v16.iter().rev()));
    assert!(backend.read(&o32).iter().eq(v32.iter().rev()));
    assert!(backend.read(&o64).iter().eq(v64.iter().rev()));
    assert!(backend.read(&o128).iter().eq(v128.iter().rev()));
}

pub fn arrays_of_arrays<B: Backend>(backend: &B) {
    let values: Vec<u32> = (0..64).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 64, u32::MAX));
    let launch = shared::shared_array_of_arrays::launch(backend.view(&input), backend.view_mut(&out));
    backend.run(BLOCK, launch).unwrap();
    let want: Vec<u32> = (0..64).map(|at| at % 8 * 8 + at / 8).collect();
    assert_eq!(backend.read(&out), want);
}

pub fn array_in_a_loop<B: Backend>(backend: &B) {
    let out = unwritten(backend, 64, u32::MAX);
    backend.run(BLOCK, shared::shared_array_in_a_loop::launch(backend.view_mut(&out))).unwrap();
    // Rounds 0, 1 and 2 are read once each: 0 + 100 + 200, and three times the neighbour's index.
    let want: Vec<u32> = (0..64).map(|thread| 300 + 3 * ((thread + 63) % 64)).collect();
    assert_eq!(backend.read(&out), want);
}

pub fn shared_static<B: Backend>(backend: &B) {
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 64, f32::NAN));
    backend.run(BLOCK, shared::shared_static_rotates::launch(backend.view(&input), backend.view_mut(&out))).unwrap();
    let want: Vec<f32> = (0..64).map(|i| ((i + 1) % 64) as f32).collect();
    assert_eq!(backend.read(&out), want);
}

pub fn dynamic<B: Backend>(backend: &B) {
    let values: Vec<u64> = random_bits(5).take(64).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 65, u64::MAX));
    let launch = shared::dynamic_shared_rotates::launch(backend.view(&input), backend.view_mut(&out), 13);
    backend.run(BLOCK.with_shared(512), launch).unwrap();
    let mut want: Vec<u64> = (0..64).map(|i| values[(i + 13) % 64]).collect();
    want.push(512);
    assert_eq!(backend.read(&out), want);
}
