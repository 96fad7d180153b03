//! The sweep, against the reference.

use gpu_kernels::adamw::{CHUNK, CHUNK_SHADOW};
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Outcome, case};
use reference::adam::{self, Moments, update_group};
use reference::config::Sizes;
use reference::layout::{Group, Tensors};
use shared_types::nan_flags::{self, INFINITE, NAN};
use shared_types::{Counters, Precision, UpdateScalars, isv, learner};

use crate::world::{GROUPS, PARAMS, POISON, Step, World, symmetric};

pub fn cases() -> Vec<Case> {
    vec![
        case("adamw::steps_follow_the_reference", |device| Lab::on_all_lanes(device, steps_follow_the_reference)),
        case("adamw::operands_are_the_rounded_parameters_where_asked", |device| {
            Lab::on_all_lanes(device, operands_are_the_rounded_parameters_where_asked)
        }),
        case("adamw::any_number_of_chunks", |device| Lab::on_all_lanes(device, any_number_of_chunks)),
        case("adamw::the_same_steps_give_the_same_bits", |device| {
            Lab::on_all_lanes(device, the_same_steps_give_the_same_bits)
        }),
        case("adamw::a_gated_learner_stays_and_its_target_moves", |device| {
            Lab::on_all_lanes(device, a_gated_learner_stays_and_its_target_moves)
        }),
        case("adamw::what_would_be_no_number_is_not_written", |device| {
            Lab::on_all_lanes(device, what_would_be_no_number_is_not_written)
        }),
        case("adamw::gradients_at_the_ends_of_the_numbers", |device| {
            Lab::on_all_lanes(device, gradients_at_the_ends_of_the_numbers)
        }),
    ]
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// The gradient of step `step`: the learners' norms lie on both sides of the clip.
fn gradient(world: &World, numbers: &mut Numbers, step: usize) -> Vec<f32> {
    let mut gradient = world.gradient(numbers, 0.05);
    let iql = &world.ranges[learner::IQL_HIGH];
    gradient[iql.start as usize..(iql.start + iql.len) as usize].iter_mut().for_each(|g| *g *= 100.0);
    if step.is_multiple_of(2) {
        gradient.iter_mut().for_each(|g| *g *= 7.0);
    }
    gradient
}

/// The clip scale is off by c roundings: the norm's (h + 32) / 2 + 2, under 20 here, or (k + 35) / 2 + 2 where a thread adds alone,
/// under 40. m is off by 3 and v by 6 more a step; the constants 0.1 and 0.001 are a rounding off. A step's direction
/// m c1 / sqrt(v c2) is at most sqrt(t) for these t; an error of m is measured against the largest gradient so far, the root of
/// v c2 being at least that over sqrt(t). So each step is off by at most lr (c + 9 t + 10) sqrt(t) 2^-24, plus a rounding of w; tau
/// and lr are f32 on both sides.
fn steps_follow_the_reference(lab: &Lab) -> Outcome {
    for precision in [Precision::Bf16, Precision::F32] {
        let world = World::new(lab, Sizes::TINY, precision)?;
        let layout = world.layout.clone();
        let of = |flat: Vec<f64>| Tensors { layout: layout.clone(), flat };
        let mut params = of(wide(&world.params.read()?));
        let mut target = Tensors::zeros(&layout);
        target.flat[layout.target_range()].copy_from_slice(&wide(&world.target.read()?));
        let mut moments = Moments { first: Tensors::zeros(&layout), second: Tensors::zeros(&layout) };
        let mut numbers = Numbers::new(5);
        let (step, n_steps) = (Step::default(), 5);
        let (lr, tau) = (f64::from(step.scalars.lr), f64::from(step.scalars.tau));
        for t in 1..=n_steps {
            let gradient = gradient(&world, &mut numbers, t);
            world.counters.write(&[bytemuck::cast::<_, Counters>([t as i32; 8])])?;
            // As the second step begins, clip_ema has had a sample.
            world.bus.slice(isv::CLIP_EMA..isv::CLIP_EMA + 1).write(&[2.0])?;
            world.seeded.write(&[if t > 1 { 1 << isv::CLIP_EMA } else { 0 }])?;
            world.update(&gradient, &step, PARAMS)?;
            let gradient = of(wide(&gradient));
            adam::target_ema(&mut target, &params, tau);
            for group in GROUPS {
                let theta = group == Group::Theta;
                let clip = if theta { adam::adaptive_clip(10.0, (t > 1).then_some(2.0)) } else { 10.0 };
                let scale = adam::clip_scale(adam::group_norm(&gradient, group), clip);
                let decay = if theta { f64::from(PARAMS.weight_decay) } else { 0.0 };
                update_group(&mut params, &gradient, &mut moments, (group, scale), t as u64, lr, decay);
            }
        }
        let rounding = 2f64.powi(-24);
        let of_clip = if lab.lanes() == 1 { 40.0 } else { 20.0 };
        let of_step = |t: f64| lr * (of_clip + 9.0 * t + 10.0) * t.sqrt() * rounding;
        let step_error: f64 = (1..=n_steps).map(|t| of_step(t as f64)).sum();
        let rounded = n_steps as f64 * rounding;
        let name = |what: &str| format!("{what} after {n_steps} steps, {precision:?}");
        Tolerance { absolute: step_error, relative: rounded }.check(
            &name("parameters"),
            &world.params.read()?,
            &params.flat,
        )?;
        // Three roundings of the larger of both a step, and tau times the parameters' error.
        Tolerance { absolute: step_error + 3.0 * 0.2 * rounded, relative: 0.0 }.check(
            &name("target"),
            &world.target.read()?,
            &target.flat[layout.target_range()],
        )?;
        // Sums of terms of both signs: measured against the largest.
        let largest = moments.first.flat.iter().fold(0f64, |most, m| most.max(m.abs()));
        Tolerance { absolute: (20.0 + 3.0 * n_steps as f64) * rounding * largest, relative: 0.0 }.check(
            &name("first moments"),
            &world.first.read()?,
            &moments.first.flat,
        )?;
        Tolerance { absolute: 1e-30, relative: (42.0 + 5.0 * n_steps as f64) * rounding }.check(
            &name("second moments"),
            &world.second.read()?,
            &moments.second.flat,
        )?;
        assert_eq!(world.flags.read()?, [0; 7]);
    }
    Ok(())
}

fn operands_are_the_rounded_parameters_where_asked(lab: &Lab) -> Outcome {
    for precision in [Precision::Bf16, Precision::F32] {
        let world = World::new(lab, Sizes::MINIATURE, precision)?;
        world.update(&world.gradient(&mut Numbers::new(6), 1.0), &Step::default(), PARAMS)?;
        for (what, values, operands) in [
            ("parameters", world.params.read()?, world.shadow.read()?),
            ("target", world.target.read()?, world.target_shadow.read()?),
        ] {
            let mut n_written = 0;
            for (i, value) in values.iter().enumerate() {
                let got = &operands[i * precision.words()..(i + 1) * precision.words()];
                let asked = world.chunks[i / CHUNK] & CHUNK_SHADOW != 0;
                let want = if asked { world.operand(*value) } else { vec![POISON; precision.words()] };
                assert_eq!(got, want, "{what}, element {i}, {precision:?}");
                n_written += usize::from(asked);
            }
            assert!(n_written > 0 && n_written < values.len());
        }
    }
    Ok(())
}

/// One learner's chunks, some with decay, some with a target; what lies past the end stays.
fn any_number_of_chunks(lab: &Lab) -> Outcome {
    for n_chunks in [1usize, 3, 5, 15, 17, 33, 65] {
        let (n, n_target) = (n_chunks * CHUNK, n_chunks.div_ceil(2) * CHUNK);
        let mut world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
        let mut numbers = Numbers::new(n as u64);
        let mut draw = |n: usize| -> Vec<f32> { (0..n).map(|_| symmetric(&mut numbers)).collect() };
        let (params, first, target, gradient) = (draw(n), draw(n), draw(n_target), draw(n));
        let second: Vec<f32> = draw(n).iter().map(|x| x * x).collect();
        world.params = lab.upload(&params)?;
        world.first = lab.upload(&first)?;
        world.second = lab.upload(&second)?;
        world.target = lab.upload(&target)?;
        world.shadow = lab.zeroed(n)?;
        world.target_shadow = lab.zeroed(n_target)?;
        world.chunks = (0..n_chunks).map(|chunk| if chunk % 3 == 1 { 0b0100_0000 } else { 0 }).collect();
        let by = UpdateScalars {
            lr: 0.01,
            gradient_scale: 0.5,
            first_correction: (1.0 / (1.0 - 0.9f64.powi(9))) as f32,
            second_correction: (1.0 / (1.0 - 0.999f64.powi(9))) as f32,
            weight_decay: 0.1,
            tau: 0.25,
            ..UpdateScalars::default()
        };
        world.scalars = lab.upload(&[by])?;
        world.sweep(&lab.upload(&gradient)?)?;
        let (mut w_want, mut target_want) = (Vec::new(), Vec::new());
        for i in 0..n {
            let decay = if world.chunks[i / CHUNK] == 0 { 0.0 } else { f64::from(0.1f32) };
            let [w, g, m, v] = [params[i], gradient[i], first[i], second[i]].map(f64::from);
            w_want.push(adam::adam_element(w, 0.5 * g, m, v, 9, f64::from(by.lr), decay).0);
            if i < n_target {
                target_want.push(f64::from(target[i]) + 0.25 * (w - f64::from(target[i])));
            }
        }
        // m is up to 1 and its root of v may be as small as the gradient's sqrt(0.001): the step is up to 1.6 / 0.0001 for the
        // smallest drawn, so its dozen roundings are taken relative to the step, bounded by what it moved the weight.
        let moved = w_want.iter().zip(&params).map(|(want, w)| (want - f64::from(*w)).abs()).fold(0.0, f64::max);
        Tolerance { absolute: 12.0 * 2f64.powi(-24) * (1.0 + moved), relative: 2f64.powi(-23) }.check(
            &format!("{n_chunks} chunks"),
            &world.params.read()?,
            &w_want,
        )?;
        Tolerance { absolute: 3.0 * 2f64.powi(-24), relative: 0.0 }.check(
            &format!("target of {n_chunks} chunks"),
            &world.target.read()?,
            &target_want,
        )?;
    }
    Ok(())
}

fn the_same_steps_give_the_same_bits(lab: &Lab) -> Outcome {
    let run = || -> Result<_, onegraph_tests::Failed> {
        let world = World::new(lab, Sizes::TINY, Precision::Bf16)?;
        let mut numbers = Numbers::new(7);
        for t in 1..=3 {
            world.counters.write(&[bytemuck::cast::<_, Counters>([t; 8])])?;
            world.update(&world.gradient(&mut numbers, 1.0), &Step::default(), PARAMS)?;
        }
        Ok((world.learned()?, world.scalars.read()?.iter().map(|by| by.squared_norm.to_bits()).collect::<Vec<_>>()))
    };
    assert!(run()? == run()?);
    Ok(())
}

fn a_gated_learner_stays_and_its_target_moves(lab: &Lab) -> Outcome {
    let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
    let gradient = lab.upload(&world.gradient(&mut Numbers::new(8), 1.0))?;
    let by = UpdateScalars {
        lr: 0.1,
        gradient_scale: 1.0,
        first_correction: 10.0,
        second_correction: 1000.0,
        tau: 0.5,
        ..UpdateScalars::default()
    };
    let before = world.learned()?;
    let gated = |gate| UpdateScalars { gate, ..by };
    world.scalars.write(&[gated(UpdateScalars::GATED | UpdateScalars::STEP_GATED); 7])?;
    world.sweep(&gradient)?;
    assert!(world.learned()? == before, "a gated step changes nothing");
    world.scalars.write(&[gated(UpdateScalars::GATED); 7])?;
    world.sweep(&gradient)?;
    let after = world.learned()?;
    for part in [0, 1, 2, 4] {
        assert!(after[part] == before[part], "part {part} of gated learners changed");
    }
    assert!(after[3] != before[3] && after[5] != before[5], "the target follows all the same");
    Ok(())
}

fn what_would_be_no_number_is_not_written(lab: &Lab) -> Outcome {
    let world = World::new(lab, Sizes::MINIATURE, Precision::F32)?;
    let gradient = world.gradient(&mut Numbers::new(9), 1.0);
    let usual = UpdateScalars {
        lr: 0.1,
        gradient_scale: 1.0,
        first_correction: 10.0,
        second_correction: 1000.0,
        tau: 0.0,
        ..UpdateScalars::default()
    };
    let before = world.learned()?;
    // Where the gradient is 0, infinity times the step is a NaN; elsewhere it is infinite.
    for (by, flag) in [
        (UpdateScalars { lr: f32::NAN, ..usual }, NAN),
        (UpdateScalars { lr: f32::INFINITY, ..usual }, NAN | INFINITE),
        (UpdateScalars { gradient_scale: f32::NAN, ..usual }, NAN),
        (UpdateScalars { lr: 0.0, tau: f32::NAN, ..usual }, NAN),
    ] {
        world.flags.zero()?;
        world.scalars.write(&[by; 7])?;
        world.sweep(&lab.upload(&gradient)?)?;
        let flags = world.flags.read()?;
        assert_eq!(flags[nan_flags::UPDATE], flag, "{by:?}");
        assert_eq!(flags.iter().filter(|word| **word != 0).count(), 1);
        let after = world.learned()?;
        assert!(after[3] == before[3], "{by:?}: the target changed");
        if by.lr != 0.0 {
            assert!(after[..3] == before[..3], "{by:?}: a parameter or a moment changed");
        }
    }
    // One element that overflows stays alone: its neighbours move.
    let world = World::new(lab, Sizes::MINIATURE, Precision::F32)?;
    let mut params = world.params.read()?;
    params[1] = f32::MAX;
    world.params.write(&params)?;
    world.flags.zero()?;
    let mut gradient = gradient;
    gradient[1] = -1.0;
    world.scalars.write(&[UpdateScalars { lr: f32::MAX, ..usual }; 7])?;
    world.sweep(&lab.upload(&gradient)?)?;
    let after = world.params.read()?;
    assert_eq!((after[1], world.first.read()?[1]), (f32::MAX, 0.0));
    assert!(after[0] != params[0] && after[2] != params[2] && after.iter().all(|w| w.is_finite()));
    assert_eq!(world.flags.read()?[nan_flags::UPDATE], INFINITE);
    Ok(())
}

/// Gradients whose squares overflow or vanish in f32: clipped, they give the steps of any others, and moments stay numbers.
fn gradients_at_the_ends_of_the_numbers(lab: &Lab) -> Outcome {
    for scale in [1e16f32, 1e-12, 1e-25, 0.0] {
        let world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
        let before = world.params.read()?;
        world.update(&world.gradient(&mut Numbers::new(10), scale), &Step::default(), PARAMS)?;
        let after = world.params.read()?;
        assert_eq!(world.flags.read()?, [0; 7], "scale {scale}");
        // In the first step |m_hat| = sqrt(v_hat): nothing moves further than lr (1 + wd |w|), but for a dozen roundings.
        for (w, next) in before.iter().zip(&after) {
            assert!((next - w).abs() <= 2e-3 * 1.0001 + 1e-7, "scale {scale}: {w} became {next}");
        }
        for moments in [world.first.read()?, world.second.read()?] {
            assert!(moments.iter().all(|m| m.is_finite()));
        }
        if scale == 0.0 {
            // Decay alone moves a parameter: elements without it keep every bit.
            let biases = world.layout.tensor("trunk.in.bias").range();
            assert_eq!(bits(&before[biases.clone()]), bits(&after[biases]));
        }
    }
    Ok(())
}
