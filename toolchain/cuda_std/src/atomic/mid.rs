//! Atomics on plain pointers with the ordering as an argument, by the published crate's names:
//! `atomic_load_32_device`, `atomic_store_64_block`, `atomic_fetch_add_f32_system`, ...

use core::sync::atomic::Ordering;

use pastey::paste;

use super::raw::{self, Scope, fence};

/// A fence among all threads of the device.
#[inline(always)]
pub fn device_thread_fence(ordering: Ordering) {
    fence(ordering, Scope::Device);
}

/// A fence among the threads of the block.
#[inline(always)]
pub fn block_thread_fence(ordering: Ordering) {
    fence(ordering, Scope::Block);
}

/// A fence among all threads, the host and other devices.
#[inline(always)]
pub fn system_thread_fence(ordering: Ordering) {
    fence(ordering, Scope::System);
}

macro_rules! accesses {
    ($($type:ident, $width:literal;)*) => {$(
        accesses!(@scope $type, $width, device, Device);
        accesses!(@scope $type, $width, block, Block);
        accesses!(@scope $type, $width, system, System);
    )*};
    (@scope $type:ident, $width:literal, $scope:ident, $variant:ident) => {
        paste! {
            #[doc = concat!("Reads at ", stringify!($scope), " scope.")]
            ///
            /// # Safety
            /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
            #[inline(always)]
            pub unsafe fn [<atomic_load_ $width _ $scope>](ptr: *mut $type, ordering: Ordering) -> $type {
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                unsafe { raw::[<load_ $type>](ptr, ordering, Scope::$variant) }
            }

            #[doc = concat!("Writes at ", stringify!($scope), " scope.")]
            ///
            /// # Safety
            /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
            #[inline(always)]
            pub unsafe fn [<atomic_store_ $width _ $scope>](ptr: *mut $type, ordering: Ordering, value: $type) {
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                unsafe { raw::[<store_ $type>](ptr, value, ordering, Scope::$variant) }
            }

            #[doc = concat!("Writes `new` if the value is `current`, at ", stringify!($scope), " scope; returns the old value.")]
            ///
            /// # Safety
            /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
            #[inline(always)]
            pub unsafe fn [<atomic_compare_and_swap_ $width _ $scope>](
                ptr: *mut $type,
                ordering: Ordering,
                current: $type,
                new: $type,
            ) -> $type {
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                unsafe { raw::[<swap_ $type>](ptr, current, new, ordering, Scope::$variant) }
            }
        }
    };
}

accesses! {
    u32, 32;
    u64, 64;
}

macro_rules! fetches {
    ($($op:ident $type:ident = |$value:ident, $old:ident| $raw:ident($argument:expr) -> $result:expr;)*) => {$(
        fetches!(@scope $op, $type, |$value, $old| $raw($argument) -> $result, device, Device);
        fetches!(@scope $op, $type, |$value, $old| $raw($argument) -> $result, block, Block);
        fetches!(@scope $op, $type, |$value, $old| $raw($argument) -> $result, system, System);
    )*};
    (@scope $op:ident, $type:ident, |$value:ident, $old:ident| $raw:ident($argument:expr) -> $result:expr, $scope:ident, $variant:ident) => {
        paste! {
            #[doc = concat!("Atomic `", stringify!($op), "` on a `", stringify!($type), "` at ", stringify!($scope), " scope; returns the old value.")]
            ///
            /// # Safety
            /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
            #[inline(always)]
            pub unsafe fn [<atomic_fetch_ $op _ $type _ $scope>](ptr: *mut $type, ordering: Ordering, $value: $type) -> $type {
                // SAFETY: the caller's promise, which is this function's own `# Safety`; where the types differ they have the same size and alignment.
                let $old = unsafe { raw::$raw(ptr.cast(), $argument, ordering, Scope::$variant) };
                $result
            }
        }
    };
}

macro_rules! int_fetches {
    ($($type:ident as $bits:ident;)*) => {paste! {
        fetches! {$(
            add $type = |value, old| [<add_ $bits>](value as $bits) -> old as $type;
            sub $type = |value, old| [<add_ $bits>](value.wrapping_neg() as $bits) -> old as $type;
            and $type = |value, old| [<and_ $bits>](value as $bits) -> old as $type;
            or $type = |value, old| [<or_ $bits>](value as $bits) -> old as $type;
            xor $type = |value, old| [<xor_ $bits>](value as $bits) -> old as $type;
            exch $type = |value, old| [<exch_ $bits>](value as $bits) -> old as $type;
            min $type = |value, old| [<min_ $type>](value) -> old;
            max $type = |value, old| [<max_ $type>](value) -> old;
        )*}
    }};
}

macro_rules! float_fetches {
    ($($type:ident as $bits:ident;)*) => {paste! {
        fetches! {$(
            add $type = |value, old| [<add_ $type>](value) -> old;
            sub $type = |value, old| [<add_ $type>](-value) -> old;
            and $type = |value, old| [<and_ $bits>](value.to_bits()) -> $type::from_bits(old);
            or $type = |value, old| [<or_ $bits>](value.to_bits()) -> $type::from_bits(old);
            xor $type = |value, old| [<xor_ $bits>](value.to_bits()) -> $type::from_bits(old);
            exch $type = |value, old| [<exch_ $bits>](value.to_bits()) -> $type::from_bits(old);
        )*}
    }};
}

int_fetches! {
    u32 as u32;
    i32 as u32;
    u64 as u64;
    i64 as u64;
}
float_fetches! {
    f32 as u32;
    f64 as u64;
}
