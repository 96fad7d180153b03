//! Which bars a fold trains on, validates on and tests on.
//!
//! With N bars: the tests of all folds follow each other to the series' end, floor(0.3 N / folds) bars each (0.2 N for one
//! fold). Before a test lie 80 bars of embargo, floor(0.1 N) bars of validation, 80 bars of embargo, and the training part,
//! of one length in all folds: in the first it begins where indicators have settled, and it moves on with the test. No part
//! overlaps another; indicators may read embargo bars.

use std::ops::Range;

use shared_types::market::WARM_UP_BARS;

/// Bars left out before validation and before test, so that no window reaches from a part into the one before it.
pub const EMBARGO_BARS: usize = 80;
/// Fewest bars of a test.
pub const LEAST_TEST_BARS: usize = 200;
/// Fewest episodes of a training part.
pub const LEAST_TRAIN_EPISODES: usize = 4;

/// The parts of a fold, as ranges of bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Fits scaling and the network.
    pub train: Range<usize>,
    /// Chooses the checkpoint.
    pub validation: Range<usize>,
    /// Is read once.
    pub test: Range<usize>,
}

/// Why a series cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkForwardError {
    /// No fold.
    #[error("`folds` is 0; it must be at least 1")]
    NoFolds,
    /// Too little to train on.
    #[error(
        "{n_bars} bars leave {train} for training in each of {folds} fold(s), fewer than 4 episodes of {episode_len}; \
         take more bars, fewer folds or a smaller `episode_len`"
    )]
    Train {
        /// Bars of the series.
        n_bars: usize,
        /// Folds asked for.
        folds: usize,
        /// Bars left.
        train: usize,
        /// Bars of an episode.
        episode_len: usize,
    },
    /// Too little to test on.
    #[error(
        "{n_bars} bars leave {test} for the test of each of {folds} fold(s), fewer than {least}; take more bars or fewer folds",
        least = LEAST_TEST_BARS
    )]
    Test {
        /// Bars of the series.
        n_bars: usize,
        /// Folds asked for.
        folds: usize,
        /// Bars of a test.
        test: usize,
    },
}

/// The folds of a series of `n_bars`, in time's order.
pub fn walk_forward(n_bars: usize, folds: usize, episode_len: usize) -> Result<Vec<Fold>, WalkForwardError> {
    let n_test = match folds {
        0 => return Err(WalkForwardError::NoFolds),
        1 => n_bars / 5,
        // floor(3 N / (10 folds)) without overflow: whole tens first.
        _ => (n_bars / 10 * 3 + n_bars % 10 * 3 / 10) / folds,
    };
    if n_test < LEAST_TEST_BARS {
        return Err(WalkForwardError::Test { n_bars, folds, test: n_test });
    }
    let n_validation = n_bars / 10;
    let first_test = n_bars - folds * n_test;
    let before_test = WARM_UP_BARS + EMBARGO_BARS + n_validation + EMBARGO_BARS;
    let n_train = first_test.saturating_sub(before_test);
    if n_train < LEAST_TRAIN_EPISODES.saturating_mul(episode_len).max(1) {
        return Err(WalkForwardError::Train { n_bars, folds, train: n_train, episode_len });
    }
    let fold = |index: usize| {
        let test = first_test + index * n_test;
        let validation_end = test - EMBARGO_BARS;
        let validation = validation_end - n_validation..validation_end;
        let train_end = validation.start - EMBARGO_BARS;
        Fold { train: train_end - n_train..train_end, validation, test: test..test + n_test }
    };
    Ok((0..folds).map(fold).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2,000 bars, one fold: test 400 at the end, embargo, validation 200, embargo, the rest behind the warm-up.
    #[test]
    fn one_fold_by_hand() {
        let expected = Fold { train: 128..1240, validation: 1320..1520, test: 1600..2000 };
        assert_eq!(walk_forward(2000, 1, 278), Ok(vec![expected]));
        let error = WalkForwardError::Train { n_bars: 2000, folds: 1, train: 1112, episode_len: 279 };
        assert_eq!(walk_forward(2000, 1, 279), Err(error));
    }

    /// 10,007 bars, three folds: 0.3 N = 3,002.1, a third of it 1,000.7; validation 1,000.
    #[test]
    fn three_folds_by_hand() {
        let folds = walk_forward(10_007, 3, 512).unwrap();
        let parts: Vec<_> = folds.iter().map(|fold| (fold.train.clone(), fold.test.clone())).collect();
        assert_eq!(parts, [(128..5847, 7007..8007), (1128..6847, 8007..9007), (2128..7847, 9007..10_007)],);
        assert_eq!(folds[1].validation, 6927..7927);
    }

    #[test]
    fn parts_keep_their_distance_whatever_the_size() {
        for n_bars in (0..40_000).step_by(37) {
            for n_folds in 1..6 {
                let Ok(folds) = walk_forward(n_bars, n_folds, 64) else { continue };
                assert_eq!(folds.len(), n_folds);
                assert_eq!(folds[n_folds - 1].test.end, n_bars);
                for fold in &folds {
                    assert!(fold.train.start >= WARM_UP_BARS, "{fold:?}");
                    assert_eq!(fold.train.end + EMBARGO_BARS, fold.validation.start);
                    assert_eq!(fold.validation.end + EMBARGO_BARS, fold.test.start);
                    assert_eq!(fold.train.len(), folds[0].train.len());
                }
                assert!(folds.windows(2).all(|pair| pair[0].test.end == pair[1].test.start));
            }
        }
    }

    #[test]
    fn errors_say_what_is_missing() {
        assert_eq!(walk_forward(5000, 0, 64), Err(WalkForwardError::NoFolds));
        let message = walk_forward(999, 1, 64).unwrap_err().to_string();
        assert!(message.contains("999 bars leave 199 for the test"), "{message}");
        assert!(walk_forward(0, 3, 64).is_err());
        assert!(walk_forward(usize::MAX, 3, usize::MAX).is_err());
    }
}
