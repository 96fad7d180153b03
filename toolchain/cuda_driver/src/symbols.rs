//! The driver's entry points, one forwarder each.
//!
//! The list is every function that `cust_raw` 0.11.3 (CUDA 11.4) declares. A forwarder is a naked function: it has no
//! signature of its own, so that whatever arguments it was called with reach the driver untouched.

use std::arch::naked_asm;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// `CUDA_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: u32 = 3;
/// `CUDA_ERROR_NOT_FOUND`
const NOT_FOUND: u32 = 500;

/// What a forwarder jumps to until the driver is loaded.
extern "C" fn not_loaded() -> u32 {
    NOT_INITIALIZED
}

/// What a forwarder jumps to when the loaded driver lacks the function.
extern "C" fn missing() -> u32 {
    NOT_FOUND
}

/// Where each forwarder jumps, in the order of [`NAMES`]. Never null.
static TABLE: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(not_loaded as *mut ()) }; COUNT];

/// Whether calls are counted. Every forwarder tests it.
pub(crate) static COUNTING: AtomicBool = AtomicBool::new(false);

/// Points every forwarder at what `find` gives for its name; returns the names for which it gives nothing.
pub(crate) fn fill(find: impl Fn(&str) -> Option<*mut ()>) -> Vec<&'static str> {
    let mut absent = Vec::new();
    for (slot, name) in TABLE.iter().zip(NAMES) {
        let target = find(name).filter(|target| !target.is_null()).unwrap_or_else(|| {
            absent.push(name);
            missing as *mut ()
        });
        slot.store(target, Ordering::Release);
    }
    absent
}

/// Counts a call, and says where it goes on.
extern "C" fn count(index: usize, arguments: &[u64; 6]) -> *mut () {
    crate::ledger::count(index, arguments);
    TABLE[index].load(Ordering::Acquire)
}

/// The way through the ledger. The forwarder has pushed its index; `arguments` are the six integer argument registers in
/// their order. Two of the driver's functions take floats, at most two each.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn counted() {
    // The stack is 16-byte aligned here: the return address and the index lie on it. It still is at the call, after
    // six registers and two vectors.
    naked_asm!(
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "sub rsp, 32",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "mov rdi, [rsp + 80]",
        "lea rsi, [rsp + 32]",
        "call {count}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "add rsp, 32",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "add rsp, 8",
        "jmp rax",
        count = sym count,
    )
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("cuda_driver forwards calls by machine code written for x86-64 alone");

macro_rules! forwarders {
    ($($name:ident,)*) => {
        /// The functions' names, in the order of the table.
        pub const NAMES: [&str; COUNT] = [$(stringify!($name)),*];

        const COUNT: usize = [$(stringify!($name)),*].len();

        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "the variants are the driver's functions")]
        enum Index { $($name,)* }

        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    "cmp byte ptr [rip + {counting}], 0",
                    "jne 2f",
                    "jmp qword ptr [rip + {table} + {offset}]",
                    "2:",
                    "push {index}",
                    "jmp {counted}",
                    counting = sym COUNTING,
                    table = sym TABLE,
                    offset = const size_of::<usize>() * Index::$name as usize,
                    index = const Index::$name as usize,
                    counted = sym counted,
                )
            }
        )*
    };
}

