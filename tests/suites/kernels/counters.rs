//! `increment_step_counters`.

use gpu_kernels::counters::{increment_step_counters, increment_step_counters_shape};
use host::device::Device;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Tolerance};
use onegraph_tests::{Case, Outcome, case};
use shared_types::{Control, Counters, Schedule, StepScalars, due, isv};

pub fn cases() -> Vec<Case> {
    vec![
        case("counters::the_first_step_sees_ones", the_first_step_sees_ones),
        case("counters::each_counter_keeps_its_own_count", each_counter_keeps_its_own_count),
        case("counters::schedules_follow_their_equations", schedules_follow_their_equations),
        case("counters::control_is_read_anew_each_step", control_is_read_anew_each_step),
        case("counters::of_the_bus_only_tau_is_written", of_the_bus_only_tau_is_written),
        case("counters::work_is_due_every_so_many_steps", work_is_due_every_so_many_steps),
        case("counters::depth_masks_keep_as_often_as_they_should", depth_masks_keep_as_often_as_they_should),
    ]
}

const SCHEDULE: Schedule = Schedule {
    tau_init: 0.05,
    tau_final: 0.01,
    anneal_steps: 100,
    total_steps: 80,
    seed: [5, 6],
    depth_keep_last: 0.9,
    every: [0; due::N],
};

const CONTROL: Control =
    Control { lr: 3e-4, clip: 10.0, beta0: 0.4, flags: 0, stamp_begin: 0, stamp_end: 0, reserved: [0; 10] };

/// The state before a step.
struct State {
    control: Control,
    counters: Counters,
    health_at_epoch: f32,
    bus: [f32; isv::LEN],
}

impl State {
    fn at(adam_t: i32) -> Self {
        let counters = Counters { adam_t, rng_step: adam_t, ..Counters::default() };
        Self { control: CONTROL, counters, health_at_epoch: 1.0, bus: [0.0; isv::LEN] }
    }

    /// One step; what it leaves.
    fn step(&self, lab: &Lab, schedule: Schedule) -> Result<(Counters, StepScalars, Vec<f32>), DeviceError> {
        let (counters, scalars, bus, _) = self.step_with_due(lab, schedule)?;
        Ok((counters, scalars, bus))
    }

    /// The same, with the words of what is due.
    fn step_with_due(
        &self,
        lab: &Lab,
        schedule: Schedule,
    ) -> Result<(Counters, StepScalars, Vec<f32>, Vec<u32>), DeviceError> {
        let control = lab.upload(&[self.control])?;
        let counters = lab.upload(&[self.counters])?;
        // What no step has written yet is NaN: the kernel must fill all but the health.
        let poison = StepScalars {
            lr: f32::NAN,
            clip: f32::NAN,
            beta: f32::NAN,
            tau: f32::NAN,
            depth_mask: [f32::NAN; 2],
            health_at_epoch: self.health_at_epoch,
            flags: u32::MAX,
        };
        let scalars = lab.upload(&[poison])?;
        let (bus, due) = (lab.upload(&self.bus)?, lab.upload(&[u32::MAX; due::N])?);
        // SAFETY: `control` holds one `Control`, which the host writes by whole fields if at all.
        let launch = unsafe {
            increment_step_counters::launch(
                control.ptr(),
                counters.view_mut(),
                scalars.view_mut(),
                bus.view_mut(),
                due.view_mut(),
                schedule,
            )
        };
        lab.run(increment_step_counters_shape(), launch)?;
        Ok((counters.read()?[0], scalars.read()?[0], bus.read()?, due.read()?))
    }
}

fn the_first_step_sees_ones(device: &Device) -> Outcome {
    let (counters, _, _) = State::at(0).step(&Lab::new(device)?, SCHEDULE)?;
    let all: [i32; 8] = bytemuck::cast(counters);
    assert_eq!(all, [1; 8]);
    Ok(())
}

fn each_counter_keeps_its_own_count(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    // A gated learner has taken its step back, so counters differ.
    let mut state = State::at(0);
    state.counters = bytemuck::cast([10i32, 20, 30, 40, 50, 60, 70, 80]);
    let (counters, _, _) = state.step(&lab, SCHEDULE)?;
    assert_eq!(bytemuck::cast::<_, [i32; 8]>(counters), [11, 21, 31, 41, 51, 61, 71, 81]);
    Ok(())
}

