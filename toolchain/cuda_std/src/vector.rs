//! Loads and stores of 8 and 16 bytes at once, with hints for the caches.
//!
//! A struct of four `f32` is otherwise accessed in pieces. On the CPU target these are plain copies.

use crate::target::target;

mod private {
    pub trait Sealed {}
}

/// Two or four words that one instruction moves: `[u32; 2]`, `[u32; 4]`, `[f32; 2]`, `[f32; 4]`, `[u64; 2]`, `[f64; 2]`.
pub trait Vector: Copy + private::Sealed {
    /// As [`load`].
    ///
    /// # Safety
    /// As for [`load`].
    unsafe fn load(ptr: *const Self) -> Self;
    /// As [`load_nc`].
    ///
    /// # Safety
    /// As for [`load_nc`].
    unsafe fn load_nc(ptr: *const Self) -> Self;
    /// As [`load_streaming`].
    ///
    /// # Safety
    /// As for [`load_streaming`].
    unsafe fn load_streaming(ptr: *const Self) -> Self;
    /// As [`store`].
    ///
    /// # Safety
    /// As for [`store`].
    unsafe fn store(ptr: *mut Self, value: Self);
    /// As [`store_streaming`].
    ///
    /// # Safety
    /// As for [`store_streaming`].
    unsafe fn store_streaming(ptr: *mut Self, value: Self);
}

/// Loads from global or shared memory.
///
/// # Safety
/// `ptr` is valid and aligned to the vector's whole size, 8 or 16 bytes.
#[inline(always)]
pub unsafe fn load<V: Vector>(ptr: *const V) -> V {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { V::load(ptr) }
}

/// Loads from global memory that nothing writes while the kernel runs, through the read-only path (`ld.global.nc`).
///
/// # Safety
/// `ptr` points into such memory, is valid and aligned to the vector's whole size.
#[inline(always)]
pub unsafe fn load_nc<V: Vector>(ptr: *const V) -> V {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { V::load_nc(ptr) }
}

/// Loads from global memory what will not be used again soon (`ld.global.cs`): the first to leave the caches.
///
/// # Safety
/// `ptr` points into global memory, is valid and aligned to the vector's whole size.
#[inline(always)]
pub unsafe fn load_streaming<V: Vector>(ptr: *const V) -> V {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { V::load_streaming(ptr) }
}

/// Stores to global or shared memory.
///
/// # Safety
/// `ptr` is valid and aligned to the vector's whole size.
#[inline(always)]
pub unsafe fn store<V: Vector>(ptr: *mut V, value: V) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { V::store(ptr, value) }
}

/// Stores to global memory what will not be used again soon (`st.global.cs`).
///
/// # Safety
/// `ptr` points into global memory, is valid and aligned to the vector's whole size.
#[inline(always)]
pub unsafe fn store_streaming<V: Vector>(ptr: *mut V, value: V) {
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { V::store_streaming(ptr, value) }
}

