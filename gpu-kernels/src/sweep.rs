//! Ways over memory that keep several loads in flight, and keep in registers what is read again.

use cuda_std::prelude::*;

use crate::lanes;

/// f32 in 16 bytes, the widest access.
pub(crate) const VECTOR: usize = 4;
/// Vectors of a row that a lane keeps: with 32 lanes a row of 512, the hidden width of preset `full`.
const KEPT: usize = 4;

/// Four neighbouring columns.
pub(crate) type Vector = [f32; VECTOR];
/// A value for each of the first vectors of a lane's share of a row.
pub(crate) type Kept<V> = [V; KEPT];

/// A lane's share of a row: its vector i begins at column 4 (lane + i lanes).
pub(crate) struct Row {
    width: usize,
    first: usize,
    step: usize,
}

impl Row {
    /// This thread's share of a row of `width` columns, a multiple of 4.
    #[inline(always)]
    pub(crate) fn new(width: usize) -> Self {
        Self { width, first: thread::thread_idx_x() as usize * VECTOR, step: lanes::of_row() * VECTOR }
    }

    /// Loads the vectors that are kept.
    #[inline(always)]
    pub(crate) fn load<V: Copy + Default>(&self, load: impl Fn(usize) -> V) -> Kept<V> {
        core::array::from_fn(|i| {
            let at = self.first + i * self.step;
            if at < self.width { load(at) } else { V::default() }
        })
    }

    /// Calls `work` with the column and the value of each vector, in order; what was not kept comes from `again`. Returns what
    /// `work` made of the kept ones.
    #[inline(always)]
    pub(crate) fn sweep<V: Copy, W: Copy + Default>(
        &self,
        kept: &Kept<V>,
        again: impl Fn(usize) -> V,
        mut work: impl FnMut(usize, V) -> W,
    ) -> Kept<W> {
        let mut made = [W::default(); KEPT];
        unrolled::<KEPT>(|i| {
            let at = self.first + i * self.step;
            if at < self.width {
                made[i] = work(at, kept[i]);
            }
        });
        let mut at = self.first + KEPT * self.step;
        while at < self.width {
            work(at, again(at));
            at += self.step;
        }
        made
    }
}

/// Calls `work` with `at`, `at + step`, ... under `end` and what `load` gives there, in order, `AHEAD` (at most 8) loads before the
/// first of their calls.
#[inline(always)]
pub(crate) fn ahead<const AHEAD: usize, T: Copy>(
    mut at: usize,
    end: usize,
    step: usize,
    load: impl Fn(usize) -> T,
    mut work: impl FnMut(usize, T),
) {
    while at + (AHEAD - 1) * step < end {
        let loaded: [T; AHEAD] = core::array::from_fn(|i| load(at + i * step));
        unrolled::<AHEAD>(|i| work(at + i * step, loaded[i]));
        at += AHEAD * step;
    }
    while at < end {
        work(at, load(at));
        at += step;
    }
}

/// Calls `work` with 0 to N - 1, N at most 8.
///
/// Written out, since LLVM does not unroll a loop whose body is large, and what the body indexes would lie in local memory.
#[inline(always)]
pub(crate) fn unrolled<const N: usize>(mut work: impl FnMut(usize)) {
    const { assert!(N <= 8) };
    if N > 0 {
        work(0);
    }
    if N > 1 {
        work(1);
    }
    if N > 2 {
        work(2);
    }
    if N > 3 {
        work(3);
    }
    if N > 4 {
        work(4);
    }
    if N > 5 {
        work(5);
    }
    if N > 6 {
        work(6);
    }
    if N > 7 {
        work(7);
    }
}

/// Rows of `width` in a matrix of `len` elements, fewer than 2^32: one 32-bit division.
#[inline(always)]
pub(crate) fn n_rows(len: usize, width: usize) -> usize {
    (len as u32 / width as u32) as usize
}

/// Element by element.
#[inline(always)]
pub(crate) fn each(value: impl Fn(usize) -> f32) -> Vector {
    core::array::from_fn(value)
}

/// Adds to each element of `sums`.
#[inline(always)]
pub(crate) fn add(sums: &mut Vector, value: impl Fn(usize) -> f32) {
    *sums = core::array::from_fn(|k| sums[k] + value(k));
}

/// Sum of a row from the lanes' sums of vectors.
#[inline(always)]
pub(crate) fn row_total([a, b, c, d]: Vector) -> f32 {
    lanes::row_sum((a + b) + (c + d))
}
