//! What a launch cannot do without, and so how fast a device could run it at best.

use super::{Condition, Launch};

/// What a launch cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes that move: of each operand once, of each result once.
    pub bytes: u64,
    /// Operations of matrix products, a multiplication and an addition counted as two.
    pub operations: u64,
}

impl Launch {
    /// The same launch, of whose parameter `parameter` so many bytes move: where that is less than the claim covers, as of a
    /// gather's source, or more, as of what is read and written in place. Of any other parameter the whole claim moves once.
    ///
    /// # Panics
    /// If no parameter of that name reaches memory.
    #[must_use]
    pub fn moves(mut self, parameter: &str, bytes: usize) -> Self {
        let name = self.info.name;
        let claim = self.binder.claims.iter_mut().find(|claim| claim.parameter == parameter);
        let claim =
            claim.unwrap_or_else(|| panic!("kernel `{name}` has no parameter `{parameter}` that reaches memory"));
        claim.moved = bytes as u64;
        self
    }

    /// The same launch, which most of the time reads its parameter `parameter`, whether it is due, and returns.
    ///
    /// # Panics
    /// If no parameter of that name reaches memory.
    #[must_use]
    pub fn seldom_due(mut self, parameter: &str) -> Self {
        let bytes =
            self.claims().iter().find(|claim| claim.parameter == parameter).map_or(0, |claim| claim.range.bytes());
        self.binder.claims.iter_mut().for_each(|claim| claim.moved = 0);
        self.moves(parameter, bytes)
    }

    /// The same launch, which makes matrix products of so many operations.
    #[must_use]
    pub fn multiplies(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    /// What the launch cannot do without. One that hangs on a word does nothing but read it, most of the time: that alone counts.
    pub fn work(&self) -> Work {
        if let Some(Condition::If(word)) = &self.binder.condition {
            return Work { bytes: word.bytes() as u64, operations: 0 };
        }
        Work { bytes: self.claims().iter().map(|claim| claim.moved).sum(), operations: self.operations }
    }
}
