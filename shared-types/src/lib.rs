//! Layouts that host and device share: plain `repr(C)` data whose offsets are asserted while compiling.
//!
//! | type | bytes | written by | read by |
//! |---|---|---|---|
//! | [`Readback`] | 64 | `adam_update`, `post_aux`, `maintenance`, every stage its own flag | host, after each step |
//! | [`Counters`] | 32 | `increment_step_counters`; a gated learner takes its own 1 back | every child graph |
//! | [`Control`] | 64 | host (inputs), last kernel of the step (stamps) | `increment_step_counters`; host |
//! | [`Isv`] | 256 | `adam_update`, epoch-boundary kernels, collector | every child graph; host |
//! | [`StepScalars`] | 32 | `increment_step_counters`, `tau_update` (`health_at_epoch`) | every child graph |
//! | [`Schedule`] | 32 | host, once, by value | `increment_step_counters` |
#![no_std]

mod control;
pub mod isv;
pub mod nan_flags;
mod readback;
pub mod stream;

pub use control::{Control, Counters, N_DEPTH_BLOCKS, Schedule, StepScalars};
pub use isv::Isv;
pub use readback::Readback;

/// Asserts the size of a type, the offset of each of its fields, and that they fill it without padding.
macro_rules! assert_layout {
    ($type:ty, size $size:literal, align $align:literal, $($field:ident: $field_type:ty = $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size && align_of::<$type>() == $align);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)+
            assert!(0 $(+ size_of::<$field_type>())+ == $size, "the fields leave padding");
        };
        #[cfg(test)]
        impl crate::layout_tests::Layout for $type {
            const NAME: &'static str = stringify!($type);
            const SIZE: usize = $size;
            const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($field), $offset, size_of::<$field_type>())),+];
        }
    };
}
use assert_layout;

#[cfg(test)]
mod layout_tests;
