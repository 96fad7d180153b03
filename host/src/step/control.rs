//! The host's inputs to a running step.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shared_types::Control;

use super::Pages;
use crate::device::ledger;

/// Writes the control page while steps run: each field by one atomic store, without a driver call. A step sees a field's old value or
/// its new one, and may see one field's new value beside another's old one.
#[derive(Clone)]
pub struct ControlPage {
    pages: Arc<Pages>,
}

impl ControlPage {
    /// The control page of `pages`.
    pub fn new(pages: Arc<Pages>) -> Self {
        Self { pages }
    }

    /// Sets the learning rate of every optimiser.
    #[track_caller]
    pub fn set_lr(&self, lr: f32) {
        self.set(offset_of!(Control, lr), lr);
    }

    /// Sets the bound on a gradient's norm.
    #[track_caller]
    pub fn set_clip(&self, clip: f32) {
        self.set(offset_of!(Control, clip), clip);
    }

    /// Sets the exponent of the importance weights at the start of a fold.
    #[track_caller]
    pub fn set_beta0(&self, beta0: f32) {
        self.set(offset_of!(Control, beta0), beta0);
    }

    #[track_caller]
    fn set(&self, offset: usize, value: f32) {
        ledger::record(ledger::MAPPED_STORE, size_of::<f32>());
        self.pages.control.store_word(0, offset / size_of::<u32>(), value.to_bits(), Ordering::Relaxed);
    }
}
