//! Finds the driver.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::symbols;

/// The version of CUDA that a driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct DriverVersion {
    /// The part before the dot.
    pub major: u32,
    /// The part after it.
    pub minor: u32,
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest driver that is accepted: the first with Hopper, and with every call that is made here.
pub const MINIMUM_VERSION: DriverVersion = DriverVersion { major: 11, minor: 8 };

/// The driver that was found.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DriverInfo {
    /// The file.
    pub path: PathBuf,
    /// The version of CUDA that it supports.
    pub version: DriverVersion,
    /// Functions of `cust`'s bindings that this driver lacks; calling one returns `CUDA_ERROR_NOT_FOUND`.
    pub missing: Vec<&'static str>,
}

/// Why there is no driver to use.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// No file of that name.
    #[error(
        "no CUDA driver found ({tried}). Install the NVIDIA driver, set ONEGRAPH_LIBCUDA to the path of its \
         libcuda.so.1, or work without a GPU (`--device cpu`)"
    )]
    NotFound {
        /// Each file that was tried and the loader's reason.
        tried: String,
    },
    /// A library that is not a CUDA driver.
    #[error("{} is not a CUDA driver: it has no function `{symbol}`. Set ONEGRAPH_LIBCUDA to the driver's libcuda.so.1", path.display())]
    NotADriver {
        /// The library.
        path: PathBuf,
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// A driver that is too old.
    #[error(
        "the CUDA driver {} supports CUDA {found}, and {MINIMUM_VERSION} is needed: update the NVIDIA driver to \
         release 520 or later, or work without a GPU (`--device cpu`)", path.display()
    )]
    TooOld {
        /// The driver.
        path: PathBuf,
        /// The version of CUDA that it supports.
        found: DriverVersion,
    },
    /// A driver that cannot tell its version, such as a toolkit's stub.
    #[error("the CUDA driver {} does not tell its version (status {status}); it may be a toolkit's stub", path.display())]
    NoVersion {
        /// The driver.
        path: PathBuf,
        /// What `cuDriverGetVersion` returned.
        status: u32,
    },
}

/// Where a driver may lie: by the loader's own search, then where containers and distributions mount it.
const CANDIDATES: [&str; 5] = [
    "libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
];

struct Driver {
    /// Never closed: the forwarders point into it.
    _library: Library,
    info: DriverInfo,
}

fn driver() -> &'static Result<Driver, DriverError> {
    static DRIVER: OnceLock<Result<Driver, DriverError>> = OnceLock::new();
    DRIVER.get_or_init(find)
}

/// Finds the driver, once for the process, and points every forwarder at it. `ONEGRAPH_LIBCUDA` names the file to load
/// instead of searching.
pub fn load() -> Result<&'static DriverInfo, DriverError> {
    driver().as_ref().map(|driver| &driver.info).map_err(DriverError::clone)
}

fn find() -> Result<Driver, DriverError> {
    let library = open()?;
    let path = file_of(&library);
    let absent = |symbol| DriverError::NotADriver { path: path.clone(), symbol };
    symbol(&library, c"cuInit").ok_or_else(|| absent("cuInit"))?;
    let get_version = symbol(&library, c"cuDriverGetVersion").ok_or_else(|| absent("cuDriverGetVersion"))?;
    // SAFETY: this is the driver's documented signature of that name.
    let get_version = unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(*mut i32) -> u32>(get_version) };
    let mut number = 0;
    // SAFETY: the pointer is valid for the call, which needs no initialised driver.
    let status = unsafe { get_version(&mut number) };
    if status != 0 || number <= 0 {
        return Err(DriverError::NoVersion { path, status });
    }
    let number = number.unsigned_abs();
    let version = DriverVersion { major: number / 1000, minor: number % 1000 / 10 };
    if version < MINIMUM_VERSION {
        return Err(DriverError::TooOld { path, found: version });
    }
    let missing = symbols::fill(|name| symbol(&library, &CString::new(name).ok()?));
    Ok(Driver { _library: library, info: DriverInfo { path, version, missing } })
}

/// Whether `ONEGRAPH_LIBCUDA` names a file, so that a driver is meant to be there.
pub fn is_named() -> bool {
    chosen().is_some()
}

/// The file that `ONEGRAPH_LIBCUDA` names; none if it is unset or empty.
fn chosen() -> Option<String> {
    std::env::var("ONEGRAPH_LIBCUDA").ok().filter(|path| !path.trim().is_empty())
}

fn open() -> Result<Library, DriverError> {
    let chosen = chosen();
    let candidates = chosen.as_deref().map_or(CANDIDATES.to_vec(), |path| vec![path]);
    let (mut absent, mut broken) = (Vec::new(), Vec::new());
    for candidate in candidates {
        // SAFETY: the file is the system's driver, or one that the user chose; its initialisers may run.
        match unsafe { Library::open(Some(candidate), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            Err(error) => {
                let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                if reason.contains("No such file") {
                    absent.push(candidate);
                } else {
                    broken.push(format!("{candidate} cannot be loaded: {reason}"));
                }
            }
        }
    }
    if !absent.is_empty() {
        broken.push(format!("there is no {}", absent.join(", ")));
    }
    Err(DriverError::NotFound { tried: broken.join("; ") })
}

fn symbol(library: &Library, name: &CStr) -> Option<*mut ()> {
    // SAFETY: the address is only kept; whoever calls through it vouches for the signature.
    let found = unsafe { library.get::<*mut ()>(name.to_bytes_with_nul()) }.ok()?;
    Some(found.into_raw().cast()).filter(|address: &*mut ()| !address.is_null())
}

/// The file that the library was loaded from.
fn file_of(library: &Library) -> PathBuf {
    let unknown = || PathBuf::from("libcuda.so.1");
    let Some(address) = symbol(library, c"cuInit").or_else(|| symbol(library, c"cuDriverGetVersion")) else {
        return chosen().map_or_else(unknown, PathBuf::from);
    };
    // SAFETY: all-zero is a valid value of this plain C struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writing; any address may be asked for.
    let found = unsafe { libc::dladdr(address.cast(), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return unknown();
    }
    // SAFETY: a string of the loader's, which lives as long as the library, and the library is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    PathBuf::from(name.to_string_lossy().into_owned())
}
