//! The checker's record of an allocation.

use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use super::access::{Kind, Target};
use super::fault::{FaultKind, raise};

/// The checker's record of an allocation: which bytes were written, and who touched them last.
pub struct Shadow {
    address: u64,
    bytes: usize,
    /// A bit a byte.
    initialised: Box<[AtomicU64]>,
}

impl Shadow {
    /// The record of `bytes` that nothing has written.
    pub fn new(bytes: usize) -> Self {
        let words = (0..bytes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { address: 0, bytes, initialised: words }
    }

    /// Tells the record where its allocation lies.
    pub(crate) fn set_address(&mut self, address: u64) {
        self.address = address;
    }

    /// Notes that the bytes `range` of the allocation were written: an upload, a memset.
    ///
    /// # Panics
    /// If the range passes the allocation's end.
    pub fn mark_initialised(&self, range: Range<usize>) {
        assert!(range.end <= self.bytes, "{range:?} passes {} bytes", self.bytes);
        self.for_words(range, |word, mask| {
            word.fetch_or(mask, Ordering::Relaxed);
            true
        });
    }

    /// Whether all bytes of `range` were written.
    pub fn is_initialised(&self, range: Range<usize>) -> bool {
        self.for_words(range, |word, mask| word.load(Ordering::Relaxed) & mask == mask)
    }

    /// Visits the words that hold the bits of `range`, with the bits' mask, while `visit` says so.
    fn for_words(&self, range: Range<usize>, visit: impl Fn(&AtomicU64, u64) -> bool) -> bool {
        let mut byte = range.start;
        while byte < range.end {
            let (word, bit) = (byte / 64, byte % 64);
            let n = (64 - bit).min(range.end - byte);
            let mask = (u64::MAX >> (64 - n)) << bit;
            if !visit(&self.initialised[word], mask) {
                return false;
            }
            byte += n;
        }
        true
    }

    /// Forgets all: the memory is as new.
    pub(super) fn forget(&self) {
        self.initialised.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    #[inline(never)]
    pub(super) fn access(&self, kind: Kind, target: Target, at: &'static Location<'static>) {
        let start = target.address() - self.address as usize;
        let range = start..start + target.bytes();
        if kind != Kind::Write && !self.is_initialised(range.clone()) {
            let message = format!("{} of memory that nothing wrote: {}", kind.words(), target.name());
            raise(FaultKind::Uninitialised, Some(at), message);
        }
        if kind == Kind::Write {
            self.mark_initialised(range);
        }
    }
}
