//! A view of the block's shared memory.

use core::ops::Range;

use super::atomic::{Shared, atomic_methods};
use super::elements::{reading_methods, writing_methods};
use super::panel::{Panel, PanelMut};
use super::vector;
#[cfg(not(target_os = "cuda"))]
use crate::cpu::{self, Shadow};

/// View of the block's shared memory whose writers are disjoint: between two barriers no element is touched by two
/// threads when one of them writes it, except through its atomic operations. Its contents are undefined when the block
/// starts.
///
/// Made by [`crate::shared_slice!`] or [`SharedSlice::dynamic`].
pub struct SharedSlice<T> {
    ptr: *mut T,
    len: usize,
    #[cfg(not(target_os = "cuda"))]
    shadow: Option<core::ptr::NonNull<Shadow>>,
}

impl<T> Clone for SharedSlice<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedSlice<T> {}

impl<T: Copy> SharedSlice<T> {
    /// A view of `len` elements at `ptr`.
    ///
    /// # Safety
    /// They lie in the running block's shared memory, aligned for `T`, and the view is used while the block runs.
    #[inline(always)]
    pub unsafe fn from_raw(ptr: *mut T, len: usize) -> Self {
        // SAFETY: the pointer is into shared memory, by the caller's promise; told so, the compiler uses `ld.shared`.
        let ptr = unsafe { crate::ptr::assume_shared(ptr) };
        Self {
            ptr,
            len,
            #[cfg(not(target_os = "cuda"))]
            shadow: cpu::shared_shadow(ptr.cast()).and_then(|shadow| core::ptr::NonNull::new(shadow.cast_mut())),
        }
    }

    /// An array of `N` elements for the place in the source that calls this, one for each block; use
    /// [`crate::shared_slice!`]. `site` is a closure written at that place, whose type tells it from others.
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    pub fn declare<const N: usize, S: Fn()>(site: S) -> Self {
        const { assert!(align_of::<T>() <= 16, "a shared array is aligned to 16 bytes") };
        #[cfg(not(target_os = "cuda"))]
        let ptr = cpu::shared_static(cpu::SharedSite::here::<T>(), N * size_of::<T>(), 16).cast();
        #[cfg(not(target_os = "cuda"))]
        let _ = site;
        #[cfg(target_os = "cuda")]
        let ptr = crate::shared::static_address::<[T; N], S>(site).cast();
        // SAFETY: `N` elements of shared memory, aligned to 16 bytes.
        unsafe { Self::from_raw(ptr, N) }
    }

    /// `len` elements of the block's dynamic shared memory, from `byte_offset` on, which must be aligned for `T`. The
    /// launch's shape gives its size: in PTX it is not checked, on the CPU it is.
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    pub fn dynamic(byte_offset: usize, len: usize) -> Self {
        #[cfg(not(target_os = "cuda"))]
        let start = cpu::dynamic_part(byte_offset, len * size_of::<T>(), align_of::<T>());
        #[cfg(target_os = "cuda")]
        let start = crate::shared::dynamic_shared_mem::<u8>().wrapping_add(byte_offset);
        // SAFETY: inside the block's dynamic shared memory and aligned, by this method's contract, which the CPU target
        // enforces.
        unsafe { Self::from_raw(start.cast(), len) }
    }

    reading_methods!();
    writing_methods!();

    /// The first element's address.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The view of elements `range`.
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    pub fn sub(&self, range: Range<usize>) -> Self {
        #[cfg(not(target_os = "cuda"))]
        cpu::on_sub(self.ptr, self.len, &range);
        Self { ptr: self.ptr.wrapping_add(range.start), len: range.end - range.start, ..*self }
    }

    #[cfg(not(target_os = "cuda"))]
    #[inline(always)]
    fn shadow(&self) -> Option<&Shadow> {
        // SAFETY: the record lives as long as the block's shared memory, in which the view is used.
        self.shadow.map(|shadow| unsafe { shadow.as_ref() })
    }

    atomic_methods!(Shared);
}

/// The block's array of `N` elements of type `T`, in shared memory, as a [`SharedSlice`]: `shared_slice![f32; 256]`.
///
/// Each place in the source is an array of its own, however often it runs and wherever it is inlined; see
/// [`crate::shared`].
#[macro_export]
macro_rules! shared_slice {
    ($element:ty; $n:expr) => {
        $crate::view::SharedSlice::<$element>::declare::<{ $n }, _>(|| ())
    };
}
