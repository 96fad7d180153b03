//! The trunk's input u: the last bar's features, portfolio, goal, temporal block, attention, denoise bottleneck.

use cuda_std::prelude::*;
use shared_types::Precision;
use shared_types::market::{N_ACCOUNT, N_FEATURES};

use crate::sweep::{self, VECTOR, Vector};
use crate::{denoise, operand};

/// Width of the temporal block's output.
pub const TEMPORAL_WIDTH: usize = 64;
/// Width of the attention's output.
pub const ATTENTION_WIDTH: usize = 64;
/// Width of the denoise bottleneck.
pub const BOTTLENECK_WIDTH: usize = denoise::BOTTLENECK;
/// Column of u at which the temporal block's output begins; before it come the last bar, the portfolio and the goal.
pub const TEMPORAL_COLUMN: usize = N_FEATURES + N_ACCOUNT;
/// Column at which the attention's output begins.
pub const ATTENTION_COLUMN: usize = TEMPORAL_COLUMN + TEMPORAL_WIDTH;
/// Column at which the bottleneck begins.
pub const BOTTLENECK_COLUMN: usize = ATTENTION_COLUMN + ATTENTION_WIDTH;
/// Width of u.
pub const INPUT_WIDTH: usize = BOTTLENECK_COLUMN + BOTTLENECK_WIDTH;

const N_VECTORS: usize = INPUT_WIDTH / VECTOR;
// Every part begins at a vector.
const _: () =
    assert!((N_FEATURES | TEMPORAL_COLUMN | ATTENTION_COLUMN | BOTTLENECK_COLUMN | INPUT_WIDTH).is_multiple_of(VECTOR));

/// Launch of [`trunk_input()`]: a thread for four columns of a row.
pub const fn trunk_input_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::cover(n_rows * N_VECTORS, 256)
}

/// Assembles u. A part that is off is given as an empty view and is 0 in u.
///
/// The denoise bottleneck SiLU(W_e x + b_e) of the last bar's clean features is worked out here: both operands rounded, 24 products
/// in f32, SiLU within 2^-21. Shapes: rows `[R, stride]`, stride a multiple of 4, each
/// `[window x 24 | portfolio 15 | goal 1 | padding]`, oldest bar first; temporal `[R, 64]`, attention `[R, 64]`, encoder: the
/// parameters of [`crate::denoise`], as the step began, or empty; u operand `[R, 200]`. Launch: [`trunk_input_shape`].
#[kernel(conditional, max_threads = 256)]
pub fn trunk_input(
    rows: GlobalSlice<f32>,
    temporal: GlobalSlice<f32>,
    attention: GlobalSlice<f32>,
    encoder: GlobalSlice<f32>,
    u: GlobalSliceMut<u16>,
    window: u32,
    precision: Precision,
) {
    let n_rows = u.len() / (INPUT_WIDTH * precision.words());
    let (row, vector) = (thread::index_1d() as usize / N_VECTORS, thread::index_1d() as usize % N_VECTORS);
    if row >= n_rows {
        return;
    }
    let column = vector * VECTOR;
    let last_bar = row * sweep::n_rows(rows.len(), n_rows) + (window as usize - 1) * N_FEATURES;
    let values = if column < TEMPORAL_COLUMN {
        // Portfolio and goal follow the last bar in the row as they do in u.
        rows.load(last_bar + column)
    } else if column < ATTENTION_COLUMN {
        part(&temporal, row * TEMPORAL_WIDTH + column - TEMPORAL_COLUMN)
    } else if column < BOTTLENECK_COLUMN {
        part(&attention, row * ATTENTION_WIDTH + column - ATTENTION_COLUMN)
    } else if encoder.is_empty() {
        [0.0; VECTOR]
    } else {
        denoise::bottleneck4(&rows, last_bar, &encoder, column - BOTTLENECK_COLUMN, precision)
    };
    operand::store4(&u, row * INPUT_WIDTH + column, values, precision);
}

#[inline(always)]
fn part(values: &GlobalSlice<f32>, at: usize) -> Vector {
    if values.is_empty() { [0.0; VECTOR] } else { values.load(at) }
}
