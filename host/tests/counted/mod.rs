//! The system's allocator, counted, for a test program of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocations that are not freed yet.
pub static LIVE_BLOCKS: AtomicUsize = AtomicUsize::new(0);
/// Their bytes.
pub static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The most that they have been.
pub static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counted;

fn grow(bytes: usize) {
    LIVE_BLOCKS.fetch_add(1, Ordering::Relaxed);
    let live = LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed on unchanged to the system's allocator; only counters are kept beside.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise about `layout` is the system's demand.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BLOCKS.fetch_sub(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System` with this layout, as `alloc` above passes everything on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;
