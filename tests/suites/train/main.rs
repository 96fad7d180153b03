//! Training as a whole: what is learned, what a resumption and a second process give, what replays draw.

mod chain;
mod learner;
mod look_ahead;
mod replays;
mod rescoring;
mod resume;
mod runs;

fn main() {
    let subjects = [chain::cases(), replays::cases(), rescoring::cases(), resume::cases(), look_ahead::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
