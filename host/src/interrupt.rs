//! Ctrl-C: the first asks the work to stop where it can go on later, the second stops at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit code of a program that an interrupt stopped.
pub const EXIT_CODE: i32 = 130;

/// What is said when training is interrupted.
pub const OF_TRAINING: &str = "\
interrupted: stopping; an epoch that is under way is left out if the one before it is in a checkpoint, and is ended and saved if \
not; `--resume` goes on from there; once more stops at once";
const SECOND: &str = "interrupted again: stopping at once";

/// The user stopped the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether the user asked to stop. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

/// Signals that cannot be caught.
#[derive(Debug, thiserror::Error)]
#[error("cannot catch Ctrl-C: {0}; training was not begun, start it again when the system has room for a thread")]
pub struct InterruptError(#[from] std::io::Error);

impl Interrupt {
    /// Catches Ctrl-C and SIGTERM, by which schedulers stop a program, from now on, and says `first` at the first. SIGHUP stays as
    /// `nohup` left it.
    pub fn install(first: &'static str) -> Result<Self, InterruptError> {
        let interrupt = Self::default();
        let (caught, mut signals) = (interrupt.clone(), Signals::new([SIGINT, SIGTERM])?);
        // On a thread of its own, which may print, as a signal's handler may not.
        let watch = move || {
            for _ in signals.forever() {
                if caught.request() {
                    eprintln!("{first}");
                } else {
                    eprintln!("{SECOND}");
                    std::process::exit(EXIT_CODE);
                }
            }
        };
        thread::Builder::new().name("interrupt".into()).spawn(watch)?;
        Ok(interrupt)
    }

    /// Whether the work should end: a plain load, for the hot path, too.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// An error if it should.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.requested() { Err(Interrupted) } else { Ok(()) }
    }

    /// Asks the work to end; true the first time.
    pub fn request(&self) -> bool {
        !self.requested.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, ChildStderr, Command, Stdio};
    use std::time::{Duration, Instant};

    /// Set where the test binary runs itself as the program that is interrupted.
    const ROLE: &str = "ONEGRAPH_TEST_INTERRUPTED";

    /// Not a test of its own: with [`ROLE`] it is the interrupted program, which ends by itself or hangs.
    #[test]
    fn interrupted_program() {
        let Ok(role) = std::env::var(ROLE) else { return };
        let interrupt = Interrupt::install(OF_TRAINING).unwrap();
        eprintln!("ready");
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            if interrupt.requested() && role == "ends" {
                eprintln!("checkpoint written");
                std::process::exit(0);
            }
            thread::sleep(Duration::from_millis(5));
        }
        std::process::exit(9);
    }

    fn start(role: &str) -> (Child, BufReader<ChildStderr>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["interrupt::tests::interrupted_program", "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        wait_for(&mut stderr, "ready");
        (child, stderr)
    }

    fn wait_for(stderr: &mut BufReader<ChildStderr>, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the program ended without `{part}`");
        }
    }

    fn signal(child: &Child, name: &str) {
        let sent = Command::new("bash").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
        assert!(sent.success());
    }

    #[test]
    fn the_first_interrupt_lets_the_loop_end() {
        for name in ["INT", "TERM"] {
            let (mut child, mut stderr) = start("ends");
            signal(&child, name);
            wait_for(&mut stderr, "interrupted: stopping; an epoch that is under way is left out");
            wait_for(&mut stderr, "checkpoint written");
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
    }

    #[test]
    fn the_second_interrupt_stops_at_once() {
        let (mut child, mut stderr) = start("hangs");
        signal(&child, "INT");
        wait_for(&mut stderr, "once more stops at once");
        signal(&child, "INT");
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(EXIT_CODE), "{rest}");
        assert!(rest.contains("stopping at once"), "{rest}");
    }

    #[test]
    fn a_request_counts_once() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.requested());
        assert_eq!(interrupt.check(), Ok(()));
        assert!(interrupt.clone().request() && !interrupt.request() && interrupt.requested());
        assert_eq!(interrupt.check(), Err(Interrupted));
    }
}
