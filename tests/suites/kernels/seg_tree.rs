//! The sum tree: build, update, insert.

use cuda_std::cpu::ExecutorOptions;
use gpu_kernels::seg_tree::{TreeMemory, TreeShape};
use half::bf16;
use host::device::{Buffer, Device};
use host::error::DeviceError;
use onegraph_tests::ensure;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits, for_all};
use onegraph_tests::{Case, Failed, Outcome, case, host_case};
use proptest::prelude::*;

pub fn cases() -> Vec<Case> {
    vec![
        case("seg_tree::build_by_hand", |device| Lab::on_all_lanes(device, build_by_hand)),
        case("seg_tree::build_sums_every_node_at_every_capacity", |device| {
            Lab::on_all_lanes(device, build_sums_every_node_at_every_capacity)
        }),
        host_case("seg_tree::shapes_cover_all_levels", shapes_cover_all_levels),
        case("seg_tree::update_by_hand", |device| Lab::on_all_lanes(device, update_by_hand)),
        case("seg_tree::update_equals_a_rebuild_bit_for_bit", |device| {
            Lab::on_all_lanes(device, update_equals_a_rebuild_bit_for_bit)
        }),
        case("seg_tree::of_duplicates_this_steps_highest_wins", |device| {
            Lab::on_all_lanes(device, of_duplicates_this_steps_highest_wins)
        }),
        case("seg_tree::rows_without_a_finite_td_keep_their_leaves", |device| {
            Lab::on_all_lanes(device, rows_without_a_finite_td_keep_their_leaves)
        }),
        case("seg_tree::the_maximum_never_falls", |device| Lab::on_all_lanes(device, the_maximum_never_falls)),
        case("seg_tree::absurd_errors_leave_the_root_finite", |device| {
            Lab::on_all_lanes(device, absurd_errors_leave_the_root_finite)
        }),
        case("seg_tree::case_a_a_million_updates_do_not_drift", case_a_a_million_updates_do_not_drift),
        case("seg_tree::case_e_an_insert_takes_the_maximum_once", |device| {
            Lab::on_all_lanes(device, case_e_an_insert_takes_the_maximum_once)
        }),
        case("seg_tree::case_e_alpha_0_makes_all_priorities_1", |device| {
            Lab::on_all_lanes(device, case_e_alpha_0_makes_all_priorities_1)
        }),
    ]
}

/// A tree on a device.
pub struct Tree {
    pub shape: TreeShape,
    pub nodes: Buffer<f32>,
    pub max_priority: Buffer<f32>,
    memory: TreeMemory,
}

impl Tree {
    /// A tree with these leaves, the rest 0, built. All other nodes start as NaN, so that one that nothing sums is seen.
    pub fn with_leaves(lab: &Lab, leaves: &[f32]) -> Result<Self, DeviceError> {
        let shape = TreeShape::for_slots(leaves.len()).expect("1 to 2^27 slots");
        let mut nodes = vec![f32::NAN; shape.n_nodes()];
        nodes[shape.capacity()..].fill(0.0);
        nodes[shape.capacity()..][..leaves.len()].copy_from_slice(leaves);
        let nodes = lab.upload(&nodes)?;
        let owners = lab.zeroed::<u64>(shape.owners_len())?;
        let max_priority = lab.upload(&[1.0f32])?;
        let memory = TreeMemory {
            tree: nodes.view().memory().clone(),
            owners: owners.view().memory().clone(),
            max_priority: max_priority.view().memory().clone(),
            lanes: lab.lanes(),
        };
        lab.run_all(memory.build())?;
        Ok(Self { shape, nodes, max_priority, memory })
    }

    pub fn update(&self, lab: &Lab, indices: &[u32], td: &[bf16], alpha: f32) -> Result<(), DeviceError> {
        let (indices, td) = (lab.upload(indices)?, lab.upload(td)?);
        lab.run_all(self.memory.update(indices.view().memory(), td.view().memory(), alpha))
    }

    pub fn insert(&self, lab: &Lab, indices: &[u32]) -> Result<(), DeviceError> {
        let indices = lab.upload(indices)?;
        lab.run_all(self.memory.insert(indices.view().memory()))
    }

    /// All nodes but the unused first.
    fn read(&self) -> Result<Vec<f32>, DeviceError> {
        Ok(self.nodes.read()?.split_off(1))
    }

