//! Value learning: distributions, targets, losses, atoms, actions and schedules, each against the float64 reference and
//! numbers worked by hand, on both backends.

mod atoms;
mod boundary;
mod explore;
mod iqn;
mod loss;
mod q;
mod scene;
mod targets;
mod totals;

fn main() {
    let subjects = [
        atoms::cases(),
        boundary::cases(),
        explore::cases(),
        iqn::cases(),
        loss::cases(),
        q::cases(),
        targets::cases(),
        totals::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
