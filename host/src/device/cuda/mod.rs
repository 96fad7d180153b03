//! The CUDA backend: the one place that calls the driver.
//!
//! No call waits for the whole context or uses the default stream: either would invalidate a capture that another thread
//! has under way. What must wait, waits for each of this device's streams; a capture's own stream is not among them.

mod choose;
mod graph;
mod memory;
mod module;
mod ptx;
mod stream;
mod sys;

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_driver::ledger;
use cust::context::Context;
use cust::device::DeviceAttribute;
use cust::error::{CudaError, CudaResult};
use cust::sys::CUstream;

pub(crate) use graph::{CapturedGraph, ExecutableGraph};
pub(crate) use module::CudaModule;
use stream::ListedStream;
pub(crate) use stream::{CudaEvent, CudaStream};

use super::DeviceInfo;
use crate::error::DeviceError;
use crate::images::KERNELS;
use sys::Status;

/// A GPU with its primary context.
pub(crate) struct CudaDevice {
    context: Context,
    /// Tells this opening of the device from others, so that a thread knows whether its context is current.
    id: u64,
    info: DeviceInfo,
    driver_version: cuda_driver::DriverVersion,
    /// Shared memory that a block may have, bytes.
    shared_bytes: u32,
    /// Carries uploads, downloads and fills.
    transfer: StreamHandle,
    /// The streams that launches may be running in.
    streams: Mutex<Vec<ListedStream>>,
    /// What failed while dropping, for the next call to report.
    failures: Mutex<Vec<DeviceError>>,
    has_failures: AtomicBool,
}

/// A stream of the driver's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StreamHandle(CUstream);
// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

thread_local! {
    /// The `CudaDevice::id` whose context is current on this thread.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// While it lives, the device's context is current on this thread, and the ledger knows the place of the calls.
struct Entered {
    place: Option<Option<&'static Location<'static>>>,
}

impl CudaDevice {
    /// Opens the GPU `index` among those that `CUDA_VISIBLE_DEVICES` leaves visible.
    pub(crate) fn open(index: u32) -> Result<Arc<Self>, DeviceError> {
        let driver = cuda_driver::load()?;
        // SAFETY: no precondition.
        let status = unsafe { sys::cuInit(0) };
        if status == Status(CudaError::NoDevice as u32) {
            return Err(DeviceError::NoDevice { index, found: 0 });
        }
        status.check("cuInit", || "starting the driver".into())?;
        let found = named("cuDeviceGetCount", cust::device::Device::num_devices())?;
        if index >= found {
            return Err(DeviceError::NoDevice { index, found });
        }
        let device = named("cuDeviceGet", cust::device::Device::get_device(index))?;
        let attribute = |attribute| named("cuDeviceGetAttribute", device.get_attribute(attribute));
        let name = named("cuDeviceGetName", device.name())?;
        let compute_capability = (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?.unsigned_abs(),
            attribute(DeviceAttribute::ComputeCapabilityMinor)?.unsigned_abs(),
        );
        choose::check_device("the kernels", &name, compute_capability)?;
        let mut shared_bytes = 0;
        // SAFETY: the device was just found, the pointer is valid for writing.
        let status =
            unsafe { sys::cuDeviceGetAttribute(&mut shared_bytes, sys::DEVICE_MAX_SHARED_BYTES, device.as_raw()) };
        status.check("cuDeviceGetAttribute", || format!("asking for the shared memory of {name}"))?;
        let context = named("cuDevicePrimaryCtxRetain", Context::new(device))?;
        let info = DeviceInfo {
            name,
            compute_capability: Some(compute_capability),
            n_multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?.unsigned_abs(),
            memory_bytes: named("cuDeviceTotalMem_v2", device.total_memory())?,
        };
        let id = super::next_id();
        CURRENT.set(id); // `Context::new` made the context current
        let transfer = stream::create()?;
        Ok(Arc::new(Self {
            context,
            id,
            info,
            driver_version: driver.version,
            shared_bytes: shared_bytes.unsigned_abs(),
            transfer,
            streams: Mutex::default(),
            failures: Mutex::default(),
            has_failures: AtomicBool::new(false),
        }))
    }

    /// Tells this opening from all others, on either backend.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Shared memory that a block may have, bytes.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Whether the sm_90a image of the kernels is the one that the device loads.
    pub(crate) fn runs_sm_90a(&self) -> bool {
        let cc = self.info.compute_capability.unwrap_or_default();
        choose::choose(&KERNELS, &self.info.name, cc, self.driver_version).is_ok_and(|(image, _)| image == "sm_90a")
    }

    /// Begins a public operation: reports what failed before, and makes driver calls possible.
    #[track_caller]
    fn enter(&self) -> Result<Entered, DeviceError> {
        self.take_failure()?;
        self.enter_to_drop()
    }

    /// As `enter`, but leaves earlier failures to be reported by the next operation.
    #[track_caller]
    fn enter_to_drop(&self) -> Result<Entered, DeviceError> {
        let caller = Location::caller();
        let place = ledger::is_enabled().then(|| ledger::place(Some(caller)));
        let entered = Entered { place };
        if CURRENT.get() != self.id {
            // SAFETY: the context is retained as long as `self` lives.
            let status = unsafe { sys::cuCtxSetCurrent(self.context.as_raw()) };
            status.check("cuCtxSetCurrent", || format!("using {} from this thread", self.info.name))?;
            CURRENT.set(self.id);
        }
        Ok(entered)
    }

    fn take_failure(&self) -> Result<(), DeviceError> {
        if !self.has_failures.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut failures = lock(&self.failures);
        let mut failed = failures.drain(..);
        let first = failed.next();
        failed.for_each(|error| tracing::warn!("besides the error returned, an earlier operation failed: {error}"));
        self.has_failures.store(false, Ordering::Relaxed);
        first.map_or(Ok(()), |error| Err(DeviceError::Earlier(Box::new(error))))
    }

    /// Runs the driver calls of a destructor and keeps their error for the next call.
    #[track_caller]
    fn drop_with(&self, free: impl FnOnce() -> Result<(), DeviceError>) {
        let result = self.enter_to_drop().and_then(|_entered| free());
        if let Err(error) = result
            && !matches!(error, DeviceError::Call { status, .. } if status == sys::DEINITIALIZED.0)
        {
            lock(&self.failures).push(error);
            self.has_failures.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until everything that was launched has run.
    fn wait_for_launches(&self) -> Result<(), DeviceError> {
        let streams = lock(&self.streams);
        // A fault shows at the first wait, whichever stream it happened in.
        let culprits = || streams.iter().map(|stream| stream.last.to_string()).collect::<Vec<_>>().join("; ");
        streams.iter().try_for_each(|stream| {
            let purpose = || format!("waiting for earlier launches, the last of each stream being: {}", culprits());
            stream.handle.synchronize(purpose)
        })
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let transfer = self.transfer;
        self.drop_with(|| transfer.destroy());
        for error in lock(&self.failures).drain(..) {
            tracing::warn!("while closing {}: {error}", self.info.name);
        }
        // The context was made current on this thread; the field's own drop releases it.
        CURRENT.set(0);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            ledger::place(place);
        }
    }
}

/// Gives a result of `cust`'s the name of its call.
fn named<T>(call: &'static str, result: CudaResult<T>) -> Result<T, DeviceError> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => {
            Status(error as u32).check(call, || "opening the device".into())?;
            unreachable!("cust reports success as an error");
        }
    }
}

/// A panic leaves these lists whole: each change is one push or one removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
