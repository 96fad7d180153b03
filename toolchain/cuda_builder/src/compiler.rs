//! Finds the rustc that compiles kernels.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{CudaBuilderError, MINIMUM};

/// The variable that names the kernel compiler and overrides the search.
pub(crate) const VARIABLE: &str = "ONEGRAPH_KERNEL_RUSTC";

/// A rustc that can build `core` for the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCompiler {
    /// Path of the executable.
    pub rustc: PathBuf,
    /// What it calls itself, such as `1.96.0`.
    pub version: String,
    /// The folder of its own shared libraries, when it does not find them without help.
    pub library_dir: Option<PathBuf>,
    /// `rustc -vV`, which changes whenever the compiler does.
    pub(crate) identity: String,
}

/// Where to look, in this order. A type of its own so that tests can point it at made-up toolchains.
#[derive(Debug)]
pub(crate) struct Search {
    /// `ONEGRAPH_KERNEL_RUSTC`.
    pub named: Option<OsString>,
    /// The toolchain that runs the build.
    pub active: PathBuf,
    /// Folders that `scripts/kernel-toolchain` may have filled.
    pub unpacked: Vec<PathBuf>,
    /// The distribution's.
    pub system: PathBuf,
}

/// What one candidate turned out to be.
enum Verdict {
    Usable(KernelCompiler),
    TooOld {
        found: String,
    },
    /// The end of a sentence about it.
    Unusable(String),
}

impl KernelCompiler {
    /// Finds the compiler for the kernel crate at `path`: `ONEGRAPH_KERNEL_RUSTC`, the active toolchain when it has
    /// `rust-src`, `target/kernel-toolchain` of the crate's workspace, `/usr/bin/rustc`.
    ///
    /// # Errors
    /// [`CudaBuilderError::NoCompiler`], [`CudaBuilderError::WrongCompilerVersion`] when every compiler that has the
    /// source is too old, [`CudaBuilderError::UnusableCompiler`] when the variable names something that will not do.
    pub fn find(path: &Path) -> Result<Self, CudaBuilderError> {
        Search::from_env(path).run()
    }

    /// A command that runs this compiler.
    fn command(rustc: &Path, library_dir: Option<&Path>) -> Command {
        let mut command = Command::new(rustc);
        // The outer cargo's folder may hold another compiler's library of the same name, with another sysroot.
        match library_dir {
            Some(dir) => command.env("LD_LIBRARY_PATH", dir),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
        command
    }
}

impl Search {
    /// The places of this process's environment; `path` is the kernel crate.
    pub(crate) fn from_env(path: &Path) -> Self {
        let mut unpacked: Vec<PathBuf> = crate::target_dir_of_build_script().into_iter().collect();
        unpacked.extend(path.ancestors().map(|folder| folder.join("target")));
        Self {
            named: std::env::var_os(VARIABLE).filter(|value| !value.is_empty()),
            active: std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from),
            unpacked: unpacked.into_iter().map(|target| target.join("kernel-toolchain")).collect(),
            system: "/usr/bin/rustc".into(),
        }
    }

    /// The first compiler that will do.
    pub(crate) fn run(&self) -> Result<KernelCompiler, CudaBuilderError> {
        if let Some(named) = &self.named {
            let rustc = PathBuf::from(named);
            let what = match examine(&rustc) {
                Verdict::Usable(compiler) => return Ok(compiler),
                Verdict::TooOld { found } => format!("is rustc {found}"),
                Verdict::Unusable(what) => what,
            };
            return Err(CudaBuilderError::UnusableCompiler { rustc, what });
        }
        let mut candidates = vec![("active toolchain", self.active.clone())];
        let unpacked = self.unpacked.iter().find(|folder| folder.is_dir());
        candidates.extend(unpacked.map(|folder| ("unpacked toolchain", folder.join("usr/bin/rustc"))));
        candidates.push(("system", self.system.clone()));

        let mut tried = Vec::new();
        let mut too_old = None;
        for (place, rustc) in candidates {
            match examine(&rustc) {
                Verdict::Usable(compiler) => return Ok(compiler),
                Verdict::TooOld { found } => {
                    tried.push(format!("{place}, {}, is rustc {found}", rustc.display()));
                    too_old.get_or_insert(CudaBuilderError::WrongCompilerVersion { found, rustc });
                }
                Verdict::Unusable(what) => tried.push(format!("{place}, {}, {what}", rustc.display())),
            }
        }
        if unpacked.is_none() {
            tried.push("target/kernel-toolchain is not there".into());
        }
        Err(too_old.unwrap_or(CudaBuilderError::NoCompiler { tried }))
    }
}

/// Asks a rustc for its version and looks for its source. The source comes first: a compiler without it is no kernel
/// compiler whatever its age.
fn examine(rustc: &Path) -> Verdict {
    if rustc.components().count() > 1 && !rustc.is_file() {
        return Verdict::Unusable(if rustc.exists() { "is no file" } else { "is not there" }.into());
    }
    let (identity, library_dir) = match ask(rustc, None, "-vV") {
        Ok(identity) => (identity, None),
        Err(why) => match library_dir(rustc) {
            // Unpacked packages: rustc finds its own libraries only with help.
            Some(dir) => match ask(rustc, Some(&dir), "-vV") {
                Ok(identity) => (identity, Some(dir)),
                Err(why) => return Verdict::Unusable(why),
            },
            None => return Verdict::Unusable(why),
        },
    };
    let Some(version) = identity.lines().find_map(|line| line.strip_prefix("release: ")) else {
        return Verdict::Unusable("is no rustc: its answer to -vV names no release".into());
    };
    let sysroot = match ask(rustc, library_dir.as_deref(), "--print=sysroot") {
        Ok(sysroot) => PathBuf::from(sysroot.trim()),
        Err(why) => return Verdict::Unusable(why),
    };
    if !sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file() {
        return Verdict::Unusable(format!("is rustc {version} without the standard library's source (rust-src)"));
    }
    if parse(version) < parse(MINIMUM) {
        return Verdict::TooOld { found: version.into() };
    }
    Verdict::Usable(KernelCompiler { rustc: rustc.into(), version: version.into(), library_dir, identity })
}

/// Runs `rustc ARGUMENT` and gives its standard output, or one line on why there is none.
fn ask(rustc: &Path, library_dir: Option<&Path>, argument: &str) -> Result<String, String> {
    let output = KernelCompiler::command(rustc, library_dir)
        .arg(argument)
        .output()
        .map_err(|error| format!("does not run: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("fails when asked for {argument}: {}", stderr.lines().next().unwrap_or("no message")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder beside `rustc` that holds its `librustc_driver`: `../lib` or, on Debian, `../lib/x86_64-linux-gnu`.
fn library_dir(rustc: &Path) -> Option<PathBuf> {
    let lib = rustc.parent()?.parent()?.join("lib");
    let subfolders = lib.read_dir().ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    std::iter::once(lib.clone()).chain(subfolders).find(|folder| {
        folder.read_dir().is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("librustc_driver"))
        })
    })
}

/// `1.96.0-nightly` as (1, 96, 0).
fn parse(version: &str) -> (u32, u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests;
