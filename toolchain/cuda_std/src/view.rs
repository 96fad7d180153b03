//! Views of memory: plain loads and stores in PTX, checked accesses on the CPU target.
//!
//! | view | memory | in PTX |
//! |---|---|---|
//! | [`GlobalSlice`] | global, read-only while the kernel runs | `ld.global.nc` |
//! | [`GlobalSliceMut`] | global, its writers disjoint | `ld.global`, `st.global`, `atom.global` |
//! | [`SharedSlice`] | the block's shared memory | `ld.shared`, `st.shared`, `atom.shared` |
//!
//! `get` and `set` take one element, `load` and `store` as many as make 8 or 16 bytes, in one instruction. An index must be
//! in the view: in PTX it is not checked, on the CPU it is. In a loop over part of a view, a [`GlobalSlice::sub`] of
//! that part lets the CPU's compiler check once, before the loop.

mod atomic;
mod global;
mod shared;
mod vector;

pub use atomic::{AtomicAdd, AtomicInteger, AtomicSpace};
pub use global::{GlobalSlice, GlobalSliceMut};
pub use shared::SharedSlice;
