//! How training goes on, on standard error: a bar on a terminal, else a plain line an epoch, and in long ones now and then.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar moves by itself.
const TICK: Duration = Duration::from_millis(200);

/// How long plain lines are silent within an epoch.
const SILENCE: Duration = Duration::from_secs(30);

/// The bar that is on the terminal, so that log messages do not cut through it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Puts a bar in that place, or clears it.
fn show(bar: Option<&ProgressBar>) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = bar.cloned();
}

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Epochs done, over all folds.
    pub epochs_done: u32,
    /// Fold of the walk-forward, from 1.
    pub fold: u32,
    /// Training steps a second.
    pub steps_per_s: f64,
    /// Bars of all environments a second.
    pub env_steps_per_s: f64,
    /// The objective.
    pub loss: f64,
    /// Annual Sharpe ratio of the latest validation, if there was one.
    pub validation_sharpe: Option<f64>,
}

/// What a run's progress is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Epochs over all folds.
    pub epochs: u32,
    /// Epochs done before this life of the run, which took it no time.
    pub resumed_at: u32,
    /// Folds.
    pub folds: u32,
}

/// Shows how training goes on. Dropped, it leaves the last state on the screen.
pub struct Progress {
    total: Total,
    started: Instant,
    shown: Instant,
    to: Display,
}

enum Display {
    Bar(ProgressBar),
    Lines(Box<dyn Write + Send>),
    Nothing,
}

impl Progress {
    fn new(total: Total, to: Display) -> Self {
        let now = Instant::now();
        Self { total, started: now, shown: now, to }
    }

    /// Shows the run at once: a bar if standard error is a terminal, plain lines if not, nothing if `quiet`.
    pub fn start(total: Total, quiet: bool) -> Self {
        if quiet {
            return Self::new(total, Display::Nothing);
        }
        if !std::io::stderr().is_terminal() {
            return Self::lines(total, Box::new(std::io::stderr()));
        }
        let bar = bar(total, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
        show(Some(&bar));
        Self::new(total, Display::Bar(bar))
    }

    /// Writes plain lines to `out`.
    pub fn lines(total: Total, mut out: Box<dyn Write + Send>) -> Self {
        write_line(&mut *out, &opening(total));
        Self::new(total, Display::Lines(out))
    }

    /// Within an epoch: a bar shows it at each tick, plain lines when they have been silent for long. For every step: otherwise it reads
    /// the clock and no more, as text and lock have no place between two launches.
    pub fn update(&mut self, status: &Status) {
        let wait = match &self.to {
            Display::Bar(_) => TICK,
            Display::Lines(_) => SILENCE,
            Display::Nothing => return,
        };
        if self.shown.elapsed() < wait {
            return;
        }
        let text = self.text(status);
        match &mut self.to {
            Display::Bar(bar) => bar.set_message(text),
            Display::Lines(out) => {
                write_line(out, &format!("in epoch {}/{}  {text}", status.epochs_done + 1, self.total.epochs));
            }
            Display::Nothing => {}
        }
        self.shown = Instant::now();
    }

    /// An epoch is done, and counted in `status.epochs_done`.
    pub fn epoch(&mut self, status: &Status) {
        let text = self.text(status);
        self.shown = Instant::now();
        match &mut self.to {
            Display::Bar(bar) => {
                bar.set_position(u64::from(status.epochs_done));
                bar.set_message(text);
            }
            Display::Lines(out) => {
                write_line(out, &format!("epoch {}/{}  {text}", status.epochs_done, self.total.epochs));
            }
            Display::Nothing => {}
        }
    }

    fn text(&self, status: &Status) -> String {
        status_text(status, self.total, self.started.elapsed())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.to {
            show(None);
            bar.abandon();
        }
    }
}

/// Work of unknown length: on a terminal a spinner with its name and the time that it has taken, until it is dropped.
pub struct Working(Option<ProgressBar>);

impl Working {
    /// Shows `what` is under way, such as `testing on 8,000 bars`.
    pub fn start(what: impl Into<String>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed_precise}");
        spinner.set_style(style.expect("a valid template"));
        spinner.set_message(what.into());
        spinner.enable_steady_tick(TICK);
        show(Some(&spinner));
        Self(Some(spinner))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            show(None);
            spinner.finish_and_clear();
        }
    }
}

fn bar(total: Total, target: ProgressDrawTarget) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(u64::from(total.epochs)), target);
    let style = ProgressStyle::with_template("{spinner} epoch {pos}/{len} {bar:20} {elapsed_precise}  {wide_msg}");
    bar.set_style(style.expect("a valid template"));
    bar.set_position(u64::from(total.resumed_at));
    bar.set_message(opening(total));
    bar.tick();
    bar
}

/// Whether standard error can be written does not decide whether training goes on.
fn write_line(out: &mut dyn Write, text: &str) {
    let _ = writeln!(out, "{text}");
}

/// Before the first numbers.
fn opening(total: Total) -> String {
    if total.resumed_at >= total.epochs {
        return format!("all {} epochs are trained; testing", total.epochs);
    }
    let from = if total.resumed_at > 0 { format!(" from epoch {}", total.resumed_at + 1) } else { String::new() };
    format!("training {} epochs in {} fold(s){from}", total.epochs, total.folds)
}

