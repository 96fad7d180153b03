//! A child graph: kernels in the order in which they were recorded.

use std::cell::RefCell;

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use crate::device::{Device, Module, Recorded, Recording, ShapedLaunch};
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
}

/// Takes the launches of a child graph while it is captured.
pub struct Recorder<'a> {
    recording: Recording<'a>,
    launches: &'a RefCell<Vec<ShapedLaunch>>,
}

impl ChildGraph {
    /// Captures what `record` launches, from a module loaded for this child alone.
    ///
    /// Nothing runs yet. An error or a panic in `record` ends the capture and leaves the device usable. Other threads may
    /// use the device meanwhile.
    #[track_caller]
    pub fn capture(
        device: &Device,
        name: impl Into<String>,
        images: &Images,
        record: impl FnOnce(&Recorder<'_>) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let name = name.into();
        let in_child = |source| DeviceError::Capture { child: name.clone(), source: Box::new(source) };
        let module = device.module(images).map_err(in_child)?;
        let launches = RefCell::new(Vec::new());
        let recorded = device.record(&module, |recording| record(&Recorder { recording, launches: &launches }));
        let recorded = recorded.map_err(in_child)?;
        let launches = launches.into_inner();
        if launches.is_empty() {
            return Err(in_child(DeviceError::Graph("it launches no kernel; leave the child out".into())));
        }
        Ok(Self { name, device: device.clone(), recorded, launches, module })
    }

    /// The child's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Recorder<'_> {
    /// Records a launch, which runs after those recorded before it.
    #[track_caller]
    pub fn launch(&self, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        self.recording.launch(shape, &launch)?;
        self.launches.borrow_mut().push((shape, launch));
        Ok(())
    }
}
