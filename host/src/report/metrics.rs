//! An epoch's line of `metrics.jsonl`, as far as the report shows it.
//!
//! Values are read by name. One that is absent, null or no number is not shown; others in the line are passed over.

use serde_json::Value;
use shared_types::market::BRANCH_SIZES;

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochMetrics {
    line: Value,
}

/// Names of the branches, as an object of `actions` has them.
pub const BRANCHES: [&str; 4] = ["direction", "size", "order", "hold"];

impl EpochMetrics {
    /// The line's object; `None` for other JSON.
    pub fn new(line: Value) -> Option<Self> {
        line.is_object().then_some(Self { line })
    }

    /// A number; `a.b` is the value `b` of the object `a`. NaN where there is none.
    pub fn number(&self, name: &str) -> f64 {
        let value = name.split('.').try_fold(&self.line, |value, part| value.get(part));
        value.and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// Fold and epoch, where the line has them.
    pub fn place(&self) -> (Option<u64>, Option<u64>) {
        let whole = |name: &str| self.line.get(name).and_then(Value::as_u64);
        (whole("fold"), whole("epoch"))
    }

    /// Shares of a branch's choices: from an object by the branch's name, a list of four lists, or all 13 in one list.
    pub fn action_mix(&self, branch: usize) -> Option<Vec<f64>> {
        let mix = self.line.get("actions")?;
        let first: usize = BRANCH_SIZES[..branch].iter().sum();
        let n_choices = BRANCH_SIZES[branch];
        let list = match mix {
            Value::Object(branches) => branches.get(BRANCHES[branch])?.as_array()?.as_slice(),
            Value::Array(list) if list.first().is_some_and(Value::is_array) => list.get(branch)?.as_array()?,
            Value::Array(list) => list.get(first..first + n_choices)?,
            _ => return None,
        };
        let shares: Option<Vec<f64>> = list.iter().map(Value::as_f64).collect();
        shares.filter(|shares| shares.len() == n_choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_go_by_name_and_may_be_absent() {
        let line = EpochMetrics::new(json!({
            "epoch": 3, "loss": 1.5, "mse": null, "gamma": "x", "validation": {"sharpe": -2, "trades": 7}, "new": [1]
        }));
        let line = line.expect("an object");
        assert_eq!((line.number("loss"), line.number("validation.sharpe")), (1.5, -2.0));
        assert!(["mse", "gamma", "absent", "loss.x", "validation.z"].iter().all(|name| line.number(name).is_nan()));
        assert_eq!(line.place(), (None, Some(3)));
        assert_eq!(EpochMetrics::new(json!([1, 2])), None);
    }

    #[test]
    fn the_action_mix_has_three_forms() {
        let branches = json!([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]]);
        let flat = json!([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.0, 1.0, 0.0, 0.0, 0.2, 0.2, 0.6]);
        let named = json!({"hold": [0.2, 0.2, 0.6], "size": [0.5, 0.5, 0.0]});
        let of =
            |mix: &Value, branch| EpochMetrics::new(json!({ "actions": mix })).expect("an object").action_mix(branch);
        for form in [&branches, &flat, &named] {
            assert_eq!(of(form, 1), Some(vec![0.5, 0.5, 0.0]));
            assert_eq!(of(form, 3), Some(vec![0.2, 0.2, 0.6]));
        }
        assert_eq!(of(&branches, 0), Some(vec![0.1, 0.2, 0.3, 0.4]));
        for broken in
            [json!(null), json!([]), json!([[0.1]]), json!([1, 2, 3]), json!({}), json!([["x", 1, 1]]), json!(7)]
        {
            assert_eq!(of(&broken, 1), None, "{broken}");
        }
    }
}
