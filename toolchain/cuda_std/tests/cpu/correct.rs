//! Correct kernels of each kind raise no fault while checked, and give the same results in every order.

use cuda_std::cpu::{self, Executor};
use cuda_std::launch::Launch;
use cuda_std::prelude::*;
use proptest::prelude::*;

use crate::common::{Buffer, checking, plain};

/// Runs without and with checks, in several orders.
fn everywhere(run: impl Fn(&Executor)) {
    run(&plain());
    for seed in 0..4 {
        run(&checking(seed));
    }
}

fn warp_sum(lanes: &[Option<u32>; 32]) -> [u32; 32] {
    [lanes.iter().flatten().sum(); 32]
}

/// Sums of each half warp, by two collectives with disjoint masks, and the active lanes after an early return.
#[kernel(cooperative)]
pub fn half_warps(values: GlobalSlice<u32>, sums: GlobalSliceMut<u32>, masks: GlobalSliceMut<u32>) {
    let index = thread::index_1d() as usize;
    if index >= values.len() {
        return;
    }
    let mask = if cpu::lane_id() < 16 { 0xffff } else { 0xffff_0000 };
    sums.set(index, cpu::warp_collective("sum", mask & alive(values.len()), values.get(index), warp_sum));
    cpu::warp_barrier(alive(values.len()));
    masks.set(index, cpu::active_mask());
}

/// The lanes of the running warp that are under `n`.
fn alive(n: usize) -> u32 {
    let first = (thread::block_idx_x() * thread::block_dim_x() + cpu::warp_id() * 32) as usize;
    match n - first {
        32.. => u32::MAX,
        left => (1 << left) - 1,
    }
}

#[test]
fn partial_masks_and_early_returns() {
    for n in [1usize, 15, 16, 17, 31, 32, 33, 64, 200] {
        let values: Vec<u32> = (0..n as u32).map(|i| i * i).collect();
        let want: Vec<u32> = values.chunks(16).flat_map(|half| vec![half.iter().sum(); half.len()]).collect();
        let values = Buffer::of(&values);
        everywhere(|executor| {
            let (sums, masks) = (Buffer::unwritten(n, 0), Buffer::unwritten(n, 0));
            let launch = half_warps::launch(values.view(), sums.view_mut(), masks.view_mut());
            executor.run(LaunchShape::cover(n, 64), &launch).unwrap();
            assert_eq!(sums.read(), want, "n = {n}");
            for (index, mask) in masks.read().into_iter().enumerate() {
                assert!(mask >> (index % 32) & 1 == 1, "n = {n}: lane {index} is active while it runs");
            }
        });
    }
}

/// Barriers in nested loops whose lengths are the same for all threads; shared memory written and read in turns.
#[kernel(cooperative, max_threads = 1024)]
pub fn nested_barriers(out: GlobalSliceMut<u32>, outer: u32) {
    let zone = shared_slice![u32; 1024];
    let n = thread::block_dim_x() as usize;
    let thread = thread::thread_idx_x() as usize;
    zone.set(thread, 1);
    for round in 0..outer {
        for step in 0..=round {
            cpu::barrier();
            let neighbour = zone.get((thread + 1 + step as usize) % n);
            let vote = cpu::barrier_reduce(neighbour % 2 == 1);
            zone.set(thread, zone.get(thread).wrapping_mul(3).wrapping_add(neighbour + vote.count));
        }
    }
    out.set(thread::index_1d() as usize, zone.get(thread));
}

/// What `nested_barriers` computes, all threads in step.
fn nested_reference(n: usize, outer: u32) -> Vec<u32> {
    let mut zone = vec![1u32; n];
    for step in (0..outer).flat_map(|round| 0..=round) {
        let neighbours: Vec<u32> = (0..n).map(|thread| zone[(thread + 1 + step as usize) % n]).collect();
        let odd = neighbours.iter().filter(|&&value| value % 2 == 1).count() as u32;
        for (own, neighbour) in zone.iter_mut().zip(neighbours) {
            *own = own.wrapping_mul(3).wrapping_add(neighbour.wrapping_add(odd));
        }
    }
    zone
}

#[test]
fn blocks_of_every_size_up_to_1024_threads() {
    for n in [1usize, 2, 31, 32, 33, 255, 1024] {
        let want = nested_reference(n, 3).repeat(3);
        everywhere(|executor| {
            let out = Buffer::unwritten(3 * n, 0);
            executor.run(LaunchShape::linear(3, n as u32), &nested_barriers::launch(out.view_mut(), 3)).unwrap();
            assert_eq!(out.read(), want, "n = {n}");
        });
    }
}

