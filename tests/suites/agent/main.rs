//! The agent: its parameters and its step, against the reference's.

mod layout;
mod learners;
mod step;

fn main() {
    let subjects = [layout::cases(), learners::cases(), step::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
