//! `gate_step`: what a fault at each input leaves alone, and the scalars of a step that is applied.

use onegraph_tests::lab::{Lab, Numbers, Tolerance};
use onegraph_tests::{Case, Outcome, case};
use reference::adam;
use reference::config::Sizes;
use shared_types::learner::{self, N_LEARNERS};
use shared_types::nan_flags::{self, GATED, INFINITE, NAN};
use shared_types::{Counters, GateParams, Precision, UpdateScalars, isv};

use crate::world::{GROUPS, PARAMS, Step, World};

pub fn cases() -> Vec<Case> {
    vec![
        case("gate::a_fault_of_the_objective_gates_everything", |device| {
            Lab::on_all_lanes(device, a_fault_of_the_objective_gates_everything)
        }),
        case("gate::a_fault_of_a_head_gates_that_head", |device| {
            Lab::on_all_lanes(device, a_fault_of_a_head_gates_that_head)
        }),
        case("gate::after_a_gated_step_training_goes_on", |device| {
            Lab::on_all_lanes(device, after_a_gated_step_training_goes_on)
        }),
        case("gate::a_learner_that_is_off_is_left_alone", |device| {
            Lab::on_all_lanes(device, a_learner_that_is_off_is_left_alone)
        }),
        case("gate::scalars_follow_their_equations", |device| {
            Lab::on_all_lanes(device, scalars_follow_their_equations)
        }),
        case("gate::the_clip_adapts_once_it_has_a_sample", |device| {
            Lab::on_all_lanes(device, the_clip_adapts_once_it_has_a_sample)
        }),
    ]
}

const COUNTERS: [i32; 8] = [11, 12, 13, 14, 15, 16, 17, 18];

/// A fault, the word that names it, and its bits.
struct Fault {
    what: String,
    gradient: Vec<f32>,
    step: Step,
    stage: usize,
    bits: u32,
}

/// Faults of J and of theta's gradient.
fn faults(world: &World) -> Vec<Fault> {
    let mut faults = Vec::new();
    let good = world.gradient(&mut Numbers::new(1), 1.0);
    for (value, bits) in [(f32::NAN, NAN), (f32::INFINITY, INFINITE), (f32::NEG_INFINITY, INFINITE)] {
        let mut step = Step::default();
        step.totals.objective = value;
        let what = format!("J = {value}");
        faults.push(Fault { what, gradient: good.clone(), step, stage: nan_flags::FORWARD, bits });
        let theta = world.layout.range(GROUPS[0]);
        for at in [0, theta.len() / 2, theta.end - 1] {
            let mut gradient = good.clone();
            gradient[at] = value;
            let what = format!("gradient[{at}] = {value}");
            faults.push(Fault { what, gradient, step: Step::default(), stage: nan_flags::GRADIENT, bits });
        }
    }
    let gradient = good.iter().map(|g| g * 1e30).collect();
    let what = "a norm past f32".to_owned();
    faults.push(Fault { what, gradient, step: Step::default(), stage: nan_flags::GRADIENT, bits: INFINITE });
    faults
}

fn a_fault_of_the_objective_gates_everything(lab: &Lab) -> Outcome {
    for precision in [Precision::Bf16, Precision::F32] {
        let world = World::new(lab, Sizes::MINIATURE, precision)?;
        let before = world.learned()?;
        for fault in faults(&world) {
            world.flags.zero()?;
            world.counters.write(&[bytemuck::cast::<_, Counters>(COUNTERS)])?;
            world.update(&fault.gradient, &fault.step, PARAMS)?;
            let what = fault.what;
            assert!(world.learned()? == before, "{what}: something learned changed");
            assert_eq!(world.gate.read()?, [1], "{what}");
            let mut flags = [0; 7];
            flags[fault.stage] = fault.bits | GATED;
            let mut found = world.flags.read()?;
            if what == "a norm past f32" {
                // The heads' norms are past it too.
                assert_eq!(found[nan_flags::AUX], INFINITE | GATED);
                found[nan_flags::AUX] = 0;
            }
            assert_eq!(found, flags, "{what}");
            let counters: [i32; 8] = bytemuck::cast(world.counters.read()?[0]);
            assert_eq!(counters, [10, 11, 12, 13, 14, 15, 16, 18], "{what}: all but rng_step go back");
        }
    }
    Ok(())
}

