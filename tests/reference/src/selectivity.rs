//! Selectivity: P(trade) = sigmoid(w h + b) on h held constant, binary cross-entropy against "the market paid".

use crate::activation::{sigmoid, softplus};
use crate::config::direction;
use crate::layout::Tensors;
use crate::matrix::{Matrix, dot};

/// The loss of a batch.
#[derive(Clone, Debug)]
pub struct SelectivityLoss {
    /// P(trade) of every row `[B]`.
    pub p_trade: Vec<f64>,
    /// Mean over the rows that count; 0 if none.
    pub loss: f64,
    /// Number of rows that count.
    pub n_counted: usize,
}

/// Whether a row counts: its direction is short or long and is the greedy one.
pub fn counts(taken: usize, greedy: usize) -> bool {
    taken == greedy && (taken == direction::SHORT || taken == direction::LONG)
}

/// Market part of a stored reward, unscaled: r / reward_scale + her_weight |goal - achieved|.
pub fn market_part(reward: f64, reward_scale: f64, her_weight: f64, goal: f64, achieved: f64) -> f64 {
    reward / reward_scale + her_weight * (goal - achieved).abs()
}

/// Loss on h `[B, H]` and the gradients of the head, added to `grads`. `labels[i]` is `None` for a row that does not count. In f32
/// in the kernels, so never rounded.
pub fn loss(p: &Tensors, h: &Matrix, labels: &[Option<bool>], grads: &mut Tensors) -> SelectivityLoss {
    let (w, bias) = (p.slice("select.weight"), p.slice("select.bias")[0]);
    let logits: Vec<f64> = (0..h.n_rows).map(|i| dot(w, h.row(i)) + bias).collect();
    let n_counted = labels.iter().flatten().count();
    let mut loss = 0.0;
    for (i, label) in labels.iter().enumerate() {
        let Some(label) = label else { continue };
        let y = f64::from(u8::from(*label));
        loss += (softplus(logits[i]) - y * logits[i]) / n_counted as f64;
        let d = (sigmoid(logits[i]) - y) / n_counted as f64;
        grads.add("select.bias", &[d]);
        grads.add("select.weight", &h.row(i).iter().map(|x| d * x).collect::<Vec<_>>());
    }
    SelectivityLoss { p_trade: logits.into_iter().map(sigmoid).collect(), loss, n_counted }
}

/// Share of rows whose P(trade) reaches the threshold.
pub fn rate(p_trade: &[f64], threshold: f64) -> f64 {
    p_trade.iter().filter(|p| **p >= threshold).count() as f64 / p_trade.len() as f64
}
