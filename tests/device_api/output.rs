//! The heap and assertions. What `print_values` prints is for a test that can read standard output:
//! `onegraph: 3 of    -7 at 0.500, 0xbeef true 100%`.

use cuda_std::shape::LaunchShape;
use test_kernels::output;

use super::{Backend, unwritten};

pub fn heap<B: Backend>(backend: &B) {
    let out = unwritten(backend, 50, u64::MAX);
    backend.run(LaunchShape::cover(50, 32), output::sum_on_the_heap::launch(backend.view_mut(&out), 20)).unwrap();
    let squares: u64 = (0..20).map(|i| i * i).sum();
    let want: Vec<u64> = (0..50).map(|index| squares + 20 * index).collect();
    assert_eq!(backend.read(&out), want);
}

/// On a GPU a failed assertion spoils the context, so only launches that hold run there with others after them; a harness
/// runs this case last or in a process of its own.
pub fn assertions<B: Backend>(backend: &B) {
    backend.run(LaunchShape::linear(1, 32), output::assert_below::launch(32)).unwrap();
    backend.run(LaunchShape::linear(1, 1), output::assert_equal::launch(4, 4)).unwrap();
    backend.run(LaunchShape::linear(1, 1), output::print_values::launch(3, 0.5)).unwrap();
}