    pub fn leaves(&self) -> Result<Vec<f32>, DeviceError> {
        Ok(self.nodes.read()?.split_off(self.shape.capacity()))
    }
}

/// The tree of these leaves, level by level: nodes 1 to 2N - 1.
fn summed(leaves: &[f32]) -> Vec<f32> {
    let mut level = leaves.to_vec();
    let mut levels = vec![level.clone()];
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        levels.push(level.clone());
    }
    levels.into_iter().rev().flatten().collect()
}

/// p = (|td| + 1e-6)^alpha in f64.
fn priority(td: bf16, alpha: f32) -> f64 {
    (td.to_f64().abs() + 1e-6).powf(alpha as f64)
}

/// The sum |td| + 1e-6 rounds once (half a unit in the last place, times alpha <= 1), and the power is off by one.
const PRIORITY: Tolerance = Tolerance { absolute: 0.0, relative: 1.5 * 1.2e-7 };

fn build_by_hand(lab: &Lab) -> Outcome {
    assert_eq!(Tree::with_leaves(lab, &[1.0, 2.0, 3.0, 4.0])?.read()?, [10.0, 3.0, 7.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(Tree::with_leaves(lab, &[5.0, 0.25])?.read()?, [5.25, 5.0, 0.25]);
    assert_eq!(Tree::with_leaves(lab, &[5.0])?.read()?, [5.0]);
    Ok(())
}

fn build_sums_every_node_at_every_capacity(lab: &Lab) -> Outcome {
    let mut numbers = Numbers::new(1);
    // 13 to 14 and 20 to 21 add a stage of groups.
    for log_capacity in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 20, 21] {
        let leaves: Vec<f32> = (0..1 << log_capacity).map(|_| numbers.heavy()).collect();
        let tree = Tree::with_leaves(lab, &leaves)?;
        assert!(bits(&tree.read()?) == bits(&summed(&leaves)), "capacity 2^{log_capacity}");
    }
    Ok(())
}

fn shapes_cover_all_levels() -> Outcome {
    assert_eq!(TreeShape::for_slots(0), None);
    assert_eq!(TreeShape::for_slots((1 << 27) + 1), None);
    for (slots, capacity, stages) in [
        (1, 0, 0),
        (2, 1, 0),
        (3, 2, 0),
        (8192, 13, 0),
        (8193, 14, 1),
        (1 << 20, 20, 1),
        (1 << 21, 21, 2),
        (1 << 27, 27, 2),
    ] {
        let shape = TreeShape::for_slots(slots).expect("in range");
        assert_eq!((shape.log_capacity(), shape.n_group_stages()), (capacity, stages), "{slots} slots");
        assert_eq!(TreeShape::of_nodes(shape.n_nodes()), shape);
        assert!(shape.n_top_nodes() <= 8192);
        let groups: usize = (0..stages).map(|stage| shape.n_groups(stage)).sum();
        assert_eq!(shape.owners_len(), 1 + groups);
    }
    Ok(())
}

fn update_by_hand(lab: &Lab) -> Outcome {
    let tree = Tree::with_leaves(lab, &[1.0, 2.0, 3.0, 4.0])?;
    // alpha 1: priorities are |td| + 1e-6, which rounds to |td| from 32 on.
    tree.update(lab, &[3, 1], &[bf16::from_f32(-32.0), bf16::from_f32(64.0)], 1.0)?;
    assert_eq!(tree.read()?, [100.0, 65.0, 35.0, 1.0, 64.0, 3.0, 32.0]);
    assert_eq!(tree.max_priority.read()?, [64.0]);
    tree.update(lab, &[], &[], 1.0)?;
    assert_eq!(tree.read()?, [100.0, 65.0, 35.0, 1.0, 64.0, 3.0, 32.0], "no row changes nothing");
    Ok(())
}

/// A batch with duplicates, with errors that are no numbers, clustered so that groups are shared, on trees of all stages.
fn update_equals_a_rebuild_bit_for_bit(lab: &Lab) -> Outcome {
    let inputs = (0u32..16, 0usize..600, 1usize..4, 0.0f32..=1.0, any::<u64>());
    for_all(inputs, |(log_capacity, n, n_updates, alpha, seed)| {
        check_update(lab, log_capacity, n, n_updates, alpha, seed)
    })?;
    check_update(lab, 20, 8192, 2, 0.6, 3)?;
    check_update(lab, 21, 5000, 3, 0.6, 4)
}

fn check_update(lab: &Lab, log_capacity: u32, n: usize, n_updates: usize, alpha: f32, seed: u64) -> Result<(), Failed> {
    let mut numbers = Numbers::new(seed);
    let capacity = 1usize << log_capacity;
    let mut leaves: Vec<f32> = (0..capacity).map(|_| numbers.heavy()).collect();
    let tree = Tree::with_leaves(lab, &leaves)?;
    let mut want: Vec<f64> = leaves.iter().map(|&leaf| leaf as f64).collect();
    for _ in 0..n_updates {
        let centre = numbers.below(capacity);
        let spread = 1 + numbers.below(capacity);
        let indices: Vec<u32> = (0..n).map(|_| ((centre + numbers.below(spread)) % capacity) as u32).collect();
        let td: Vec<bf16> = (0..n).map(|_| random_td(&mut numbers)).collect();
        tree.update(lab, &indices, &td, alpha)?;
        let mut fresh = std::collections::HashMap::new();
        for (&index, &td) in indices.iter().zip(&td).filter(|(_, td)| td.is_finite()) {
            let highest = fresh.entry(index).or_insert(0.0f64);
            *highest = highest.max(priority(td, alpha));
        }
        fresh.into_iter().for_each(|(index, priority)| want[index as usize] = priority);
    }
    leaves = tree.leaves()?;
    PRIORITY.check(&format!("leaves of 2^{log_capacity} after {n_updates} x {n}"), &leaves, &want)?;
    ensure!(bits(&tree.read()?) == bits(&summed(&leaves)), "a node is not the sum of its children");
    Ok(())
}

fn random_td(numbers: &mut Numbers) -> bf16 {
    match numbers.below(20) {
        0 => bf16::NAN,
        1 => bf16::INFINITY,
        2 => bf16::NEG_INFINITY,
        3 => bf16::from_bits(0xffff),
        4 => bf16::ZERO,
        _ => bf16::from_f32(numbers.heavy() * if numbers.below(2) == 0 { 1.0 } else { -1.0 }),
    }
}

fn of_duplicates_this_steps_highest_wins(lab: &Lab) -> Outcome {
    let tree = Tree::with_leaves(lab, &[100.0; 8])?;
    let td = [4.0, 64.0, 16.0, 2.0].map(bf16::from_f32);
    tree.update(lab, &[5, 5, 5, 6], &td, 1.0)?;
    // 64, although the old value was 100.
    assert_eq!(tree.leaves()?[4..7], [100.0, 64.0, 2.0 + 1e-6]);
    // Among many threads and blocks: one leaf, all rows.
    let n = 3000;
    let td: Vec<bf16> = (0..n).map(|row| bf16::from_f32(((row * 7) % 200) as f32)).collect();
    tree.update(lab, &vec![2; n], &td, 1.0)?;
    assert_eq!(tree.leaves()?[2], 199.0);
    assert_eq!(bits(&tree.read()?), bits(&summed(&tree.leaves()?)));
    Ok(())
}

fn rows_without_a_finite_td_keep_their_leaves(lab: &Lab) -> Outcome {
    for len in [4usize, 1 << 14] {
        let leaves: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
        let tree = Tree::with_leaves(lab, &leaves)?;
        let before = bits(&tree.read()?);
        let no_numbers = [bf16::NAN, -bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY];
        tree.update(lab, &[0, 1, 2, 3], &no_numbers, 0.6)?;
        assert!(bits(&tree.read()?) == before, "{len} leaves");
        assert_eq!(tree.max_priority.read()?, [1.0]);
        // A duplicate with a number is not held back by one without.
        tree.update(lab, &[0, 0], &[bf16::NAN, bf16::from_f32(8.0)], 1.0)?;
        assert_eq!(tree.leaves()?[0], 8.000001);
    }
    Ok(())
}

fn the_maximum_never_falls(lab: &Lab) -> Outcome {
    let tree = Tree::with_leaves(lab, &[1.0; 8])?;
    for (td, expected) in [(0.5, 1.0), (64.0, 64.0), (32.0, 64.0), (128.0, 128.0)] {
        tree.update(lab, &[1, 2], &[bf16::from_f32(td), bf16::from_f32(0.25)], 1.0)?;
        assert_eq!(tree.max_priority.read()?, [expected], "after {td}");
    }
    Ok(())
}

fn absurd_errors_leave_the_root_finite(lab: &Lab) -> Outcome {
    let n = 256;
    let tree = Tree::with_leaves(lab, &vec![1.0; n])?;
    let indices: Vec<u32> = (0..n as u32).collect();
    tree.update(lab, &indices, &vec![bf16::MAX; n], 1.0)?;
    assert!(tree.read()?.iter().all(|node| node.is_finite()));
    Ok(())
}

/// 123 batches of 8,192 on 2^20 leaves: over a million updates with duplicates. Nodes are sums of their children bit for bit,
/// so the root is 20 roundings from the exact sum: 20 x 2^-24 = 1.2e-6, well under the 1e-5 that the design allows.
///
/// On the CPU without the checker, which has seen these kernels in the other cases and would take minutes here.
fn case_a_a_million_updates_do_not_drift(device: &Device) -> Outcome {
    let unchecked = Device::cpu_with(ExecutorOptions { check: false, ..ExecutorOptions::default() });
    let lab = Lab::new(if device.backend_name() == "cpu" { &unchecked } else { device })?;
    let (capacity, batch) = (1 << 20, 8192);
    let mut numbers = Numbers::new(20);
    let leaves: Vec<f32> = (0..capacity).map(|_| numbers.heavy()).collect();
    let tree = Tree::with_leaves(&lab, &leaves)?;
    for round in 0..123 {
        // Every third round crowds into 2,000 slots, so that a slot comes up about four times.
        let spread = if round % 3 == 0 { 2000 } else { capacity };
        let indices: Vec<u32> = (0..batch).map(|_| numbers.below(spread) as u32).collect();
        let td: Vec<bf16> = (0..batch).map(|_| bf16::from_f32(numbers.heavy())).collect();
        tree.update(&lab, &indices, &td, 0.6)?;
    }
    let leaves = tree.leaves()?;
    let nodes = tree.read()?;
    assert!(bits(&nodes) == bits(&summed(&leaves)), "a node is not the sum of its children");
    assert!(leaves.iter().all(|&leaf| leaf > 0.0));
    let exact: f64 = leaves.iter().map(|&leaf| leaf as f64).sum();
    Tolerance { absolute: 0.0, relative: 20.0 * 2f64.powi(-24) }.check("root after 10^6 updates", &nodes[..1], &[exact])
}

fn case_e_an_insert_takes_the_maximum_once(lab: &Lab) -> Outcome {
    for log_capacity in [3, 14, 21] {
        let tree = Tree::with_leaves(lab, &vec![0.0; 1 << log_capacity])?;
        // Into an empty buffer: the maximum starts at 1.
        tree.insert(lab, &[0, 1])?;
        assert_eq!(tree.leaves()?[..3], [1.0, 1.0, 0.0]);
        tree.update(lab, &[0], &[bf16::from_f32(32.0)], 0.6)?;
        let max_priority = tree.max_priority.read()?[0];
        PRIORITY.check("maximum", &[max_priority], &[priority(bf16::from_f32(32.0), 0.6)])?;
        // p itself, not p to the power alpha again; and a slot that is overwritten loses what it had, also if it had more.
        tree.insert(lab, &[2, 1, 2])?;
        assert_eq!(tree.leaves()?[..4], [max_priority, max_priority, max_priority, 0.0]);
        assert_eq!(tree.max_priority.read()?, [max_priority]);
        assert_eq!(bits(&tree.read()?), bits(&summed(&tree.leaves()?)), "capacity 2^{log_capacity}");
    }
    Ok(())
}

fn case_e_alpha_0_makes_all_priorities_1(lab: &Lab) -> Outcome {
    let tree = Tree::with_leaves(lab, &[0.0; 8])?;
    let indices: Vec<u32> = (0..8).collect();
    tree.insert(lab, &indices[..4])?;
    let td: Vec<bf16> = [0.0, 1e-3, 1.0, 500.0, 1e6].map(bf16::from_f32).to_vec();
    tree.update(lab, &indices[..5], &td, 0.0)?;
    tree.insert(lab, &indices[5..])?;
    assert_eq!(tree.leaves()?, [1.0; 8]);
    Ok(())
}
