//! The agent: its parameters and its step, against the reference's.

mod iqn;
mod layout;
mod step;
mod temporal;

fn main() {
    let subjects = [layout::cases(), step::cases(), temporal::cases(), iqn::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
