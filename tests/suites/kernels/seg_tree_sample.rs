//! Draws from the sum tree.

use gpu_kernels::philox;
use gpu_kernels::seg_tree::{seg_tree_sample, seg_tree_sample_shape};
use host::device::Device;
use host::error::DeviceError;
use onegraph_tests::ensure;
use onegraph_tests::lab::{Lab, Numbers, for_all};
use onegraph_tests::{Case, Failed, Outcome, case};
use proptest::prelude::*;
use shared_types::{Counters, stream};

use crate::seg_tree::Tree;

pub fn cases() -> Vec<Case> {
    vec![
        case("seg_tree_sample::equal_leaves_are_each_drawn_once", equal_leaves_are_each_drawn_once),
        case("seg_tree_sample::whole_numbers_give_exactly_the_strata", whole_numbers_give_exactly_the_strata),
        case("seg_tree_sample::a_draw_lies_in_its_stratum", a_draw_lies_in_its_stratum),
        case("seg_tree_sample::empty_slots_are_never_drawn", empty_slots_are_never_drawn),
        case("seg_tree_sample::each_slot_is_drawn_as_often_as_its_mass", each_slot_is_drawn_as_often_as_its_mass),
        case("seg_tree_sample::case_a_a_drawn_leaf_has_mass_after_updates", case_a_a_drawn_leaf_has_mass_after_updates),
        case("seg_tree_sample::case_b_padding_leaves_are_never_drawn", case_b_padding_leaves_are_never_drawn),
        case("seg_tree_sample::case_c_one_item_is_every_draw", case_c_one_item_is_every_draw),
        case("seg_tree_sample::case_d_all_mass_on_the_last_leaf", case_d_all_mass_on_the_last_leaf),
        case("seg_tree_sample::case_k_each_step_draws_anew", case_k_each_step_draws_anew),
    ]
}

pub const SEED: [u32; 2] = [77, 78];

/// `n` draws at `rng_step`: slots and their priorities.
pub fn sample(lab: &Lab, tree: &Tree, n: usize, rng_step: i32) -> Result<(Vec<u32>, Vec<f32>), DeviceError> {
    let counters = lab.upload(&[Counters { rng_step, ..Counters::default() }])?;
    let (indices, priorities) = (lab.upload(&vec![u32::MAX; n])?, lab.poisoned(n)?);
    let launch =
        seg_tree_sample::launch(tree.nodes.view(), counters.view(), indices.view_mut(), priorities.view_mut(), SEED);
    lab.run(seg_tree_sample_shape(n), launch)?;
    Ok((indices.read()?, priorities.read()?))
}

/// xi_k of draw `row`.
pub fn xi(row: usize, rng_step: i32) -> f64 {
    philox::uniform(SEED, stream::PER_SAMPLE, rng_step as u32, row as u32) as f64
}

/// N leaves of one mass and N draws: stratum k is leaf k.
fn equal_leaves_are_each_drawn_once(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for log_capacity in [0, 1, 2, 3, 4, 5, 7, 10, 13, 14, 17] {
        let n = 1 << log_capacity;
        let tree = Tree::with_leaves(&lab, &vec![0.75; n])?;
        let (indices, priorities) = sample(&lab, &tree, n, 1)?;
        assert_eq!(indices, (0..n as u32).collect::<Vec<_>>(), "{n} leaves");
        assert_eq!(priorities, vec![0.75; n], "{n} leaves");
    }
    Ok(())
}

/// Small whole numbers: every sum is exact, so the slot is the one in whose running sum u_k lies.
fn whole_numbers_give_exactly_the_strata(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let inputs = (1usize..20_000, 1usize..3000, 1i32..1000, any::<u64>());
    for_all(inputs, |(n_slots, n, rng_step, seed)| {
        let mut numbers = Numbers::new(seed);
        let mut leaves: Vec<f32> = (0..n_slots).map(|_| numbers.below(9).saturating_sub(4) as f32).collect();
        leaves[numbers.below(n_slots)] = 3.0;
        let tree = Tree::with_leaves(&lab, &leaves)?;
        let (indices, priorities) = sample(&lab, &tree, n, rng_step)?;
        let total: f64 = leaves.iter().map(|&leaf| leaf as f64).sum();
        let (mut slot, mut upper) = (0, leaves[0] as f64);
        for row in 0..n {
            let u = (row as f64 + xi(row, rng_step)) * (total / n as f64);
            while upper <= u {
                slot += 1;
                upper += leaves[slot] as f64;
            }
            ensure!(indices[row] as usize == slot, "draw {row} is {}, {slot} expected", indices[row]);
            ensure!(priorities[row] == leaves[slot], "draw {row} has priority {}", priorities[row]);
        }
        Ok(())
    })
}

