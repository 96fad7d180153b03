//! Shared memory of a block.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::slice;

use super::fault::{Fault, FaultKind, raise};
use super::position::CURRENT;
use super::shadow::Shadow;
use super::state::state;
use crate::launch::KernelInfo;
use crate::shape::Dim3;

/// Most shared memory that a block can have, bytes: 227 KB, as on compute capability 9.0.
pub(super) const MAX_SHARED_BYTES: usize = 227 * 1024;

/// The strictest alignment that the hardware asks for in shared memory: that of swizzled bulk copies.
const ALIGN: usize = 1024;

/// Bytes before and behind a zone that hold [`GUARD`] while checking. What raw pointers do is not seen access by access; what
/// they wrote just outside their array is seen when the block ends.
const GUARD_BYTES: usize = ALIGN;
const GUARD: u8 = 0xA5;

/// The place in the source that declares a zone of shared memory, and the type that it was declared for.
#[derive(Clone, Copy, Debug)]
pub struct SharedSite {
    at: &'static Location<'static>,
    element: &'static str,
}

impl SharedSite {
    /// The caller's place; zones of generic code are told apart by `T`.
    #[track_caller]
    #[inline]
    pub fn here<T>() -> Self {
        Self { at: Location::caller(), element: std::any::type_name::<T>() }
    }
}

impl PartialEq for SharedSite {
    /// Mostly decided by the addresses of the texts; equal texts may lie at several.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.at, other.at) && std::ptr::eq(self.element, other.element)
            || self.at == other.at && self.element == other.element
    }
}

/// Memory with the strictest alignment.
struct Zone {
    site: Option<SharedSite>,
    /// Between the guards, if there are any.
    start: *mut u8,
    bytes: usize,
    /// Bytes of each guard.
    guard: usize,
    shadow: Option<Box<Shadow>>,
    /// The block that it was last prepared for.
    block: Cell<u64>,
}

impl Zone {
    fn layout(bytes: usize, guard: usize) -> Layout {
        Layout::from_size_align((guard + bytes + guard).max(1), ALIGN).expect("at most 227 KB and two guards")
    }

    fn new(site: Option<SharedSite>, bytes: usize, check: bool) -> Self {
        let guard = if check { GUARD_BYTES } else { 0 };
        let layout = Self::layout(bytes, guard);
        // SAFETY: the layout's size is not zero.
        let whole = unsafe { alloc(layout) };
        if whole.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the memory was allocated with at least a guard, `bytes`, and a guard. Rust code must not read memory that
        // nothing wrote, which a kernel's shared memory is on the device; here it holds all ones, a NaN as a float.
        let start = unsafe {
            whole.write_bytes(GUARD, layout.size());
            let start = whole.add(guard);
            start.write_bytes(0xFF, bytes);
            start
        };
        let shadow = check.then(|| {
            let mut shadow = Box::new(Shadow::new(bytes));
            shadow.set_address(start as u64);
            shadow
        });
        Self { site, start, bytes, guard, shadow, block: Cell::new(0) }
    }

    /// What was written outside of the zone since it was made, as bytes from its start.
    fn overrun(&self) -> Option<isize> {
        let at = [-self.guard.cast_signed(), self.bytes.cast_signed()];
        at.into_iter().find_map(|first| {
            // SAFETY: a guard, part of the zone's allocation and written when that was made; no thread of the block is running.
            let guard = unsafe { slice::from_raw_parts(self.start.offset(first), self.guard) };
            if guard == &[GUARD; GUARD_BYTES][..self.guard] {
                return None;
            }
            Some(first + guard.iter().position(|&byte| byte != GUARD)?.cast_signed())
        })
    }

    /// While checking, forgets what an earlier block wrote.
    fn prepare(&self, block: u64) {
        if let Some(shadow) = &self.shadow
            && self.block.replace(block) != block
        {
            shadow.forget();
            // SAFETY: the zone's own memory, which no other operating-system thread uses and this block has not yet seen.
            unsafe { self.start.write_bytes(0xFF, self.bytes) };
        }
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the zone begins behind the first guard.
        unsafe { dealloc(self.start.sub(self.guard), Self::layout(self.bytes, self.guard)) };
    }
}

/// The zones of a block; kept for the next block of the launch.
pub(super) struct SharedMemory {
    check: bool,
    dynamic: Zone,
    zones: RefCell<Vec<Zone>>,
    block: Cell<u64>,
}

impl SharedMemory {
    pub(super) fn new(dynamic_bytes: usize, check: bool) -> Self {
        Self { check, dynamic: Zone::new(None, dynamic_bytes, check), zones: RefCell::default(), block: Cell::new(0) }
    }

