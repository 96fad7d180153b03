//! The driver's functions that this backend calls, with handles of `cust::sys`.
//!
//! They are declared again because `cust::sys` types the status as a Rust enum of CUDA 11.4's codes: a newer driver's
//! code would be an invalid value of it, which is undefined behaviour. A plain number holds any code.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cust::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule,
    CUstream,
};

use crate::error::DeviceError;

/// What a driver call returned; zero is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
#[must_use]
pub(crate) struct Status(pub u32);

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const OUT_OF_MEMORY: Status = Status(2);
/// The driver is shutting down with the process: nothing is left to free.
pub(crate) const DEINITIALIZED: Status = Status(4);

pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const EVENT_DEFAULT: c_uint = 0;
pub(crate) const MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub(crate) const MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
pub(crate) const CAPTURE_THREAD_LOCAL: c_uint = 1;
pub(crate) const JIT_ERROR_LOG_BUFFER: c_uint = 5;
pub(crate) const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
pub(crate) const FUNC_MAX_THREADS_PER_BLOCK: c_int = 0;
pub(crate) const FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`, which `cust` has no name for.
pub(crate) const DEVICE_MAX_SHARED_BYTES: c_int = 97;
pub(crate) const NODE_TYPE_KERNEL: c_uint = 0;

unsafe extern "C" {
    pub(crate) fn cuInit(flags: c_uint) -> Status;
    pub(crate) fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status;
    pub(crate) fn cuGetErrorName(status: c_uint, name: *mut *const c_char) -> Status;
    pub(crate) fn cuGetErrorString(status: c_uint, text: *mut *const c_char) -> Status;
    pub(crate) fn cuCtxSetCurrent(context: CUcontext) -> Status;

    pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status;
    pub(crate) fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> Status;
    pub(crate) fn cuMemFree_v2(address: CUdeviceptr) -> Status;
    pub(crate) fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
    pub(crate) fn cuMemFreeHost(address: *mut c_void) -> Status;
    pub(crate) fn cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) -> Status;
    pub(crate) fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> Status;
    pub(crate) fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Status;
    pub(crate) fn cuMemsetD8Async(to: CUdeviceptr, value: u8, n: usize, stream: CUstream) -> Status;

    pub(crate) fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> Status;
    pub(crate) fn cuStreamSynchronize(stream: CUstream) -> Status;
    pub(crate) fn cuStreamDestroy_v2(stream: CUstream) -> Status;
    pub(crate) fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> Status;
    pub(crate) fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> Status;
    pub(crate) fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> Status;
    pub(crate) fn cuEventRecord(event: CUevent, stream: CUstream) -> Status;
    pub(crate) fn cuEventSynchronize(event: CUevent) -> Status;
    pub(crate) fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Status;
    pub(crate) fn cuEventDestroy_v2(event: CUevent) -> Status;

    pub(crate) fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        n_options: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) -> Status;
    pub(crate) fn cuModuleUnload(module: CUmodule) -> Status;
    pub(crate) fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Status;
    pub(crate) fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction) -> Status;
    pub(crate) fn cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int) -> Status;
    pub(crate) fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) -> Status;
    pub(crate) fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Status;

    pub(crate) fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> Status;
    pub(crate) fn cuGraphDestroy(graph: CUgraph) -> Status;
    pub(crate) fn cuGraphAddChildGraphNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        n_dependencies: usize,
        child: CUgraph,
    ) -> Status;
    pub(crate) fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) -> Status;
    pub(crate) fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, n_nodes: *mut usize) -> Status;
    pub(crate) fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) -> Status;
    pub(crate) fn cuGraphKernelNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS) -> Status;
    pub(crate) fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Status;
    pub(crate) fn cuGraphExecDestroy(exec: CUgraphExec) -> Status;
    pub(crate) fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> Status;
    pub(crate) fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Status;
}

impl Status {
    /// An error that names the call and says what it was for, unless the call succeeded.
    pub(crate) fn check(self, call: &'static str, purpose: impl FnOnce() -> String) -> Result<(), DeviceError> {
        if self == SUCCESS {
            return Ok(());
        }
        Err(DeviceError::Call { call, status: self.0, name: self.name(), text: self.text(), purpose: purpose() })
    }

    fn name(self) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is valid for writing; the driver's strings are static.
        let status = unsafe { cuGetErrorName(self.0, &mut name) };
        // SAFETY: on success the pointer is null or one of the driver's strings.
        unsafe { static_text(status, name) }.unwrap_or_else(|| "an unknown status".into())
    }

    fn text(self) -> String {
        let mut text = std::ptr::null();
        // SAFETY: as in `name`.
        let status = unsafe { cuGetErrorString(self.0, &mut text) };
        // SAFETY: as in `name`.
        unsafe { static_text(status, text) }.unwrap_or_default()
    }
}

/// # Safety
/// If `status` is success, `text` is null or a string that lives on.
unsafe fn static_text(status: Status, text: *const c_char) -> Option<String> {
    if status != SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
