//! Loaded images and their functions.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use cust::sys::{CUfunction, CUmodule};

use super::ptx::Ptx;
use super::{CudaDevice, StreamHandle, choose, lock, sys};
use crate::device::ShapedLaunch;
use crate::error::{DeviceError, ShapeText};
use crate::images::Images;

/// Dynamic shared memory that a launch may ask for without more ado, bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 * 1024;
/// Room for the JIT compiler's messages, bytes.
const JIT_LOG_BYTES: usize = 8 * 1024;

/// An image on a device. Kernels are loaded when they are first asked for.
pub(crate) struct CudaModule {
    name: &'static str,
    image: &'static str,
    text: &'static str,
    device: Arc<CudaDevice>,
    loaded: Mutex<Loaded>,
}
// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for CudaModule {}
// SAFETY: as above; what is loaded is behind a lock.
unsafe impl Sync for CudaModule {}

/// What the driver holds of an image.
#[derive(Default)]
struct Loaded {
    modules: Vec<CUmodule>,
    functions: HashMap<&'static str, Function>,
}

#[derive(Clone, Copy)]
struct Function {
    raw: CUfunction,
    max_threads: i32,
    /// Dynamic shared memory that launches may ask for, bytes.
    shared_bytes: u32,
}

impl CudaModule {
    /// The best of `images` that the device runs, with nothing of it loaded.
    pub(crate) fn new(device: Arc<CudaDevice>, images: &Images) -> Result<Self, DeviceError> {
        let cc = device.info.compute_capability.unwrap_or_default();
        let (image, text) = choose::choose(images, &device.info.name, cc, device.driver_version)?;
        Ok(Self { name: images.name, image, text, device, loaded: Mutex::default() })
    }

    /// Loads the whole image.
    #[track_caller]
    pub(crate) fn load_all(&self) -> Result<(), DeviceError> {
        let _entered = self.device.enter()?;
        let raw = self.load_text(self.text, "all kernels")?;
        lock(&self.loaded).modules.push(raw);
        Ok(())
    }

    /// Makes the kernels of `launches` ready: those that are not loaded are, as one module of the driver's. The device has been
    /// entered.
    pub(super) fn prepare(&self, launches: &[ShapedLaunch]) -> Result<(), DeviceError> {
        let mut loaded = lock(&self.loaded);
        let mut missing: Vec<&'static str> = launches.iter().map(|(_, launch)| launch.info().name).collect();
        missing.retain(|kernel| !loaded.functions.contains_key(kernel));
        missing.sort_unstable();
        missing.dedup();
        self.load(&mut loaded, &missing)?;
        let mut grant = |shape, launch: &Launch| self.granted(&mut loaded, launch.info().name, shape).map(drop);
        launches.iter().try_for_each(|(shape, launch)| grant(*shape, launch))
    }

