//! Trunk and branches apart from their matrix products, each against the float64 reference, on both backends.

mod backward;
mod branches;
mod chain;
mod columns;
mod entry;
mod film;
mod input;
mod iqn;
mod math;
mod residual;
mod support;

fn main() {
    let subjects = [
        math::cases(),
        input::cases(),
        film::cases(),
        entry::cases(),
        residual::cases(),
        backward::cases(),
        branches::cases(),
        columns::cases(),
        iqn::cases(),
        chain::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
