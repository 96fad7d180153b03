//! The gradient vaccine: where a step's gradient points away from the last applied one more than the two usually do, as much of that
//! one is added as brings their cosine back to the usual (Wang et al. 2021, GradVac, equations 2 and 3, between successive steps).
//!
//! | value | equation |
//! |---|---|
//! | cos | g s / (\|g\| \|s\|), g theta's gradient, s the snapshot: the last applied step's, both masked, before vaccine and clip |
//! | multiple | if cos < phi: weight \|g\| (phi sqrt(1 - cos^2) - cos sqrt(1 - phi^2)) / (\|s\| sqrt(1 - phi^2)), phi within +-0.99; else 0 |
//! | phi | EMA of cos, from 0, in the internal state vector; compared before it takes in this step's cos |
//! | squared norm | \|g + multiple s\|^2 = \|g\|^2 + multiple (2 g s + multiple \|s\|^2), the last sum over what the mask keeps |
//!
//! The sum is made in the sweep ([`adamw`](crate::adamw::adamw())), which needs the multiple alone, so the gradient is read no more
//! often than without. Without a snapshot, or without a gradient, nothing is compared and nothing is added.

use cuda_std::prelude::*;
use shared_types::{GradientNorm, LearnerRange, SnapshotProducts, VaccineScalars};

use crate::lanes::{self, N_LANES};
use crate::norm::{N_THREADS, N_WARPS, TILE, stretch};
use crate::sweep::{VECTOR, Vector, add};
use crate::{alone, math, prune};

/// Bound of phi in the formula.
pub const PHI_BOUND: f32 = 0.99;

/// Launch of [`snapshot_products()`] for theta's range: a block for each of its partial norms.
pub const fn snapshot_products_shape(theta: &LearnerRange, lanes: u32) -> LaunchShape {
    LaunchShape::linear(theta.n_partials, lanes::block_threads(N_THREADS, lanes))
}

/// Partial products of theta's gradient and the snapshot, in the order of [`gradient_norm`](crate::norm::gradient_norm()), with its
/// bound: of |g s| where that has g^2.
///
/// Shapes: snapshot `[n]`, theta's elements, which the flat gradient begins with; gradient at least as long; masks as
/// [`prune`] has them; partials, as many as theta has partial norms. Launch: [`snapshot_products_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn snapshot_products(
    gradient: GlobalSlice<f32>,
    snapshot: GlobalSlice<f32>,
    masks: GlobalSlice<u32>,
    partials: GlobalSliceMut<SnapshotProducts>,
) {
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let stretch = stretch(snapshot.len(), partials.len());
    let start = block * stretch;
    let end = snapshot.len().min(start + stretch);
    let terms = |at: usize| -> [Vector; 3] {
        let (g, s) = (prune::kept(&masks, at, gradient.load(at)), snapshot.load::<VECTOR>(at));
        let kept = prune::kept(&masks, at, s);
        [core::array::from_fn(|i| g[i] * s[i]), s.map(|s| s * s), kept.map(|s| s * s)]
    };
    if lanes::of_block(N_THREADS) == 1 {
        let range = start..end.max(start);
        let dot = alone::sum(range.clone(), |at| terms(at)[0]);
        let squares = alone::sum(range.clone(), |at| terms(at)[1]);
        let kept_squares = alone::sum(range, |at| terms(at)[2]);
        partials.set(block, SnapshotProducts { dot, squares, kept_squares, reserved: 0 });
        return;
    }
    // Apart, so that no array is indexed at run time, which would put it into local memory.
    let (mut dot, mut squares, mut kept_squares) = ([0.0; VECTOR], [0.0; VECTOR], [0.0; VECTOR]);
    let mut at = start + thread * VECTOR;
    while at < end {
        let [products, of_snapshot, of_kept] = terms(at);
        add(&mut dot, |i| products[i]);
        add(&mut squares, |i| of_snapshot[i]);
        add(&mut kept_squares, |i| of_kept[i]);
        at += TILE;
    }
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let of_warps = shared_slice![f32; 3 * N_WARPS];
    let of_warp = |[a, b, c, d]: Vector| lanes::all((a + b) + (c + d), |a, b| a + b);
    let (dot, squares, kept_squares) = (of_warp(dot), of_warp(squares), of_warp(kept_squares));
    if lane == 0 {
        of_warps.set(warp, dot);
        of_warps.set(N_WARPS + warp, squares);
        of_warps.set(2 * N_WARPS + warp, kept_squares);
    }
    // Between each warp's write of its sums and the first warp's reads of all.
    thread::sync_threads();
    if warp != 0 {
        return;
    }
    let of_block = |first: usize| {
        let of_warp = if lane < N_WARPS { of_warps.get(first + lane) } else { 0.0 };
        lanes::all(of_warp, |a, b| a + b)
    };
    let (dot, squares, kept_squares) = (of_block(0), of_block(N_WARPS), of_block(2 * N_WARPS));
    if lane == 0 {
        partials.set(block, SnapshotProducts { dot, squares, kept_squares, reserved: 0 });
    }
}

