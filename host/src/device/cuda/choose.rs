//! Which image of a kernel crate a device runs.

use cuda_driver::DriverVersion;

use crate::error::DeviceError;
use crate::images::Images;

/// The driver that understands the PTX version of the sm_90a image, 8.3.
const SM_90A_NEEDS: DriverVersion = DriverVersion { major: 12, minor: 3 };

/// The best image for a device of compute capability `cc` under a driver: its name and text. sm_90a PTX runs on
/// compute capability 9.0 and nothing else; sm_80 PTX on 8.0 and everything later.
pub(super) fn choose(
    images: &Images,
    device: &str,
    cc: (u32, u32),
    driver: DriverVersion,
) -> Result<(&'static str, &'static str), DeviceError> {
    if cc == (9, 0) && driver >= SM_90A_NEEDS && !images.sm_90a.is_empty() {
        return Ok(("sm_90a", images.sm_90a));
    }
    check_device(images.name, device, cc)?;
    if images.sm_80.is_empty() {
        let reason = "the program was built without the sm_80 image; build it again with a kernel compiler";
        return Err(DeviceError::NoImage { module: images.name, device: device.into(), cc, reason });
    }
    Ok(("sm_80", images.sm_80))
}

/// Refuses a device that runs no image at all.
pub(super) fn check_device(module: &'static str, device: &str, cc: (u32, u32)) -> Result<(), DeviceError> {
    if cc >= (8, 0) {
        return Ok(());
    }
    let reason = "PTX cannot run on this device: compute capability 8.0 or later is needed; use `--device cpu`";
    Err(DeviceError::NoImage { module, device: device.into(), cc, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Images = Images { name: "kernels", sm_80: "portable", sm_90a: "hopper" };
    const DRIVER_12_3: DriverVersion = DriverVersion { major: 12, minor: 3 };
    const DRIVER_12_2: DriverVersion = DriverVersion { major: 12, minor: 2 };

    #[test]
    fn hopper_alone_gets_hoppers_image() {
        let image =
            |cc, driver| choose(&BOTH, "GPU", cc, driver).map(|(name, _)| name).map_err(|error| error.to_string());
        assert_eq!(image((9, 0), DRIVER_12_3), Ok("sm_90a"));
        assert_eq!(image((9, 0), DRIVER_12_2), Ok("sm_80"), "the driver cannot read PTX 8.3");
        for cc in [(8, 0), (8, 6), (8, 9), (9, 1), (10, 0), (12, 0)] {
            assert_eq!(image(cc, DRIVER_12_3), Ok("sm_80"), "{cc:?}");
        }
    }

    #[test]
    fn an_older_device_is_refused_with_what_it_is_and_what_it_needs() {
        let error = choose(&BOTH, "Tesla T4", (7, 5), DRIVER_12_3).expect_err("7.5 is older than 8.0").to_string();
        for part in ["Tesla T4", "7.5", "8.0", "--device cpu", "kernels"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[test]
    fn a_missing_image_is_named() {
        let images = Images { sm_80: "", ..BOTH };
        assert!(choose(&images, "A100", (8, 0), DRIVER_12_3).is_err_and(|error| error.to_string().contains("sm_80")));
        let images = Images { sm_90a: "", ..BOTH };
        assert_eq!(choose(&images, "H100", (9, 0), DRIVER_12_3).expect("the portable one runs").0, "sm_80");
    }
}
