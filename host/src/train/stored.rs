//! Buffers as a checkpoint holds them.

use bytemuck::Pod;
use safetensors::Dtype;

use crate::device::Buffer;
use crate::error::DeviceError;

/// A buffer of any element type.
pub trait Stored {
    /// Type of the elements that a checkpoint shows.
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

impl<T: Pod> Stored for Buffer<T> {
    fn dtype(&self) -> Dtype {
        let is = std::any::TypeId::of::<T>();
        if is == std::any::TypeId::of::<f32>() {
            Dtype::F32
        } else if is == std::any::TypeId::of::<u32>() {
            Dtype::U32
        } else {
            Dtype::U8
        }
    }

    fn n_elements(&self) -> usize {
        self.len() * size_of::<T>() / if self.dtype() == Dtype::U8 { 1 } else { size_of::<u32>() }
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
