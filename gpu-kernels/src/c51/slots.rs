//! How the lanes of a row share its distributions.

use cuda_std::prelude::*;

use crate::heads::HeadColumns;
use crate::{lanes, math};

/// Calls a function that is generic over (lanes of a row, slots of a lane) with what the launch has: (32, 2), or on the CPU
/// also (1, 64). The second is no part of the PTX.
macro_rules! by_lanes {
    ($function:ident($($argument:expr),* $(,)?)) => {
        if cfg!(target_os = "cuda") || $crate::lanes::of_row() != 1 {
            $function::<{ $crate::lanes::N_LANES }, 2>($($argument),*)
        } else {
            $function::<1, { $crate::heads::N_ATOMS_MAX }>($($argument),*)
        }
    };
}
pub(super) use by_lanes;

/// Sums over a lane's slots go on side by side in so many parts, which the CPU's compiler makes vectors of.
const N_PARTS: usize = 8;

/// One lane's share of a distribution: atom lane + LANES * slot stands in slot `slot`.
#[derive(Clone, Copy)]
pub(super) struct Slots<const LANES: usize, const SLOTS: usize> {
    lane: usize,
    n_atoms: usize,
}

/// The distributions of a branch's N actions, this lane's part.
pub(super) struct Distributions<const SLOTS: usize, const N: usize> {
    /// Atoms z; 0 in a slot without atom.
    pub z: [f32; SLOTS],
    /// Logits less the greatest of their distribution; -inf in a slot without atom.
    pub shifted: [[f32; SLOTS]; N],
    /// exp of `shifted`: p times `mass`.
    pub weights: [[f32; SLOTS]; N],
    /// Sum of all weights, 1 to K.
    pub mass: [f32; N],
    /// 1 / `mass`.
    pub share: [f32; N],
    /// Q = sum_k p_k z_k.
    pub q: [f32; N],
}

impl<const LANES: usize, const SLOTS: usize> Slots<LANES, SLOTS> {
    /// Of the calling thread.
    #[inline(always)]
    pub fn new(n_atoms: usize) -> Self {
        Self { lane: if LANES == 1 { 0 } else { thread::thread_idx_x() as usize }, n_atoms }
    }

    /// The atom in a slot.
    #[inline(always)]
    pub fn atom(&self, slot: usize) -> usize {
        self.lane + LANES * slot
    }

    /// Whether the slot has an atom.
    #[inline(always)]
    pub fn holds(&self, slot: usize) -> bool {
        self.atom(slot) < self.n_atoms
    }

    /// One value an atom; 0 in a slot without.
    #[inline(always)]
    pub fn load(&self, read: impl Fn(usize) -> f32) -> [f32; SLOTS] {
        let mut values = [0.0; SLOTS];
        for (slot, value) in values.iter_mut().enumerate() {
            if self.holds(slot) {
                *value = read(self.atom(slot));
            }
        }
        values
    }

