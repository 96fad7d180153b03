//! `settle_heads`: PopArt's rescaling, and the learners' entries of the internal state vector.

use gpu_kernels::iql::{HIDDEN, rescaling, updated};
use gpu_kernels::settle::{RiskParams, settle_heads, settle_heads_shape};
use host::device::{Buffer, Device};
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{IqlTotals, Isv, PopArt, isv};

use crate::world::symmetric;

pub fn cases() -> Vec<Case> {
    vec![
        case("settle::values_stay_what_they_were", values_stay_what_they_were),
        case("settle::entries_follow_their_learners", entries_follow_their_learners),
        case("settle::a_gated_step_changes_nothing", a_gated_step_changes_nothing),
        case("settle::what_is_no_number_is_not_taken_over", what_is_no_number_is_not_taken_over),
    ]
}

/// What the kernel reads; an empty list is a learner that is off.
#[derive(Clone)]
struct Found {
    gate: u32,
    iql: Vec<IqlTotals>,
    /// Whether IQL's heads have PopArt.
    popart: bool,
    select_rate: Vec<f32>,
    denoise_loss: Vec<f32>,
    cvar_loss: Vec<f32>,
}

impl Found {
    fn all() -> Self {
        let before = PopArt { mean: 0.5, square: 1.25, seeded: 1, reserved: 0 };
        let iql = IqlTotals { gap: 0.75, ..rescaling(before, updated(before, 3.0, 11.0)) };
        let (select_rate, denoise_loss, cvar_loss) = (vec![0.625], vec![2.0], vec![-1.0]);
        Self { gate: 0, iql: vec![iql], popart: true, select_rate, denoise_loss, cvar_loss }
    }
}

/// What it writes.
struct World<'a> {
    lab: &'a Lab<'a>,
    popart: Buffer<PopArt>,
    layers: [Buffer<f32>; 2],
    bus: Buffer<f32>,
    seeded: Buffer<u64>,
}

impl<'a> World<'a> {
    fn new(lab: &'a Lab<'a>) -> Result<Self, Failed> {
        let mut numbers = Numbers::new(1);
        let mut layer = || lab.upload(&(0..=HIDDEN).map(|_| symmetric(&mut numbers)).collect::<Vec<_>>());
        let layers = [layer()?, layer()?];
        let mut bus = Isv::at_start(0.05, 1.0, -3.0, 3.0).entries;
        bus[isv::RISK_ETA] = 0.5;
        Ok(Self { lab, popart: lab.zeroed(1)?, layers, bus: lab.upload(&bus)?, seeded: lab.zeroed(1)? })
    }

    fn run(&self, found: &Found) -> Outcome {
        let lab = self.lab;
        let (gate, iql) = (lab.upload(&[found.gate])?, lab.upload(&found.iql)?);
        let (rate, denoise) = (lab.upload(&found.select_rate)?, lab.upload(&found.denoise_loss)?);
        let cvar = lab.upload(&found.cvar_loss)?;
        let has_popart = found.popart && !found.iql.is_empty();
        let layer = |head: usize| self.layers[head].slice(0..if has_popart { HIDDEN + 1 } else { 0 }).view_mut();
        let launch = settle_heads::launch(
            gate.view(),
            iql.view(),
            rate.view(),
            denoise.view(),
            cvar.view(),
            self.popart.slice(0..usize::from(has_popart)).view_mut(),
            layer(0),
            layer(1),
            self.bus.view_mut(),
            self.seeded.view_mut(),
            RiskParams { lr: 0.1, target: 0.5 },
        );
        Ok(lab.run(settle_heads_shape(), launch)?)
    }

    /// Bits of everything.
    fn bits(&self) -> Result<Vec<Vec<u32>>, Failed> {
        let buffers = [&self.layers[0], &self.layers[1], &self.bus];
        let mut words: Vec<Vec<u32>> =
            buffers.into_iter().map(|buffer| Ok(bits(&buffer.read()?))).collect::<Result<_, Failed>>()?;
        words.push(bytemuck::cast_slice(&self.popart.read()?).to_vec());
        words.push(bytemuck::cast_slice(&self.seeded.read()?).to_vec());
        Ok(words)
    }
}

