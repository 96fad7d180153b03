//! Kernel crates written for rust-cuda build as they are and compute what they should: `tests/compat`, a workspace of its own
//! that takes `cuda_std` by its published version.
//!
//! A kernel that uses barriers or shared memory runs on a GPU unchanged; on the CPU it must say `#[kernel(cooperative)]`.

use bytemuck::Pod;
use compat_gemm::{Shape, gemm_naive, gemm_tiled, rotate};
use compat_i128::{i128_ops, u128_checksum};
use compat_sha2_crates_io::{hash_256, hash_512};
use compat_vecadd::vecadd;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use host::device::{Buffer, Device, Module, Stream};
use host::error::DeviceError;
use host::images::Images;
use onegraph_tests::lab::Numbers;
use onegraph_tests::{Outcome, case, compat, host_case, run};

fn main() {
    run(vec![
        host_case("vector_addition_reads_through_the_read_only_path", vector_addition_reads_through_the_read_only_path),
        host_case("a_tiled_product_stays_in_shared_memory", a_tiled_product_stays_in_shared_memory),
        case("vector_addition_adds", vector_addition_adds),
        case("products_of_matrices", products_of_matrices),
        case("a_static_in_shared_memory", a_static_in_shared_memory),
        case("the_published_sha2_crate_hashes", the_published_sha2_crate_hashes),
        case("wide_integers", wide_integers),
        case("a_wide_checksum", a_wide_checksum),
    ])
}

/// The lines of one entry of an image.
fn entry(images: &Images, name: &str) -> &'static str {
    let ptx = images.sm_80;
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no entry {name}"));
    let end = ptx[start..].find("\n}").expect("an entry ends");
    &ptx[start..start + end]
}

fn vector_addition_reads_through_the_read_only_path() -> Outcome {
    let vecadd = entry(&compat::VECADD, "vecadd");
    assert_eq!(vecadd.matches("ld.global.nc.b32").count(), 2, "{vecadd}");
    assert_eq!(vecadd.matches("st.global.b32").count(), 1, "{vecadd}");
    Ok(())
}

fn a_tiled_product_stays_in_shared_memory() -> Outcome {
    let tiled = entry(&compat::GEMM, "gemm_tiled");
    assert_eq!(tiled.matches("bar.sync").count(), 2, "{tiled}");
    assert_eq!(tiled.matches("st.shared.b32").count(), 2, "{tiled}");
    assert!(tiled.contains("ld.shared") && tiled.contains("fma.rn.f32"), "{tiled}");
    let generic = tiled.lines().find(|line| line.contains("\tld.b") || line.contains("\tst.b"));
    assert_eq!(generic, None, "an access that does not name its space");
    Ok(())
}

/// A device with one crate's kernels.
struct Bench<'a> {
    device: &'a Device,
    module: Module,
    stream: Stream,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device, images: &Images) -> Result<Self, DeviceError> {
        Ok(Self { device, module: device.module(images)?, stream: device.stream()? })
    }

    fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        self.stream.launch(&self.module, shape, launch)?;
        self.stream.synchronize()
    }

    /// For a kernel with barriers: whether it ran, which on the CPU it must not, and says how it would.
    fn ran_with_barriers(&self, shape: LaunchShape, launch: Launch) -> Result<bool, DeviceError> {
        if self.device.backend_name() != "cpu" {
            return self.run(shape, launch).map(|()| true);
        }
        let message = self.run(shape, launch).expect_err("it is not declared as cooperative").to_string();
        assert!(message.contains("declare it `#[kernel(cooperative)]`"), "{message}");
        Ok(false)
    }

    fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, DeviceError> {
        self.device.upload(values)
    }
}

fn vector_addition_adds(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::VECADD)?;
    for n in [1, 31, 257, 1000] {
        let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..n).map(|i| 0.25 * i as f32 - 7.0).collect();
        let (a_in, b_in, out) = (bench.upload(&a)?, bench.upload(&b)?, bench.upload(&vec![f32::NAN; n])?);
        // SAFETY: the kernel writes as many elements as `a` has, and `out` has as many.
        let launch = unsafe { vecadd::launch(a_in.view(), b_in.view(), out.ptr_mut()) };
        bench.run(LaunchShape::cover(n, 32), launch)?;
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(out.read()?, want);
    }
    Ok(())
}

