//! Named stretches of a run's time for NVIDIA's profilers (NVTX): setup, warm-up, an epoch and its parts; never a step.
//!
//! Without a profiler that listens a range is a null check and a short string, half a dozen times an epoch.

use std::marker::PhantomData;

/// A stretch that ends when this goes. Stretches of a thread lie inside each other.
#[must_use = "the range ends when this goes"]
pub struct Range {
    /// The thread that began it ends it.
    _of_thread: PhantomData<*const ()>,
}

/// Begins a stretch.
pub fn range(name: &'static str) -> Range {
    nvtx::range_push!("{}", name);
    Range { _of_thread: PhantomData }
}

impl Drop for Range {
    fn drop(&mut self) {
        nvtx::range_pop!();
    }
}
