//! The device interface: memory, launches, streams.

use cuda_std::cpu::ExecutorOptions;
use cuda_std::shape::LaunchShape;
use host::device::Device;
use host::images;
use onegraph_tests::{Outcome, TEST_KERNELS as KERNELS, case, run};
use test_kernels::copies::copy_f32;

fn main() {
    run(vec![
        case("upload_then_read_gives_the_same_bits", upload_then_read_gives_the_same_bits),
        case("a_launch_writes_every_element", a_launch_writes_every_element),
        case("a_slice_leaves_its_neighbours_alone", a_slice_leaves_its_neighbours_alone),
        case("overlapping_write_is_refused_by_name", overlapping_write_is_refused_by_name),
        case("a_launch_through_another_crates_module_is_refused", a_launch_through_another_crates_module_is_refused),
        case("memory_of_another_device_is_refused_by_name", memory_of_another_device_is_refused_by_name),
        case("a_module_of_another_opening_is_refused_by_name", a_module_of_another_opening_is_refused_by_name),
        case("impossible_shapes_are_refused", impossible_shapes_are_refused),
        case("lengths_must_agree", lengths_must_agree),
        case("events_tell_a_time", events_tell_a_time),
        case("pinned_memory_is_shared_with_kernels", pinned_memory_is_shared_with_kernels),
    ])
}

/// Around a warp, a block and several blocks of 32.
const SIZES: [usize; 8] = [1, 31, 32, 33, 255, 257, 1000, 4099];

fn upload_then_read_gives_the_same_bits(device: &Device) -> Outcome {
    for len in [0, 1, 255, 256, 257] {
        let values: Vec<u32> = (0..len).map(|i| 0x7f80_0001 ^ i).collect();
        assert_eq!(device.upload(&values)?.read()?, values, "len = {len}");
    }
    assert_eq!(device.alloc_zeroed::<u64>(7)?.read()?, [0; 7]);
    Ok(())
}

fn a_launch_writes_every_element(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    for len in SIZES {
        let values: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let source = device.upload(&values)?;
        let target = device.upload(&vec![f32::NAN; len])?;
        stream.launch(&module, LaunchShape::cover(len, 32), copy_f32::launch(source.view(), target.view_mut(), 2.0))?;
        let expected: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
        assert_eq!(target.read()?, expected, "len = {len}");
    }
    Ok(())
}

fn a_slice_leaves_its_neighbours_alone(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let source = device.upload(&[1.0f32; 100])?;
    let target = device.upload(&[-1.0f32; 100])?;
    let launch = copy_f32::launch(source.slice(0..40).view(), target.slice(30..70).view_mut(), 1.0);
    stream.launch(&module, LaunchShape::cover(40, 32), launch)?;
    let expected: Vec<f32> = (0..100).map(|i| if (30..70).contains(&i) { 1.0 } else { -1.0 }).collect();
    assert_eq!(target.read()?, expected);
    Ok(())
}

fn overlapping_write_is_refused_by_name(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let buffer = device.alloc_zeroed::<f32>(64)?;
    let launch = |from: std::ops::Range<usize>| {
        let launch = copy_f32::launch(buffer.slice(from).view(), buffer.slice(32..64).view_mut(), 1.0);
        stream.launch(&module, LaunchShape::cover(32, 32), launch)
    };
    launch(0..32)?;
    let message = launch(1..33).expect_err("one element is shared").to_string();
    for part in ["copy_f32", "`source`", "`target`", "grid 1x1x1, block 32x1x1"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    Ok(())
}

fn pinned_memory_is_shared_with_kernels(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let (source, target) = (device.pinned::<f32>(33)?, device.pinned::<f32>(33)?);
    (0..33).for_each(|i| source.set(i, i as f32));
    stream.launch(&module, LaunchShape::cover(33, 32), copy_f32::launch(source.view(), target.view_mut(), 3.0))?;
    stream.synchronize()?;
    assert_eq!(target.read(), (0..33).map(|i| 3.0 * i as f32).collect::<Vec<_>>());
    Ok(())
}

fn a_launch_through_another_crates_module_is_refused(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&images::KERNELS)?, device.stream()?);
    let (source, target) = (device.alloc_zeroed::<f32>(32)?, device.alloc_zeroed::<f32>(32)?);
    let launch = copy_f32::launch(source.view(), target.view_mut(), 1.0);
    let message = stream.launch(&module, LaunchShape::cover(32, 32), launch).expect_err("another crate's").to_string();
    assert!(message.contains("`copy_f32`") && message.contains("`gpu-kernels`"), "{message}");
    Ok(())
}