/// Heavy-tailed masses: u_k may fall short of its slot's interval by the roundings of the sums that were subtracted, at most
/// 2^-24 of the root at each of k levels.
fn a_draw_lies_in_its_stratum(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (log_capacity, n) in [(3, 100), (11, 777), (20, 8192)] {
        let mut numbers = Numbers::new(log_capacity);
        let leaves: Vec<f32> = (0..1usize << log_capacity).map(|_| numbers.heavy()).collect();
        let tree = Tree::with_leaves(&lab, &leaves)?;
        let (indices, _) = sample(&lab, &tree, n, 5)?;
        let mut before = vec![0.0f64];
        before.extend(leaves.iter().scan(0.0, |sum, &leaf| {
            *sum += leaf as f64;
            Some(*sum)
        }));
        let total = before[leaves.len()];
        let tolerance = total * log_capacity as f64 * 2f64.powi(-24);
        let mut worst = 0.0f64;
        for (row, &index) in indices.iter().enumerate() {
            let u = (row as f64 + xi(row, 5)) * (total / n as f64);
            worst = worst.max(before[index as usize] - u).max(u - before[index as usize + 1]);
        }
        ensure!(worst <= tolerance, "2^{log_capacity} leaves: a draw is {worst:e} off its slot, {tolerance:e} allowed");
        println!("draws of 2^{log_capacity}: {:.1}% of the tolerance used", 100.0 * worst.max(0.0) / tolerance);
    }
    Ok(())
}

fn empty_slots_are_never_drawn(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let inputs = (1usize..5000, 1usize..2000, 0.0f64..1.0, any::<u64>());
    for_all(inputs, |(n_slots, n, share_empty, seed)| {
        let mut numbers = Numbers::new(seed);
        let mut leaves: Vec<f32> =
            (0..n_slots).map(|_| if numbers.unit() < share_empty { 0.0 } else { numbers.heavy() }).collect();
        leaves[numbers.below(n_slots)] = 1e-6;
        check_drawn(&lab, &Tree::with_leaves(&lab, &leaves)?, n)
    })
}

/// Every draw is a slot with mass, and the priority given is its leaf.
fn check_drawn(lab: &Lab, tree: &Tree, n: usize) -> Result<(), Failed> {
    let leaves = tree.leaves()?;
    let (indices, priorities) = sample(lab, tree, n, 3)?;
    for (row, (&index, &priority)) in indices.iter().zip(&priorities).enumerate() {
        ensure!((index as usize) < leaves.len(), "draw {row} is slot {index}, past the end");
        ensure!(priority > 0.0, "draw {row} is slot {index}, whose priority is {priority}");
        ensure!(priority == leaves[index as usize], "draw {row} has priority {priority}, not its leaf's");
    }
    Ok(())
}

/// Stratified draws: a slot of mass m out of M is drawn n m / M times, give or take less than two.
fn each_slot_is_drawn_as_often_as_its_mass(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(9);
    let leaves: Vec<f32> = (0..300).map(|_| numbers.heavy()).collect();
    let tree = Tree::with_leaves(&lab, &leaves)?;
    let n = 40_000;
    let (indices, _) = sample(&lab, &tree, n, 8)?;
    let mut counts = vec![0u32; leaves.len()];
    indices.iter().for_each(|&index| counts[index as usize] += 1);
    let total: f64 = leaves.iter().map(|&leaf| leaf as f64).sum();
    for (slot, (&count, &leaf)) in counts.iter().zip(&leaves).enumerate() {
        let expected = n as f64 * leaf as f64 / total;
        assert!((count as f64 - expected).abs() < 2.0, "slot {slot} drawn {count} times, {expected:.2} expected");
    }
    Ok(())
}

