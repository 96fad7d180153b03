//! Atomics whose scope is part of the type.
//!
//! | scope | types | atomic for, and ordered with |
//! |---|---|---|
//! | device | `AtomicF32`, `AtomicU32`, ... | all threads of the GPU |
//! | block | `BlockAtomicF32`, ... | the threads of one block; hence unsafe |
//! | system | `SystemAtomicF32`, ... | the host and other GPUs too |
//!
//! A read-modify-write of 32 or 64 bits is one `atom` instruction with its semantics and scope spelled out (`red` where the
//! old value is not used), preceded by `fence.sc` for [`Ordering::SeqCst`]; 8 and 16 bits are a loop of compare-and-swap on
//! the 32-bit word around. On the CPU target they are core's atomics.
//!
//! The order in which floats are added decides their rounding, so sums by `fetch_add` may differ from run to run.

pub mod intrinsics;
pub mod mid;
mod raw;
mod small;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

pub use raw::{Scope, fence};
pub use small::*;

/// The atomic operations on plain pointers that the types are made of.
macro_rules! atomic_common {
    ($(#[$doc:meta])* $name:ident, $type:ident, $bits:ident, $align:literal, $scope:ident, [$($unsafe:ident)?],
     $load:ident, $store:ident, $swap:ident, $exch:ident, |$to:ident| $to_bits:expr, |$from:ident| $from_bits:expr) => {
        $(#[$doc])*
        #[repr(C, align($align))]
        pub struct $name {
            value: UnsafeCell<$type>,
        }

        // SAFETY: every access through a shared reference is atomic; a block-scoped one is unsafe to make.
        unsafe impl Sync for $name {}

        #[allow(clippy::missing_safety_doc, reason = "block scope's condition stands once, at the type")]
        impl $name {
            /// A new atomic.
            pub const fn new(value: $type) -> Self {
                Self { value: UnsafeCell::new(value) }
            }

            /// The value.
            pub fn into_inner(self) -> $type {
                self.value.into_inner()
            }

            /// The value's address.
            pub const fn as_ptr(&self) -> *mut $type {
                self.value.get()
            }

            /// Reads the value. `ordering`: relaxed, acquire or sequentially consistent.
            #[inline(always)]
            pub $($unsafe)? fn load(&self, ordering: Ordering) -> $type {
                // SAFETY: the address is valid, and is accessed by atomics alone while shared.
                let $from = unsafe { raw::$load(self.value.get().cast(), ordering, Scope::$scope) };
                $from_bits
            }

            /// Writes the value. `ordering`: relaxed, release or sequentially consistent.
            #[inline(always)]
            pub $($unsafe)? fn store(&self, $to: $type, ordering: Ordering) {
                // SAFETY: as in `load`.
                unsafe { raw::$store(self.value.get().cast(), $to_bits, ordering, Scope::$scope) }
            }

            /// Writes the value and returns the old one.
            #[inline(always)]
            pub $($unsafe)? fn swap(&self, $to: $type, ordering: Ordering) -> $type {
                // SAFETY: as in `load`.
                let $from = unsafe { raw::$exch(self.value.get().cast(), $to_bits, ordering, Scope::$scope) };
                $from_bits
            }

            /// Writes `new` if the value has the bits of `current`. Returns the old value, in `Ok` if it was written. The
            /// instruction has one ordering, `success`; `failure` may not be stronger.
            #[inline(always)]
            pub $($unsafe)? fn compare_exchange(
                &self,
                current: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                let _ = failure;
                let bits = |$to: $type| -> $bits { $to_bits };
                let (current, new) = (bits(current), bits(new));
                // SAFETY: as in `load`.
                let old = unsafe { raw::$swap(self.value.get().cast(), current, new, success, Scope::$scope) };
                let $from = old;
                if old == current { Ok($from_bits) } else { Err($from_bits) }
            }
        }
    };
}

macro_rules! method {
    ($(#[$doc:meta])* [$($unsafe:ident)?] $name:ident($self:ident, $value:ident: $type:ident, $ordering:ident) $body:block) => {
        $(#[$doc])*
        #[inline(always)]
        #[allow(clippy::missing_safety_doc, reason = "block scope's condition stands once, at the type")]
        pub $($unsafe)? fn $name(&$self, $value: $type, $ordering: Ordering) -> $type $body
    };
}

macro_rules! atomic_float {
    ($(#[$doc:meta])* $name:ident, $type:ident, $bits:ident, $align:literal, $scope:ident, $unsafe:tt,
     $load:ident, $store:ident, $swap:ident, $exch:ident, $add:ident, $and:ident, $or:ident, $xor:ident) => {
        atomic_common!(
            $(#[$doc])* $name, $type, $bits, $align, $scope, $unsafe, $load, $store, $swap, $exch,
            |value| value.to_bits(), |bits| $type::from_bits(bits)
        );

        impl $name {
            method!(
                /// Adds, and returns the old value.
                $unsafe fetch_add(self, value: $type, ordering) {
                    // SAFETY: the address is valid, and is accessed by atomics alone while shared.
                    unsafe { raw::$add(self.value.get(), value, ordering, Scope::$scope) }
                }
            );
            method!(
                /// Subtracts, and returns the old value.
                $unsafe fetch_sub(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$add(self.value.get(), -value, ordering, Scope::$scope) }
                }
            );
            method!(
                /// Bitwise and of the bits; returns the old value.
                $unsafe fetch_and(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    $type::from_bits(unsafe { raw::$and(self.value.get().cast(), value.to_bits(), ordering, Scope::$scope) })
                }
            );
            method!(
                /// Bitwise or of the bits; returns the old value.
                $unsafe fetch_or(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    $type::from_bits(unsafe { raw::$or(self.value.get().cast(), value.to_bits(), ordering, Scope::$scope) })
                }
            );
            method!(
                /// Bitwise exclusive or of the bits; returns the old value.
                $unsafe fetch_xor(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    $type::from_bits(unsafe { raw::$xor(self.value.get().cast(), value.to_bits(), ordering, Scope::$scope) })
                }
            );
        }
    };
}

macro_rules! atomic_int {
    ($(#[$doc:meta])* $name:ident, $type:ident, $bits:ident, $align:literal, $scope:ident, $unsafe:tt,
     $load:ident, $store:ident, $swap:ident, $exch:ident, $add:ident, $and:ident, $or:ident, $xor:ident, $min:ident, $max:ident) => {
        atomic_common!(
            $(#[$doc])* $name, $type, $bits, $align, $scope, $unsafe, $load, $store, $swap, $exch,
            |value| value as $bits, |bits| bits as $type
        );

        impl $name {
            method!(
                /// Adds, wrapping, and returns the old value.
                $unsafe fetch_add(self, value: $type, ordering) {
                    // SAFETY: the address is valid, and is accessed by atomics alone while shared.
                    unsafe { raw::$add(self.value.get().cast(), value as $bits, ordering, Scope::$scope) as $type }
                }
            );
            method!(
                /// Subtracts, wrapping, and returns the old value.
                $unsafe fetch_sub(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$add(self.value.get().cast(), value.wrapping_neg() as $bits, ordering, Scope::$scope) as $type }
                }
            );
            method!(
                /// Bitwise and; returns the old value.
                $unsafe fetch_and(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$and(self.value.get().cast(), value as $bits, ordering, Scope::$scope) as $type }
                }
            );
            method!(
                /// Bitwise or; returns the old value.
                $unsafe fetch_or(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$or(self.value.get().cast(), value as $bits, ordering, Scope::$scope) as $type }
                }
            );
            method!(
                /// Bitwise exclusive or; returns the old value.
                $unsafe fetch_xor(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$xor(self.value.get().cast(), value as $bits, ordering, Scope::$scope) as $type }
                }
            );
            method!(
                /// Keeps the smaller; returns the old value.
                $unsafe fetch_min(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$min(self.value.get(), value, ordering, Scope::$scope) }
                }
            );
            method!(
                /// Keeps the larger; returns the old value.
                $unsafe fetch_max(self, value: $type, ordering) {
                    // SAFETY: as in `fetch_add`.
                    unsafe { raw::$max(self.value.get(), value, ordering, Scope::$scope) }
                }
            );
        }
    };
}

macro_rules! all_scopes {
    ($($define:ident $type:ident, $bits:ident, $align:literal, [$device:ident, $block:ident, $system:ident], $operations:tt;)*) => {$(
        all_scopes!(@one $define, $device, $type, $bits, $align, Device, [], $operations, "An atomic of device scope.");
        all_scopes!(@one $define, $block, $type, $bits, $align, Block, [unsafe], $operations,
            "An atomic of block scope.\n\n# Safety\nIts operations are unsafe: while one block uses it, no thread outside that block may.");
        all_scopes!(@one $define, $system, $type, $bits, $align, System, [], $operations,
            "An atomic of system scope: in mapped memory the host may use it at the same time.");
    )*};
    (@one $define:ident, $name:ident, $type:ident, $bits:ident, $align:literal, $scope:ident, $unsafe:tt, [$($operations:tt)*], $doc:literal) => {
        $define!(#[doc = $doc] $name, $type, $bits, $align, $scope, $unsafe, $($operations)*);
    };
}

all_scopes! {
    atomic_float f32, u32, 4, [AtomicF32, BlockAtomicF32, SystemAtomicF32],
        [load_u32, store_u32, swap_u32, exch_u32, add_f32, and_u32, or_u32, xor_u32];
    atomic_float f64, u64, 8, [AtomicF64, BlockAtomicF64, SystemAtomicF64],
        [load_u64, store_u64, swap_u64, exch_u64, add_f64, and_u64, or_u64, xor_u64];
    atomic_int u32, u32, 4, [AtomicU32, BlockAtomicU32, SystemAtomicU32],
        [load_u32, store_u32, swap_u32, exch_u32, add_u32, and_u32, or_u32, xor_u32, min_u32, max_u32];
    atomic_int i32, u32, 4, [AtomicI32, BlockAtomicI32, SystemAtomicI32],
        [load_u32, store_u32, swap_u32, exch_u32, add_u32, and_u32, or_u32, xor_u32, min_i32, max_i32];
    atomic_int u64, u64, 8, [AtomicU64, BlockAtomicU64, SystemAtomicU64],
        [load_u64, store_u64, swap_u64, exch_u64, add_u64, and_u64, or_u64, xor_u64, min_u64, max_u64];
    atomic_int i64, u64, 8, [AtomicI64, BlockAtomicI64, SystemAtomicI64],
        [load_u64, store_u64, swap_u64, exch_u64, add_u64, and_u64, or_u64, xor_u64, min_i64, max_i64];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_compare_by_their_own_order() {
        let value = AtomicI32::new(i32::MAX);
        assert_eq!(value.fetch_add(1, Ordering::Relaxed), i32::MAX);
        assert_eq!(value.fetch_max(-5, Ordering::AcqRel), i32::MIN);
        assert_eq!(value.fetch_sub(-5, Ordering::SeqCst), -5);
        assert_eq!(value.fetch_min(-1, Ordering::Relaxed), 0);
        assert_eq!(value.compare_exchange(-1, 7, Ordering::AcqRel, Ordering::Acquire), Ok(-1));
        assert_eq!(value.compare_exchange(-1, 8, Ordering::AcqRel, Ordering::Acquire), Err(7));
        assert_eq!(value.swap(9, Ordering::Relaxed), 7);
        assert_eq!(value.into_inner(), 9);
    }

    #[test]
    fn floats_add_and_mask_their_bits() {
        let value = AtomicF64::new(1.5);
        assert_eq!(value.fetch_add(2.25, Ordering::Relaxed), 1.5);
        assert_eq!(value.fetch_sub(0.75, Ordering::Relaxed), 3.75);
        assert_eq!(value.fetch_or(-0.0, Ordering::Relaxed), 3.0);
        assert_eq!(value.fetch_and(f64::from_bits(!(1 << 63)), Ordering::Relaxed), -3.0);
        assert_eq!(value.fetch_xor(3.0, Ordering::Relaxed), 3.0);
        assert_eq!(value.load(Ordering::Acquire).to_bits(), 0);
    }

    #[test]
    fn threads_lose_no_addition() {
        let value = SystemAtomicF32::new(0.0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| _ = value.fetch_add(1.0, Ordering::Relaxed)));
            }
        });
        assert_eq!(value.into_inner(), 4000.0);
    }
}
