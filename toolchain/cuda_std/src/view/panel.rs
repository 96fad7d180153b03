//! Rows of a view that are checked together, for loops whose accesses would cost more than their arithmetic if each were checked.

/// Rows of a view, `stride` elements apart: a load is plain on both targets. Made by the views' `panel`, which checks all elements at once.
pub struct Panel<T> {
    ptr: *const T,
    stride: usize,
}

/// [`Panel`] that is written, made by the views' `panel_mut`.
pub struct PanelMut<T> {
    ptr: *mut T,
    stride: usize,
}

macro_rules! common {
    ($panel:ident, $pointer:ty) => {
        impl<T> Clone for $panel<T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $panel<T> {}

        impl<T> $panel<T> {
            #[inline(always)]
            pub(super) fn new(ptr: $pointer, stride: usize) -> Self {
                Self { ptr, stride }
            }

            /// Where an element lies. Good for what the panel is good for, as long as the memory of its view is.
            #[inline(always)]
            pub fn at(&self, row: usize, column: usize) -> $pointer {
                self.ptr.wrapping_add(row * self.stride + column)
            }
        }
    };
}

common!(Panel, *const T);
common!(PanelMut, *mut T);

impl<T: Copy> Panel<T> {
    /// Loads elements `column..column + N` of a row, together 8 or 16 bytes, in one instruction.
    ///
    /// # Safety
    /// They are the panel's, at an address that is a multiple of their size, and the memory of its view is still there.
    #[inline(always)]
    pub unsafe fn load<const N: usize>(&self, row: usize, column: usize) -> [T; N] {
        // SAFETY: valid and aligned by the caller's promise.
        unsafe { super::vector::load(self.at(row, column)) }
    }
}

impl<T: Copy> PanelMut<T> {
    /// Stores elements `column..column + N` of a row, together 8 or 16 bytes, in one instruction.
    ///
    /// # Safety
    /// They are the panel's, at an address that is a multiple of their size, and the memory of its view is still there.
    #[inline(always)]
    pub unsafe fn store<const N: usize>(&self, row: usize, column: usize, values: [T; N]) {
        // SAFETY: valid and aligned by the caller's promise.
        unsafe { super::vector::store(self.at(row, column), values) }
    }
}
