//! What steps tell and draw: step by step through the library's trainer, and as `dump` and the epoch log have it.

use std::ops::Range;

use cuda_std::cpu::ExecutorOptions;
use host::config::{DataSource, Layers, Preset};
use host::data::simulate::Simulation;
use host::device::Device;
use host::market::walk_forward::walk_forward;
use host::step::Published;
use host::train::Trainer;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{StepScalars, isv};

use crate::program::Program;
use crate::runs::{EVERY_LEARNER, SHORT};
use crate::tensors::Tensors;

pub fn cases() -> Vec<Case> {
    vec![
        case("steps::i5_no_nan_after_capture", i5_no_nan_after_capture),
        case("steps::an_epochs_boundary_moves_its_schedules", an_epochs_boundary_moves_its_schedules),
        case("steps::the_readback_is_live_after_step_0", the_readback_is_live_after_step_0),
        case("steps::draws_follow_the_priorities_that_updates_left", draws_follow_the_priorities_that_updates_left),
        case("steps::an_update_writes_the_priorities_of_its_draws", an_update_writes_the_priorities_of_its_draws),
        case("steps::q_statistics_are_in_the_epoch_log", q_statistics_are_in_the_epoch_log),
        case("steps::what_is_off_is_not_told", what_is_off_is_not_told),
        case("steps::q_statistics_are_those_of_the_batch", q_statistics_are_those_of_the_batch),
        case("steps::causal_sensitivity_is_in_the_epoch_log", causal_sensitivity_is_in_the_epoch_log),
        case("steps::causal_sensitivity_is_of_every_feature", causal_sensitivity_is_of_every_feature),
        case("steps::the_vaccine_compares_with_the_step_before", the_vaccine_compares_with_the_step_before),
        case("steps::a_dump_has_every_buffer_filled", a_dump_has_every_buffer_filled),
        case("steps::two_dumps_are_one_step_apart", two_dumps_are_one_step_apart),
    ]
}

/// A trainer behind its warm-up; on the CPU without the checker, as [`Program`] runs.
fn trainer(device: &Device, sets: &[&str]) -> Result<Trainer, Failed> {
    let device = &match device.backend_name() {
        "cpu" => Device::cpu_with(ExecutorOptions { check: false, threads: 1, ..ExecutorOptions::default() }),
        _ => device.clone(),
    };
    let mut layers = Layers::new(Preset::Tiny, DataSource::Simulator);
    sets.iter().try_for_each(|set| layers.set(set))?;
    let config = layers.finish()?;
    let bars = Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed }.bars();
    let fold = walk_forward(bars.len(), config.folds, config.episode_len as usize)?.remove(0);
    let mut trainer = Trainer::new(device, &config, &bars)?;
    trainer.begin_fold(&fold)?;
    trainer.warm_up()?;
    Ok(trainer)
}

/// Launches a step; what it told.
fn step(trainer: &mut Trainer) -> Result<Published, Failed> {
    trainer.step()?;
    trainer.finish_steps()?;
    trainer.published().ok_or_else(|| "nothing was published".into())
}

/// Every step of two epochs with every learner: no flag, no gated learner, no number that is not finite.
fn i5_no_nan_after_capture(device: &Device) -> Outcome {
    let mut trainer = trainer(device, &[&SHORT[..], &EVERY_LEARNER].concat())?;
    for number in 1..=50 {
        if number == 26 {
            trainer.boundary()?;
            trainer.rescore()?;
            trainer.collect(16)?;
        }
        let Published { counters, isv, readback, .. } = step(&mut trainer)?;
        ensure!(readback.nan_flags == [0; 7], "step {number}: flags {:?}", readback.nan_flags);
        let losses = [readback.total_loss, readback.mse_loss, readback.grad_norm_sq];
        ensure!(losses.iter().all(|loss| loss.is_finite() && *loss > 0.0), "step {number}: {losses:?}");
        ensure!(isv.entries.iter().all(|entry| entry.is_finite()), "step {number}: {:?}", isv.entries);
        let counts: [i32; 8] = bytemuck::cast(counters);
        ensure!(counts == [number; 8], "step {number}: a learner was gated: {counts:?}");
    }
    let p = &trainer.agent.parameters;
    for (name, buffer) in [("online", &p.online.flat), ("target", &p.target.flat), ("gradient", &p.gradient)] {
        ensure!(buffer.read()?.iter().all(|value| value.is_finite()), "{name} has a number that is not finite");
    }
    Ok(())
}

