//! The attention against the reference in float64, and answers worked out by hand.

mod differences;
mod edges;
mod known;
mod passes;
mod problem;

fn main() {
    let subjects = [known::cases(), passes::cases(), differences::cases(), edges::cases()];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
