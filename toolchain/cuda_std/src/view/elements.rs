//! What views of global and of shared memory have in common: their elements. The methods need `ptr`, `len` and, on the CPU
//! target, `shadow()`.

/// Everything that reads.
macro_rules! reading_methods {
    () => {
        /// Elements in the view.
        #[inline(always)]
        pub fn len(&self) -> usize {
            self.len
        }

        /// Whether the view has no element.
        #[inline(always)]
        pub fn is_empty(&self) -> bool {
            self.len == 0
        }

        /// Loads element `index`. Unchecked in PTX: see [bounds](crate::view#bounds).
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn get(&self, index: usize) -> T {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_read(self.shadow(), self.ptr, self.len, index, 1);
            // SAFETY: `index < len` by the view's contract, which the CPU target enforces.
            unsafe { *self.ptr.add(index) }
        }

        /// Loads elements `index..index + N`, together 8 or 16 bytes, in one instruction. Their address must be a
        /// multiple of their size. Unchecked in PTX: see [bounds](crate::view#bounds).
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn load<const N: usize>(&self, index: usize) -> [T; N] {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_read(self.shadow(), self.ptr, self.len, index, N);
            // SAFETY: `index + N <= len` and the alignment, by this method's contract, which the CPU target enforces.
            unsafe { vector::load(self.ptr.add(index)) }
        }

        /// Rows of `width` elements, `n_rows` of them, the first at `first`, each `stride` behind the one before: all are checked
        /// here, and count as read now. Every row's address is a multiple of the size of N elements, as many as are loaded in one
        /// instruction. Unchecked in PTX: see [bounds](crate::view#bounds).
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn panel<const N: usize>(&self, first: usize, stride: usize, n_rows: usize, width: usize) -> Panel<T> {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_read_rows::<T, N>(self.shadow(), self.ptr, self.len, &cpu::Rows { first, stride, n_rows, width });
            #[cfg(target_os = "cuda")]
            let _ = (n_rows, width);
            Panel::new(self.ptr.wrapping_add(first), stride)
        }
    };
}

/// Everything that writes.
macro_rules! writing_methods {
    () => {
        /// Stores `value` into element `index`. Unchecked in PTX: see [bounds](crate::view#bounds).
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn set(&self, index: usize, value: T) {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_write(self.shadow(), self.ptr, self.len, index, 1);
            // SAFETY: `index < len` by the view's contract, which the CPU target enforces; no other thread touches the
            // element between the same two barriers, which its checker enforces.
            unsafe { *self.ptr.add(index) = value }
        }

        /// Stores `values` into elements `index..index + N`, together 8 or 16 bytes, in one instruction. Their address must
        /// be a multiple of their size. Unchecked in PTX: see [bounds](crate::view#bounds).
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn store<const N: usize>(&self, index: usize, values: [T; N]) {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_write(self.shadow(), self.ptr, self.len, index, N);
            // SAFETY: as for `set`, and the alignment by this method's contract, which the CPU target enforces.
            unsafe { vector::store(self.ptr.add(index), values) }
        }

        /// Rows as those of `panel`, all of which are written before anything else reads them: they count as written now.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn panel_mut<const N: usize>(
            &self,
            first: usize,
            stride: usize,
            n_rows: usize,
            width: usize,
        ) -> PanelMut<T> {
            #[cfg(not(target_os = "cuda"))]
            cpu::on_write_rows::<T, N>(self.shadow(), self.ptr, self.len, &cpu::Rows { first, stride, n_rows, width });
            #[cfg(target_os = "cuda")]
            let _ = (n_rows, width);
            PanelMut::new(self.ptr.wrapping_add(first), stride)
        }
    };
}

pub(super) use {reading_methods, writing_methods};
