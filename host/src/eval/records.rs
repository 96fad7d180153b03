//! What is kept of a path: its returns, and sums that add up over folds.

use serde::{Deserialize, Serialize};
use shared_types::BarRecord;

/// A path's bars. Paths of consecutive folds are joined by [`append`](Self::append).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathRecords {
    /// Simple net return of each bar.
    pub returns: Vec<f32>,
    /// Sum of the values traded, each of the equity of its bar.
    pub turnover: f64,
    /// Sum of spread, fees and financing, each of the equity of its bar.
    pub costs: f64,
    /// Sum over bars of |position| at the bar's end, of equity.
    pub exposure: f64,
    /// Bars that end with a position.
    pub n_exposed: u64,
    /// Orders that filled. This and the next two leave out a path's last bar, whose closing hides what filled before it.
    pub n_fills: u64,
    /// Limit orders placed.
    pub n_limits: u64,
    /// Limit orders that filled.
    pub n_limit_fills: u64,
    /// Trades that were closed, turned over or closed at a path's end.
    pub n_trades: u64,
    /// Of them, those that earned more than they cost.
    pub n_wins: u64,
    /// Paths that lost their equity.
    pub n_ruined: u64,
}

impl PathRecords {
    /// Of one path from its start to its end.
    pub fn of(path: &[BarRecord]) -> Self {
        let mut sums = Self { returns: Vec::with_capacity(path.len()), ..Self::default() };
        let Some((last, before)) = path.split_last() else { return sums };
        for record in before {
            let has = |flags: u32| u64::from(record.flags & flags == flags);
            sums.n_fills += has(BarRecord::FILLED);
            sums.n_limits += has(BarRecord::LIMIT);
            sums.n_limit_fills += has(BarRecord::LIMIT | BarRecord::FILLED);
            sums.add(record);
        }
        sums.add(last);
        sums
    }

    fn add(&mut self, record: &BarRecord) {
        self.returns.push(record.net_return);
        self.turnover += f64::from(record.turnover);
        self.costs += f64::from(record.cost);
        self.exposure += f64::from(record.position.abs());
        self.n_exposed += u64::from(record.position != 0.0);
        if record.flags & BarRecord::CLOSED != 0 {
            self.n_trades += 1;
            self.n_wins += u64::from(record.closed_return > 0.0);
        }
        self.n_ruined += u64::from(record.flags & BarRecord::RUINED != 0);
    }

    /// Puts `next` behind.
    pub fn append(&mut self, next: &Self) {
        self.returns.extend_from_slice(&next.returns);
        self.turnover += next.turnover;
        self.costs += next.costs;
        self.exposure += next.exposure;
        self.n_exposed += next.n_exposed;
        self.n_fills += next.n_fills;
        self.n_limits += next.n_limits;
        self.n_limit_fills += next.n_limit_fills;
        self.n_trades += next.n_trades;
        self.n_wins += next.n_wins;
        self.n_ruined += next.n_ruined;
    }

    /// Several paths as one.
    pub fn joined<'a>(paths: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        paths.into_iter().for_each(|path| all.append(path));
        all
    }

    /// The returns in f64.
    pub fn returns64(&self) -> Vec<f64> {
        self.returns.iter().map(|&r| f64::from(r)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(net_return: f32, position: f32, turnover: f32, cost: f32, closed_return: f32, flags: u32) -> BarRecord {
        BarRecord { net_return, position, turnover, cost, closed_return, flags, ..BarRecord::default() }
    }

    /// In by limit, a limit missed, turned over by market at a gain, a limit that the closing hides.
    #[test]
    fn sums_by_hand() {
        let (filled, limit, closed) = (BarRecord::FILLED, BarRecord::LIMIT, BarRecord::CLOSED);
        let path = [
            bar(0.25, 0.5, 0.5, 0.125, 0.0, filled | limit),
            bar(0.5, 0.5, 0.0, 0.0, 0.0, limit),
            bar(-0.25, -0.5, 1.0, 0.25, 0.75, filled | closed),
            bar(0.0, 0.0, 0.5, 0.125, -0.125, filled | closed | limit),
        ];
        let sums = PathRecords::of(&path);
        let want = PathRecords {
            returns: vec![0.25, 0.5, -0.25, 0.0],
            turnover: 2.0,
            costs: 0.5,
            exposure: 1.5,
            n_exposed: 3,
            n_fills: 2,
            n_limits: 2,
            n_limit_fills: 1,
            n_trades: 2,
            n_wins: 1,
            n_ruined: 0,
        };
        assert_eq!(sums, want);
        let twice = PathRecords::joined([&sums, &sums]);
        assert_eq!((twice.returns.len(), twice.turnover, twice.n_trades, twice.n_wins), (8, 4.0, 4, 2));
        assert_eq!(PathRecords::of(&[]), PathRecords::default());
        let ruin = PathRecords::of(&[bar(-1.0, 0.0, 1.0, 0.0, -1.0, BarRecord::RUINED | closed)]);
        assert_eq!((ruin.n_ruined, ruin.n_trades, ruin.n_wins), (1, 1, 0));
    }
}