    pub(super) fn start_block(&self) {
        self.block.set(self.block.get() + 1);
    }

    fn zone(&self, site: SharedSite, bytes: usize, at: &'static Location<'static>) -> *mut u8 {
        let mut zones = self.zones.borrow_mut();
        let zone = match zones.iter().position(|zone| zone.bytes == bytes && zone.site == Some(site)) {
            Some(index) => &zones[index],
            None => {
                let total = self.dynamic.bytes + zones.iter().map(|zone| zone.bytes).sum::<usize>() + bytes;
                if total > MAX_SHARED_BYTES {
                    drop(zones);
                    let message = format!(
                        "{total} bytes, static and dynamic together: at most {MAX_SHARED_BYTES} (227 KB) a block"
                    );
                    raise(FaultKind::SharedMemory, Some(at), message);
                }
                zones.push(Zone::new(Some(site), bytes, self.check));
                zones.last().expect("just pushed")
            }
        };
        zone.prepare(self.block.get());
        zone.start
    }

    /// Whether a thread of block `block`, which has ended, wrote just outside of one of its arrays.
    pub(super) fn overrun(&self, kernel: &'static KernelInfo, block: Dim3) -> Option<Fault> {
        let zones = self.zones.borrow();
        let (zone, at) =
            std::iter::once(&self.dynamic).chain(zones.iter()).find_map(|zone| Some((zone, zone.overrun()?)))?;
        let place = if at < 0 { format!("{} bytes before", -at) } else { format!("at byte {at} of") };
        let what = match zone.site {
            Some(site) => format!("a shared array of {} bytes ({})", zone.bytes, site.element),
            None => format!("dynamic shared memory, {} bytes; the launch's shape gives its size", zone.bytes),
        };
        let Dim3 { x, y, z } = block;
        let message = format!("a thread of block ({x}, {y}, {z}) wrote {place} {what}");
        let line = zone.site.map(|site| format!("{}:{}", site.at.file(), site.at.line()));
        Some(Fault { line, ..Fault::of_launch(kernel, FaultKind::OutOfBounds, message) })
    }

    /// What the checker knows of the zone around `address`.
    fn shadow(&self, address: *const u8) -> Option<*const Shadow> {
        let inside =
            |zone: &Zone| (zone.start as usize..zone.start as usize + zone.bytes).contains(&(address as usize));
        let of = |zone: &Zone| zone.shadow.as_deref().map(std::ptr::from_ref);
        if inside(&self.dynamic) {
            return of(&self.dynamic);
        }
        self.zones.borrow().iter().find(|zone| inside(zone)).and_then(of)
    }
}

/// The block's zone for a place in the source: the same memory for all threads of the block, its contents undefined when
/// the block starts.
#[track_caller]
pub fn shared_static(site: SharedSite, bytes: usize, align: usize) -> *mut u8 {
    let at = Location::caller();
    assert!(align <= ALIGN, "shared memory is aligned to at most {ALIGN} bytes");
    state("shared memory", at).shared.zone(site, bytes, at)
}

/// The block's dynamic shared memory and its size in bytes, as the launch's shape gives it.
#[track_caller]
pub fn dynamic_shared() -> (*mut u8, usize) {
    let shared = &state("dynamic shared memory", Location::caller()).shared;
    shared.dynamic.prepare(shared.block.get());
    (shared.dynamic.start, shared.dynamic.bytes)
}

/// `bytes` of the block's dynamic shared memory from `offset` on.
#[track_caller]
pub fn dynamic_part(offset: usize, bytes: usize, align: usize) -> *mut u8 {
    let at = Location::caller();
    let (start, size) = dynamic_shared();
    if offset > size || bytes > size - offset {
        let end = offset.wrapping_add(bytes);
        let message =
            format!("bytes {offset}..{end} of {size} of dynamic shared memory; the launch's shape gives its size");
        raise(FaultKind::OutOfBounds, Some(at), message);
    }
    if !offset.is_multiple_of(align) {
        let message = format!("byte {offset} of dynamic shared memory, for elements that are aligned to {align} bytes");
        raise(FaultKind::Unaligned, Some(at), message);
    }
    start.wrapping_add(offset)
}

/// What the checker knows of shared memory around `address`; none when nothing is checked.
///
/// The pointer is valid while the block runs.
pub fn shared_shadow(address: *const u8) -> Option<*const Shadow> {
    let block = CURRENT.with(|current| current.block.get());
    // SAFETY: null, or the state of the block that this thread belongs to.
    let block = unsafe { block.as_ref() }?;
    if block.check { block.shared.shadow(address) } else { None }
}
