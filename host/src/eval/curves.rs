//! Equity and drawdown as curves, thinned out to what a picture can show.

use serde::{Deserialize, Serialize};

use super::statistics::LEAST_FACTOR;

/// Stretches that a curve is cut into; of each the lowest and the highest point stay.
const N_STRETCHES: usize = 600;

/// A path's equity over the bars of all tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Whose.
    pub name: String,
    /// (bars so far, ln(equity / first equity)), rounded to 1e-6.
    pub log_equity: Vec<(u32, f64)>,
    /// (bars so far, fall below the highest equity so far as a fraction of it), rounded to 1e-6.
    pub drawdown: Vec<(u32, f64)>,
}

impl Curve {
    /// Of per-bar net returns.
    pub fn of(name: impl Into<String>, returns: &[f32]) -> Self {
        let (mut log_equity, mut drawdown) = (vec![0.0], vec![0.0]);
        let (mut level, mut peak) = (0.0f64, 0.0f64);
        for &r in returns {
            level += (1.0 + f64::from(r)).max(LEAST_FACTOR).ln();
            peak = peak.max(level);
            log_equity.push(level);
            drawdown.push(-(level - peak).exp_m1());
        }
        Self { name: name.into(), log_equity: thinned(&log_equity), drawdown: thinned(&drawdown) }
    }
}

/// First and last point, and of each of the stretches the lowest and the highest, in order.
fn thinned(values: &[f64]) -> Vec<(u32, f64)> {
    extremes(values, N_STRETCHES).into_iter().map(|at| (at as u32, (values[at] * 1e6).round() / 1e6)).collect()
}

/// Positions that keep the shape of `values` when drawn over `n_stretches` columns: the first, the last, and the lowest
/// and the highest of each column, in order and each once. Values that are not finite are passed over.
pub fn extremes(values: &[f64], n_stretches: usize) -> Vec<usize> {
    let n = values.len();
    if n <= 2 * n_stretches {
        return (0..n).filter(|&at| values[at].is_finite()).collect();
    }
    let mut kept = vec![0];
    for stretch in 0..n_stretches {
        let bars = stretch * n / n_stretches..(stretch + 1) * n / n_stretches;
        let finite = || bars.clone().filter(|&at| values[at].is_finite());
        let lowest = finite().min_by(|&a, &b| values[a].total_cmp(&values[b]));
        let highest = finite().max_by(|&a, &b| values[a].total_cmp(&values[b]));
        kept.extend(lowest.into_iter().chain(highest));
    }
    kept.push(n - 1);
    kept.sort_unstable();
    kept.dedup();
    kept.retain(|&at| values[at].is_finite());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_curve_by_hand() {
        let curve = Curve::of("agent", &[0.5, -0.5, 0.0]);
        let (up, down) = (0.405465, -0.287682);
        assert_eq!(curve.log_equity, [(0, 0.0), (1, up), (2, down), (3, down)]);
        assert_eq!(curve.drawdown, [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.5)]);
    }

    #[test]
    fn a_long_curve_keeps_its_ends_and_its_extremes() {
        let mut returns: Vec<f32> = (0..50_000).map(|i| if i % 2 == 0 { 1e-4 } else { -1e-4 }).collect();
        returns[31_111] = -0.5;
        let curve = Curve::of("x", &returns);
        assert!(curve.log_equity.len() <= 2 * N_STRETCHES + 2, "{}", curve.log_equity.len());
        assert_eq!(curve.log_equity[0], (0, 0.0));
        assert_eq!(curve.log_equity.last().expect("a point").0, 50_000);
        assert!(curve.log_equity.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let deepest = curve.drawdown.iter().map(|point| point.1).fold(0.0, f64::max);
        assert!((deepest - 0.5).abs() < 1e-3, "{deepest}");
    }

    #[test]
    fn what_is_not_finite_is_passed_over() {
        assert_eq!(extremes(&[f64::NAN, 1.0, f64::INFINITY, 2.0], 9), [1, 3]);
        let values: Vec<f64> = (0..100).map(|i| if i % 3 == 0 { f64::NAN } else { f64::from(i) }).collect();
        assert!(extremes(&values, 5).iter().all(|&at| values[at].is_finite()));
        assert!(extremes(&[], 5).is_empty());
    }
}