/// Small whole numbers, so that sums are exact in f32 whatever their order and rounding.
fn products_of_matrices(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::GEMM)?;
    let (m, n, k) = (37, 21, 50);
    let mut numbers = Numbers::new(1);
    let mut matrix = |len: usize| -> Vec<f32> { (0..len).map(|_| numbers.below(17) as f32 - 8.0).collect() };
    let (a, b, c) = (matrix(m * k), matrix(k * n), matrix(m * n));
    let sum = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum::<f32>();
    let want: Vec<f32> = (0..m * n).map(|at| 2.0 * sum(at / n, at % n) - 3.0 * c[at]).collect();
    let (a_in, b_in) = (bench.upload(&a)?, bench.upload(&b)?);

    let out = bench.upload(&c)?;
    let shape = LaunchShape::new((2, 5, 1).into(), (16, 8, 1).into());
    let sizes = Shape { m, n, k };
    // SAFETY: the matrices have these sizes, and each thread has its own element of `out`.
    let launch = unsafe { gemm_naive::launch(a_in.view(), b_in.view(), out.ptr_mut(), sizes, 2.0, -3.0) };
    bench.run(shape, launch)?;
    assert_eq!(out.read()?, want);

    let out = bench.upload(&c)?;
    let shape = LaunchShape::new((2, 3, 1).into(), (16, 16, 1).into());
    // SAFETY: as above, and the block is a tile of 16 by 16.
    let launch = unsafe { gemm_tiled::launch(a_in.view(), b_in.view(), out.ptr_mut(), m, n, k, 2.0, -3.0) };
    if bench.ran_with_barriers(shape, launch)? {
        assert_eq!(out.read()?, want);
    }
    Ok(())
}

/// Squares, so that the root is exact: lane i ends with 2 (2 sqrt(x) + 1) of lane i + 1.
fn a_static_in_shared_memory(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::GEMM)?;
    let values: Vec<f64> = (0..32).map(|i| f64::from(i * i)).collect();
    let out = bench.upload(&values)?;
    // SAFETY: 32 values for 32 threads.
    let launch = unsafe { rotate::launch(out.ptr_mut()) };
    if bench.ran_with_barriers(LaunchShape::linear(1, 32), launch)? {
        let want: Vec<f64> = (0..32).map(|i| 2.0 * (2.0 * f64::from((i + 1) % 32) + 1.0)).collect();
        assert_eq!(out.read()?, want);
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// NIST's examples for FIPS 180-4, of one block and of two. Then 1,000 messages at once,
/// byte j of message i being 7 i + 13 j modulo 256; the exclusive or of their digests is that of Python's hashlib.
fn the_published_sha2_crate_hashes(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::SHA2)?;
    let digests_256 = |messages: &[u8], len: usize| -> Result<Vec<[u8; 32]>, DeviceError> {
        let n = messages.len() / len;
        let (input, out) = (bench.upload(messages)?, bench.upload(&vec![[0u8; 32]; n])?);
        // SAFETY: there is a digest for each message.
        let launch = unsafe { hash_256::launch(input.view(), len, out.ptr_mut()) };
        bench.run(LaunchShape::cover(n, 64), launch)?;
        out.read()
    };
    for (message, want) in [
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
    ] {
        assert_eq!(hex(&digests_256(message.as_bytes(), message.len())?[0]), want, "{message}");
    }
    for (message, want) in [
        (
            "abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018\
             501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
        ),
    ] {
        let (input, out) = (bench.upload(message.as_bytes())?, bench.upload(&[0u8; 64])?);
        // SAFETY: one digest of 64 bytes.
        let launch = unsafe { hash_512::launch(input.view(), out.ptr_mut()) };
        bench.run(LaunchShape::linear(1, 32), launch)?;
        assert_eq!(hex(&out.read()?), want, "{message}");
    }
    let messages: Vec<u8> = (0..1000u32).flat_map(|i| (0..64).map(move |j| (7 * i + 13 * j) as u8)).collect();
    let all = digests_256(&messages, 64)?;
    let folded = all.iter().fold([0u8; 32], |sum, digest| std::array::from_fn(|i| sum[i] ^ digest[i]));
    assert_eq!(hex(&folded), "fb91596af8c95febdd2c0cecbc0d5554cf09556251b99e0d18e28bb561f5a32d");
    Ok(())
}