/// Nothing before the first step; from it on every step is told, each with numbers of its own.
fn the_readback_is_live_after_step_0(device: &Device) -> Outcome {
    let mut trainer = trainer(device, &SHORT)?;
    ensure!(trainer.published().is_none(), "something was published before a step");
    let mut before = None;
    for number in 1..=5 {
        let published = step(&mut trainer)?;
        ensure!(published.step == number, "step {number} told of step {}", published.step);
        let counts: [i32; 8] = bytemuck::cast(published.counters);
        ensure!(counts == [number as i32; 8], "step {number}: {counts:?}");
        let readback = published.readback;
        let told = [readback.total_loss, readback.mse_loss, readback.grad_norm_sq];
        ensure!(told.iter().all(|value| *value > 0.0), "step {number}: {told:?}");
        ensure!(published.isv.entries[isv::LOSS_EMA] > 0.0, "step {number}: the loss has no average");
        ensure!(before != Some(told), "step {number} told what the step before told");
        before = Some(told);
    }
    Ok(())
}

/// Where each slot's stretch of the mass begins and ends.
fn stretches(leaves: &[f32]) -> Vec<Range<f64>> {
    let mut sum = 0.0;
    let stretch = |&p: &f32| {
        let from = sum;
        sum += f64::from(p);
        from..sum
    };
    leaves.iter().map(stretch).collect()
}

/// Stratified draws: draw k is of a slot whose stretch of the mass meets the k-th of B equal parts. A node is the f32 sum of its
/// children, so that a subtree of depth d is within d 2^-24 of its leaves' sum, and so are the root and what a descent subtracts.
/// The slots above the mean priority are drawn as often as their mass says, not as their number does: draws of distinct strata are
/// independent, and a stratum's indicator has a variance of at most p (1 - p).
fn draws_follow_the_priorities_that_updates_left(device: &Device) -> Outcome {
    const N_STEPS: usize = 60;
    // Rows that hindsight relabels keep their priorities.
    let mut trainer = trainer(device, &[&SHORT[..], &["learners.her=false"]].concat())?;
    let (mut drawn, mut by_mass, mut by_number, mut variance) = (0.0, 0.0, 0.0, 0.0);
    let mut moved = 0;
    for number in 1..=N_STEPS {
        let tree = trainer.replay.tree.read()?;
        let leaves = &tree[tree.len() / 2..];
        step(&mut trainer)?;
        let draws = trainer.memory().batch.indices.read()?;
        let (stretches, total, n) = (stretches(leaves), f64::from(tree[1]), draws.len() as f64);
        let slack = 2.0 * f64::from(leaves.len().ilog2()) * 2f64.powi(-24) * total;
        for (k, &slot) in draws.iter().enumerate() {
            let (part, stretch) = (k as f64 * total / n..(k + 1) as f64 * total / n, &stretches[slot as usize]);
            let meets = stretch.end > part.start - slack && stretch.start < part.end + slack;
            ensure!(leaves[slot as usize] > 0.0, "step {number} drew slot {slot}, which has no priority");
            ensure!(meets, "step {number}: draw {k} of {part:?} is slot {slot} at {stretch:?}");
        }
        let filled: Vec<f32> = leaves.iter().copied().filter(|p| *p > 0.0).collect();
        let mean = total / filled.len() as f64;
        let is_high = |p: f32| f64::from(p) > mean;
        let share = filled.iter().filter(|p| is_high(**p)).map(|p| f64::from(*p)).sum::<f64>() / total;
        drawn += draws.iter().filter(|slot| is_high(leaves[**slot as usize])).count() as f64;
        by_mass += n * share;
        by_number += n * filled.iter().filter(|p| is_high(**p)).count() as f64 / filled.len() as f64;
        variance += n * share * (1.0 - share);
        let after = trainer.replay.tree.read()?;
        moved += usize::from(after[after.len() / 2..] != *leaves);
    }
    let bound = 6.0 * variance.sqrt();
    println!("drawn {drawn}, {by_mass:.0} by mass, {by_number:.0} by number, bound {bound:.0}");
    ensure!(moved == N_STEPS, "{moved} of {N_STEPS} steps changed priorities");
    ensure!((drawn - by_mass).abs() <= bound, "drawn {drawn} times, {by_mass} by their mass");
    ensure!(by_mass - by_number > 2.0 * bound, "uniform draws would not be told apart: {by_mass} and {by_number}");
    Ok(())
}

