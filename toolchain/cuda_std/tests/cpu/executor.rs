//! The executor runs plain and cooperative kernels over their grid.

use crate::common::{Buffer, checking, plain};
use cuda_std::cpu;
use cuda_std::prelude::*;

/// Sums 256 values in shared memory; `rounds` times, so that the memory is used again.
#[kernel(cooperative, max_threads = 256)]
pub fn block_sums(values: GlobalSlice<u32>, sums: GlobalSliceMut<u32>, rounds: u32) {
    let partial = shared_slice![u32; 256];
    let (thread, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let mut total = 0;
    for _ in 0..rounds {
        partial.set(thread, values.get(block * 256 + thread));
        cpu::barrier();
        let mut half = 128;
        while half > 0 {
            if thread < half {
                partial.set(thread, partial.get(thread) + partial.get(thread + half));
            }
            cpu::barrier();
            half /= 2;
        }
        total += partial.get(0);
        // Separates this round's last read from the next round's first write.
        cpu::barrier();
    }
    if thread == 0 {
        sums.set(block, total);
    }
}

#[kernel]
pub fn scale(source: GlobalSlice<u32>, target: GlobalSliceMut<u32>, factor: u32) {
    let index = thread::index_1d() as usize;
    if index < source.len() {
        target.set(index, source.get(index) * factor);
    }
}

#[test]
fn plain_kernel_covers_thousands_of_blocks() {
    let n = 5_000 * 32 + 7;
    let source = Buffer::of(&(0..n as u32).collect::<Vec<_>>());
    for executor in [plain(), checking(1), checking(2)] {
        let target = Buffer::unwritten(n, u32::MAX);
        executor.run(LaunchShape::cover(n, 32), &scale::launch(source.view(), target.view_mut(), 3)).unwrap();
        assert!(target.read().iter().enumerate().all(|(i, &v)| v == 3 * i as u32));
    }
}

#[test]
fn shared_memory_is_used_again_in_loops_and_blocks() {
    let n_blocks = 2_000;
    let values: Vec<u32> = (0..n_blocks * 256).map(|i| i % 1_009).collect();
    let want: Vec<u32> = values.chunks(256).map(|chunk| 3 * chunk.iter().sum::<u32>()).collect();
    let values = Buffer::of(&values);
    for (executor, n_blocks) in [(plain(), n_blocks), (checking(1), 20), (checking(2), 20)] {
        let sums = Buffer::unwritten(n_blocks as usize, 0);
        let launch = block_sums::launch(values.view(), sums.view_mut(), 3);
        executor.run(LaunchShape::linear(n_blocks, 256), &launch).unwrap();
        assert_eq!(sums.read(), want[..n_blocks as usize]);
    }
}
