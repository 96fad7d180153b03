//! The layouts, listed: a change of any number here is a change of what both sides read.

extern crate std;

use std::assert_eq;
use std::fmt::Write;
use std::string::String;

use crate::{
    BarRecord, Collector, CollectorSums, Control, Counters, EnvParams, EnvState, FeatureScale, GateParams,
    GradientNorm, IqlTotals, Isv, LearnerRange, LossTotals, MarketBar, PendingStep, PopArt, PruneParams, PruneTensor,
    Readback, Schedule, SnapshotProducts, SpectralMatrix, StepScalars, UpdateScalars, VaccineScalars, isv, learner,
    nan_flags, stream,
};

/// What `assert_layout!` knows of a type.
pub trait Layout {
    /// Name.
    const NAME: &'static str;
    /// Bytes.
    const SIZE: usize;
    /// Name, offset and size of each field.
    const FIELDS: &'static [(&'static str, usize, usize)];
}

fn list<T: Layout>(out: &mut String) {
    writeln!(out, "{} {}", T::NAME, T::SIZE).unwrap();
    for (name, offset, size) in T::FIELDS {
        writeln!(out, "  {offset:>3} {size:>3} {name}").unwrap();
    }
}

#[test]
fn the_layouts_are_the_documented_ones() {
    let mut out = String::new();
    list::<Readback>(&mut out);
    list::<Counters>(&mut out);
    list::<Control>(&mut out);
    list::<StepScalars>(&mut out);
    list::<Schedule>(&mut out);
    list::<Isv>(&mut out);
    list::<MarketBar>(&mut out);
    list::<EnvParams>(&mut out);
    list::<EnvState>(&mut out);
    list::<BarRecord>(&mut out);
    list::<PendingStep>(&mut out);
    list::<Collector>(&mut out);
    list::<CollectorSums>(&mut out);
    list::<FeatureScale>(&mut out);
    list::<LossTotals>(&mut out);
    list::<LearnerRange>(&mut out);
    list::<GradientNorm>(&mut out);
    list::<GateParams>(&mut out);
    list::<SnapshotProducts>(&mut out);
    list::<VaccineScalars>(&mut out);
    list::<PruneParams>(&mut out);
    list::<PruneTensor>(&mut out);
    list::<UpdateScalars>(&mut out);
    list::<SpectralMatrix>(&mut out);
    list::<PopArt>(&mut out);
    list::<IqlTotals>(&mut out);
    assert_eq!(out, include_str!("layouts.txt"), "the layouts are now:\n{out}");
}

#[test]
fn fields_follow_each_other_without_gap_or_overlap() {
    fn check<T: Layout>() {
        let mut end = 0;
        for (name, offset, size) in T::FIELDS {
            assert_eq!(*offset, end, "{}::{name}", T::NAME);
            end += size;
        }
        assert_eq!(end, T::SIZE, "{}", T::NAME);
    }
    check::<Readback>();
    check::<Counters>();
    check::<Control>();
    check::<StepScalars>();
    check::<Schedule>();
    check::<Isv>();
    check::<MarketBar>();
    check::<EnvParams>();
    check::<EnvState>();
    check::<BarRecord>();
    check::<PendingStep>();
    check::<Collector>();
    check::<CollectorSums>();
    check::<FeatureScale>();
    check::<LossTotals>();
    check::<LearnerRange>();
    check::<GradientNorm>();
    check::<GateParams>();
    check::<SnapshotProducts>();
    check::<VaccineScalars>();
    check::<PruneParams>();
    check::<PruneTensor>();
    check::<UpdateScalars>();
    check::<SpectralMatrix>();
    check::<PopArt>();
    check::<IqlTotals>();
}

#[test]
fn no_two_uses_share_a_random_stream() {
    for (i, (name, number)) in stream::ALL.iter().enumerate() {
        let twin = stream::ALL[..i].iter().find(|(_, other)| other == number);
        assert_eq!(twin, None, "{name} shares stream {number}");
        assert!(*number < stream::PARAMETERS, "{name} lies among the parameters' streams");
    }
}

#[test]
fn every_stage_has_a_name_at_its_index() {
    let expected = [
        (nan_flags::SAMPLE, "sample"),
        (nan_flags::FORWARD, "forward"),
        (nan_flags::DDQN, "ddqn"),
        (nan_flags::AUX, "aux"),
        (nan_flags::GRADIENT, "gradient"),
        (nan_flags::UPDATE, "update"),
        (nan_flags::PRIORITY, "priority"),
    ];
    for (index, name) in expected {
        assert_eq!(nan_flags::NAMES[index], name, "stage {index}");
    }
}

#[test]
fn the_bus_starts_as_documented() {
    let bus = Isv::at_start(0.01, 1.0, -10.0, 10.0);
    let mut expected = [0.0; isv::LEN];
    expected[12] = 1.0;
    expected[20] = 1.0;
    for branch in 0..4 {
        expected[23 + 2 * branch] = -10.0;
        expected[24 + 2 * branch] = 10.0;
    }
    expected[41] = 1.0;
    expected[42] = 0.01;
    expected[43] = 0.99;
    expected[44] = 1.0;
    expected[45] = 1.0;
    assert_eq!(bus.entries, expected);
}

#[test]
fn gated_learners_take_back_their_own_counters() {
    let counters: Counters = bytemuck::cast([10, 20, 30, 40, 50, 60, 70, 80]);
    assert_eq!(counters.without(0), counters);
    for l in 0..learner::N_LEARNERS {
        let after = counters.without(1 << l);
        for other in 0..learner::N_LEARNERS {
            let taken = if other == l { 1 } else { 0 };
            assert_eq!(after.applied(other), counters.applied(other) - taken, "{}", learner::NAMES[l]);
        }
        assert_eq!(after.rng_step, 80, "steps are counted, gated or not");
    }
}
