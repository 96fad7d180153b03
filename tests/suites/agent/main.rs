//! The agent: its parameters and its step, against the reference's.

mod front;
mod layout;
mod step;

fn main() {
    let subjects = [layout::cases(), step::cases(), front::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
