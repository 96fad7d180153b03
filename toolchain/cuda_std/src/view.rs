//! Views of memory: plain loads and stores in PTX, checked accesses on the CPU target.

mod global;

pub use global::{GlobalSlice, GlobalSliceMut};