    /// Sums over all atoms.
    #[inline(always)]
    pub fn sums<const N: usize>(&self, values: &[[f32; SLOTS]; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        for (sum, values) in sums.iter_mut().zip(values) {
            *sum = in_lane(values);
        }
        // One distance after the other, so that the shuffles of different sums do not wait for each other.
        let mut distance = LANES as u32 / 2;
        while distance > 0 {
            for sum in &mut sums {
                *sum += lanes::across(*sum, distance);
            }
            distance /= 2;
        }
        sums
    }

    /// Cumulative sums: for each atom the sum over all atoms below it, and the sum over all.
    #[inline(always)]
    pub fn sums_below<const N: usize>(&self, values: &[[f32; SLOTS]; N]) -> ([[f32; SLOTS]; N], [f32; N]) {
        // Of the atoms of a slot: over this lane and those before it.
        let mut sums = *values;
        let mut distance = 1;
        while distance < LANES {
            for sums in &mut sums {
                for sum in sums {
                    let (before, in_range) = lanes::below(*sum, distance as u32);
                    *sum += if in_range { before } else { 0.0 };
                }
            }
            distance *= 2;
        }
        let mut all = [0.0; N];
        for action in 0..N {
            for slot in 0..SLOTS {
                let with_own = sums[action][slot];
                let (mut before, mut of_slot) = (0.0, with_own);
                if LANES > 1 {
                    let (lower, in_range) = lanes::below(with_own, 1);
                    before = if in_range { lower } else { 0.0 };
                    of_slot = lanes::from(with_own, LANES - 1);
                }
                sums[action][slot] = all[action] + before;
                all[action] += of_slot;
            }
        }
        (sums, all)
    }

    /// Greatest value of each distribution; unspecified where one is NaN.
    #[inline(always)]
    fn tops<const N: usize>(&self, values: &[[f32; SLOTS]; N]) -> [f32; N] {
        let mut tops = [0.0; N];
        for (top, values) in tops.iter_mut().zip(values) {
            let mut greatest = i32::MIN;
            for value in values {
                greatest = greatest.max(ordered(*value));
            }
            if LANES > 1 {
                greatest = (lanes::largest(greatest as u32 ^ SIGN) ^ SIGN) as i32;
            }
            *top = disordered(greatest);
        }
        tops
    }

    /// Logits of a branch of N actions; -inf in a slot without atom. `read` gives the row's column.
    #[inline(always)]
    pub fn logits<const N: usize>(
        &self,
        columns: &HeadColumns,
        branch: usize,
        read: impl Fn(usize) -> f32,
    ) -> [[f32; SLOTS]; N] {
        let value = self.load(|atom| read(columns.value(branch) + atom));
        let mut logits = [[0.0; SLOTS]; N];
        for (action, logits) in logits.iter_mut().enumerate() {
            *logits = self.load(|atom| read(columns.advantage(branch, action) + atom));
        }
        for slot in 0..SLOTS {
            let mut sum = 0.0;
            for advantages in &logits {
                sum += advantages[slot];
            }
            let shift = value[slot] - sum * (1.0 / N as f32);
            for logits in &mut logits {
                logits[slot] = if self.holds(slot) { logits[slot] + shift } else { f32::NEG_INFINITY };
            }
        }
        logits
    }

    /// exp(logits - top), in place of the logits `logits` - top. The greatest weight is 1, so that their sum is in `[1, K]`.
    #[inline(always)]
    pub fn weights<const N: usize>(&self, logits: &mut [[f32; SLOTS]; N]) -> [[f32; SLOTS]; N] {
        let tops = self.tops(logits);
        let mut weights = [[0.0; SLOTS]; N];
        for action in 0..N {
            for slot in 0..SLOTS {
                logits[action][slot] -= tops[action];
                weights[action][slot] = math::exp_nonpositive(logits[action][slot]);
            }
        }
        weights
    }

    /// The distributions of a branch of N actions. `read` gives the row's column; atoms `[4, K]`.
    #[inline(always)]
    pub fn distributions<const N: usize>(
        &self,
        atoms: &GlobalSlice<f32>,
        columns: &HeadColumns,
        branch: usize,
        read: impl Fn(usize) -> f32,
    ) -> Distributions<SLOTS, N> {
        let z = self.load(|atom| atoms.get(branch * self.n_atoms + atom));
        let mut shifted = self.logits::<N>(columns, branch, read);
        let weights = self.weights(&mut shifted);
        let mut moments = weights;
        for moments in &mut moments {
            for slot in 0..SLOTS {
                moments[slot] *= z[slot];
            }
        }
        let mass = self.sums(&weights);
        let share = mass.map(|mass| 1.0 / mass);
        let mut q = self.sums(&moments);
        for action in 0..N {
            q[action] *= share[action];
        }
        Distributions { z, shifted, weights, mass, share, q }
    }
}

/// Sum of a lane's slots.
#[inline(always)]
fn in_lane<const SLOTS: usize>(values: &[f32; SLOTS]) -> f32 {
    if SLOTS < N_PARTS {
        let mut sum = values[0];
        for value in &values[1..] {
            sum += value;
        }
        return sum;
    }
    let mut parts = [0.0; N_PARTS];
    for chunk in values.chunks_exact(N_PARTS) {
        for (part, value) in parts.iter_mut().zip(chunk) {
            *part += value;
        }
    }
    let [a, b, c, d, e, f, g, h] = parts;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

const SIGN: u32 = 1 << 31;

/// A number as an integer that is ordered as the numbers are: so a maximum over lanes is one instruction.
#[inline(always)]
fn ordered(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    bits ^ ((bits >> 31) & i32::MAX)
}

/// The number of [`ordered`].
#[inline(always)]
fn disordered(ordered: i32) -> f32 {
    f32::from_bits((ordered ^ ((ordered >> 31) & i32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_ordered_as_the_numbers() {
        let numbers =
            [f32::NEG_INFINITY, -3.0, -1e-30, -0.0, 0.0, f32::MIN_POSITIVE, 0.5, 80.0, f32::MAX, f32::INFINITY];
        for pair in numbers.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
        }
        for number in numbers {
            assert_eq!(disordered(ordered(number)).to_bits(), number.to_bits());
        }
    }
}
