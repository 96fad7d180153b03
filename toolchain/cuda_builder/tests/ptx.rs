//! What the builder makes of small kernel crates: the PTX, and the refusals.
//!
//! These tests need a kernel compiler; without one they fail with the builder's own message on how to get it.

use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::{CudaBuilder, CudaBuilderError, NvvmArch};

/// A crate whose root file is `tests/fixtures/NAME.rs`, laid out under the target folder with the workspace's lock
/// file, so that it resolves to the same versions without a network.
fn fixture(name: &str) -> CudaBuilder {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = here.parent().and_then(Path::parent).expect("the crate lies two folders down");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = scratch.join("fixtures").join(name);
    fs::create_dir_all(&folder).unwrap();
    let manifest = format!(
        "[package]\nname = \"fixture-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"{name}.rs\"\n[dependencies]\ncuda_std = \"0.2\"\n\
         [patch.crates-io]\ncuda_std = {{ path = {:?} }}\n[workspace]\n",
        workspace.join("toolchain/cuda_std")
    );
    // Only what differs is written, so that the nested cargo finds its earlier work still good.
    put(&folder.join("Cargo.toml"), &manifest);
    put(
        &folder.join(format!("{name}.rs")),
        &fs::read_to_string(here.join(format!("tests/fixtures/{name}.rs"))).unwrap(),
    );
    if !folder.join("Cargo.lock").exists() {
        fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    }
    CudaBuilder::new(folder).target_dir(scratch.parent().expect("inside the target folder").join("kernels"))
}

fn put(path: &Path, content: &str) {
    if fs::read_to_string(path).is_ok_and(|present| present == content) {
        return;
    }
    fs::write(path, content).unwrap();
}

fn ptx(builder: CudaBuilder) -> String {
    let path: PathBuf = builder.build().unwrap_or_else(|error| panic!("{error}"));
    fs::read_to_string(path).unwrap()
}

fn refusal(builder: CudaBuilder) -> CudaBuilderError {
    match builder.build() {
        Ok(path) => panic!("expected a refusal, got {}", path.display()),
        Err(error) => error,
    }
}

/// How often a line holds `needle`.
fn count(text: &str, needle: &str) -> usize {
    text.lines().filter(|line| line.contains(needle)).count()
}

/// How often each of `divergent.rs`'s kernels meets its barrier: the intrinsic's, the one in `asm!`.
fn barriers(builder: CudaBuilder) -> (usize, usize) {
    let ptx = ptx(builder);
    (count(entry(&ptx, "intrinsic"), "bar.sync"), count(entry(&ptx, "assembly"), "bar.sync"))
}

#[test]
fn a_barrier_between_branches_is_emitted_once() {
    assert_eq!(barriers(fixture("divergent")), (1, 1));
}

/// The guard of the test above: rustc's jump threading, left on, copies the intrinsic into both arms.
#[test]
fn a_barrier_between_branches_is_copied_by_rustcs_jump_threading() {
    let builder = fixture("divergent").edit_flags(|flags| flags.retain(|flag| !flag.contains("JumpThreading")));
    assert_eq!(barriers(builder).0, 2);
}

/// The other guard: LLVM copies assembly, which is not marked as convergent.
#[test]
fn a_barrier_between_branches_is_copied_by_llvms_simplifycfg() {
    let builder = fixture("divergent").edit_flags(|flags| flags.retain(|flag| !flag.contains("simplifycfg")));
    assert_eq!(barriers(builder), (1, 2));
}

#[test]
fn shared_memory_is_reached_by_shared_loads() {
    let ptx = ptx(fixture("shared"));
    assert_eq!((count(&ptx, "ld.shared"), count(&ptx, "st.shared")), (1, 1), "{ptx}");
}

/// The guard of the test above.
#[test]
fn shared_memory_is_reached_by_generic_loads_without_the_pass() {
    let builder = fixture("shared").edit_flags(|flags| flags.retain(|flag| !flag.starts_with("-Cpasses")));
    let ptx = ptx(builder);
    assert_eq!((count(&ptx, "ld.shared"), count(&ptx, "st.shared")), (0, 0), "{ptx}");
}

/// `plain.rs` has neither `#![no_std]` nor `#[kernel]`'s features. Its two slices are read through the read-only path,
/// its raw pointer is not; product and sum fuse.
#[test]
fn a_crate_without_attributes_builds_with_slices_split_and_sums_fused() {
    let ptx = ptx(fixture("plain"));
    let kernel = entry(&ptx, "plain");
    assert_eq!(count(kernel, ".param .u64"), 5, "pointer and length of two slices, and a pointer\n{kernel}");
    assert_eq!(count(kernel, "ld.global.nc.b32"), 2, "{kernel}");
    assert_eq!((count(kernel, "ld.global.b32"), count(kernel, "st.global.b32")), (1, 1), "{kernel}");
    assert_eq!((count(kernel, "fma.rn.f32"), count(kernel, "mul.f32")), (1, 0), "{kernel}");
}

#[test]
fn sums_do_not_fuse_when_asked_not_to() {
    let ptx = ptx(fixture("plain").fma_contraction(false));
    assert_eq!(count(&ptx, "fma."), 0, "{ptx}");
}

