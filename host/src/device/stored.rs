//! Buffers as files of tensors hold them.

use std::any::TypeId;

use bytemuck::Pod;
use half::bf16;
use safetensors::Dtype;

use super::Buffer;
use crate::error::DeviceError;

/// A buffer of any element type.
pub trait Stored {
    /// Type of the elements that the file shows.
    fn dtype(&self) -> Dtype;
    /// Their number.
    fn n_elements(&self) -> usize;
    /// A copy of the buffer.
    fn read_bytes(&self) -> Result<Vec<u8>, DeviceError>;
    /// Overwrites the buffer.
    ///
    /// # Errors
    /// If there are not as many bytes.
    fn write_bytes(&self, bytes: &[u8]) -> Result<(), DeviceError>;
}

/// Type of the elements that a file shows of values of type `T`: the type itself for numbers, bytes for everything else.
pub fn dtype_of<T: 'static>() -> Dtype {
    let is = TypeId::of::<T>();
    let numbers = [
        (TypeId::of::<f32>(), Dtype::F32),
        (TypeId::of::<f64>(), Dtype::F64),
        (TypeId::of::<u32>(), Dtype::U32),
        (TypeId::of::<i32>(), Dtype::I32),
        (TypeId::of::<bf16>(), Dtype::BF16),
    ];
    numbers.into_iter().find(|(id, _)| *id == is).map_or(Dtype::U8, |(_, dtype)| dtype)
}

impl<T: Pod> Stored for Buffer<T> {
    fn dtype(&self) -> Dtype {
        dtype_of::<T>()
    }

    fn n_elements(&self) -> usize {
        self.len() * size_of::<T>() * 8 / self.dtype().bitsize()
    }

    fn read_bytes(&self) -> Result<Vec<u8>, DeviceError> {
        Ok(bytemuck::cast_slice(&self.read()?).to_vec())
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<(), DeviceError> {
        let expected = self.len() * size_of::<T>();
        if bytes.len() != expected {
            return Err(DeviceError::Length { action: "write", expected, got: bytes.len() });
        }
        let mut values = vec![T::zeroed(); self.len()];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
        self.write(&values)
    }
}
