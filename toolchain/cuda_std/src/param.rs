//! How a kernel's parameters cross from the host.
//!
//! In PTX each parameter is two ABI words (`Abi0`, `Abi1`); the second is zero-sized, and so absent, for all but slices.
//! Splitting a slice so keeps its loads `ld.global.nc` (read-only) or `ld.global`; as one 16-byte parameter they would be
//! generic.

use core::marker::PhantomData;

#[cfg(not(target_os = "cuda"))]
use crate::launch::{Access, Binder, DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut};

/// A type that a kernel can take.
///
/// # Safety
/// `from_abi` and `materialize` must yield the value that was bound, and `bind` must declare every access that the value
/// allows to device memory.
pub unsafe trait KernelParam: Sized {
    /// What the kernel's body receives.
    type Arg;
    /// First ABI word.
    type Abi0;
    /// Second ABI word, `()` if there is none.
    type Abi1;
    /// What the host passes to the kernel's `launch`.
    #[cfg(not(target_os = "cuda"))]
    type Host<'h>;
    /// The owned form that a launch keeps.
    #[cfg(not(target_os = "cuda"))]
    type Bound: Send + Sync + 'static;

    /// Rebuilds the argument from its ABI words.
    ///
    /// # Safety
    /// The words are those that the host packed for this parameter.
    unsafe fn from_abi(first: Self::Abi0, second: Self::Abi1) -> Self::Arg;

    /// Packs the argument for the driver and notes what memory it reaches.
    #[cfg(not(target_os = "cuda"))]
    fn bind(host: Self::Host<'_>, name: &'static str, binder: &mut Binder) -> Self::Bound;

    /// The argument as a thread of the CPU target receives it.
    ///
    /// # Safety
    /// The memory that was bound is alive.
    #[cfg(not(target_os = "cuda"))]
    unsafe fn materialize(bound: &Self::Bound) -> Self::Arg;
}

/// A value passed by copy.
#[cfg(not(target_os = "cuda"))]
pub struct ByValue<T>(T);
// SAFETY: the value is `Copy + 'static` plain data that is only ever copied out of the wrapper.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T: Copy + 'static> Send for ByValue<T> {}
// SAFETY: as above; shared access only copies.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T: Copy + 'static> Sync for ByValue<T> {}

// SAFETY: the value is copied unchanged on every way; it declares no device memory because it holds no view.
unsafe impl<T: Copy + 'static> KernelParam for T {
    type Arg = T;
    type Abi0 = T;
    type Abi1 = ();
    #[cfg(not(target_os = "cuda"))]
    type Host<'h> = T;
    #[cfg(not(target_os = "cuda"))]
    type Bound = ByValue<T>;

    #[inline(always)]
    unsafe fn from_abi(first: T, _: ()) -> T {
        first
    }

    #[cfg(not(target_os = "cuda"))]
    fn bind(host: T, _: &'static str, binder: &mut Binder) -> ByValue<T> {
        binder.value(&host);
        ByValue(host)
    }

    #[cfg(not(target_os = "cuda"))]
    #[inline(always)]
    unsafe fn materialize(bound: &ByValue<T>) -> T {
        bound.0
    }
}

/// A slice or pointer parameter as it is kept by a launch: address and length.
#[cfg(not(target_os = "cuda"))]
pub struct BoundSlice<T> {
    /// First element.
    pub ptr: *mut T,
    /// Elements.
    pub len: usize,
}
// SAFETY: an address into device memory that the launch keeps alive; threads synchronise as the kernel says.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T> Send for BoundSlice<T> {}
// SAFETY: as above.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T> Sync for BoundSlice<T> {}

/// Stands for a parameter written `&[T]`.
pub struct RefSlice<T>(PhantomData<T>);
/// Stands for a parameter written `&mut [T]`.
pub struct RefSliceMut<T>(PhantomData<T>);
/// Stands for a parameter written `*const T`.
pub struct RawConst<T>(PhantomData<T>);
/// Stands for a parameter written `*mut T`.
pub struct RawMut<T>(PhantomData<T>);
/// Stands for a parameter written `&T`.
pub struct RefConst<T>(PhantomData<T>);
/// Stands for a parameter written `&mut T`.
pub struct RefMut<T>(PhantomData<T>);

macro_rules! pointer_param {
    ($(#[$doc:meta])* $stand_in:ident, $arg:ty, $abi0:ty, $abi1:ty, $host:ident, $access:ident, $kind:ident,
     |$a:ident, $b:ident| $from_abi:expr, |$bound:ident| $materialize:expr) => {
        // SAFETY: address and length are packed as the host's handle holds them and rebuilt unchanged; the handle's
        // whole range is declared with the strongest access that the argument's type allows.
        unsafe impl<T: 'static> KernelParam for $stand_in<T> {
            type Arg = $arg;
            type Abi0 = $abi0;
            type Abi1 = $abi1;
            #[cfg(not(target_os = "cuda"))]
            type Host<'h> = $host<'h, T>;
            #[cfg(not(target_os = "cuda"))]
            type Bound = BoundSlice<T>;

            #[inline(always)]
            unsafe fn from_abi($a: Self::Abi0, $b: Self::Abi1) -> Self::Arg {
                $from_abi
            }

            #[cfg(not(target_os = "cuda"))]
            fn bind(host: Self::Host<'_>, name: &'static str, binder: &mut Binder) -> BoundSlice<T> {
                binder.$kind::<T>(name, host.memory(), Access::$access);
                BoundSlice { ptr: host.memory().address() as *mut T, len: host.len() }
            }

            #[cfg(not(target_os = "cuda"))]
            #[inline(always)]
            unsafe fn materialize($bound: &BoundSlice<T>) -> Self::Arg {
                $materialize
            }
        }
    };
}

pointer_param!(
    RefSlice,
    &'static [T],
    &'static [T; 0],
    usize,
    DeviceSlice,
    Read,
    slice,
    // SAFETY: the host packed the address and length of live device memory of this type.
    |a, b| unsafe { core::slice::from_raw_parts(a as *const [T; 0] as *const T, b) },
    // SAFETY: the launch keeps the memory alive; the caller of `materialize` vouches for it.
    |bound| unsafe { core::slice::from_raw_parts(bound.ptr, bound.len) }
);
pointer_param!(
    RefSliceMut,
    &'static mut [T],
    *mut T,
    usize,
    DeviceSliceMut,
    Write,
    slice,
    // SAFETY: as for `RefSlice`; that threads write disjoint elements is the kernel's own obligation.
    |a, b| unsafe { core::slice::from_raw_parts_mut(a, b) },
    // SAFETY: as above.
    |bound| unsafe { core::slice::from_raw_parts_mut(bound.ptr, bound.len) }
);
pointer_param!(RawConst, *const T, *const T, (), DevicePtr, Read, pointer, |a, _b| a, |bound| bound.ptr);
pointer_param!(RawMut, *mut T, *mut T, (), DevicePtrMut, Write, pointer, |a, _b| a, |bound| bound.ptr);
pointer_param!(
    RefConst,
    &'static T,
    &'static T,
    (),
    DevicePtr,
    Read,
    pointer,
    |a, _b| a,
    // SAFETY: the launch keeps the memory alive; the host's handle covers at least one element.
    |bound| unsafe { &*bound.ptr }
);
pointer_param!(
    RefMut,
    &'static mut T,
    &'static mut T,
    (),
    DevicePtrMut,
    Write,
    pointer,
    |a, _b| a,
    // SAFETY: as above; that one thread alone uses it is the kernel's own obligation.
    |bound| unsafe { &mut *bound.ptr }
);
