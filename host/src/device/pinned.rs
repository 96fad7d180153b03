//! Host memory that kernels reach over the bus.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;
use cuda_std::launch::{DeviceMemory, DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, MemoryRange};

/// `len` elements of pinned host memory, mapped into the device: the host reads what kernels write, and the other way,
/// by plain loads and stores, without a driver call.
///
/// Host accesses are volatile, one element each, and may run beside a kernel: an element larger than eight bytes may be
/// seen half written, so such a reader compares a stamp before and after.
pub struct Pinned<T> {
    host: *mut T,
    memory: Arc<DeviceMemory>,
    len: usize,
    element: PhantomData<T>,
}

// SAFETY: the memory belongs to the value and holds plain data; every host access is volatile or atomic.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above. Two threads that touch one element at once both use volatile accesses, as with a device.
unsafe impl<T: Send + Sync> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// `host` is the host's address of `memory`, at least `len` initialised elements.
    pub(super) fn new(host: *mut T, memory: Arc<DeviceMemory>, len: usize) -> Self {
        Self { host, memory, len, element: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `index`, as it stands now.
    ///
    /// # Panics
    /// If `index` is not under `len`.
    pub fn get(&self, index: usize) -> T {
        let element = self.element(index);
        // SAFETY: in bounds by `element`, initialised at allocation, and any bit pattern is a `T`.
        unsafe { element.read_volatile() }
    }

    /// Overwrites element `index`.
    ///
    /// # Panics
    /// If `index` is not under `len`.
    pub fn set(&self, index: usize, value: T) {
        let element = self.element(index);
        // SAFETY: in bounds by `element`; the memory is only ever accessed as plain data.
        unsafe { element.write_volatile(value) }
    }

    /// Word `word` of element `index`, by an atomic load.
    ///
    /// # Panics
    /// If there is no such word, or `ordering` is not one of a load.
    pub fn load_word(&self, index: usize, word: usize, ordering: Ordering) -> u32 {
        let word = self.word(index, word);
        // SAFETY: in bounds and aligned by `word`, live as long as `self`.
        unsafe { u32::atomic_load(word, ordering) }
    }

    /// Overwrites word `word` of element `index` by an atomic store.
    ///
    /// # Panics
    /// If there is no such word, or `ordering` is not one of a store.
    pub fn store_word(&self, index: usize, word: usize, value: u32, ordering: Ordering) {
        let word = self.word(index, word);
        // SAFETY: as in `load_word`.
        unsafe { u32::atomic_store(word, value, ordering) }
    }

    /// All elements, as they stand now, one after the other.
    pub fn read(&self) -> Vec<T> {
        (0..self.len).map(|index| self.get(index)).collect()
    }

    /// For a parameter `GlobalSlice<T>` or `&[T]`.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSlice::new(self.range()) }
    }

    /// For a parameter `GlobalSliceMut<T>` or `&mut [T]`.
    pub fn view_mut(&self) -> DeviceSliceMut<'_, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSliceMut::new(self.range()) }
    }

    /// For a parameter `*const T` or `&T`.
    pub fn ptr(&self) -> DevicePtr<'_, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtr::new(self.range()) }
    }

    /// For a parameter `*mut T` or `&mut T`.
    pub fn ptr_mut(&self) -> DevicePtrMut<'_, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtrMut::new(self.range()) }
    }

    fn range(&self) -> MemoryRange {
        MemoryRange::new(self.memory.clone(), 0..self.len * size_of::<T>())
    }

    fn word(&self, index: usize, word: usize) -> *mut u32 {
        const { assert!(align_of::<T>() >= align_of::<u32>(), "an element is made of whole words") };
        let n_words = size_of::<T>() / size_of::<u32>();
        assert!(word < n_words, "word {word} of an element of {n_words} words");
        self.element(index).cast::<u32>().wrapping_add(word)
    }

    fn element(&self, index: usize) -> *mut T {
        assert!(index < self.len, "element {index} of {} pinned elements", self.len);
        // SAFETY: `index` is under `len`, and the allocation holds `len` elements.
        unsafe { self.host.add(index) }
    }
}

impl<T: HostAtomic> Pinned<T> {
    /// Element `index`, by an atomic load.
    ///
    /// # Panics
    /// If `index` is not under `len`, or `ordering` is not one of a load.
    pub fn load(&self, index: usize, ordering: Ordering) -> T {
        let element = self.element(index);
        // SAFETY: in bounds by `element`, aligned for `T`, live as long as `self`.
        unsafe { T::atomic_load(element, ordering) }
    }

    /// Overwrites element `index` by an atomic store.
    ///
    /// # Panics
    /// If `index` is not under `len`, or `ordering` is not one of a store.
    pub fn store(&self, index: usize, value: T, ordering: Ordering) {
        let element = self.element(index);
        // SAFETY: as in `load`.
        unsafe { T::atomic_store(element, value, ordering) }
    }
}

/// A number that the host can load and store atomically in pinned memory.
pub trait HostAtomic: Pod {
    /// Loads from `element`.
    ///
    /// # Safety
    /// `element` is valid and aligned for an atomic of this size.
    unsafe fn atomic_load(element: *mut Self, ordering: Ordering) -> Self;

    /// Stores to `element`.
    ///
    /// # Safety
    /// As for `atomic_load`.
    unsafe fn atomic_store(element: *mut Self, value: Self, ordering: Ordering);
}

macro_rules! host_atomic {
    ($($number:ty: $atomic:ident),*) => {$(
        impl HostAtomic for $number {
            unsafe fn atomic_load(element: *mut Self, ordering: Ordering) -> Self {
                // SAFETY: valid and aligned by this function's contract; kernels' accesses are the device's own.
                unsafe { $atomic::from_ptr(element) }.load(ordering)
            }

            unsafe fn atomic_store(element: *mut Self, value: Self, ordering: Ordering) {
                // SAFETY: as above.
                unsafe { $atomic::from_ptr(element) }.store(value, ordering);
            }
        }
    )*};
}
host_atomic!(u32: AtomicU32, i32: AtomicI32, u64: AtomicU64, i64: AtomicI64);
