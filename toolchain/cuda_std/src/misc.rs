//! Clocks, breakpoints, ending a kernel, and a value whose origin is hidden.

use crate::target::target;

/// Stops in a debugger; without one, the kernel fails. On the CPU target: ends the launch with a fault.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn breakpoint() {
    #[cfg(target_os = "cuda")]
    // SAFETY: suspends the thread.
    unsafe {
        core::arch::asm!("brkpt;", options(nostack, preserves_flags))
    }
    #[cfg(not(target_os = "cuda"))]
    crate::cpu::fault(format_args!("breakpoint"))
}

/// Counts an event of the profiler, 0 to 15. On the CPU target: nothing.
///
/// # Panics
/// If `counter` is over 15. It must be a constant: the instruction has no form for a variable.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn profiler_counter(counter: u32) {
    assert!(counter < 16, "a profiler counter is 0 to 15");
    #[cfg(target_os = "cuda")]
    {
        macro_rules! one_of {
            ($($n:literal)*) => {
                match counter {
                    // SAFETY: counts an event.
                    $($n => unsafe { core::arch::asm!(concat!("pmevent ", $n, ";"), options(nostack, preserves_flags)) },)*
                    _ => {}
                }
            };
        }
        one_of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

/// The value, with its origin hidden from the compiler: what is computed from it is computed where this call stands, and not
/// moved out of a loop to be kept in registers for all its turns.
#[inline(always)]
pub fn hidden(value: u32) -> u32 {
    target!(gpu {
        let result: u32;
        // SAFETY: a move between registers. Not `pure`, so that it stays where it is.
        unsafe {
            core::arch::asm!("mov.b32 {}, {};", out(reg32) result, in(reg32) value, options(nomem, nostack, preserves_flags))
        }
        result
    } cpu { value })
}

/// The multiprocessor's cycle counter (`%clock64`). On the CPU target: nanoseconds since the program's first call.
#[inline(always)]
pub fn clock() -> u64 {
    target!(gpu {
        let cycles: u64;
        // SAFETY: reads a special register. Not `pure`: two reads differ.
        unsafe { core::arch::asm!("mov.u64 {}, %clock64;", out(reg64) cycles, options(nomem, nostack, preserves_flags)) }
        cycles
    } cpu { host_nanoseconds() })
}

/// Nanoseconds of the GPU's global timer (`%globaltimer`), whose resolution is about a microsecond. On the CPU target:
/// nanoseconds since the program's first call.
#[inline(always)]
pub fn global_timer_ns() -> u64 {
    target!(gpu {
        let nanoseconds: u64;
        // SAFETY: reads a special register. Not `pure`: two reads differ.
        unsafe {
            core::arch::asm!("mov.u64 {}, %globaltimer;", out(reg64) nanoseconds, options(nomem, nostack, preserves_flags))
        }
        nanoseconds
    } cpu { host_nanoseconds() })
}

#[cfg(not(target_os = "cuda"))]
fn host_nanoseconds() -> u64 {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Ends the kernel with an error. On the CPU target: ends the launch with a fault.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn trap() -> ! {
    #[cfg(target_os = "cuda")]
    // SAFETY: ends the kernel.
    unsafe {
        core::arch::asm!("trap;", options(noreturn))
    }
    #[cfg(not(target_os = "cuda"))]
    crate::cpu::fault(format_args!("trap"))
}
