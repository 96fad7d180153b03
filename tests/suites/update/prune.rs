//! Pruning: masks against the reference's, and what an update leaves of masked weights.

use std::sync::Arc;

use gpu_kernels::prune::{
    N_BINS, NOT_PRUNED, WORD, is_due, prune_count, prune_masks, prune_shape, prune_threshold, prune_threshold_shape,
    sparsity,
};
use host::device::Buffer;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config::{PruneSchedule, Sizes};
use reference::layout::{Group, Layout, Tensors};
use reference::pruning;
use shared_types::{Counters, Precision, PruneParams, PruneTensor, isv};

use crate::world::{PARAMS, Step, World};

pub fn cases() -> Vec<Case> {
    vec![
        case("prune::masks_are_the_references", |device| masks_are_the_references(&Lab::new(device)?)),
        case("prune::the_schedule_by_hand", |device| the_schedule_by_hand(&Lab::new(device)?)),
        case("prune::equal_weights_go_together_or_stay", |device| {
            equal_weights_go_together_or_stay(&Lab::new(device)?)
        }),
        case("prune::masked_weights_are_zero_and_have_no_gradient", |device| {
            Lab::on_all_lanes(device, masked_weights_are_zero_and_have_no_gradient)
        }),
    ]
}

const SCHEDULE: PruneParams = PruneParams { final_sparsity: 0.75, start: 100, end: 500, every: 50, reserved: 0 };

/// The device's part of pruning.
struct Pruner<'a> {
    lab: &'a Lab<'a>,
    chunks: Buffer<u8>,
    tensors: Buffer<PruneTensor>,
    bins: Buffer<u32>,
    masks: Buffer<u32>,
    bus: Buffer<f32>,
}

impl<'a> Pruner<'a> {
    fn new(lab: &'a Lab<'a>, layout: &Layout) -> Result<Self, Failed> {
        let (mut chunks, mut tensors) = (vec![NOT_PRUNED; layout.len() / 64], Vec::new());
        for tensor in layout.tensors.iter().filter(|tensor| tensor.prunable) {
            let range = tensor.range();
            chunks[range.start / 64..range.end.div_ceil(64)].fill(tensors.len() as u8);
            tensors.push(PruneTensor { start: range.start as u32, end: range.end as u32, ..PruneTensor::default() });
        }
        Ok(Self {
            lab,
            chunks: lab.upload(&chunks)?,
            bins: lab.zeroed(tensors.len() * N_BINS)?,
            tensors: lab.upload(&tensors)?,
            masks: lab.upload(&vec![u32::MAX; layout.len() / WORD])?,
            bus: lab.zeroed(isv::LEN)?,
        })
    }

    fn step(&self, params: &[f32], step: i32) -> Outcome {
        let lab = self.lab;
        let (params, counters) =
            (lab.upload(params)?, lab.upload(&[Counters { rng_step: step, ..Counters::default() }])?);
        let (chunks, tensors) = (self.chunks.view(), self.tensors.view());
        let bins = self.bins.view_mut();
        let count = prune_count::launch(params.view(), chunks, tensors, counters.view(), bins, SCHEDULE);
        lab.run(prune_shape(params.len()), count)?;
        let (bins, tensors) = (self.bins.view_mut(), self.tensors.view_mut());
        let threshold = prune_threshold::launch(bins, tensors, counters.view(), SCHEDULE);
        lab.run(prune_threshold_shape(self.tensors.len()), threshold)?;
        let (chunks, tensors) = (self.chunks.view(), self.tensors.view());
        let (masks, bus) = (self.masks.view_mut(), self.bus.view_mut());
        let renew = prune_masks::launch(params.view(), chunks, tensors, counters.view(), masks, bus, SCHEDULE);
        Ok(lab.run(prune_shape(params.len()), renew)?)
    }

    fn kept(&self) -> Result<Vec<f64>, Failed> {
        let words = self.masks.read()?;
        Ok((0..words.len() * WORD).map(|at| f64::from(words[at / WORD] >> (at % WORD) & 1)).collect())
    }
}

fn expected_schedule() -> PruneSchedule {
    PruneSchedule { final_sparsity: 0.75, start: 100, end: 500, every: 50 }
}

