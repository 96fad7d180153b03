//! The message when a coroutine's stack overflows.
//!
//! An overflow touches the stack's guard page: a SIGSEGV, which Rust's own handler, knowing the threads' stacks alone,
//! would leave without a word.

use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};

use super::position::CURRENT;

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once. It runs on the alternate stack that Rust gives to every thread it starts.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero `sigaction` is valid, and so are the pointers for the duration of the calls.
        unsafe {
            let mut previous = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            libc::sigaction(libc::SIGSEGV, ptr::null(), &mut previous);
            let _ = PREVIOUS.set(previous);
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut());
        }
    });
}

/// Text in a fixed buffer: a signal handler may not allocate.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let n = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system passes a valid record of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    CURRENT.with(|current| {
        // SAFETY: null, or what this very thread is running; the fault interrupted it inside the kernel.
        let (block, run) = unsafe { (current.block.get().as_ref(), current.run.get().as_ref()) };
        let (Some(block), Some(run)) = (block, run) else { return };
        let Some(guard) = block.guard(current.thread_in_block() as usize) else { return };
        if !(guard..guard + 4096).contains(&address) {
            return;
        }
        let (b, t) = (current.block_idx.get(), current.thread_idx());
        let mut text = Text { bytes: [0; 512], len: 0 };
        let _ = writeln!(
            text,
            "error: kernel `{}` ({}:{}): stack overflow, block ({}, {}, {}), thread ({}, {}, {}): on the CPU a thread of a \
             cooperative kernel has {} KiB of stack; make its local arrays smaller, or raise `ExecutorOptions::stack_bytes`",
            run.info().name,
            run.info().file,
            run.info().line,
            b.x,
            b.y,
            b.z,
            t.x,
            t.y,
            t.z,
            run.options.stack_bytes / 1024,
        );
        // SAFETY: the buffer holds `len` bytes; `_exit` is allowed in a signal handler and does not return.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.len);
            libc::_exit(1);
        }
    });
    // Not ours: the previous handler meets the same fault when the instruction runs again.
    if let Some(previous) = PREVIOUS.get() {
        // SAFETY: reinstalls what `install` found.
        unsafe { libc::sigaction(libc::SIGSEGV, previous, ptr::null_mut()) };
    }
}
