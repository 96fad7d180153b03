//! `doctor`: what works here.

use std::fmt::Write;
use std::path::Path;

use cuda_builder::KernelCompiler;
use cuda_driver::DriverError;
use serde::Serialize;

use super::output::{self, Json};
use super::{DeviceArgument, Error, Global};
use crate::device::{Device, DeviceChoice};
use crate::error::DeviceError;
use crate::images::KERNELS;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    json: Json,
}

/// What `doctor --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// Version of the program.
    version: &'static str,
    /// `cuda` or `cpu`: what `--device auto` works on.
    device: &'static str,
    checks: Vec<Check>,
}

/// One line.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// What was found, or why it is missing.
    detail: String,
    /// The one thing that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<&'static str>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), mend: None }
    }

    fn missing(name: &'static str, detail: impl Into<String>, mend: &'static str) -> Self {
        Self { name, ok: false, detail: detail.into(), mend: Some(mend) }
    }
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        let gpu = Device::open(DeviceChoice::Cuda);
        let mut checks = vec![driver()];
        match &gpu {
            Ok(device) => checks.extend([gpu_found(device), kernels_on_gpu(device)]),
            Err(DeviceError::Driver(error)) => {
                checks.push(Check::missing("GPU", "none is seen without a driver", mend_driver(error)));
            }
            Err(error) => checks.push(Check::missing("GPU", error.to_string(), mend_gpu(error))),
        }
        checks.extend([cpu()?, images(), compiler(), rustup()]);
        let report =
            Report { version: env!("CARGO_PKG_VERSION"), device: if gpu.is_ok() { "cuda" } else { "cpu" }, checks };
        self.json.write(&report)?;
        if !self.json.to_standard_output() {
            output::print(&text(&report))?;
        }
        match gpu {
            Err(error) if global.device == DeviceArgument::Cuda => Err(error.into()),
            _ if !report.works(global.device) => Err(Error::Failed("the kernels do not run on this GPU".into())),
            _ => Ok(()),
        }
    }
}

impl Report {
    /// Whether the device that was asked for can work.
    fn works(&self, device: DeviceArgument) -> bool {
        device == DeviceArgument::Cpu || self.checks.iter().all(|check| check.ok || check.name != KERNELS_ON_GPU)
    }
}

const KERNELS_ON_GPU: &str = "kernels on the GPU";

fn driver() -> Check {
    match cuda_driver::load() {
        Ok(info) => Check::ok("driver", format!("CUDA {}, {}", info.version, info.path.display())),
        Err(error) => Check::missing("driver", error.to_string(), mend_driver(&error)),
    }
}

fn mend_driver(error: &DriverError) -> &'static str {
    match error {
        DriverError::NotFound { .. } if std::env::var_os("ONEGRAPH_LIBCUDA").is_some() => {
            "unset ONEGRAPH_LIBCUDA, so that the driver is searched for"
        }
        DriverError::NotFound { .. } => {
            "install this distribution's NVIDIA driver (Ubuntu: sudo ubuntu-drivers install)"
        }
        DriverError::TooOld { .. } => "update the NVIDIA driver to release 520 or later",
        DriverError::NotADriver { .. } | DriverError::NoVersion { .. } => {
            "set ONEGRAPH_LIBCUDA to the libcuda.so.1 that the NVIDIA driver installed"
        }
    }
}

/// For an error of opening the GPU, with a driver there.
fn mend_gpu(error: &DeviceError) -> &'static str {
    match error {
        DeviceError::NoDevice { found: 0, .. } => {
            "make the GPU visible: `nvidia-smi -L` must list it, and CUDA_VISIBLE_DEVICES be unset or name it"
        }
        DeviceError::NoDevice { .. } => "set ONEGRAPH_DEVICE_INDEX to a smaller number; 0 is the first GPU",
        DeviceError::BadIndex(_) => "unset ONEGRAPH_DEVICE_INDEX",
        DeviceError::NoImage { .. } => "choose another GPU by ONEGRAPH_DEVICE_INDEX, or use `--device cpu`",
        DeviceError::OutOfMemory { .. } => "end the programs that `nvidia-smi` shows on the GPU",
        _ => "reboot, so that the driver starts anew",
    }
}

fn gpu_found(device: &Device) -> Check {
    let info = device.info();
    let (major, minor) = info.compute_capability.unwrap_or_default();
    let free = device.memory_info().map_or_else(|error| error.to_string(), |(free, _)| format!("{} free", size(free)));
    let memory = size(info.memory_bytes);
    let detail = format!(
        "{}, compute capability {major}.{minor}, {} multiprocessors, {memory}, {free}",
        info.name, info.n_multiprocessors
    );
    Check::ok("GPU", detail)
}

/// Loads the image, which makes the driver compile it.
fn kernels_on_gpu(device: &Device) -> Check {
    match device.module(&KERNELS) {
        Ok(module) => Check::ok(KERNELS_ON_GPU, format!("image {} loads", module.image())),
        Err(error) => Check::missing(KERNELS_ON_GPU, error.to_string(), "cargo build"),
    }
}

fn cpu() -> Result<Check, Error> {
    let device = Device::open(DeviceChoice::Cpu)?;
    let (free, total) = device.memory_info()?;
    let n_processors = device.info().n_multiprocessors;
    Ok(Check::ok("CPU", format!("{n_processors} processors, {}, {} available", size(total), size(free))))
}

fn images() -> Check {
    let kernels = |ptx: &str| ptx.lines().filter(|line| line.contains(".entry ")).count();
    let (portable, hopper) = (kernels(KERNELS.sm_80), kernels(KERNELS.sm_90a));
    let detail = format!("sm_80 with {portable} kernels, sm_90a with {hopper}");
    if portable > 0 && hopper > 0 {
        Check::ok("kernel images", detail)
    } else {
        Check::missing("kernel images", detail, "scripts/kernel-toolchain && cargo build")
    }
}

/// Needed to build, not to run.
fn compiler() -> Check {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match KernelCompiler::find(&workspace.join("gpu-kernels")) {
        Ok(compiler) => {
            Check::ok("kernel compiler", format!("rustc {}, {}", compiler.version, compiler.rustc.display()))
        }
        Err(error) => {
            let text = error.to_string();
            let mend = error.compiler_remedy().unwrap_or("run doctor in a checkout of onegraph's source");
            // What to do has lines of its own, which begin with the remedy or with rustup's.
            let is_remedy = |line: &str| line == mend || line.starts_with("With rustup");
            let detail: Vec<&str> = text.lines().take_while(|line| !is_remedy(line)).map(str::trim).collect();
            Check::missing("kernel compiler", detail.join("; "), mend)
        }
    }
}

/// `rust-toolchain.toml` asks for components, and rustup goes to the network for those that it lacks.
fn rustup() -> Check {
    let asked = std::env::var_os("RUSTUP_AUTO_INSTALL").is_some_and(|value| value == "0");
    let detail = if asked {
        "RUSTUP_AUTO_INSTALL=0: cargo works without network"
    } else {
        "without network cargo may fail to install rust-src; then set RUSTUP_AUTO_INSTALL=0"
    };
    Check::ok("rustup", detail)
}

fn size(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn text(report: &Report) -> String {
    let mut text = format!("onegraph {}, works on the {}\n", report.version, report.device.to_uppercase());
    for check in &report.checks {
        let mark = if check.ok { "ok     " } else { "missing" };
        let _ = writeln!(text, "{mark}  {}: {}", check.name, check.detail);
        if let Some(mend) = check.mend {
            let _ = writeln!(text, "         mend: {mend}");
        }
    }
    text
}
