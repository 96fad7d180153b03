//! Operations of a warp's lanes.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::ptr;

use super::fault::{FaultKind, Place, raise_with};
use super::position::{CURRENT, index_of, position};
use super::state::{BlockState, Waiting, state};

/// An operation that some of its lanes have reached.
#[derive(Clone, Copy)]
struct Pending {
    op: &'static str,
    mask: u32,
    types: (TypeId, TypeId),
    arrived: u32,
}

/// Where a waiting lane's input lies and its result goes.
#[derive(Clone, Copy)]
struct Slot {
    input: *const (),
    output: *mut (),
}

/// A warp's operations under way. Lanes with disjoint masks may be in different ones.
pub(super) struct WarpState {
    pending: RefCell<Vec<Pending>>,
    slots: [Cell<Slot>; 32],
}

impl Default for WarpState {
    fn default() -> Self {
        let empty = Slot { input: ptr::null(), output: ptr::null_mut() };
        Self { pending: RefCell::default(), slots: std::array::from_fn(|_| Cell::new(empty)) }
    }
}

impl WarpState {
    pub(super) fn start(&self) {
        self.pending.borrow_mut().clear();
    }

    /// Lets the lanes that waited for one that has returned look again.
    pub(super) fn lane_returned(&self, ready: &Cell<u32>) {
        for pending in self.pending.borrow().iter() {
            ready.set(ready.get() | pending.arrived);
        }
    }

    /// Notes that `lane` is at an operation; the lanes to compute for if it was the last.
    fn arrive(&self, lane: u32, mine: Pending, live: u32) -> Option<u32> {
        let mut all = self.pending.borrow_mut();
        let same = |p: &Pending| p.mask == mine.mask && p.types == mine.types && p.op == mine.op;
        let index = all.iter().position(same).unwrap_or_else(|| {
            all.push(mine);
            all.len() - 1
        });
        all[index].arrived |= 1 << lane;
        let arrived = all[index].arrived;
        (mine.mask & live & !arrived == 0).then(|| {
            all.swap_remove(index);
            arrived
        })
    }
}

/// Runs a warp operation: when all lanes of `mask` that have not returned are at it, the last one computes the results
/// of all from their inputs (`None` for lanes outside). What the lanes wrote before is seen by all of them after it.
///
/// A lane of `mask` at another operation, or with another mask that needs this lane, is a fault.
#[track_caller]
pub fn warp_collective<T: Copy + 'static, R: Copy + 'static>(
    op: &'static str,
    mask: u32,
    input: T,
    compute: fn(&[Option<T>; 32]) -> [R; 32],
) -> R {
    let at = Location::caller();
    let state = state(op, at);
    let linear = CURRENT.with(|current| current.thread_in_block());
    let (warp_idx, lane) = (linear as usize / 32, linear % 32);
    let warp = &state.warps[warp_idx];
    let types = (TypeId::of::<T>(), TypeId::of::<R>());
    let mut output: Option<R> = None;
    warp.slots[lane as usize].set(Slot { input: (&raw const input).cast(), output: (&raw mut output).cast() });
    loop {
        check_mask(state, op, mask, warp_idx, lane, at);
        let mine = Pending { op, mask, types, arrived: 0 };
        if let Some(lanes) = warp.arrive(lane, mine, state.live[warp_idx].get()) {
            complete(warp, lanes, compute);
            let ready = &state.ready[warp_idx];
            ready.set(ready.get() | lanes & !(1 << lane));
            state.clocks.warp_barrier(warp_idx, lanes);
        } else {
            state.suspend(linear as usize, Waiting::Warp { op, mask, at });
        }
        // SAFETY: a read of this thread's own variable, which the lane that computed wrote through the slot.
        if let Some(result) = unsafe { (&raw const output).read_volatile() } {
            return result;
        }
    }
}

fn complete<T: Copy, R: Copy>(warp: &WarpState, lanes: u32, compute: fn(&[Option<T>; 32]) -> [R; 32]) {
    let mut inputs = [None; 32];
    for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
        // SAFETY: a lane that has arrived and not gone on keeps its input on its stack; `arrive` matched its types.
        inputs[lane] = Some(unsafe { *warp.slots[lane].get().input.cast::<T>() });
    }
    let results = compute(&inputs);
    for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
        // SAFETY: as for the input; the lane itself reads it only after it goes on.
        unsafe { warp.slots[lane].get().output.cast::<Option<R>>().write(Some(results[lane])) };
    }
}

/// Reports a mask that cannot be met: lanes that have returned (while checking), this lane outside it, a lane of it that
/// waits for this one elsewhere.
#[inline]
fn check_mask(state: &BlockState, op: &'static str, mask: u32, warp: usize, lane: u32, at: &'static Location<'static>) {
    if mask >> lane & 1 == 0 {
        let message = format!("{op} with mask {mask:#010x}, which leaves out the calling lane {lane}");
        raise_with(FaultKind::WarpDivergence, Some(at), None, message);
    }
    let missing = mask & state.existing(warp) & !state.live[warp].get();
    if state.check && missing != 0 {
        let other = missing.trailing_zeros();
        let message = format!("{op} with mask {mask:#010x}, whose lane {other} has returned");
        raise_with(FaultKind::WarpDivergence, Some(at), Some(place(warp, other)), message);
    }
    let pending = state.warps[warp].pending.borrow();
    let elsewhere =
        pending.iter().find(|p| (p.mask != mask || p.op != op) && p.mask >> lane & 1 == 1 && p.arrived & mask != 0);
    if let Some(&Pending { op: their_op, mask: their_mask, arrived, .. }) = elsewhere {
        let other = (arrived & mask).trailing_zeros();
        drop(pending);
        let message = format!(
            "{op} with mask {mask:#010x}, while lane {other} waits for this lane in {their_op} with mask {their_mask:#010x}"
        );
        raise_with(FaultKind::WarpDivergence, Some(at), Some(place(warp, other)), message);
    }
}

fn place(warp: usize, lane: u32) -> Place {
    let position = position();
    let linear = warp as u64 * 32 + u64::from(lane);
    Place { block: position.block_idx, thread: index_of(position.block_dim, linear) }
}

/// Waits for the lanes of `mask`; what they wrote before is seen by all of them after it.
#[track_caller]
pub fn warp_barrier(mask: u32) {
    warp_collective("a warp barrier", mask, (), |_| [(); 32]);
}

/// The lanes of the warp that exist and have not returned.
#[track_caller]
pub fn active_mask() -> u32 {
    let linear = CURRENT.with(|current| current.thread_in_block());
    state("the active mask", Location::caller()).live[linear as usize / 32].get()
}
