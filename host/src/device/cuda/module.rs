//! Loaded images and their functions.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use cust::sys::{CUfunction, CUmodule};

use super::{CudaDevice, StreamHandle, choose, lock, sys};
use crate::error::{DeviceError, ShapeText};
use crate::images::Images;

/// Dynamic shared memory that a launch may ask for without more ado, bytes.
const DEFAULT_SHARED_BYTES: u32 = 48 * 1024;
/// Room for the JIT compiler's messages, bytes.
const JIT_LOG_BYTES: usize = 8 * 1024;

/// One loading of an image.
pub(crate) struct CudaModule {
    raw: CUmodule,
    name: &'static str,
    image: &'static str,
    device: Arc<CudaDevice>,
    functions: Mutex<HashMap<&'static str, Function>>,
}
// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for CudaModule {}
// SAFETY: as above; the function table is behind a lock.
unsafe impl Sync for CudaModule {}

#[derive(Clone, Copy)]
struct Function {
    raw: CUfunction,
    max_threads: i32,
    /// Dynamic shared memory that launches may ask for, bytes.
    shared_bytes: u32,
}

impl CudaModule {
    /// Loads the best of `images` that the device runs.
    #[track_caller]
    pub(crate) fn load(device: Arc<CudaDevice>, images: &Images) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let cc = device.info.compute_capability.unwrap_or_default();
        let (image, text) = choose::choose(images, &device.info.name, cc, device.driver_version)?;
        let text = CString::new(text).map_err(|_| DeviceError::NoImage {
            module: images.name,
            device: device.info.name.clone(),
            cc,
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
            format!("loading image {image} of `{}` on {}\n{}", images.name, device.info.name, log.trim_end())
        })?;
        Ok(Self { raw, name: images.name, image, device: device.clone(), functions: Mutex::default() })
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

    /// The driver's handle, as a number.
    pub(crate) fn id(&self) -> usize {
        self.raw as usize
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
        let mut functions = lock(&self.functions);
        let function = match functions.get(kernel) {
            Some(function) => *function,
            None => self.find(kernel)?,
        };
        if shape.block.count() > u64::from(function.max_threads.unsigned_abs()) {
            let most = function.max_threads;
            let reason = format!("on {} its registers allow a block of at most {most} threads", self.device.info.name);
            return Err(DeviceError::Launch { kernel, shape, reason });
        }
        let function = self.grant_shared(kernel, function, shape.shared_bytes)?;
        functions.insert(kernel, function);
        Ok(function)
    }

    fn find(&self, kernel: &'static str) -> Result<Function, DeviceError> {
        let name = CString::new(kernel).map_err(|_| self.lacks(kernel))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name a zero-terminated string, the pointer valid for writing.
        let status = unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) };
        if status == sys::Status(cust::error::CudaError::NotFound as u32) {
            return Err(self.lacks(kernel));
        }
        status.check("cuModuleGetFunction", || format!("looking up kernel `{kernel}` in `{}`", self.name))?;
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

    fn lacks(&self, kernel: &'static str) -> DeviceError {
        DeviceError::NoKernel { kernel, module: self.name }
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        self.device.drop_with(|| {
            self.device.wait_for_launches()?;
            // SAFETY: loaded in `load`, unloaded once, and none of its kernels still runs.
            let status = unsafe { sys::cuModuleUnload(self.raw) };
            status.check("cuModuleUnload", || format!("unloading `{}`", self.name))
        });
    }
}