fn case_a_a_drawn_leaf_has_mass_after_updates(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(31);
    let capacity = 1 << 16;
    // Half of the buffer is still empty.
    let mut leaves: Vec<f32> = (0..capacity).map(|_| numbers.heavy()).collect();
    leaves[capacity / 2..].fill(0.0);
    let tree = Tree::with_leaves(&lab, &leaves)?;
    for _ in 0..20 {
        let indices: Vec<u32> = (0..1000).map(|_| numbers.below(capacity / 2) as u32).collect();
        let td: Vec<_> = (0..1000).map(|_| half::bf16::from_f32(numbers.heavy())).collect();
        tree.update(&lab, &indices, &td, 0.6)?;
        check_drawn(&lab, &tree, 5000)?;
    }
    Ok(())
}

/// Capacity 3 becomes 4. Unit priorities, one draw in the middle of each of three strata, masses 0.5, 1.5, 2.5 as any xi gives
/// them: leaves 0, 1, 2.
fn case_b_padding_leaves_are_never_drawn(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let tree = Tree::with_leaves(&lab, &[1.0; 3])?;
    assert_eq!(tree.shape.capacity(), 4);
    for step in 0..200 {
        assert_eq!(sample(&lab, &tree, 3, step)?.0, [0, 1, 2]);
    }
    for n_slots in [3, 5, 6, 7, 100, 129, 8193] {
        let tree = Tree::with_leaves(&lab, &vec![1.0; n_slots])?;
        let (indices, _) = sample(&lab, &tree, 4 * n_slots, 1)?;
        assert!(indices.iter().all(|&index| (index as usize) < n_slots), "{n_slots} slots");
    }
    Ok(())
}

fn case_c_one_item_is_every_draw(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (capacity, slot) in [(1, 0), (2, 1), (64, 17), (1 << 14, 9000)] {
        let mut leaves = vec![0.0; capacity];
        leaves[slot] = 0.37;
        let tree = Tree::with_leaves(&lab, &leaves)?;
        let (indices, priorities) = sample(&lab, &tree, 1000, 2)?;
        assert_eq!(indices, vec![slot as u32; 1000], "capacity {capacity}");
        assert_eq!(priorities, vec![0.37; 1000]);
    }
    // Fewer items than the batch: each repeats.
    let tree = Tree::with_leaves(&lab, &[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0])?;
    assert_eq!(sample(&lab, &tree, 9, 1)?.0, [0, 0, 0, 1, 1, 1, 5, 5, 5]);
    assert_eq!(sample(&lab, &tree, 0, 1)?.0, [0u32; 0]);
    Ok(())
}

fn case_d_all_mass_on_the_last_leaf(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for capacity in [1, 2, 4, 1 << 10, 1 << 14, 1 << 20] {
        // A full buffer: all others have the least priority there is, the last outweighs them by far.
        let mut leaves = vec![f32::MIN_POSITIVE; capacity];
        leaves[capacity - 1] = 1e6;
        let tree = Tree::with_leaves(&lab, &leaves)?;
        let (indices, _) = sample(&lab, &tree, 100, 1)?;
        assert_eq!(indices[1..], vec![capacity as u32 - 1; 99], "capacity {capacity}");
        check_drawn(&lab, &tree, 100)?;
    }
    Ok(())
}

fn case_k_each_step_draws_anew(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let tree = Tree::with_leaves(&lab, &vec![1.0; 4096])?;
    let first = sample(&lab, &tree, 100, 1)?;
    assert_eq!(first, sample(&lab, &tree, 100, 1)?, "one step drawn twice is one draw");
    let (second, _) = sample(&lab, &tree, 100, 2)?;
    let same = first.0.iter().zip(&second).filter(|(a, b)| a == b).count();
    // A stratum holds 41 slots: 100 / 41 = 2.4 agree by chance, standard deviation 1.5.
    assert!(same < 12, "{same} of 100 draws of two steps are the same");
    Ok(())
}
