//! A child graph: kernels in the order in which they were recorded.

use std::cell::RefCell;

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use crate::device::{Device, Module, Recorded, ShapedLaunch};
use crate::error::DeviceError;
use crate::images::Images;

/// Launches that were captured once, to be replayed as a part of a [`super::ParentGraph`]. It owns its module, and shares
/// the ownership of all memory that its kernels reach.
pub struct ChildGraph {
    pub(super) name: String,
    pub(super) device: Device,
    pub(super) recorded: Recorded,
    pub(super) launches: Vec<ShapedLaunch>,
    pub(super) module: Module,
    pub(super) after: Vec<String>,
}

/// Takes the launches of a child graph.
pub struct Recorder<'a> {
    device: &'a Device,
    launches: RefCell<Vec<ShapedLaunch>>,
}

impl ChildGraph {
    /// Captures what `record` launches, from a module loaded for this child alone, with its kernels alone.
    ///
    /// Nothing runs yet. What was launched is captured when `record` has returned, so that `record` may use the device; an
    /// error or a panic in it, or of the capture, leaves the device usable. Other threads may use the device meanwhile.
    #[track_caller]
    pub fn capture(
        device: &Device,
        name: impl Into<String>,
        images: &Images,
        record: impl FnOnce(&Recorder<'_>) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let name = name.into();
        let in_child = |source| DeviceError::Capture { child: name.clone(), source: Box::new(source) };
        let recorder = Recorder { device, launches: RefCell::default() };
        record(&recorder).map_err(in_child)?;
        let launches = recorder.launches.into_inner();
        if launches.is_empty() {
            return Err(in_child(DeviceError::Graph("it launches no kernel; leave the child out".into())));
        }
        let module = device.module(images).map_err(in_child)?;
        let recorded = device.record(&module, &launches).map_err(in_child)?;
        Ok(Self { name, device: device.clone(), recorded, launches, module, after: Vec::new() })
    }

    /// Makes it wait for that earlier child of the parent's too, whatever its data.
    pub fn after(mut self, earlier: &str) -> Self {
        self.after.push(earlier.to_owned());
        self
    }

    /// The child's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Recorder<'_> {
    /// Records a launch, which runs after those recorded before it.
    pub fn launch(&self, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        self.device.check(shape, &launch)?;
        self.launches.borrow_mut().push((shape, launch));
        Ok(())
    }
}
