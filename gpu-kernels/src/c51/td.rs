//! TD errors as priorities take them.

use cuda_std::fast::pack_bf16x2;
use cuda_std::prelude::*;

use super::loss::row_loss;

/// Launch of [`td_error_bf16()`] for `n` rows: a thread a row.
pub const fn td_error_bf16_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 256)
}

/// The rows' KL rounded to bf16; NaN for a relabelled row, and for every row of a gated step, so that these keep their priority.
///
/// Shapes: row_losses `[B, 4]`; gate \[1\], 0 for a step that is not gated; relabelled, 0 for a row that is as it was stored,
/// and td_errors `[B]`. Launch: [`td_error_bf16_shape`].
#[kernel]
pub fn td_error_bf16(
    row_losses: GlobalSlice<f32>,
    gate: GlobalSlice<u32>,
    relabelled: GlobalSlice<u8>,
    td_errors: GlobalSliceMut<bf16>,
) {
    let row = thread::index_1d() as usize;
    if row < td_errors.len() {
        let writes = gate.get(0) == 0 && relabelled.get(row) == 0;
        let td = if writes { row_losses.get(row_loss::N * row + row_loss::TD) } else { f32::NAN };
        td_errors.set(row, bf16::from_bits(pack_bf16x2(td, 0.0) as u16));
    }
}
