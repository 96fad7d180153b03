//! Matrix products: all of a layer's in one launch, with what follows them.
//!
//! C = A B in one of three forms ([`ProductForm`](shared_types::ProductForm)), sums in f32, and an
//! [`Epilogue`](shared_types::Epilogue). A launch works on a list of products ([`Product`]) that share their buffers; a
//! block's z is the product's number, or with the sums cut into parts, the product's number times parts plus the part.
//!
//! | kernel | operands | by |
//! |---|---|---|
//! | [`matmul_nt()`], [`matmul_nn()`], [`matmul_tn()`] | bf16 | `mma.sync`, tiles of 128 x 128 x 32 in shared memory, three in flight |
//! | [`matmul_nt_wgmma_128()`], [`matmul_nt_wgmma_256()`], the same of nn and tn | bf16 | `wgmma`, tiles of 128 x 128 and 128 x 256, 64 deep; in the sm_90a image alone |
//! | [`matmul_f32()`], any form | f32 | multiply-adds, tiles of 64 x 64 x 16 |
//! | [`sum_parts()`] | f32 partial sums | adds the parts in order |
//!
//! On the CPU the device replaces these launches by a library's products (`host::device::Matmul`); the executor runs the
//! kernels themselves in tests.

mod epilogue;
mod parts;
mod plain;
mod tensor;
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
mod wgmma;

use cuda_std::prelude::*;
use cuda_std::shape::Dim3;
pub use parts::{sum_parts, sum_parts_shape};
pub use plain::matmul_f32;
use shared_types::Product;
pub use tensor::{matmul_nn, matmul_nt, matmul_tn};
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
pub use wgmma::{
    matmul_nn_wgmma_128, matmul_nn_wgmma_256, matmul_nt_wgmma_128, matmul_nt_wgmma_256, matmul_tn_wgmma_128,
    matmul_tn_wgmma_256,
};

/// Rows and columns of C that a block of the bf16 kernels makes; `wgmma`'s columns are [`WgmmaTile::columns`].
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

/// What a block of the `wgmma` kernels makes of C: 128 rows by so many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgmmaTile {
    /// Two blocks share a multiprocessor: the one's products run while the other waits.
    Columns128,
    /// A block fills a multiprocessor, and reads a quarter less of the operands.
    Columns256,
}

impl WgmmaTile {
    /// Columns of C.
    pub const fn columns(self) -> u32 {
        match self {
            Self::Columns128 => 128,
            Self::Columns256 => 256,
        }
    }

    /// Tiles of both operands in shared memory, as many as fit.
    const fn n_stages(self) -> u32 {
        match self {
            Self::Columns128 => 3,
            Self::Columns256 => 4,
        }
    }

    /// Dynamic shared memory of a block, bytes.
    const fn shared_bytes(self) -> u32 {
        self.n_stages() * (TENSOR_TILE + self.columns()) * WGMMA_DEPTH * size_of::<u16>() as u32
    }

    /// The tile for products of these (m, n), each sum in `n_parts`: wide ones where they make a wave of blocks and little more
    /// of C than narrow ones do.
    pub fn for_products(sizes: impl Iterator<Item = (u32, u32)>, n_parts: u32) -> Self {
        let (mut narrow, mut wide) = (0, 0);
        for (m, n) in sizes {
            let n_rows = m.div_ceil(TENSOR_TILE) * n_parts;
            narrow += n_rows * n.div_ceil(Self::Columns128.columns());
            wide += n_rows * n.div_ceil(Self::Columns256.columns());
        }
        if wide >= LEAST_WIDE && 2 * wide <= narrow + narrow / 8 { Self::Columns256 } else { Self::Columns128 }
    }
}

/// Length of the sums of a tile of the `wgmma` kernels.
const WGMMA_DEPTH: u32 = 64;
/// Wide tiles that are worth a wave: three quarters of the 132 multiprocessors of an H100 or H200.
const LEAST_WIDE: u32 = 99;

/// Launch of the `wgmma` kernels with this tile, as [`matmul_shape`].
pub const fn matmul_wgmma_shape(tile: WgmmaTile, m: u32, n: u32, n_products: u32, n_parts: u32) -> LaunchShape {
    let grid = Dim3::new(n.div_ceil(tile.columns()), m.div_ceil(TENSOR_TILE), n_products * n_parts);
    LaunchShape::new(grid, Dim3::new(256, 1, 1)).with_shared(tile.shared_bytes())
}

/// An operand in global memory.
struct Stored {
    from: *const u16,
    stride: u32,
    /// Extent of m or n.
    end: u32,
    /// End of this part of the sums.
    sum_end: u32,
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

/// The block's product and tile (rows, columns), unless the tile lies outside the product. Parts are whole tiles of `depth`.
#[inline(always)]
fn place(products: &GlobalSlice<Product>, tile: [u32; 2], depth: u32, n_parts: u32) -> Option<Place> {
    let z = thread::block_idx_z();
    let product = products.get((z / n_parts) as usize);
    let (row, column) = (thread::block_idx_y() * tile[0], thread::block_idx_x() * tile[1]);
    let part_len = product.k.div_ceil(depth).div_ceil(n_parts) * depth;
    let part = z % n_parts;
    let start = (part * part_len).min(product.k);
    let end = (start + part_len).min(product.k);
    (row < product.m && column < product.n).then_some(Place { product, row, column, start, end, part })
}
