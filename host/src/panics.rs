//! Panics of libraries that damaged input can provoke.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and turns a panic into an error. The caller drops whatever `work` was changing when it panicked.
pub(crate) fn quietly<R>(work: impl FnOnce() -> R) -> thread::Result<R> {
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result
}

/// Whether a panic of this thread is expected, so that the program's panic hook says nothing of it.
pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}
