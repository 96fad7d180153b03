//! Sums by a block of one thread, as blocks are on the CPU, where threads of a block are coroutines.
//!
//! Eight vectors of four are added side by side, vector i of the whole groups of eight to partial sum i mod 8; what is left of the
//! last group goes to partial sum 0, in order. Then partial sums add by halves, ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)), and
//! their components, (a + b) + (c + d). A sum of n terms so has at most n / 32 + 7 additions one after the other and 5 levels.

use core::ops::Range;

use crate::sweep::{self, VECTOR, Vector, each, unrolled};

/// Vectors that are added side by side.
const N_SUMS: usize = 8;
/// Terms of a group.
const GROUP: usize = N_SUMS * VECTOR;

/// Sum of the terms of `range`, a whole number of vectors; `terms` gives those of a vector.
#[inline(always)]
pub(crate) fn sum(range: Range<usize>, terms: impl Fn(usize) -> Vector) -> f32 {
    let mut sums = [[0.0; VECTOR]; N_SUMS];
    let mut at = range.start;
    while at + GROUP <= range.end {
        unrolled::<N_SUMS>(|i| {
            let terms = terms(at + i * VECTOR);
            sweep::add(&mut sums[i], |k| terms[k]);
        });
        at += GROUP;
    }
    while at < range.end {
        let terms = terms(at);
        sweep::add(&mut sums[0], |k| terms[k]);
        at += VECTOR;
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    let [a, b, c, d] = each(|k| ((s0[k] + s1[k]) + (s2[k] + s3[k])) + ((s4[k] + s5[k]) + (s6[k] + s7[k])));
    (a + b) + (c + d)
}

/// Sum of `n` terms that lie where no vector may be loaded: the whole vectors as [`sum`], then the rest in order.
#[inline(always)]
pub(crate) fn sum_of(n: usize, term: impl Fn(usize) -> f32) -> f32 {
    let whole = n / VECTOR * VECTOR;
    let mut total = sum(0..whole, |at| each(|k| term(at + k)));
    for at in whole..n {
        total += term(at);
    }
    total
}
