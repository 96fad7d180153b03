//! `cuda_std`'s device API: each kernel of `test-kernels` against plain loops.

#[path = "../device_api/mod.rs"]
mod device_api;

use bytemuck::Pod;
use cuda_std::cfg::ComputeCapability;
use cuda_std::launch::{DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, Launch};
use cuda_std::shape::LaunchShape;
use device_api::{Backend, NamedCase};
use host::device::{Buffer, Device, DeviceChoice, Module, Stream};
use onegraph_tests::{Case, Outcome, TEST_KERNELS, case, run};
use test_kernels::{output, reexports};

/// Set for a process of its own that launches one kernel: the name of the launch.
const CHILD: &str = "ONEGRAPH_TEST_CHILD";

fn main() {
    if let Ok(launch) = std::env::var(CHILD) {
        std::process::exit(child(&launch));
    }
    let on_device = |(name, test): NamedCase<OnDevice>| -> Case {
        case(name, move |device: &Device| -> Outcome {
            test(&OnDevice::new(device.clone())?);
            Ok(())
        })
    };
    let mut cases: Vec<Case> = device_api::cases().into_iter().map(on_device).collect();
    cases.extend(device_api::cases_of_sm_90().into_iter().map(|named| on_device(named).needs_sm_90()));
    cases.push(case("what_a_kernel_prints", what_a_kernel_prints));
    cases.push(case("the_capability_is_the_images", the_capability_is_the_images));
    cases.push(case("a_trap_and_a_breakpoint_end_the_launch", a_trap_and_a_breakpoint_end_the_launch));
    cases.push(case("a_failed_assertion_is_told_and_ends_the_launch", a_failed_assertion_is_told_and_ends_the_launch));
    run(cases)
}

/// Launches the kernel `DEVICE:NAME` and says how it ended: 0 if it ran, 3 if it failed, with the error on standard error.
fn child(launch: &str) -> i32 {
    let (device, kernel) = launch.split_once(':').expect("DEVICE:NAME");
    let choice = if device == "cuda" { DeviceChoice::Cuda } else { DeviceChoice::Cpu };
    let on_device = OnDevice::new(Device::open(choice).unwrap()).unwrap();
    let result = match kernel {
        "print_values" => on_device.run(LaunchShape::linear(1, 64), output::print_values::launch(3, 0.5)),
        "assert_below" => on_device.run(LaunchShape::linear(1, 32), output::assert_below::launch(31)),
        "assert_equal" => on_device.run(LaunchShape::linear(1, 1), output::assert_equal::launch(4, 5)),
        "trap" => on_device.run(LaunchShape::linear(1, 1), reexports::end_early::launch(0)),
        "breakpoint" => on_device.run(LaunchShape::linear(1, 1), reexports::end_early::launch(1)),
        other => unreachable!("no launch is called {other}"),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            3
        }
    }
}

/// Launches in a process of its own, whose output can be read and whose context may be spoilt: all it wrote, and its code.
fn in_a_process(device: &Device, kernel: &str) -> Result<(String, Option<i32>), std::io::Error> {
    let launch = format!("{}:{kernel}", device.backend_name());
    let output = std::process::Command::new(std::env::current_exe()?).env(CHILD, launch).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8_lossy(&text).into_owned(), output.status.code()))
}

fn what_a_kernel_prints(device: &Device) -> Outcome {
    let (text, code) = in_a_process(device, "print_values")?;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("onegraph: 3 of    -7 at 0.500, 0xbeef true 100%\n").count(), 1, "{text}");
    Ok(())
}

fn a_failed_assertion_is_told_and_ends_the_launch(device: &Device) -> Outcome {
    let (text, code) = in_a_process(device, "assert_below")?;
    assert_eq!(code, Some(3), "{text}");
    for told in ["index 31 reached the limit", "output.rs", "index < limit"] {
        assert!(text.contains(told), "`{told}` is not in:\n{text}");
    }
    let (text, code) = in_a_process(device, "assert_equal")?;
    assert_eq!(code, Some(3), "{text}");
    for told in ["left 4", "right 5", "output.rs"] {
        assert!(text.replace(": ", " ").contains(told), "`{told}` is not in:\n{text}");
    }
    Ok(())
}

fn the_capability_is_the_images(device: &Device) -> Outcome {
    let on_device = OnDevice::new(device.clone())?;
    let out = device.alloc_zeroed::<u32>(2)?;
    on_device.run(LaunchShape::linear(1, 1), reexports::capability::launch(out.view_mut()))?;
    let want = match on_device.module.image() {
        "sm_90a" => [ComputeCapability::Compute90 as u32, 1],
        _ => [ComputeCapability::Compute80 as u32, 0],
    };
    assert_eq!(out.read()?, want);
    Ok(())
}

fn a_trap_and_a_breakpoint_end_the_launch(device: &Device) -> Outcome {
    for how in ["trap", "breakpoint"] {
        let (text, code) = in_a_process(device, how)?;
        assert_eq!(code, Some(3), "{how}: {text}");
        if device.backend_name() == "cpu" {
            assert!(
                text.contains("kernel `end_early`") && text.contains(how) && text.contains("reexports.rs:"),
                "{text}"
            );
        }
    }
    Ok(())
}

/// A device with the test kernels loaded. What fails here fails the case.
struct OnDevice {
    device: Device,
    module: Module,
    stream: Stream,
}

impl OnDevice {
    fn new(device: Device) -> Result<Self, host::error::DeviceError> {
        Ok(Self { module: device.module(&TEST_KERNELS)?, stream: device.stream()?, device })
    }
}

impl Backend for OnDevice {
    type Buffer<T: Pod + Send + Sync> = Buffer<T>;

    fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Buffer<T> {
        self.device.upload(values).unwrap()
    }

    fn view<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSlice<'a, T> {
        buffer.view()
    }

    fn view_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSliceMut<'a, T> {
        buffer.view_mut()
    }

    fn ptr<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtr<'a, T> {
        buffer.ptr()
    }

    fn ptr_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtrMut<'a, T> {
        buffer.ptr_mut()
    }

    fn read<T: Pod + Send + Sync>(&self, buffer: &Buffer<T>) -> Vec<T> {
        buffer.read().unwrap()
    }

    fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), String> {
        let launched = self.stream.launch(&self.module, shape, launch);
        launched.and_then(|()| self.stream.synchronize()).map_err(|error| error.to_string())
    }
}
