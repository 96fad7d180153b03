//! Prefix sums and their sampler, held together with the tree's.

use gpu_kernels::scan::{
    i64_to_u32, n_scan_blocks, scan_block_sums, scan_offsets, scan_offsets_shape, scan_prefix, scan_sample,
    scan_sample_shape, scan_shape, units, units_per_one,
};
use host::device::{Buffer, Device};
use host::error::DeviceError;
use onegraph_tests::ensure;
use onegraph_tests::lab::{Lab, Numbers, SIZES, for_all};
use onegraph_tests::{Case, Failed, Outcome, case, host_case};
use proptest::prelude::*;
use shared_types::Counters;

use crate::seg_tree::Tree;
use crate::seg_tree_sample::{SEED, sample};

pub fn cases() -> Vec<Case> {
    vec![
        case("scan::running_sums_are_exact_at_every_size", running_sums_are_exact_at_every_size),
        host_case("scan::units_keep_what_is_positive_positive", units_keep_what_is_positive_positive),
        case("scan::both_samplers_draw_the_same_slots", both_samplers_draw_the_same_slots),
        case("scan::samplers_differ_by_the_trees_rounding_at_most", samplers_differ_by_the_trees_rounding_at_most),
        case("scan::empty_slots_are_never_drawn", empty_slots_are_never_drawn),
        case("scan::case_c_and_d_one_slot_with_mass_is_every_draw", case_c_and_d_one_slot_with_mass_is_every_draw),
        case("scan::indices_narrow_without_loss", indices_narrow_without_loss),
    ]
}

/// Running sums in units, on the device.
fn running_sums(lab: &Lab, priorities: &Buffer<f32>, max_priority: f32) -> Result<Buffer<u64>, DeviceError> {
    let n = priorities.len();
    let max_priority = lab.upload(&[max_priority])?;
    let block_sums = lab.upload(&vec![u64::MAX; n_scan_blocks(n)])?;
    let prefix = lab.upload(&vec![u64::MAX; n])?;
    lab.run(scan_shape(n), scan_block_sums::launch(priorities.view(), max_priority.view(), block_sums.view_mut()))?;
    lab.run(scan_offsets_shape(), scan_offsets::launch(block_sums.view_mut()))?;
    let launch = scan_prefix::launch(priorities.view(), max_priority.view(), block_sums.view(), prefix.view_mut());
    lab.run(scan_shape(n), launch)?;
    Ok(prefix)
}

/// `n` draws from running sums: slots and priorities.
fn scan_draws(
    lab: &Lab,
    priorities: &[f32],
    max_priority: f32,
    n: usize,
    rng_step: i32,
) -> Result<(Vec<u32>, Vec<f32>), DeviceError> {
    let priorities = lab.upload(priorities)?;
    let prefix = running_sums(lab, &priorities, max_priority)?;
    let counters = lab.upload(&[Counters { rng_step, ..Counters::default() }])?;
    let (wide, narrow, drawn) = (lab.upload(&vec![-1i64; n])?, lab.upload(&vec![u32::MAX; n])?, lab.poisoned(n)?);
    let launch =
        scan_sample::launch(priorities.view(), prefix.view(), counters.view(), wide.view_mut(), drawn.view_mut(), SEED);
    lab.run(scan_sample_shape(n), launch)?;
    lab.run(scan_sample_shape(n), i64_to_u32::launch(wide.view(), narrow.view_mut()))?;
    Ok((narrow.read()?, drawn.read()?))
}

/// Past 1,024 blocks of 4,096 the offsets take a second round.
fn running_sums_are_exact_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in SIZES.into_iter().filter(|n| *n > 0).chain([8192, 8193, 4_300_001]) {
        let mut numbers = Numbers::new(n as u64);
        let priorities: Vec<f32> = (0..n).map(|_| if numbers.below(5) == 0 { 0.0 } else { numbers.heavy() }).collect();
        let prefix = running_sums(&lab, &lab.upload(&priorities)?, 1e6)?.read()?;
        let scale = units_per_one(1e6, n);
        let mut sum = 0;
        for (index, (&priority, &running)) in priorities.iter().zip(&prefix).enumerate() {
            // Rounded up, in another way than the kernel's.
            sum += (priority as f64 * scale).ceil() as u64;
            assert_eq!(running, sum, "n = {n}, element {index}");
        }
        assert!(sum <= (1 << 62) + n as u64);
    }
    Ok(())
}

fn units_keep_what_is_positive_positive() -> Outcome {
    for (max_priority, n) in [(1.0f32, 1 << 20), (f32::MAX, 1 << 27), (f32::MIN_POSITIVE, 1), (1e-3, 3), (2.0, 1)] {
        let scale = units_per_one(max_priority, n);
        assert_eq!(units(0.0, scale), 0);
        assert_eq!(units(f32::from_bits(1), scale).max(1), units(f32::from_bits(1), scale));
        let largest = units(max_priority, scale) as u128 * n as u128;
        assert!(largest <= 1 << 62, "{max_priority} x {n}");
        assert!(largest > 1 << 59, "{max_priority} x {n} wastes resolution");
    }
    Ok(())
}