    /// Loads kernels, as one module of the driver's.
    fn load(&self, loaded: &mut Loaded, kernels: &[&'static str]) -> Result<(), DeviceError> {
        if kernels.is_empty() {
            return Ok(());
        }
        let lacks = |kernel| DeviceError::NoKernel { kernel, module: self.name };
        let text = Ptx::new(self.text).only(kernels).map_err(lacks)?;
        let raw = self.load_text(&text, &kernels.join(", "))?;
        loaded.modules.push(raw);
        for &kernel in kernels {
            let function = self.find(raw, kernel)?;
            loaded.functions.insert(kernel, function);
        }
        Ok(())
    }

    fn load_text(&self, text: &str, what: &str) -> Result<CUmodule, DeviceError> {
        let text = CString::new(text).map_err(|_| DeviceError::NoImage {
            module: self.name,
            device: self.device.info.name.clone(),
            cc: self.device.info.compute_capability.unwrap_or_default(),
            reason: "the image holds a zero byte, so it is not PTX; build the program again",
        })?;
        let mut log = vec![0u8; JIT_LOG_BYTES];
        let mut options = [sys::JIT_ERROR_LOG_BUFFER, sys::JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes the size as a number in the pointer's place.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), JIT_LOG_BYTES as *mut c_void];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is a zero-terminated string; the two options come with a buffer and its size, which the
        // driver fills during the call.
        let status = unsafe {
            sys::cuModuleLoadDataEx(&mut raw, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        status.check("cuModuleLoadDataEx", || {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            let (name, device) = (self.name, &self.device.info.name);
            format!("loading {what} of image {} of `{name}` on {device}\n{}", self.image, log.trim_end())
        })?;
        Ok(raw)
    }

    /// The opening of a device that the module was loaded on.
    pub(crate) fn device_id(&self) -> u64 {
        self.device.id()
    }

    /// The kernel crate's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Which image was loaded.
    pub(crate) fn image(&self) -> &'static str {
        self.image
    }

    /// The driver's handle of what was loaded first, as a number; 0 before.
    pub(crate) fn id(&self) -> usize {
        lock(&self.loaded).modules.first().map_or(0, |&raw| raw as usize)
    }

    /// Launches into `stream`; the device has been entered.
    pub(super) fn launch(&self, stream: StreamHandle, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        let kernel = launch.info().name;
        let function = self.function(kernel, shape)?;
        let mut parameters: Vec<*mut c_void> = launch.parameters().into_iter().map(<*const c_void>::cast_mut).collect();
        let LaunchShape { grid, block, shared_bytes, .. } = shape;
        // SAFETY: the function is of a module that is loaded; `parameters` has one pointer for each of the entry's
        // parameters, to a value of its size, which the driver copies during the call: the typed `launch` of this very
        // kernel packed them. The memory that they reach is freed only after all streams were waited for.
        let status = unsafe {
            sys::cuLaunchKernel(
                function.raw,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                stream.0,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        status.check("cuLaunchKernel", || format!("launching kernel `{kernel}` with {}", ShapeText(&shape)))
    }

    /// The function `kernel`, ready for a launch of `shape`.
    fn function(&self, kernel: &'static str, shape: LaunchShape) -> Result<Function, DeviceError> {
        let mut loaded = lock(&self.loaded);
        if !loaded.functions.contains_key(kernel) {
            self.load(&mut loaded, &[kernel])?;
        }
        self.granted(&mut loaded, kernel, shape)
    }

    /// A function that is loaded, with the shared memory that a launch of `shape` asks for.
    fn granted(&self, loaded: &mut Loaded, kernel: &'static str, shape: LaunchShape) -> Result<Function, DeviceError> {
        let function = loaded.functions[kernel];
        if shape.block.count() > u64::from(function.max_threads.unsigned_abs()) {
            let most = function.max_threads;
            let reason = format!("on {} its registers allow a block of at most {most} threads", self.device.info.name);
            return Err(DeviceError::Launch { kernel, shape, reason });
        }
        let function = self.grant_shared(kernel, function, shape.shared_bytes)?;
        loaded.functions.insert(kernel, function);
        Ok(function)
    }

    fn find(&self, module: CUmodule, kernel: &'static str) -> Result<Function, DeviceError> {
        let looking = || format!("looking up kernel `{kernel}` in `{}`", self.name);
        let name = CString::new(kernel).map_err(|_| DeviceError::NoKernel { kernel, module: self.name })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name a zero-terminated string, the pointer valid for writing.
        let status = unsafe { sys::cuModuleGetFunction(&mut raw, module, name.as_ptr()) };
        status.check("cuModuleGetFunction", looking)?;
        let mut max_threads = 0;
        // The question also makes a driver that loads lazily load the function now, not in the middle of a capture.
        // SAFETY: the function was just found, the pointer is valid for writing.
        let status = unsafe { sys::cuFuncGetAttribute(&mut max_threads, sys::FUNC_MAX_THREADS_PER_BLOCK, raw) };
        status.check("cuFuncGetAttribute", || format!("loading kernel `{kernel}` of `{}`", self.name))?;
        Ok(Function { raw, max_threads, shared_bytes: DEFAULT_SHARED_BYTES })
    }

    /// Raises the function's limit of dynamic shared memory if a launch asks for more.
    fn grant_shared(&self, kernel: &'static str, function: Function, bytes: u32) -> Result<Function, DeviceError> {
        if bytes <= function.shared_bytes {
            return Ok(function);
        }
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function is of a module that is loaded.
        let status = unsafe { sys::cuFuncSetAttribute(function.raw, sys::FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, value) };
        status.check("cuFuncSetAttribute", || {
            format!("giving kernel `{kernel}` {bytes} bytes of dynamic shared memory on {}", self.device.info.name)
        })?;
        Ok(Function { shared_bytes: bytes, ..function })
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        let modules = std::mem::take(&mut lock(&self.loaded).modules);
        if modules.is_empty() {
            return;
        }
        self.device.drop_with(|| {
            self.device.wait_for_launches()?;
            modules.into_iter().try_for_each(|raw| {
                // SAFETY: loaded by `load_text`, unloaded once, and none of its kernels still runs.
                let status = unsafe { sys::cuModuleUnload(raw) };
                status.check("cuModuleUnload", || format!("unloading `{}`", self.name))
            })
        });
    }
}
