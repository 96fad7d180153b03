//! Views of global memory.

use core::marker::PhantomData;
use core::ops::Range;

use super::atomic::{Global, atomic_methods};
use super::elements::{reading_methods, writing_methods};
use super::panel::{Panel, PanelMut};
use super::vector;
#[cfg(not(target_os = "cuda"))]
use crate::cpu::{self, Shadow};
#[cfg(not(target_os = "cuda"))]
use crate::launch::{Access, Binder, DeviceSlice, DeviceSliceMut};
use crate::param::KernelParam;

/// Read-only view of global memory; its loads are `ld.global.nc`.
///
/// Nothing may write the memory while the kernel runs. Not `Copy`, so that it can be told from a plain value among a
/// kernel's parameters; pass it by reference.
pub struct GlobalSlice<'a, T> {
    ptr: *const T,
    len: usize,
    #[cfg(not(target_os = "cuda"))]
    shadow: Option<&'a Shadow>,
    life: PhantomData<&'a T>,
}

/// Writable view of global memory whose writers are disjoint: between two barriers no element is touched by two threads
/// when one of them writes it, except through its atomic operations.
pub struct GlobalSliceMut<'a, T> {
    ptr: *mut T,
    len: usize,
    #[cfg(not(target_os = "cuda"))]
    shadow: Option<&'a Shadow>,
    life: PhantomData<&'a mut T>,
}

/// What both views have in common beside their elements.
macro_rules! parts {
    ($view:ident) => {
        /// The view of elements `range`.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn sub(&self, range: Range<usize>) -> $view<'_, T> {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_sub(self.ptr, self.len, &range);
            $view {
                // In bounds by the view's contract; a wrapping sum needs no proof.
                ptr: self.ptr.wrapping_add(range.start),
                len: range.end - range.start,
                #[cfg(not(target_os = "cuda"))]
                shadow: self.shadow,
                life: PhantomData,
            }
        }

        #[cfg(not(target_os = "cuda"))]
        #[inline(always)]
        fn shadow(&self) -> Option<&Shadow> {
            self.shadow
        }
    };
}

impl<T: Copy> GlobalSlice<'_, T> {
    reading_methods!();
    parts!(GlobalSlice);
}

impl<T: Copy> GlobalSliceMut<'_, T> {
    reading_methods!();
    writing_methods!();
    parts!(GlobalSliceMut);
    atomic_methods!(Global);
}

/// A view as it is kept by a launch.
#[cfg(not(target_os = "cuda"))]
pub struct BoundView<T> {
    ptr: *mut T,
    len: usize,
    shadow: *const Shadow,
}
// SAFETY: an address into device memory that the launch keeps alive, with its shadow.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T> Send for BoundView<T> {}
// SAFETY: as above.
#[cfg(not(target_os = "cuda"))]
unsafe impl<T> Sync for BoundView<T> {}

macro_rules! view_param {
    ($view:ident, $abi0:ty, $host:ident, $access:ident, |$a:ident| $ptr:expr) => {
        // SAFETY: address and length are packed as the host's handle holds them and rebuilt unchanged; the handle's whole
        // range is declared.
        unsafe impl<'a, T: Copy + 'static> KernelParam for $view<'a, T> {
            type Arg = Self;
            type Abi0 = $abi0;
            type Abi1 = usize;
            #[cfg(not(target_os = "cuda"))]
            type Host<'h> = $host<'h, T>;
            #[cfg(not(target_os = "cuda"))]
            type Bound = BoundView<T>;

            #[inline(always)]
            unsafe fn from_abi($a: Self::Abi0, len: usize) -> Self {
                Self {
                    ptr: $ptr,
                    len,
                    #[cfg(not(target_os = "cuda"))]
                    shadow: None,
                    life: PhantomData,
                }
            }

            #[cfg(not(target_os = "cuda"))]
            fn bind(host: Self::Host<'_>, name: &'static str, binder: &mut Binder) -> BoundView<T> {
                binder.view::<T>(name, host.memory(), Access::$access);
                let shadow = host.memory().shadow().map_or(core::ptr::null(), |shadow| shadow as *const Shadow);
                BoundView { ptr: host.memory().address() as *mut T, len: host.len(), shadow }
            }

            #[cfg(not(target_os = "cuda"))]
            #[inline(always)]
            unsafe fn materialize(bound: &BoundView<T>) -> Self {
                // SAFETY: the launch keeps the memory and its shadow alive, as the caller vouches.
                Self { ptr: bound.ptr, len: bound.len, shadow: unsafe { bound.shadow.as_ref() }, life: PhantomData }
            }
        }
    };
}

view_param!(GlobalSlice, &'static [T; 0], DeviceSlice, Read, |a| a as *const [T; 0] as *const T);
view_param!(GlobalSliceMut, *mut T, DeviceSliceMut, Write, |a| a);
