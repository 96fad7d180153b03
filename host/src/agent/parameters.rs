//! Parameters on the device.

use std::sync::Arc;

use shared_types::Precision;

use super::Sizes;
use super::initial::initial_values;
use super::layout::Layout;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;

/// One network's weights: the master values, and what products take of them.
pub struct Weights {
    /// f32, flat; the target's up to its range's end.
    pub flat: Buffer<f32>,
    /// Operands at the same elements. Trunk matrices carry their spectral norm; `spectral` alone writes those. Rows of one output
    /// are taken in f32, and theirs do not follow.
    pub shadow: Buffer<u16>,
}

/// Everything that learns.
pub struct Parameters {
    /// Sizes of the network.
    pub sizes: Sizes,
    /// What products round.
    pub precision: Precision,
    /// Where each tensor lies.
    pub layout: Arc<Layout>,
    /// The online network and all heads.
    pub online: Weights,
    /// The target network: theta, attention, IQN's head; empty without a target's moving average.
    pub target: Weights,
    /// Adam's first moments.
    pub first_moments: Buffer<f32>,
    /// Adam's second moments.
    pub second_moments: Buffer<f32>,
    /// The gradient of the step.
    pub gradient: Buffer<f32>,
}

impl Parameters {
    /// Takes the memory; [`restart`](Self::restart) gives it values.
    pub fn new(device: &Device, sizes: Sizes, precision: Precision, has_target: bool) -> Result<Self, DeviceError> {
        let layout = Arc::new(Layout::new(&sizes));
        let n = layout.n_elements();
        let n_target = if has_target { layout.target().end } else { 0 };
        let weights = |n: usize| -> Result<Weights, DeviceError> {
            Ok(Weights { flat: device.alloc_zeroed(n)?, shadow: device.alloc_zeroed(n * precision.words())? })
        };
        Ok(Self {
            sizes,
            precision,
            online: weights(n)?,
            target: weights(n_target)?,
            first_moments: device.alloc_zeroed(n)?,
            second_moments: device.alloc_zeroed(n)?,
            gradient: device.alloc_zeroed(n)?,
            layout,
        })
    }

    /// What targets come from: the target network, or the online one where there is no other.
    pub fn bootstrapped(&self) -> &Weights {
        if self.target.flat.is_empty() { &self.online } else { &self.target }
    }

    /// Initial values in place; the target equals the online network. The trunk's operands still lack their spectral norms.
    pub fn restart(&self, seed: [u32; 2]) -> Result<(), DeviceError> {
        let values = initial_values(&self.layout, seed);
        self.online.flat.write(&values)?;
        self.target.flat.write(&values[..self.target.flat.len()])?;
        for buffer in [&self.first_moments, &self.second_moments, &self.gradient] {
            buffer.zero()?;
        }
        self.refresh_operands()
    }

    /// Writes the operands of all master values, as after these were loaded. Those of the trunk's matrices still lack their
    /// spectral norms. Not for the hot path.
    pub fn refresh_operands(&self) -> Result<(), DeviceError> {
        for weights in [&self.online, &self.target] {
            let operand = |value: &f32| match self.precision {
                Precision::Bf16 => [half::bf16::from_f32(*value).to_bits(), 0],
                Precision::F32 => [value.to_bits() as u16, (value.to_bits() >> 16) as u16],
            };
            let values = weights.flat.read()?;
            let words: Vec<u16> =
                values.iter().map(operand).flat_map(|words| words.into_iter().take(self.precision.words())).collect();
            weights.shadow.write(&words)?;
        }
        Ok(())
    }
}
