//! What every subject's tests need: a place to run launches, poisoned outputs, numbers, and judged tolerances.

use bytemuck::Pod;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use host::device::{Buffer, Device, Module, Stream};
use host::error::DeviceError;
use host::images::KERNELS;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::{Failed, Outcome};

/// Sizes around a warp, a block, a vector of four and a tile of 4,096, and none at all.
pub const SIZES: [usize; 14] = [0, 1, 2, 3, 5, 31, 32, 33, 255, 257, 1000, 4095, 4099, 70_001];

/// A launch's kernel; a product by `wgmma` under the name of that by `mma`, whose place it takes on Hopper.
pub fn kernel_name(launch: &Launch) -> &'static str {
    let name = launch.info().name;
    name.split_once("_wgmma_").map_or(name, |(product, _)| product)
}

/// A device with the kernels loaded.
pub struct Lab<'a> {
    device: &'a Device,
    module: Module,
    stream: Stream,
    lanes: u32,
}

impl<'a> Lab<'a> {
    /// Lanes that share a row on this device's kernels: 32 on a GPU; on the CPU tests run both 1 and 32.
    pub fn row_lanes(&self) -> &'static [u32] {
        if self.device.backend_name() == "cpu" { &[1, 32] } else { &[32] }
    }

    /// Loads the kernels.
    pub fn new(device: &'a Device) -> Result<Self, DeviceError> {
        Self::with_lanes(device, device.row_lanes())
    }

    /// A test run once for each of [`Lab::row_lanes`], by a lab that has these.
    pub fn on_all_lanes(device: &Device, test: impl Fn(&Lab) -> Outcome) -> Outcome {
        Lab::new(device)?.row_lanes().iter().try_for_each(|lanes| test(&Lab::with_lanes(device, *lanes)?))
    }

    fn with_lanes(device: &'a Device, lanes: u32) -> Result<Self, DeviceError> {
        Ok(Self { device, module: device.module(&KERNELS)?, stream: device.stream()?, lanes })
    }

    /// Lanes of a row in this lab's launches: the device's, or those of the run of [`Lab::on_all_lanes`].
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Runs a launch.
    pub fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        self.stream.launch(&self.module, shape, launch)
    }

    /// Runs launches, one after the other.
    pub fn run_all(&self, launches: Vec<(LaunchShape, Launch)>) -> Result<(), DeviceError> {
        launches.into_iter().try_for_each(|(shape, launch)| self.run(shape, launch))
    }

    /// A buffer with these values.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, DeviceError> {
        self.device.upload(values)
    }

    /// A buffer of zeros.
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        self.device.alloc_zeroed(len)
    }

    /// An output in which an element that nothing writes stays NaN.
    pub fn poisoned(&self, len: usize) -> Result<Buffer<f32>, DeviceError> {
        self.device.upload(&vec![f32::NAN; len])
    }
}

/// Runs `check` on 32 inputs drawn from `inputs`; a failure is shrunk and shown with its input.
pub fn for_all<S: Strategy>(inputs: S, check: impl Fn(S::Value) -> Result<(), Failed>) -> Result<(), Failed> {
    let config = Config { cases: 32, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&inputs, |input| {
        check(input).map_err(|failed| TestCaseError::fail(failed.message().unwrap_or("failed").to_owned()))
    });
    outcome.map_err(|error| match error {
        TestError::Fail(reason, input) => Failed::from(format!("{reason}, for the input {input:?}")),
        TestError::Abort(reason) => Failed::from(format!("no inputs: {reason}")),
    })
}

/// Fails with the message unless the condition holds. Used where a case runs inside `for_all`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err($crate::Failed::from(format!($($message)+)));
        }
    };
}

/// The bits of numbers, so that NaNs and signed zeros compare too.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// How far a result may lie from its reference: absolute + relative |reference|.
pub struct Tolerance {
    /// Absolute part.
    pub absolute: f64,
    /// Part relative to the reference.
    pub relative: f64,
}

impl Tolerance {
    /// Compares all elements; prints the largest share of the tolerance that was used.
    pub fn check(&self, what: &str, got: &[f32], want: &[f64]) -> Result<(), Failed> {
        ensure!(got.len() == want.len(), "{what}: {} elements, {} expected", got.len(), want.len());
        let mut worst = (0.0, 0);
        for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
            let share = (got as f64 - want).abs() / (self.absolute + self.relative * want.abs());
            // A NaN's share is no number, and must not pass for a small one.
            if share.is_nan() || share > worst.0 {
                worst = (if share.is_nan() { f64::INFINITY } else { share }, index);
            }
        }
        let (share, index) = worst;
        if share > 1.0 {
            let (got, want) = (got[index], want[index]);
            return Err(Failed::from(format!(
                "{what}: element {index} is {got}, {want} expected: {share:.3} of the tolerance"
            )));
        }
        println!("{what}: {:.1}% of the tolerance used", 100.0 * share);
        Ok(())
    }
}

/// ||got - want|| / ||want|| over all elements, or ||got|| where ||want|| is 0: what the design bounds by 1e-5 for unrounded tensors.
pub fn relative(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "elements");
    let off: f64 = got.iter().zip(want).map(|(&got, want)| (f64::from(got) - want).powi(2)).sum();
    let size: f64 = want.iter().map(|want| want * want).sum();
    if size == 0.0 { off.sqrt() } else { (off / size).sqrt() }
}

/// Fails unless [`relative`] is at most `bound`; prints it.
pub fn within_relative(what: &str, got: &[f32], want: &[f64], bound: f64) -> Outcome {
    let off = relative(got, want);
    println!("{what}: {off:.1e} of {bound:.0e}");
    ensure!(off <= bound, "{what} is off by {off:e} relative, bound {bound:e}");
    Ok(())
}

/// Numbers for inputs: SplitMix64 (Steele, Lea, Flood 2014).
pub struct Numbers(u64);

impl Numbers {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, n).
    pub fn below(&mut self, n: usize) -> usize {
        ((self.word() as u128 * n as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Heavy-tailed and positive: exp(3 z) with z about normal, from 1e-6 to 1e6.
    pub fn heavy(&mut self) -> f32 {
        let z: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (3.0 * z).exp().clamp(1e-6, 1e6) as f32
    }
}
