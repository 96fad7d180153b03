//! Initial values of the parameters: tensor i of the layout from stream 1000 + i, element = its index, step 0.

use gpu_kernels::philox;
use shared_types::stream;

use super::layout::{Init, Layout};

/// The flat parameters before the first step.
pub fn initial_values(layout: &Layout, seed: [u32; 2]) -> Vec<f32> {
    let mut flat = vec![0.0; layout.n_elements()];
    for (number, tensor) in layout.tensors().iter().enumerate() {
        let stream = stream::PARAMETERS + number as u32;
        let scale = match tensor.init {
            Init::Normal(factor) => factor / (tensor.fan_in() as f32).sqrt(),
            _ => 1.0,
        };
        for (element, value) in flat[tensor.range()].iter_mut().enumerate() {
            let uniform = || philox::uniform(seed, stream, 0, element as u32);
            *value = match tensor.init {
                Init::Zero => 0.0,
                Init::One => 1.0,
                Init::Normal(_) => scale * philox::normal(seed, stream, 0, element as u32),
                Init::Conv => uniform() - 0.5,
                Init::ALog => (1.0 + 15.0 * uniform()).ln(),
                Init::DtBias => inverse_softplus(log_uniform(0.001, 0.1, uniform())),
            };
        }
    }
    flat
}

fn log_uniform(low: f64, high: f64, uniform: f32) -> f64 {
    (low.ln() + (high.ln() - low.ln()) * f64::from(uniform)).exp()
}

/// The x with ln(1 + e^x) = y: y + ln(1 - e^-y).
fn inverse_softplus(y: f64) -> f32 {
    (y + (-(-y).exp_m1()).ln()) as f32
}
