//! The atomic instructions, with semantics and scope spelled out.
//!
//! Core's read-modify-writes come out relaxed at device scope on this backend, whatever ordering is asked; hence `asm!`.
//! An instruction on a generic address is slower, and float additions would become a loop, so the state space is looked up
//! first: where the compiler knows it one instruction is left.

use core::sync::atomic::Ordering;

/// Which threads an atomic access is atomic for, and ordered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The thread's block (`.cta`).
    Block,
    /// All threads of the device (`.gpu`).
    Device,
    /// The host and all devices too (`.sys`).
    System,
}

#[cfg(target_os = "cuda")]
mod gpu {
    use super::{Ordering, Scope};
    use crate::ptr::{AddressSpace, is_in_address_space, shared_address};
    use core::arch::asm;

    /// One instruction in the pointer's own state space.
    macro_rules! in_space {
        ($ptr:ident, |$address:ident| $head:expr, $tail:expr, { $($operand:tt)* }) => {
            // SAFETY: the caller of the public function vouches for the pointer; the space is tested before it is named.
            unsafe {
                if is_in_address_space($ptr, AddressSpace::Global) {
                    asm!(concat!($head, ".global", $tail), $address = in(reg64) $ptr, $($operand)* options(nostack));
                } else if is_in_address_space($ptr, AddressSpace::Shared) {
                    asm!(concat!($head, ".shared", $tail), $address = in(reg32) shared_address($ptr), $($operand)* options(nostack));
                } else {
                    asm!(concat!($head, $tail), $address = in(reg64) $ptr, $($operand)* options(nostack));
                }
            }
        };
    }

    /// The instruction with the scope spelled out.
    macro_rules! in_scope {
        ($scope:ident, $ptr:ident, $head:expr, $tail:expr, $operands:tt) => {
            match $scope {
                Scope::Block => in_space!($ptr, |address| concat!($head, ".cta"), $tail, $operands),
                Scope::Device => in_space!($ptr, |address| concat!($head, ".gpu"), $tail, $operands),
                Scope::System => in_space!($ptr, |address| concat!($head, ".sys"), $tail, $operands),
            }
        };
    }

    /// The fence that sequential consistency asks for, then the instruction with the ordering's semantics.
    macro_rules! issue {
        ($ordering:ident, $scope:ident, $with:ident, $($known:ident $semantics:literal,)* _ $strongest:literal) => {{
            if $ordering == Ordering::SeqCst {
                super::fence(Ordering::SeqCst, $scope);
            }
            match $ordering {
                $(Ordering::$known => $with!($semantics),)*
                _ => $with!($strongest),
            }
        }};
    }

    macro_rules! read_modify_write {
        ($name:ident, $type:ident, $reg:ident, $op:literal) => {
            #[inline(always)]
            pub unsafe fn $name(ptr: *mut $type, value: $type, ordering: Ordering, scope: Scope) -> $type {
                let old: $type;
                macro_rules! with {
                    ($sem:literal) => {
                        in_scope!(
                            scope, ptr, concat!("atom.", $sem), concat!(".", $op, " {old}, [{address}], {value};"),
                            { old = out($reg) old, value = in($reg) value, }
                        )
                    };
                }
                issue!(ordering, scope, with, Relaxed "relaxed", Acquire "acquire", Release "release", _ "acq_rel");
                old
            }
        };
    }

    read_modify_write!(add_u32, u32, reg32, "add.u32");
    read_modify_write!(add_u64, u64, reg64, "add.u64");
    read_modify_write!(add_f32, f32, reg32, "add.f32");
    read_modify_write!(add_f64, f64, reg64, "add.f64");
    read_modify_write!(and_u32, u32, reg32, "and.b32");
    read_modify_write!(and_u64, u64, reg64, "and.b64");
    read_modify_write!(or_u32, u32, reg32, "or.b32");
    read_modify_write!(or_u64, u64, reg64, "or.b64");
    read_modify_write!(xor_u32, u32, reg32, "xor.b32");
    read_modify_write!(xor_u64, u64, reg64, "xor.b64");
    read_modify_write!(exch_u32, u32, reg32, "exch.b32");
    read_modify_write!(exch_u64, u64, reg64, "exch.b64");
    read_modify_write!(min_u32, u32, reg32, "min.u32");
    read_modify_write!(min_i32, i32, reg32, "min.s32");
    read_modify_write!(min_u64, u64, reg64, "min.u64");
    read_modify_write!(min_i64, i64, reg64, "min.s64");
    read_modify_write!(max_u32, u32, reg32, "max.u32");
    read_modify_write!(max_i32, i32, reg32, "max.s32");
    read_modify_write!(max_u64, u64, reg64, "max.u64");
    read_modify_write!(max_i64, i64, reg64, "max.s64");

