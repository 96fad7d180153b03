//! Ratios of a series of per-bar simple net returns, and how far they can be trusted.
//!
//! Ratios are annual: per-bar ones times the root of the bars a year. Standard deviations are those of the population
//! (divided by T). Intervals come from a circular block bootstrap (Politis and Romano 1992), which keeps the dependence
//! of neighbouring bars inside of blocks.

use gpu_kernels::philox;
use shared_types::stream::BOOTSTRAP;

/// Resampled series per interval.
pub const N_DRAWS: u32 = 2_000;
/// No block is shorter, so that positions held for some bars stay whole.
pub const BLOCK_BARS_MIN: usize = 30;
/// Share of equity that is always left where its logarithm is taken: lost equity counts as a loss of all but a millionth,
/// as on the paths themselves.
pub const LEAST_FACTOR: f64 = 1e-6;
/// A year of 365.25 days.
const YEAR_NS: f64 = 365.25 * 86_400e9;
/// The normal quantile of 0.975: an interval from it covers 95%.
const Z_975: f64 = 1.959_963_984_540_054;

/// Bars a year: rows over their span from the first bar's start to the last bar's end; 0 without a span.
pub fn bars_a_year(time_ns: &[i64], interval_ns: i64) -> f64 {
    let (Some(first), Some(last)) = (time_ns.first(), time_ns.last()) else { return 0.0 };
    let span_ns = last - first + interval_ns;
    if span_ns > 0 { time_ns.len() as f64 * YEAR_NS / span_ns as f64 } else { 0.0 }
}

/// Mean over standard deviation; 0 without any deviation.
pub fn sharpe(returns: &[f64], bars_a_year: f64) -> f64 {
    let mean = mean(returns);
    let variance = returns.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / returns.len().max(1) as f64;
    ratio(mean, variance) * bars_a_year.sqrt()
}

/// Mean over the root mean square of the losses, taken over all bars; 0 without any loss.
pub fn sortino(returns: &[f64], bars_a_year: f64) -> f64 {
    let losses = returns.iter().map(|r| r.min(0.0).powi(2)).sum::<f64>() / returns.len().max(1) as f64;
    ratio(mean(returns), losses) * bars_a_year.sqrt()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// mean / sqrt(variance), 0 if the variance is 0 or no more than the rounding of equal returns leaves.
fn ratio(mean: f64, variance: f64) -> f64 {
    let rounding = (1e-12 * mean).powi(2);
    if variance > rounding { mean / variance.sqrt() } else { 0.0 }
}

/// The deepest fall of equity below an earlier peak, as a fraction of the peak. Equity starts at 1.
pub fn max_drawdown(returns: &[f64]) -> f64 {
    let (mut equity, mut peak, mut deepest) = (1.0f64, 1.0f64, 0.0f64);
    for r in returns {
        equity *= 1.0 + r;
        peak = peak.max(equity);
        deepest = deepest.max(1.0 - equity / peak);
    }
    deepest
}

/// Sum of ln(1 + r); a bar keeps at least [`LEAST_FACTOR`] of the equity.
pub fn log_growth(returns: &[f64]) -> f64 {
    returns.iter().map(|r| (1.0 + r).max(LEAST_FACTOR).ln()).sum()
}

/// Bars of a block for a series of `n_bars`: max(30, ceil(T^(1/3))), and no more than there are.
pub fn block_bars(n_bars: usize) -> usize {
    BLOCK_BARS_MIN.max((n_bars as f64).cbrt().ceil() as usize).min(n_bars)
}

/// The smallest annual Sharpe ratio whose 95% interval over `n_bars` independent bars would lie above 0. The per-bar
/// ratio S has standard error sqrt((1 + S^2 / 2) / T) (Lo 2002, eq. 9); S = z times it gives S^2 = z^2 / (T - z^2 / 2).
pub fn smallest_sharpe_shown(n_bars: usize, bars_a_year: f64) -> f64 {
    let room = n_bars as f64 - Z_975 * Z_975 / 2.0;
    if room > 0.0 { Z_975 / room.sqrt() * bars_a_year.sqrt() } else { f64::INFINITY }
}

/// A 95% interval: the percentiles 2.5 and 97.5 of the resampled values.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { low: percentile(&values, 0.025), high: percentile(&values, 0.975) }
    }
}

/// Linear between the two neighbours of position p (n - 1).
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let position = p * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

/// The 95% interval of the Sharpe ratio. [0, 0] for an empty series.
pub fn sharpe_interval(returns: &[f64], bars_a_year: f64, seed: u64) -> Interval {
    let sums = Sums::new(returns);
    let draws = Blocks::new(returns.len(), seed).map(|blocks| sums.sharpe(&blocks));
    Interval::of(or_zero(draws.map(|s| s * bars_a_year.sqrt()).collect()))
}