#[test]
fn division_and_root_are_exact_unless_asked_otherwise() {
    let exact = ptx(fixture("plain"));
    assert_eq!((count(&exact, "div.rn.f32"), count(&exact, "sqrt.rn.f32")), (1, 1), "{exact}");
    let fast = ptx(fixture("plain").fast_div(true).fast_sqrt(true));
    assert_eq!((count(&fast, "div.approx.f32"), count(&fast, "sqrt.approx.f32")), (1, 1), "{fast}");
}

/// The bounds stand between `)` and `{` of their own kernel, and a cluster bound only where there are clusters.
#[test]
fn launch_bounds_reach_the_ptx() {
    for (arch, want) in [
        (NvvmArch::Compute80, ")\n.maxntid 256\n.minnctapersm 2\n{"),
        (NvvmArch::Compute90a, ")\n.maxntid 256\n.minnctapersm 2\n.maxclusterrank 4\n{"),
    ] {
        let ptx = ptx(fixture("plain").arch(arch));
        assert!(entry(&ptx, "plain").contains(want), "{ptx}");
        assert!(!entry(&ptx, "quotient").contains(".maxntid"), "{ptx}");
        assert_eq!(count(&ptx, "cuda_builder"), 0, "{ptx}");
        assert_eq!(count(&ptx, &format!(".target {arch}")), 1, "{ptx}");
    }
}

#[test]
fn launch_bounds_of_no_kernel_are_refused() {
    let text = refusal(fixture("stray_bounds")).to_string();
    assert_eq!(
        text,
        "fixture-stray_bounds for sm_80: launch bounds are given for `nobody`, but the PTX has no such kernel"
    );
}

#[test]
fn an_unknown_intrinsic_is_refused_by_name() {
    let text = refusal(fixture("unknown_intrinsic")).to_string();
    assert!(text.contains("`llvm.nvvm.no.such.intrinsic`") && text.contains("check its name and its types"), "{text}");
}

#[test]
fn an_undefined_function_is_refused_and_vprintf_is_not() {
    let error = refusal(fixture("unknown_function"));
    let CudaBuilderError::UndefinedSymbol { symbols, .. } = &error else { panic!("{error}") };
    assert_eq!(symbols[..], ["host_only"], "{error}");
    assert!(error.to_string().contains("give the function a body"), "{error}");
}

/// rustc's own message, once, with the kernel's file and line; nothing of cargo's around it.
#[test]
fn a_kernel_that_does_not_compile_shows_rustcs_message_once() {
    let text = refusal(fixture("does_not_compile")).to_string();
    assert_eq!(count(&text, "error[E0308]: mismatched types"), 1, "{text}");
    assert_eq!(count(&text, "does_not_compile.rs:7:22"), 1, "{text}");
    assert_eq!(count(&text, "aborting due to"), 0, "{text}");
    assert!(text.starts_with("fixture-does_not_compile does not compile for sm_80:"), "{text}");
}

#[test]
fn several_architectures_are_built_side_by_side() {
    let paths = fixture("plain").build_images(&[NvvmArch::Compute80, NvvmArch::Compute90a]).unwrap();
    let targets: Vec<bool> = paths
        .iter()
        .zip([".target sm_80\n", ".target sm_90a\n"])
        .map(|(path, target)| fs::read_to_string(path).unwrap().contains(target))
        .collect();
    assert_eq!(targets, [true, true]);
}

#[test]
fn copy_to_puts_the_ptx_there() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("made/up/kernels.ptx");
    let path = fixture("plain").copy_to(&copy).build().unwrap();
    assert_eq!(fs::read(copy).unwrap(), fs::read(path).unwrap());
}

#[test]
fn a_path_that_holds_no_kernel_crate_is_refused() {
    // Inside the workspace, where a kernel compiler is found, which is looked for first.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let missing = folder.path().join("nowhere");
    let text = refusal(CudaBuilder::new(&missing)).to_string();
    assert_eq!(text, format!("the kernel crate `{}` does not exist", missing.display()));

    let text = refusal(CudaBuilder::new(folder.path())).to_string();
    assert!(text.ends_with("is not a kernel crate: it has no Cargo.toml"), "{text}");

    put(&folder.path().join("Cargo.toml"), "[workspace]\n");
    let text = refusal(CudaBuilder::new(folder.path())).to_string();
    assert!(text.ends_with("its Cargo.toml describes a workspace and no package"), "{text}");

    put(&folder.path().join("Cargo.toml"), "[package]\nname = \"program\"\nedition = \"2024\"\n[workspace]\n");
    fs::create_dir(folder.path().join("src")).unwrap();
    put(&folder.path().join("src/main.rs"), "fn main() {}\n");
    let text = refusal(CudaBuilder::new(folder.path())).to_string();
    assert!(text.ends_with("it has no library (src/lib.rs)"), "{text}");
}

#[test]
fn optix_is_refused() {
    let text = refusal(fixture("plain").optix(true)).to_string();
    assert_eq!(text, "CudaBuilder: OptiX programs cannot be built by this compiler");
}

/// The text of one kernel, from its name to its closing brace.
fn entry<'a>(ptx: &'a str, name: &str) -> &'a str {
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no kernel {name} in\n{ptx}"));
    let end = ptx[start..].find("\n}").expect("a kernel ends");
    &ptx[start..start + end]
}
