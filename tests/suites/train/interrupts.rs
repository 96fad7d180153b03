//! Where an interrupt ends a run, and that what goes on from there is a run that nothing stopped.

use std::thread;
use std::time::{Duration, Instant};

use host::config::Config;
use host::data::Bars;
use host::device::Device;
use host::interrupt::Interrupt;
use host::run::{CheckpointId, RunFolder};
use host::train::RunEnd;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};

use crate::learner::unchecked;
use crate::runs::{After, bars, checkpoint, config, equal_tensors, evaluation, folder, metrics, train, train_until};

pub fn cases() -> Vec<Case> {
    vec![
        case("interrupts::lives_that_end_anywhere_are_one", lives_that_end_anywhere_are_one),
        case(
            "interrupts::an_epoch_behind_an_unsaved_one_is_ended_first",
            an_epoch_behind_an_unsaved_one_is_ended_first,
        ),
        case("interrupts::tests_stop_too_and_are_made_again", tests_stop_too_and_are_made_again),
    ]
}

/// A run that nothing stopped, another one's folder, and what the first came to.
struct Pair {
    device: Device,
    config: Config,
    bars: Bars,
    whole: RunFolder,
    want: String,
    cut: RunFolder,
    took: Duration,
    _parent: tempfile::TempDir,
}

impl Pair {
    fn new(device: &Device, config: Config) -> Result<Self, Failed> {
        let (device, bars, parent) = (unchecked(device), bars(&config), tempfile::tempdir()?);
        let whole = folder(&parent.path().join("whole"), &config, &device)?;
        let started = Instant::now();
        let want = evaluation(train(&device, &config, &bars, &whole, None)?)?;
        let (took, cut) = (started.elapsed(), folder(&parent.path().join("cut"), &config, &device)?);
        Ok(Self { device, config, bars, whole, want, cut, took, _parent: parent })
    }

    /// A life of the second run.
    fn life(&self, interrupt: &Interrupt, after: Option<After>) -> Result<RunEnd, Failed> {
        train_until(&self.device, &self.config, &self.bars, &self.cut, interrupt, after)
    }

    /// The newest checkpoint to go on from, which the latest line must be of.
    fn newest(&self) -> Result<Option<CheckpointId>, Failed> {
        let newest = self.cut.latest_checkpoint()?.map(|checkpoint| checkpoint.meta().id);
        let n_epochs = newest.map_or(0, |id| id.epoch as usize);
        let n_lines = metrics(&self.cut)?.len();
        ensure!(n_lines == n_epochs, "{n_lines} lines, and the newest checkpoint is {newest:?}");
        Ok(newest)
    }

    /// Trains to the end; both must have left the same.
    fn end(&self) -> Outcome {
        let got = evaluation(self.life(&Interrupt::default(), None)?)?;
        ensure!(got == self.want, "evaluations differ:\n{got}\n{}", self.want);
        ensure!(metrics(&self.cut)? == metrics(&self.whole)?, "metrics differ");
        let last = |run: &RunFolder| checkpoint(run, 1, self.config.epochs);
        equal_tensors(&last(&self.cut)?, &last(&self.whole)?)
    }
}

/// Whatever an epoch is at: collection, steps, boundary, validation.
fn lives_that_end_anywhere_are_one(device: &Device) -> Outcome {
    let config = Config { epochs: 3, steps_per_epoch: 16, ..config() };
    // Once more for its time: a GPU's first load of the kernels compiles them.
    Pair::new(device, config.clone())?;
    let pair = Pair::new(device, config)?;
    let mut n_interrupted = 0;
    for share in [0.11, 0.37, 0.5, 0.23] {
        let (interrupt, moment) = (Interrupt::default(), pair.took.mul_f64(share));
        let requests = interrupt.clone();
        let user = thread::spawn(move || {
            thread::sleep(moment);
            requests.request();
        });
        let end = pair.life(&interrupt, None)?;
        user.join().map_err(|_| "the user panicked")?;
        if matches!(end, RunEnd::Done(_)) {
            break;
        }
        n_interrupted += 1;
        println!("stopped after {moment:?} of {:?}, at {:?}", pair.took, pair.newest()?);
    }
    ensure!(n_interrupted >= 2, "{n_interrupted} lives were interrupted");
    pair.end()
}

/// The first epoch's end is in no checkpoint when the second begins.
fn an_epoch_behind_an_unsaved_one_is_ended_first(device: &Device) -> Outcome {
    let pair = Pair::new(device, Config { epochs: 4, checkpoint_every: 3, ..config() })?;
    for (after, want) in [(1, 2), (3, 3)] {
        let interrupt = Interrupt::default();
        let requests = interrupt.clone();
        let request = After::new(after, move || {
            requests.request();
        });
        ensure!(matches!(pair.life(&interrupt, Some(request))?, RunEnd::Interrupted), "the run did not stop");
        let newest = pair.newest()?;
        ensure!(newest == Some(CheckpointId { fold: 1, epoch: want }), "{newest:?}, epoch {want} expected");
    }
    pair.end()
}

/// Asked for behind the last epoch.
fn tests_stop_too_and_are_made_again(device: &Device) -> Outcome {
    let pair = Pair::new(device, Config { epochs: 2, ..config() })?;
    let interrupt = Interrupt::default();
    let requests = interrupt.clone();
    let request = After::new(2, move || {
        requests.request();
    });
    ensure!(matches!(pair.life(&interrupt, Some(request))?, RunEnd::Interrupted), "the tests were made");
    ensure!(pair.newest()? == Some(CheckpointId { fold: 1, epoch: 2 }), "training was not done");
    // Trained to its end, the run has nothing left but its tests.
    ensure!(matches!(pair.life(&interrupt, None)?, RunEnd::Interrupted), "the tests were made");
    pair.end()
}
