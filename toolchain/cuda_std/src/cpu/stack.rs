//! Stacks for coroutines: a warp's at a time, each with a guard page, kept for the next launch.

use std::io;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use corosensei::stack::{Stack, StackPointer};

/// Stacks in a region.
pub(super) const STACKS: usize = 32;
const PAGE: usize = 4096;

/// One mapping of 32 stacks, each above its guard page.
pub(super) struct Region {
    start: usize,
    stack_bytes: usize,
    number: usize,
}

impl Region {
    fn new(stack_bytes: usize) -> io::Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let bytes = STACKS * (stack_bytes + PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let region = Self { start: start as usize, stack_bytes, number: NUMBER.fetch_add(1, Ordering::Relaxed) };
        for index in 0..STACKS {
            let guard = region.guard(index) as *mut libc::c_void;
            // SAFETY: the guard page lies in the mapping made above, which nothing uses yet.
            if unsafe { libc::mprotect(guard, PAGE, libc::PROT_NONE) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(region)
    }

    fn guard(&self, index: usize) -> usize {
        self.start + index * (self.stack_bytes + PAGE)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size; its stacks hold the region alive, so none is in use.
        unsafe { libc::munmap(self.start as *mut libc::c_void, STACKS * (self.stack_bytes + PAGE)) };
    }
}

/// One stack of a region.
pub(super) struct WarpStack {
    base: NonZeroUsize,
    guard: NonZeroUsize,
    /// Keeps the mapping.
    _region: Arc<Region>,
}

impl WarpStack {
    /// The 32 stacks of a region.
    pub(super) fn all(region: &Arc<Region>) -> impl Iterator<Item = Self> {
        (0..STACKS).map(|index| {
            let guard = region.guard(index);
            let top = guard + PAGE + region.stack_bytes;
            // Shifted by a number of cache lines that differs from stack to stack: with all tops at the same place of a
            // page, the hot lines of a block's threads would fall into one set of the first-level cache.
            let shift = (region.number * STACKS + index) * 7 % 61 * 64;
            let address = |address| NonZeroUsize::new(address).expect("a mapping does not start at 0");
            Self { base: address(top - shift), guard: address(guard), _region: region.clone() }
        })
    }

    /// The guard page's first address.
    pub(super) fn guard(&self) -> usize {
        self.guard.get()
    }
}

// SAFETY: `base` and `limit` enclose one slot of a region's mapping: a guard page that no access passes, and above it
// `stack_bytes` (at least 16 KiB, checked by `take`, less the shift of under 4 KiB) of memory used by this stack alone.
unsafe impl Stack for WarpStack {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.guard
    }
}

#[derive(Default)]
struct Pool {
    free: Vec<Arc<Region>>,
    live: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), live: 0 });
static RETURNED: Condvar = Condvar::new();

/// The most regions alive at a time. A stack is two mappings (itself and its guard page), and all of them together stay
/// under half of what the process may map, `vm.max_map_count`.
fn max_regions() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse::<usize>().unwrap_or(65_530) / (2 * 2 * STACKS)
    })
}

/// What to do while others hold so many stacks that there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnShortage {
    /// Wait; only for one that holds none itself.
    Wait,
    /// Fail.
    Fail,
}

/// Regions with room for `n_threads` stacks of at least `stack_bytes`.
///
/// # Errors
/// A sentence that says what the system refused and what to do.
pub(super) fn take(n_threads: usize, stack_bytes: usize, on_shortage: OnShortage) -> Result<Vec<Arc<Region>>, String> {
    let stack_bytes = stack_bytes.max(4 * PAGE).next_multiple_of(PAGE);
    let n = n_threads.div_ceil(STACKS);
    if n > max_regions() {
        return Err(format!(
            "a block of {n_threads} threads needs {} memory mappings for its stacks, and half of vm.max_map_count is {}; \
             raise it with `sysctl vm.max_map_count`, or use smaller blocks",
            2 * STACKS * n,
            2 * STACKS * max_regions()
        ));
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    while pool.live + n > max_regions() {
        if on_shortage == OnShortage::Fail {
            return Err("no room for further stacks".to_owned());
        }
        pool = RETURNED.wait(pool).unwrap_or_else(PoisonError::into_inner);
    }
    let mut taken: Vec<Arc<Region>> = Vec::with_capacity(n);
    while taken.len() < n {
        match pool.free.iter().rposition(|region| region.stack_bytes == stack_bytes) {
            Some(found) => taken.push(pool.free.swap_remove(found)),
            None => {
                // Stacks of another size make room: their mappings count as well.
                if pool.live + taken.len() + pool.free.len() >= max_regions() {
                    pool.free.pop();
                }
                taken.push(Arc::new(Region::new(stack_bytes).map_err(|error| {
                    format!("no memory for {STACKS} stacks of {stack_bytes} bytes ({error}); run with fewer threads")
                })?));
            }
        }
    }
    pool.live += n;
    Ok(taken)
}

/// Returns what `take` gave.
pub(super) fn give_back(regions: Vec<Arc<Region>>) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.live -= regions.len();
    pool.free.extend(regions);
    drop(pool);
    RETURNED.notify_all();
}
