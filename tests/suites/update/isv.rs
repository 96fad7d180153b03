//! `isv_update`, against the reference.

use gpu_kernels::isv::{isv_update, isv_update_shape};
use host::device::{Buffer, Device};
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Outcome, case};
use reference::isv::{Isv as Reference, RATE, SLOW_RATE};
use shared_types::learner::N_LEARNERS;
use shared_types::{Counters, Isv, LossTotals, SKIP_WORDS, UpdateScalars, VaccineScalars, due, isv};

pub fn cases() -> Vec<Case> {
    vec![
        case("isv::averages_and_health_follow_the_reference", averages_and_health_follow_the_reference),
        case("isv::phi_follows_the_cosines_from_zero", phi_follows_the_cosines_from_zero),
        case("isv::a_gated_step_changes_only_what_counts_it", a_gated_step_changes_only_what_counts_it),
        case("isv::what_is_off_is_left_alone", what_is_off_is_left_alone),
        case("isv::readiness_follows_the_heads_applied_updates", readiness_follows_the_heads_applied_updates),
        case("isv::the_proposed_spacing_is_taken_over", the_proposed_spacing_is_taken_over),
        case("isv::the_mean_sensitivity_is_taken_over", the_mean_sensitivity_is_taken_over),
        case("isv::skipped_steps_leave_the_window_after_a_thousand", skipped_steps_leave_the_window_after_a_thousand),
    ]
}

/// The vector and its state on a device.
struct World<'a> {
    lab: &'a Lab<'a>,
    bus: Buffer<f32>,
    seeded: Buffer<u64>,
    window: Buffer<u32>,
    iqn_averages: Buffer<f64>,
    /// IQN's own loss; none with IQN off.
    iqn_loss: Vec<f32>,
    /// Words of what is due.
    due: [u32; due::N],
    /// Mean sensitivity; none with that off.
    causal_mean: Vec<f32>,
    /// Where the spacing is to move, and the spacing; none with that off.
    proposed: Vec<f32>,
    spacing: Buffer<f32>,
    /// Averages that are off, bit by index.
    off: u64,
}

impl<'a> World<'a> {
    fn new(lab: &'a Lab<'a>) -> Result<Self, DeviceError> {
        let bus = lab.upload(&Isv::at_start(0.05, 1.0, -10.0, 10.0).entries)?;
        let (seeded, window, iqn_averages) = (lab.zeroed(1)?, lab.zeroed(SKIP_WORDS)?, lab.zeroed(2)?);
        let (iqn_loss, causal_mean, proposed, spacing) = (Vec::new(), Vec::new(), Vec::new(), lab.zeroed(0)?);
        let (due, off) = ([0; due::N], 0);
        Ok(Self { lab, bus, seeded, window, iqn_averages, iqn_loss, due, causal_mean, proposed, spacing, off })
    }

    fn step(&self, totals: LossTotals, squared_norm: f32, gated: bool, rng_step: i32) -> Result<(), DeviceError> {
        self.vaccinated_step(totals, squared_norm, gated, rng_step, VaccineScalars::default())
    }

    fn vaccinated_step(
        &self,
        totals: LossTotals,
        squared_norm: f32,
        gated: bool,
        rng_step: i32,
        vaccine: VaccineScalars,
    ) -> Result<(), DeviceError> {
        let gate = if gated { UpdateScalars::GATED | UpdateScalars::STEP_GATED } else { 0 };
        let scalars = [UpdateScalars { gate, squared_norm, ..UpdateScalars::default() }; N_LEARNERS];
        let (totals, scalars) = (self.lab.upload(&[totals])?, self.lab.upload(&scalars)?);
        let counters = self.lab.upload(&[Counters { rng_step, ..Counters::default() }])?;
        let vaccine = self.lab.upload(&[vaccine])?;
        let iqn_loss = self.lab.upload(&self.iqn_loss)?;
        let (due, causal_mean) = (self.lab.upload(&self.due)?, self.lab.upload(&self.causal_mean)?);
        let proposed = self.lab.upload(&self.proposed)?;
        let launch = isv_update::launch(
            totals.view(),
            scalars.view(),
            vaccine.view(),
            counters.view(),
            iqn_loss.view(),
            self.iqn_averages.view_mut(),
            due.view(),
            causal_mean.view(),
            proposed.view(),
            self.spacing.view_mut(),
            self.bus.view_mut(),
            self.seeded.view_mut(),
            self.window.view_mut(),
            self.off,
        );
        self.lab.run(isv_update_shape(), launch)
    }
}

fn random_totals(numbers: &mut Numbers) -> LossTotals {
    let mut values = [0f32; 16];
    values[..13].fill_with(|| (4.0 * numbers.unit()) as f32);
    bytemuck::cast(values)
}

