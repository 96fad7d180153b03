//! Counts driver calls: by name, thread, phase and place, with bytes where an argument tells them.
//!
//! What another backend does in a driver call's place is counted too, by [`record`], under the driver's name behind [`CPU_PREFIX`]:
//! `cpu:cuGraphLaunch` is the CPU doing what `cuGraphLaunch` does. So are accesses to mapped memory, which are no calls
//! ([`MAPPED_LOAD`], [`MAPPED_STORE`]).
//!
//! Off, it costs each call one predictable branch. On, it costs a lock and a look-up.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::symbols::{COUNTING, NAMES};

/// What stands before a driver's name where the CPU did what that function does.
pub const CPU_PREFIX: &str = "cpu:";
/// The host read mapped memory: plain loads, no call.
pub const MAPPED_LOAD: &str = "mapped load";
/// The host wrote mapped memory: plain stores, no call.
pub const MAPPED_STORE: &str = "mapped store";

/// What the program is doing, for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Phase {
    /// Building: devices, memory, modules, graphs.
    Setup,
    /// Training steps.
    Step,
    /// Between epochs.
    EpochBoundary,
    /// Saving or restoring a run.
    Checkpoint,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Setup, Self::Step, Self::EpochBoundary, Self::Checkpoint];
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Starts a graph.
    GraphLaunch,
    /// Starts a kernel or a host function.
    Launch,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Memset,
    /// Takes, gives back or maps memory.
    Memory,
    /// Makes, records or waits for an event.
    Event,
    /// Waits for the device, or asks how far it is.
    Synchronize,
    /// Reads or writes mapped memory, without a call.
    Mapped,
    /// Anything else.
    Other,
}

/// Which way a call's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the device.
    HostToDevice,
    /// From the device.
    DeviceToHost,
    /// On the device.
    DeviceToDevice,
}

/// The memory that a call is about; of a copy between host and device, the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The device's own.
    Device,
    /// The host's, as a program has it; that of every copy is taken to be, for pinned memory gives out no slices.
    Pageable,
    /// The host's, pinned and mapped into the device.
    Pinned,
    /// Both sides'.
    Managed,
}

impl CallKind {
    /// The kind of the driver's function `name`, or of what stands for it.
    pub fn of(name: &str) -> Self {
        let name = driver_name(name);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if starts(&[MAPPED_LOAD, MAPPED_STORE]) {
            Self::Mapped
        } else if starts(&["cuGraphLaunch"]) {
            Self::GraphLaunch
        } else if starts(&["cuLaunch"]) {
            Self::Launch
        } else if starts(&["cuMemcpy", "cuMemPrefetch"]) {
            Self::Copy
        } else if starts(&["cuMemset"]) {
            Self::Memset
        } else if name.contains("Synchronize") || name.ends_with("Query") || starts(&["cuStreamWait"]) {
            Self::Synchronize
        } else if starts(&["cuEvent"]) {
            Self::Event
        } else if starts(&["cuMem"]) {
            Self::Memory
        } else {
            Self::Other
        }
    }
}

impl Direction {
    /// Which way the bytes of the driver's function `name` go, or of what stands for it; none where none move.
    pub fn of(name: &str) -> Option<Self> {
        let name = driver_name(name);
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if name == MAPPED_STORE || has(&["cuMemcpyHto"]) {
            Some(Self::HostToDevice)
        } else if name == MAPPED_LOAD || has(&["cuMemcpyDtoH", "cuMemcpyAtoH"]) {
            Some(Self::DeviceToHost)
        } else if has(&["cuMemcpyDto", "cuMemcpyAto", "cuMemcpyPeer"]) {
            Some(Self::DeviceToDevice)
        } else {
            None
        }
    }
}

impl MemoryKind {
    /// The memory that the driver's function `name` is about, or what stands for it; none where it is about none.
    pub fn of(name: &str) -> Option<Self> {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| driver_name(name).starts_with(prefix));
        match (CallKind::of(name), Direction::of(name)) {
            (CallKind::Mapped, _) => Some(Self::Pinned),
            (CallKind::Copy, Some(Direction::HostToDevice | Direction::DeviceToHost)) => Some(Self::Pageable),
            (CallKind::Copy, Some(Direction::DeviceToDevice)) | (CallKind::Memset, _) => Some(Self::Device),
            (CallKind::Memory, _) if starts(&["cuMemHost", "cuMemAllocHost", "cuMemFreeHost"]) => Some(Self::Pinned),
            (CallKind::Memory, _) if starts(&["cuMemAllocManaged"]) => Some(Self::Managed),
            (CallKind::Memory, _) if starts(&["cuMemAlloc", "cuMemFree"]) => Some(Self::Device),
            _ => None,
        }
    }
}

/// The driver's function that `name` stands for.
fn driver_name(name: &str) -> &str {
    name.strip_prefix(CPU_PREFIX).unwrap_or(name)
}

/// One line of the ledger: calls that agree in everything but bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// The driver's function, or what stands for it.
    pub name: &'static str,
    /// What it does.
    pub kind: CallKind,
    /// Which way its bytes go.
    pub direction: Option<Direction>,
    /// The memory that it is about.
    pub memory: Option<MemoryKind>,
    /// The phase it was called in.
    pub phase: Phase,
    /// The calling thread: its number in order of first call, from 1, and its name.
    pub thread: String,
    /// The source line that asked for the call, if the caller said so by [`place`].
    pub place: Option<String>,
    /// Calls.
    pub calls: u64,
    /// Bytes copied, filled, taken or pinned, where an argument tells.
    pub bytes: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    phase: Phase,
    thread: u32,
    name: &'static str,
    place: Option<(&'static str, u32)>,
}

