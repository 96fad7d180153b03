//! What every access through a view is checked for.

use std::ops::Range;
use std::panic::Location;

use super::fault::{FaultKind, raise};
use super::position::CURRENT;
use super::shadow::Shadow;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Atomic,
}

impl Kind {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic operation",
        }
    }
}

/// Called before every load through a view: of `count` elements from `index` on, in one instruction.
#[inline(always)]
#[track_caller]
pub fn on_read<T>(shadow: Option<&Shadow>, base: *const T, len: usize, index: usize, count: usize) {
    on_access(Kind::Read, shadow, base, len, index, count);
}

/// Called before every store through a view.
#[inline(always)]
#[track_caller]
pub fn on_write<T>(shadow: Option<&Shadow>, base: *const T, len: usize, index: usize, count: usize) {
    on_access(Kind::Write, shadow, base, len, index, count);
}

/// Rows of a view that are accessed together.
pub struct Rows {
    /// The first element.
    pub first: usize,
    /// From a row's first element to the next one's.
    pub stride: usize,
    /// Rows.
    pub n_rows: usize,
    /// Elements of a row.
    pub width: usize,
}

/// Called where a panel that is read is made.
#[inline(always)]
#[track_caller]
pub fn on_read_rows<T, const N: usize>(shadow: Option<&Shadow>, base: *const T, len: usize, rows: &Rows) {
    on_rows::<T, N>(Kind::Read, shadow, base, len, rows);
}

/// Called where a panel that is written is made.
#[inline(always)]
#[track_caller]
pub fn on_write_rows<T, const N: usize>(shadow: Option<&Shadow>, base: *const T, len: usize, rows: &Rows) {
    on_rows::<T, N>(Kind::Write, shadow, base, len, rows);
}

/// Called before every atomic operation through a view.
#[inline(always)]
#[track_caller]
pub fn on_atomic<T>(shadow: Option<&Shadow>, base: *const T, len: usize, index: usize) {
    on_access(Kind::Atomic, shadow, base, len, index, 1);
}

/// Called where a view of part of a view is made.
#[inline(always)]
#[track_caller]
pub fn on_sub<T>(base: *const T, len: usize, range: &Range<usize>) {
    if range.start > range.end || range.end > len {
        sub_out_of_bounds(Target::of(base, len, range.start, range.end.wrapping_sub(range.start)), Location::caller());
    }
}

#[inline(always)]
#[track_caller]
fn on_access<T>(kind: Kind, shadow: Option<&Shadow>, base: *const T, len: usize, index: usize, count: usize) {
    // Of a loop over one view the difference is worked out once.
    if count > len || index > len - count {
        out_of_bounds(kind, Target::of(base, len, index, count), Location::caller());
    }
    let bytes = count * size_of::<T>();
    if count > 1 && (base as usize + index * size_of::<T>()) & (bytes - 1) != 0 {
        unaligned(kind, Target::of(base, len, index, count), Location::caller());
    }
    if let Some(shadow) = shadow {
        note(shadow, kind, Target::of(base, len, index, count), Location::caller());
    }
}

#[inline(always)]
#[track_caller]
fn on_rows<T, const N: usize>(kind: Kind, shadow: Option<&Shadow>, base: *const T, len: usize, rows: &Rows) {
    let Rows { first, stride, n_rows, width } = *rows;
    if n_rows == 0 || width == 0 {
        return;
    }
    // In 128 bits nothing of it overflows.
    let end = first as u128 + (n_rows - 1) as u128 * stride as u128 + width as u128;
    if end > len as u128 {
        let last = first.wrapping_add((n_rows - 1).wrapping_mul(stride));
        out_of_bounds(kind, Target::of(base, len, last, width), Location::caller());
    }
    let starts = (base as usize + first * size_of::<T>()) | (stride * size_of::<T>() * usize::from(n_rows > 1));
    if starts & (N * size_of::<T>() - 1) != 0 {
        unaligned(kind, Target::of(base, len, first, N), Location::caller());
    }
    if let Some(shadow) = shadow {
        for row in 0..n_rows {
            note(shadow, kind, Target::of(base, len, first + row * stride, width), Location::caller());
        }
    }
}

