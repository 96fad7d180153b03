//! How a worker whose blocks all wait finds out that nobody can help.

use std::sync::{Mutex, PoisonError};

use super::executor::Run;

/// How long a worker whose blocks all wait goes on asking.
#[derive(Default)]
pub(super) struct Patience {
    pub(super) waits: bool,
    counted: Option<u64>,
    rounds: u32,
}

impl Patience {
    pub(super) fn moved(&mut self, run: &Run<'_>) {
        if self.waits {
            run.grid_wait.changed();
            *self = Self::default();
        }
    }

    /// Called after a round in which nothing moved, begun in `epoch`; whether every other worker stands still as well.
    pub(super) fn exhausted(&mut self, run: &Run<'_>, epoch: u64) -> bool {
        if !self.waits {
            // What this worker did before it came to a halt may help another: all must ask once more.
            self.waits = true;
            run.grid_wait.changed();
            return false;
        }
        self.rounds += 1;
        if self.rounds < 64 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        run.grid_wait.all_halted(epoch, &mut self.counted)
    }
}

/// Finds out that all workers of a launch stand still: each has asked all its waiting threads since the last time that
/// anything moved.
#[derive(Default)]
pub(super) struct GridWait(Mutex<Halt>);

#[derive(Default)]
struct Halt {
    workers: usize,
    epoch: u64,
    halted: usize,
}

impl GridWait {
    fn lock(&self) -> std::sync::MutexGuard<'_, Halt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a worker until the guard is dropped.
    pub(super) fn join(&self) -> impl Drop + '_ {
        struct Member<'a>(&'a GridWait);
        impl Drop for Member<'_> {
            fn drop(&mut self) {
                self.0.lock().workers -= 1;
                self.0.changed();
            }
        }
        self.lock().workers += 1;
        self.changed();
        Member(self)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    fn changed(&self) {
        let mut halt = self.lock();
        halt.epoch += 1;
        halt.halted = 0;
    }

    fn all_halted(&self, epoch: u64, counted: &mut Option<u64>) -> bool {
        let mut halt = self.lock();
        if halt.epoch != epoch {
            return false;
        }
        if counted.replace(epoch) != Some(epoch) {
            halt.halted += 1;
        }
        halt.halted == halt.workers
    }
}
