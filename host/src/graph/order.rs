//! Which child must wait for which, from what their kernels claim and what they were told.

use cuda_std::launch::{Access, Claim};

use super::describe::Hazard;

/// One claim of a child's kernel.
pub(super) struct KernelClaim<'a> {
    pub(super) kernel: &'static str,
    pub(super) claim: &'a Claim,
}

/// A child that must wait for another.
pub(super) struct Wait<'a> {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The claims because of which it must; none where it was told to.
    pub(super) conflict: Option<Conflict<'a>>,
}

/// A pair of claims that fixes the order of two children.
pub(super) struct Conflict<'a> {
    pub(super) hazard: Hazard,
    pub(super) earlier: &'a KernelClaim<'a>,
    pub(super) later: &'a KernelClaim<'a>,
}

/// For children in the order of a list, each with its claims, and with the earlier ones that it was told to wait for: the fewest waits
/// that imply every other.
///
/// Two children whose claims overlap, one of them a write, keep the list's order. Going through the earlier children from
/// the nearest to the farthest, a wait for one that is already an ancestor says nothing new; whatever lies between
/// the two has been seen by then, so the result is the transitive reduction.
pub(super) fn waits<'a>(children: &'a [Vec<KernelClaim<'a>>], told: &[Vec<usize>]) -> Vec<Wait<'a>> {
    let mut found = Vec::new();
    let mut ancestors: Vec<Vec<bool>> = Vec::with_capacity(children.len());
    for (to, later) in children.iter().enumerate() {
        let mut mine = vec![false; children.len()];
        for from in (0..to).rev() {
            if mine[from] {
                continue;
            }
            let conflict = first_conflict(&children[from], later);
            if conflict.is_none() && !told[to].contains(&from) {
                continue;
            }
            found.push(Wait { from, to, conflict });
            mine[from] = true;
            mine.iter_mut().zip(&ancestors[from]).for_each(|(mine, theirs)| *mine |= theirs);
        }
        ancestors.push(mine);
    }
    found
}

fn first_conflict<'a>(earlier: &'a [KernelClaim<'a>], later: &'a [KernelClaim<'a>]) -> Option<Conflict<'a>> {
    let pairs = earlier.iter().flat_map(|earlier| later.iter().map(move |later| (earlier, later)));
    let conflict = |(earlier, later): (&'a KernelClaim<'a>, &'a KernelClaim<'a>)| {
        Some(Conflict { hazard: hazard(earlier.claim, later.claim)?, earlier, later })
    };
    pairs.filter_map(conflict).next()
}

fn hazard(earlier: &Claim, later: &Claim) -> Option<Hazard> {
    let hazard = match (earlier.access, later.access) {
        (Access::Read, Access::Read) => return None,
        (Access::Write, Access::Read) => Hazard::ReadAfterWrite,
        (Access::Read, Access::Write) => Hazard::WriteAfterRead,
        (Access::Write, Access::Write) => Hazard::WriteAfterWrite,
    };
    earlier.range.overlaps(&later.range).then_some(hazard)
}