/// Whole numbers: neither sampler rounds.
fn both_samplers_draw_the_same_slots(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let inputs = (1usize..12_000, 1usize..3000, 1i32..1000, any::<u64>());
    for_all(inputs, |(n_slots, n, rng_step, seed)| {
        let mut numbers = Numbers::new(seed);
        let mut leaves: Vec<f32> = (0..n_slots).map(|_| numbers.below(12).saturating_sub(4) as f32).collect();
        leaves[numbers.below(n_slots)] = 7.0;
        let tree = Tree::with_leaves(&lab, &leaves)?;
        let from_tree = sample(&lab, &tree, n, rng_step)?;
        let from_scan = scan_draws(&lab, &leaves, 7.0, n, rng_step)?;
        ensure!(from_tree == from_scan, "{n} draws of {n_slots} slots differ");
        Ok(())
    })
}

/// The tree's way down subtracts sums that carry up to k roundings of 2^-24 of the root; the scan's unit is far smaller. So
/// where the two differ, the slots' intervals lie within k 2^-24 of the total of each other.
fn samplers_differ_by_the_trees_rounding_at_most(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (log_capacity, n) = (17, 8192);
    let mut numbers = Numbers::new(5);
    let leaves: Vec<f32> = (0..1 << log_capacity).map(|_| numbers.heavy()).collect();
    let (from_tree, _) = sample(&lab, &Tree::with_leaves(&lab, &leaves)?, n, 3)?;
    let (from_scan, _) = scan_draws(&lab, &leaves, 1e6, n, 3)?;
    let mut before = vec![0.0f64];
    before.extend(leaves.iter().scan(0.0, |sum, &leaf| {
        *sum += leaf as f64;
        Some(*sum)
    }));
    let tolerance = log_capacity as f64 * 2f64.powi(-24) * before[leaves.len()];
    let mut n_different = 0;
    for (&a, &b) in from_tree.iter().zip(&from_scan).filter(|(a, b)| a != b) {
        let (lower, upper) = (a.min(b) as usize, a.max(b) as usize);
        let gap = before[upper] - before[lower + 1];
        ensure!(gap <= tolerance, "slots {lower} and {upper} are {gap:e} apart, {tolerance:e} allowed");
        n_different += 1;
    }
    println!("{n_different} of {n} draws differ between the samplers");
    Ok(())
}

fn empty_slots_are_never_drawn(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let inputs = (1usize..9000, 1usize..2000, 0.0f64..1.0, any::<u64>());
    for_all(inputs, |(n_slots, n, share_empty, seed)| {
        let mut numbers = Numbers::new(seed);
        let mut leaves: Vec<f32> =
            (0..n_slots).map(|_| if numbers.unit() < share_empty { 0.0 } else { numbers.heavy() }).collect();
        leaves[numbers.below(n_slots)] = 1e-6;
        check_drawn(&leaves, scan_draws(&lab, &leaves, 1e6, n, 4)?)
    })
}

fn check_drawn(leaves: &[f32], (indices, priorities): (Vec<u32>, Vec<f32>)) -> Result<(), Failed> {
    for (row, (&index, &priority)) in indices.iter().zip(&priorities).enumerate() {
        ensure!((index as usize) < leaves.len(), "draw {row} is slot {index}, past the end");
        ensure!(priority > 0.0 && priority == leaves[index as usize], "draw {row}: slot {index}, priority {priority}");
    }
    Ok(())
}

fn case_c_and_d_one_slot_with_mass_is_every_draw(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_slots, slot) in [(1, 0), (3, 2), (4096, 4095), (4097, 4096), (10_000, 5000)] {
        let mut leaves = vec![0.0; n_slots];
        leaves[slot] = 0.37;
        let (indices, priorities) = scan_draws(&lab, &leaves, 1.0, 500, 2)?;
        assert_eq!(indices, vec![slot as u32; 500], "{n_slots} slots");
        assert_eq!(priorities, vec![0.37; 500]);
    }
    Ok(())
}

fn indices_narrow_without_loss(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in SIZES {
        let values: Vec<i64> = (0..n as i64).map(|i| u32::MAX as i64 - 3 * i).collect();
        let (from, to) = (lab.upload(&values)?, lab.zeroed::<u32>(n)?);
        lab.run(scan_sample_shape(n), i64_to_u32::launch(from.view(), to.view_mut()))?;
        assert_eq!(to.read()?, values.iter().map(|&value| value as u32).collect::<Vec<_>>(), "n = {n}");
    }
    Ok(())
}
