//! 8- and 16-bit atomics: loops of compare-and-swap on the aligned 32-bit word around the value, which the GPU has no
//! instruction for. The three other bytes of that word are written back as they were, so they too must only be accessed
//! by atomics at the same time.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use super::raw::{self, Scope};

/// Replaces the `bytes` at `ptr` within its word by what `update` makes of them; returns the old ones.
///
/// # Safety
/// The word around `ptr` is valid, and is accessed by atomics alone.
#[inline(always)]
unsafe fn update_in_word(
    ptr: *mut u8,
    bits: u32,
    ordering: Ordering,
    scope: Scope,
    update: impl Fn(u32) -> u32,
) -> u32 {
    let offset = ptr.addr() % 4;
    let (shift, mask) = (offset as u32 * 8, (1 << bits) - 1);
    let word = ptr.wrapping_sub(offset).cast::<u32>();
    // SAFETY: the caller vouches for the word.
    let mut old = unsafe { raw::load_u32(word, Ordering::Relaxed, scope) };
    loop {
        let value = old >> shift & mask;
        let new = old & !(mask << shift) | (update(value) & mask) << shift;
        // SAFETY: as above.
        let seen = unsafe { raw::swap_u32(word, old, new, ordering, scope) };
        if seen == old {
            return value;
        }
        old = seen;
    }
}

macro_rules! small_atomic {
    ($($name:ident, $type:ident, $unsigned:ident, $bits:literal, $scope:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        ///
        /// It fills a 32-bit word of its own, so that the loop disturbs no neighbour.
        #[repr(C, align(4))]
        pub struct $name {
            value: UnsafeCell<$type>,
        }

        // SAFETY: every access through a shared reference is atomic.
        unsafe impl Sync for $name {}

        impl $name {
            /// A new atomic.
            pub const fn new(value: $type) -> Self {
                Self { value: UnsafeCell::new(value) }
            }

            /// The value.
            pub fn into_inner(self) -> $type {
                self.value.into_inner()
            }

            #[inline(always)]
            fn update(&self, ordering: Ordering, update: impl Fn($type) -> $type) -> $type {
                // SAFETY: the type is aligned to and as large as its word.
                unsafe {
                    update_in_word(self.value.get().cast(), $bits, ordering, Scope::$scope, |bits| {
                        update(bits as $type) as $unsigned as u32
                    }) as $type
                }
            }

            /// Reads the value. `ordering`: relaxed, acquire or sequentially consistent.
            #[inline(always)]
            pub fn load(&self, ordering: Ordering) -> $type {
                // SAFETY: as in `update`.
                unsafe { raw::load_u32(self.value.get().cast(), ordering, Scope::$scope) as $type }
            }

            /// Writes the value.
            #[inline(always)]
            pub fn store(&self, value: $type, ordering: Ordering) {
                self.update(ordering, |_| value);
            }

            /// Writes the value and returns the old one.
            #[inline(always)]
            pub fn swap(&self, value: $type, ordering: Ordering) -> $type {
                self.update(ordering, |_| value)
            }

            /// Adds, wrapping, and returns the old value.
            #[inline(always)]
            pub fn fetch_add(&self, value: $type, ordering: Ordering) -> $type {
                self.update(ordering, |old| old.wrapping_add(value))
            }

            /// Subtracts, wrapping, and returns the old value.
            #[inline(always)]
            pub fn fetch_sub(&self, value: $type, ordering: Ordering) -> $type {
                self.update(ordering, |old| old.wrapping_sub(value))
            }

            /// Keeps the smaller; returns the old value.
            #[inline(always)]
            pub fn fetch_min(&self, value: $type, ordering: Ordering) -> $type {
                self.update(ordering, |old| old.min(value))
            }

            /// Keeps the larger; returns the old value.
            #[inline(always)]
            pub fn fetch_max(&self, value: $type, ordering: Ordering) -> $type {
                self.update(ordering, |old| old.max(value))
            }
        }
    )*};
}

small_atomic! {
    AtomicU8, u8, u8, 8, Device, "An atomic of device scope.";
    AtomicI8, i8, u8, 8, Device, "An atomic of device scope.";
    AtomicU16, u16, u16, 16, Device, "An atomic of device scope.";
    AtomicI16, i16, u16, 16, Device, "An atomic of device scope.";
    SystemAtomicU8, u8, u8, 8, System, "An atomic of system scope.";
    SystemAtomicI8, i8, u8, 8, System, "An atomic of system scope.";
    SystemAtomicU16, u16, u16, 16, System, "An atomic of system scope.";
    SystemAtomicI16, i16, u16, 16, System, "An atomic of system scope.";
}

macro_rules! fetch_add_at {
    ($($name:ident, $type:ident, $unsigned:ident, $bits:literal;)*) => {$(
        #[doc = concat!("Adds to a `", stringify!($type), "` anywhere in memory, wrapping, and returns the old value.")]
        ///
        /// # Safety
        /// The aligned 32-bit word around `ptr` is valid, and during the launch every thread accesses it by atomics of
        /// `scope` alone.
        #[inline(always)]
        pub unsafe fn $name(ptr: *mut $type, value: $type, ordering: Ordering, scope: Scope) -> $type {
            // SAFETY: the caller's promise.
            unsafe {
                update_in_word(ptr.cast(), $bits, ordering, scope, |old| {
                    (old as $type).wrapping_add(value) as $unsigned as u32
                }) as $type
            }
        }
    )*};
}

fetch_add_at! {
    fetch_add_u8, u8, u8, 8;
    fetch_add_i8, i8, u8, 8;
    fetch_add_u16, u16, u16, 16;
    fetch_add_i16, i16, u16, 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_changes_alone() {
        let mut word = 0x1122_fe44u32;
        let byte = (&raw mut word).cast::<u8>().wrapping_add(1);
        // SAFETY: `byte` lies in `word`, which nothing else uses.
        let old = unsafe { fetch_add_u8(byte, 3, Ordering::Relaxed, Scope::Device) };
        assert_eq!((old, word), (0xfe, 0x1122_0144));
        // SAFETY: as above.
        let old = unsafe { fetch_add_i16(byte.wrapping_add(1).cast(), -0x1123, Ordering::AcqRel, Scope::System) };
        assert_eq!((old, word), (0x1122, 0xffff_0144));
    }

    #[test]
    fn signed_bytes_keep_their_sign() {
        let value = AtomicI8::new(-128);
        assert_eq!(value.fetch_sub(1, Ordering::Relaxed), -128);
        assert_eq!(value.fetch_min(-3, Ordering::Relaxed), 127);
        assert_eq!(value.fetch_max(-1, Ordering::SeqCst), -3);
        assert_eq!(value.swap(5, Ordering::Relaxed), -1);
        assert_eq!(value.load(Ordering::Acquire), 5);
    }
}
