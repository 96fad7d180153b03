//! Streams and events.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use cust::sys::CUevent;

use super::module::CudaModule;
use super::{CudaDevice, StreamHandle, lock, sys};
use crate::error::{DeviceError, ShapeText};

/// A stream that launches go into. It does not wait for the default stream.
pub(crate) struct CudaStream {
    handle: StreamHandle,
    device: Arc<CudaDevice>,
    last: Arc<LastLaunch>,
}

/// What was launched last into a stream. Kernel faults show when something waits for the stream; this is the likeliest
/// culprit then.
#[derive(Default)]
pub(super) struct LastLaunch {
    kernel: Mutex<Option<(&'static str, LaunchShape)>>,
    /// Children of the graph that was launched after `kernel`; 0 if there was none. Apart from `kernel`, so that a replay
    /// takes no lock.
    graph_children: AtomicUsize,
}

/// A stream that launches may be running in.
pub(super) struct ListedStream {
    pub(super) handle: StreamHandle,
    pub(super) last: Arc<LastLaunch>,
}

/// A timed point in a stream.
pub(crate) struct CudaEvent {
    raw: CUevent,
    device: Arc<CudaDevice>,
}
// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

/// A new stream of the current context that does not wait for the default stream. (`cust::stream::Stream::new` drops
/// that flag.)
pub(super) fn create() -> Result<StreamHandle, DeviceError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer is valid for writing.
    let status = unsafe { sys::cuStreamCreate(&mut raw, sys::STREAM_NON_BLOCKING) };
    status.check("cuStreamCreate", || "making a stream".into())?;
    Ok(StreamHandle(raw))
}

impl StreamHandle {
    pub(super) fn synchronize(self, purpose: impl FnOnce() -> String) -> Result<(), DeviceError> {
        // SAFETY: handles are destroyed only when nothing holds them any more.
        unsafe { sys::cuStreamSynchronize(self.0) }.check("cuStreamSynchronize", purpose)
    }

    pub(super) fn destroy(self) -> Result<(), DeviceError> {
        // SAFETY: the owner calls this once, when it is dropped.
        unsafe { sys::cuStreamDestroy_v2(self.0) }.check("cuStreamDestroy_v2", || "destroying a stream".into())
    }
}

impl LastLaunch {
    fn set_kernel(&self, kernel: &'static str, shape: LaunchShape) {
        *lock(&self.kernel) = Some((kernel, shape));
        self.graph_children.store(0, Ordering::Relaxed);
    }

    /// A graph of so many children; lock-free.
    pub(super) fn set_graph(&self, n_children: usize) {
        self.graph_children.store(n_children, Ordering::Relaxed);
    }
}

impl fmt::Display for LastLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.graph_children.load(Ordering::Relaxed), *lock(&self.kernel)) {
            (0, None) => f.write_str("nothing"),
            (0, Some((kernel, shape))) => write!(f, "kernel `{kernel}` with {}", ShapeText(&shape)),
            (n_children, _) => write!(f, "a graph of {n_children} children"),
        }
    }
}

impl CudaStream {
    #[track_caller]
    pub(crate) fn new(device: Arc<CudaDevice>) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let handle = create()?;
        let last = Arc::<LastLaunch>::default();
        lock(&device.streams).push(ListedStream { handle, last: last.clone() });
        Ok(Self { handle, device: device.clone(), last })
    }

    #[track_caller]
    pub(crate) fn launch(&self, module: &CudaModule, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        let _entered = self.device.enter()?;
        module.launch(self.handle, shape, launch)?;
        self.last.set_kernel(launch.info().name, shape);
        Ok(())
    }

    #[track_caller]
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        let _entered = self.device.enter()?;
        self.handle.synchronize(|| format!("waiting for a stream whose last launch was {}", self.last))
    }

    #[track_caller]
    pub(crate) fn record(&self) -> Result<CudaEvent, DeviceError> {
        let _entered = self.device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for writing.
        let status = unsafe { sys::cuEventCreate(&mut raw, sys::EVENT_DEFAULT) };
        status.check("cuEventCreate", || "making an event".into())?;
        let event = CudaEvent { raw, device: self.device.clone() };
        // SAFETY: event and stream are alive and of one context.
        let status = unsafe { sys::cuEventRecord(raw, self.handle.0) };
        status.check("cuEventRecord", || "recording an event".into())?;
        Ok(event)
    }

    /// The device that the stream is of.
    pub(crate) fn device_id(&self) -> u64 {
        self.device.id()
    }

    pub(super) fn last(&self) -> &LastLaunch {
        &self.last
    }

    pub(super) fn handle(&self) -> StreamHandle {
        self.handle
    }
}

impl CudaEvent {
    #[track_caller]
    pub(crate) fn since(&self, start: &Self) -> Result<Duration, DeviceError> {
        let _entered = self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the event is alive and was recorded when it was made.
        unsafe { sys::cuEventSynchronize(self.raw) }.check("cuEventSynchronize", || "waiting for an event".into())?;
        // SAFETY: both events are alive, recorded and timed.
        let status = unsafe { sys::cuEventElapsedTime(&mut milliseconds, start.raw, self.raw) };
        status.check("cuEventElapsedTime", || "taking the time between two events".into())?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        self.device.drop_with(|| {
            // Once the stream is off the list nobody waits for its launches any more, so they must be over; and whoever
            // waits for the streams on the list must not meet a destroyed one.
            let finished =
                self.handle.synchronize(|| format!("destroying a stream whose last launch was {}", self.last));
            lock(&self.device.streams).retain(|stream| stream.handle != self.handle);
            self.handle.destroy().and(finished)
        });
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: made in `record` and destroyed once; the driver defers it if the event is still pending.
        let destroy = || unsafe { sys::cuEventDestroy_v2(self.raw) };
        self.device.drop_with(|| destroy().check("cuEventDestroy_v2", || "destroying an event".into()));
    }
}
