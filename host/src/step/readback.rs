//! What the host sees of the latest finished step, read from pinned memory without a driver call, lock or allocation.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bytemuck::Pod;
use shared_types::{Control, Counters, Isv, Readback};

use crate::device::{Device, Pinned, ledger};
use crate::error::DeviceError;

/// The pinned pages of a step, one element each. `publish` writes the mirrors and the control page's stamps, the host the rest of
/// the control page ([`ControlPage`](super::ControlPage)).
pub struct Pages {
    /// Inputs and stamps.
    pub control: Pinned<Control>,
    /// Mirror of the counters.
    pub counters: Pinned<Counters>,
    /// Mirror of the internal state vector.
    pub isv: Pinned<Isv>,
    /// Mirror of the readback.
    pub readback: Pinned<Readback>,
}

impl Pages {
    /// Pages of zeros.
    pub fn new(device: &Device) -> Result<Arc<Self>, DeviceError> {
        Ok(Arc::new(Self {
            control: device.pinned(1)?,
            counters: device.pinned(1)?,
            isv: device.pinned(1)?,
            readback: device.pinned(1)?,
        }))
    }
}

/// What one step told, whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Its rng_step.
    pub step: u32,
    /// Counters at its end.
    pub counters: Counters,
    /// Internal state vector at its end.
    pub isv: Isv,
    /// Losses, statistics and flags.
    pub readback: Readback,
}

/// Reads the pages of a step that may be running.
#[derive(Clone)]
pub struct ReadbackReader {
    pages: Arc<Pages>,
}

/// Copies before a reader gives up. One fails when a step ends during it, so two in a row are rare; the bound is for a device that
/// stopped between the stamps.
const N_ATTEMPTS: usize = 10_000;

/// What one copy takes: both stamps and three pages.
const PAGES_BYTES: usize = 2 * size_of::<u32>() + size_of::<Counters>() + size_of::<Isv>() + size_of::<Readback>();

impl ReadbackReader {
    /// A reader of `pages`.
    pub fn new(pages: Arc<Pages>) -> Self {
        Self { pages }
    }

    /// The latest finished step; `None` before the first, and when no copy came out whole, which takes a device that stopped while
    /// it published.
    #[track_caller]
    pub fn read(&self) -> Option<Published> {
        ledger::record(ledger::MAPPED_LOAD, PAGES_BYTES);
        for _ in 0..N_ATTEMPTS {
            if let Some(published) = self.attempt() {
                return (published.step != 0).then_some(published);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// One copy, if no step ended during it.
    fn attempt(&self) -> Option<Published> {
        let stamp = |offset: usize, ordering| self.pages.control.load_word(0, offset / size_of::<u32>(), ordering);
        // Acquire: what the step wrote before its last stamp is seen below.
        let step = stamp(offset_of!(Control, stamp_end), Ordering::Acquire);
        let published = Published {
            step,
            counters: copied(&self.pages.counters),
            isv: copied(&self.pages.isv),
            readback: copied(&self.pages.readback),
        };
        // Had a word above been of a later step, its first stamp is seen below.
        fence(Ordering::Acquire);
        (stamp(offset_of!(Control, stamp_begin), Ordering::Relaxed) == step).then_some(published)
    }
}

/// The page, word by word.
fn copied<T: Pod>(page: &Pinned<T>) -> T {
    let mut value = T::zeroed();
    let words: &mut [u32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut value));
    for (at, word) in words.iter_mut().enumerate() {
        *word = page.load_word(0, at, Ordering::Relaxed);
    }
    value
}
