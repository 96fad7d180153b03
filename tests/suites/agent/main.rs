//! The agent: its parameters and its step, against the reference's.

mod front;
mod iqn;
mod layout;
mod learners;
mod maintenance;
mod step;
mod switches;
mod whole;

fn main() {
    let subjects = [
        layout::cases(),
        learners::cases(),
        step::cases(),
        switches::cases(),
        front::cases(),
        iqn::cases(),
        maintenance::cases(),
        whole::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