/// Warps exchange through shared memory with warp barriers alone.
#[kernel(cooperative)]
pub fn warp_transpose(data: GlobalSliceMut<u32>) {
    let zone = shared_slice![u32; 64];
    let (thread, lane) = (thread::thread_idx_x() as usize, cpu::lane_id() as usize);
    let base = thread - lane;
    for turn in 0..3 {
        zone.set(thread, data.get(thread) + turn);
        cpu::warp_barrier(u32::MAX);
        // Several readers of one element, of one warp.
        let (other, first) = (zone.get(base + (31 - lane)), zone.get(base));
        cpu::warp_barrier(u32::MAX);
        data.set(thread, other + first);
    }
}

#[test]
fn warp_barriers_order_lanes() {
    let mut want: Vec<u32> = (0..64).collect();
    for turn in 0..3 {
        let before = want.clone();
        for (thread, value) in want.iter_mut().enumerate() {
            let base = thread / 32 * 32;
            *value = before[base + 31 - thread % 32] + before[base] + 2 * turn;
        }
    }
    everywhere(|executor| {
        let data = Buffer::of(&(0..64).collect::<Vec<u32>>());
        executor.run(LaunchShape::linear(1, 64), &warp_transpose::launch(data.view_mut())).unwrap();
        assert_eq!(data.read(), want);
    });
}

/// All atomic operations, by all threads of several blocks.
#[kernel]
pub fn atomics(
    words: GlobalSliceMut<u32>,
    signed: GlobalSliceMut<i32>,
    long: GlobalSliceMut<u64>,
    sum: GlobalSliceMut<f32>,
) {
    let index = thread::index_1d();
    words.fetch_add(0, 1);
    words.fetch_max(1, index);
    words.fetch_or(2, 1 << (index % 32));
    words.fetch_and(3, !(1 << (index % 7)));
    words.fetch_xor(4, index);
    signed.fetch_min(0, -(index as i32));
    signed.fetch_max(1, -(index as i32));
    signed.exchange(2, 9);
    long.fetch_add(0, u64::from(index) << 32);
    let mut seen = 0;
    while let now = long.compare_exchange(1, seen, seen + 3)
        && now != seen
    {
        seen = now;
    }
    sum.fetch_add(0, 0.5);
}

#[test]
fn atomics_of_all_blocks() {
    let n = 256u32;
    everywhere(|executor| {
        let (words, signed) = (Buffer::of(&[0, 0, 0, u32::MAX, 0]), Buffer::of(&[0, i32::MIN, 0]));
        let (long, sum) = (Buffer::of(&[0u64; 2]), Buffer::of(&[0.0f32]));
        let launch = atomics::launch(words.view_mut(), signed.view_mut(), long.view_mut(), sum.view_mut());
        executor.run(LaunchShape::linear(8, n / 8), &launch).unwrap();
        let xor = (0..n).fold(0, |sum, index| sum ^ index);
        assert_eq!(words.read(), [n, n - 1, u32::MAX, u32::MAX << 7, xor]);
        assert_eq!(signed.read(), [1 - n as i32, 0, 9]);
        assert_eq!(long.read(), [u64::from(n * (n - 1) / 2) << 32, 3 * u64::from(n)]);
        assert_eq!(sum.read(), [0.5 * n as f32]);
    });
}

/// Every block meets every other: a counter that all wait for, then each reads what its neighbour wrote.
#[kernel(cooperative)]
pub fn grid_barrier(parts: GlobalSliceMut<u32>, count: GlobalSliceMut<u32>, out: GlobalSliceMut<u32>, n_blocks: u32) {
    let block = thread::block_idx_x();
    parts.set(thread::index_1d() as usize, block + 1);
    cpu::barrier();
    if thread::thread_idx_x() == 0 {
        cpu::fence();
        count.fetch_add(0, 1);
        cpu::wait_until("all blocks", || count.fetch_add(0, 0) == n_blocks);
        cpu::fence();
    }
    cpu::barrier();
    let neighbour = (block + 1) % n_blocks;
    let from = neighbour * thread::block_dim_x() + thread::thread_idx_x();
    out.set(thread::index_1d() as usize, parts.get(from as usize));
}