#[derive(Default)]
struct Tally {
    calls: u64,
    bytes: u64,
}

struct Book {
    tallies: BTreeMap<Key, Tally>,
    thread_names: BTreeMap<u32, String>,
}

static BOOK: Mutex<Book> = Mutex::new(Book { tallies: BTreeMap::new(), thread_names: BTreeMap::new() });
static PHASE: AtomicU8 = AtomicU8::new(Phase::Setup as u8);
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Neither has a destructor, so that calls from other thread-locals' destructors can be counted.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    static PLACE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Starts counting.
pub fn enable() {
    COUNTING.store(true, Ordering::Release);
}

/// Stops counting; what was counted stays.
pub fn disable() {
    COUNTING.store(false, Ordering::Release);
}

/// Whether calls are counted.
pub fn is_enabled() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

/// Forgets what was counted.
pub fn reset() {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner).tallies.clear();
}

/// Sets the phase, and returns the one before.
pub fn set_phase(phase: Phase) -> Phase {
    Phase::ALL[PHASE.swap(phase as u8, Ordering::Relaxed) as usize]
}

/// Sets the phase until the value is dropped, which sets the one before again.
pub fn phase(phase: Phase) -> PhaseScope {
    PhaseScope { before: set_phase(phase) }
}

/// A phase that lasts as long as the value: [`phase`].
#[must_use]
pub struct PhaseScope {
    before: Phase,
}

impl Drop for PhaseScope {
    fn drop(&mut self) {
        set_phase(self.before);
    }
}

/// Names the source line that this thread's next calls are made for; None for no line. Returns the one before.
pub fn place(location: Option<&'static Location<'static>>) -> Option<&'static Location<'static>> {
    PLACE.replace(location)
}

/// What was counted, ordered by phase, thread, name and place.
pub fn snapshot() -> Vec<Entry> {
    let book = BOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let line = |(key, tally): (&Key, &Tally)| Entry {
        name: key.name,
        kind: CallKind::of(key.name),
        direction: Direction::of(key.name),
        memory: MemoryKind::of(key.name),
        phase: key.phase,
        thread: book.thread_names.get(&key.thread).cloned().unwrap_or_default(),
        place: key.place.map(|(file, line)| format!("{file}:{line}")),
        calls: tally.calls,
        bytes: tally.bytes,
    };
    book.tallies.iter().map(line).collect()
}

/// Counts what is no driver call, made by this function's caller: `name` is a driver's function behind [`CPU_PREFIX`],
/// [`MAPPED_LOAD`] or [`MAPPED_STORE`].
#[inline]
#[track_caller]
pub fn record(name: &'static str, bytes: usize) {
    if is_enabled() {
        add(name, Some(Location::caller()), bytes as u64);
    }
}

/// Counts one call of the function with that index.
pub(crate) fn count(index: usize, arguments: &[u64; 6]) {
    add(NAMES[index], PLACE.get(), bytes(NAMES[index], arguments));
}

fn add(name: &'static str, place: Option<&'static Location<'static>>, bytes: u64) {
    let phase = Phase::ALL[PHASE.load(Ordering::Relaxed) as usize];
    let mut book = BOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = thread_number(&mut book);
    let place = place.map(|location| (location.file(), location.line()));
    let tally = book.tallies.entry(Key { phase, thread, name, place }).or_default();
    tally.calls += 1;
    tally.bytes += bytes;
}

fn thread_number(book: &mut Book) -> u32 {
    if THREAD.get() == 0 {
        let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
        THREAD.set(number);
        book.thread_names.insert(number, format!("{number} {}", thread_name()).trim_end().to_owned());
    }
    THREAD.get()
}

/// The system's name of this thread: unlike `std::thread::current`, it may be asked for while the thread ends.
fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: the buffer is as long as said, and Linux's names have at most 15 bytes and a zero.
    let status = unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len()) };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    if status == 0 { String::from_utf8_lossy(&name[..end]).into_owned() } else { String::new() }
}

/// The bytes that a call moves, fills or takes, by the position of its size argument in the driver's signature.
fn bytes(name: &str, arguments: &[u64; 6]) -> u64 {
    match name {
        "cuMemAlloc_v2"
        | "cuMemAllocHost_v2"
        | "cuMemHostAlloc"
        | "cuMemAllocManaged"
        | "cuMemAllocAsync"
        | "cuMemAllocFromPoolAsync"
        | "cuMemHostRegister_v2" => arguments[1],
        "cuMemcpy"
        | "cuMemcpyAsync"
        | "cuMemcpyHtoD_v2"
        | "cuMemcpyDtoH_v2"
        | "cuMemcpyDtoD_v2"
        | "cuMemcpyHtoDAsync_v2"
        | "cuMemcpyDtoHAsync_v2"
        | "cuMemcpyDtoDAsync_v2"
        | "cuMemsetD8_v2"
        | "cuMemsetD8Async" => arguments[2],
        "cuMemsetD16_v2" | "cuMemsetD16Async" => arguments[2].saturating_mul(2),
        "cuMemsetD32_v2" | "cuMemsetD32Async" => arguments[2].saturating_mul(4),
        "cuMemcpyDtoA_v2"
        | "cuMemcpyAtoD_v2"
        | "cuMemcpyHtoA_v2"
        | "cuMemcpyAtoH_v2"
        | "cuMemcpyHtoAAsync_v2"
        | "cuMemcpyAtoHAsync_v2" => arguments[3],
        "cuMemcpyPeer" | "cuMemcpyPeerAsync" | "cuMemcpyAtoA_v2" => arguments[4],
        _ => 0,
    }
}
