//! The agent: its parameters and its network's passes, against the reference's.

mod layout;

fn main() {
    onegraph_tests::run(layout::cases())
}