/// tau: the cosine is within 2^-23, and each of five operations rounds once: 8 x 2^-24 of tau_init. beta: three roundings of
/// numbers up to 1.
fn schedules_follow_their_equations(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (mut tau, mut tau_want, mut beta, mut beta_want) = (vec![], vec![], vec![], vec![]);
    for before in [0, 1, 24, 39, 49, 50, 74, 78, 79, 80, 98, 99, 100, 101, 5000, 2_000_000_000] {
        for health in [1.0f32, 0.25] {
            let mut state = State::at(before);
            state.health_at_epoch = health;
            let (counters, scalars, _) = state.step(&lab, SCHEDULE)?;
            let t = counters.adam_t as f64;
            let progress = (t / 100.0).min(1.0);
            let (init, last) = (SCHEDULE.tau_init as f64, SCHEDULE.tau_final as f64);
            let cosine = last + (init - last) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
            tau.push(scalars.tau);
            tau_want.push(cosine * (0.5 + 0.5 * health as f64));
            beta.push(scalars.beta);
            beta_want.push(CONTROL.beta0 as f64 + (1.0 - CONTROL.beta0 as f64) * (t / 80.0).min(1.0));
            assert_eq!(scalars.health_at_epoch, health, "the health of the epoch is not this kernel's to write");
        }
    }
    Tolerance { absolute: 8.0 * 2f64.powi(-24) * 0.05, relative: 0.0 }.check("tau", &tau, &tau_want)?;
    Tolerance { absolute: 3.0 * 2f64.powi(-24), relative: 0.0 }.check("beta", &beta, &beta_want)?;
    // The ends are exact, also for a run whose schedules have no length.
    let end = Schedule { anneal_steps: 0, total_steps: 0, ..SCHEDULE };
    let (_, scalars, _) = State::at(0).step(&lab, end)?;
    assert_eq!((scalars.tau, scalars.beta), (0.01, 1.0));
    Ok(())
}

fn control_is_read_anew_each_step(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut state = State::at(3);
    for (lr, clip, beta0, flags) in [(3e-4, 10.0, 0.4, 0), (1e-5, 2.0, 1.0, 7)] {
        state.control = Control { lr, clip, beta0, flags, ..CONTROL };
        let (_, scalars, _) = state.step(&lab, SCHEDULE)?;
        assert_eq!((scalars.lr, scalars.clip, scalars.flags), (lr, clip, flags));
    }
    let (_, scalars, _) = state.step(&lab, SCHEDULE)?;
    assert_eq!(scalars.beta, 1.0, "beta0 = 1 leaves nothing to rise");
    Ok(())
}

fn of_the_bus_only_tau_is_written(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut state = State::at(7);
    state.bus = std::array::from_fn(|index| 100.0 + index as f32);
    let (_, scalars, bus) = state.step(&lab, SCHEDULE)?;
    let mut expected = state.bus;
    expected[42] = scalars.tau;
    assert_eq!(bus, expected);
    Ok(())
}

/// Whatever the learners took back: rng_step counts. A word is the step that it is of.
fn work_is_due_every_so_many_steps(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut schedule = SCHEDULE;
    (schedule.every[due::CAUSAL], schedule.every[due::SPACING]) = (3, 50);
    let never = Schedule { every: [0; due::N], ..SCHEDULE };
    for (rng_step, causal, spacing) in
        [(1, 0, 0), (3, 3, 0), (49, 0, 0), (50, 0, 50), (51, 51, 0), (100, 0, 100), (150, 150, 150)]
    {
        let mut state = State::at(7);
        state.counters.rng_step = rng_step - 1;
        let (_, _, _, words) = state.step_with_due(&lab, schedule)?;
        assert_eq!((words[due::CAUSAL], words[due::SPACING]), (causal, spacing), "step {rng_step}");
        assert_eq!(state.step_with_due(&lab, never)?.3, [0; due::N], "step {rng_step}, never");
    }
    Ok(())
}

/// Keep probabilities 0.95 and 0.9 over n steps, each within five standard errors; the two blocks' draws are independent.
fn depth_masks_keep_as_often_as_they_should(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let n = 4000;
    let (mut kept, mut both) = ([0u32; 2], 0u32);
    for step in 0..n {
        let (_, scalars, _) = State::at(step).step(&lab, SCHEDULE)?;
        let [first, second] = scalars.depth_mask;
        assert!([first, second].iter().all(|mask| *mask == 0.0 || *mask == 1.0));
        kept[0] += first as u32;
        kept[1] += second as u32;
        both += (first * second) as u32;
    }
    for (count, probability) in [(kept[0], 0.95f64), (kept[1], 0.9), (both, 0.95 * 0.9)] {
        let n = n as f64;
        let error = (n * probability * (1.0 - probability)).sqrt();
        assert!((count as f64 - n * probability).abs() < 5.0 * error, "{count} of {n} kept, {probability} expected");
    }
    Ok(())
}
