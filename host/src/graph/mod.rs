//! The step as a graph: child graphs, captured each from a module of its own, composed into one parent that a single
//! driver call launches. On the CPU the same description is replayed.

mod child;
mod describe;
mod dot;
mod order;
mod parent;

pub use child::{ChildGraph, Recorder};
pub use describe::{
    AccessKind, ChildDescription, Edge, GraphDescription, Hazard, KernelDescription, MemoryDescription,
    ParameterDescription, shape_text,
};
pub use parent::{ChildModules, ParentGraph};
