//! What every launch must satisfy, on both backends.

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use super::Module;
use crate::error::DeviceError;

/// Threads that a block may have on every device.
const MAX_BLOCK_THREADS: u64 = 1024;

/// Refuses a module that was not loaded on the opening `device` of a device.
pub(super) fn check_module(
    device: u64,
    module: &Module,
    shape: LaunchShape,
    launch: &Launch,
) -> Result<(), DeviceError> {
    if module.device_id() == device {
        return Ok(());
    }
    let reason = format!(
        "module `{}` is of another device, or of another opening of this one: load it on the device that runs the launch",
        module.name()
    );
    Err(DeviceError::Launch { kernel: launch.info().name, shape, reason })
}

/// Checks the shape, that all memory is of the opening `device` of a device, and that what one parameter writes is reached
/// through no other.
pub(super) fn check(device: u64, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
    let info = launch.info();
    let refuse = |reason: String| Err(DeviceError::Launch { kernel: info.name, shape, reason });
    if shape.grid.count() == 0 || shape.block.count() == 0 {
        return refuse("a grid and a block have at least one element in each dimension".into());
    }
    let most = info.max_threads.map_or(MAX_BLOCK_THREADS, u64::from);
    if shape.block.count() > most {
        return refuse(format!(
            "a block has at most {most} threads{}",
            if info.max_threads.is_some() { ", the kernel's own bound `max_threads`" } else { "" }
        ));
    }
    if shape.block.z > 64 || shape.grid.x > i32::MAX as u32 || shape.grid.y > 65_535 || shape.grid.z > 65_535 {
        return refuse("at most: block z 64, grid x 2^31 - 1, grid y and z 65,535".into());
    }
    if let Some(claim) = launch.claims().iter().find(|claim| claim.range.memory().device() != device) {
        return refuse(format!(
            "`{}` is memory of another device, or of another opening of this one: allocate it on the device that runs \
             the launch",
            claim.parameter
        ));
    }
    launch.check_claims().or_else(|conflict| refuse(conflict.to_string()))
}