/// An average is a convex combination with three roundings a step, of numbers up to 20, and the rate is a rounding off: under
/// 5 x 2^-24 x 20 a step. Health divides the averages' difference by loss_slow, which is at least 0.5 here: twice their error, and its
/// slope is at most 1.
fn averages_and_health_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let start = Isv::at_start(0.05, 1.0, -10.0, 10.0);
    let mut reference = Reference::at_start(f64::from(0.05f32), 1.0, (-10.0, 10.0));
    reference.entries[isv::GAMMA] = f64::from(start.entries[isv::GAMMA]);
    let (mut numbers, n_steps) = (Numbers::new(1), 60);
    for step in 1..=n_steps {
        let mut totals = random_totals(&mut numbers);
        totals.weighted_ce += 0.5;
        let squared_norm = (400.0 * numbers.unit()) as f32;
        // An average whose first samples are no numbers is seeded by the first that is one.
        if step < 4 || step % 10 == 0 {
            totals.reward_var = f32::NAN;
            totals.q_mean = f32::INFINITY;
        }
        let gated = step == 2 || step % 17 == 0;
        world.step(totals, squared_norm, gated, step)?;
        if !gated {
            let norm = f64::from(squared_norm).sqrt();
            for (entry, sample) in [
                (isv::LOSS_EMA, f64::from(totals.weighted_ce)),
                (isv::GRAD_NORM_EMA, norm),
                (isv::CLIP_EMA, norm),
                (isv::TD_EMA, totals.td_mean.into()),
                (isv::TD_VAR_EMA, totals.td_var.into()),
                (isv::Q_MEAN_EMA, totals.q_mean.into()),
                (isv::Q_VAR_EMA, totals.q_variance.into()),
                (isv::REWARD_EMA, totals.reward_mean.into()),
                (isv::REWARD_VAR_EMA, totals.reward_var.into()),
                (isv::CQL_EMA, totals.cql.into()),
            ] {
                reference.average(entry, sample, RATE);
            }
            reference.average(isv::LOSS_SLOW, totals.weighted_ce.into(), SLOW_RATE);
        }
        reference.close_step(gated);
        let absolute = f64::from(step) * 100.0 * 2f64.powi(-24);
        Tolerance { absolute, relative: 0.0 }.check(
            &format!("the vector after step {step}"),
            &world.bus.read()?,
            &reference.entries,
        )?;
        let seeded = world.seeded.read()?[0];
        for entry in 0..isv::LEN {
            assert_eq!(seeded >> entry & 1 != 0, reference.seeded(entry).is_some(), "entry {entry}, step {step}");
        }
    }
    Ok(())
}

fn a_gated_step_changes_only_what_counts_it(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    world.step(random_totals(&mut Numbers::new(2)), 4.0, false, 1)?;
    let (before, seeded) = (world.bus.read()?, world.seeded.read()?);
    for (n, step) in (2..5).enumerate() {
        let nan = LossTotals { weighted_ce: f32::NAN, objective: f32::NAN, ..random_totals(&mut Numbers::new(3)) };
        world.step(nan, f32::NAN, true, step)?;
        let mut want = before.clone();
        want[isv::SKIPPED_UPDATES] = n as f32 + 1.0;
        // Both averages were seeded by one sample, so they agree, and health counts the skipped steps alone.
        want[isv::HEALTH] = 1.0 / (n as f32 + 2.0);
        assert_eq!(bits(&world.bus.read()?), bits(&want));
        assert_eq!(world.seeded.read()?, seeded);
    }
    Ok(())
}

/// Those averages keep their 0 and have had no sample; the others are what they are beside them.
fn what_is_off_is_left_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let entries = [isv::CQL_EMA, isv::Q_MEAN_EMA, isv::Q_VAR_EMA];
    let (whole, mut world) = (World::new(&lab)?, World::new(&lab)?);
    world.off = entries.iter().fold(0, |bits, entry| bits | 1 << entry);
    let mut numbers = Numbers::new(5);
    for step in 1..4 {
        let totals = random_totals(&mut numbers);
        whole.step(totals, 4.0, false, step)?;
        world.step(totals, 4.0, false, step)?;
        let (mut want, mut seeded) = (whole.bus.read()?, whole.seeded.read()?[0]);
        for entry in entries {
            assert!(want[entry] != 0.0 && seeded >> entry & 1 == 1, "entry {entry} has no sample where it is on");
            want[entry] = 0.0;
            seeded &= !(1 << entry);
        }
        assert_eq!(bits(&world.bus.read()?), bits(&want), "step {step}");
        assert_eq!(world.seeded.read()?[0], seeded, "step {step}");
    }
    Ok(())
}

