//! The checker's record of an allocation.

use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::access::{Kind, Target};
use super::fault::{FaultKind, Place, raise, raise_with};
use super::race::{Access, Accessor, Cell};

/// Bytes that one page of records covers.
const PAGE: usize = 256;
/// Bytes that one cell covers, unless smaller elements are accessed.
const WORD: usize = 4;

/// The checker's record of an allocation: which bytes were written, and who touched them in the launch under way.
///
/// Memory that a launch touches costs some thirty times its size for as long as the record lives.
pub struct Shadow {
    address: u64,
    bytes: usize,
    /// A bit a byte.
    initialised: Box<[AtomicU64]>,
    pages: Box<[Mutex<Option<Box<Page>>>]>,
}

/// The records of `PAGE` bytes.
struct Page {
    /// The launch that they are of.
    serial: u64,
    words: [Cell; PAGE / WORD],
    /// A cell a byte, once a part of a word was accessed.
    bytes: Option<Box<[Cell; PAGE]>>,
}

impl Page {
    fn new(serial: u64) -> Box<Self> {
        Box::new(Self { serial, words: std::array::from_fn(|_| Cell::default()), bytes: None })
    }

    /// Checks and notes an access to the bytes `range` of the page.
    fn access(&mut self, range: Range<usize>, kind: Kind, next: &Accessor<'_>) -> Option<(Kind, Access)> {
        let mut start = range.start;
        while start < range.end {
            let word = start / WORD;
            let end = range.end.min((word + 1) * WORD);
            let race = self.words[word]
                .race(kind, next)
                .or_else(|| self.bytes.as_ref()?[start..end].iter().find_map(|byte| byte.race(kind, next)));
            if race.is_some() {
                return race;
            }
            if end - start == WORD {
                self.words[word].note(kind, next);
            } else {
                let bytes = self.bytes.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Cell::default())));
                bytes[start..end].iter_mut().for_each(|byte| byte.note(kind, next));
            }
            start = end;
        }
        None
    }
}

impl Shadow {
    /// The record of `bytes` that nothing has written.
    pub fn new(bytes: usize) -> Self {
        let words = (0..bytes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let pages = (0..bytes.div_ceil(PAGE)).map(|_| Mutex::new(None)).collect();
        Self { address: 0, bytes, initialised: words, pages }
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
        self.pages.iter().for_each(|page| *page.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }

    /// Checks an access of the running thread and notes it.
    pub(super) fn access(&self, kind: Kind, target: Target, at: &'static Location<'static>) {
        let start = target.address() - self.address as usize;
        let range = start..start + target.bytes();
        match Accessor::here(at, |next| self.problem(&range, kind, next)).flatten() {
            None if kind == Kind::Write => self.mark_initialised(range),
            None => {}
            Some(Problem::Unwritten) => {
                let message = format!(
                    "{} of memory that nothing wrote, or not yet if a barrier is missing: {}",
                    kind.words(),
                    target.name()
                );
                raise(FaultKind::Uninitialised, Some(at), message);
            }
            Some(Problem::Race { kind: before, place, at: line }) => {
                let message = format!(
                    "{} of {}: the same memory had a {} by {place} at {}:{}, and nothing orders the two",
                    kind.words(),
                    target.name(),
                    before.words(),
                    line.file(),
                    line.line()
                );
                raise_with(FaultKind::Race, Some(at), Some(place), message);
            }
        }
    }

    fn problem(&self, range: &Range<usize>, kind: Kind, next: &Accessor<'_>) -> Option<Problem> {
        if kind != Kind::Write && !self.is_initialised(range.clone()) {
            return Some(Problem::Unwritten);
        }
        let mut start = range.start;
        while start < range.end {
            let number = start / PAGE;
            let end = range.end.min((number + 1) * PAGE);
            let mut page = self.pages[number].lock().unwrap_or_else(PoisonError::into_inner);
            if page.as_ref().is_none_or(|page| page.serial != next.serial()) {
                *page = Some(Page::new(next.serial()));
            }
            let part = start - number * PAGE..end - number * PAGE;
            if let Some((kind, access)) = page.as_mut().and_then(|page| page.access(part, kind, next)) {
                return Some(Problem::Race { kind, place: next.place(&access), at: access.at });
            }
            start = end;
        }
        None
    }
}

/// What is wrong with an access.
enum Problem {
    /// Nothing wrote the memory that it reads.
    Unwritten,
    /// An earlier access that nothing orders before it.
    Race { kind: Kind, place: Place, at: &'static Location<'static> },
}
