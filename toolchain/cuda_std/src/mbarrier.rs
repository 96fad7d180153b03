//! Barriers in shared memory that count arrivals and bytes (`mbarrier`).
//!
//! A barrier goes through phases. A phase ends when the expected number of threads has arrived and the bytes that they
//! announced have been copied; the next begins with the same number. To wait, a thread names the phase it waits for: by the
//! token that its own arrival gave, or (sm_90 and later) by parity, 0 for the first phase, 1 for the second, then 0 again.
//!
//! One thread calls [`init`]; then [`fence_init`] if the bulk copy engine is to use the barrier, then a block barrier, before
//! anyone else uses it. On the CPU target the word holds the counts in the clear and a wait lets the block's other threads run.

#[cfg(not(target_os = "cuda"))]
use emulation::State;

use crate::target::target;

/// A barrier's word. It lives in shared memory.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Barrier(u64);

/// A phase of a barrier, as [`arrive`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Phase(u64);

#[cfg(target_os = "cuda")]
macro_rules! on_barrier {
    ($barrier:ident, $instruction:literal $(, $($operand:tt)*)?) => {
        // SAFETY: the caller of the public function vouches for the barrier.
        unsafe {
            core::arch::asm!(
                $instruction,
                barrier = in(reg32) crate::ptr::shared_address($barrier.cast_const()),
                $($($operand)*,)?
                options(nostack)
            )
        }
    };
}

/// Sets a barrier up for `count` arrivals a phase.
///
/// # Safety
/// `barrier` points into shared memory and nobody uses it at the same time.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn init(barrier: *mut Barrier, count: u32) {
    target!(gpu { on_barrier!(barrier, "mbarrier.init.shared.b64 [{barrier}], {count};", count = in(reg32) count) } cpu {
        // SAFETY: the caller's promise.
        unsafe { State::new(count).save(barrier) }
    })
}

/// Ends a barrier's life, so that its memory can serve something else.
///
/// # Safety
/// `barrier` was set up and nobody uses it any more.
#[inline(always)]
pub unsafe fn invalidate(barrier: *mut Barrier) {
    target!(gpu { on_barrier!(barrier, "mbarrier.inval.shared.b64 [{barrier}];") } cpu {
        // SAFETY: the caller's promise.
        unsafe { barrier.write(Barrier(0)) }
    })
}

/// Makes [`init`] known to the bulk copy engine and to other blocks of the cluster. Nothing on sm_80 and on the CPU target.
#[inline(always)]
pub fn fence_init() {
    #[cfg(all(target_os = "cuda", target_feature = "sm_90"))]
    // SAFETY: a fence.
    unsafe {
        core::arch::asm!("fence.mbarrier_init.release.cluster;", options(nostack))
    }
}

/// Arrives, and returns the phase that this arrival belongs to.
///
/// # Safety
/// `barrier` was set up.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn arrive(barrier: *mut Barrier) -> Phase {
    target!(gpu {
        let phase: u64;
        on_barrier!(barrier, "mbarrier.arrive.shared.b64 {phase}, [{barrier}];", phase = out(reg64) phase);
        Phase(phase)
    } cpu {
        // SAFETY: the caller's promise.
        let mut state = unsafe { State::of(barrier) };
        let phase = state.phase;
        state.arrive();
        // SAFETY: the caller's promise that the barrier was set up.
        unsafe { state.save(barrier) };
        Phase(u64::from(phase))
    })
}

/// Waits until `phase`, the current or the one before it, is over.
///
/// # Safety
/// `barrier` was set up, and `phase` is from its [`arrive`].
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn wait(barrier: *mut Barrier, phase: Phase) {
    target!(gpu {
        loop {
            let over: u32;
            on_barrier!(
                barrier,
                "{{ .reg .pred %over; mbarrier.test_wait.shared.b64 %over, [{barrier}], {phase}; selp.b32 {over}, 1, 0, %over; }}",
                phase = in(reg64) phase.0,
                over = out(reg32) over
            );
            if over != 0 {
                break;
            }
        }
    } cpu {
        // SAFETY: the caller's promise.
        crate::cpu::wait_until("mbarrier", || unsafe { State::of(barrier) }.phase != (phase.0 == 1))
    })
}

/// Announces `bytes` more that are to be copied in this phase, then arrives.
///
/// # Safety
/// `barrier` was set up.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn arrive_expect_tx(barrier: *mut Barrier, bytes: u32) {
    target!(gpu {
        on_barrier!(barrier, "mbarrier.arrive.expect_tx.shared.b64 _, [{barrier}], {bytes};", bytes = in(reg32) bytes)
    } cpu {
        // SAFETY: the caller's promise.
        let mut state = unsafe { State::of(barrier) };
        state.bytes += i64::from(bytes);
        state.arrive();
        // SAFETY: the caller's promise that the barrier was set up.
        unsafe { state.save(barrier) }
    })
}

/// Announces `bytes` more that are to be copied in this phase.
///
/// # Safety
/// `barrier` was set up.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn expect_tx(barrier: *mut Barrier, bytes: u32) {
    target!(gpu {
        on_barrier!(barrier, "mbarrier.expect_tx.relaxed.cta.shared.b64 [{barrier}], {bytes};", bytes = in(reg32) bytes)
    } cpu {
        // SAFETY: the caller's promise.
        let mut state = unsafe { State::of(barrier) };
        state.bytes += i64::from(bytes);
        // SAFETY: the caller's promise that the barrier was set up.
        unsafe { state.save(barrier) }
    })
}

