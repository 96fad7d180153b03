//! Smoke tests: whole runs of a second or two, typed as a user types them, and a run's parts through the library's own entry.
//!
//! | file | what runs |
//! |---|---|
//! | `program` | the program: this suite's own binary in a process of its own |
//! | `tensors` | a dump, read |
//! | `runs` | training and what follows it: resumption, Ctrl-C, tests, report, audit |
//! | `steps` | what steps tell: losses, draws, statistics |
//! | `learners` | every learner, on and off |

mod learners;
mod program;
mod runs;
mod steps;
mod tensors;

use std::process::ExitCode;

fn main() -> ExitCode {
    if program::is_asked_for() {
        return host::cli::main();
    }
    let subjects = [runs::cases(), steps::cases(), learners::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
