//! Loaded kernels.

/// One loading of a crate's kernels.
pub struct Module {
    name: &'static str,
}

impl Module {
    /// On the CPU the kernels are part of the program, so there is nothing to load.
    pub(super) fn cpu(name: &'static str) -> Self {
        Self { name }
    }

    /// The kernel crate's name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
