//! Scalar functions of the network and their derivatives.

/// 1 / (1 + exp(-x)), without overflow.
pub fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

/// SiLU(x) = x sigmoid(x).
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// d SiLU / dx = s (1 + x (1 - s)), s = sigmoid(x).
pub fn silu_slope(x: f64) -> f64 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

/// ln(1 + exp(x)), without overflow; its derivative is [`sigmoid`].
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// ln sum exp(x).
pub fn log_sum_exp(x: &[f64]) -> f64 {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + x.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
}

/// ln softmax(x).
pub fn log_softmax(x: &[f64]) -> Vec<f64> {
    let normaliser = log_sum_exp(x);
    x.iter().map(|v| v - normaliser).collect()
}

/// softmax(x).
pub fn softmax(x: &[f64]) -> Vec<f64> {
    log_softmax(x).into_iter().map(f64::exp).collect()
}

/// dx of p = softmax(x): p (dp - sum p dp).
pub fn softmax_backward(p: &[f64], dp: &[f64]) -> Vec<f64> {
    let inner: f64 = p.iter().zip(dp).map(|(a, b)| a * b).sum();
    p.iter().zip(dp).map(|(p, d)| p * (d - inner)).collect()
}

/// Index of the greatest element, the lowest of equal ones.
pub fn argmax(x: &[f64]) -> usize {
    let mut best = 0;
    for (i, v) in x.iter().enumerate() {
        if *v > x[best] {
            best = i;
        }
    }
    best
}
