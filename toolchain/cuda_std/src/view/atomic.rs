//! Atomic operations through a view: relaxed, of device scope.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The memory that an atomic operation is in; PTX has an instruction for each.
pub trait AtomicSpace {
    /// Whether it is shared memory.
    const SHARED: bool;
}

/// Global memory.
pub(super) struct Global;
impl AtomicSpace for Global {
    const SHARED: bool = false;
}

/// Shared memory.
pub(super) struct Shared;
impl AtomicSpace for Shared {
    const SHARED: bool = true;
}

/// An element with an atomic sum.
///
/// # Safety
/// The operation is atomic for the element's whole size.
pub unsafe trait AtomicAdd: Copy + 'static {
    /// Adds `value`; what stood there before.
    ///
    /// # Safety
    /// `ptr` is valid and aligned, in the space `S`.
    unsafe fn fetch_add<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
}

/// An integer with all atomic operations. Each returns what stood there before.
///
/// # Safety
/// The operations are atomic for the element's whole size.
#[allow(clippy::missing_safety_doc, reason = "each function's is the one of `AtomicAdd::fetch_add`")]
pub unsafe trait AtomicInteger: AtomicAdd {
    /// The larger of both, in the element's own order.
    unsafe fn fetch_max<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// The smaller of both.
    unsafe fn fetch_min<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// Bitwise and.
    unsafe fn fetch_and<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// Bitwise or.
    unsafe fn fetch_or<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// Bitwise exclusive or.
    unsafe fn fetch_xor<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// Stores `value`.
    unsafe fn exchange<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self;
    /// Stores `new` if `current` stands there.
    unsafe fn compare_exchange<S: AtomicSpace>(ptr: *mut Self, current: Self, new: Self) -> Self;
}

macro_rules! integer {
    ($ty:ident, $atomic:ident, $register:ident, $bits:literal) => {
        // SAFETY: the standard library's atomic of the same size. In PTX its read-modify-writes are relaxed, of device
        // scope, and in the space that the pointer is known to be in.
        unsafe impl AtomicAdd for $ty {
            #[inline(always)]
            unsafe fn fetch_add<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self {
                // SAFETY: valid and aligned by the caller's promise; all accesses between barriers are atomic.
                unsafe { $atomic::from_ptr(ptr) }.fetch_add(value, Relaxed)
            }
        }

        // SAFETY: as above.
        unsafe impl AtomicInteger for $ty {
            integer!(@forward $ty, $atomic, fetch_max => fetch_max, fetch_min => fetch_min, fetch_and => fetch_and,
                fetch_or => fetch_or, fetch_xor => fetch_xor, exchange => swap);

            #[inline(always)]
            unsafe fn compare_exchange<S: AtomicSpace>(ptr: *mut Self, current: Self, new: Self) -> Self {
                #[cfg(not(target_os = "cuda"))]
                // SAFETY: valid and aligned by the caller's promise; all accesses between barriers are atomic.
                match unsafe { $atomic::from_ptr(ptr) }.compare_exchange(current, new, Relaxed, Relaxed) {
                    Ok(before) | Err(before) => before,
                }
                // The standard library's would be of system scope.
                #[cfg(target_os = "cuda")]
                {
                    let before: $ty;
                    if S::SHARED {
                        // SAFETY: one atomic operation on the caller's pointer, which is into shared memory.
                        unsafe {
                            core::arch::asm!(
                                "{{ .reg .b64 %p; cvta.to.shared.u64 %p, {ptr};",
                                concat!("atom.relaxed.gpu.shared.cas.b", $bits, " {before}, [%p], {current}, {new}; }}"),
                                before = out($register) before, ptr = in(reg64) ptr,
                                current = in($register) current, new = in($register) new, options(nostack),
                            );
                        }
                    } else {
                        // SAFETY: one atomic operation on the caller's pointer, which is into global memory.
                        unsafe {
                            core::arch::asm!(
                                "{{ .reg .b64 %p; cvta.to.global.u64 %p, {ptr};",
                                concat!("atom.relaxed.gpu.global.cas.b", $bits, " {before}, [%p], {current}, {new}; }}"),
                                before = out($register) before, ptr = in(reg64) ptr,
                                current = in($register) current, new = in($register) new, options(nostack),
                            );
                        }
                    }
                    before
                }
            }
        }
    };
    (@forward $ty:ident, $atomic:ident, $($name:ident => $op:ident),*) => {
        $(
            #[inline(always)]
            unsafe fn $name<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self {
                // SAFETY: valid and aligned by the caller's promise; all accesses between barriers are atomic.
                unsafe { $atomic::from_ptr(ptr) }.$op(value, Relaxed)
            }
        )*
    };
}