/// p = (|td| + 1e-6)^0.6 of the modulated TD error; of a slot drawn twice the higher. Powers in f32 are within 1e-5 of those in f64:
/// exp2 and log2 of a number near 1 are good to 2^-22, times an exponent that is under 16.
fn an_update_writes_the_priorities_of_its_draws(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let tensors = program.dump(3, &[&SHORT[..], &EVERY_LEARNER].concat())?;
    let (slots, td) = (tensors.values("batch.indices")?, tensors.values("td_errors")?);
    let (before, after) = (tensors.values("priority.before")?, tensors.values("priority.after")?);
    let relabelled = tensors.values("batch.relabelled")?;
    ensure!(relabelled.contains(&1.0) && relabelled.contains(&0.0), "no row, or every one, is relabelled");
    for row in 0..slots.len() {
        ensure!(td[row].is_nan() == (relabelled[row] == 1.0), "row {row}: td {} of {}", td[row], relabelled[row]);
        let same_slot = (0..slots.len()).filter(|&other| slots[other] == slots[row]);
        let written = same_slot.map(|other| td[other]).filter(|td| !td.is_nan()).map(|td| (td.abs() + 1e-6).powf(0.6));
        let want = written.fold(f64::NAN, f64::max);
        let want = if want.is_nan() { before[row] } else { want };
        let off = (after[row] - want).abs();
        ensure!(off <= 1e-5 * want, "row {row}: priority {} of td {}, {want} expected", after[row], td[row]);
    }
    let most = after.iter().copied().fold(1.0, f64::max);
    ensure!(tensors.one("priority.max")? >= most, "the highest priority is not the highest");
    Ok(())
}

/// They are due at step 50, the last of the second epoch.
fn q_statistics_are_in_the_epoch_log(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &SHORT)?;
    let epochs = program.epochs("run")?;
    ensure!(epochs[0].q.is_none(), "before their step: {:?}", epochs[0].q);
    let q = epochs[1].q.ok_or("no statistics after their step")?;
    let all = [q.min, q.mean, q.avg_max, q.max, q.variance];
    ensure!(all.iter().all(|value| value.is_finite()), "{q:?}");
    ensure!(q.min < q.mean && q.mean < q.avg_max && q.avg_max < q.max && q.variance > 0.0, "{q:?}");
    // A population's variance is at most that of two halves at its ends.
    ensure!(q.variance <= (q.max - q.min).powi(2) / 4.0, "{q:?}");
    Ok(())
}

/// Neither in the metrics nor in the report: statistics of Q, and the rate of a target that there is not.
fn what_is_off_is_not_told(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let off = ["learners.q_statistics=false", "learners.target_ema=false"];
    for (name, sets, is_on) in [("on", &[][..], true), ("off", &off[..], false)] {
        program.train(name, &[&SHORT[..], sets].concat())?;
        let epochs = program.epochs(name)?;
        let last = &epochs[1];
        ensure!((last.q.is_some(), last.tau.is_some()) == (is_on, is_on), "{name}: {:?}, {:?}", last.q, last.tau);
        let report = std::fs::read_to_string(program.path(name).join("report.html"))?;
        for title in ["Q over the batch", "Rate tau of the target network"] {
            ensure!(report.contains(title) == is_on, "{name}: the report has \"{title}\": {}", !is_on);
        }
    }
    Ok(())
}

/// Worked out again from the batch's Q: 13 values a row, branches of 4, 3, 3, 3. Sums of 416 numbers in f32 are within 416 2^-24.
fn q_statistics_are_those_of_the_batch(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let early = program.dump(49, &SHORT)?;
    ensure!(early.one("readback.q_max")? == 0.0, "statistics a step too early");
    let tensors = program.dump(50, &SHORT)?;
    let q = tensors.values("q")?;
    let n = q.len() as f64;
    let mean = q.iter().sum::<f64>() / n;
    let (least, most) = (q.iter().copied().fold(f64::MAX, f64::min), q.iter().copied().fold(f64::MIN, f64::max));
    let variance = q.iter().map(|q| (q - mean).powi(2)).sum::<f64>() / n;
    let mut greatest = Vec::new();
    for row in q.chunks(13) {
        let branches = [&row[..4], &row[4..7], &row[7..10], &row[10..]];
        greatest.extend(branches.map(|branch| branch.iter().copied().fold(f64::MIN, f64::max)));
    }
    let avg_max = greatest.iter().sum::<f64>() / greatest.len() as f64;
    let size = most.abs().max(least.abs());
    for (name, want, unit) in [
        ("q_mean", mean, size),
        ("q_min", least, size),
        ("q_max", most, size),
        ("q_variance", variance, size * size),
        ("avg_max_q", avg_max, size),
    ] {
        let got = tensors.one(&format!("readback.{name}"))?;
        ensure!((got - want).abs() <= n * 2f64.powi(-24) * unit, "{name} is {got}, {want} expected");
    }
    Ok(())
}

