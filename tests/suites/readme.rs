//! The README's example runs, and what the README shows is what runs here.

use cuda_std::shape::LaunchShape;
use host::device::{Device, DeviceChoice};
use onegraph_tests::{Outcome, TEST_KERNELS as KERNELS, case, host_case, run};
use test_kernels::readme::axpy;

fn main() {
    run(vec![
        case("the_first_kernel_runs", the_first_kernel_runs),
        host_case("the_readme_shows_what_runs", the_readme_shows_what_runs),
    ])
}

fn the_first_kernel_runs(device: &Device) -> Outcome {
    launch(if device.backend_name() == "cpu" { DeviceChoice::Cpu } else { DeviceChoice::Auto })
}

#[rustfmt::skip] // as the README sets it
fn launch(choice: DeviceChoice) -> Outcome {
    let device = Device::open(choice)?;
    let (x, y) = (device.upload(&[1.0f32; 1000])?, device.upload(&[2.0f32; 1000])?);
    let module = device.module(&KERNELS)?;
    let stream = device.stream()?;
    stream.launch(&module, LaunchShape::cover(1000, 256), axpy::launch(3.0, x.view(), y.view_mut()))?;
    assert_eq!(y.read()?, [5.0; 1000]);
    Ok(())
}

fn the_readme_shows_what_runs() -> Outcome {
    let readme = include_str!("../../README.md");
    // Whole, with its module's doc, so that what a reader pastes compiles without a warning.
    let kernel = include_str!("../kernels/src/readme.rs");
    assert!(
        kernel.starts_with("//! ") && readme.contains(kernel),
        "the README's kernel is not tests/kernels/src/readme.rs"
    );
    let (_, body) = include_str!("readme.rs").split_once("let device = Device::open(choice)?;\n").expect("the launch");
    for line in body.lines().map(str::trim).take_while(|line| *line != "Ok(())") {
        assert!(readme.contains(line), "the README does not show `{line}`");
    }
    Ok(())
}
