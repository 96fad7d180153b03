//! Shared memory: fast memory that the threads of one block have in common.
//!
//! It is uninitialised when a block starts. One thread's writes are seen by the others after a barrier
//! ([`crate::thread::sync_threads`]).
//!
//! Each place in the source that declares a static array has one array, however often it runs and wherever it is inlined;
//! in a generic function, one for each set of types. On the GPU the array is a `.shared` variable of a function that is
//! never inlined and returns its address: inlined or unrolled, the declaration would be copied and each copy be an array of
//! its own. The address is marked as shared, so that ordinary loads and stores become `ld.shared` and `st.shared`.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::target::target;

/// Declares an array of `len` elements in shared memory and gives its address, a `*mut T`; `T` may be an array itself.
///
/// ```ignore
/// let tile = shared_array![f32; 256];
/// let rows = shared_array![[f32; 33]; 32];
/// ```
///
/// Using the pointer is unsafe: the elements are uninitialised, the array is the block's, and a barrier must stand between
/// one thread's write and another's access. The CPU target's checker does not see accesses through it; it notices at the end
/// of a block what was written up to 1,024 bytes outside of the array, and nothing that was read there. New code declares
/// [`shared_slice!`](crate::shared_slice), whose every access is checked.
#[macro_export]
macro_rules! shared_array {
    ($element:ty; $len:expr) => {
        $crate::shared_static!([$element; $len]).cast::<$element>()
    };
}

/// Declares a variable of a type in shared memory and gives its address; [`shared_array!`] for any type.
#[macro_export]
macro_rules! shared_static {
    ($type:ty) => {
        $crate::shared::static_address::<$type, _>(|| $crate::shared_site!($type))
    };
}

/// Identifies the place of a declaration, for the CPU target.
#[doc(hidden)]
#[macro_export]
#[cfg(not(target_os = "cuda"))]
macro_rules! shared_site {
    ($type:ty) => {
        $crate::cpu::SharedSite::here::<$type>()
    };
}

/// Nothing: on the GPU the closure's type tells the places apart.
#[doc(hidden)]
#[macro_export]
#[cfg(target_os = "cuda")]
macro_rules! shared_site {
    ($type:ty) => {
        ()
    };
}

#[cfg(target_os = "cuda")]
#[doc(hidden)]
pub type Site = ();
#[cfg(not(target_os = "cuda"))]
#[doc(hidden)]
pub type Site = crate::cpu::SharedSite;

/// The address of the shared variable of a place in the source. `site` is a closure written at that place: its type is the
/// place's identity.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn static_address<T, S: SharedPlace>(site: S) -> *mut T {
    target!(gpu {
        let _ = site;
        let address = declare::<T, S>();
        // SAFETY: the address is that of a `.shared` variable.
        unsafe { crate::ptr::assume_shared_start(address) }
    } cpu {
        crate::cpu::shared_static(site.site(), size_of::<T>(), alignment::<T>()).cast()
    })
}

/// Every variable is aligned to at least 16, for vector accesses.
const fn alignment<T>() -> usize {
    if align_of::<T>() < 16 { 16 } else { align_of::<T>() }
}

#[cfg(target_os = "cuda")]
#[inline(never)]
fn declare<T, S>() -> *mut T {
    let address;
    // SAFETY: declares a variable and takes its address; nothing is accessed.
    unsafe {
        core::arch::asm!(
            "{{ .shared .align {align} .b8 memory[{bytes}];",
            "cvta.shared.u64 {address}, memory; }}",
            align = const alignment::<T>(),
            bytes = const if size_of::<T>() == 0 { 1 } else { size_of::<T>() },
            address = out(reg64) address,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    address
}

#[cfg(target_os = "cuda")]
core::arch::global_asm!(".extern .shared .align 1024 .b8 cuda_std_dynamic_shared[];");

/// The block's dynamic shared memory, whose size the launch gives; aligned to 1,024 bytes, uninitialised, the same at every
/// call.
#[inline(always)]
#[cfg_attr(not(target_os = "cuda"), track_caller)]
pub fn dynamic_shared_mem<T>() -> *mut T {
    target!(gpu {
        let address: *mut T;
        // SAFETY: takes the address of a variable that this module declares; nothing is accessed.
        unsafe {
            core::arch::asm!(
                "cvta.shared.u64 {}, cuda_std_dynamic_shared;",
                out(reg64) address,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        // SAFETY: it is a `.shared` variable.
        unsafe { crate::ptr::assume_shared_start(address) }
    } cpu { crate::cpu::dynamic_shared().0.cast() })
}

/// What `#[address_space(shared)]` makes of a static: a handle that stands for the variable in shared memory.
///
/// Methods and fields of `T` are reached through it (`TILE.as_mut_ptr()`). It has no size of its own: `addr_of_mut!` of the
/// static gives the handle's address, not the variable's; [`Shared::get`] gives the latter.
pub struct Shared<T, S>(PhantomData<(T, S)>);

/// A place in the source that declares a shared variable: a closure written there, or a type that the attribute makes.
#[doc(hidden)]
pub trait SharedPlace {
    /// Where it is.
    fn site(&self) -> Site;
}

impl<F: Fn() -> Site> SharedPlace for F {
    #[inline(always)]
    fn site(&self) -> Site {
        self()
    }
}

// SAFETY: the handle holds nothing; what it stands for is the block's, and how threads use it is up to the code that does.
unsafe impl<T, S> Send for Shared<T, S> {}
// SAFETY: as above.
unsafe impl<T, S> Sync for Shared<T, S> {}

impl<T, S: SharedPlace + Default> Shared<T, S> {
    /// Used by the attribute.
    #[doc(hidden)]
    #[allow(clippy::new_without_default, reason = "only the attribute makes one, in a static")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// The variable's address in the calling thread's block.
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    pub fn get(&self) -> *mut T {
        static_address::<T, S>(S::default())
    }
}

impl<T, S: SharedPlace + Default> Deref for Shared<T, S> {
    type Target = T;

    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    fn deref(&self) -> &T {
        // SAFETY: the variable lives as long as the block. Whoever names the static answers for its contents and for races,
        // as with any `static mut`.
        unsafe { &*self.get() }
    }
}

impl<T, S: SharedPlace + Default> DerefMut for Shared<T, S> {
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.get() }
    }
}
