//! Initial values of the parameters (section 6.4).

use std::sync::Arc;

use crate::layout::{Init, Layout, Tensors};
use crate::philox::{PARAMETER_STREAM, normal, uniform};

/// Start of every parameter: tensor i from stream 1000 + i, element = index in the tensor, rng_step 0.
pub fn initial_values(layout: &Arc<Layout>, seed: u64) -> Tensors {
    let mut params = Tensors::zeros(layout);
    for (i, tensor) in layout.tensors.iter().enumerate() {
        let stream = PARAMETER_STREAM + i as u32;
        for element in 0..tensor.len() {
            params.flat[tensor.offset + element] =
                initial_value(tensor.init, tensor.fan_in(), seed, stream, element as u32);
        }
    }
    params
}

fn initial_value(init: Init, fan_in: usize, seed: u64, stream: u32, element: u32) -> f64 {
    let uniform = || uniform(seed, stream, 0, element);
    match init {
        Init::Zero => 0.0,
        Init::One => 1.0,
        Init::Normal(factor) => factor * normal(seed, stream, 0, element) / (fan_in as f64).sqrt(),
        Init::Conv => uniform() - 0.5,
        Init::ALog => (1.0 + 15.0 * uniform()).ln(),
        Init::DtBias => {
            let (low, high) = (0.001f64.ln(), 0.1f64.ln());
            inverse_softplus((low + (high - low) * uniform()).exp())
        }
    }
}

/// The x with softplus(x) = y, y > 0: y + ln(1 - exp(-y)).
pub fn inverse_softplus(y: f64) -> f64 {
    y + (-(-y).exp_m1()).ln()
}
