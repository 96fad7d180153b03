//! FiLM's vector [g; s] = W_isv tanh(isv[0..12]), entries 0 and 1 as ln(1 + x) first, and the gradient of W_isv. All in f32.

use cuda_std::prelude::*;

use crate::sweep::VECTOR;
use crate::{columns, math};

/// Entries of the internal state vector that modulate the trunk.
pub const N_FILM_INPUTS: usize = 12;
/// Of them, those that are losses, unbounded above.
const N_LOSSES: usize = 2;

/// Launch of [`film_vector()`]: a thread for four of the 2H rows.
pub const fn film_vector_shape(hidden: usize) -> LaunchShape {
    LaunchShape::cover(2 * hidden / VECTOR, 64)
}

/// Launch of [`film_backward()`]: a thread for each of the 2H rows.
pub const fn film_backward_shape(hidden: usize) -> LaunchShape {
    LaunchShape::cover(2 * hidden, 64)
}

/// [g; s], and the inputs for [`film_backward()`]. With `enabled` 0 both are 0, and so is the gradient.
///
/// Shapes: film_weight `[2H, 12]`, bus `[64]`, film `[2H]` (g, then s), inputs `[12]`. Launch: [`film_vector_shape`].
#[kernel(max_threads = 64)]
pub fn film_vector(
    film_weight: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    film: GlobalSliceMut<f32>,
    inputs: GlobalSliceMut<f32>,
    enabled: u32,
) {
    let first = thread::index_1d() as usize * VECTOR;
    if first >= film.len() {
        return;
    }
    let mut sums = [0.0; VECTOR];
    for entry in 0..N_FILM_INPUTS {
        let input = if enabled == 0 { 0.0 } else { film_input(bus.get(entry), entry) };
        if first == 0 {
            inputs.set(entry, input);
        }
        if enabled != 0 {
            sums = core::array::from_fn(|k| sums[k] + film_weight.get((first + k) * N_FILM_INPUTS + entry) * input);
        }
    }
    film.store(first, sums);
}

/// An input of FiLM from its entry of the internal state vector.
#[inline]
pub fn film_input(value: f32, entry: usize) -> f32 {
    math::tanh(if entry < N_LOSSES { math::ln_1p(value) } else { value })
}

/// dW_isv = [dg; ds] inputs^T, from the partial sums of dg and ds.
///
/// Shapes: partials, the slice of `[P, partial_stride]` that begins at dg's first column, ds following dg, as
/// [`entry_partials`](fn@super::backward::entry_partials) leaves them; inputs `[12]`; dweight `[2H, 12]`. Launch:
/// [`film_backward_shape`].
#[kernel(max_threads = 64, min_blocks = 16)]
pub fn film_backward(
    partials: GlobalSlice<f32>,
    inputs: GlobalSlice<f32>,
    dweight: GlobalSliceMut<f32>,
    partial_stride: u32,
) {
    let row = thread::index_1d() as usize;
    if row * N_FILM_INPUTS >= dweight.len() {
        return;
    }
    let d = columns::sum_of_partials(&partials, row, partial_stride as usize);
    for entry in (0..N_FILM_INPUTS).step_by(VECTOR) {
        let inputs: [f32; VECTOR] = inputs.load(entry);
        dweight.store(row * N_FILM_INPUTS + entry, inputs.map(|input| d * input));
    }
}