integer!(u32, AtomicU32, reg32, "32");
integer!(i32, AtomicI32, reg32, "32");
integer!(u64, AtomicU64, reg64, "64");
integer!(i64, AtomicI64, reg64, "64");

// SAFETY: one atomic instruction in PTX, a compare-and-exchange loop of the same size on the CPU.
unsafe impl AtomicAdd for f32 {
    #[inline(always)]
    unsafe fn fetch_add<S: AtomicSpace>(ptr: *mut Self, value: Self) -> Self {
        #[cfg(not(target_os = "cuda"))]
        {
            // SAFETY: valid and aligned by the caller's promise; all accesses between barriers are atomic.
            let bits = unsafe { AtomicU32::from_ptr(ptr.cast()) };
            let mut before = bits.load(Relaxed);
            loop {
                let sum = f32::from_bits(before) + value;
                match bits.compare_exchange_weak(before, sum.to_bits(), Relaxed, Relaxed) {
                    Ok(_) => return f32::from_bits(before),
                    Err(now) => before = now,
                }
            }
        }
        #[cfg(target_os = "cuda")]
        {
            let before: f32;
            if S::SHARED {
                // SAFETY: one atomic operation on the caller's pointer, which is into shared memory.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .b64 %p; cvta.to.shared.u64 %p, {ptr};",
                        "atom.relaxed.gpu.shared.add.f32 {before}, [%p], {value}; }}",
                        before = out(reg32) before, ptr = in(reg64) ptr, value = in(reg32) value, options(nostack),
                    );
                }
            } else {
                // SAFETY: one atomic operation on the caller's pointer, which is into global memory.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .b64 %p; cvta.to.global.u64 %p, {ptr};",
                        "atom.relaxed.gpu.global.add.f32 {before}, [%p], {value}; }}",
                        before = out(reg32) before, ptr = in(reg64) ptr, value = in(reg32) value, options(nostack),
                    );
                }
            }
            before
        }
    }
}

/// The methods of a writable view; `$space` tells its memory, and the type has fields `ptr`, `len` and a method `shadow`.
macro_rules! atomic_methods {
    ($space:ty) => {
        /// Adds `value` to element `index` atomically (relaxed, device scope); what stood there before.
        ///
        /// A sum of floats depends on the order of the threads.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn fetch_add(&self, index: usize, value: T) -> T
        where
            T: $crate::view::AtomicAdd,
        {
            let ptr = self.atomic(index);
            // SAFETY: `atomic` gives the address of an element of this view.
            unsafe { T::fetch_add::<$space>(ptr, value) }
        }

        $crate::view::atomic::atomic_methods!(@integer $space,
            "Puts the larger of element `index` and `value` there", fetch_max;
            "Puts the smaller of element `index` and `value` there", fetch_min;
            "Puts the bitwise and of element `index` and `value` there", fetch_and;
            "Puts the bitwise or of element `index` and `value` there", fetch_or;
            "Puts the bitwise exclusive or of element `index` and `value` there", fetch_xor;
            "Puts `value` into element `index`", exchange);

        /// Puts `new` into element `index` if `current` stands there, atomically (relaxed, device scope); what stood there
        /// before.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub fn compare_exchange(&self, index: usize, current: T, new: T) -> T
        where
            T: $crate::view::AtomicInteger,
        {
            let ptr = self.atomic(index);
            // SAFETY: `atomic` gives the address of an element of this view.
            unsafe { T::compare_exchange::<$space>(ptr, current, new) }
        }

        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        fn atomic(&self, index: usize) -> *mut T {
            #[cfg(not(target_os = "cuda"))]
            $crate::cpu::on_atomic(self.shadow(), self.ptr, self.len, index);
            self.ptr.wrapping_add(index)
        }
    };
    (@integer $space:ty, $($doc:literal, $name:ident);*) => {
        $(
            #[doc = concat!($doc, ", atomically (relaxed, device scope); what stood there before.")]
            #[inline(always)]
            #[cfg_attr(not(target_os = "cuda"), track_caller)]
            pub fn $name(&self, index: usize, value: T) -> T
            where
                T: $crate::view::AtomicInteger,
            {
                let ptr = self.atomic(index);
                // SAFETY: `atomic` gives the address of an element of this view.
                unsafe { T::$name::<$space>(ptr, value) }
            }
        )*
    };
}
pub(super) use atomic_methods;
