//! Compiles a kernel crate to PTX from a build script, with rustc's own `nvptx64-nvidia-cuda` backend.
//!
//! ```no_run
//! use cuda_builder::CudaBuilder;
//!
//! CudaBuilder::new("../gpu-kernels").copy_to("../resources/kernels.ptx").build_or_exit();
//! ```
//!
//! The interface is the published `cuda_builder` 0.3's. What differs, because the compiler does:
//!
//! | rust-cuda | here |
//! | --- | --- |
//! | `release`, `build_args`, `arch`, `copy_to`, `fma_contraction`, `fast_div`, `fast_sqrt`, `emit_llvm_ir`, `emit_llvm_bitcode`, `final_module_path` | as there |
//! | `debug(DebugInfo::LineTables)` | `.loc` lines for profilers and compute-sanitizer; optimisation stays on |
//! | `generate_line_info`, `nvvm_opts` | accepted and ignored: line info comes from `debug`, and there is no libnvvm |
//! | `ftz` | accepted and ignored: LLVM takes it from each function's attributes, which rustc cannot set |
//! | `override_libm` | accepted and ignored: there is no libdevice; fast math is `cuda_std`'s |
//! | `use_constant_memory_space` | accepted and ignored: `#[address_space(constant)]` places statics by hand |
//! | `optix(true)` | an error: OptiX needs its own calling convention |
//!
//! How it works: a nested cargo builds the crate and `core` from source into one folder for each architecture,
//! `target/kernels/sm_80`; [`KernelCompiler::find`] says which rustc it uses. `#![no_std]` and the features that
//! `#[kernel]` needs are supplied to the crate from outside, unless it already declares them. The PTX is then given
//! its launch bounds and refused if it calls something that does not exist on the GPU.
//!
//! What it does not check: the text of `asm!` and `global_asm!`. rustc passes it on unread, and no assembler runs here, since
//! NVIDIA's is not part of a Rust toolchain; a word that is no PTX is found when a driver loads the image
//! (`CUDA_ERROR_INVALID_PTX`). `ptxas -arch=sm_80 FILE.ptx` finds it without a GPU; in this repository `scripts/ptxas-check`
//! fetches `ptxas`, assembles every image with it, and shows the refused line and the kernel around it.
//!
//! | file | holds |
//! | --- | --- |
//! | `compiler.rs` | which rustc compiles kernels |
//! | `nested.rs` | the nested cargo: arguments, environment, messages |
//! | `attributes.rs` | what a crate already declares about itself |
//! | `ptx.rs` | launch bounds and undefined symbols |

mod arch;
mod attributes;
mod compiler;
mod error;
mod nested;
mod ptx;

use std::path::{Path, PathBuf};

pub use arch::NvvmArch;
pub use compiler::KernelCompiler;
pub use error::CudaBuilderError;

/// Which line information goes into the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// None.
    None,
    /// The source line of each instruction, without switching optimisation off.
    LineTables,
}

/// What else the compiler writes beside the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitOption {
    /// LLVM's text form, as `rustc --emit=llvm-ir`.
    LlvmIr,
    /// LLVM's binary form, as `rustc --emit=llvm-bc`.
    Bitcode,
}

/// Builds one kernel crate. See the crate's own text for what differs from rust-cuda.
#[derive(Debug, Clone)]
pub struct CudaBuilder {
    path_to_crate: PathBuf,
    target_dir: Option<PathBuf>,
    edit_flags: Option<fn(&mut Vec<String>)>,
    /// Off: overflow checks and debug assertions are compiled in. The optimiser runs either way, since PTX of
    /// unoptimised Rust keeps every variable in slow local memory. `true` by default.
    pub release: bool,
    /// Where [`build`](Self::build) puts a copy of the PTX.
    pub ptx_file_copy_path: Option<PathBuf>,
    /// The architecture of [`build`](Self::build), `sm_80` by default: it runs on that chip and every later one.
    pub arch: NvvmArch,
    /// Approximate square root in single precision (`sqrt.approx`). `false` by default.
    pub fast_sqrt: bool,
    /// Approximate division in single precision (`div.approx`). `false` by default.
    pub fast_div: bool,
    /// One rounding for a product and a sum, as nvcc does it. `true` by default.
    pub fma_contraction: bool,
    /// What else to write, beside the raw PTX in the architecture's folder.
    pub emit: Option<EmitOption>,
    /// OptiX; only `false` can be built.
    pub optix: bool,
    /// Line information.
    pub debug: DebugInfo,
    /// More arguments for the nested cargo, such as `--features=x`.
    pub build_args: Vec<String>,
    /// Where to put the LLVM IR of the whole image.
    pub final_module_path: Option<PathBuf>,
}

impl CudaBuilder {
    /// A builder for the kernel crate in this folder, relative to the build script's package.
    pub fn new(path_to_crate_root: impl AsRef<Path>) -> Self {
        Self {
            path_to_crate: path_to_crate_root.as_ref().into(),
            target_dir: None,
            edit_flags: None,
            release: true,
            ptx_file_copy_path: None,
            arch: NvvmArch::default(),
            fast_sqrt: false,
            fast_div: false,
            fma_contraction: true,
            emit: None,
            optix: false,
            debug: DebugInfo::None,
            build_args: Vec::new(),
            final_module_path: None,
        }
    }