/// Checks and notes the access. Cold, so that a kernel that is not checked keeps its values in registers across accesses: the
/// call would clobber them.
#[cold]
#[inline(never)]
fn note(shadow: &Shadow, kind: Kind, target: Target, at: &'static Location<'static>) {
    shadow.access(kind, target, at);
}

/// The memory that an access names.
#[derive(Clone, Copy)]
pub(super) struct Target {
    base: usize,
    len: usize,
    index: usize,
    element: usize,
    count: usize,
}

impl Target {
    #[inline(always)]
    fn of<T>(base: *const T, len: usize, index: usize, count: usize) -> Self {
        Self { base: base as usize, len, index, element: size_of::<T>(), count }
    }

    /// The first byte's address.
    pub(super) fn address(&self) -> usize {
        self.base.wrapping_add(self.index.wrapping_mul(self.element))
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count * self.element
    }

    /// The memory by the name of the kernel's parameter, with the element's index in it and its address.
    pub(super) fn name(&self) -> String {
        let address = self.address();
        let elements = |first: usize| match self.count {
            1 => format!("[{first}]"),
            n => format!("[{first}..{}]", first.wrapping_add(n)),
        };
        let parameter = CURRENT.with(|current| {
            // SAFETY: null, or the launch that this operating-system thread is inside of.
            let run = unsafe { current.run.get().as_ref() }?;
            let start = |claim: &crate::launch::Claim| claim.range.address() as usize;
            let claims = run.launch.claims();
            let claim = claims
                .iter()
                .find(|claim| (start(claim)..start(claim) + claim.range.bytes()).contains(&self.base))
                .or_else(|| claims.iter().find(|claim| start(claim) == self.base))?;
            let first = (self.base - start(claim)) / self.element.max(1);
            let whole = claim.range.bytes() / self.element.max(1);
            Some(format!("`{}`{} of {whole} elements", claim.parameter, elements(first.wrapping_add(self.index))))
        });
        match parameter {
            Some(name) if self.len == 0 => format!("{name}, an empty view, address {address:#x}"),
            Some(name) => format!("{name}, address {address:#x}"),
            None => format!("shared memory {} of {} elements, address {address:#x}", elements(self.index), self.len),
        }
    }
}

#[cold]
#[inline(never)]
fn out_of_bounds(kind: Kind, target: Target, at: &'static Location<'static>) -> ! {
    let view = format!("element {} of a view of {}", target.index, target.len);
    raise(FaultKind::OutOfBounds, Some(at), format!("{} of {view}: {}", kind.words(), target.name()))
}

#[cold]
#[inline(never)]
fn sub_out_of_bounds(target: Target, at: &'static Location<'static>) -> ! {
    let end = target.index.wrapping_add(target.count);
    let view = format!("elements {}..{end} of a view of {}", target.index, target.len);
    raise(FaultKind::OutOfBounds, Some(at), format!("view of {view}: {}", target.name()))
}

#[cold]
#[inline(never)]
fn unaligned(kind: Kind, target: Target, at: &'static Location<'static>) -> ! {
    let message = format!(
        "{} of {} bytes at once, which must lie at a multiple of {}: {}",
        kind.words(),
        target.bytes(),
        target.bytes(),
        target.name()
    );
    raise(FaultKind::Unaligned, Some(at), message)
}

/// Called by memory fences of device scope and wider, and by atomic operations that order memory: what other blocks did
/// before their fences comes before what this thread does after this one.
pub fn fence() {
    CURRENT.with(|current| {
        // SAFETY: null, or the launch and the block that this operating-system thread is inside of.
        let (run, block) = unsafe { (current.run.get().as_ref(), current.block.get().as_ref()) };
        let Some(run) = run.filter(|run| run.options.check) else { return };
        let number = run.fences.fence(run.linear_block(current.block_idx.get()));
        match block {
            Some(block) => block.clocks.fence(current.thread_in_block() as usize, number),
            None => current.fenced.set(number),
        }
    });
}

/// The running thread has waited for others of its block or another.
pub(super) fn acquire() {
    CURRENT.with(|current| {
        // SAFETY: null, or the state of the block that this thread belongs to.
        if let Some(block) = unsafe { current.block.get().as_ref() } {
            block.clocks.acquire(current.thread_in_block() as usize);
        }
    });
    fence();
}