/// Measured at step 30, in the second epoch; never without the learner.
fn causal_sensitivity_is_in_the_epoch_log(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("on", &[&SHORT[..], &["causal.every=30"]].concat())?;
    program.train("off", &[&SHORT[..], &["causal.every=30", "learners.causal=false"]].concat())?;
    let (on, off) = (program.epochs("on")?, program.epochs("off")?);
    ensure!(on[0].causal_mean == 0.0, "before its step: {}", on[0].causal_mean);
    ensure!(on[1].causal_mean > 0.0 && on[1].causal_mean.is_finite(), "after its step: {}", on[1].causal_mean);
    ensure!(off[1].causal_mean == 0.0, "switched off: {}", off[1].causal_mean);
    Ok(())
}

/// What is told is the mean of the vector, and of 24 features none is without influence on a net with all of its inputs.
fn causal_sensitivity_is_of_every_feature(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let tensors = program.dump(10, &[&SHORT[..], &["causal.every=10"]].concat())?;
    let sensitivity = tensors.values("causal.sensitivity")?;
    ensure!(sensitivity.len() == 24, "{} features", sensitivity.len());
    ensure!(sensitivity.iter().filter(|s| **s > 0.0).count() >= 20, "{sensitivity:?}");
    let (mean, told) = (sensitivity.iter().sum::<f64>() / 24.0, tensors.one("readback.causal_mean_sens")?);
    ensure!((mean - told).abs() <= 24.0 * 2f64.powi(-24) * mean, "told {told}, the mean is {mean}");
    ensure!(tensors.isv(isv::CAUSAL_MEAN)? == told, "the bus has {}", tensors.isv(isv::CAUSAL_MEAN)?);
    Ok(())
}

/// Theta's tensors of a kind, one behind the other.
fn of_theta(tensors: &Tensors, kind: &str) -> Result<Vec<f64>, Failed> {
    let prefixes = ["temporal.", "trunk.", "film.", "branch."].map(|part| format!("{kind}.{part}"));
    let names = tensors.names().filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    Ok(names.map(|name| tensors.values(name)).collect::<Result<Vec<_>, _>>()?.concat())
}

/// The snapshot is the gradient of the step before, and what is told is the cosine of the two. Sums of 30 thousand products in two
/// stages of f32 are good to 1e-5 of the product of the norms.
fn the_vaccine_compares_with_the_step_before(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let first = program.dump(1, &SHORT)?;
    ensure!(first.one("vaccine.compared")? == 0.0, "the first step compared its gradient");
    ensure!(first.isv(isv::VACCINE_COS_EMA)? == 0.0, "the first step has a cosine");
    let second = program.dump(2, &SHORT)?;
    let (gradient, snapshot) = (of_theta(&second, "gradient")?, of_theta(&second, "snapshot.before")?);
    ensure!(snapshot == of_theta(&first, "gradient")?, "the snapshot is not the gradient of the step before");
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let want = dot(&gradient, &snapshot) / (dot(&gradient, &gradient) * dot(&snapshot, &snapshot)).sqrt();
    let (compared, got) = (second.one("vaccine.compared")?, second.one("vaccine.cosine")?);
    ensure!(compared == 1.0 && (got - want).abs() <= 1e-5, "a cosine of {got}, {want} expected");
    ensure!(second.isv(isv::VACCINE_COS_EMA)? != 0.0, "the cosine did not reach its average");
    Ok(())
}

