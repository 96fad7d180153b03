//! Kernel crates written for rust-cuda build to PTX as they are: `tests/compat`, a workspace of its own that takes
//! `cuda_std` by its published version.
//!
//! These tests need a kernel compiler; without one they fail with the builder's own message on how to get it.

use std::fs;
use std::path::Path;

use cuda_builder::{CudaBuilder, NvvmArch};

/// The portable PTX of a crate in `compat`.
fn ptx(name: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = CudaBuilder::new(here.join("compat").join(name))
        .arch(NvvmArch::Compute80)
        .target_dir(here.parent().expect("tests lies in the workspace").join("target/kernels"))
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    fs::read_to_string(path).unwrap()
}

/// The lines of one entry.
fn entry<'a>(ptx: &'a str, name: &str) -> &'a str {
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no entry {name}"));
    let end = ptx[start..].find("\n}").expect("an entry ends");
    &ptx[start..start + end]
}

#[test]
fn vector_addition_reads_through_the_read_only_path() {
    let ptx = ptx("vecadd");
    let vecadd = entry(&ptx, "vecadd");
    assert_eq!(vecadd.matches("ld.global.nc.b32").count(), 2, "{vecadd}");
    assert_eq!(vecadd.matches("st.global.b32").count(), 1, "{vecadd}");
}

#[test]
fn a_tiled_product_stays_in_shared_memory() {
    let ptx = ptx("gemm");
    let tiled = entry(&ptx, "gemm_tiled");
    assert_eq!(tiled.matches("bar.sync").count(), 2, "{tiled}");
    assert_eq!(tiled.matches("st.shared.b32").count(), 2, "{tiled}");
    assert!(tiled.contains("ld.shared") && tiled.contains("fma.rn.f32"), "{tiled}");
    let generic = tiled.lines().find(|line| line.contains("\tld.b") || line.contains("\tst.b"));
    assert_eq!(generic, None, "an access that does not name its space");
    entry(&ptx, "gemm_naive");
    entry(&ptx, "rotate");
}

#[test]
fn the_published_sha2_crate_runs_in_a_kernel() {
    let ptx = ptx("sha2_crates_io");
    entry(&ptx, "hash_256");
    entry(&ptx, "hash_512");
}

#[test]
fn wide_integers_build() {
    let ptx = ptx("i128");
    entry(&ptx, "i128_ops");
    entry(&ptx, "u128_checksum");
}