macro_rules! impl_vector {
    ($element:ident, $n:literal, $reg:ident, $suffix:literal, [$($part:ident $index:tt),*]) => {
        impl private::Sealed for [$element; $n] {}

        impl Vector for [$element; $n] {
            #[inline(always)]
            unsafe fn load(ptr: *const Self) -> Self {
                target!(gpu {
                    use crate::ptr::{AddressSpace, is_in_address_space, shared_address};
                    // SAFETY: the caller's promise; the space is tested before it is named.
                    unsafe {
                        if is_in_address_space(ptr, AddressSpace::Shared) {
                            impl_vector!(@load ".shared", reg32, shared_address(ptr), $element, $reg, $suffix, readonly, [$($part),*])
                        } else if is_in_address_space(ptr, AddressSpace::Global) {
                            impl_vector!(@load ".global", reg64, ptr, $element, $reg, $suffix, readonly, [$($part),*])
                        } else {
                            impl_vector!(@load "", reg64, ptr, $element, $reg, $suffix, readonly, [$($part),*])
                        }
                    }
                } cpu {
                    // SAFETY: the caller's promise.
                    unsafe { ptr.read() }
                })
            }

            #[inline(always)]
            unsafe fn load_nc(ptr: *const Self) -> Self {
                target!(gpu {
                    // SAFETY: the caller's promise. The memory does not change, hence `nomem`.
                    unsafe { impl_vector!(@load ".global.nc", reg64, ptr, $element, $reg, $suffix, nomem, [$($part),*]) }
                } cpu {
                    // SAFETY: the caller's promise.
                    unsafe { ptr.read() }
                })
            }

            #[inline(always)]
            unsafe fn load_streaming(ptr: *const Self) -> Self {
                target!(gpu {
                    // SAFETY: the caller's promise.
                    unsafe { impl_vector!(@load ".global.cs", reg64, ptr, $element, $reg, $suffix, readonly, [$($part),*]) }
                } cpu {
                    // SAFETY: the caller's promise.
                    unsafe { ptr.read() }
                })
            }

            #[inline(always)]
            unsafe fn store(ptr: *mut Self, value: Self) {
                target!(gpu {
                    use crate::ptr::{AddressSpace, is_in_address_space, shared_address};
                    // SAFETY: the caller's promise; the space is tested before it is named.
                    unsafe {
                        if is_in_address_space(ptr, AddressSpace::Shared) {
                            let address = shared_address(ptr.cast_const());
                            impl_vector!(@store ".shared", reg32, address, value, $reg, $suffix, [$($part $index),*])
                        } else if is_in_address_space(ptr, AddressSpace::Global) {
                            impl_vector!(@store ".global", reg64, ptr, value, $reg, $suffix, [$($part $index),*])
                        } else {
                            impl_vector!(@store "", reg64, ptr, value, $reg, $suffix, [$($part $index),*])
                        }
                    }
                } cpu {
                    // SAFETY: the caller's promise.
                    unsafe { ptr.write(value) }
                })
            }

            #[inline(always)]
            unsafe fn store_streaming(ptr: *mut Self, value: Self) {
                target!(gpu {
                    // SAFETY: the caller's promise.
                    unsafe { impl_vector!(@store ".global.cs", reg64, ptr, value, $reg, $suffix, [$($part $index),*]) }
                } cpu {
                    // SAFETY: the caller's promise.
                    unsafe { ptr.write(value) }
                })
            }
        }
    };
    (@load $space:literal, $address_reg:ident, $address:expr, $element:ident, $reg:ident, $suffix:literal, $memory:ident, [$($part:ident),*]) => {{
        $(let $part: $element;)*
        core::arch::asm!(
            concat!("ld", $space, $suffix, " {{", impl_vector!(@list $($part)*), "}}, [{address}];"),
            $($part = out($reg) $part,)*
            address = in($address_reg) $address,
            options($memory, nostack, preserves_flags)
        );
        [$($part),*]
    }};
    (@store $space:literal, $address_reg:ident, $address:expr, $value:ident, $reg:ident, $suffix:literal, [$($part:ident $index:tt),*]) => {
        core::arch::asm!(
            concat!("st", $space, $suffix, " [{address}], {{", impl_vector!(@list $($part)*), "}};"),
            $($part = in($reg) $value[$index],)*
            address = in($address_reg) $address,
            options(nostack, preserves_flags)
        )
    };
    (@list $first:ident $($rest:ident)*) => { concat!("{", stringify!($first), "}" $(, ", {", stringify!($rest), "}")*) };
}

impl_vector!(u32, 2, reg32, ".v2.b32", [v0 0, v1 1]);
impl_vector!(u32, 4, reg32, ".v4.b32", [v0 0, v1 1, v2 2, v3 3]);
impl_vector!(f32, 2, reg32, ".v2.f32", [v0 0, v1 1]);
impl_vector!(f32, 4, reg32, ".v4.f32", [v0 0, v1 1, v2 2, v3 3]);
impl_vector!(u64, 2, reg64, ".v2.b64", [v0 0, v1 1]);
impl_vector!(f64, 2, reg64, ".v2.f64", [v0 0, v1 1]);

/// Asks for the line of global memory at `ptr` to be brought into L2. On the CPU target: nothing.
#[inline(always)]
pub fn prefetch_l2<T>(ptr: *const T) {
    #[cfg(target_os = "cuda")]
    // SAFETY: a hint; an invalid address is ignored.
    unsafe {
        core::arch::asm!("prefetch.global.L2 [{}];", in(reg64) ptr, options(readonly, nostack, preserves_flags))
    }
    #[cfg(not(target_os = "cuda"))]
    let _ = ptr;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_copied_whole() {
        let mut memory = [[1f32, 2.0, 3.0, 4.0], [0.0; 4]];
        // SAFETY: elements of `memory`.
        unsafe {
            let value = load_nc(&memory[0]);
            store_streaming(&mut memory[1], value);
        }
        assert_eq!(memory[1], [1.0, 2.0, 3.0, 4.0]);
    }
}