/// One line of numbers. The time left takes the epochs to come to be as long as those of this life of the run.
fn status_text(status: &Status, total: Total, elapsed: Duration) -> String {
    let fold = if total.folds > 1 { format!("fold {}/{}  ", status.fold, total.folds) } else { String::new() };
    let sharpe = status.validation_sharpe.map_or_else(|| "-".to_owned(), |sharpe| format!("{sharpe:+.2}"));
    let done = status.epochs_done.saturating_sub(total.resumed_at);
    let left = total.epochs.saturating_sub(status.epochs_done);
    let time_left =
        if done == 0 { "-".to_owned() } else { duration_text(elapsed.mul_f64(f64::from(left) / f64::from(done))) };
    format!(
        "{fold}{} steps/s  {} env steps/s  loss {:.4}  val Sharpe {sharpe}  left {time_left}",
        rate_text(status.steps_per_s),
        rate_text(status.env_steps_per_s),
        status.loss,
    )
}

/// `950`, `12.3k`, `50.1M`.
fn rate_text(rate: f64) -> String {
    match rate {
        r if r >= 1e6 => format!("{:.1}M", r / 1e6),
        r if r >= 1e4 => format!("{:.1}k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// `45s`, `12m05s`, `3h07m`.
fn duration_text(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
    }
}

/// Standard error for log messages: a bar that is shown steps aside for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(|| std::io::stderr().write(text)),
            None => std::io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const TOTAL: Total = Total { epochs: 20, resumed_at: 5, folds: 1 };

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn status() -> Status {
        Status {
            epochs_done: 10,
            fold: 2,
            steps_per_s: 1234.0,
            env_steps_per_s: 5.25e7,
            loss: 0.123_45,
            validation_sharpe: Some(1.5),
        }
    }

    /// 5 epochs of this life took 50 s, 10 are left: 100 s.
    #[test]
    fn a_line_has_rates_loss_sharpe_and_the_time_left() {
        let elapsed = Duration::from_secs(50);
        let text = status_text(&status(), TOTAL, elapsed);
        assert_eq!(text, "1234 steps/s  52.5M env steps/s  loss 0.1235  val Sharpe +1.50  left 1m40s");
        let text = status_text(&Status { loss: f64::NAN, ..status() }, Total { folds: 3, ..TOTAL }, elapsed);
        assert!(text.starts_with("fold 2/3  ") && text.contains("loss NaN"), "{text}");
        let text = status_text(&Status { epochs_done: 5, validation_sharpe: None, ..status() }, TOTAL, elapsed);
        assert!(text.ends_with("val Sharpe -  left -"), "{text}");
        assert_eq!(opening(Total { resumed_at: 20, ..TOTAL }), "all 20 epochs are trained; testing");
    }

    /// The first line comes before any epoch; then one an epoch, and within one after a long silence.
    #[test]
    fn without_a_terminal_there_is_a_line_an_epoch_and_after_silence() {
        let kept = Kept::default();
        let mut progress = Progress::lines(TOTAL, Box::new(kept.clone()));
        // A clock that stands before the end of the silence, however slow the machine, and then behind it.
        progress.shown = Instant::now() + Duration::from_secs(3600);
        progress.update(&status());
        progress.shown = Instant::now().checked_sub(SILENCE).expect("the clock is older than that");
        progress.update(&status());
        progress.shown = Instant::now() + Duration::from_secs(3600);
        progress.update(&status());
        progress.epoch(&status());
        assert!(progress.shown <= Instant::now(), "an epoch's line breaks the silence");
        drop(progress);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "training 20 epochs in 1 fold(s) from epoch 6");
        assert!(lines[1].starts_with("in epoch 11/20  1234 steps/s"), "{text}");
        assert!(lines[2].starts_with("epoch 10/20  1234 steps/s"), "{text}");
    }

    #[test]
    fn a_bar_follows_the_epochs() {
        let mut progress = Progress::new(TOTAL, Display::Bar(bar(TOTAL, ProgressDrawTarget::hidden())));
        let Display::Bar(shown) = &progress.to else { unreachable!("made above") };
        let shown = shown.clone();
        assert_eq!((shown.position(), shown.length()), (5, Some(20)));
        assert_eq!(shown.message(), "training 20 epochs in 1 fold(s) from epoch 6");
        progress.epoch(&status());
        assert_eq!(shown.position(), 10);
        assert!(shown.message().contains("loss 0.1235"));
        drop(progress);
        assert!(shown.is_finished());
    }

    /// At most a message a tick, however often it is called.
    #[test]
    fn within_an_epoch_a_bar_changes_once_a_tick() {
        let mut progress = Progress::new(TOTAL, Display::Bar(bar(TOTAL, ProgressDrawTarget::hidden())));
        let Display::Bar(shown) = &progress.to else { unreachable!("made above") };
        let shown = shown.clone();
        // A clock that stands before the start of the tick, however slow the machine.
        progress.shown = Instant::now() + Duration::from_secs(3600);
        progress.update(&status());
        assert_eq!(shown.message(), opening(TOTAL));
        progress.shown = Instant::now().checked_sub(TICK).expect("the clock is older than a tick");
        progress.update(&status());
        assert!(shown.message().contains("loss 0.1235"), "{}", shown.message());
        progress.shown = Instant::now() + Duration::from_secs(3600);
        progress.update(&Status { loss: 9.0, ..status() });
        assert!(shown.message().contains("loss 0.1235"), "{}", shown.message());
    }

    #[test]
    fn rates_and_durations_for_people() {
        assert_eq!([0.4, 950.0, 12_345.0].map(rate_text), ["0", "950", "12.3k"]);
        let durations = [0, 59, 725, 11_220].map(|s| duration_text(Duration::from_secs(s)));
        assert_eq!(durations, ["0s", "59s", "12m05s", "3h07m"]);
    }
}