/// Counts and bins are whole numbers: the masks are equal, bit for bit, at every renewal and between them.
fn masks_are_the_references(lab: &Lab) -> Outcome {
    let layout = Arc::new(Layout::new(&Sizes::TINY));
    let pruner = Pruner::new(lab, &layout)?;
    let mut numbers = Numbers::new(31);
    let mut params = Tensors::zeros(&layout);
    let mut masks = Tensors { layout: layout.clone(), flat: vec![1.0; layout.len()] };
    for step in [1, 50, 99, 100, 150, 151, 300, 450, 500, 501, 550] {
        let mut values = vec![0f32; layout.len()];
        for at in layout.tensors.iter().flat_map(|tensor| tensor.range()) {
            values[at] = numbers.heavy() * if numbers.below(5) == 0 { 0.0 } else { 1e-2 };
        }
        params.flat = values.iter().map(|&x| f64::from(x)).collect();
        pruner.step(&values, step)?;
        let schedule = expected_schedule();
        if pruning::is_due(&schedule, step as u64) {
            pruning::renew_masks(&params, &mut masks, pruning::sparsity(&schedule, step as u64));
        }
        let kept = pruner.kept()?;
        for tensor in &layout.tensors {
            ensure!(kept[tensor.range()] == masks.flat[tensor.range()], "step {step}: mask of {}", tensor.name);
        }
        let (got, want) = (f64::from(pruner.bus.read()?[isv::SPARSITY]), pruning::masked_share(&masks));
        ensure!((got - want).abs() <= 2f64.powi(-24), "step {step}: sparsity {got}, {want} expected");
        ensure!(pruner.bins.read()?.iter().all(|&count| count == 0), "step {step} leaves counts behind");
        println!("step {step}: {want:.4} masked");
    }
    Ok(())
}

/// t = 300 of 100 to 500: half way, 0.75 (1 - 1/8).
fn the_schedule_by_hand(_: &Lab) -> Outcome {
    for (step, share, due) in [
        (100, 0.0, true),
        (150, 0.75 * (1.0 - 0.875f64.powi(3)), true),
        (300, 0.65625, true),
        (500, 0.75, true),
        (310, -1.0, false),
        (550, 0.75, false),
    ] {
        ensure!(is_due(&SCHEDULE, step) == due, "step {step}");
        ensure!(
            share < 0.0 || (sparsity(&SCHEDULE, step) - share).abs() < 1e-15,
            "step {step}: {}",
            sparsity(&SCHEDULE, step)
        );
    }
    ensure!(!is_due(&SCHEDULE, 50), "before the start");
    Ok(())
}

/// A threshold lies between bins, so weights of one size are not told apart: with all of them equal none goes, since that would be all.
fn equal_weights_go_together_or_stay(lab: &Lab) -> Outcome {
    let layout = Layout::new(&Sizes::MINIATURE);
    let pruner = Pruner::new(lab, &layout)?;
    let (mut equal, mut two) = (vec![0f32; layout.len()], vec![0f32; layout.len()]);
    for tensor in &layout.tensors {
        equal[tensor.range()].fill(-0.5);
        for (number, at) in tensor.range().enumerate() {
            two[at] = if number % 2 == 0 { 0.25 } else { -4.0 };
        }
    }
    pruner.step(&equal, 500)?;
    ensure!(pruner.kept()?.iter().all(|&kept| kept == 1.0), "equal weights were told apart");
    // Half of them are small, which is under 0.75; the large ones would be more.
    pruner.step(&two, 450)?;
    let kept = pruner.kept()?;
    for tensor in layout.tensors.iter().filter(|tensor| tensor.prunable) {
        for at in tensor.range() {
            ensure!((kept[at] == 1.0) == (two[at] == -4.0), "{}: {}", tensor.name, two[at]);
        }
    }
    Ok(())
}

/// The mask stands before the norm, within the vaccine and behind the update.
fn masked_weights_are_zero_and_have_no_gradient(lab: &Lab) -> Outcome {
    let mut world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
    let (n, theta) = (world.layout.len(), world.layout.range(Group::Theta));
    let masked = |at: usize| theta.contains(&at) && at % 3 == 1;
    let words: Vec<u32> = (0..n / WORD)
        .map(|word| (0..WORD).filter(|bit| !masked(word * WORD + bit)).fold(0, |bits, bit| bits | 1 << bit))
        .collect();
    world.masks = lab.upload(&words)?;
    world.snapshot = lab.upload(&world.gradient(&mut Numbers::new(32), 1.0)[theta.clone()])?;
    world.bus.slice(isv::VACCINE_COS_EMA..isv::VACCINE_COS_EMA + 1).write(&[0.95])?;
    let snapshot = world.snapshot.read()?;
    let gradient = world.gradient(&mut Numbers::new(33), 1.0);
    world.update(&gradient, &Step::default(), PARAMS)?;
    let (params, first, after) = (world.params.read()?, world.first.read()?, world.snapshot.read()?);
    let vaccine = world.vaccine.read()?[0];
    assert!(vaccine.multiple > 0.0, "{vaccine:?}");
    let mut square = 0.0;
    for at in theta.clone() {
        if masked(at) {
            assert_eq!((params[at], first[at], after[at]), (0.0, 0.0, 0.0), "element {at}");
        } else {
            assert_eq!(after[at].to_bits(), gradient[at].to_bits(), "element {at} of the snapshot");
            square += (f64::from(gradient[at]) + f64::from(vaccine.multiple) * f64::from(snapshot[at])).powi(2);
        }
    }
    let got = f64::from(world.scalars.read()?[0].squared_norm);
    // Cancelled terms are at most nine times the sum here; each is off by under 60 roundings.
    assert!((got - square).abs() <= 9.0 * 60.0 * 2f64.powi(-24) * square, "{got} {square}");
    Ok(())
}
