//! Atomics on plain pointers with the ordering in the name, by the published crate's names:
//! `atomic_fetch_add_relaxed_f32_device`, `atomic_load_acquire_32_system`, `fence_acqrel_block`, ...

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use pastey::paste;

use super::mid;
use super::raw::{Scope, fence};

macro_rules! fences {
    ($($scope:ident $variant:ident;)*) => {paste! {$(
        #[doc = concat!("A sequentially consistent fence at ", stringify!($scope), " scope.")]
        ///
        /// # Safety
        /// None; the published signature is kept.
        #[inline(always)]
        pub unsafe fn [<fence_sc_ $scope>]() {
            fence(SeqCst, Scope::$variant);
        }

        #[doc = concat!("An acquire and release fence at ", stringify!($scope), " scope.")]
        ///
        /// # Safety
        /// None; the published signature is kept.
        #[inline(always)]
        pub unsafe fn [<fence_acqrel_ $scope>]() {
            fence(AcqRel, Scope::$variant);
        }

        #[doc = concat!("The fence `membar` at ", stringify!($scope), " scope, which is the sequentially consistent one.")]
        ///
        /// # Safety
        /// None; the published signature is kept.
        #[inline(always)]
        pub unsafe fn [<membar_ $scope>]() {
            fence(SeqCst, Scope::$variant);
        }
    )*}};
}

fences! {
    device Device;
    block Block;
    system System;
}

macro_rules! accesses {
    ($($type:ident $width:literal [$($scope:ident)*];)*) => {$($(
        accesses!(@one $type, $width, $scope, load, relaxed, Relaxed);
        accesses!(@one $type, $width, $scope, load, acquire, Acquire);
        accesses!(@one $type, $width, $scope, store, relaxed, Relaxed);
        accesses!(@one $type, $width, $scope, store, release, Release);
    )*)*};
    (@one $type:ident, $width:literal, $scope:ident, load, $name:ident, $ordering:ident) => {paste! {
        #[doc = concat!("Reads at ", stringify!($scope), " scope, ", stringify!($name), ".")]
        ///
        /// # Safety
        /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
        #[inline(always)]
        pub unsafe fn [<atomic_load_ $name _ $width _ $scope>](ptr: *mut $type) -> $type {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { mid::[<atomic_load_ $width _ $scope>](ptr, $ordering) }
        }
    }};
    (@one $type:ident, $width:literal, $scope:ident, store, $name:ident, $ordering:ident) => {paste! {
        #[doc = concat!("Writes at ", stringify!($scope), " scope, ", stringify!($name), ".")]
        ///
        /// # Safety
        /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
        #[inline(always)]
        pub unsafe fn [<atomic_store_ $name _ $width _ $scope>](ptr: *mut $type, value: $type) {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { mid::[<atomic_store_ $width _ $scope>](ptr, $ordering, value) }
        }
    }};
}

accesses! {
    u32 32 [device block system];
    u64 64 [device block system];
}

macro_rules! fetches {
    ($($op:ident $types:tt;)*) => {$(
        fetches!(@types $op, $types);
    )*};
    (@types $op:ident, [$($type:ident)*]) => {$(
        fetches!(@one $op, $type, device);
        fetches!(@one $op, $type, block);
        fetches!(@one $op, $type, system);
    )*};
    (@one $op:ident, $type:ident, $scope:ident) => {
        fetches!(@ordering $op, $type, $scope, relaxed, Relaxed);
        fetches!(@ordering $op, $type, $scope, acquire, Acquire);
        fetches!(@ordering $op, $type, $scope, release, Release);
        fetches!(@ordering $op, $type, $scope, acqrel, AcqRel);
    };
    (@ordering $op:ident, $type:ident, $scope:ident, $name:ident, $ordering:ident) => {paste! {
        #[doc = concat!("Atomic `", stringify!($op), "` on a `", stringify!($type), "` at ", stringify!($scope), " scope, ", stringify!($name), "; returns the old value.")]
        ///
        /// # Safety
        /// `ptr` is valid and aligned, and at the same time accessed by atomics alone.
        #[inline(always)]
        pub unsafe fn [<atomic_fetch_ $op _ $name _ $type _ $scope>](ptr: *mut $type, value: $type) -> $type {
            // SAFETY: the caller's promise, which is this function's own `# Safety`.
            unsafe { mid::[<atomic_fetch_ $op _ $type _ $scope>](ptr, $ordering, value) }
        }
    }};
}

fetches! {
    add [u32 u64 i32 i64 f32 f64];
    sub [u32 u64 i32 i64 f32 f64];
    and [u32 u64 i32 i64 f32 f64];
    or [u32 u64 i32 i64 f32 f64];
    xor [u32 u64 i32 i64 f32 f64];
    exch [u32 u64 i32 i64 f32 f64];
    min [u32 u64 i32 i64];
    max [u32 u64 i32 i64];
}
