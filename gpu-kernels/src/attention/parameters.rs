//! Where the tensors lie in the attention's part of the flat parameters, and the weights as the kernels reach them.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::{N_FEATURES, WIDTH};
use crate::four::Four;
use crate::tile_product::Matrix;

/// `embed.weight` `[64, 24]`: first element, from the attention's first tensor on.
pub const EMBED: usize = 0;
/// `embed.bias` `[64]`.
pub const EMBED_BIAS: usize = next(EMBED, WIDTH * N_FEATURES);

/// The tensors of one attention: wq, wk, wv, wo `[width, width]`, gain `[width]`.
#[derive(Clone, Copy)]
pub struct Block {
    first: usize,
    /// Width of a token.
    pub width: usize,
}

impl Block {
    /// Over bars.
    pub const fn bars() -> Self {
        Self { first: next(EMBED_BIAS, WIDTH), width: WIDTH }
    }

    /// Over channels, of a window.
    pub const fn channels(window: usize) -> Self {
        Self { first: Self::bars().end(), width: window }
    }

    /// Matrix wq, wk, wv or wo, numbered from 0: first element, from the attention's first tensor on.
    pub const fn matrix(&self, number: usize) -> usize {
        self.first + number * next(0, self.width * self.width)
    }

    /// Its gain.
    pub const fn gain(&self) -> usize {
        self.matrix(4)
    }

    const fn end(&self) -> usize {
        next(self.gain(), self.width)
    }
}

/// Elements of the attention's part for a window, its gaps included.
pub const fn n_parameters(window: usize) -> usize {
    Block::channels(window).end()
}

/// The tensor after one of `len` elements from `start` on: at the next multiple of 64.
const fn next(start: usize, len: usize) -> usize {
    (start + len).next_multiple_of(64)
}

/// The attention's parameters: all of them as operands, and in f32.
pub(super) struct Parameters<'a> {
    pub operands: &'a GlobalSlice<'a, u16>,
    pub flat: &'a GlobalSlice<'a, f32>,
    pub precision: Precision,
}

impl Parameters<'_> {
    /// Matrix `[any, width]` that begins at element `first`.
    #[inline(always)]
    pub fn matrix(&self, first: usize, width: usize) -> Matrix<'_> {
        Matrix { operands: self.operands, precision: self.precision, first, width }
    }

    /// Matrix number `number` of an attention.
    #[inline(always)]
    pub fn of_block(&self, block: Block, number: usize) -> Matrix<'_> {
        self.matrix(block.matrix(number), block.width)
    }

    /// Elements `index..index + 4` of the f32 tensor that begins at `first`.
    #[inline(always)]
    pub fn four(&self, first: usize, index: usize) -> Four {
        Four::new(self.flat.load(first + index))
    }
}