/// V = std out + mu of some hidden rows before and after: a weight and the bias round twice each.
fn values_stay_what_they_were(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let mut numbers = Numbers::new(2);
    let mut before = PopArt::default();
    for round in 0..5 {
        let after = updated(before, f64::from(round) + numbers.unit(), 30.0 + 5.0 * numbers.unit());
        let totals = rescaling(before, after);
        let hidden: Vec<f64> = (0..HIDDEN).map(|_| numbers.unit() - 0.3).collect();
        let values = |popart: &PopArt| -> Result<Vec<f64>, Failed> {
            let std = f64::from(gpu_kernels::iql::std(popart));
            let of_layer = |layer: &Buffer<f32>| {
                let layer: Vec<f64> = layer.read()?.into_iter().map(f64::from).collect();
                let out: f64 = layer.iter().zip(&hidden).map(|(w, x)| w * x).sum::<f64>() + layer[HIDDEN];
                Ok(std * out + popart.mean)
            };
            world.layers.iter().map(of_layer).collect()
        };
        let want = values(&before)?;
        world.run(&Found { iql: vec![totals], ..Found::all() })?;
        ensure!(world.popart.read()? == [after], "PopArt was not taken over");
        for (got, want) in values(&after)?.into_iter().zip(want) {
            ensure!((got - want).abs() < 1e-5, "round {round}: V became {got}, from {want}");
        }
        before = after;
    }
    Ok(())
}

fn entries_follow_their_learners(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let found = Found::all();
    world.run(&found)?;
    world.run(&Found { denoise_loss: vec![4.0], ..found.clone() })?;
    let bus = world.bus.read()?;
    let start = Isv::at_start(0.05, 1.0, -3.0, 3.0).entries;
    let popart = found.iql[0].popart;
    let written = [
        (isv::IQL_GAP, 0.75),
        // Seeded by 2, then 2 + 0.01 (4 - 2).
        (isv::DENOISE_EMA, 2.02),
        (isv::SELECT_RATE, 0.625),
        (isv::POPART_MEAN, popart.mean as f32),
        (isv::POPART_STD, ((popart.square - popart.mean * popart.mean) as f32).sqrt()),
        // 0.5 - 0.1 (-1 - 0.5) twice.
        (isv::RISK_ETA, 0.8),
    ];
    for (entry, value) in bus.iter().enumerate() {
        let want = written.iter().find(|(at, _)| *at == entry).map_or(start[entry], |(_, want)| *want);
        ensure!((value - want).abs() < 1e-6, "entry {entry} is {value}, {want} expected");
    }
    assert_eq!(world.seeded.read()?, [1 << isv::DENOISE_EMA]);
    // Each alone, the others off: its own entries.
    let off = Found { iql: vec![], select_rate: vec![], denoise_loss: vec![], cvar_loss: vec![], ..found.clone() };
    for (alone, entries) in [
        (Found { iql: found.iql.clone(), ..off.clone() }, vec![isv::IQL_GAP, isv::POPART_MEAN, isv::POPART_STD]),
        (Found { iql: found.iql.clone(), popart: false, ..off.clone() }, vec![isv::IQL_GAP]),
        (Found { select_rate: found.select_rate.clone(), ..off.clone() }, vec![isv::SELECT_RATE]),
        (Found { denoise_loss: found.denoise_loss.clone(), ..off.clone() }, vec![isv::DENOISE_EMA]),
        (Found { cvar_loss: found.cvar_loss.clone(), ..off.clone() }, vec![isv::RISK_ETA]),
    ] {
        let world = World::new(&lab)?;
        let before = world.bus.read()?;
        world.run(&alone)?;
        let after = world.bus.read()?;
        let changed: Vec<usize> = (0..isv::LEN).filter(|&entry| before[entry] != after[entry]).collect();
        ensure!(changed == entries, "{changed:?} changed, {entries:?} expected");
        let is_fresh =
            world.bits()?[..2] == World::new(&lab)?.bits()?[..2] && world.popart.read()? == [PopArt::default()];
        ensure!(is_fresh != (alone.popart && !alone.iql.is_empty()), "last layers and statistics beside {entries:?}");
    }
    Ok(())
}

fn a_gated_step_changes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let before = world.bits()?;
    world.run(&Found { gate: 1, ..Found::all() })?;
    ensure!(world.bits()? == before, "a gated step changed something");
    Ok(())
}

/// A batch whose q is no number leaves layers and statistics alone, a head's fault the statistics that it is in.
fn what_is_no_number_is_not_taken_over(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let (before, found) = (world.bits()?, Found::all());
    let faulty = rescaling(PopArt::default(), updated(PopArt::default(), f64::NAN, 1.0));
    let nan = vec![f32::NAN];
    let all = Found {
        gate: 0,
        iql: vec![IqlTotals { gap: f32::NAN, ..faulty }],
        popart: true,
        select_rate: nan.clone(),
        denoise_loss: nan.clone(),
        cvar_loss: nan,
    };
    world.run(&all)?;
    ensure!(world.bits()? == before, "a NaN was taken over");
    world.run(&Found { iql: vec![IqlTotals { gap: f32::NAN, ..found.iql[0] }], ..found })?;
    let bus = world.bus.read()?;
    ensure!(bus[isv::IQL_GAP] == 0.0 && bus[isv::POPART_STD] != 1.0, "PopArt is sound, the gap is not");
    Ok(())
}
