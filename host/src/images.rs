//! The compiled kernels.

/// A kernel crate's PTX, once for each kind of device.
#[derive(Debug, Clone, Copy)]
pub struct Images {
    /// The kernel crate.
    pub name: &'static str,
    /// For every chip since Ampere; the driver compiles it for newer ones.
    pub sm_80: &'static str,
    /// For Hopper alone, with its own instructions.
    pub sm_90a: &'static str,
}

/// `gpu-kernels`.
pub const KERNELS: Images = Images {
    name: "gpu-kernels",
    sm_80: include_str!(concat!(env!("OUT_DIR"), "/gpu_kernels.sm_80.ptx")),
    sm_90a: include_str!(concat!(env!("OUT_DIR"), "/gpu_kernels.sm_90a.ptx")),
};