/// The 95% interval of the Sharpe ratio of `a` less that of `b`, bar by bar on the same blocks. Superiority over `b`
/// means that it lies above 0. Both series have the same length.
pub fn paired_sharpe_interval(a: &[f64], b: &[f64], bars_a_year: f64, seed: u64) -> Interval {
    assert_eq!(a.len(), b.len(), "paired returns are of the same bars");
    let (sums_a, sums_b) = (Sums::new(a), Sums::new(b));
    let draws = Blocks::new(a.len(), seed).map(|blocks| sums_a.sharpe(&blocks) - sums_b.sharpe(&blocks));
    Interval::of(or_zero(draws.map(|s| s * bars_a_year.sqrt()).collect()))
}

fn or_zero(draws: Vec<f64>) -> Vec<f64> {
    if draws.is_empty() { vec![0.0] } else { draws }
}

/// The resamplings: for each draw the blocks (start, length) whose concatenation has T bars, the last one cut.
struct Blocks {
    n_bars: usize,
    block: usize,
    key: [u32; 2],
    draw: u32,
}

impl Blocks {
    fn new(n_bars: usize, seed: u64) -> Self {
        Self { n_bars, block: block_bars(n_bars), key: [seed as u32, (seed >> 32) as u32], draw: 0 }
    }
}

impl Iterator for Blocks {
    type Item = Vec<(usize, usize)>;

    /// Block i of draw d starts at the bar that the uniform of element i and step d falls on.
    fn next(&mut self) -> Option<Self::Item> {
        if self.draw == N_DRAWS || self.n_bars == 0 {
            return None;
        }
        let mut blocks = Vec::with_capacity(self.n_bars.div_ceil(self.block));
        for element in 0..self.n_bars.div_ceil(self.block) {
            let uniform = f64::from(philox::uniform(self.key, BOOTSTRAP, self.draw, element as u32));
            let start = ((uniform * self.n_bars as f64) as usize).min(self.n_bars - 1);
            blocks.push((start, self.block.min(self.n_bars - element * self.block)));
        }
        self.draw += 1;
        Some(blocks)
    }
}

