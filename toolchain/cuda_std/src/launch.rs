//! The host's side of a launch: handles of device memory, and a kernel with its arguments bound.

mod work;

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

pub use work::Work;

use crate::cpu::{Block, Shadow};

/// What is known of a kernel without running it.
#[derive(Debug)]
pub struct KernelInfo {
    /// Entry name in the PTX.
    pub name: &'static str,
    /// Whether it uses barriers, shared memory or warp operations.
    pub cooperative: bool,
    /// Most threads a block may have, if the kernel bounds them.
    pub max_threads: Option<u32>,
    /// Source file.
    pub file: &'static str,
    /// Source line.
    pub line: u32,
}

/// One allocation of device memory, owned. Launches and graphs that name it share its ownership.
pub struct DeviceMemory {
    device: u64,
    address: u64,
    bytes: usize,
    shadow: Option<Box<Shadow>>,
    /// Frees the memory when dropped.
    _owner: Box<dyn Any + Send + Sync>,
}

impl DeviceMemory {
    /// Takes over the memory of `bytes` at `address`, which dropping `owner` frees. `device` is a number of the caller's
    /// for the device that reaches the memory.
    pub fn new(
        device: u64,
        address: u64,
        bytes: usize,
        mut shadow: Option<Box<Shadow>>,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        if let Some(shadow) = &mut shadow {
            shadow.set_address(address);
        }
        Self { device, address, bytes, shadow, _owner: owner }
    }

    /// The number of the device that reaches the memory.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// The address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The checker's record of the memory, on a CPU device that checks.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_deref()
    }
}

/// A range of an allocation.
#[derive(Clone)]
pub struct MemoryRange {
    memory: Arc<DeviceMemory>,
    range: Range<usize>,
}

impl MemoryRange {
    /// The bytes `range` of `memory`.
    ///
    /// # Panics
    /// If the range passes the memory's end.
    pub fn new(memory: Arc<DeviceMemory>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= memory.bytes, "{range:?} passes {} bytes", memory.bytes);
        Self { memory, range }
    }

    /// The range's first address.
    pub fn address(&self) -> u64 {
        self.memory.address + self.range.start as u64
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Where it lies in its allocation, bytes.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The allocation.
    pub fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// The checker's record of the whole allocation.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.memory.shadow()
    }

    /// Whether two ranges share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
            && !self.range.is_empty()
            && !other.range.is_empty()
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'a, T> {
            range: MemoryRange,
            life: PhantomData<&'a T>,
        }

        impl<T> $name<'_, T> {
            /// A handle of all whole elements in `range`.
            ///
            /// # Panics
            /// If the range is not aligned for `T` or not a whole number of elements.
            ///
            /// # Safety
            /// When the kernel runs, the range's bytes are valid values of `T`; and what a kernel stores as a `T` is valid
            /// for everything else that reads the range.
            pub unsafe fn new(range: MemoryRange) -> Self {
                assert!(range.address() as usize % align_of::<T>() == 0, "misaligned for {}", std::any::type_name::<T>());
                assert!(size_of::<T>() > 0 && range.bytes() % size_of::<T>() == 0, "not whole elements");
                Self { range, life: PhantomData }
            }

            /// Elements.
            pub fn len(&self) -> usize {
                self.range.bytes() / size_of::<T>()
            }

            /// Whether there is no element.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// The memory.
            pub fn memory(&self) -> &MemoryRange {
                &self.range
            }
        }
    };
}

handle!(
    /// Device memory that a kernel reads, for a parameter `GlobalSlice<T>` or `&[T]`.
    DeviceSlice
);
handle!(
    /// Device memory that a kernel reads and writes, for a parameter `GlobalSliceMut<T>` or `&mut [T]`.
    DeviceSliceMut
);
handle!(
    /// Device memory that a kernel reads through a parameter `*const T` or `&T`.
    DevicePtr
);
handle!(
    /// Device memory that a kernel reads and writes through a parameter `*mut T` or `&mut T`.
    DevicePtrMut
);

