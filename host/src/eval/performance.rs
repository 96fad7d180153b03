//! What a path's bars come to. Equations stand in `docs/evaluation.md`.

use serde::{Deserialize, Serialize};

use super::records::PathRecords;
use super::statistics::{self, Interval};

/// A path in numbers. Shares and returns are fractions, ratios annual.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Performance {
    /// Mean over standard deviation of the net returns.
    pub sharpe: f64,
    /// Its 95% interval.
    pub sharpe_interval: Interval,
    /// Mean over the root mean square of the losses.
    pub sortino: f64,
    /// Sum of ln(1 + net return).
    pub log_growth: f64,
    /// Final equity over first equity, less 1.
    pub total_return: f64,
    /// Deepest fall of equity below an earlier peak.
    pub max_drawdown: f64,
    /// Trades that were closed.
    pub n_trades: u64,
    /// Share of them that earned more than they cost; none without a trade.
    pub hit_rate: Option<f64>,
    /// Value traded in a year, of equity.
    pub turnover_a_year: f64,
    /// Mean |position|, of equity.
    pub exposure: f64,
    /// Share of bars that end with a position.
    pub time_in_market: f64,
    /// Spread, fees and financing paid over the whole test, of the equity of the bars they fell on.
    pub costs: f64,
    /// Orders that filled.
    pub n_fills: u64,
    /// Share of fills that were limit orders; none without a fill.
    pub limit_share_of_fills: Option<f64>,
    /// Share of limit orders that filled; none without a limit order.
    pub limit_fill_share: Option<f64>,
    /// Whether the equity was lost.
    pub is_ruined: bool,
}

impl Performance {
    /// Of the path's bars, of which a year has `bars_a_year`. `seed` is the bootstrap's.
    pub fn of(path: &PathRecords, bars_a_year: f64, seed: u64) -> Self {
        let returns = path.returns64();
        let n_bars = returns.len().max(1) as f64;
        let log_growth = statistics::log_growth(&returns);
        Self {
            sharpe: statistics::sharpe(&returns, bars_a_year),
            sharpe_interval: statistics::sharpe_interval(&returns, bars_a_year, seed),
            sortino: statistics::sortino(&returns, bars_a_year),
            log_growth,
            total_return: log_growth.exp_m1(),
            max_drawdown: statistics::max_drawdown(&returns),
            n_trades: path.n_trades,
            hit_rate: share(path.n_wins, path.n_trades),
            turnover_a_year: path.turnover / n_bars * bars_a_year,
            exposure: path.exposure / n_bars,
            time_in_market: path.n_exposed as f64 / n_bars,
            costs: path.costs,
            n_fills: path.n_fills,
            limit_share_of_fills: share(path.n_limit_fills, path.n_fills),
            limit_fill_share: share(path.n_limit_fills, path.n_limits),
            is_ruined: path.n_ruined > 0,
        }
    }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let path = PathRecords {
            returns: vec![0.5, -0.5, 0.25, 0.25],
            turnover: 3.0,
            costs: 0.01,
            exposure: 1.0,
            n_exposed: 2,
            n_fills: 4,
            n_limits: 5,
            n_limit_fills: 2,
            n_trades: 3,
            n_wins: 2,
            n_ruined: 0,
        };
        let got = Performance::of(&path, 400.0, 1);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a}, {b} expected");
        // Mean 1/8; variance (0.375^2 + 0.625^2 + 2 x 0.125^2) / 4; losses 0.25 / 4; equity 1.5, 0.75, 0.9375, 1.171875.
        close(got.sharpe, 20.0 * 0.125 / ((0.140625 + 0.390625 + 0.03125) / 4.0f64).sqrt());
        close(got.sortino, 20.0 * 0.125 / 0.25);
        close(got.total_return, 0.171875);
        close(got.log_growth, 1.171875f64.ln());
        close(got.max_drawdown, 0.5);
        close(got.turnover_a_year, 300.0);
        assert_eq!((got.exposure, got.time_in_market, got.costs), (0.25, 0.5, 0.01));
        assert_eq!((got.hit_rate, got.limit_fill_share), (Some(2.0 / 3.0), Some(0.4)));
        assert_eq!((got.limit_share_of_fills, got.n_trades, got.is_ruined), (Some(0.5), 3, false));
    }

    #[test]
    fn a_path_that_never_trades_has_zeros_and_no_shares() {
        let path = PathRecords { returns: vec![0.0; 300], ..PathRecords::default() };
        let got = Performance::of(&path, 1e5, 1);
        assert_eq!((got.sharpe, got.sharpe_interval), (0.0, Interval { low: 0.0, high: 0.0 }));
        assert_eq!((got.sortino, got.total_return, got.max_drawdown), (0.0, 0.0, 0.0));
        assert_eq!((got.hit_rate, got.limit_fill_share, got.limit_share_of_fills), (None, None, None));
    }

    /// Lost equity: the logarithm has a floor, so that every number can be written down.
    #[test]
    fn ruin_stays_finite() {
        let path = PathRecords { returns: vec![0.1, -1.0, 0.0], n_ruined: 1, ..PathRecords::default() };
        let got = Performance::of(&path, 1e5, 1);
        assert_eq!((got.max_drawdown, got.is_ruined), (1.0, true));
        assert!(got.log_growth.is_finite() && (got.total_return + 1.0).abs() < 2e-6, "{got:?}");
        let text = serde_json::to_string(&got).expect("numbers");
        let back: Performance = serde_json::from_str(&text).expect("no number was lost as null");
        assert!((back.log_growth - got.log_growth).abs() < 1e-12, "{back:?}");
    }
}