/// The results of the twelve operations of `i128_ops`, computed by the host.
fn operations(x: i128, y: i128) -> [i128; 12] {
    let shift = (y & 127) as u32;
    let product = (x as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let quotient = |divide: fn(i128, i128) -> i128| if y == 0 { 0 } else { divide(x, y) };
    [
        x.wrapping_add(y),
        x.wrapping_sub(y),
        x.wrapping_mul(y),
        quotient(i128::wrapping_div),
        quotient(i128::wrapping_rem),
        x & y,
        x | y,
        x ^ y,
        x.wrapping_shl(shift),
        x.wrapping_shr(shift),
        (product >> 64) as i128,
        i128::from(x < y),
    ]
}

/// Edges whose quotients, remainders and products were worked by hand, then random operands of every width against the host.
fn wide_integers(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::I128)?;
    let by_hand: [(i128, i128, [i128; 3]); 6] = [
        (7, -2, [-14, -3, 1]),
        (-7, 2, [-14, -3, -1]),
        (i128::MIN, -1, [i128::MIN, i128::MIN, 0]),
        (i128::MIN, 3, [i128::MIN, -56_713_727_820_156_410_577_229_101_238_628_035_242, -2]),
        (1 << 100, (1 << 64) + 1, [1 << 100, (1 << 36) - 1, (1 << 64) - (1 << 36) + 1]),
        (5, 0, [0, 0, 0]),
    ];
    let mut numbers = Numbers::new(7);
    let mut wide = |bits: usize| (i128::from(numbers.word()) << 64 | i128::from(numbers.word())) >> (127 - bits);
    let random = (0..300).map(|i| (wide(1 + i % 127), wide(1 + (i * 5) % 127)));
    let (a, b): (Vec<i128>, Vec<i128>) = by_hand.iter().map(|&(x, y, _)| (x, y)).chain(random).unzip();
    let n = a.len();
    let (a_in, b_in, out) = (bench.upload(&a)?, bench.upload(&b)?, bench.upload(&vec![i128::MAX; 12 * n])?);
    // SAFETY: twelve results for each pair.
    let launch = unsafe { i128_ops::launch(a_in.view(), b_in.view(), out.ptr_mut()) };
    bench.run(LaunchShape::cover(n, 64), launch)?;
    let got = out.read()?;
    for (i, (x, y, want)) in by_hand.into_iter().enumerate() {
        assert_eq!([2, 3, 4].map(|operation| got[operation * n + i]), want, "{x} and {y}");
    }
    for (i, (&x, &y)) in a.iter().zip(&b).enumerate() {
        for (operation, want) in operations(x, y).into_iter().enumerate() {
            assert_eq!(got[operation * n + i], want, "operation {operation} of {x:#x} and {y:#x}");
        }
    }
    Ok(())
}

/// The polynomial by Horner's rule modulo 2^128, taken modulo 10^9 + 7 at the end; of 1 and 2 it is worked by hand:
/// (1 c + 1) c + 2 with c = 6364136223846793005.
fn a_wide_checksum(device: &Device) -> Outcome {
    let bench = Bench::new(device, &compat::I128)?;
    let mut numbers = Numbers::new(3);
    let long: Vec<u64> = (0..1000).map(|_| numbers.word()).collect();
    let (c, modulus) = (6_364_136_223_846_793_005u128, 1_000_000_007u128);
    let by_hand = (c.wrapping_mul(c).wrapping_add(c).wrapping_add(2)) % modulus;
    let horner = long.iter().fold(1u128, |sum, &word| sum.wrapping_mul(c).wrapping_add(word.into())) % modulus;
    for (words, want) in [(&[1, 2][..], by_hand), (&long, horner)] {
        let (input, out) = (bench.upload(words)?, bench.upload(&[0u128])?);
        // SAFETY: one sum.
        let launch = unsafe { u128_checksum::launch(input.view(), out.ptr_mut()) };
        bench.run(LaunchShape::linear(2, 32), launch)?;
        assert_eq!(out.read()?, [want]);
    }
    Ok(())
}