/// Behind 50 steps each of the boundary's kernels leaves what its equation says of the bus as it was: gamma, epsilon and tau's health
/// of entry 12, the atoms of the spacing that step 50 moved, the range of the last batch's quantiles. The steps leave all of it alone.
fn an_epochs_boundary_moves_its_schedules(device: &Device) -> Outcome {
    const WRITTEN: [usize; 6] =
        [isv::GAMMA, isv::EPSILON, isv::KELLY_CAP, isv::IQN_IQR, isv::REGIME_VOLATILITY, isv::REGIME_TREND];
    let mut trainer = trainer(device, &[&SHORT[..], &EVERY_LEARNER].concat())?;
    let state = |trainer: &Trainer| -> Result<_, Failed> {
        let bytes = |name: &str| {
            let stored = trainer.agent_state().into_iter().find(|(of, _)| *of == name).ok_or("no such buffer")?.1;
            Ok::<Vec<u8>, Failed>(stored.read_bytes()?)
        };
        let scalars: StepScalars = bytemuck::pod_read_unaligned(&bytes("scalars")?);
        Ok((trainer.bus()?.entries, bytes("atoms")?, scalars.health_at_epoch))
    };
    let (start, even, _) = state(&trainer)?;
    for _ in 0..50 {
        step(&mut trainer)?;
    }
    let (before, atoms, _) = state(&trainer)?;
    ensure!(WRITTEN.iter().all(|entry| before[*entry].to_bits() == start[*entry].to_bits()), "a step moves a schedule");
    ensure!(atoms == even, "the atoms move within an epoch");
    trainer.boundary()?;
    let (after, atoms, health) = state(&trainer)?;
    for entry in (0..isv::LEN).filter(|entry| !WRITTEN.contains(entry)) {
        ensure!(after[entry].to_bits() == before[entry].to_bits(), "the boundary moves entry {entry}");
    }
    let of_before = before[isv::HEALTH];
    ensure!(health == of_before && of_before < 1.0, "tau's health {health}, {of_before} in the bus");
    let gamma = 0.95 + 0.04 * f64::from(of_before);
    ensure!((f64::from(after[isv::GAMMA]) - gamma).abs() <= 2e-7, "gamma {}, {gamma} expected", after[isv::GAMMA]);
    ensure!(after[isv::EPSILON] != before[isv::EPSILON], "epsilon stands");
    ensure!((0.1..=1.0).contains(&after[isv::KELLY_CAP]), "a cap of {}", after[isv::KELLY_CAP]);
    ensure!(before[isv::IQN_IQR] == 0.0 && after[isv::IQN_IQR] > 0.0, "a range of {}", after[isv::IQN_IQR]);
    ensure!(atoms != even, "the atoms do not follow the spacing of step 50");
    Ok(())
}

/// A buffer that a step with every learner leaves at 0 was forgotten, but for what is nothing by its meaning.
fn a_dump_has_every_buffer_filled(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    // Under this seed IQN's loss falls, so that readiness rises. A block that is left out has no gradient.
    let at_once = ["seed=5", "prune.every=1", "causal.every=1", "depth_keep_last=1"];
    let tensors = program.dump(4, &[&EVERY_LEARNER[..], &at_once].concat())?;
    // No episode ends in ruin, nothing is gated, no gradients are in conflict; Q's statistics are due at step 50, and the atoms
    // move then.
    const NOTHING: [&str; 9] = [
        "batch.dones",
        "gate",
        "readback.nan_flags",
        "readback.q_",
        "readback.avg_max_q",
        "scalars.flags",
        "spacing.",
        "update.",
        "vaccine.multiple",
    ];
    let (mut forgotten, mut n_filled) = (Vec::new(), 0);
    for name in tensors.names() {
        let values = tensors.values(name)?;
        let finite = values.iter().all(|value| value.is_finite());
        ensure!(finite || name == "td_errors", "{name} has a number that is not finite");
        if values.iter().any(|value| *value != 0.0) {
            n_filled += 1;
        } else if !NOTHING.iter().any(|prefix| name.starts_with(prefix)) {
            forgotten.push(name);
        }
    }
    ensure!(forgotten.is_empty() && n_filled > 300, "{n_filled} are filled, but not {forgotten:?}");
    Ok(())
}

/// What step 2 left is what step 3 begins with.
fn two_dumps_are_one_step_apart(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let sets = [&SHORT[..], &EVERY_LEARNER].concat();
    let (two, three) = (program.dump(2, &sets)?, program.dump(3, &sets)?);
    let mut n_compared = 0;
    for name in two.names().filter(|name| name.contains(".after")) {
        let before = name.replacen(".after", ".before", 1);
        if name.starts_with("priority.") || !three.has(&before) {
            continue;
        }
        ensure!(two.values(name)? == three.values(&before)?, "{name} of step 2 is not {before} of step 3");
        n_compared += 1;
    }
    ensure!(n_compared > 100, "{n_compared} buffers compared");
    ensure!(two.values("param.after.trunk.in.weight")? != three.values("param.after.trunk.in.weight")?, "no step");
    Ok(())
}