    macro_rules! access {
        ($load:ident, $store:ident, $swap:ident, $type:ident, $reg:ident, $bits:literal) => {
            #[inline(always)]
            pub unsafe fn $load(ptr: *mut $type, ordering: Ordering, scope: Scope) -> $type {
                let value: $type;
                macro_rules! with {
                    ($sem:literal) => {
                        in_scope!(
                            scope, ptr, concat!("ld.", $sem), concat!(".", $bits, " {value}, [{address}];"),
                            { value = out($reg) value, }
                        )
                    };
                }
                issue!(ordering, scope, with, Relaxed "relaxed", _ "acquire");
                value
            }

            #[inline(always)]
            pub unsafe fn $store(ptr: *mut $type, value: $type, ordering: Ordering, scope: Scope) {
                macro_rules! with {
                    ($sem:literal) => {
                        in_scope!(
                            scope, ptr, concat!("st.", $sem), concat!(".", $bits, " [{address}], {value};"),
                            { value = in($reg) value, }
                        )
                    };
                }
                issue!(ordering, scope, with, Relaxed "relaxed", _ "release");
            }

            #[inline(always)]
            pub unsafe fn $swap(
                ptr: *mut $type,
                current: $type,
                new: $type,
                ordering: Ordering,
                scope: Scope,
            ) -> $type {
                let old: $type;
                macro_rules! with {
                    ($sem:literal) => {
                        in_scope!(
                            scope, ptr, concat!("atom.", $sem),
                            concat!(".cas.", $bits, " {old}, [{address}], {current}, {new};"),
                            { old = out($reg) old, current = in($reg) current, new = in($reg) new, }
                        )
                    };
                }
                issue!(ordering, scope, with, Relaxed "relaxed", Acquire "acquire", Release "release", _ "acq_rel");
                old
            }
        };
    }

    access!(load_u32, store_u32, swap_u32, u32, reg32, "b32");
    access!(load_u64, store_u64, swap_u64, u64, reg64, "b64");
}

#[cfg(not(target_os = "cuda"))]
mod cpu {
    use super::{Ordering, Scope};
    use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

    macro_rules! read_modify_write {
        ($name:ident, $type:ident, $atomic:ident, $method:ident) => {
            #[inline(always)]
            pub unsafe fn $name(ptr: *mut $type, value: $type, ordering: Ordering, scope: Scope) -> $type {
                // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                let old = unsafe { $atomic::from_ptr(ptr) }.$method(value, ordering);
                ordered(ordering, scope);
                old
            }
        };
    }

    read_modify_write!(add_u32, u32, AtomicU32, fetch_add);
    read_modify_write!(add_u64, u64, AtomicU64, fetch_add);
    read_modify_write!(and_u32, u32, AtomicU32, fetch_and);
    read_modify_write!(and_u64, u64, AtomicU64, fetch_and);
    read_modify_write!(or_u32, u32, AtomicU32, fetch_or);
    read_modify_write!(or_u64, u64, AtomicU64, fetch_or);
    read_modify_write!(xor_u32, u32, AtomicU32, fetch_xor);
    read_modify_write!(xor_u64, u64, AtomicU64, fetch_xor);
    read_modify_write!(exch_u32, u32, AtomicU32, swap);
    read_modify_write!(exch_u64, u64, AtomicU64, swap);
    read_modify_write!(min_u32, u32, AtomicU32, fetch_min);
    read_modify_write!(min_i32, i32, AtomicI32, fetch_min);
    read_modify_write!(min_u64, u64, AtomicU64, fetch_min);
    read_modify_write!(min_i64, i64, AtomicI64, fetch_min);
    read_modify_write!(max_u32, u32, AtomicU32, fetch_max);
    read_modify_write!(max_i32, i32, AtomicI32, fetch_max);
    read_modify_write!(max_u64, u64, AtomicU64, fetch_max);
    read_modify_write!(max_i64, i64, AtomicI64, fetch_max);