fn a_fault_of_a_head_gates_that_head(lab: &Lab) -> Outcome {
    for (l, faulty) in GROUPS.into_iter().enumerate().skip(1) {
        for (value, bits) in [(f32::NAN, NAN), (f32::INFINITY, INFINITE)] {
            for of_loss in [true, false] {
                let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
                let (before, mut step) = (world.learned()?, Step::default());
                let mut gradient = world.gradient(&mut Numbers::new(2), 1.0);
                let range = world.layout.range(faulty);
                if of_loss {
                    step.head_losses[l - 1] = value;
                } else {
                    gradient[range.start] = value;
                }
                world.counters.write(&[bytemuck::cast::<_, Counters>(COUNTERS)])?;
                world.update(&gradient, &step, PARAMS)?;
                let (after, name) = (world.learned()?, learner::NAMES[l]);
                for part in 0..3 {
                    for (other, group) in GROUPS.iter().enumerate() {
                        let range = world.layout.range(*group);
                        let same = after[part][range.clone()] == before[part][range];
                        assert_eq!(same, other == l, "fault of {name}, part {part} of {}", learner::NAMES[other]);
                    }
                }
                assert!(after[3].iter().zip(&before[3]).any(|(a, b)| a != b), "targets follow");
                assert_eq!(world.gate.read()?, [0]);
                let mut flags = [0; 7];
                flags[nan_flags::AUX] = bits | GATED;
                assert_eq!(world.flags.read()?, flags, "{name}");
                let (counters, want) = (world.counters.read()?[0], bytemuck::cast::<_, Counters>(COUNTERS));
                for other in 0..N_LEARNERS {
                    assert_eq!(counters.applied(other), want.applied(other) - i32::from(other == l), "fault of {name}");
                }
            }
        }
    }
    Ok(())
}

/// A gated step between two others leaves what the two alone leave, bit for bit.
fn after_a_gated_step_training_goes_on(lab: &Lab) -> Outcome {
    let run = |with_fault: bool| -> Result<_, onegraph_tests::Failed> {
        let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
        let mut numbers = Numbers::new(3);
        let (one, two) = (world.gradient(&mut numbers, 1.0), world.gradient(&mut numbers, 1.0));
        world.update(&one, &Step::default(), PARAMS)?;
        let advance = || -> Result<(), host::error::DeviceError> {
            let counters: [i32; 8] = bytemuck::cast(world.counters.read()?[0]);
            world.counters.write(&[bytemuck::cast::<_, Counters>(counters.map(|count| count + 1))])
        };
        advance()?;
        if with_fault {
            let mut bad = two.clone();
            bad[3] = f32::NAN;
            world.update(&bad, &Step::default(), PARAMS)?;
            advance()?;
        }
        world.update(&two, &Step::default(), PARAMS)?;
        assert_eq!(world.counters.read()?[0].adam_t, 2);
        Ok(world.learned()?)
    };
    assert!(run(true)? == run(false)?);
    Ok(())
}

fn a_learner_that_is_off_is_left_alone(lab: &Lab) -> Outcome {
    let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
    let before = world.learned()?;
    let mut step = Step::default();
    step.head_losses[learner::IQN - 1] = f32::NAN;
    world.counters.write(&[bytemuck::cast::<_, Counters>(COUNTERS)])?;
    let params = GateParams { learners: PARAMS.learners & !(1 << learner::IQN), ..PARAMS };
    world.update(&world.gradient(&mut Numbers::new(4), 1.0), &step, params)?;
    let range = world.layout.range(GROUPS[learner::IQN]);
    assert!(world.learned()?[0][range.clone()] == before[0][range]);
    assert_eq!(bytemuck::cast::<_, [i32; 8]>(world.counters.read()?[0]), COUNTERS);
    assert_eq!(world.flags.read()?, [0; 7]);
    Ok(())
}

