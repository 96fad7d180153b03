//! Whole-program tests.

use host::images::Images;

/// `test-kernels`: kernels that exercise the toolchain.
pub const TEST_KERNELS: Images = Images {
    name: "test-kernels",
    sm_80: include_str!(concat!(env!("OUT_DIR"), "/test_kernels.sm_80.ptx")),
    sm_90a: include_str!(concat!(env!("OUT_DIR"), "/test_kernels.sm_90a.ptx")),
};
