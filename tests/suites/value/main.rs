//! Value learning: distributions, targets, losses, atoms, actions and schedules, each against the float64 reference and
//! numbers worked by hand, on both backends.

mod atoms;
mod boundary;
mod denoise;
mod explore;
mod iql;
mod iqn;
mod loss;
mod q;
mod risk;
mod scene;
mod selectivity;
mod targets;
mod td;
mod totals;

fn main() {
    let subjects = [
        atoms::cases(),
        boundary::cases(),
        denoise::cases(),
        explore::cases(),
        iqn::cases(),
        iql::cases(),
        loss::cases(),
        q::cases(),
        risk::cases(),
        selectivity::cases(),
        targets::cases(),
        td::cases(),
        totals::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
