//! What the device reaches, measured, and what work would take by it.

use cuda_std::launch::Work;
use gpu_kernels::copy::{copy_vectors, copy_vectors_shape};
use serde::Serialize;
use shared_types::{Precision, Product, ProductForm};

use super::Timer;
use crate::device::{Device, Matmul, Output};
use crate::error::DeviceError;
use crate::market::{Runner, Step};

/// What the device reaches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes a second of a large copy, those read and those written.
    pub bytes_per_s: f64,
    /// Operations a second of a large matrix product, a multiplication and an addition counted as two.
    pub operations_per_s: f64,
}

impl Rates {
    /// By the copy kernel on more than the caches hold, and by one square product of the run's precision.
    pub fn measure(runner: Runner<'_>, precision: Precision) -> Result<Self, DeviceError> {
        let (copied, width) = match runner.device.row_lanes() {
            1 => (1 << 23, 768),
            _ => (1 << 26, 8192),
        };
        Ok(Self { bytes_per_s: copy_rate(runner, copied)?, operations_per_s: product_rate(runner, precision, width)? })
    }

    /// Microseconds that no kernel with this work can be under: its bytes at the rate of the copy, or its operations at that of the
    /// product, whichever takes longer. What stays in a cache can move faster than the copy does.
    pub fn floor_us(&self, work: Work) -> f64 {
        1e6 * (work.bytes as f64 / self.bytes_per_s).max(work.operations as f64 / self.operations_per_s)
    }
}

/// Of `n` f32.
fn copy_rate(runner: Runner<'_>, n: usize) -> Result<f64, DeviceError> {
    let (from, to) = (runner.device.alloc_zeroed::<f32>(n)?, runner.device.alloc_zeroed::<f32>(n)?);
    let copy = copy_vectors::launch(from.view(), to.view_mut());
    let bytes = copy.work().bytes as f64;
    Ok(1e6 * bytes / least_us(runner, &(copy_vectors_shape(n), copy))?)
}

/// Of two matrices of `width` rows and columns.
fn product_rate(runner: Runner<'_>, precision: Precision, width: usize) -> Result<f64, DeviceError> {
    let device: &Device = runner.device;
    let n = width as u32;
    let product = Product { m: n, n, k: n, a_stride: n, b_stride: n, c_stride: n, ..Product::default() };
    let matmul = Matmul::new(device, ProductForm::Nt, precision, vec![product])?;
    let operands = device.upload(&operands(width * width * precision.words()))?;
    let other = device.upload(&operands.read()?)?;
    let sums = device.alloc_zeroed::<f32>(width * width)?;
    let step = matmul.launch(operands.all(), other.all(), Output::Store(sums.all(), None));
    let operations = step.1.work().operations as f64;
    Ok(1e6 * operations / least_us(runner, &step)?)
}

/// The least of several times: other work on the machine makes a device look slower than it is, and nothing makes it look faster.
fn least_us(runner: Runner<'_>, (shape, launch): &Step) -> Result<f64, DeviceError> {
    let timer = Timer { n_runs: 2, ..Timer::THOROUGH };
    let times = timer.times(runner.stream, || runner.stream.launch_again(runner.module, *shape, launch))?;
    Ok(times.into_iter().fold(f64::INFINITY, f64::min))
}

/// Words of which each alone is a bf16 of either sign in [0.5, 2), and each pair an f32: zeros would cost a chip less power, and be
/// multiplied faster than numbers are.
fn operands(n: usize) -> Vec<u16> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u16 & 0x80ff | 0x3f00
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn floors_are_the_longer_of_bytes_and_operations() {
        let rates = Rates { bytes_per_s: 4e12, operations_per_s: 8e14 };
        assert_eq!(rates.floor_us(Work { bytes: 4_000_000, operations: 0 }), 1.0);
        assert_eq!(rates.floor_us(Work { bytes: 4_000_000, operations: 800_000_000 }), 1.0);
        assert_eq!(rates.floor_us(Work { bytes: 4_000_000, operations: 8_000_000_000 }), 10.0);
        assert_eq!(rates.floor_us(Work::default()), 0.0);
    }

    #[test]
    fn operands_are_numbers_of_order_one() {
        let words = operands(10_000);
        let sizes = words.iter().map(|&bits| bf16::from_bits(bits).to_f32().abs());
        assert!(sizes.clone().all(|x| (0.5..2.0).contains(&x)));
        let negative = words.iter().filter(|&&bits| bits >> 15 == 1).count();
        assert!((4_000..6_000).contains(&negative), "{negative} of 10,000 are negative");
        let pairs = words.chunks(2).map(|pair| f32::from_bits(u32::from(pair[0]) | u32::from(pair[1]) << 16));
        assert!(pairs.map(f32::abs).all(|x| (0.5..2.0).contains(&x)));
    }
}