/// Whether the phase of this parity is over; the GPU may wait a little before it says no.
///
/// # Safety
/// `barrier` was set up, and its phase of this parity is the current one or the one before it.
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn try_wait_parity(barrier: *mut Barrier, parity: u32) -> bool {
    target!(gpu {
        let over: u32;
        on_barrier!(
            barrier,
            "{{ .reg .pred %over; mbarrier.try_wait.parity.shared.b64 %over, [{barrier}], {parity}; selp.b32 {over}, 1, 0, %over; }}",
            parity = in(reg32) parity,
            over = out(reg32) over
        );
        over != 0
    } cpu {
        // SAFETY: the caller's promise.
        unsafe { State::of(barrier) }.phase != (parity & 1 == 1)
    })
}

/// Waits until the phase of this parity is over.
///
/// # Safety
/// As for [`try_wait_parity`].
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub unsafe fn wait_parity(barrier: *mut Barrier, parity: u32) {
    target!(gpu {
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        while !unsafe { try_wait_parity(barrier, parity) } {}
    } cpu {
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        crate::cpu::wait_until("mbarrier", || unsafe { try_wait_parity(barrier, parity) })
    })
}

/// Counts `bytes` as copied, as the copy engine does at its end.
///
/// # Safety
/// `barrier` was set up.
#[cfg(not(target_os = "cuda"))]
#[track_caller]
pub(crate) unsafe fn complete_tx(barrier: *mut Barrier, bytes: u32) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    let mut state = unsafe { State::of(barrier) };
    state.bytes -= i64::from(bytes);
    state.settle();
    // SAFETY: the caller's promise that the barrier was set up.
    unsafe { state.save(barrier) }
}

#[cfg(not(target_os = "cuda"))]
mod emulation {
    use super::Barrier;

    /// Most arrivals a phase, and the field that holds a count.
    const COUNT_BITS: u32 = 20;
    const BYTES_BITS: u32 = 23;

    /// A barrier's word taken apart: phase parity, arrivals a phase, arrivals still missing, bytes still missing (negative
    /// when a copy ends before it was announced).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct State {
        pub phase: bool,
        pub count: u32,
        pub missing: u32,
        pub bytes: i64,
    }

    impl State {
        #[track_caller]
        pub fn new(count: u32) -> Self {
            if count == 0 || count >= 1 << COUNT_BITS {
                crate::cpu::fault(format_args!("an mbarrier is set up for {count} arrivals; it takes 1 to 2^20 - 1"));
            }
            Self { phase: false, count, missing: count, bytes: 0 }
        }

        /// # Safety
        /// The barrier is valid.
        #[track_caller]
        pub unsafe fn of(barrier: *const Barrier) -> Self {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            let word = unsafe { (*barrier).0 };
            let field = |shift: u32, bits: u32| word >> shift & ((1 << bits) - 1);
            let bytes = (field(1 + 2 * COUNT_BITS, BYTES_BITS) << (64 - BYTES_BITS)).cast_signed() >> (64 - BYTES_BITS);
            let state = Self {
                phase: word & 1 == 1,
                count: field(1, COUNT_BITS) as u32,
                missing: field(1 + COUNT_BITS, COUNT_BITS) as u32,
                bytes,
            };
            if state.count == 0 {
                crate::cpu::fault(format_args!("an mbarrier is used that was not set up"));
            }
            state
        }

        /// # Safety
        /// The barrier is valid.
        pub unsafe fn save(self, barrier: *mut Barrier) {
            let bytes = self.bytes.cast_unsigned() & ((1 << BYTES_BITS) - 1);
            let word = u64::from(self.phase)
                | u64::from(self.count) << 1
                | u64::from(self.missing) << (1 + COUNT_BITS)
                | bytes << (1 + 2 * COUNT_BITS);
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { barrier.write(Barrier(word)) }
        }

        #[track_caller]
        pub fn arrive(&mut self) {
            if self.missing == 0 {
                crate::cpu::fault(format_args!(
                    "more threads arrive at an mbarrier than the {} it expects",
                    self.count
                ));
            }
            self.missing -= 1;
            self.settle();
        }

        /// Begins the next phase if nothing is missing from this one.
        pub fn settle(&mut self) {
            if self.missing == 0 && self.bytes == 0 {
                self.phase = !self.phase;
                self.missing = self.count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_when_threads_and_bytes_are_there() {
        let mut word = Barrier(0);
        let barrier = &raw mut word;
        // SAFETY: the barrier is this test's own.
        unsafe {
            init(barrier, 2);
            assert!(try_wait_parity(barrier, 1), "the phase before the first counts as over");
            arrive_expect_tx(barrier, 4096);
            assert!(!try_wait_parity(barrier, 0));
            arrive(barrier);
            assert!(!try_wait_parity(barrier, 0), "4096 bytes are missing");
            complete_tx(barrier, 4000);
            complete_tx(barrier, 96);
            assert!(try_wait_parity(barrier, 0));
            assert!(!try_wait_parity(barrier, 1), "the second phase expects two threads again");
            let phase = arrive(barrier);
            arrive(barrier);
            wait(barrier, phase);
            assert!(!try_wait_parity(barrier, 0), "the third phase is open");
        }
    }

    #[test]
    fn bytes_may_arrive_before_they_are_announced() {
        let mut word = Barrier(0);
        let barrier = &raw mut word;
        // SAFETY: the barrier is this test's own.
        unsafe {
            init(barrier, 1);
            complete_tx(barrier, 64);
            arrive_expect_tx(barrier, 64);
            assert!(try_wait_parity(barrier, 0));
        }
    }
}
