//! Operations of consecutive warps, such as a warpgroup's.

use std::any::TypeId;
use std::panic::Location;

use super::fault::{FaultKind, raise};
use super::position::CURRENT;
use super::state::{Waiting, state};

/// An operation that some threads of its group have reached.
pub(super) struct Group {
    op: &'static str,
    number: usize,
    n_threads: usize,
    types: (TypeId, TypeId),
    /// Where each thread's input lies and its result goes.
    slots: Vec<(*const (), *mut ())>,
    arrived: usize,
}

/// Runs an operation of `n_threads` consecutive threads: when all are at it, the last one computes the results of all
/// from their inputs, one for each thread. What the threads wrote before is seen by all of them after it.
#[track_caller]
pub fn group_collective<T: Copy + 'static, R: Copy + 'static>(
    op: &'static str,
    n_threads: u32,
    input: T,
    compute: fn(&[T]) -> Vec<R>,
) -> R {
    let at = Location::caller();
    let state = state(op, at);
    let linear = CURRENT.with(|current| current.thread_in_block()) as usize;
    let n = n_threads as usize;
    let (number, member) = (linear / n, linear % n);
    if (number + 1) * n > state.n_threads as usize {
        let message = format!("{op} takes groups of {n} threads, and the last group of the block has fewer");
        raise(FaultKind::WarpDivergence, Some(at), message);
    }
    let types = (TypeId::of::<T>(), TypeId::of::<R>());
    let mut output: Option<R> = None;
    let slot: (*const (), *mut ()) = ((&raw const input).cast(), (&raw mut output).cast());
    let finished = {
        let mut groups = state.groups.borrow_mut();
        let same = |g: &Group| g.op == op && g.number == number && g.n_threads == n && g.types == types;
        let index = groups.iter().position(same).unwrap_or_else(|| {
            groups.push(Group { op, number, n_threads: n, types, slots: vec![slot; n], arrived: 0 });
            groups.len() - 1
        });
        groups[index].slots[member] = slot;
        groups[index].arrived += 1;
        (groups[index].arrived == n).then(|| groups.swap_remove(index))
    };
    match finished {
        None => state.suspend(linear, Waiting::Group { op, at }),
        Some(group) => {
            // SAFETY: every thread of the group has arrived and keeps its input on its stack; the types were matched.
            let inputs: Vec<T> = group.slots.iter().map(|slot| unsafe { *slot.0.cast::<T>() }).collect();
            let results = compute(&inputs);
            assert_eq!(results.len(), n, "{op} computes a result for each thread");
            for (slot, result) in group.slots.iter().zip(results) {
                // SAFETY: as for the input; the thread itself reads it only after it goes on.
                unsafe { slot.1.cast::<Option<R>>().write(Some(result)) };
            }
            let first = number * n;
            for thread in (first..first + n).filter(|&thread| thread != linear) {
                let ready = &state.ready[thread / 32];
                ready.set(ready.get() | 1 << (thread % 32));
            }
            state.clocks.group_barrier(first..first + n);
        }
    }
    // SAFETY: a read of this thread's own variable, which the thread that computed wrote through the slot.
    unsafe { (&raw const output).read_volatile() }.expect("a thread goes on when its group has computed")
}
