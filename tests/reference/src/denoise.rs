//! Denoising autoencoder (Vincent et al. 2008) on the last bar's features: SiLU(W_e x + b_e), linear decoder.

use crate::activation::{silu, silu_slope};
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::precision::Precision;

/// Bottleneck `[B, 32]` of features x `[B, F]`.
pub fn encode(precision: Precision, p: &Tensors, x: &Matrix) -> Matrix {
    encoder_pre(precision, p, x).map(silu)
}

fn encoder_pre(precision: Precision, p: &Tensors, x: &Matrix) -> Matrix {
    let mut pre = precision.linear(x, &p.matrix("denoise.encoder.weight"));
    pre.add_to_rows(p.slice("denoise.encoder.bias"));
    pre
}

/// Mean squared error, over rows and features, of the decoded noisy features against the clean ones; gradients of both layers are
/// added to `grads`. `noisy` and `clean` `[B, F]`.
pub fn loss(precision: Precision, p: &Tensors, noisy: &Matrix, clean: &Matrix, grads: &mut Tensors) -> f64 {
    let pre = encoder_pre(precision, p, noisy);
    let code = pre.map(silu);
    let mut decoded = precision.linear(&code, &p.matrix("denoise.decoder.weight"));
    decoded.add_to_rows(p.slice("denoise.decoder.bias"));
    let n = decoded.values.len() as f64;
    let error = decoded.zip(clean, |d, c| d - c);
    let ddecoded = error.map(|e| 2.0 * e / n);
    grads.add("denoise.decoder.bias", &ddecoded.sum_of_rows());
    grads.add("denoise.decoder.weight", &precision.linear_dw(&ddecoded, &code).values);
    let dcode = precision.linear_dx(&ddecoded, &p.matrix("denoise.decoder.weight"));
    let dpre = dcode.zip(&pre, |d, x| d * silu_slope(x));
    grads.add("denoise.encoder.bias", &dpre.sum_of_rows());
    grads.add("denoise.encoder.weight", &precision.linear_dw(&dpre, noisy).values);
    error.values.iter().map(|e| e * e).sum::<f64>() / n
}
