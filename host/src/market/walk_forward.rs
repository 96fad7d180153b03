//! Walk-forward split: train, validation and test parts of a series, fold by fold.
//!
//! ```text
//! fold 1   [ train        ] e [ validation ] e [ test ]
//! fold 2          [ train        ] e [ validation ] e [ test ]
//! ```
//! Tests are consecutive and the last one ends at the series' end. `e` is an embargo: its bars are neither trained on
//! nor scored, though indicators may read them. The split depends on the series' length alone, never on its values.

use std::ops::Range;

/// First bar with all features; those before it only warm the indicators up.
pub const WARM_UP_BARS: usize = 128;
/// Bars left out before validation and before test: more than the longest return feature (60) and the minimum hold
/// reach across.
pub const EMBARGO_BARS: usize = 80;
/// A shorter test shows nothing.
pub const TEST_BARS_MIN: usize = 200;
/// A training part holds at least so many episodes.
pub const TRAIN_EPISODES_MIN: usize = 4;

/// The parts of one fold, as ranges of bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Scaling, bar sigma and weights are fitted on these bars alone. Of equal length in all folds.
    pub train: Range<usize>,
    /// Checkpoints are chosen on these.
    pub validation: Range<usize>,
    /// Read once, by the chosen checkpoint.
    pub test: Range<usize>,
}

/// A series too short for the split asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{n_bars} bars leave {found} for the {part} part of each of {n_folds} folds, and it needs {needed}; give a longer \
     series, fewer folds or a shorter episode_len"
)]
pub struct TooShort {
    /// Bars in the series.
    pub n_bars: usize,
    /// Folds asked for.
    pub n_folds: usize,
    /// `training` or `test`.
    pub part: &'static str,
    /// Bars that the part would have.
    pub found: usize,
    /// Bars that it needs.
    pub needed: usize,
}

/// Splits `n_bars` into `n_folds` (at least 1). The test parts take 0.3 of the series together (0.2 for one fold), the
/// validation part 0.1, both rounded down; training takes what the first fold leaves after the warm-up.
pub fn split(n_bars: usize, n_folds: usize, episode_len: usize) -> Result<Vec<Fold>, TooShort> {
    assert!(n_folds > 0, "a walk has at least one fold");
    let too_short = |part, found, needed| TooShort { n_bars, n_folds, part, found, needed };
    let n_test = if n_folds == 1 { n_bars / 5 } else { 3 * n_bars / (10 * n_folds) };
    let n_validation = n_bars / 10;
    if n_test < TEST_BARS_MIN {
        return Err(too_short("test", n_test, TEST_BARS_MIN));
    }
    let before_test = n_bars - n_folds * n_test;
    let n_train = before_test.saturating_sub(2 * EMBARGO_BARS + n_validation + WARM_UP_BARS);
    if n_train < TRAIN_EPISODES_MIN * episode_len {
        return Err(too_short("training", n_train, TRAIN_EPISODES_MIN * episode_len));
    }
    let fold = |idx| {
        let test_start = before_test + idx * n_test;
        let validation_end = test_start - EMBARGO_BARS;
        let train_end = validation_end - n_validation - EMBARGO_BARS;
        Fold {
            train: train_end - n_train..train_end,
            validation: validation_end - n_validation..validation_end,
            test: test_start..test_start + n_test,
        }
    };
    Ok((0..n_folds).map(fold).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fold_worked_by_hand() {
        let folds = split(10_000, 1, 250).expect("long enough");
        // Test 2,000; validation 1,000 before an embargo of 80; training what is left of 10,000 after the warm-up.
        assert_eq!(folds, [Fold { train: 128..6_840, validation: 6_920..7_920, test: 8_000..10_000 }]);
    }

    #[test]
    fn three_folds_worked_by_hand() {
        let folds = split(45_017, 3, 512).expect("long enough");
        // floor(0.3 x 45,017 / 3) = 4,501 bars of test each, 4,501 of validation.
        assert_eq!(folds[0], Fold { train: 128..26_853, validation: 26_933..31_434, test: 31_514..36_015 });
        assert_eq!(folds[1], Fold { train: 4_629..31_354, validation: 31_434..35_935, test: 36_015..40_516 });
        assert_eq!(folds[2], Fold { train: 9_130..35_855, validation: 35_935..40_436, test: 40_516..45_017 });
    }

    /// No look-ahead (I8): within a fold, what is fitted ends before what is chosen on, and that before what is scored,
    /// with the embargo between; between folds no bar is scored twice.
    #[test]
    fn i8_parts_follow_each_other_in_time_and_no_test_bar_is_seen_before() {
        let mut n_splits = 0;
        for n_bars in (0..60_000).step_by(997) {
            for n_folds in 1..=6 {
                for episode_len in [1, 64, 250, 512] {
                    let Ok(folds) = split(n_bars, n_folds, episode_len) else { continue };
                    n_splits += 1;
                    assert_eq!(folds.len(), n_folds);
                    assert!(folds[0].train.start == WARM_UP_BARS && folds[n_folds - 1].test.end == n_bars);
                    for (idx, fold) in folds.iter().enumerate() {
                        assert_eq!(fold.train.end + EMBARGO_BARS, fold.validation.start);
                        assert_eq!(fold.validation.end + EMBARGO_BARS, fold.test.start);
                        assert_eq!(fold.train.len(), folds[0].train.len());
                        assert!(fold.train.len() >= TRAIN_EPISODES_MIN * episode_len);
                        assert!(fold.test.len() >= TEST_BARS_MIN);
                        assert!(idx == 0 || fold.test.start == folds[idx - 1].test.end);
                    }
                }
            }
        }
        assert!(n_splits > 500, "{n_splits} splits were possible");
    }

    #[test]
    fn too_short_series_say_which_part_lacks_what() {
        let error = split(999, 1, 10).expect_err("999 / 5 = 199").to_string();
        assert!(
            error.starts_with("999 bars leave 199 for the test part of each of 1 folds, and it needs 200;"),
            "{error}"
        );
        let error = split(2_148, 1, 512).expect_err("training is shorter than 4 x 512");
        // 2,148 - 429 - 160 - 214 - 128.
        assert_eq!((error.part, error.found, error.needed), ("training", 1_217, 2_048));
        assert!(split(0, 1, 1).is_err());
        assert!(split(1_000, 1, 102).is_ok() && split(1_000, 1, 104).is_err(), "412 bars of training");
    }
}
