//! Where the outputs of the value and advantage heads lie in a row.
//!
//! Five groups, each at a multiple of 16 columns: V `[4K]`, V_b at b K + k, then the advantages A_b `[n_b K]` of each branch,
//! A_{b,a} at a K + k (Wang et al. 2016; Tavakoli et al. 2018). A matrix product writes a group of its own; the columns
//! between two groups belong to none.

use shared_types::market::{BRANCH_SIZES, N_BRANCHES};

/// Most atoms of a return distribution: two for each lane of a warp.
pub const N_ATOMS_MAX: usize = 64;
/// Actions of all branches.
pub const N_ACTIONS: usize = first_action(N_BRANCHES);
/// Groups of columns: V and four advantages.
pub const N_GROUPS: usize = 1 + N_BRANCHES;
/// Columns of a row at most.
pub const STRIDE_MAX: usize = HeadColumns::new(N_ATOMS_MAX).stride as usize;
/// Columns at whose multiples groups begin.
const ALIGNMENT: u32 = 16;

/// The first action of `branch` among all [`N_ACTIONS`].
pub const fn first_action(branch: usize) -> usize {
    let (mut first, mut before) = (0, 0);
    while before < branch {
        first += BRANCH_SIZES[before];
        before += 1;
    }
    first
}

/// Columns of the heads' outputs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadColumns {
    /// First column of V and of each branch's advantages.
    pub start: [u32; N_GROUPS],
    /// Columns of a row, a multiple of 16.
    pub stride: u32,
    /// Atoms K of a distribution.
    pub n_atoms: u32,
}

impl HeadColumns {
    /// The columns for K atoms, 2 to [`N_ATOMS_MAX`].
    pub const fn new(n_atoms: usize) -> Self {
        assert!(n_atoms >= 2 && n_atoms <= N_ATOMS_MAX, "a distribution has 2 to 64 atoms");
        let mut columns = Self { start: [0; N_GROUPS], stride: 0, n_atoms: n_atoms as u32 };
        let mut group = 0;
        while group < N_GROUPS {
            columns.start[group] = columns.stride;
            columns.stride += (columns.width(group) as u32).next_multiple_of(ALIGNMENT);
            group += 1;
        }
        columns
    }

    /// Outputs of a group.
    #[inline(always)]
    pub const fn width(&self, group: usize) -> usize {
        let n_distributions = if group == 0 { N_BRANCHES } else { BRANCH_SIZES[group - 1] };
        n_distributions * self.n_atoms as usize
    }

    /// First column of V_b.
    #[inline(always)]
    pub const fn value(&self, branch: usize) -> usize {
        self.start[0] as usize + branch * self.n_atoms as usize
    }

    /// First column of A_{b,a}.
    #[inline(always)]
    pub const fn advantage(&self, branch: usize, action: usize) -> usize {
        // By comparison of values: an array that a kernel indexes at run time would lie in local memory.
        let [_, first, second, third, fourth] = self.start;
        let start = match branch {
            0 => first,
            1 => second,
            2 => third,
            _ => fourth,
        };
        start as usize + action * self.n_atoms as usize
    }
}
