//! Kernels that exercise the toolchain.
#![cfg_attr(target_os = "cuda", no_std)]
#![cfg_attr(target_os = "cuda", feature(abi_ptx, asm_experimental_arch))]

pub mod warp;