#[test]
fn blocks_wait_for_blocks_beyond_the_number_of_threads() {
    for n_blocks in [1u32, 2, 3, 40] {
        let n = n_blocks as usize * 33;
        everywhere(|executor| {
            let (parts, count, out) = (Buffer::unwritten(n, 0), Buffer::of(&[0]), Buffer::unwritten(n, 0));
            let launch = grid_barrier::launch(parts.view_mut(), count.view_mut(), out.view_mut(), n_blocks);
            executor.run(LaunchShape::linear(n_blocks, 33), &launch).unwrap();
            let want = |index: usize| (index as u32 / 33 + 1) % n_blocks + 1;
            assert_eq!(out.read(), (0..n).map(want).collect::<Vec<_>>(), "{n_blocks} blocks");
        });
    }
}

/// Groups of 64 threads reverse their values; a flag in shared memory passes a turn from warp to warp.
#[kernel(cooperative)]
pub fn groups_and_turns(data: GlobalSliceMut<u32>, order: GlobalSliceMut<u32>) {
    let turn = shared_slice![u32; 1];
    let thread = thread::thread_idx_x() as usize;
    let value = cpu::group_collective("reverse", 64, data.get(thread), |values| values.iter().rev().copied().collect());
    data.set(thread, value);
    if thread == 0 {
        turn.set(0, 0);
    }
    cpu::barrier();
    if cpu::lane_id() == 0 {
        cpu::wait_until("the warp's turn", || turn.fetch_add(0, 0) == cpu::warp_id());
        order.set(cpu::warp_id() as usize, turn.fetch_add(0, 1));
    }
}

#[test]
fn groups_and_waits() {
    let want: Vec<u32> = (0..128).map(|thread| thread / 64 * 64 + 63 - thread % 64).collect();
    everywhere(|executor| {
        let (data, order) = (Buffer::of(&(0..128).collect::<Vec<u32>>()), Buffer::unwritten(4, 9));
        executor
            .run(LaunchShape::linear(1, 128), &groups_and_turns::launch(data.view_mut(), order.view_mut()))
            .unwrap();
        assert_eq!(data.read(), want);
        assert_eq!(order.read(), [0, 1, 2, 3]);
    });
}

/// Dynamic shared memory in two parts, vector accesses, sub views.
#[kernel(cooperative)]
pub fn parts_and_vectors(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>) {
    let (low, high) = (SharedSlice::<f32>::dynamic(0, 64), SharedSlice::<f32>::dynamic(256, 64).sub(0..64));
    let thread = thread::thread_idx_x() as usize;
    let part = source.sub(4 * thread..4 * thread + 4);
    let [a, b, c, d] = part.load::<4>(0);
    low.store::<2>(2 * thread, [a, b]);
    high.store::<2>(2 * thread, [c, d]);
    cpu::barrier();
    let other = 31 - thread;
    let ([a, b], [c, d]) = (low.load::<2>(2 * other), high.load::<2>(2 * other));
    target.store::<4>(4 * thread, [d, c, b, a]);
}

#[test]
fn dynamic_shared_memory_and_vectors() {
    let values: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let want: Vec<f32> = values.iter().rev().copied().collect();
    let source = Buffer::of(&values);
    everywhere(|executor| {
        let target = Buffer::unwritten(128, [0.0f32; 1]).cast::<f32>();
        let launch = parts_and_vectors::launch(source.view(), target.view_mut());
        executor.run(LaunchShape::linear(1, 32).with_shared(512), &launch).unwrap();
        assert_eq!(target.read(), want);
    });
}

#[kernel(cooperative)]
pub fn scan(data: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    let mut reach = 1;
    while reach < data.len() {
        let left = if thread >= reach { data.get(thread - reach) } else { 0 };
        cpu::barrier();
        data.set(thread, data.get(thread).wrapping_add(left));
        cpu::barrier();
        reach *= 2;
    }
}

fn scanned(values: &[u32], executor: &Executor) -> Vec<u32> {
    let data = Buffer::of(values);
    let launch: Launch = scan::launch(data.view_mut());
    executor.run(LaunchShape::linear(1, values.len() as u32), &launch).unwrap();
    data.read()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// A scan that is correct only if every barrier holds, on any block size and order.
    #[test]
    fn scan_in_any_order(values in proptest::collection::vec(any::<u32>(), 1..200), seed: u64) {
        let mut total = 0u32;
        let want: Vec<u32> = values.iter().map(|&value| { total = total.wrapping_add(value); total }).collect();
        prop_assert_eq!(&scanned(&values, &checking(seed)), &want);
        prop_assert_eq!(&scanned(&values, &plain()), &want);
    }
}
