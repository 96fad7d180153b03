//! What can go wrong in a kernel, and how it is told.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{self, Location};
use std::sync::Once;

use super::position::CURRENT;
use crate::launch::KernelInfo;
use crate::shape::Dim3;

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The launch's shape or arguments are refused before a thread runs.
    BadLaunch,
    /// The kernel panicked: an index out of bounds of one of its own arrays, an overflow, a failed `assert!`.
    Panic,
    /// The kernel reported an error itself: a device assertion or a trap.
    Trap,
    /// An access past the end of a view; a write just outside of a shared array.
    OutOfBounds,
    /// A vector access at an address that is not a multiple of its size.
    Unaligned,
    /// A read of memory that nothing wrote.
    Uninitialised,
    /// Two threads touched one address, at least one wrote, and no barrier stood between.
    Race,
    /// Some threads of a block stand at a barrier that the others cannot reach.
    BarrierDivergence,
    /// Some lanes of a warp operation cannot take part in it, or name another mask or operation.
    WarpDivergence,
    /// No thread of the block can go on.
    Deadlock,
    /// A kernel that is not marked `cooperative` uses barriers, shared memory or warp operations.
    NotCooperative,
    /// More shared memory than a block has.
    SharedMemory,
    /// The operating system refused memory for the threads' stacks.
    Resources,
}

impl FaultKind {
    fn words(self) -> &'static str {
        match self {
            Self::BadLaunch => "launch refused",
            Self::Panic => "panic",
            Self::Trap => "trap",
            Self::OutOfBounds => "access out of bounds",
            Self::Unaligned => "unaligned access",
            Self::Uninitialised => "read of uninitialised memory",
            Self::Race => "data race",
            Self::BarrierDivergence => "barrier divergence",
            Self::WarpDivergence => "warp divergence",
            Self::Deadlock => "deadlock",
            Self::NotCooperative => "not a cooperative kernel",
            Self::SharedMemory => "too much shared memory",
            Self::Resources => "out of resources",
        }
    }
}

/// A thread of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the block.
    pub block: Dim3,
    /// Index of the thread in its block.
    pub thread: Dim3,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (b, t) = (self.block, self.thread);
        write!(f, "block ({}, {}, {}), thread ({}, {}, {})", b.x, b.y, b.z, t.x, t.y, t.z)
    }
}

/// Why a launch failed on the CPU target.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: &'static KernelInfo,
    /// The thread that met the fault; none if the launch was refused, or if it is known of the block alone.
    pub place: Option<Place>,
    /// The other thread of a race.
    pub other: Option<Place>,
    /// The line that the thread stood at, or that declares what it harmed, `file:line`.
    pub line: Option<String>,
    /// What happened, with names and numbers.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelInfo { name, file, line, .. } = self.kernel;
        write!(f, "kernel `{name}` ({file}:{line}): {}", self.kind.words())?;
        if let Some(line) = &self.line {
            write!(f, " at {line}")?;
        }
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// A fault of no thread in particular.
    pub(super) fn of_launch(kernel: &'static KernelInfo, kind: FaultKind, message: String) -> Self {
        Self { kind, kernel, place: None, other: None, line: None, message }
    }

    /// A fault of the running thread.
    pub(super) fn here(kind: FaultKind, line: Option<String>, message: String) -> Option<Self> {
        CURRENT.with(|current| {
            // SAFETY: the pointer is null or that of the launch which this operating-system thread is inside of
            // (`Entered` clears it on the way out), so the launch is alive.
            let run = unsafe { current.run.get().as_ref() }?;
            let place = Place { block: current.block_idx.get(), thread: current.thread_idx() };
            Some(Self { place: Some(place), line, ..Self::of_launch(run.info(), kind, message) })
        })
    }

    /// What a caught panic of the running thread says.
    pub(super) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let line = PANICKED_AT.take();
        let message = match payload.downcast::<Fault>() {
            Ok(fault) => return *fault,
            Err(payload) => match payload.downcast::<String>() {
                Ok(message) => *message,
                Err(payload) => payload.downcast_ref::<&str>().map_or("(no message)", |text| text).to_owned(),
            },
        };
        Self::here(FaultKind::Panic, line, message).expect("kernels run inside a launch")
    }
}

/// How a cancelled thread leaves its kernel.
pub(super) struct Cancelled;

/// Ends the running thread, and so the launch, with a fault.
#[cold]
#[inline(never)]
pub(super) fn raise(kind: FaultKind, at: Option<&'static Location<'static>>, message: String) -> ! {
    raise_with(kind, at, None, message)
}

/// The same with the other thread of a race.
#[cold]
#[inline(never)]
pub(super) fn raise_with(
    kind: FaultKind,
    at: Option<&'static Location<'static>>,
    other: Option<Place>,
    message: String,
) -> ! {
    let line = at.map(|at| format!("{}:{}", at.file(), at.line()));
    match Fault::here(kind, line, message) {
        // Unwinding without the panic hook: the fault is returned, not printed.
        Some(fault) => panic::resume_unwind(Box::new(Fault { other, ..fault })),
        None => panic!("{} outside a kernel", kind.words()),
    }
}

/// A device assertion's failure or a trap: ends the launch with a fault that names kernel, block and thread.
#[cold]
#[track_caller]
pub fn fault(message: fmt::Arguments<'_>) -> ! {
    raise(FaultKind::Trap, Some(Location::caller()), message.to_string())
}

thread_local! {
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics inside kernels silent: they come back as the launch's fault. Others keep the hook they had.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CURRENT.with(|current| current.run.get().is_null()) {
                previous(info);
            } else {
                let line = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
                PANICKED_AT.set(line);
            }
        }));
    });
}
