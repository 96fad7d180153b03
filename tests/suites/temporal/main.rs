//! The temporal block against the reference in float64.

mod differences;
mod edges;
mod passes;
mod problem;

fn main() {
    let mut cases = passes::cases();
    cases.extend(differences::cases());
    cases.extend(edges::cases());
    onegraph_tests::run(cases)
}
