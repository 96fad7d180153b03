//! Matrix products: all of a layer's in one launch, with what follows them.
//!
//! C = A B in one of three forms ([`ProductForm`](shared_types::ProductForm)), sums in f32, and an
//! [`Epilogue`](shared_types::Epilogue). A launch works on a list of products ([`Product`]) that share their buffers; a
//! block's z is the product's number, or with the sums cut into parts, the product's number times parts plus the part.
//!
//! | kernel | operands | by |
//! |---|---|---|
//! | [`matmul_nt()`], [`matmul_nn()`], [`matmul_tn()`] | bf16 | `mma.sync`, tiles of 128 x 128 x 32 in shared memory, three in flight |
//! | [`matmul_f32()`], any form | f32 | multiply-adds, tiles of 64 x 64 x 16 |
//! | [`sum_parts()`] | f32 partial sums | adds the parts in order |
//!
//! On the CPU the device replaces these launches by a library's products (`host::device::Matmul`); the executor runs the
//! kernels themselves in tests.

mod epilogue;
mod parts;
mod plain;
mod tensor;

use cuda_std::prelude::*;
use cuda_std::shape::Dim3;
pub use parts::{sum_parts, sum_parts_shape};
pub use plain::matmul_f32;
use shared_types::Product;
pub use tensor::{matmul_nn, matmul_nt, matmul_tn};

/// Rows and columns of C that a block of the bf16 kernels makes.
const TENSOR_TILE: u32 = 128;
/// Rows and columns of C that a block of the f32 kernel makes.
const PLAIN_TILE: u32 = 64;

/// Launch of [`matmul_nt()`], [`matmul_nn()`] and [`matmul_tn()`]: `products` are at most `m` by `n`, each sum in `n_parts`.
pub const fn matmul_shape(m: u32, n: u32, n_products: u32, n_parts: u32) -> LaunchShape {
    let grid = Dim3::new(n.div_ceil(TENSOR_TILE), m.div_ceil(TENSOR_TILE), n_products * n_parts);
    LaunchShape::new(grid, Dim3::new(256, 1, 1))
}

/// Launch of [`matmul_f32()`], as [`matmul_shape`].
pub const fn matmul_f32_shape(m: u32, n: u32, n_products: u32, n_parts: u32) -> LaunchShape {
    let grid = Dim3::new(n.div_ceil(PLAIN_TILE), m.div_ceil(PLAIN_TILE), n_products * n_parts);
    LaunchShape::new(grid, Dim3::new(256, 1, 1))
}

/// Where a block works.
struct Place {
    product: Product,
    /// First row and column of its tile of C.
    row: u32,
    column: u32,
    /// The part of the sum, from `start` to `end`, and its number.
    start: u32,
    end: u32,
    part: u32,
}

/// The block's product and tile, unless the tile lies outside the product. Parts are whole tiles of `depth`.
#[inline(always)]
fn place(products: &GlobalSlice<Product>, tile: u32, depth: u32, n_parts: u32) -> Option<Place> {
    let z = thread::block_idx_z();
    let product = products.get((z / n_parts) as usize);
    let (row, column) = (thread::block_idx_y() * tile, thread::block_idx_x() * tile);
    let part_len = product.k.div_ceil(depth).div_ceil(n_parts) * depth;
    let part = z % n_parts;
    let start = (part * part_len).min(product.k);
    let end = (start + part_len).min(product.k);
    (row < product.m && column < product.n).then_some(Place { product, row, column, start, end, part })
}
