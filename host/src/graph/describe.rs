//! What a graph is made of, in plain data: the same on both backends, and what `graph --json` prints.

use std::sync::Arc;

use cuda_std::launch::{Access, Claim, DeviceMemory, Launch};
use cuda_std::shape::{Dim3, LaunchShape};
use serde::{Deserialize, Serialize};

/// A parent graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphDescription {
    /// The children, in the order in which they were composed.
    pub children: Vec<ChildDescription>,
    /// Which child waits for which. An order that follows from other edges is left out.
    pub edges: Vec<Edge>,
    /// The allocations that the kernels reach, in the order of first use.
    pub memories: Vec<MemoryDescription>,
}

/// A child graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildDescription {
    /// Its name.
    pub name: String,
    /// The kernel crate that its module was loaded from.
    pub module: String,
    /// Its kernels, in running order.
    pub kernels: Vec<KernelDescription>,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDescription {
    /// The kernel.
    pub name: String,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Its parameters that reach memory.
    pub parameters: Vec<ParameterDescription>,
}

/// A parameter that reaches memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterDescription {
    /// Its name.
    pub name: String,
    /// Index into the graph's `memories`.
    pub memory: usize,
    /// Where its range begins in the allocation, bytes.
    pub offset: u64,
    /// The range's length, bytes.
    pub bytes: u64,
    /// What the kernel may do with the range.
    pub access: AccessKind,
}

/// What a kernel may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Loads alone.
    Read,
    /// Loads and stores.
    Write,
}

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryDescription {
    /// Its size.
    pub bytes: u64,
}

/// Child `to` waits for child `from`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of the child that runs first.
    pub from: usize,
    /// Index of the child that waits.
    pub to: usize,
    /// What would go wrong without the edge.
    pub hazard: Hazard,
    /// The parameter of the child that runs first, as `kernel.parameter`; empty where there is no hazard.
    pub from_parameter: String,
    /// The parameter of the child that waits, likewise.
    pub to_parameter: String,
    /// Index into the graph's `memories`, if there is a hazard.
    pub memory: Option<usize>,
}

/// Why two children may not change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hazard {
    /// The later reads what the earlier writes.
    ReadAfterWrite,
    /// The later overwrites what the earlier reads.
    WriteAfterRead,
    /// The later overwrites what the earlier writes.
    WriteAfterWrite,
    /// Nothing would: the child was told to wait (`ChildGraph::after`).
    Nothing,
}

/// Numbers allocations in the order of first use.
#[derive(Default)]
pub(super) struct Memories {
    seen: Vec<Arc<DeviceMemory>>,
}

impl Memories {
    pub(super) fn index(&mut self, claim: &Claim) -> usize {
        let memory = claim.range.memory();
        self.seen.iter().position(|seen| Arc::ptr_eq(seen, memory)).unwrap_or_else(|| {
            self.seen.push(memory.clone());
            self.seen.len() - 1
        })
    }

    pub(super) fn describe(&self) -> Vec<MemoryDescription> {
        self.seen.iter().map(|memory| MemoryDescription { bytes: memory.bytes() as u64 }).collect()
    }

    pub(super) fn kernel(&mut self, shape: &LaunchShape, launch: &Launch) -> KernelDescription {
        KernelDescription {
            name: launch.info().name.into(),
            grid: dimensions(shape.grid),
            block: dimensions(shape.block),
            shared_bytes: shape.shared_bytes,
            parameters: launch.claims().iter().map(|claim| self.parameter(claim)).collect(),
        }
    }

    fn parameter(&mut self, claim: &Claim) -> ParameterDescription {
        ParameterDescription {
            name: claim.parameter.into(),
            memory: self.index(claim),
            offset: claim.range.address() - claim.range.memory().address(),
            bytes: claim.range.bytes() as u64,
            access: match claim.access {
                Access::Read => AccessKind::Read,
                Access::Write => AccessKind::Write,
            },
        }
    }
}

impl KernelDescription {
    /// The launch's shape in a few characters.
    pub fn shape_text(&self) -> String {
        in_few_characters(self.grid, self.block, self.shared_bytes)
    }
}

/// A launch's shape in a few characters: blocks, threads of a block, and its dynamic shared memory, if any.
pub fn shape_text(shape: &LaunchShape) -> String {
    in_few_characters(dimensions(shape.grid), dimensions(shape.block), shape.shared_bytes)
}

fn dimensions(dim: Dim3) -> [u32; 3] {
    [dim.x, dim.y, dim.z]
}

fn in_few_characters(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> String {
    let text = |[x, y, z]: [u32; 3]| match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    };
    let shared = if shared_bytes > 0 { format!(", {shared_bytes} B") } else { String::new() };
    format!("{} x {}{shared}", text(grid), text(block))
}
