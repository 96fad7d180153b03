//! The state spaces of memory, and pointers into them.
//!
//! A Rust pointer is generic: it may point into any space. The compiler turns an access into the space's own instruction
//! where it can tell the space; [`assume_shared`] tells it.

use crate::target::target;

/// A state space of PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Device memory, seen by all threads.
    Global,
    /// Memory of one block.
    Shared,
    /// Read-only memory that the host fills.
    Constant,
    /// A thread's own memory.
    Local,
}

#[cfg(target_os = "cuda")]
mod llvm {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.isspacep.global"]
        pub safe fn is_global(address: *const u8) -> bool;
        #[link_name = "llvm.nvvm.isspacep.shared"]
        pub safe fn is_shared(address: *const u8) -> bool;
        #[link_name = "llvm.nvvm.isspacep.const"]
        pub safe fn is_constant(address: *const u8) -> bool;
        #[link_name = "llvm.nvvm.isspacep.local"]
        pub safe fn is_local(address: *const u8) -> bool;
    }
}

/// Whether a generic pointer points into `address_space`. Where the compiler knows the space, this is a constant.
///
/// On the CPU target every space is ordinary memory: the answer is yes for [`AddressSpace::Global`] alone.
///
/// # Safety
/// None on this implementation; the published signature is kept.
#[inline(always)]
pub unsafe fn is_in_address_space<T>(ptr: *const T, address_space: AddressSpace) -> bool {
    target!(gpu {
        match address_space {
            AddressSpace::Global => llvm::is_global(ptr.cast()),
            AddressSpace::Shared => llvm::is_shared(ptr.cast()),
            AddressSpace::Constant => llvm::is_constant(ptr.cast()),
            AddressSpace::Local => llvm::is_local(ptr.cast()),
        }
    } cpu {
        let _ = ptr;
        address_space == AddressSpace::Global
    })
}

#[cfg(target_os = "cuda")]
macro_rules! convert {
    ($ptr:ident, $space:ident, $instruction:literal) => {
        match $space {
            AddressSpace::Global => convert!($ptr, $instruction, "global"),
            AddressSpace::Shared => convert!($ptr, $instruction, "shared"),
            AddressSpace::Constant => convert!($ptr, $instruction, "const"),
            AddressSpace::Local => convert!($ptr, $instruction, "local"),
        }
    };
    ($ptr:ident, $instruction:literal, $suffix:literal) => {{
        let converted;
        // SAFETY: computes an address; nothing is accessed.
        unsafe {
            core::arch::asm!(
                concat!($instruction, $suffix, ".u64 {to}, {from};"),
                to = out(reg64) converted,
                from = in(reg64) $ptr,
                options(pure, nomem, nostack, preserves_flags)
            )
        }
        converted
    }};
}

/// The address that a generic pointer has within `address_space`, for an instruction that names the space. It must not be
/// dereferenced as a Rust pointer. On the CPU target: the pointer itself.
///
/// # Safety
/// The pointer points into `address_space`.
#[inline(always)]
pub unsafe fn convert_generic_to_specific_address_space<T>(ptr: *const T, address_space: AddressSpace) -> *const T {
    target!(gpu { convert!(ptr, address_space, "cvta.to.") } cpu {
        let _ = address_space;
        ptr
    })
}

/// The generic pointer of an address within `address_space`. On the CPU target: the pointer itself.
///
/// # Safety
/// The address lies within `address_space`.
#[inline(always)]
pub unsafe fn convert_specific_address_space_to_generic<T>(ptr: *const T, address_space: AddressSpace) -> *const T {
    target!(gpu { convert!(ptr, address_space, "cvta.") } cpu {
        let _ = address_space;
        ptr
    })
}

/// Tells the compiler that `ptr` points into shared memory, so that accesses through it become `ld.shared` and `st.shared`.
///
/// # Safety
/// It does.
#[inline(always)]
pub unsafe fn assume_shared<T>(ptr: *mut T) -> *mut T {
    #[cfg(target_os = "cuda")]
    // SAFETY: the caller's promise.
    unsafe {
        core::hint::assert_unchecked(llvm::is_shared(ptr.cast_const().cast()));
    }
    ptr
}

/// [`assume_shared`] for the start of an array.
///
/// The compiler's inference follows address arithmetic, but not a bare pointer that comes out of `asm!`: accesses at an
/// array's very start would stay generic. So a zero is added that only the assembler sees to be one. (LLVM 22 crashes on the
/// more natural `ptr.mask`.)
///
/// # Safety
/// The pointer points into shared memory.
#[cfg(target_os = "cuda")]
#[inline(always)]
pub(crate) unsafe fn assume_shared_start<T>(ptr: *mut T) -> *mut T {
    let zero: usize;
    // SAFETY: sets a register.
    unsafe { core::arch::asm!("mov.b64 {}, 0;", out(reg64) zero, options(pure, nomem, nostack, preserves_flags)) };
    // SAFETY: the caller's promise, which is this function's own `# Safety`.
    unsafe { assume_shared(ptr) }.wrapping_byte_add(zero)
}

/// The 32-bit address of a pointer into shared memory, as the instructions on shared memory take it.
///
/// # Safety
/// The pointer points into shared memory.
#[cfg(target_os = "cuda")]
#[inline(always)]
pub(crate) unsafe fn shared_address<T>(ptr: *const T) -> u32 {
    // SAFETY: the caller's promise. The space's addresses fit in 32 bits.
    unsafe { convert_generic_to_specific_address_space(ptr, AddressSpace::Shared) as u64 as u32 }
}