/// A norm's square is (h + 32) roundings off, its root half of that and one more; the scale divides once. The powers of beta are
/// exact next to f32, so a correction is one rounding off.
fn scalars_follow_their_equations(lab: &Lab) -> Outcome {
    let world = World::new(lab, Sizes::TINY, Precision::Bf16)?;
    let rounding = 2f64.powi(-24);
    for t in [1, 2, 7, 1000, 100_000, i32::MAX] {
        let gradient = world.gradient(&mut Numbers::new(t as u64), if t % 2 == 0 { 0.01 } else { 3.0 });
        let mut counters = [t; 8];
        counters[7] = 3;
        world.counters.write(&[bytemuck::cast::<_, Counters>(counters)])?;
        let step = Step::default();
        world.update(&gradient, &step, PARAMS)?;
        let (mut norms, mut scales, mut want_norms, mut want_scales) = (vec![], vec![], vec![], vec![]);
        let (mut corrections, mut want_corrections) = (vec![], vec![]);
        for (l, by) in world.scalars.read()?.iter().enumerate() {
            let range = world.layout.range(GROUPS[l]);
            let norm = gradient[range].iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            norms.push(by.squared_norm.sqrt());
            want_norms.push(norm);
            scales.push(by.gradient_scale);
            want_scales.push(adam::clip_scale(norm, f64::from(step.scalars.clip)));
            corrections.extend([by.first_correction, by.second_correction]);
            want_corrections.extend([0.9f64, 0.999].map(|beta| 1.0 / (1.0 - beta.powf(f64::from(t)))));
            assert_eq!((by.gate, by.lr, by.tau), (0, step.scalars.lr, step.scalars.tau));
            assert_eq!(by.weight_decay, if l == learner::THETA { PARAMS.weight_decay } else { 0.0 });
        }
        Tolerance { absolute: 0.0, relative: 18.0 * rounding }.check("norms", &norms, &want_norms)?;
        Tolerance { absolute: 0.0, relative: 20.0 * rounding }.check("scales", &scales, &want_scales)?;
        Tolerance { absolute: 0.0, relative: 1.01 * rounding }.check("corrections", &corrections, &want_corrections)?;
    }
    Ok(())
}

fn the_clip_adapts_once_it_has_a_sample(lab: &Lab) -> Outcome {
    let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
    let gradient = world.gradient(&mut Numbers::new(5), 30.0);
    // (seeded, clip_ema, switch) and the clip that theta's scale shows.
    for (seeded, ema, adaptive_clip, clip) in [
        (0, 2.0, 1, 10.0),
        (1u64 << isv::CLIP_EMA, 2.0, 1, 4.0),
        (1 << isv::CLIP_EMA, 50.0, 1, 10.0),
        (!0, 2.0, 0, 10.0),
    ] {
        world.seeded.write(&[seeded])?;
        world.bus.slice(isv::CLIP_EMA..isv::CLIP_EMA + 1).write(&[ema])?;
        world.update(&gradient, &Step::default(), GateParams { adaptive_clip, ..PARAMS })?;
        for (l, by) in world.scalars.read()?.iter().enumerate() {
            let clip: f32 = if l == learner::THETA { clip } else { 10.0 };
            let norm = by.squared_norm.sqrt();
            assert_eq!(by.gradient_scale, if norm > clip { clip / norm } else { 1.0 }, "learner {l}");
            assert_eq!(by.gate & UpdateScalars::GATED, 0);
        }
    }
    Ok(())
}
