//! A policy simple enough to be repeated on the host, for tests of evaluation.

use cuda_std::prelude::*;

/// Against the last bar: short (0) where element `column` of the row is above 0, long (1) where it is below, flat (2) at 0;
/// at full size, with the order kind `order`.
///
/// Shapes: rows \[n, stride\]; actions \[n\]. Launch: thread = row.
#[kernel]
pub fn act_against(rows: GlobalSlice<f32>, actions: GlobalSliceMut<[u8; 4]>, stride: u32, column: u32, order: u32) {
    let row = thread::index_1d() as usize;
    if row >= actions.len() {
        return;
    }
    let seen = rows.get(row * stride as usize + column as usize);
    let direction = if seen > 0.0 {
        0
    } else if seen < 0.0 {
        1
    } else {
        2
    };
    actions.set(row, [direction, 2, order as u8, 0]);
}
