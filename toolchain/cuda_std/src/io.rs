//! Printing and assertions in kernels.
//!
//! On the GPU a text goes through `vprintf`: its format string is made at compile time from the Rust format string and the
//! arguments' types, so that nothing of `core::fmt` is compiled into the kernel. One call prints at once, unmixed with other
//! threads' calls; the buffer (1 MB unless the host sets it) reaches the host's standard output when it synchronises, and
//! what does not fit is lost. On the CPU target the text goes to the executor.
//!
//! What can be printed: integers of up to 64 bits, floats (f16 and bf16 too), `bool`, `char` (ASCII), strings (the first 95
//! bytes), pointers, and references to these. `{}` and `{:?}` of a float print as many digits as tell it from its neighbours
//! (`%.9g`, `%.17g`), not the shortest as on the CPU. Understood in braces: a position or a name, `<` or `>`, `+`, `#`, `0`,
//! a width, a precision, and `?`, `x`, `X`, `o`, `e`, `E`.
//!
//! A failed assertion prints its message, then goes through `__assertfail`: the launch fails and names file and line. On the
//! CPU target it ends the launch with a fault.

mod arguments;
mod format;

pub use arguments::{PrintArg, PrintArgs};
pub use format::{Kind, Piece};
#[doc(hidden)]
pub use format::{Pieces, Spec};

#[cfg(target_os = "cuda")]
unsafe extern "C" {
    /// The GPU's formatted print: a C format string, and its arguments packed as a C structure.
    #[doc(hidden)]
    pub fn vprintf(format: *const u8, arguments: *const core::ffi::c_void) -> i32;

    /// The GPU's failed assertion; ends the kernel.
    #[doc(hidden)]
    pub fn __assertfail(message: *const u8, file: *const u8, line: u32, function: *const u8, char_size: usize);
}

/// Used by [`print!`](crate::print): the format string of the place `P`, in `CAPACITY` bytes, with these arguments.
#[doc(hidden)]
#[cfg(target_os = "cuda")]
#[inline(always)]
pub fn print_args<P: Pieces, A: PrintArgs, const CAPACITY: usize>(arguments: A) {
    struct Place<P, A, const CAPACITY: usize>(core::marker::PhantomData<(P, A)>);
    impl<P: Pieces, A: PrintArgs, const CAPACITY: usize> Place<P, A, CAPACITY> {
        const FORMAT: &'static [u8; CAPACITY] = &format::c_format::<CAPACITY>(P::PIECES, A::KINDS);
    }
    arguments.with_slots(P::PIECES, |slots| {
        // SAFETY: the format ends with a NUL, and asks for the arguments that the slots hold, each of eight bytes.
        unsafe { vprintf(Place::<P, A, CAPACITY>::FORMAT.as_ptr(), slots.as_ptr().cast()) };
    });
}

/// Used by [`print!`](crate::print).
#[doc(hidden)]
#[cfg(not(target_os = "cuda"))]
pub fn print_host<A: PrintArgs>(_: &A, text: core::fmt::Arguments<'_>) {
    crate::cpu::print(&text.to_string());
}

/// Used by the assertions.
#[doc(hidden)]
#[cfg(target_os = "cuda")]
#[cold]
#[inline(always)]
pub fn assert_failed(message: &'static str, file: &'static str, line: u32, function: &'static str) -> ! {
    // SAFETY: the macros end each text with a NUL.
    unsafe { __assertfail(message.as_ptr(), file.as_ptr(), line, function.as_ptr(), 1) };
    crate::misc::trap()
}

/// A value that a failed assertion shows if it can: on the GPU, if it implements [`PrintArg`].
#[doc(hidden)]
pub struct Shown<'a, T: ?Sized>(pub &'a T);

/// Shows what can be printed.
#[doc(hidden)]
pub trait ShowPrintable {
    /// Prints `label: value`.
    fn show(&self, label: &'static str);
}

/// Stands in for what cannot.
#[doc(hidden)]
pub trait ShowNothing {
    /// Prints nothing.
    fn show(&self, _label: &'static str) {}
}

#[cfg(target_os = "cuda")]
impl<T: PrintArg + ?Sized> ShowPrintable for Shown<'_, T> {
    #[inline(always)]
    fn show(&self, label: &'static str) {
        struct Line;
        impl Pieces for Line {
            const PIECES: &'static [Piece] = &[
                Piece::Argument(0, Spec::DISPLAY),
                Piece::Text(": "),
                Piece::Argument(1, Spec::DISPLAY),
                Piece::Text("\n"),
            ];
        }
        print_args::<Line, _, 64>((&label, &self.0));
    }
}

#[cfg(target_os = "cuda")]
impl<T: ?Sized> ShowNothing for &Shown<'_, T> {}

/// Prints a line from a kernel; see [`io`](crate::io).
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($argument:tt)*) => { $crate::print_line!($($argument)*) };
}

/// Ends the kernel with an error unless the condition holds; a message may follow, as in [`print!`](crate::print).
#[macro_export]
macro_rules! assert {
    ($condition:expr $(,)?) => {
        if !$condition {
            $crate::assertion_failed!(concat!("assertion failed: ", stringify!($condition)))
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::println!($($message)+);
            $crate::assertion_failed!(concat!("assertion failed: ", stringify!($condition)))
        }
    };
}

/// Ends the kernel with an error unless the two are equal, and shows both; a message may follow.
#[macro_export]
macro_rules! assert_eq {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left == *right) {
                    $($crate::println!($($message)*);)?
                    $crate::comparison_failed!(left, right, concat!("assertion failed: ", stringify!($left), " == ", stringify!($right)))
                }
            }
        }
    };
}

/// Ends the kernel with an error if the two are equal, and shows both; a message may follow.
#[macro_export]
macro_rules! assert_ne {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        match (&$left, &$right) {
            (left, right) => {
                if *left == *right {
                    $($crate::println!($($message)*);)?
                    $crate::comparison_failed!(left, right, concat!("assertion failed: ", stringify!($left), " != ", stringify!($right)))
                }
            }
        }
    };
}

/// The end of a failed assertion.
#[doc(hidden)]
#[macro_export]
#[cfg(target_os = "cuda")]
macro_rules! assertion_failed {
    ($message:expr) => {
        $crate::io::assert_failed(
            concat!($message, "\0"),
            concat!(file!(), "\0"),
            line!(),
            concat!(module_path!(), "\0"),
        )
    };
}

/// The end of a failed assertion.
#[doc(hidden)]
#[macro_export]
#[cfg(not(target_os = "cuda"))]
macro_rules! assertion_failed {
    ($message:expr) => {
        $crate::cpu::fault(format_args!("{} ({}:{})", $message, file!(), line!()))
    };
}

/// The end of a failed comparison.
#[doc(hidden)]
#[macro_export]
#[cfg(target_os = "cuda")]
macro_rules! comparison_failed {
    ($left:ident, $right:ident, $message:expr) => {{
        #[allow(unused_imports, reason = "which of the two is used depends on the values' types")]
        use $crate::io::{ShowNothing as _, ShowPrintable as _};
        (&$crate::io::Shown($left)).show("left");
        (&$crate::io::Shown($right)).show("right");
        $crate::assertion_failed!($message)
    }};
}

/// The end of a failed comparison.
#[doc(hidden)]
#[macro_export]
#[cfg(not(target_os = "cuda"))]
macro_rules! comparison_failed {
    ($left:ident, $right:ident, $message:expr) => {
        $crate::cpu::fault(format_args!("{}: left {:?}, right {:?} ({}:{})", $message, $left, $right, file!(), line!()))
    };
}