/// The products from their partials, by the 32 lanes of a warp, or by a thread alone; all get them.
#[inline(always)]
pub(crate) fn combined(partials: &GlobalSlice<SnapshotProducts>, lane: usize) -> SnapshotProducts {
    SnapshotProducts {
        dot: sum_of(partials, lane, |partial| partial.dot),
        squares: sum_of(partials, lane, |partial| partial.squares),
        kept_squares: sum_of(partials, lane, |partial| partial.kept_squares),
        reserved: 0,
    }
}

#[inline(always)]
fn sum_of(partials: &GlobalSlice<SnapshotProducts>, lane: usize, of: impl Fn(SnapshotProducts) -> f32) -> f32 {
    if lanes::of_block(N_LANES as u32) == 1 {
        return alone::sum_of(partials.len(), |part| of(partials.get(part)));
    }
    let mut sum = 0.0;
    for part in (lane..partials.len()).step_by(N_LANES) {
        sum += of(partials.get(part));
    }
    lanes::all(sum, |a, b| a + b)
}

/// Compares gradient and snapshot: what is added, and the norm with it.
#[inline]
pub fn vaccinated(
    found: GradientNorm,
    with: SnapshotProducts,
    phi: f32,
    weight: f32,
) -> (VaccineScalars, GradientNorm) {
    let square = found.sum_of_squares;
    // Also false for what is no number.
    if !(square > 0.0 && square < f32::INFINITY && with.squares > 0.0 && with.dot.is_finite()) {
        return (VaccineScalars::default(), found);
    }
    let (g, s) = (math::sqrt(square), math::sqrt(with.squares));
    let cosine = (with.dot / g / s).clamp(-1.0, 1.0);
    let multiple = if cosine < phi { weight * gradvac_multiple(g, s, cosine, phi) } else { 0.0 };
    let after = square + multiple * (2.0 * with.dot + multiple * with.kept_squares);
    let scalars = VaccineScalars { multiple, cosine, compared: 1, reserved: 0 };
    (scalars, GradientNorm { sum_of_squares: after.max(0.0), ..found })
}

/// What the snapshot is multiplied by so that adding it makes the cosine phi.
#[inline]
pub fn gradvac_multiple(gradient_norm: f32, snapshot_norm: f32, cosine: f32, phi: f32) -> f32 {
    let phi = phi.clamp(-PHI_BOUND, PHI_BOUND);
    // (1 - x)(1 + x) keeps its digits where x is near 1.
    let sine = |x: f32| math::sqrt((1.0 - x) * (1.0 + x));
    gradient_norm * (phi * sine(cosine) - cosine * sine(phi)) / (snapshot_norm * sine(phi))
}
