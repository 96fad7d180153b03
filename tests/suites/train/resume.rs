//! Runs that go on, and runs that are run twice.

use cuda_std::cpu::ExecutorOptions;
use host::config::{Config, Learners};
use host::device::Device;
use host::interrupt::Interrupt;
use host::market::walk_forward::walk_forward;
use host::run::RunFolder;
use host::train::{RunEnd, Trainer, load};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{Collector, Counters, isv};

use crate::learner::unchecked;
use crate::runs::{
    After, bars, checkpoint, config, equal_tensors, evaluation, folder, metrics, tiny, train, train_until,
    with_learners,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("resume::case_u_two_lives_are_one", case_u_two_lives_are_one),
        case("resume::case_u_two_lives_with_every_learner_are_one", case_u_two_lives_with_every_learner_are_one),
        case(
            "resume::case_u_two_lives_without_target_popart_and_statistics_are_one",
            case_u_two_lives_without_target_popart_and_statistics_are_one,
        ),
        case("resume::i4_500_steps_are_250_and_250", i4_500_steps_are_250_and_250),
        case("resume::case_u_lives_end_between_and_within_folds", case_u_lives_end_between_and_within_folds),
        case(
            "resume::case_u_a_checkpoint_holds_where_everything_stood",
            case_u_a_checkpoint_holds_where_everything_stood,
        ),
        case("resume::case_l_a_checkpoint_goes_into_graphs_that_have_run", |device| {
            case_l_a_checkpoint_goes_into_graphs_that_have_run(device, config())
        }),
        case("resume::case_l_a_checkpoint_of_every_learner_goes_into_graphs_that_have_run", |device| {
            case_l_a_checkpoint_goes_into_graphs_that_have_run(device, with_learners(config()))
        }),
        case("resume::case_u_a_checkpoint_never_lacks_its_line", case_u_a_checkpoint_never_lacks_its_line),
        case("resume::a_finished_run_gives_its_evaluation_again", a_finished_run_gives_its_evaluation_again),
        case("resume::threads_and_their_order_change_no_bit", |device| {
            threads_and_their_order_change_no_bit(device, config())
        }),
        case("resume::threads_and_their_order_change_no_bit_with_every_learner", |device| {
            threads_and_their_order_change_no_bit(device, with_learners(config()))
        }),
    ]
}

/// Trains once through and once in lives that end after so many epochs; both must leave the same.
fn one_life_and_many(device: &Device, config: &Config, ends: &[u32]) -> Outcome {
    let (bars, parent) = (bars(config), tempfile::tempdir()?);
    let whole = folder(&parent.path().join("whole"), config, device)?;
    let want = evaluation(train(device, config, &bars, &whole, None)?)?;
    let path = parent.path().join("lives");
    folder(&path, config, device)?;
    for &epochs in ends {
        let end = train(device, config, &bars, &RunFolder::open(&path)?, Some(epochs))?;
        ensure!(matches!(end, RunEnd::Interrupted), "the run did not stop after epoch {epochs}");
    }
    let lives = RunFolder::open(&path)?;
    let n_lines = metrics(&lives)?.len();
    ensure!(Some(&(n_lines as u32)) == ends.last(), "{n_lines} epochs were told before the last life");
    let got = evaluation(train(device, config, &bars, &lives, None)?)?;
    for id in whole.checkpoints()? {
        equal_tensors(&checkpoint(&lives, id.fold, id.epoch)?, &checkpoint(&whole, id.fold, id.epoch)?)?;
    }
    ensure!(lives.checkpoints()? == whole.checkpoints()?, "other checkpoints were kept");
    for (got, want) in metrics(&lives)?.iter().zip(&metrics(&whole)?) {
        ensure!(got == want, "metrics {got}\nexpected {want}");
    }
    ensure!(metrics(&lives)?.len() == (config.epochs as usize) * config.folds, "lines of metrics");
    ensure!(got == want, "evaluations differ:\n{got}\n{want}");
    Ok(())
}

/// With every learner, pruning among them.
fn i4_500_steps_are_250_and_250(device: &Device) -> Outcome {
    let mut config = with_learners(Config { epochs: 10, steps_per_epoch: 50, ..config() });
    config.prune = host::config::Prune { final_sparsity: 0.5, start: 0, end: 400, every: 50 };
    ensure!(config.steps_per_fold() == 500, "{} steps", config.steps_per_fold());
    one_life_and_many(&unchecked(device), &config, &[5])
}

fn case_u_two_lives_are_one(device: &Device) -> Outcome {
    one_life_and_many(&unchecked(device), &tiny(), &[2])
}

