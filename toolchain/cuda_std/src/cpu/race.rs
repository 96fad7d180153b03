//! Who touched a piece of memory, and whether the next access comes after.
//!
//! The order is that of Lamport's "happened before", kept as in FastTrack (Flanagan and Freund 2009): the last write, and
//! the reads since it as one access while each comes after the one before. Several readers side by side are a state of
//! their own: of one warp (then each lane's time is kept, as warp operations order lanes), or of more (then the latest
//! time is, as only a barrier of the block orders them all).

use std::panic::Location;

use super::access::Kind;
use super::clock::Clocks;
use super::executor::Run;
use super::fault::Place;
use super::position::{CURRENT, index_of};

/// One access of one thread.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) at: &'static Location<'static>,
    block: u32,
    thread: u16,
    /// By the block's clock.
    time: u32,
    /// By the launch's count of fences.
    fence: u32,
}

impl Access {
    fn same_thread(&self, other: &Self) -> bool {
        self.block == other.block && self.thread == other.thread
    }

    fn warp(&self) -> u16 {
        self.thread / 32
    }

    fn lane(&self) -> usize {
        usize::from(self.thread % 32)
    }
}

/// The running thread's access, and what it has seen.
pub(super) struct Accessor<'a> {
    pub(super) access: Access,
    run: &'a Run<'a>,
    clocks: Option<&'a Clocks>,
    fenced: u32,
}

impl Accessor<'_> {
    /// Runs `with` for the running thread; not outside kernels, nor in a launch that is not checked.
    pub(super) fn here<R>(at: &'static Location<'static>, with: impl FnOnce(&Accessor<'_>) -> R) -> Option<R> {
        CURRENT.with(|current| {
            // SAFETY: null, or the launch and the block that this operating-system thread is inside of.
            let (run, block) = unsafe { (current.run.get().as_ref()?, current.block.get().as_ref()) };
            if !run.options.check {
                return None;
            }
            let thread = current.thread_in_block();
            let clocks = block.map(|block| &block.clocks);
            let access = Access {
                at,
                block: run.linear_block(current.block_idx.get()),
                thread: thread as u16,
                time: clocks.map_or(1, Clocks::time),
                fence: run.fences.now(),
            };
            let fenced = clocks.map_or_else(|| current.fenced.get(), |clocks| clocks.fenced(thread as usize));
            Some(with(&Accessor { access, run, clocks, fenced }))
        })
    }

    /// The launch.
    pub(super) fn serial(&self) -> u64 {
        self.run.serial
    }

    /// Where an access was made.
    pub(super) fn place(&self, access: &Access) -> Place {
        let shape = self.run.shape;
        Place {
            block: index_of(shape.grid, u64::from(access.block)),
            thread: index_of(shape.block, u64::from(access.thread)),
        }
    }

    /// Whether this access comes after `before`.
    fn is_after(&self, before: &Access) -> bool {
        if before.block != self.access.block {
            return self.has_fenced(before.block, before.fence);
        }
        before.thread == self.access.thread
            || self
                .clocks
                .is_some_and(|clocks| clocks.has_seen(self.access.thread.into(), before.thread.into(), before.time))
    }

    /// Whether `block` has fenced since `stamp`, and this thread after it.
    fn has_fenced(&self, block: u32, stamp: u32) -> bool {
        stamp < self.fenced && self.run.fences.since(block, stamp)
    }
}

/// The accesses of one kind since the last write.
#[derive(Default)]
enum Touch {
    #[default]
    None,
    One(Access),
    Warp(Box<WarpTouch>),
    Many(Box<ManyTouch>),
}

/// Lanes of one warp.
struct WarpTouch {
    /// Each lane's last access.
    lanes: [Option<Access>; 32],
    block: u32,
    warp: u16,
}

/// Threads of several warps.
struct ManyTouch {
    /// Two of different threads, of different blocks if there are.
    samples: [Access; 2],
    /// Whether they are of several blocks.
    several_blocks: bool,
    time: u32,
    fence: u32,
}

impl Touch {
    /// An access that does not come before `next`.
    fn unordered(&self, next: &Accessor<'_>) -> Option<Access> {
        let foreign = |access: &&Access| !access.same_thread(&next.access);
        match self {
            Self::None => None,
            Self::One(before) => (!next.is_after(before)).then_some(*before),
            Self::Warp(warp) => warp.lanes.iter().flatten().find(|before| !next.is_after(before)).copied(),
            Self::Many(many) => {
                let ordered = if many.several_blocks {
                    many.fence < next.fenced
                } else if many.samples[0].block == next.access.block {
                    next.clocks.is_some_and(|clocks| clocks.has_seen_all(next.access.thread.into(), many.time))
                } else {
                    next.has_fenced(many.samples[0].block, many.fence)
                };
                if ordered { None } else { many.samples.iter().rev().find(foreign).copied() }
            }
        }
    }

    /// Adds an access of a kind that may stand beside the others.
    fn add(&mut self, next: &Accessor<'_>) {
        let access = next.access;
        let before = match self {
            Self::None => return *self = Self::One(access),
            Self::One(before) if next.is_after(before) => return *self = Self::One(access),
            Self::Warp(warp) if warp.block == access.block && warp.warp == access.warp() => {
                warp.lanes[access.lane()] = Some(access);
                return;
            }
            Self::One(before) => *before,
            Self::Warp(_) => match self.unordered(next) {
                Some(before) => before,
                None => return *self = Self::One(access),
            },
            Self::Many(_) if self.unordered(next).is_none() => return *self = Self::One(access),
            Self::Many(many) => {
                many.time = many.time.max(access.time);
                many.fence = many.fence.max(access.fence);
                if !many.several_blocks && many.samples[0].block != access.block {
                    many.several_blocks = true;
                    many.samples[1] = access;
                }
                return;
            }
        };
        *self = if before.block == access.block && before.warp() == access.warp() {
            let mut lanes = [None; 32];
            lanes[before.lane()] = Some(before);
            lanes[access.lane()] = Some(access);
            Self::Warp(Box::new(WarpTouch { lanes, block: access.block, warp: access.warp() }))
        } else {
            Self::Many(Box::new(ManyTouch {
                samples: [before, access],
                several_blocks: before.block != access.block,
                time: before.time.max(access.time),
                fence: before.fence.max(access.fence),
            }))
        };
    }
}

/// The accesses to a piece of memory in one launch.
#[derive(Default)]
pub(super) struct Cell {
    write: Option<Access>,
    reads: Touch,
    atomics: Touch,
}

impl Cell {
    /// An earlier access that races with `next`, and what it was.
    pub(super) fn race(&self, kind: Kind, next: &Accessor<'_>) -> Option<(Kind, Access)> {
        let write = || self.write.filter(|before| !next.is_after(before)).map(|before| (Kind::Write, before));
        let reads = || self.reads.unordered(next).map(|before| (Kind::Read, before));
        let atomics = || self.atomics.unordered(next).map(|before| (Kind::Atomic, before));
        match kind {
            Kind::Read => write().or_else(atomics),
            Kind::Atomic => write().or_else(reads),
            Kind::Write => write().or_else(atomics).or_else(reads),
        }
    }

    /// Notes an access that races with none.
    pub(super) fn note(&mut self, kind: Kind, next: &Accessor<'_>) {
        match kind {
            Kind::Read => self.reads.add(next),
            Kind::Atomic => self.atomics.add(next),
            Kind::Write => {
                *self = Self { write: Some(next.access), ..Self::default() };
            }
        }
    }
}
