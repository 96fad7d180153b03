//! One suite for both backends.
//!
//! A case is written once and becomes two tests, `cpu::NAME` and `cuda::NAME`. Without a GPU the second is reported as
//! ignored, never as passed; with `ONEGRAPH_REQUIRE_GPU=1` it fails. A case that [`Case::needs_sm_90`] is ignored on a GPU
//! that runs the sm_80 image. A [`host_case`] touches no device and is one test, `NAME`.

pub mod lab;

use std::sync::{Arc, OnceLock};

use cuda_std::cpu::ExecutorOptions;
use host::device::{Device, DeviceChoice};
use host::images::Images;
pub use libtest_mimic::Failed;
use libtest_mimic::{Arguments, Trial};

/// The images of a kernel crate that the build script compiled.
macro_rules! images {
    ($crate_name:literal, $name:literal) => {
        Images {
            name: $name,
            sm_80: include_str!(concat!(env!("OUT_DIR"), "/", $crate_name, ".sm_80.ptx")),
            sm_90a: include_str!(concat!(env!("OUT_DIR"), "/", $crate_name, ".sm_90a.ptx")),
        }
    };
}

/// `test-kernels`: kernels that exercise the toolchain.
pub const TEST_KERNELS: Images = images!("test_kernels", "test-kernels");

/// The crates of `compat`, written for rust-cuda.
pub mod compat {
    use super::Images;

    /// Vector addition.
    pub const VECADD: Images = images!("compat_vecadd", "compat-vecadd");
    /// Matrix products.
    pub const GEMM: Images = images!("compat_gemm", "compat-gemm");
    /// The published crate `sha2`.
    pub const SHA2: Images = images!("compat_sha2_crates_io", "compat-sha2-crates-io");
    /// 128-bit integers.
    pub const I128: Images = images!("compat_i128", "compat-i128");
}

/// What a case returns: any error that can be shown becomes a failure through `?`.
pub type Outcome = Result<(), Failed>;

/// A test of a suite.
pub struct Case {
    name: String,
    test: Test,
}

enum Test {
    OnDevices { test: Arc<dyn Fn(&Device) -> Outcome + Send + Sync>, needs_sm_90: bool },
    OnHost(Box<dyn FnOnce() -> Outcome + Send>),
}

/// A case that runs on either backend, with its name.
pub fn case(name: impl Into<String>, test: impl Fn(&Device) -> Outcome + Send + Sync + 'static) -> Case {
    Case { name: name.into(), test: Test::OnDevices { test: Arc::new(test), needs_sm_90: false } }
}

/// A case that touches no device, with its name.
pub fn host_case(name: impl Into<String>, test: impl FnOnce() -> Outcome + Send + 'static) -> Case {
    Case { name: name.into(), test: Test::OnHost(Box::new(test)) }
}

impl Case {
    /// The case's kernels use instructions of sm_90: on a GPU that runs the sm_80 image it is ignored. No effect on a
    /// [`host_case`].
    #[must_use]
    pub fn needs_sm_90(mut self) -> Self {
        if let Test::OnDevices { needs_sm_90, .. } = &mut self.test {
            *needs_sm_90 = true;
        }
        self
    }
}

/// Runs the cases on both backends as the command line asks, and leaves the process. The whole `main` of a suite.
pub fn run(cases: Vec<Case>) -> ! {
    let arguments = Arguments::from_args();
    let skip_gpu = gpu().is_err() && !gpu_required();
    let mut trials = Vec::with_capacity(2 * cases.len());
    for Case { name, test } in cases {
        let (test, needs_sm_90) = match test {
            Test::OnHost(test) => {
                trials.push(Trial::test(name, test));
                continue;
            }
            Test::OnDevices { test, needs_sm_90 } => (test, needs_sm_90),
        };
        let on_cpu = test.clone();
        trials.push(Trial::test(format!("cpu::{name}"), move || on_cpu(cpu())));
        let too_old = needs_sm_90 && gpu().is_ok_and(lacks_sm_90);
        let on_gpu = move || match gpu() {
            Ok(_) if too_old => Err(Failed::from("this GPU runs the sm_80 image, and the case needs sm_90")),
            Ok(device) => test(device),
            Err(reason) => Err(Failed::from(format!("no GPU to test on: {reason}"))),
        };
        trials.push(Trial::test(format!("cuda::{name}"), on_gpu).with_ignored_flag(skip_gpu || too_old));
    }
    if skip_gpu && let Err(reason) = gpu() {
        eprintln!("cuda:: tests are ignored: {reason}");
    }
    libtest_mimic::run(&arguments, trials).exit()
}

/// Whether a missing GPU is a failure.
fn gpu_required() -> bool {
    std::env::var_os("ONEGRAPH_REQUIRE_GPU").is_some_and(|value| value == "1")
}

/// The suite's CPU device, which checks every access.
fn cpu() -> &'static Device {
    static CPU: OnceLock<Device> = OnceLock::new();
    CPU.get_or_init(|| Device::cpu_with(ExecutorOptions { check: true, ..ExecutorOptions::default() }))
}

/// The suite's GPU, or why there is none.
fn gpu() -> Result<&'static Device, &'static str> {
    static GPU: OnceLock<Result<Device, String>> = OnceLock::new();
    let open = || Device::open(DeviceChoice::Cuda).map_err(|error| error.to_string());
    GPU.get_or_init(open).as_ref().map_err(String::as_str)
}

/// Whether the GPU runs the sm_80 image. One that loads neither lets its cases run, whose failure says why.
fn lacks_sm_90(gpu: &Device) -> bool {
    static LACKS: OnceLock<bool> = OnceLock::new();
    *LACKS.get_or_init(|| gpu.module(&TEST_KERNELS).is_ok_and(|module| module.image() == "sm_80"))
}
