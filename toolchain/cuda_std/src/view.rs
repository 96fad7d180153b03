//! Views of memory: plain loads and stores in PTX, checked accesses on the CPU target.
//!
//! | view | memory | in PTX |
//! |---|---|---|
//! | [`GlobalSlice`] | global, read-only while the kernel runs | `ld.global.nc` |
//! | [`GlobalSliceMut`] | global, its writers disjoint | `ld.global`, `st.global`, `atom.global` |
//! | [`SharedSlice`] | the block's shared memory | `ld.shared`, `st.shared`, `atom.shared` |
//!
//! `get` and `set` take one element, `load` and `store` as many as make 8 or 16 bytes, in one instruction. In a loop over
//! part of a view, a [`GlobalSlice::sub`] of that part lets the CPU's compiler check once, before the loop. A [`Panel`] is checked
//! when it is made, all of it, and its accesses, which are unsafe, are as plain on the CPU as in PTX.
//!
//! # Bounds
//! **The accessors are safe functions, and in PTX nothing checks what they ask for**: that the index is in the view, that a
//! vector's address is a multiple of its size, that writers are disjoint. A kernel that breaks it has undefined behaviour
//! there although it is written without `unsafe`. The proof is owed by the kernel's author and is given by running the
//! kernel on the CPU target under its checker, which ends the launch at the first such access.

mod atomic;
mod elements;
mod global;
mod panel;
mod shared;
mod vector;

pub use atomic::{AtomicAdd, AtomicInteger, AtomicSpace};
pub use global::{GlobalSlice, GlobalSliceMut};
pub use panel::{Panel, PanelMut};
pub use shared::SharedSlice;
