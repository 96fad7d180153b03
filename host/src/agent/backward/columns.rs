//! Gradients that are sums over rows.

use gpu_kernels::columns::{NO_TARGET, n_column_partials};
use gpu_kernels::heads::HeadColumns;

use crate::agent::Parameters;
use crate::agent::layout::{HEAD_NAMES, N_BLOCKS};
use crate::device::{Buffer, Device, Part};
use crate::error::DeviceError;

/// Gradients that are sums over rows: one matrix of partial sums, and where each column's sum belongs.
pub(super) struct Columns {
    pub(super) partials: Buffer<f32>,
    pub(super) targets: Buffer<u32>,
    /// Columns that have a target.
    pub(super) n_targets: usize,
    pub(super) n_columns: usize,
    pub(super) hidden: usize,
    /// First column of each block's b2, b1 and gain.
    pub(super) blocks: [[usize; 3]; N_BLOCKS],
    /// First column of b, gain, g and s of the trunk's entry.
    pub(super) entry: usize,
}

impl Columns {
    pub(super) fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, sizes) = (&parameters.layout, parameters.sizes);
        let heads = HeadColumns::new(sizes.atoms);
        let mut targets = vec![NO_TARGET; heads.stride as usize];
        let place = |name: &str| layout.range(name).map(|element| element as u32);
        for (head, name) in HEAD_NAMES.into_iter().enumerate() {
            let range = place(&format!("branch.{name}.out.bias"));
            targets[heads.start[head] as usize..][..range.len()].copy_from_slice(&range.collect::<Vec<_>>());
        }
        let hidden = targets.len();
        for name in HEAD_NAMES {
            targets.extend(place(&format!("branch.{name}.hidden.bias")));
        }
        let blocks = std::array::from_fn(|block| {
            ["b2", "b1", "gain"].map(|part| {
                targets.extend(place(&format!("trunk.block{block}.{part}")));
                targets.len() - sizes.hidden
            })
        });
        let entry = targets.len();
        targets.extend(place("trunk.in.bias"));
        targets.extend(place("trunk.in.gain"));
        // g and s go on to W_isv.
        targets.extend(vec![NO_TARGET; 2 * sizes.hidden]);
        let n_columns = targets.len();
        Ok(Self {
            partials: device.alloc_zeroed(n_column_partials(n_rows) * n_columns)?,
            n_targets: targets.iter().filter(|target| **target != NO_TARGET).count(),
            targets: device.upload(&targets)?,
            n_columns,
            hidden,
            blocks,
            entry,
        })
    }

    /// The partial sums from column `column` on.
    pub(super) fn from(&self, column: usize) -> Part<'_, f32> {
        self.partials.slice(column..self.partials.len())
    }

    /// Bytes of the partial sums of so many columns.
    pub(super) fn bytes(&self, n_columns: usize) -> usize {
        self.partials.len() / self.n_columns * n_columns * size_of::<f32>()
    }
}
