//! Per-branch variable selection, apart from its matrix products.
//!
//! gate_b = softmax(W_g,b h) over 8 groups of columns; h_b = h 8 gate_b, group by group (group g is h[gH/8 .. (g+1)H/8]). H is a
//! multiple of 8. Gates of a row are `[4, 8]`, branch after branch.
//!
//! Of a row's 32 lanes, four share a group: lane l has group l / 4 and every fourth vector of it (every fourth element, where a
//! group is no whole number of vectors), so that a group's sum crosses four lanes and a branch's softmax eight. The same lane has
//! the gate of branch l mod 4.

use cuda_std::prelude::*;
use shared_types::Precision;
use shared_types::market::N_BRANCHES;

use crate::sweep::{self, VECTOR, Vector, each};
use crate::{lanes, math, operand};

/// Groups of columns.
pub const N_GROUPS: usize = 8;
/// Gates of a row.
pub const N_GATES: usize = N_BRANCHES * N_GROUPS;
/// Lanes that share a group.
const SHARERS: usize = lanes::N_LANES / N_GROUPS;
// A lane has one gate.
const _: () = assert!(SHARERS == N_BRANCHES);
/// Vectors whose loads a lane has in flight.
const AHEAD: usize = 4;

/// A value for each branch.
type PerBranch = [f32; N_BRANCHES];

/// What a lane takes of a group's columns.
struct Share {
    start: usize,
    end: usize,
    sharer: usize,
    n_sharers: usize,
}

impl Share {
    fn new(width: usize, group: usize, sharer: usize, n_sharers: usize) -> Self {
        let columns = width / N_GROUPS;
        Self { start: group * columns, end: (group + 1) * columns, sharer, n_sharers }
    }

    /// Calls `vectors` with the columns of whole vectors, or `elements` with single columns where groups have none.
    #[inline(always)]
    fn columns<T: Copy>(
        &self,
        load: impl Fn(usize) -> T,
        vectors: impl FnMut(usize, T),
        mut elements: impl FnMut(usize),
    ) {
        if (self.end - self.start).is_multiple_of(VECTOR) {
            let first = self.start + self.sharer * VECTOR;
            sweep::ahead::<AHEAD, T>(first, self.end, self.n_sharers * VECTOR, load, vectors);
        } else {
            for column in (self.start + self.sharer..self.end).step_by(self.n_sharers) {
                elements(column);
            }
        }
    }
}

/// Gates and selected columns. With `enabled` 0 every gate is 1/8, so that every h_b is h.
///
/// Shapes: h2 `[R, H]`, gate_logits `[R, 32]` (empty when off), gates `[R, 32]`, branch_in operand `[5, R, H]`, of which it writes
/// slots 1 to 4. Launch: [`row_shape`](lanes::row_shape).
// Asked for no more blocks, the compiler takes more registers than it would on its own, and spills none.
#[kernel(cooperative, conditional, max_threads = 256, min_blocks = 3)]
pub fn branch_select(
    h2: GlobalSlice<f32>,
    gate_logits: GlobalSlice<f32>,
    gates: GlobalSliceMut<f32>,
    branch_in: GlobalSliceMut<u16>,
    enabled: u32,
    precision: Precision,
) {
    let n_rows = gates.len() / N_GATES;
    let Some(row) = lanes::row_index(n_rows) else { return };
    let width = sweep::n_rows(h2.len(), n_rows);
    let first_gate = row * N_GATES;
    let spread = |share: Share, gates: PerBranch| {
        let factors = gates.map(|gate| N_GROUPS as f32 * gate);
        let slot = |branch: usize| (1 + branch) * n_rows * width + row * width;
        share.columns(
            |at| -> Vector { h2.load(row * width + at) },
            |at, h| {
                for (branch, factor) in factors.iter().enumerate() {
                    operand::store4(&branch_in, slot(branch) + at, h.map(|h| h * factor), precision);
                }
            },
            |at| {
                for (branch, factor) in factors.iter().enumerate() {
                    operand::store(&branch_in, slot(branch) + at, h2.get(row * width + at) * factor, precision);
                }
            },
        );
    };
    if lanes::of_row() == 1 {
        let all: [[f32; N_GROUPS]; N_BRANCHES] = core::array::from_fn(|branch| {
            let first = first_gate + branch * N_GROUPS;
            if enabled == 0 {
                [1.0 / N_GROUPS as f32; N_GROUPS]
            } else {
                softmax(core::array::from_fn(|group| gate_logits.get(first + group)))
            }
        });
        for group in 0..N_GROUPS {
            let of_group = all.map(|gates| gates[group]);
            for (branch, gate) in of_group.into_iter().enumerate() {
                gates.set(first_gate + branch * N_GROUPS + group, gate);
            }
            spread(Share::new(width, group, 0, 1), of_group);
        }
        return;
    }
    let lane = thread::thread_idx_x() as usize;
    let (group, sharer) = (lane / SHARERS, lane % SHARERS);
    let own = first_gate + sharer * N_GROUPS + group;
    let mut gate = 1.0 / N_GROUPS as f32;
    if enabled != 0 {
        let logit = gate_logits.get(own);
        let e = math::exp(logit - over_groups(logit, f32::max));
        gate = e / over_groups(e, |a, b| a + b);
    }
    gates.set(own, gate);
    let of_group = core::array::from_fn(|branch| lanes::of_lane(gate, group * SHARERS + branch));
    spread(Share::new(width, group, sharer, SHARERS), of_group);
}

