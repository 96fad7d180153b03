//! Device memory of one element type.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_std::launch::{DeviceMemory, DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, MemoryRange};

use super::{Backend, Device};
use crate::error::DeviceError;

/// `len` elements of device memory, freed when the buffer and everything launched or captured with it are dropped.
pub struct Buffer<T> {
    device: Device,
    memory: Arc<DeviceMemory>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// A range of a buffer's elements.
pub struct Part<'a, T> {
    buffer: &'a Buffer<T>,
    range: Range<usize>,
}

impl<T: Pod> Buffer<T> {
    pub(super) fn new(device: Device, memory: Arc<DeviceMemory>, len: usize) -> Self {
        Self { device, memory, len, element: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole buffer.
    pub fn all(&self) -> Part<'_, T> {
        Part { buffer: self, range: 0..self.len }
    }

    /// The elements `range`.
    ///
    /// # Panics
    /// If the range passes the buffer's end.
    pub fn slice(&self, range: Range<usize>) -> Part<'_, T> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "elements {range:?} of a buffer of {} elements",
            self.len
        );
        Part { buffer: self, range }
    }

    /// For a parameter `GlobalSlice<T>` or `&[T]`.
    pub fn view(&self) -> DeviceSlice<'_, T> {
        self.all().view()
    }

    /// For a parameter `GlobalSliceMut<T>` or `&mut [T]`.
    pub fn view_mut(&self) -> DeviceSliceMut<'_, T> {
        self.all().view_mut()
    }

    /// For a parameter `*const T` or `&T`.
    pub fn ptr(&self) -> DevicePtr<'_, T> {
        self.all().ptr()
    }

    /// For a parameter `*mut T` or `&mut T`.
    pub fn ptr_mut(&self) -> DevicePtrMut<'_, T> {
        self.all().ptr_mut()
    }

    /// Overwrites the buffer, after everything launched before; not for the hot path.
    #[track_caller]
    pub fn write(&self, values: &[T]) -> Result<(), DeviceError> {
        self.all().write(values)
    }

    /// A copy of the buffer, after everything launched before; not for the hot path.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<T>, DeviceError> {
        self.all().read()
    }

    /// Overwrites the buffer with zero bytes, after everything launched before; not for the hot path.
    #[track_caller]
    pub fn zero(&self) -> Result<(), DeviceError> {
        match &self.device.backend {
            Backend::Cpu(cpu) => {
                cpu.zero(&self.memory);
                Ok(())
            }
            Backend::Cuda(cuda) => cuda.zero(&self.memory),
        }
    }
}

impl<'a, T: Pod> Part<'a, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// For a parameter `GlobalSlice<T>` or `&[T]`.
    pub fn view(&self) -> DeviceSlice<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSlice::new(self.memory()) }
    }

    /// For a parameter `GlobalSliceMut<T>` or `&mut [T]`.
    pub fn view_mut(&self) -> DeviceSliceMut<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSliceMut::new(self.memory()) }
    }

    /// For a parameter `*const T` or `&T`.
    pub fn ptr(&self) -> DevicePtr<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtr::new(self.memory()) }
    }

    /// For a parameter `*mut T` or `&mut T`.
    pub fn ptr_mut(&self) -> DevicePtrMut<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtrMut::new(self.memory()) }
    }

    /// Overwrites the elements, after everything launched before; not for the hot path.
    #[track_caller]
    pub fn write(&self, values: &[T]) -> Result<(), DeviceError> {
        if values.len() != self.len() {
            return Err(DeviceError::Length { action: "write", expected: self.len(), got: values.len() });
        }
        let target = self.memory();
        match &self.buffer.device.backend {
            Backend::Cpu(cpu) => cpu.write(&target, bytemuck::cast_slice(values)),
            Backend::Cuda(cuda) => cuda.write(&target, bytemuck::cast_slice(values))?,
        }
        Ok(())
    }

    /// A copy of the elements, after everything launched before; not for the hot path.
    #[track_caller]
    pub fn read(&self) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::zeroed(); self.len()];
        let source = self.memory();
        match &self.buffer.device.backend {
            Backend::Cpu(cpu) => cpu.read(&source, bytemuck::cast_slice_mut(&mut values)),
            Backend::Cuda(cuda) => cuda.read(&source, bytemuck::cast_slice_mut(&mut values))?,
        }
        Ok(values)
    }

    fn memory(&self) -> MemoryRange {
        let bytes = self.range.start * size_of::<T>()..self.range.end * size_of::<T>();
        MemoryRange::new(self.buffer.memory.clone(), bytes)
    }
}