/// P(trade) decides in evaluation from the first epoch on, and in collection from the sixth: the second life begins before it.
fn case_u_two_lives_with_every_learner_are_one(device: &Device) -> Outcome {
    let config = Config { epochs: 7, ..with_learners(config()) };
    one_life_and_many(&unchecked(device), &config, &[3])
}

/// What they would have in the checkpoint is empty, or as before the first step; the run is tested, and reported, from that.
fn case_u_two_lives_without_target_popart_and_statistics_are_one(device: &Device) -> Outcome {
    let mut config = Config { epochs: 3, steps_per_epoch: 50, ..with_learners(config()) };
    let off = Learners { target_ema: false, popart: false, q_statistics: false, cql: false, ..config.learners };
    config.learners = off;
    one_life_and_many(&unchecked(device), &config, &[2])
}

/// Two folds of two epochs: the lives end after the first fold's first epoch, after its last, and after the second fold's first.
fn case_u_lives_end_between_and_within_folds(device: &Device) -> Outcome {
    let mut config = Config { folds: 2, epochs: 2, ..config() };
    config.sim.bars = 1_400;
    one_life_and_many(&unchecked(device), &config, &[1, 2, 3])
}

fn case_u_a_checkpoint_holds_where_everything_stood(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = Config { epochs: 2, ..config() };
    let parent = tempfile::tempdir()?;
    let run = folder(&parent.path().join("run"), &config, device)?;
    let bars = bars(&config);
    train(device, &config, &bars, &run, None)?;
    let last = checkpoint(&run, 1, 2)?;

    let fold = walk_forward(bars.len(), config.folds, config.episode_len as usize)?.remove(0);
    let mut trainer = Trainer::new(device, &config, &bars)?;
    trainer.begin_fold(&fold)?;
    load(&mut trainer, &last, &config)?;
    let n_steps = config.steps_per_fold();
    ensure!(trainer.steps_done() == n_steps && last.meta().step == n_steps, "{} steps", trainer.steps_done());
    let counters = |trainer: &Trainer| -> Result<Counters, Failed> { Ok(trainer.agent.counters.read()?[0]) };
    let before = counters(&trainer)?;
    ensure!(i64::from(before.adam_t) == n_steps as i64 && before.rng_step == before.adam_t, "{before:?}");
    let held = |name: &str| last.tensor(name).ok_or_else(|| Failed::from(format!("no `{name}`")));
    let collector: Collector = bytemuck::pod_read_unaligned(held("envs.collector")?.bytes);
    let n_bars = config.warmup_bars() + u64::from(config.epochs * config.bars_per_epoch);
    // Transitions are complete once n_step bars are there.
    let n_filled = (n_bars - u64::from(config.n_step) + 1) * config.environments as u64;
    ensure!(u64::from(collector.step) == n_bars, "{collector:?} after {n_bars} bars");
    ensure!(u64::from(collector.filled) == n_filled.min(config.capacity as u64), "{collector:?}, {n_filled} filled");
    ensure!(u64::from(collector.head) == n_filled % config.capacity as u64, "{collector:?}, {n_filled} filled");
    for name in ["first_moments", "second_moments", "replay.tree", "isv.seeded", "iqn.averages", "readback"] {
        ensure!(held(name)?.bytes.iter().any(|byte| *byte != 0), "`{name}` is all zero");
    }
    let range = trainer.bus()?.entries[isv::IQN_IQR];
    ensure!(range != 0.0, "no boundary took the quantiles' interquartile range");
    // Every buffer holds what the checkpoint says, and goes on from there.
    for (name, buffer) in trainer.state() {
        ensure!(buffer.read_bytes()? == held(name)?.bytes, "`{name}` was not taken over");
    }
    trainer.step()?;
    trainer.finish_steps()?;
    let after = counters(&trainer)?;
    ensure!((after.adam_t, after.rng_step) == (before.adam_t + 1, before.rng_step + 1), "{after:?} after {before:?}");
    Ok(())
}