/// Sums of deviations from the mean and of their squares over the first i bars of the series written twice, so that a
/// block's sums are two differences, also around the end. Taking the mean off first keeps the digits of the variance.
struct Sums {
    mean: f64,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Sums {
    fn new(returns: &[f64]) -> Self {
        let mean = mean(returns);
        let (mut first, mut second) = (vec![0.0], vec![0.0]);
        let (mut sum, mut sum_squares) = (0.0, 0.0);
        for r in returns.iter().chain(returns) {
            sum += r - mean;
            sum_squares += (r - mean).powi(2);
            first.push(sum);
            second.push(sum_squares);
        }
        Self { mean, first, second }
    }

    /// Per-bar Sharpe ratio of the concatenated blocks.
    fn sharpe(&self, blocks: &[(usize, usize)]) -> f64 {
        let (mut n, mut sum, mut sum_squares) = (0, 0.0, 0.0);
        for &(start, length) in blocks {
            n += length;
            sum += self.first[start + length] - self.first[start];
            sum_squares += self.second[start + length] - self.second[start];
        }
        let shift = sum / n as f64;
        ratio(self.mean + shift, sum_squares / n as f64 - shift * shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normals(n: u32, stream: u32) -> Vec<f64> {
        (0..n).map(|i| f64::from(philox::normal([3, 0], 77, stream, i))).collect()
    }

    #[test]
    fn ratios_worked_by_hand() {
        let r = [0.01, -0.01, 0.03];
        // Mean 0.01, deviations 0, -0.02, 0.02: variance 8e-4 / 3. Losses: 1e-4 / 3.
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a} {b}");
        close(sharpe(&r, 1.0), 0.01 / (8e-4f64 / 3.0).sqrt());
        close(sharpe(&r, 252.0), 252f64.sqrt() * sharpe(&r, 1.0));
        close(sortino(&r, 4.0), 2.0 * 0.01 / (1e-4f64 / 3.0).sqrt());
        assert_eq!((sharpe(&[], 9.0), sharpe(&[0.1; 7], 9.0), sortino(&[0.1, 0.2], 9.0)), (0.0, 0.0, 0.0));
        // 1, 1.1, 0.55, 0.66, 0.495: 0.495 is 55% under 1.1.
        close(max_drawdown(&[0.1, -0.5, 0.2, -0.25]), 0.55);
        assert_eq!((max_drawdown(&[0.1, 0.2]), max_drawdown(&[]), max_drawdown(&[-1.0, 0.5])), (0.0, 0.0, 1.0));
    }

    #[test]
    fn bars_a_year_count_what_is_there_over_the_whole_span() {
        let day = 86_400_000_000_000;
        let year: Vec<i64> = (0..1461).map(|i| i * day).collect();
        assert!((bars_a_year(&year, day) - 365.25).abs() < 1e-9);
        let weekdays: Vec<i64> = (0..1461).filter(|i| i % 7 < 5).map(|i| i * day).collect();
        assert!((bars_a_year(&weekdays, day) - 5.0 / 7.0 * 365.25).abs() < 1.0);
        assert_eq!((bars_a_year(&[], day), bars_a_year(&[5], 0)), (0.0, 0.0));
        assert!((bars_a_year(&[5], day) - 365.25).abs() < 1e-9);
    }

    #[test]
    fn a_policy_that_never_trades_has_the_interval_0_to_0() {
        assert_eq!(sharpe_interval(&[0.0; 500], 1e5, 1), Interval { low: 0.0, high: 0.0 });
        assert_eq!(sharpe_interval(&[], 1e5, 1), Interval { low: 0.0, high: 0.0 });
        assert_eq!(sharpe_interval(&[0.001; 500], 1e5, 1), Interval { low: 0.0, high: 0.0 });
    }

    #[test]
    fn a_draw_is_the_concatenation_of_its_blocks() {
        let r = normals(100, 0);
        let sums = Sums::new(&r);
        for blocks in Blocks::new(r.len(), 5).take(50) {
            assert_eq!(blocks.iter().map(|b| b.1).collect::<Vec<_>>(), [30, 30, 30, 10]);
            let series: Vec<f64> =
                blocks.iter().flat_map(|&(start, n)| (start..start + n).map(|i| r[i % 100])).collect();
            assert!((sums.sharpe(&blocks) - sharpe(&series, 1.0)).abs() < 1e-12);
        }
        // ceil(40,000^(1/3)) = 35; a series shorter than a block is one block.
        assert_eq!((Blocks::new(40_000, 0).block, Blocks::new(7, 0).block), (35, 7));
        assert_eq!(Blocks::new(100, 5).count(), N_DRAWS as usize);
    }

    #[test]
    fn the_interval_has_the_width_and_coverage_of_theory_for_independent_returns() {
        let (n, true_sharpe) = (1_000u32, 0.1);
        let n_series = 200;
        let (mut n_covered, mut width) = (0, 0.0);
        for series in 0..n_series {
            let r: Vec<f64> = normals(n, series).iter().map(|z| true_sharpe + z).collect();
            let interval = sharpe_interval(&r, 1.0, u64::from(series));
            n_covered += u32::from((interval.low..=interval.high).contains(&true_sharpe));
            width += (interval.high - interval.low) / f64::from(n_series);
        }
        // Lo 2002; the block bootstrap sees the variance of block means shrunk by about block / T = 3% (the blocks'
        // common mean is estimated), and 1,000 bars hold 33 blocks: their spread is off by 1 / sqrt(2 x 33) a series,
        // 1% over 200 of them.
        let theory = 2.0 * Z_975 * ((1.0 + true_sharpe * true_sharpe / 2.0) / f64::from(n)).sqrt();
        assert!((width / theory - 1.0).abs() < 0.08, "width {width}, theory {theory}");
        // 95% less what few blocks cost (about 2%), four standard errors of 200 trials: sqrt(0.93 x 0.07 / 200) = 1.8%.
        let covered = f64::from(n_covered) / f64::from(n_series);
        assert!((covered - 0.93).abs() < 0.072, "{covered}");
    }

    #[test]
    fn pairing_takes_the_common_part_out() {
        let a = normals(2_000, 1);
        assert_eq!(paired_sharpe_interval(&a, &a, 1.0, 1), Interval { low: 0.0, high: 0.0 });
        let noise = normals(2_000, 2);
        let b: Vec<f64> = a.iter().zip(&noise).map(|(a, z)| a - 0.05 + 0.1 * z).collect();
        let paired = paired_sharpe_interval(&a, &b, 1.0, 1);
        // The difference of the Sharpe ratios is near 0.05 with a standard error near 0.1 / sqrt(2,000) = 0.0022; each
        // ratio alone has one of 0.022.
        assert!(paired.low > 0.035 && paired.high < 0.065, "{paired:?}");
        let alone = sharpe_interval(&a, 1.0, 1);
        assert!(alone.high - alone.low > 4.0 * (paired.high - paired.low));
    }

    #[test]
    fn the_smallest_sharpe_shown_is_where_the_interval_touches_0() {
        let s = smallest_sharpe_shown(10_000, 1.0);
        assert!((s - Z_975 * ((1.0 + s * s / 2.0) / 10_000.0).sqrt()).abs() < 1e-15, "{s}");
        assert!((smallest_sharpe_shown(10_000, 400.0) / s - 20.0).abs() < 1e-12);
        assert_eq!(smallest_sharpe_shown(1, 1.0), f64::INFINITY);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let r = normals(300, 4);
        assert_eq!(sharpe_interval(&r, 9.0, 1), sharpe_interval(&r, 9.0, 1));
        assert_ne!(sharpe_interval(&r, 9.0, 1), sharpe_interval(&r, 9.0, 2));
    }
}
