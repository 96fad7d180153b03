//! The weights in shared memory, as operands of the tensor cores.

use cuda_std::prelude::*;

use super::parameters::{Block, EMBED};
use super::{N_FEATURES, N_HEADS, TENSOR_BARS, WIDTH};
use crate::fragments::Stored;
use crate::tile::{Taker, Team};

/// Features of a bar, up to a whole step of a sum.
const FEATURES: usize = N_FEATURES.next_multiple_of(16);
/// Columns of a head over channels at most, T / 4. Each head has so many slots of the 16, and zeros behind those that it uses: column c of
/// head h is slot 4 h + c for every window.
const SLOTS: usize = TENSOR_BARS / N_HEADS;

/// All that the passes of a row read besides the row.
pub(super) struct TensorWeights<'a> {
    /// W_e `[64, 32]`, zeros from column 24 on.
    pub embed: Stored,
    /// W_q, W_k, W_v, W_o over bars, one below the other, `[256, 64]`.
    pub bars: Stored,
    /// Likewise over channels `[64, 16]`: rows of the first three are slots and columns bars; W_o's rows are bars and its columns slots.
    pub channels: Stored,
    /// All parameters in f32.
    pub flat: &'a GlobalSlice<'a, f32>,
    /// Sinusoidal positions `[T, 64]`.
    pub positions: &'a GlobalSlice<'a, f32>,
    /// Bars T of a row.
    pub window: usize,
}

impl<'a> TensorWeights<'a> {
    /// Bytes of shared memory, from the first on.
    pub const BYTES: u32 =
        Stored::bytes(WIDTH, FEATURES) + Stored::bytes(4 * WIDTH, WIDTH) + Stored::bytes(4 * TENSOR_BARS, TENSOR_BARS);

    /// By all threads of the block. Ends with a barrier.
    #[inline(always)]
    pub fn load(
        operands: &GlobalSlice<u16>,
        flat: &'a GlobalSlice<'a, f32>,
        positions: &'a GlobalSlice<'a, f32>,
        window: usize,
    ) -> Self {
        let (mut taker, team) = (Taker::from(0), Team::new());
        let weights = Self {
            embed: Stored::take(&mut taker, WIDTH, FEATURES),
            bars: Stored::take(&mut taker, 4 * WIDTH, WIDTH),
            channels: Stored::take(&mut taker, 4 * TENSOR_BARS, TENSOR_BARS),
            flat,
            positions,
            window,
        };
        let embed = operands.sub(EMBED..EMBED + WIDTH * N_FEATURES);
        weights.embed.copy(&embed, WIDTH, N_FEATURES, FEATURES, team);
        let first = Block::bars().matrix(0);
        const { assert!(Block::bars().matrix(1) == Block::bars().matrix(0) + WIDTH * WIDTH) }
        weights.bars.copy(&operands.sub(first..first + 4 * WIDTH * WIDTH), 4 * WIDTH, WIDTH, WIDTH, team);
        let block = Block::channels(window);
        for index in team.each(4 * TENSOR_BARS * TENSOR_BARS) {
            let (row, column) = (index / TENSOR_BARS, index % TENSOR_BARS);
            let (number, row_of) = (row / TENSOR_BARS, row % TENSOR_BARS);
            let (slot, bar) = if number < 3 { (row_of, column) } else { (column, row_of) };
            let word = match column_of(slot, window) {
                Some(inner) if bar < window => {
                    let (row, column) = if number < 3 { (inner, bar) } else { (bar, inner) };
                    operands.get(block.matrix(number) + row * window + column)
                }
                _ => 0,
            };
            weights.channels.set_word(row, column, word);
        }
        // The weights are complete.
        thread::sync_threads();
        weights
    }
}

/// The column of a token over channels that lies in a slot, if there is one.
#[inline(always)]
pub(super) fn column_of(slot: usize, window: usize) -> Option<usize> {
    let width = window / N_HEADS;
    (slot % SLOTS < width).then_some(slot / SLOTS * width + slot % SLOTS)
}
