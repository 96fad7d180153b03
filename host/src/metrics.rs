//! What training says of an epoch: a line of `metrics.jsonl` each. `docs/metrics.md` describes every field.

use serde::{Deserialize, Serialize};

/// One epoch. A number that is not finite is written as `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochMetrics {
    /// Fold of the walk-forward, from 1.
    pub fold: u32,
    /// Epoch of the fold, from 1.
    pub epoch: u32,
    /// Training steps since the fold began.
    pub step: u64,
    /// Wall-clock time since the run began, over all its resumptions.
    pub seconds: f64,
    /// Wall-clock time of the epoch's parts.
    pub times: EpochTimes,
    /// The objective J at the epoch's last step.
    #[serde(with = "finite")]
    pub loss: f64,
    /// Mean squared TD error of the expected returns at the epoch's last step.
    #[serde(with = "finite")]
    pub mse: f64,
    /// Norm of the gradient before clipping at the epoch's last step.
    #[serde(with = "finite")]
    pub grad_norm: f64,
    /// Q of the latest batch that was measured; none before the fold's first, and without `learners.q_statistics`.
    pub q: Option<QMetrics>,
    /// Mean causal sensitivity over the features.
    #[serde(with = "finite")]
    pub causal_mean: f64,
    /// Discount of one bar.
    pub gamma: f64,
    /// Rate of the target network; none without `learners.target_ema`.
    pub tau: Option<f64>,
    /// Exploration rate.
    pub epsilon: f64,
    /// Cap on the position, of equity.
    pub kelly_cap: f64,
    /// Health of the training in (0, 1].
    #[serde(with = "finite")]
    pub health: f64,
    /// Level of CVaR in (0, 1].
    pub risk_eta: f64,
    /// Updates that were skipped since the fold began because a value was not finite.
    pub skipped: u64,
    /// How often each action was taken in collection.
    pub actions: ActionMix,
    /// Training steps a second while training.
    pub steps_per_s: f64,
    /// Bars of all environments a second while collecting.
    pub env_steps_per_s: f64,
    /// Annual Sharpe ratio on the training part, by the policy that validation has; none where it was not worked out.
    pub train_sharpe: Option<f64>,
    /// The policy on the validation part; none where it was not worked out.
    pub validation: Option<ValidationMetrics>,
}

/// Wall-clock time of an epoch's parts, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochTimes {
    /// Collection.
    pub collect_s: f64,
    /// Training steps.
    pub train_s: f64,
    /// The boundary's kernels, and re-scoring of priorities.
    pub rescore_s: f64,
    /// Validation.
    pub validate_s: f64,
    /// The checkpoint before: an epoch's line is on the disk before its own is begun.
    pub checkpoint_s: f64,
}

/// Q of the online network over a batch, its branches and actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QMetrics {
    /// Mean.
    #[serde(with = "finite")]
    pub mean: f64,
    /// Least.
    #[serde(with = "finite")]
    pub min: f64,
    /// Greatest.
    #[serde(with = "finite")]
    pub max: f64,
    /// Population variance.
    #[serde(with = "finite")]
    pub variance: f64,
    /// Mean over batch and branches of the greatest action's.
    #[serde(with = "finite")]
    pub avg_max: f64,
}

/// Share of each action in its branch; each list sums to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionMix {
    /// Short, long, flat, hold.
    pub direction: [f64; 4],
    /// A third, two thirds, all of kelly_cap.
    pub size: [f64; 3],
    /// Market, limit at the close, limit inside.
    pub order: [f64; 3],
    /// The three minimum holds.
    pub hold: [f64; 3],
}

/// The policy on the validation part, net of costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationMetrics {
    /// Annual Sharpe ratio.
    pub sharpe: f64,
    /// Return over the part.
    pub total_return: f64,
    /// Deepest fall below an earlier peak.
    pub max_drawdown: f64,
    /// Trades closed.
    pub trades: u64,
    /// Share of closed trades that earned.
    pub hit_rate: f64,
    /// Mean absolute position.
    pub exposure: f64,
    /// Value traded.
    pub turnover: f64,
    /// Spread, fees and financing paid.
    pub costs: f64,
    /// Share of limit orders that filled.
    pub limit_fill_rate: f64,
    /// Whether the checkpoint may be chosen: exploration is over and there were enough trades.
    pub eligible: bool,
}

/// Floats of which a non-finite one is `null`, as JSON has no word for it; `null` reads as NaN.
mod finite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn whole() -> EpochMetrics {
        let validation = Some(ValidationMetrics { sharpe: 0.1 + 0.2, trades: 21, ..Default::default() });
        let q = Some(QMetrics { mean: -1.5, ..Default::default() });
        EpochMetrics { q, tau: Some(0.01), train_sharpe: Some(1.0 / 3.0), validation, ..Default::default() }
    }

    #[test]
    fn metrics_round_trip() {
        let metrics = EpochMetrics { loss: f64::MIN_POSITIVE, seconds: 1e300 / 3.0, ..whole() };
        let text = serde_json::to_string(&metrics).unwrap();
        assert_eq!(serde_json::from_str::<EpochMetrics>(&text).unwrap(), metrics);
        let broken = EpochMetrics { loss: f64::NAN, mse: f64::INFINITY, ..whole() };
        let text = serde_json::to_string(&broken).unwrap();
        assert!(text.contains("\"loss\":null,\"mse\":null"), "{text}");
        let read: EpochMetrics = serde_json::from_str(&text).unwrap();
        assert!(read.loss.is_nan() && read.mse.is_nan());
    }

    /// Fields that `page` does not describe.
    fn undocumented(page: &str) -> Vec<String> {
        fn visit(prefix: &str, value: &Value, page: &str, missing: &mut Vec<String>) {
            let Value::Object(fields) = value else { return };
            for (name, value) in fields {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                match value {
                    Value::Object(_) => visit(&path, value, page, missing),
                    _ if page.contains(&format!("| `{path}` |")) => {}
                    _ => missing.push(path),
                }
            }
        }
        let mut missing = Vec::new();
        visit("", &serde_json::to_value(whole()).unwrap(), page, &mut missing);
        missing
    }

    #[test]
    fn every_field_is_documented() {
        let page = include_str!("../../docs/metrics.md");
        assert_eq!(undocumented(page), Vec::<String>::new());
        // The guard itself catches a field that is missing.
        assert_eq!(undocumented(&page.replace("| `q.min` |", "")), ["q.min"]);
    }
}
