//! Where the block's tensors lie in the temporal part of the flat parameters, and the weights as the kernels reach them.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::{CHANNELS, INNER, N_FEATURES, N_HEADS, PROJECTED, TAPS, WIDTH};
use crate::tile_product::Matrix;

/// First elements, from the block's first tensor on.
pub mod offset {
    use super::{CHANNELS, INNER, N_FEATURES, N_HEADS, PROJECTED, TAPS, WIDTH, next};

    /// `embed.weight` `[64, 24]`.
    pub const EMBED: usize = 0;
    /// `embed.bias` `[64]`.
    pub const EMBED_BIAS: usize = next(EMBED, WIDTH * N_FEATURES);
    /// `in_proj.weight` `[292, 64]`.
    pub const IN_PROJ: usize = next(EMBED_BIAS, WIDTH);
    /// `conv.weight` `[160, 4]`.
    pub const CONV: usize = next(IN_PROJ, PROJECTED * WIDTH);
    /// `conv.bias` `[160]`.
    pub const CONV_BIAS: usize = next(CONV, CHANNELS * TAPS);
    /// `dt_bias` `[4]`.
    pub const DT_BIAS: usize = next(CONV_BIAS, CHANNELS);
    /// `a_log` `[4]`.
    pub const A_LOG: usize = next(DT_BIAS, N_HEADS);
    /// `d` `[4]`.
    pub const D: usize = next(A_LOG, N_HEADS);
    /// `norm.gain` `[128]`.
    pub const GAIN: usize = next(D, N_HEADS);
    /// dt_bias, A_log, D: number `which` of the three tensors with a number a head.
    pub const fn of_head(which: usize) -> usize {
        const { assert!(A_LOG - DT_BIAS == 64 && D - A_LOG == 64) };
        DT_BIAS + 64 * which
    }

    /// `out_proj.weight` `[64, 128]`.
    pub const OUT_PROJ: usize = next(GAIN, INNER);
}

/// Elements of the temporal part, its gaps included.
pub const N_PARAMETERS: usize = next(offset::OUT_PROJ, WIDTH * INNER);

/// The tensor after one of `len` elements from `start` on: at the next multiple of 64.
const fn next(start: usize, len: usize) -> usize {
    (start + len).next_multiple_of(64)
}

/// The block's parameters: weights as operands, everything else in f32.
pub(super) struct Parameters<'a> {
    /// `[64, 24]`.
    pub embed: &'a GlobalSlice<'a, u16>,
    /// `[292, 64]`.
    pub in_proj: &'a GlobalSlice<'a, u16>,
    /// `[64, 128]`.
    pub out_proj: &'a GlobalSlice<'a, u16>,
    /// The temporal part of the flat parameters.
    pub flat: &'a GlobalSlice<'a, f32>,
    pub precision: Precision,
}

impl Parameters<'_> {
    /// Rows of `weights` `[any, width]`, one of the three, from row `first` on.
    #[inline(always)]
    pub fn matrix<'a>(&self, weights: &'a GlobalSlice<'a, u16>, first: usize, width: usize) -> Matrix<'a> {
        Matrix { operands: weights, precision: self.precision, first: first * width, width }
    }

    /// Element `index` of the f32 tensor that begins at `first`.
    #[inline(always)]
    pub fn get(&self, first: usize, index: usize) -> f32 {
        self.flat.get(first + index)
    }
}
