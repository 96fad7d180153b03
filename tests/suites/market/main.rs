//! The market: features, environments, evaluation, each against numbers worked out another way, on both backends.

mod backtest;
mod collection;
mod evaluation;
mod feature_reference;
mod features;
mod look_ahead;
mod trade_reference;
mod trading;
mod world;

fn main() {
    let subjects = [
        features::cases(),
        trading::cases(),
        collection::cases(),
        evaluation::cases(),
        look_ahead::cases(),
        backtest::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
