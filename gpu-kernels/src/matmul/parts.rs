//! The last stage of sums that were cut into parts.

use cuda_std::prelude::*;
use shared_types::Product;

/// Launch of [`sum_parts()`] for products of at most `len` elements.
pub const fn sum_parts_shape(len: usize, n_products: u32) -> LaunchShape {
    let mut shape = LaunchShape::cover(len, 256);
    shape.grid.y = n_products;
    shape
}

/// Adds the parts of each product's sums in order, and multiplies by its factor: out[d + i] = factor sum_p parts[p, c + i].
///
/// Shapes: products `[n]`, C dense, element i of it goes to `out[d + i]`; parts `[n_parts, part_len]`; factors `[n]`, or empty
/// for 1; out the flat gradient. Launch: [`sum_parts_shape`], grid y = n.
#[kernel]
pub fn sum_parts(
    products: GlobalSlice<Product>,
    parts: GlobalSlice<f32>,
    factors: GlobalSlice<f32>,
    out: GlobalSliceMut<f32>,
    part_len: u32,
) {
    let (index, number) = (thread::index_1d() as usize, thread::block_idx_y() as usize);
    let product = products.get(number);
    if index >= product.m as usize * product.n as usize {
        return;
    }
    let mut sum = 0.0;
    let mut at = product.c as usize + index;
    while at < parts.len() {
        sum += parts.get(at);
        at += part_len as usize;
    }
    let factor = if factors.is_empty() { 1.0 } else { factors.get(number) };
    out.set(product.d as usize + index, factor * sum);
}
