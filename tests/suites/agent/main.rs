//! The agent: its parameters and its step, against the reference's.

mod iqn;
mod layout;
mod learners;
mod step;
mod switches;
mod temporal;

fn main() {
    let subjects =
        [layout::cases(), learners::cases(), step::cases(), switches::cases(), temporal::cases(), iqn::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