forwarders! {
    cuGetErrorString, cuGetErrorName, cuInit, cuDriverGetVersion, cuDeviceGet, cuDeviceGetCount, cuDeviceGetName,
    cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDeviceGetLuid, cuDeviceTotalMem_v2, cuDeviceGetTexture1DLinearMaxWidth,
    cuDeviceGetAttribute, cuDeviceGetNvSciSyncAttributes, cuDeviceSetMemPool, cuDeviceGetMemPool,
    cuDeviceGetDefaultMemPool, cuFlushGPUDirectRDMAWrites, cuDeviceGetProperties, cuDeviceComputeCapability,
    cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxGetState,
    cuDevicePrimaryCtxReset_v2, cuDeviceGetExecAffinitySupport, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxDestroy_v2,
    cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuCtxSetCurrent, cuCtxGetCurrent, cuCtxGetDevice, cuCtxGetFlags,
    cuCtxSynchronize, cuCtxSetLimit, cuCtxGetLimit, cuCtxGetCacheConfig, cuCtxSetCacheConfig, cuCtxGetSharedMemConfig,
    cuCtxSetSharedMemConfig, cuCtxGetApiVersion, cuCtxGetStreamPriorityRange, cuCtxResetPersistingL2Cache,
    cuCtxGetExecAffinity, cuCtxAttach, cuCtxDetach, cuModuleLoad, cuModuleLoadData, cuModuleLoadDataEx,
    cuModuleLoadFatBinary, cuModuleUnload, cuModuleGetFunction, cuModuleGetGlobal_v2, cuModuleGetTexRef,
    cuModuleGetSurfRef, cuLinkCreate_v2, cuLinkAddData_v2, cuLinkAddFile_v2, cuLinkComplete, cuLinkDestroy,
    cuMemGetInfo_v2, cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemFree_v2, cuMemGetAddressRange_v2, cuMemAllocHost_v2,
    cuMemFreeHost, cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags, cuMemAllocManaged,
    cuDeviceGetByPCIBusId, cuDeviceGetPCIBusId, cuIpcGetEventHandle, cuIpcOpenEventHandle, cuIpcGetMemHandle,
    cuIpcOpenMemHandle_v2, cuIpcCloseMemHandle, cuMemHostRegister_v2, cuMemHostUnregister, cuMemcpy, cuMemcpyPeer,
    cuMemcpyHtoD_v2, cuMemcpyDtoH_v2, cuMemcpyDtoD_v2, cuMemcpyDtoA_v2, cuMemcpyAtoD_v2, cuMemcpyHtoA_v2,
    cuMemcpyAtoH_v2, cuMemcpyAtoA_v2, cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2, cuMemcpy3D_v2, cuMemcpy3DPeer,
    cuMemcpyAsync, cuMemcpyPeerAsync, cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoDAsync_v2,
    cuMemcpyHtoAAsync_v2, cuMemcpyAtoHAsync_v2, cuMemcpy2DAsync_v2, cuMemcpy3DAsync_v2, cuMemcpy3DPeerAsync,
    cuMemsetD8_v2, cuMemsetD16_v2, cuMemsetD32_v2, cuMemsetD2D8_v2, cuMemsetD2D16_v2, cuMemsetD2D32_v2,
    cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async,
    cuArrayCreate_v2, cuArrayGetDescriptor_v2, cuArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties,
    cuArrayGetPlane, cuArrayDestroy, cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuMipmappedArrayCreate,
    cuMipmappedArrayGetLevel, cuMipmappedArrayDestroy, cuMemAddressReserve, cuMemAddressFree, cuMemCreate,
    cuMemRelease, cuMemMap, cuMemMapArrayAsync, cuMemUnmap, cuMemSetAccess, cuMemGetAccess,
    cuMemExportToShareableHandle, cuMemImportFromShareableHandle, cuMemGetAllocationGranularity,
    cuMemGetAllocationPropertiesFromHandle, cuMemRetainAllocationHandle, cuMemFreeAsync, cuMemAllocAsync,
    cuMemPoolTrimTo, cuMemPoolSetAttribute, cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolGetAccess,
    cuMemPoolCreate, cuMemPoolDestroy, cuMemAllocFromPoolAsync, cuMemPoolExportToShareableHandle,
    cuMemPoolImportFromShareableHandle, cuMemPoolExportPointer, cuMemPoolImportPointer, cuPointerGetAttribute,
    cuMemPrefetchAsync, cuMemAdvise, cuMemRangeGetAttribute, cuMemRangeGetAttributes, cuPointerSetAttribute,
    cuPointerGetAttributes, cuStreamCreate, cuStreamCreateWithPriority, cuStreamGetPriority, cuStreamGetFlags,
    cuStreamGetCtx, cuStreamWaitEvent, cuStreamAddCallback, cuStreamBeginCapture_v2,
    cuThreadExchangeStreamCaptureMode, cuStreamEndCapture, cuStreamIsCapturing, cuStreamGetCaptureInfo,
    cuStreamGetCaptureInfo_v2, cuStreamUpdateCaptureDependencies, cuStreamAttachMemAsync, cuStreamQuery,
    cuStreamSynchronize, cuStreamDestroy_v2, cuStreamCopyAttributes, cuStreamGetAttribute, cuStreamSetAttribute,
    cuEventCreate, cuEventRecord, cuEventRecordWithFlags, cuEventQuery, cuEventSynchronize, cuEventDestroy_v2,
    cuEventElapsedTime, cuImportExternalMemory, cuExternalMemoryGetMappedBuffer,
    cuExternalMemoryGetMappedMipmappedArray, cuDestroyExternalMemory, cuImportExternalSemaphore,
    cuSignalExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, cuDestroyExternalSemaphore, cuStreamWaitValue32,
    cuStreamWaitValue64, cuStreamWriteValue32, cuStreamWriteValue64, cuStreamBatchMemOp, cuFuncGetAttribute,
    cuFuncSetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig, cuFuncGetModule, cuLaunchKernel,
    cuLaunchCooperativeKernel, cuLaunchCooperativeKernelMultiDevice, cuLaunchHostFunc, cuFuncSetBlockShape,
    cuFuncSetSharedSize, cuParamSetSize, cuParamSeti, cuParamSetf, cuParamSetv, cuLaunch, cuLaunchGrid,
    cuLaunchGridAsync, cuParamSetTexRef, cuGraphCreate, cuGraphAddKernelNode, cuGraphKernelNodeGetParams,
    cuGraphKernelNodeSetParams, cuGraphAddMemcpyNode, cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams,
    cuGraphAddMemsetNode, cuGraphMemsetNodeGetParams, cuGraphMemsetNodeSetParams, cuGraphAddHostNode,
    cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphAddChildGraphNode, cuGraphChildGraphNodeGetGraph,
    cuGraphAddEmptyNode, cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
    cuGraphAddEventWaitNode, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent,
    cuGraphAddExternalSemaphoresSignalNode, cuGraphExternalSemaphoresSignalNodeGetParams,
    cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphAddExternalSemaphoresWaitNode,
    cuGraphExternalSemaphoresWaitNodeGetParams, cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphAddMemAllocNode,
    cuGraphMemAllocNodeGetParams, cuGraphAddMemFreeNode, cuGraphMemFreeNodeGetParams, cuDeviceGraphMemTrim,
    cuDeviceGetGraphMemAttribute, cuDeviceSetGraphMemAttribute, cuGraphClone, cuGraphNodeFindInClone,
    cuGraphNodeGetType, cuGraphGetNodes, cuGraphGetRootNodes, cuGraphGetEdges, cuGraphNodeGetDependencies,
    cuGraphNodeGetDependentNodes, cuGraphAddDependencies, cuGraphRemoveDependencies, cuGraphDestroyNode,
    cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphExecKernelNodeSetParams,
    cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams, cuGraphExecHostNodeSetParams,
    cuGraphExecChildGraphNodeSetParams, cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventWaitNodeSetEvent,
    cuGraphExecExternalSemaphoresSignalNodeSetParams, cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphUpload,
    cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy, cuGraphExecUpdate, cuGraphKernelNodeCopyAttributes,
    cuGraphKernelNodeGetAttribute, cuGraphKernelNodeSetAttribute, cuGraphDebugDotPrint, cuUserObjectCreate,
    cuUserObjectRetain, cuUserObjectRelease, cuGraphRetainUserObject, cuGraphReleaseUserObject,
    cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSizeWithFlags,
    cuOccupancyAvailableDynamicSMemPerBlock, cuTexRefSetArray, cuTexRefSetMipmappedArray, cuTexRefSetAddress_v2,
    cuTexRefSetAddress2D_v3, cuTexRefSetFormat, cuTexRefSetAddressMode, cuTexRefSetFilterMode,
    cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelClamp, cuTexRefSetMaxAnisotropy,
    cuTexRefSetBorderColor, cuTexRefSetFlags, cuTexRefGetAddress_v2, cuTexRefGetArray, cuTexRefGetMipmappedArray,
    cuTexRefGetAddressMode, cuTexRefGetFilterMode, cuTexRefGetFormat, cuTexRefGetMipmapFilterMode,
    cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelClamp, cuTexRefGetMaxAnisotropy, cuTexRefGetBorderColor,
    cuTexRefGetFlags, cuTexRefCreate, cuTexRefDestroy, cuSurfRefSetArray, cuSurfRefGetArray, cuTexObjectCreate,
    cuTexObjectDestroy, cuTexObjectGetResourceDesc, cuTexObjectGetTextureDesc, cuTexObjectGetResourceViewDesc,
    cuSurfObjectCreate, cuSurfObjectDestroy, cuSurfObjectGetResourceDesc, cuDeviceCanAccessPeer,
    cuCtxEnablePeerAccess, cuCtxDisablePeerAccess, cuDeviceGetP2PAttribute, cuGraphicsUnregisterResource,
    cuGraphicsSubResourceGetMappedArray, cuGraphicsResourceGetMappedMipmappedArray,
    cuGraphicsResourceGetMappedPointer_v2, cuGraphicsResourceSetMapFlags_v2, cuGraphicsMapResources,
    cuGraphicsUnmapResources, cuGetProcAddress, cuGetExportTable, cuProfilerInitialize, cuProfilerStart,
    cuProfilerStop,
}
