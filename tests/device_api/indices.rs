//! Thread indices and counting barriers.

use cuda_std::shape::{Dim3, LaunchShape};
use test_kernels::indices;

use super::{Backend, unwritten};

/// A grid of 3x2x2 blocks of 4x3x2 threads, counted by hand.
pub fn thread_indices<B: Backend>(backend: &B) {
    let (grid, block) = (Dim3::new(3, 2, 2), Dim3::new(4, 3, 2));
    let n = (grid.count() * block.count()) as usize;
    let out = unwritten(backend, 20 * n, u32::MAX);
    let shape = LaunchShape::new(grid, block);
    backend.run(shape, indices::thread_indices::launch(backend.view_mut(&out))).unwrap();
    let mut want = Vec::new();
    let each =
        |dim: Dim3| (0..dim.z).flat_map(move |z| (0..dim.y).flat_map(move |y| (0..dim.x).map(move |x| [x, y, z])));
    for b in each(grid) {
        for t in each(block) {
            let [x, y, z] = [b[0] * 4 + t[0], b[1] * 3 + t[1], b[2] * 2 + t[2]];
            let first = (b == [0; 3] && t == [0; 3]) as u32;
            want.extend(t);
            want.extend(b);
            want.extend([4, 3, 2, 3, 2, 2, x, x, y, x, y, z, first, 32]);
        }
    }
    assert_eq!(backend.read(&out), want);
}

/// 70 threads, so that the last warp is partly empty.
pub fn counting_barriers<B: Backend>(backend: &B) {
    for (predicates, and, or) in [(vec![1; 70], 1, 1), (vec![0; 70], 0, 0), ((0..70).map(|i| i % 3).collect(), 0, 1u32)]
    {
        let count = predicates.iter().filter(|&&p: &&u32| p != 0).count() as u32;
        let (input, out) = (backend.upload(&predicates), unwritten(backend, 210, u32::MAX));
        let launch = indices::counting_barriers::launch(backend.view(&input), backend.view_mut(&out));
        backend.run(LaunchShape::linear(1, 70), launch).unwrap();
        assert_eq!(backend.read(&out), [vec![count; 70], vec![and; 70], vec![or; 70]].concat());
    }
}
