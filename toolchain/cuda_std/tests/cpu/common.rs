//! Memory, executors, and places in the source for the tests.

use std::ops::Range;
use std::sync::Arc;

use cuda_std::cpu::{Executor, ExecutorOptions, Shadow};
use cuda_std::launch::{DeviceMemory, DeviceSlice, DeviceSliceMut, MemoryRange};

/// An executor of two threads that checks.
pub fn checking(seed: u64) -> Executor {
    Executor::new(ExecutorOptions { threads: 2, check: true, seed, ..ExecutorOptions::default() })
}

/// An executor of two threads that does not check.
pub fn plain() -> Executor {
    Executor::new(ExecutorOptions { threads: 2, check: false, ..ExecutorOptions::default() })
}

/// Memory with a record, as a checking device makes it.
pub struct Buffer<T> {
    memory: Arc<DeviceMemory>,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Copy + Send + Sync + 'static> Buffer<T> {
    /// Memory that holds `values`.
    pub fn of(values: &[T]) -> Self {
        let buffer = Self::with(values.to_vec());
        buffer.memory.shadow().expect("checked memory").mark_initialised(0..size_of_val(values));
        buffer
    }

    /// Memory that nothing wrote, as far as the checker knows.
    pub fn unwritten(len: usize, filler: T) -> Self {
        Self::with(vec![filler; len])
    }

    fn with(mut owner: Vec<T>) -> Self {
        let (address, len) = (owner.as_mut_ptr() as u64, owner.len());
        let shadow = Some(Box::new(Shadow::new(len * size_of::<T>())));
        let memory = Arc::new(DeviceMemory::new(0, address, len * size_of::<T>(), shadow, Box::new(owner)));
        Self { memory, len, element: std::marker::PhantomData }
    }

    fn range(&self, part: Range<usize>) -> MemoryRange {
        MemoryRange::new(self.memory.clone(), part.start * size_of::<T>()..part.end * size_of::<T>())
    }

    pub fn view(&self) -> DeviceSlice<'_, T> {
        self.slice(0..self.len)
    }

    pub fn view_mut(&self) -> DeviceSliceMut<'_, T> {
        self.slice_mut(0..self.len)
    }

    pub fn slice(&self, part: Range<usize>) -> DeviceSlice<'_, T> {
        // SAFETY: the tests' elements are numbers and arrays of them, of which any bytes are values.
        unsafe { DeviceSlice::new(self.range(part)) }
    }

    pub fn slice_mut(&self, part: Range<usize>) -> DeviceSliceMut<'_, T> {
        // SAFETY: the tests' elements are numbers and arrays of them, of which any bytes are values.
        unsafe { DeviceSliceMut::new(self.range(part)) }
    }

    /// The same memory as other elements.
    pub fn cast<U>(&self) -> Buffer<U> {
        let len = self.memory.bytes() / size_of::<U>();
        Buffer { memory: self.memory.clone(), len, element: std::marker::PhantomData }
    }

    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The contents.
    pub fn read(&self) -> Vec<T> {
        // SAFETY: the memory is the vector that the buffer owns, of this length and type; no launch is under way.
        unsafe { std::slice::from_raw_parts(self.memory.address() as *const T, self.len) }.to_vec()
    }
}

/// The place `FILE:LINE` of the line that ends with the comment `// MARK`; `source` is the file's text.
#[track_caller]
pub fn marked_line(file: &str, source: &str, mark: &str) -> String {
    let mark = format!("// {mark}");
    let line = source.lines().position(|line| line.ends_with(&mark)).expect("a marked line");
    format!("{file}:{}", 1 + line)
}