/// What a kernel may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads alone.
    Read,
    /// Stores, loads and atomics.
    Write,
}

/// One parameter's claim on device memory.
#[derive(Clone)]
pub struct Claim {
    /// The parameter's name.
    pub parameter: &'static str,
    /// The memory.
    pub range: MemoryRange,
    /// What the kernel may do with it.
    pub access: Access,
    /// Whether the kernel reaches it through a view, whose accesses the checker sees.
    pub tracked: bool,
    /// Bytes of it that move: all of them once, unless [`Launch::moves`] says otherwise.
    moved: u64,
}

/// Two parameters of one launch reach the same memory, and the kernel may write it through one of them.
///
/// A kernel may assume of its views that no other one changes what they show; the read-only path of the GPU's caches does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{writer}` and `{other}` overlap by {bytes} bytes at address {address:#x}, and the kernel may write through \
     `{writer}`: pass memory that does not overlap, or write a kernel that takes it once"
)]
pub struct ClaimConflict {
    /// The parameter that the kernel may write through.
    pub writer: &'static str,
    /// The other parameter.
    pub other: &'static str,
    /// Where the overlap starts.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

/// Collects a launch's parameters as the driver wants them, and what memory they reach.
#[derive(Default)]
pub struct Binder {
    words: Vec<Box<[u128]>>,
    claims: Vec<Claim>,
    condition: Option<Condition>,
}

/// The last parameter of a conditional kernel: the word that says whether it does anything.
enum Condition {
    /// No word: it always does.
    Always,
    /// It does where the word is not 0.
    If(MemoryRange),
}

impl Binder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter passed by value.
    pub fn value<T: Copy>(&mut self, value: &T) {
        let mut words = vec![0u128; size_of::<T>().div_ceil(16).max(1)].into_boxed_slice();
        const { assert!(align_of::<T>() <= 16, "a kernel parameter is aligned to at most 16 bytes") };
        // SAFETY: the destination has room for a `T`, is aligned for it, and is not read as anything but bytes.
        unsafe { words.as_mut_ptr().cast::<T>().write(*value) };
        self.words.push(words);
    }

    /// Adds a view: address and length, each access tracked by the checker.
    pub fn view<T>(&mut self, parameter: &'static str, range: &MemoryRange, access: Access) {
        self.claim(parameter, range, access, true);
        self.value(&(range.bytes() / size_of::<T>()));
    }

    /// Adds a slice: address and length.
    pub fn slice<T>(&mut self, parameter: &'static str, range: &MemoryRange, access: Access) {
        self.claim(parameter, range, access, false);
        self.value(&(range.bytes() / size_of::<T>()));
    }

    /// Adds a bare pointer.
    pub fn pointer<T>(&mut self, parameter: &'static str, range: &MemoryRange, access: Access) {
        self.claim(parameter, range, access, false);
    }

    /// Adds the condition of a conditional kernel, as a null pointer: it always runs.
    pub fn condition(&mut self) {
        self.value(&0u64);
        self.condition = Some(Condition::Always);
    }

    fn claim(&mut self, parameter: &'static str, range: &MemoryRange, access: Access, tracked: bool) {
        self.value(&range.address());
        let moved = range.bytes() as u64;
        self.claims.push(Claim { parameter, range: range.clone(), access, tracked, moved });
    }
}

