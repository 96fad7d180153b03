//! Updates that were skipped one after the other, as the host learns of them from what the steps publish.

use shared_types::nan_flags::{self, FORWARD, GATED, GRADIENT, INFINITE, NAN};

use crate::step::Published;

/// Steps in a row without an update after which training stops: nothing that it could learn from is left.
pub const MOST_SKIPPED: u32 = 100;

/// How many steps in a row, up to the latest that was seen, were gated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skips {
    /// Applied updates so far, and the latest step that may have been one.
    applied: Option<(i32, u32)>,
    /// Gated steps behind that one.
    in_a_row: u32,
    /// Flags of the latest gated step.
    flags: [u32; nan_flags::N_STAGES],
}

impl Skips {
    /// Takes in what a step told. Steps in between may have been missed: a counter that stands still tells of them too.
    pub fn see(&mut self, published: &Published) {
        let (applied, step) = (published.counters.adam_t, published.step);
        // The objective's or its gradient's flag: a head's own gate skips no step.
        let flags = published.readback.nan_flags;
        let gated = [FORWARD, GRADIENT].iter().any(|&stage| flags[stage] & GATED != 0);
        let latest = match self.applied {
            // A step before that one is of another fold, which counts anew.
            Some((known, latest)) if known == applied && latest <= step => latest,
            // Not one was applied since the fold began, whatever was not seen.
            _ if applied == 0 => 0,
            _ => step - u32::from(gated),
        };
        self.applied = Some((applied, latest));
        self.in_a_row = step.saturating_sub(latest);
        if gated {
            self.flags = flags;
        }
    }

    /// Whether training is to stop.
    pub fn too_many(&self) -> bool {
        self.in_a_row >= MOST_SKIPPED
    }

    /// Gated steps in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Where the latest gated step met what, such as `NaN in sample, forward`.
    pub fn causes(&self) -> String {
        let stages = |bit: u32| -> Vec<&str> {
            let named = nan_flags::NAMES.iter().zip(self.flags);
            named.filter(|(_, flags)| flags & bit != 0).map(|(name, _)| *name).collect()
        };
        let found = [("NaN", stages(NAN)), ("infinity", stages(INFINITE))];
        let found = found.iter().filter(|(_, stages)| !stages.is_empty());
        found.map(|(what, stages)| format!("{what} in {}", stages.join(", "))).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use shared_types::{Counters, Isv, Readback};

    use super::*;

    fn published(step: u32, applied: i32, gated: bool) -> Published {
        let mut readback = Readback::default();
        if gated {
            readback.nan_flags[nan_flags::SAMPLE] = NAN;
            readback.nan_flags[nan_flags::FORWARD] = NAN | GATED;
            readback.nan_flags[nan_flags::GRADIENT] = INFINITE | GATED;
        }
        let counters = Counters { adam_t: applied, rng_step: step as i32, ..Counters::default() };
        Published { step, counters, isv: Isv::at_start(0.01, 1.0, -1.0, 1.0), readback }
    }

    fn after(steps: &[(u32, i32, bool)]) -> Skips {
        let mut skips = Skips::default();
        steps.iter().for_each(|&(step, applied, gated)| skips.see(&published(step, applied, gated)));
        skips
    }

    #[test]
    fn gated_steps_in_a_row_are_counted() {
        assert_eq!(after(&[(1, 1, false), (2, 2, false)]).in_a_row(), 0);
        assert_eq!(after(&[(1, 0, true)]).in_a_row(), 1, "the first step of all");
        assert_eq!(after(&[(8, 0, true)]).in_a_row(), 8, "the first look, with no update before it");
        assert_eq!(after(&[(1, 1, false), (2, 1, true), (3, 1, true)]).in_a_row(), 2);
        assert_eq!(after(&[(5, 5, false), (9, 5, true), (9, 5, true), (30, 5, true)]).in_a_row(), 25, "some unseen");
        assert_eq!(after(&[(5, 5, false), (9, 5, true), (10, 6, false)]).in_a_row(), 0, "an update ends the row");
        assert_eq!(after(&[(5, 5, false), (9, 7, true), (11, 7, true)]).in_a_row(), 3, "as far as is certain");
        // The first look of a fold may still meet the fold before.
        assert_eq!(after(&[(200, 150, true), (1, 1, false)]).in_a_row(), 0);
        assert_eq!(after(&[(200, 0, true), (1, 0, true), (2, 0, true)]).in_a_row(), 2, "a fold counts anew");
        let mut head = published(9, 9, false);
        head.readback.nan_flags[nan_flags::AUX] = NAN | GATED;
        let mut skips = after(&[(8, 8, false)]);
        skips.see(&head);
        assert_eq!(skips.in_a_row(), 0, "a head's gate");
    }

    #[test]
    fn training_stops_at_the_hundredth() {
        let mut skips = after(&[(7, 7, false)]);
        for step in 8..=107 {
            assert!(!skips.too_many(), "step {step}");
            skips.see(&published(step, 7, true));
        }
        assert!(skips.too_many());
        assert_eq!(skips.causes(), "NaN in sample, forward; infinity in gradient");
    }
}