    /// Tells the checker of an access that orders memory beyond its block.
    fn ordered(ordering: Ordering, scope: Scope) {
        if ordering != Ordering::Relaxed && scope != Scope::Block {
            crate::cpu::fence();
        }
    }

    /// What a failed exchange may be ordered as.
    fn failure(ordering: Ordering) -> Ordering {
        match ordering {
            Ordering::SeqCst => Ordering::SeqCst,
            Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
            _ => Ordering::Relaxed,
        }
    }

    macro_rules! access {
        ($load:ident, $store:ident, $swap:ident, $type:ident, $atomic:ident) => {
            #[inline(always)]
            pub unsafe fn $load(ptr: *mut $type, ordering: Ordering, scope: Scope) -> $type {
                // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                let value = unsafe { $atomic::from_ptr(ptr) }.load(ordering);
                ordered(ordering, scope);
                value
            }

            #[inline(always)]
            pub unsafe fn $store(ptr: *mut $type, value: $type, ordering: Ordering, _: Scope) {
                // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                unsafe { $atomic::from_ptr(ptr) }.store(value, ordering)
            }

            #[inline(always)]
            pub unsafe fn $swap(
                ptr: *mut $type,
                current: $type,
                new: $type,
                ordering: Ordering,
                scope: Scope,
            ) -> $type {
                // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                let atomic = unsafe { $atomic::from_ptr(ptr) };
                let old = atomic.compare_exchange(current, new, ordering, failure(ordering)).unwrap_or_else(|old| old);
                ordered(ordering, scope);
                old
            }
        };
    }

    access!(load_u32, store_u32, swap_u32, u32, AtomicU32);
    access!(load_u64, store_u64, swap_u64, u64, AtomicU64);

    macro_rules! float_add {
        ($name:ident, $type:ident, $bits:ident, $load:ident, $swap:ident) => {
            #[inline(always)]
            pub unsafe fn $name(ptr: *mut $type, value: $type, ordering: Ordering, scope: Scope) -> $type {
                let ptr = ptr.cast::<$bits>();
                // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                let mut old = unsafe { $load(ptr, Ordering::Relaxed, scope) };
                loop {
                    let new = ($type::from_bits(old) + value).to_bits();
                    // SAFETY: the caller vouches for the pointer, and for all concurrent accesses being atomic.
                    let seen = unsafe { $swap(ptr, old, new, ordering, scope) };
                    if seen == old {
                        return $type::from_bits(old);
                    }
                    old = seen;
                }
            }
        };
    }

    float_add!(add_f32, f32, u32, load_u32, swap_u32);
    float_add!(add_f64, f64, u64, load_u64, swap_u64);
}

#[cfg(not(target_os = "cuda"))]
pub(super) use cpu::*;
#[cfg(target_os = "cuda")]
pub(super) use gpu::*;

/// A fence of the given scope: `fence.sc` for sequential consistency, nothing for relaxed, else `fence.acq_rel`.
#[inline(always)]
pub fn fence(ordering: Ordering, scope: Scope) {
    if ordering == Ordering::Relaxed {
        return;
    }
    crate::target::target!(gpu {
        macro_rules! one {
            ($instruction:literal) => {
                // SAFETY: a fence; no `nomem`, so that the compiler keeps accesses on their side of it.
                unsafe { core::arch::asm!($instruction, options(nostack, preserves_flags)) }
            };
        }
        match (ordering, scope) {
            (Ordering::SeqCst, Scope::Block) => one!("fence.sc.cta;"),
            (Ordering::SeqCst, Scope::Device) => one!("fence.sc.gpu;"),
            (Ordering::SeqCst, Scope::System) => one!("fence.sc.sys;"),
            (_, Scope::Block) => one!("fence.acq_rel.cta;"),
            (_, Scope::Device) => one!("fence.acq_rel.gpu;"),
            (_, Scope::System) => one!("fence.acq_rel.sys;"),
        }
    } cpu {
        core::sync::atomic::fence(ordering);
        if scope != Scope::Block {
            crate::cpu::fence();
        }
    })
}