fn memory_of_another_device_is_refused_by_name(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let other = Device::cpu_with(ExecutorOptions::default());
    let (mine, foreign) = (device.upload(&[1.0f32; 32])?, other.upload(&[2.0f32; 32])?);
    for (source, target, parameter) in [(&foreign, &mine, "`source`"), (&mine, &foreign, "`target`")] {
        let launch = copy_f32::launch(source.view(), target.view_mut(), 1.0);
        let message = stream.launch(&module, LaunchShape::cover(32, 32), launch).expect_err("foreign").to_string();
        for part in ["copy_f32", parameter, "another device"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
    assert_eq!((mine.read()?, foreign.read()?), (vec![1.0; 32], vec![2.0; 32]));
    Ok(())
}

fn a_module_of_another_opening_is_refused_by_name(device: &Device) -> Outcome {
    let (one, two) = (Device::cpu_with(ExecutorOptions::default()), Device::cpu_with(ExecutorOptions::default()));
    let refused = |module: &Device, runs: &Device| -> Outcome {
        let (module, stream) = (module.module(&KERNELS)?, runs.stream()?);
        let (source, target) = (runs.upload(&[1.0f32; 32])?, runs.upload(&[2.0f32; 32])?);
        let launch = copy_f32::launch(source.view(), target.view_mut(), 1.0);
        let message = stream.launch(&module, LaunchShape::cover(32, 32), launch).expect_err("foreign").to_string();
        for part in ["copy_f32", "module `test-kernels`", "another opening", "load it on the device"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        assert_eq!(target.read()?, [2.0; 32]);
        Ok(())
    };
    refused(&one, &two)?;
    refused(&one, device)?;
    refused(device, &two)
}

fn impossible_shapes_are_refused(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let (source, target) = (device.alloc_zeroed::<f32>(32)?, device.alloc_zeroed::<f32>(32)?);
    let launch = |shape| stream.launch(&module, shape, copy_f32::launch(source.view(), target.view_mut(), 1.0));
    let shape = |grid: (u32, u32, u32), block: (u32, u32, u32)| LaunchShape::new(grid.into(), block.into());
    for (shape, part) in [
        (shape((0, 1, 1), (32, 1, 1)), "grid 0x1x1"),
        (shape((1, 1, 1), (32, 0, 1)), "block 32x0x1"),
        (shape((1, 1, 1), (1025, 1, 1)), "1024"),
        (shape((1, 1, 1), (1, 1, 65)), "block z 64"),
        (shape((1, 65_536, 1), (1, 1, 1)), "65,535"),
    ] {
        let message = launch(shape).expect_err("no device can").to_string();
        assert!(message.contains("copy_f32") && message.contains(part), "{part} is not in: {message}");
    }
    launch(shape((1, 1, 1), (1024, 1, 1)))?;
    Ok(())
}

fn lengths_must_agree(device: &Device) -> Outcome {
    let buffer = device.alloc_zeroed::<u32>(10)?;
    let message = buffer.write(&[0; 9]).expect_err("nine are not ten").to_string();
    assert!(message.contains('9') && message.contains("10"), "{message}");
    buffer.slice(1..10).write(&[7; 9])?;
    assert_eq!(buffer.read()?, [0, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    assert_eq!(buffer.slice(9..10).read()?, [7]);
    Ok(())
}

fn events_tell_a_time(device: &Device) -> Outcome {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let (source, target) = (device.alloc_zeroed::<f32>(100_000)?, device.alloc_zeroed::<f32>(100_000)?);
    let start = stream.record()?;
    for _ in 0..10 {
        let launch = copy_f32::launch(source.view(), target.view_mut(), 1.0);
        stream.launch(&module, LaunchShape::cover(100_000, 128), launch)?;
    }
    let elapsed = stream.record()?.since(&start)?;
    // 8 MB cross the memory: over a microsecond on any device, and a minute would be a unit mistaken.
    assert!(elapsed.as_secs_f64() > 1e-6 && elapsed.as_secs_f64() < 60.0, "{elapsed:?}");
    Ok(())
}
