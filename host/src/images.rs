//! The compiled kernels.

/// One kernel crate's PTX, an image for each family of devices.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    /// The crate's name.
    pub name: &'static str,
    /// The portable image, for compute capability 8.0 and later.
    pub sm_80: &'static str,
    /// The image with Hopper's own instructions, for compute capability 9.0 alone.
    pub sm_90a: &'static str,
}