/// The loss falls, rises above its first value, and in two steps does not count. In f64 but for the loss, which is exact, the rate's
/// rounding (u of its size, a step) and the result's.
fn readiness_follows_the_heads_applied_updates(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut world = World::new(&lab)?;
    let totals = random_totals(&mut Numbers::new(4));
    let mut expected: Option<(f64, f64)> = None;
    for step in 1..=400 {
        let loss = if step < 200 { 4.0 / step as f32 } else { 9.0 };
        let gated = step == 7;
        world.iqn_loss = vec![if gated { f32::NAN } else { loss }];
        world.step(totals, 1.0, gated, step)?;
        if !gated {
            let loss = f64::from(loss);
            expected = Some(expected.map_or((loss, loss), |(ema, first)| (ema + RATE * (loss - ema), first)));
        }
        let (ema, first) = expected.expect("the first step counts");
        let want = reference::iqn::readiness(ema, first);
        let tolerance = Tolerance { absolute: 2.0 * f64::from(step) / 16_777_216.0, relative: 0.0 };
        tolerance.check(&format!("readiness, step {step}"), &[world.bus.read()?[isv::IQN_READINESS]], &[want])?;
    }
    // A loss of 0 in the first step leaves no scale to be ready by.
    let mut world = World::new(&lab)?;
    for step in 1..3 {
        world.iqn_loss = vec![0.0];
        world.step(totals, 1.0, false, step)?;
        assert_eq!(world.bus.read()?[isv::IQN_READINESS], 0.0);
    }
    // Off, nothing is written.
    let world = World::new(&lab)?;
    world.step(totals, 1.0, false, 1)?;
    assert_eq!((world.bus.read()?[isv::IQN_READINESS], world.iqn_averages.read()?), (0.0, vec![0.0; 2]));
    assert_eq!(world.seeded.read()?[0] >> isv::IQN_READINESS & 1, 0);
    Ok(())
}

fn skipped_steps_leave_the_window_after_a_thousand(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let totals = LossTotals { weighted_ce: 1.0, ..LossTotals::default() };
    let skipped = |step: i32| step <= 2 || step % 400 == 0;
    for step in 1..=2410 {
        world.step(totals, 1.0, skipped(step), step)?;
        if step < 5 || step % 200 < 5 {
            let k = (step - 999..=step).filter(|step| *step > 0 && skipped(*step)).count();
            assert_eq!(world.window.read()?[SKIP_WORDS - 1], k as u32, "step {step}");
            assert_eq!(world.bus.read()?[isv::HEALTH], 1.0 / (1.0 + k as f32), "step {step}");
        }
    }
    assert_eq!(world.bus.read()?[isv::SKIPPED_UPDATES], 8.0);
    Ok(())
}

/// The average of the vaccine's cosines: 0 counts as its first sample, a step without a snapshot and a gated one leave it alone.
fn phi_follows_the_cosines_from_zero(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab)?;
    let mut phi = 0.0f64;
    for (step, (cosine, compared, gated)) in
        [(0.5, 1, false), (0.9, 0, false), (-0.75, 1, false), (0.25, 1, true), (1.0, 1, false)].into_iter().enumerate()
    {
        let vaccine = VaccineScalars { cosine, compared, ..VaccineScalars::default() };
        world.vaccinated_step(LossTotals::default(), 1.0, gated, step as i32 + 1, vaccine)?;
        if compared == 1 && !gated {
            phi += RATE * (f64::from(cosine) - phi);
        }
        let got = f64::from(world.bus.read()?[isv::VACCINE_COS_EMA]);
        // Three roundings a step of values under 0.02, and the rate's own.
        assert!((got - phi).abs() <= 20.0 * 2f64.powi(-24) * 0.02, "step {step}: {got}, {phi} expected");
    }
    Ok(())
}

/// The widths of 2, 51 and 64 atoms. A gated step's proposal may be anything.
fn the_proposed_spacing_is_taken_over(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_widths in [1, 50, 63] {
        let mut world = World::new(&lab)?;
        let spacing: Vec<f32> = (0..4 * n_widths).map(|at| at as f32).collect();
        let proposed: Vec<f32> = spacing.iter().map(|width| -1.0 - width).collect();
        world.spacing = lab.upload(&spacing)?;
        for (step, gated, word, moves) in
            [(49, false, 0, false), (50, true, 50, false), (51, false, 0, false), (100, false, 100, true)]
        {
            world.proposed = if gated { vec![f32::NAN; spacing.len()] } else { proposed.clone() };
            world.due[due::SPACING] = word;
            world.step(LossTotals::default(), 1.0, gated, step)?;
            let want = if moves { &proposed } else { &spacing };
            assert_eq!(&world.spacing.read()?, want, "{n_widths} widths, step {step}, gated {gated}");
        }
        assert_eq!(world.bus.read()?[isv::CAUSAL_MEAN], 0.0);
    }
    Ok(())
}

/// It is measured in a gated step as well; what is no number is not taken over.
fn the_mean_sensitivity_is_taken_over(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut world = World::new(&lab)?;
    for (step, mean, gated, word, want) in [
        (99, 0.5, false, 0, 0.0),
        (100, 0.5, false, 100, 0.5),
        (101, 0.75, false, 0, 0.5),
        (200, f32::NAN, false, 200, 0.5),
        (300, f32::INFINITY, true, 300, 0.5),
        (400, 0.25, true, 400, 0.25),
    ] {
        world.causal_mean = vec![mean];
        world.due[due::CAUSAL] = word;
        world.step(LossTotals::default(), 1.0, gated, step)?;
        assert_eq!(world.bus.read()?[isv::CAUSAL_MEAN], want, "step {step}");
        assert_eq!(world.seeded.read()?[0] >> isv::CAUSAL_MEAN & 1, 0, "it is no average");
    }
    Ok(())
}