type Body = Box<dyn Fn(&Block<'_>) + Send + Sync>;
type Substitute = Box<dyn Fn(&[Claim]) + Send + Sync>;

/// A kernel with its arguments bound; made by the `launch` function that `#[kernel]` generates.
pub struct Launch {
    info: &'static KernelInfo,
    binder: Binder,
    body: Body,
    substitute: Option<Substitute>,
    operations: u64,
}

impl Launch {
    /// Used by `#[kernel]`.
    pub fn new(info: &'static KernelInfo, binder: Binder, body: impl Fn(&Block<'_>) + Send + Sync + 'static) -> Self {
        Self { info, binder, body: Box::new(body), substitute: None, operations: 0 }
    }

    /// The same launch, in whose place the CPU target calls `substitute` with the claims: for matrix products, which a
    /// library does better than the executor.
    ///
    /// # Safety
    /// `substitute` reads no memory but what the claims cover, writes none but what a [`Access::Write`] claim covers, and
    /// writes all of what the kernel would write. Nothing else runs meanwhile.
    #[must_use]
    pub unsafe fn on_cpu(mut self, substitute: impl Fn(&[Claim]) + Send + Sync + 'static) -> Self {
        self.substitute = Some(Box::new(substitute));
        self
    }

    /// The same launch, which does nothing where `word` is 0 when it comes to run: a `#[kernel(conditional)]` in a graph that is
    /// replayed as it is.
    ///
    /// # Panics
    /// If the kernel is not conditional.
    #[must_use]
    pub fn only_if(mut self, word: &DevicePtr<'_, u32>) -> Self {
        let name = self.info.name;
        assert!(
            self.binder.condition.is_some(),
            "kernel `{name}` takes no condition: mark it `#[kernel(conditional)]`"
        );
        let range = word.memory().clone();
        self.binder.words.pop();
        self.binder.claim("condition", &range, Access::Read, true);
        self.binder.condition = Some(Condition::If(range));
        self
    }

    /// Whether the launch does anything now. For memory that the host reaches, so for the CPU target.
    pub(crate) fn is_due(&self) -> bool {
        let Some(Condition::If(range)) = &self.binder.condition else { return true };
        // SAFETY: `DevicePtr` promises an aligned `u32` in memory that the range keeps alive; launches follow each other, so
        // nothing writes it now.
        unsafe { (range.address() as *const u32).read() != 0 }
    }

    /// Calls the substitute, if there is one.
    pub(crate) fn run_substitute(&self) -> bool {
        if let Some(substitute) = &self.substitute {
            // Those that the kernel's own parameters make: the condition's is the last.
            let n_conditions = usize::from(matches!(self.binder.condition, Some(Condition::If(_))));
            substitute(&self.claims()[..self.claims().len() - n_conditions]);
        }
        self.substitute.is_some()
    }

    /// The kernel.
    pub fn info(&self) -> &'static KernelInfo {
        self.info
    }

    /// The device memory that the arguments reach.
    pub fn claims(&self) -> &[Claim] {
        &self.binder.claims
    }

    /// Whether no memory that the kernel may write is reached through two parameters.
    ///
    /// # Errors
    /// The first pair that does.
    pub fn check_claims(&self) -> Result<(), ClaimConflict> {
        let claims = self.claims();
        for (index, first) in claims.iter().enumerate() {
            for second in &claims[index + 1..] {
                let (writer, other) = if first.access == Access::Write { (first, second) } else { (second, first) };
                if writer.access == Access::Write && writer.range.overlaps(&other.range) {
                    let start = writer.range.address().max(other.range.address());
                    let end = |claim: &Claim| claim.range.address() + claim.range.bytes() as u64;
                    return Err(ClaimConflict {
                        writer: writer.parameter,
                        other: other.parameter,
                        address: start,
                        bytes: (end(writer).min(end(other)) - start) as usize,
                    });
                }
            }
        }
        Ok(())
    }

    /// One pointer to each parameter's value, as `cuLaunchKernel` takes them.
    pub fn parameters(&self) -> Vec<*const std::ffi::c_void> {
        self.binder.words.iter().map(|words| words.as_ptr().cast()).collect()
    }

    /// Runs one block on the CPU target.
    pub fn run_block(&self, block: &Block<'_>) {
        (self.body)(block);
    }
}