/// The same checkpoint goes into a fresh trainer, and into one whose graphs have collected and stepped away from it. Both must then go
/// the same way, collection, steps and boundary included.
fn case_l_a_checkpoint_goes_into_graphs_that_have_run(device: &Device, config: Config) -> Outcome {
    let device = &unchecked(device);
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let run = folder(&parent.path().join("run"), &config, device)?;
    train(device, &config, &bars, &run, None)?;
    let last = checkpoint(&run, 1, 1)?;
    let fold = walk_forward(bars.len(), config.folds, config.episode_len as usize)?.remove(0);

    let on = |trainer: &mut Trainer| -> Outcome {
        trainer.collect(5)?;
        (0..7).try_for_each(|_| trainer.step())?;
        trainer.finish_steps()?;
        Ok(trainer.boundary()?)
    };
    let bytes = |trainer: &Trainer| -> Result<Vec<(&'static str, Vec<u8>)>, Failed> {
        trainer.state().into_iter().map(|(name, buffer)| Ok((name, buffer.read_bytes()?))).collect()
    };
    let mut fresh = Trainer::new(device, &config, &bars)?;
    fresh.begin_fold(&fold)?;
    load(&mut fresh, &last, &config)?;
    on(&mut fresh)?;
    let mut used = Trainer::new(device, &config, &bars)?;
    used.begin_fold(&fold)?;
    used.warm_up()?;
    for _ in 0..2 {
        on(&mut used)?;
    }
    let elsewhere = bytes(&used)?;
    load(&mut used, &last, &config)?;
    on(&mut used)?;
    let (got, want) = (bytes(&used)?, bytes(&fresh)?);
    ensure!(elsewhere[0] != want[0], "the trainer that had run stood where the checkpoint stands");
    for ((name, got), (_, want)) in got.into_iter().zip(want) {
        ensure!(got == want, "`{name}` differs from a fresh process's");
    }
    let (got, want) = (used.published().ok_or("nothing")?, fresh.published().ok_or("nothing")?);
    ensure!(got == want, "{got:?} was published, {want:?} expected");
    Ok(())
}

/// Where the second epoch's checkpoint cannot be written its line is there already, and the next life replaces it.
fn case_u_a_checkpoint_never_lacks_its_line(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = Config { epochs: 2, ..config() };
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let whole = folder(&parent.path().join("whole"), &config, device)?;
    let want = evaluation(train(device, &config, &bars, &whole, None)?)?;

    let run = folder(&parent.path().join("run"), &config, device)?;
    let (kept, aside) = (run.path().join("checkpoints"), run.path().join("aside"));
    let move_away = {
        let (kept, aside) = (kept.clone(), aside.clone());
        move || std::fs::rename(kept, aside).expect("the folder moves")
    };
    let after = Some(After::new(1, move_away));
    let failed = train_until(device, &config, &bars, &run, &Interrupt::default(), after);
    let failed = failed.err().ok_or("a checkpoint was saved in a folder that is not there")?;
    let message = failed.message().unwrap_or_default();
    ensure!(message.contains("checkpoints") && message.contains("--resume"), "{message}");
    std::fs::rename(aside, kept)?;
    ensure!(metrics(&run)?.len() == 2, "{} lines when the second checkpoint failed", metrics(&run)?.len());

    let got = evaluation(train(device, &config, &bars, &RunFolder::open(run.path())?, None)?)?;
    ensure!(metrics(&run)? == metrics(&whole)? && got == want, "the run went on otherwise than one that never failed");
    Ok(())
}

fn a_finished_run_gives_its_evaluation_again(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = config();
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let run = folder(&parent.path().join("run"), &config, device)?;
    let want = evaluation(train(device, &config, &bars, &run, None)?)?;
    let lines = std::fs::read_to_string(run.path().join("metrics.jsonl"))?;
    let got = evaluation(train(device, &config, &bars, &RunFolder::open(run.path())?, None)?)?;
    ensure!(got == want, "evaluations differ:\n{got}\n{want}");
    ensure!(std::fs::read_to_string(run.path().join("metrics.jsonl"))? == lines, "the metrics changed");
    Ok(())
}

/// Two runs of one seed, and on the CPU another with two threads and one under the checker, which shuffles blocks and threads.
fn threads_and_their_order_change_no_bit(device: &Device, config: Config) -> Outcome {
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let mut devices = vec![unchecked(device), unchecked(device)];
    if device.backend_name() == "cpu" {
        devices.push(Device::cpu_with(ExecutorOptions { check: false, threads: 2, ..ExecutorOptions::default() }));
        devices.push(device.clone());
    }
    let mut runs = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let run = folder(&parent.path().join(number.to_string()), &config, device)?;
        let result = evaluation(train(device, &config, &bars, &run, None)?)?;
        runs.push((checkpoint(&run, 1, config.epochs)?, metrics(&run)?, result));
    }
    let (first, metrics, result) = &runs[0];
    for (other, other_metrics, other_result) in &runs[1..] {
        equal_tensors(other, first)?;
        ensure!(other_metrics == metrics && other_result == result, "metrics or evaluation differ");
    }
    let seeded = Config { seed: config.seed + 1, ..config };
    let run = folder(&parent.path().join("seed"), &seeded, &devices[0])?;
    train(&devices[0], &seeded, &bars, &run, None)?;
    ensure!(equal_tensors(&checkpoint(&run, 1, 1)?, first).is_err(), "another seed gives the same run");
    Ok(())
}
