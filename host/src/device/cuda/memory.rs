//! Device memory and pinned memory.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cuda_std::launch::{DeviceMemory, MemoryRange};
use cust::sys::CUdeviceptr;

use super::CudaDevice;
use super::sys::{self, Status};
use crate::error::DeviceError;

/// Memory of the device, freed when everything launched before has run.
struct Allocation {
    address: CUdeviceptr,
    device: Arc<CudaDevice>,
}

/// Pinned host memory, freed likewise.
struct PinnedAllocation {
    host: NonNull<c_void>,
    device: Arc<CudaDevice>,
}
// SAFETY: owned memory; who accesses it is settled by `Pinned`.
unsafe impl Send for PinnedAllocation {}
// SAFETY: as above; the allocation itself gives no access.
unsafe impl Sync for PinnedAllocation {}

impl CudaDevice {
    /// Device memory of `bytes`, contents undefined.
    #[track_caller]
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Arc<DeviceMemory>, DeviceError> {
        let _entered = self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is valid for writing; the driver refuses zero bytes, so at least one is asked for.
        let status = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) };
        self.check_allocation(status, "cuMemAlloc_v2", bytes)?;
        let owner = Allocation { address, device: self.clone() };
        Ok(Arc::new(DeviceMemory::new(self.id, address, bytes, None, Box::new(owner))))
    }

    /// Zeroed pinned memory of `bytes`, mapped into the device: its host address, and the memory as kernels see it.
    #[track_caller]
    pub(crate) fn allocate_pinned(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<(NonNull<c_void>, Arc<DeviceMemory>), DeviceError> {
        let _entered = self.enter()?;
        let mut host = std::ptr::null_mut();
        let flags = sys::MEMHOSTALLOC_PORTABLE | sys::MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the pointer is valid for writing.
        let status = unsafe { sys::cuMemHostAlloc(&mut host, bytes.max(1), flags) };
        self.check_allocation(status, "cuMemHostAlloc", bytes)?;
        let host = NonNull::new(host).ok_or_else(|| self.out_of_memory(bytes))?;
        let owner = PinnedAllocation { host, device: self.clone() };
        // SAFETY: at least `bytes` were just allocated there, and nothing else knows them.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        let mut address = 0;
        // SAFETY: the pointer is valid for writing, and `host` was allocated as mapped memory.
        let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.as_ptr(), 0) };
        status.check("cuMemHostGetDevicePointer_v2", || format!("mapping {bytes} pinned bytes into the device"))?;
        Ok((host, Arc::new(DeviceMemory::new(self.id, address, bytes, None, Box::new(owner)))))
    }

    /// Copies `bytes`, as many as `target` has, into it, after everything launched before.
    #[track_caller]
    pub(crate) fn write(&self, target: &MemoryRange, bytes: &[u8]) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), target.bytes());
        self.transfer(bytes.len(), "an upload", |stream| {
            // SAFETY: source and target have that many bytes, and both outlive the copy, which is waited for.
            let status =
                unsafe { sys::cuMemcpyHtoDAsync_v2(target.address(), bytes.as_ptr().cast(), bytes.len(), stream) };
            status.check("cuMemcpyHtoDAsync_v2", || format!("uploading {} bytes", bytes.len()))
        })
    }

    /// Copies `source` into `bytes`, as many as it has, after everything launched before.
    #[track_caller]
    pub(crate) fn read(&self, source: &MemoryRange, bytes: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), source.bytes());
        self.transfer(bytes.len(), "a download", |stream| {
            // SAFETY: as in `write`.
            let status =
                unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), source.address(), bytes.len(), stream) };
            status.check("cuMemcpyDtoHAsync_v2", || format!("downloading {} bytes", bytes.len()))
        })
    }

    /// Fills `memory` with zero bytes, after everything launched before.
    #[track_caller]
    pub(crate) fn zero(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.transfer(memory.bytes(), "a fill", |stream| {
            // SAFETY: the memory is alive and that long.
            let status = unsafe { sys::cuMemsetD8Async(memory.address(), 0, memory.bytes(), stream) };
            status.check("cuMemsetD8Async", || format!("zeroing {} bytes", memory.bytes()))
        })
    }

    /// Bytes free, and bytes in all.
    #[track_caller]
    pub(crate) fn memory_info(&self) -> Result<(usize, usize), DeviceError> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for writing.
        let status = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        status.check("cuMemGetInfo_v2", || "asking for free memory".into())?;
        Ok((free, total))
    }

    #[track_caller]
    fn transfer(
        &self,
        bytes: usize,
        what: &str,
        start: impl FnOnce(cust::sys::CUstream) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let _entered = self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        self.wait_for_launches()?;
        start(self.transfer.0)?;
        self.transfer.synchronize(|| format!("waiting for {what} of {bytes} bytes"))
    }

    fn check_allocation(&self, status: Status, call: &'static str, bytes: usize) -> Result<(), DeviceError> {
        if status == sys::OUT_OF_MEMORY {
            return Err(self.out_of_memory(bytes));
        }
        status.check(call, || format!("allocating {bytes} bytes"))
    }

    fn out_of_memory(&self, requested: usize) -> DeviceError {
        let (mut free, mut total) = (0, self.info.memory_bytes);
        // SAFETY: both pointers are valid for writing. If the call fails, the numbers stay as they are.
        let _ = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        DeviceError::OutOfMemory { device: self.info.name.clone(), requested, free, total }
    }

    /// Frees memory once no launch can reach it any more.
    fn free(&self, call: &'static str, free: impl FnOnce() -> Status) {
        self.drop_with(|| {
            self.wait_for_launches()?;
            free().check(call, || "freeing memory".into())
        });
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated by `cuMemAlloc_v2`, freed once, and nothing that was launched still runs.
        self.device.free("cuMemFree_v2", || unsafe { sys::cuMemFree_v2(self.address) });
    }
}

impl Drop for PinnedAllocation {
    fn drop(&mut self) {
        // SAFETY: allocated by `cuMemHostAlloc`, freed once, and nothing that was launched still runs.
        self.device.free("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(self.host.as_ptr()) });
    }
}