    /// Puts a copy of the PTX there.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.ptx_file_copy_path = Some(path.as_ref().into());
        self
    }

    /// The architecture to compile for.
    pub fn arch(mut self, arch: NvvmArch) -> Self {
        self.arch = arch;
        self
    }

    /// Whether overflow checks and debug assertions are left out.
    pub fn release(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// Which line information to write.
    pub fn debug(mut self, debug: DebugInfo) -> Self {
        self.debug = debug;
        self
    }

    /// More arguments for the nested cargo.
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.build_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Whether a product and a sum may be rounded once.
    pub fn fma_contraction(mut self, fma_contraction: bool) -> Self {
        self.fma_contraction = fma_contraction;
        self
    }

    /// Whether single-precision division may be approximate.
    pub fn fast_div(mut self, fast_div: bool) -> Self {
        self.fast_div = fast_div;
        self
    }

    /// Whether single-precision square root may be approximate.
    pub fn fast_sqrt(mut self, fast_sqrt: bool) -> Self {
        self.fast_sqrt = fast_sqrt;
        self
    }

    /// Writes LLVM's text form beside the raw PTX.
    pub fn emit_llvm_ir(mut self, emit: bool) -> Self {
        self.emit = emit.then_some(EmitOption::LlvmIr);
        self
    }

    /// Writes LLVM's binary form beside the raw PTX.
    pub fn emit_llvm_bitcode(mut self, emit: bool) -> Self {
        self.emit = emit.then_some(EmitOption::Bitcode);
        self
    }

    /// Puts the image's LLVM IR there.
    pub fn final_module_path(mut self, path: impl AsRef<Path>) -> Self {
        self.final_module_path = Some(path.as_ref().into());
        self
    }

    /// OptiX; building with `true` is an error.
    pub fn optix(mut self, optix: bool) -> Self {
        self.optix = optix;
        self
    }

    /// Accepted and ignored: line information comes from [`debug`](Self::debug).
    pub fn generate_line_info(self, _generate_line_info: bool) -> Self {
        self
    }

    /// Accepted and ignored: LLVM optimises, and libnvvm is not used.
    pub fn nvvm_opts(self, _nvvm_opts: bool) -> Self {
        self
    }

    /// Accepted and ignored: subnormal numbers are kept, which is what `false` asks for and `true` permits.
    pub fn ftz(self, _ftz: bool) -> Self {
        self
    }

    /// Accepted and ignored: `libm` is compiled as it is, with the same bits as on the CPU.
    pub fn override_libm(self, _override_libm: bool) -> Self {
        self
    }

    /// Accepted and ignored: only `#[address_space(constant)]` places a static in constant memory.
    pub fn use_constant_memory_space(self, _use_constant_memory_space: bool) -> Self {
        self
    }

    /// The folder under which the nested cargo builds, in place of the running build's own `target/kernels`.
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.target_dir = Some(path.as_ref().into());
        self
    }

    /// Changes the builder's own rustc flags: how the tests show that each of them is needed.
    #[doc(hidden)]
    pub fn edit_flags(mut self, edit: fn(&mut Vec<String>)) -> Self {
        self.edit_flags = Some(edit);
        self
    }

    pub(crate) fn edited(&self, mut flags: Vec<String>) -> Vec<String> {
        if let Some(edit) = self.edit_flags {
            edit(&mut flags);
        }
        flags
    }

    /// Builds the crate for [`arch`](Self::arch) and returns the PTX's path: `OUT_DIR/CRATE.sm_80.ptx`, or
    /// beside the nested build when there is no `OUT_DIR`. Tells cargo what to watch.
    ///
    /// # Errors
    /// Each way to fail is a variant of [`CudaBuilderError`], whose text is meant to be shown as it is.
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        let arch = self.arch;
        let path = self.build_images(&[arch])?.remove(0);
        if let Some(copy) = &self.ptx_file_copy_path {
            nested::replace(copy, &std::fs::read(&path).map_err(CudaBuilderError::FailedToCopyPtxFile)?)?;
        }
        Ok(path)
    }

    /// Builds the crate for several architectures side by side and returns the PTX's paths in their order,
    /// `OUT_DIR/CRATE.sm_80.ptx` and so on, for `include_str!`. Tells cargo what to watch.
    ///
    /// # Errors
    /// Those of [`build`](Self::build); of several failing architectures the first one's.
    pub fn build_images(&self, architectures: &[NvvmArch]) -> Result<Vec<PathBuf>, CudaBuilderError> {
        nested::build_images(self, architectures)
    }

    /// [`build`](Self::build) for a build script: on an error prints its text alone and ends with exit code 1.
    pub fn build_or_exit(self) -> PathBuf {
        or_exit(self.build())
    }

    /// [`build_images`](Self::build_images) for a build script: on an error prints its text alone and ends with
    /// exit code 1.
    pub fn build_images_or_exit(&self, architectures: &[NvvmArch]) -> Vec<PathBuf> {
        or_exit(self.build_images(architectures))
    }
}

fn or_exit<T>(result: Result<T, CudaBuilderError>) -> T {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(1)
    })
}

/// The target folder of the cargo run that this build script belongs to: the ancestor of `OUT_DIR` in which cargo keeps
/// what it knows about rustc. `None` outside a build script.
pub(crate) fn target_dir_of_build_script() -> Option<PathBuf> {
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR")?);
    out_dir.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()).map(Path::to_owned)
}
