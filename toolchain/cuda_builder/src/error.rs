//! What can go wrong, one clear message each.

use std::io;
use std::path::PathBuf;

use crate::compiler::VARIABLE;

/// Why a kernel crate gave no PTX.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaBuilderError {
    /// The path given to `CudaBuilder::new` leads nowhere.
    #[error("the kernel crate `{}` does not exist", .0.display())]
    CratePathDoesntExist(PathBuf),

    /// The folder is there but holds no package that kernels could be built from.
    #[error("`{}` is not a kernel crate: {why}", path.display())]
    NotAKernelCrate {
        /// The folder as given.
        path: PathBuf,
        /// What it lacks.
        why: String,
    },

    /// No compiler with the standard library's source was found.
    #[error(
        "no kernel compiler: kernels need rustc {MINIMUM} or later together with the source of `core`\n{}\n\
         With rustup: rustup component add rust-src\n\
         On Debian and Ubuntu, without root: scripts/kernel-toolchain",
        lines(tried)
    )]
    NoCompiler {
        /// Each place that was looked at, and why it did not do.
        tried: Vec<String>,
    },

    /// A compiler was found, but it is older than kernels need.
    #[error(
        "wrong kernel compiler: found rustc {found} at {}, kernels need {MINIMUM} or later\n\
         With rustup: rustup toolchain install {MINIMUM} --component rust-src\n\
         On Debian and Ubuntu, without root: scripts/kernel-toolchain",
        rustc.display()
    )]
    WrongCompilerVersion {
        /// The version it reports.
        found: String,
        /// Its path.
        rustc: PathBuf,
    },

    /// `ONEGRAPH_KERNEL_RUSTC` is set to something that cannot compile kernels.
    #[error(
        "{VARIABLE} names {}, which {what}\n\
         Kernels need rustc {MINIMUM} or later together with the source of `core` (rust-src)\n\
         {NAMED_REMEDY}",
        rustc.display()
    )]
    UnusableCompiler {
        /// What the variable holds.
        rustc: PathBuf,
        /// What it is instead: the end of a sentence about it.
        what: String,
    },

    /// rustc refused the kernel crate or one of its dependencies.
    #[error("{package} does not compile for {arch}:\n\n{}", rendered.trim_end())]
    BuildFailed {
        /// The kernel crate.
        package: String,
        /// The architecture being built.
        arch: String,
        /// rustc's own messages, each once.
        rendered: String,
    },

    /// Cargo failed without a message of rustc's (resolution, network, a manifest).
    #[error("cargo could not build {package} for {arch}:\n\n{}", stderr.trim_end())]
    CargoFailed {
        /// The kernel crate.
        package: String,
        /// The architecture being built.
        arch: String,
        /// What cargo printed.
        stderr: String,
    },

    /// The PTX calls something that the GPU does not have.
    #[error(
        "{package} for {arch} refers to {}, which nothing defines on the GPU\n{}",
        quoted(symbols),
        extern_cause(symbols)
    )]
    UndefinedSymbol {
        /// The kernel crate.
        package: String,
        /// The architecture being built.
        arch: String,
        /// The names as written in Rust where that can be told.
        symbols: Vec<String>,
    },

    /// A launch bound names no kernel, or is not one.
    #[error("{package} for {arch}: {why}")]
    BadLaunchBounds {
        /// The kernel crate.
        package: String,
        /// The architecture being built.
        arch: String,
        /// Which bound, and what is wrong with it.
        why: String,
    },

    /// A builder method was given something that this compiler cannot do.
    #[error("CudaBuilder: {0}")]
    Unsupported(String),

    /// The finished PTX could not be put where it was asked for.
    #[error("cannot write the PTX: {0}")]
    FailedToCopyPtxFile(#[source] io::Error),

    /// A file or process of the build could not be reached.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done, with the path.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// The oldest rustc that kernels compile with.
pub(crate) const MINIMUM: &str = "1.95.0";

/// What to do about a compiler that the variable names and that will not do.
const NAMED_REMEDY: &str = "unset ONEGRAPH_KERNEL_RUSTC, or point it at such a compiler; scripts/kernel-toolchain fetches \
    one, which is found without the variable";

impl CudaBuilderError {
    /// The one thing that mends a missing or unfit kernel compiler; none for other errors. The error's text ends with it.
    pub fn compiler_remedy(&self) -> Option<&'static str> {
        match self {
            Self::NoCompiler { .. } | Self::WrongCompilerVersion { .. } => Some("scripts/kernel-toolchain"),
            Self::UnusableCompiler { .. } => Some(NAMED_REMEDY),
            _ => None,
        }
    }

    /// For `map_err`: an I/O error together with what was being done.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

fn lines(tried: &[String]) -> String {
    tried.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn quoted(symbols: &[String]) -> String {
    symbols.iter().map(|symbol| format!("`{symbol}`")).collect::<Vec<_>>().join(", ")
}

fn extern_cause(symbols: &[String]) -> &'static str {
    if symbols.iter().any(|symbol| symbol.starts_with("llvm.")) {
        "An intrinsic that the compiler does not know becomes such a call: check its name and its types."
    } else {
        "On the GPU only vprintf, malloc, free and __assertfail exist outside the crate: \
         give the function a body, or leave out the code that calls it for target_os = \"cuda\"."
    }
}
