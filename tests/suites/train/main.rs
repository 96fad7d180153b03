//! Training as a whole: what is learned, what a resumption and a second process give, what replays draw.

mod chain;
mod devices;
mod faults;
mod hot_path;
mod interrupts;
mod learner;
mod look_ahead;
mod replays;
mod rescoring;
mod resume;
mod runs;
mod skips;
mod work;

fn main() {
    if hot_path::planted_process() {
        return;
    }
    let subjects = [
        chain::cases(),
        devices::cases(),
        faults::cases(),
        replays::cases(),
        rescoring::cases(),
        resume::cases(),
        look_ahead::cases(),
        hot_path::cases(),
        interrupts::cases(),
        skips::cases(),
        work::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