/// softmax of a branch's logits.
#[inline]
fn softmax(logits: [f32; N_GROUPS]) -> [f32; N_GROUPS] {
    let top = logits.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let e = logits.map(|logit| math::exp(logit - top));
    let sum = e.into_iter().fold(0.0, |sum, e| sum + e);
    e.map(|e| e / sum)
}

/// Combines the values of the lanes that have the same branch.
#[inline(always)]
fn over_groups(mut value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut distance = SHARERS as u32;
    while distance < lanes::N_LANES as u32 {
        value = combine(value, lanes::across(value, distance));
        distance *= 2;
    }
    value
}

/// Gradient of h2 through the branches' inputs but for the gates' product, and that of the gates' logits:
/// dh = d_in_0 + sum_b d_in_b 8 gate_b + extra; with dgate = sum over the group of 8 d_in_b h,
/// dlogit = gate (dgate - sum over groups of gate dgate), 0 with `enabled` 0.
///
/// Shapes: h2 `[R, H]`, gates `[R, 32]`, d_in `[5, R, H]`, extra `[R, H]` or empty, dh `[R, H]`, dgate_logits operand `[R, 32]`.
/// Launch: [`row_shape`](lanes::row_shape).
#[kernel(cooperative, max_threads = 256)]
pub fn branch_select_backward(
    h2: GlobalSlice<f32>,
    gates: GlobalSlice<f32>,
    d_in: GlobalSlice<f32>,
    extra: GlobalSlice<f32>,
    dh: GlobalSliceMut<f32>,
    dgate_logits: GlobalSliceMut<u16>,
    enabled: u32,
    precision: Precision,
) {
    let n_rows = gates.len() / N_GATES;
    let Some(row) = lanes::row_index(n_rows) else { return };
    let width = sweep::n_rows(h2.len(), n_rows);
    let first_gate = row * N_GATES;
    let (from, slot) = (row * width, n_rows * width);
    // Writes a share of dh; returns its part of each branch's dgate.
    let gather = |share: Share, group: usize| -> PerBranch {
        let factors: PerBranch =
            core::array::from_fn(|branch| N_GROUPS as f32 * gates.get(first_gate + branch * N_GROUPS + group));
        let mut sums = [[0.0; VECTOR]; N_BRANCHES];
        let mut rest = [0.0; N_BRANCHES];
        share.columns(
            |at| -> (Vector, Vector, [Vector; N_BRANCHES], Vector) {
                let d = core::array::from_fn(|branch| d_in.load((1 + branch) * slot + from + at));
                let extra = if extra.is_empty() { [0.0; VECTOR] } else { extra.load(from + at) };
                (h2.load(from + at), d_in.load(from + at), d, extra)
            },
            |at, (h, d0, d, extra)| {
                let through =
                    |k: usize| (0..N_BRANCHES).fold(d0[k], |sum, branch| sum + d[branch][k] * factors[branch]);
                dh.store(from + at, each(|k| through(k) + extra[k]));
                for (branch, sums) in sums.iter_mut().enumerate() {
                    sweep::add(sums, |k| d[branch][k] * h[k]);
                }
            },
            |at| {
                let h = h2.get(from + at);
                let mut through = d_in.get(from + at);
                for (branch, rest) in rest.iter_mut().enumerate() {
                    let d = d_in.get((1 + branch) * slot + from + at);
                    through += d * factors[branch];
                    *rest += d * h;
                }
                dh.set(from + at, through + if extra.is_empty() { 0.0 } else { extra.get(from + at) });
            },
        );
        core::array::from_fn(|branch| {
            let [a, b, c, d] = sums[branch];
            N_GROUPS as f32 * (((a + b) + (c + d)) + rest[branch])
        })
    };
    let put = |gate_index: usize, value: f32| {
        operand::store(&dgate_logits, first_gate + gate_index, if enabled == 0 { 0.0 } else { value }, precision);
    };
    if lanes::of_row() == 1 {
        let dgates: [PerBranch; N_GROUPS] = core::array::from_fn(|group| gather(Share::new(width, group, 0, 1), group));
        for branch in 0..N_BRANCHES {
            let gate = |group: usize| gates.get(first_gate + branch * N_GROUPS + group);
            let inner = (0..N_GROUPS).fold(0.0, |sum, group| sum + gate(group) * dgates[group][branch]);
            for (group, dgate) in dgates.iter().enumerate() {
                put(branch * N_GROUPS + group, gate(group) * (dgate[branch] - inner));
            }
        }
        return;
    }
    let lane = thread::thread_idx_x() as usize;
    let (group, sharer) = (lane / SHARERS, lane % SHARERS);
    let parts = gather(Share::new(width, group, sharer, SHARERS), group);
    let mut dgate = 0.0;
    for (branch, part) in parts.iter().enumerate() {
        let pairs = part + lanes::across(*part, 1);
        let whole = pairs + lanes::across(pairs, 2);
        if branch == sharer {
            dgate = whole;
        }
    }
    let own = sharer * N_GROUPS + group;
    let gate = gates.get(first_gate + own);
    let inner = over_groups(gate * dgate, |a, b| a + b);
    put(own, gate * (dgate - inner));
}
