//! `doctor`: what works here.

use std::fmt::Write;
use std::path::Path;

use cuda_builder::KernelCompiler;
use cuda_driver::DriverError;
use serde::Serialize;

use super::output::{self, Json};
use super::{DeviceArgument, Error, Global, default_preset};
use crate::config::{Config, DataSource, MemoryEstimate, Preset, bytes_text};
use crate::device::{Device, DeviceChoice, is_named};
use crate::error::DeviceError;
use crate::images::KERNELS;
use crate::run::plan::memory_on;
use crate::text::shown;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The preset whose memory is worked out; full on a GPU and small on the CPU without it.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
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
    /// Whether the device that was asked for works.
    works: bool,
    /// The preset whose memory was worked out.
    preset: Preset,
    /// What a run of it on the simulator needs on the device.
    memory: MemoryEstimate,
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
        let cpu = Device::open(DeviceChoice::Cpu)?;
        let chosen = match (global.device, &gpu) {
            (DeviceArgument::Auto | DeviceArgument::Cuda, Ok(gpu)) => gpu,
            _ => &cpu,
        };
        let preset = self.preset.unwrap_or_else(|| default_preset(chosen));
        let config = Config::preset(preset, DataSource::Simulator);
        let memory = memory_on(chosen, &config, config.sim.bars as usize);
        checks.extend([cpu_found(&cpu)?, memory_for(preset, &memory, chosen), images(), compiler(), rustup()]);
        let kernels_run = checks.iter().all(|check| check.ok || check.name != KERNELS_ON_GPU);
        let works = match global.device {
            DeviceArgument::Cpu => true,
            // A driver or a GPU that is named is meant to be used.
            DeviceArgument::Auto => kernels_run && !gpu.as_ref().is_err_and(is_named),
            DeviceArgument::Cuda => gpu.is_ok() && kernels_run,
        };
        let device = if gpu.is_ok() { "cuda" } else { "cpu" };
        let report = Report { version: env!("CARGO_PKG_VERSION"), device, works, preset, memory, checks };
        self.json.write(&report)?;
        if !self.json.to_standard_output() {
            output::print(&text(&report, global.device))?;
        }
        match gpu {
            _ if works => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Error::Failed("the kernels do not run on this GPU".into())),
        }
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
        DriverError::NotFound { .. } if cuda_driver::is_named() => {
            "unset ONEGRAPH_LIBCUDA, so that the driver is searched for"
        }
        DriverError::NotFound { .. }
            if ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists()) =>
        {
            "start the container with the GPU (docker run --gpus all), on a host with the NVIDIA driver"
        }
        DriverError::NotFound { .. } => install_driver(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()),
        DriverError::TooOld { .. } => "update the NVIDIA driver to release 520 or later",
        DriverError::NotADriver { .. } | DriverError::NoVersion { .. } => {
            "set ONEGRAPH_LIBCUDA to the libcuda.so.1 that the NVIDIA driver installed"
        }
    }
}

/// How this distribution, by its `os-release`, installs the driver.
fn install_driver(os_release: &str) -> &'static str {
    let values = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').split_whitespace()
    };
    // Its own name first: Ubuntu says of itself that it is like Debian, and Mint that it is like Ubuntu.
    for name in values("ID").chain(values("ID_LIKE")) {
        match name {
            "ubuntu" => return "sudo ubuntu-drivers install",
            "debian" => {
                return "sudo apt-get install nvidia-driver (with the component non-free in /etc/apt/sources.list)";
            }
            _ => {}
        }
    }
    "install this distribution's package of the NVIDIA driver"
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
    match device.module(&KERNELS).and_then(|module| module.load_all().map(|()| module)) {
        Ok(module) => Check::ok(KERNELS_ON_GPU, format!("image {} loads", module.image())),
        Err(error) => Check::missing(KERNELS_ON_GPU, error.to_string(), "cargo build"),
    }
}

/// What a run of the preset needs, against what is free.
fn memory_for(preset: Preset, memory: &MemoryEstimate, device: &Device) -> Check {
    let free = match device.memory_info() {
        Ok((free, _)) => free,
        Err(error) => return Check::missing("memory", error.to_string(), mend_gpu(&error)),
    };
    let (name, needed) = (preset.name(), bytes_text(memory.total_bytes));
    let detail = format!("preset {name} needs {needed} of {} free: {memory}", bytes_text(free as u64));
    match memory.check(free, &device.info().name) {
        Ok(()) => Check::ok("memory", detail),
        Err(_) if preset == Preset::Tiny => Check::missing("memory", detail, "end other programs on the device"),
        Err(_) => Check::missing("memory", detail, "take a smaller preset: --preset small, or tiny"),
    }
}

fn cpu_found(device: &Device) -> Result<Check, Error> {
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
    bytes_text(bytes as u64)
}

fn text(report: &Report, asked: DeviceArgument) -> String {
    let device = if asked == DeviceArgument::Cpu { "cpu" } else { report.device };
    let heading = match (report.works, asked) {
        (true, _) => format!("works on the {}", if device == "cuda" { "GPU" } else { "CPU" }),
        (false, DeviceArgument::Cuda) => {
            "does not work on the GPU, which was asked for; works with `--device cpu`".into()
        }
        (false, _) => "does not work on the GPU; works with `--device cpu`".into(),
    };
    let mut text = format!("onegraph {}, {heading}\n", report.version);
    for check in &report.checks {
        let mark = if check.ok { "ok     " } else { "missing" };
        let _ = writeln!(text, "{mark}  {}: {}", check.name, shown(&check.detail));
        if let Some(mend) = check.mend {
            let _ = writeln!(text, "         mend: {mend}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_has_its_own_command_for_the_driver() {
        for (os_release, want) in [
            ("NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n", "ubuntu-drivers"),
            ("PRETTY_NAME=\"Debian GNU/Linux 13\"\nVERSION_ID=\"13\"\nID=debian\n", "apt-get install nvidia-driver"),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "ubuntu-drivers"),
            ("ID=raspbian\nID_LIKE=debian\n", "apt-get install nvidia-driver"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "this distribution's package"),
            ("", "this distribution's package"),
        ] {
            assert!(install_driver(os_release).contains(want), "{os_release}");
        }
    }

    #[test]
    fn the_heading_never_claims_more_than_works() {
        use DeviceArgument::{Auto, Cpu, Cuda};
        for (device, works, asked, want) in [
            ("cpu", true, Auto, "works on the CPU"),
            ("cuda", true, Auto, "works on the GPU"),
            ("cuda", true, Cuda, "works on the GPU"),
            ("cuda", true, Cpu, "works on the CPU"),
            ("cpu", true, Cpu, "works on the CPU"),
            ("cpu", false, Cuda, "does not work on the GPU, which was asked for; works with `--device cpu`"),
            ("cuda", false, Cuda, "does not work on the GPU, which was asked for; works with `--device cpu`"),
            ("cuda", false, Auto, "does not work on the GPU; works with `--device cpu`"),
        ] {
            let memory = MemoryEstimate { parts: Vec::new(), total_bytes: 0 };
            let report = Report { version: "0", device, works, preset: Preset::Tiny, memory, checks: Vec::new() };
            let text = text(&report, asked);
            assert_eq!(text, format!("onegraph 0, {want}\n"));
        }
    }
}
