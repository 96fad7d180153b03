//! A graph as Graphviz text.

use std::fmt::Write;

use super::{AccessKind, GraphDescription, Hazard, KernelDescription};

impl GraphDescription {
    /// The graph in Graphviz's DOT language: a box for each child with its kernels and their shapes, an edge for each
    /// wait with its reason, dashed where the data have none.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph step {\n  rankdir = TB;\n  node [shape = box, fontname = monospace];\n");
        for (index, child) in self.children.iter().enumerate() {
            let kernels: String = child.kernels.iter().map(kernel_line).collect();
            let _ = writeln!(dot, "  c{index} [label = \"{}\\n{kernels}\"];", escaped(&child.name));
        }
        for edge in &self.edges {
            let reason = |reason: &str| {
                let label = format!("{} {reason} {}", edge.to_parameter, edge.from_parameter);
                format!("tooltip = \"{}\"", escaped(&label))
            };
            let attribute = match edge.hazard {
                Hazard::ReadAfterWrite => reason("reads"),
                Hazard::WriteAfterRead => reason("overwrites what was read"),
                Hazard::WriteAfterWrite => reason("overwrites"),
                Hazard::Nothing => "style = dashed".to_owned(),
            };
            let _ = writeln!(dot, "  c{} -> c{} [{attribute}];", edge.from, edge.to);
        }
        dot.push_str("}\n");
        dot
    }

    /// Kernels in all children.
    pub fn n_kernels(&self) -> usize {
        self.children.iter().map(|child| child.kernels.len()).sum()
    }
}

/// One left-aligned line of a label: the kernel, its shape, what it writes.
fn kernel_line(kernel: &KernelDescription) -> String {
    let writes: Vec<&str> = kernel
        .parameters
        .iter()
        .filter(|parameter| parameter.access == AccessKind::Write)
        .map(|parameter| parameter.name.as_str())
        .collect();
    format!("{} <{}> -> {}\\l", escaped(&kernel.name), kernel.shape_text(), escaped(&writes.join(", ")))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
