//! `tau_update`, `gamma_update`, `epsilon_update`.

use gpu_kernels::boundary::{EpsilonSchedule, boundary_shape, epsilon_update, gamma_update, tau_update};
use host::device::Device;
use onegraph_tests::lab::{Lab, Tolerance};
use onegraph_tests::{Case, Outcome, case};
use reference::boundary;
use shared_types::{Counters, StepScalars, isv};

use crate::scene::U;

pub fn cases() -> Vec<Case> {
    vec![
        case("boundary::tau_update_keeps_health_alone", tau_update_keeps_health_alone),
        case("boundary::gamma_follows_health", gamma_follows_health),
        case("boundary::epsilon_follows_its_equation", epsilon_follows_its_equation),
    ]
}

/// A bus of numbers that tell the entries apart.
fn bus() -> [f32; isv::LEN] {
    std::array::from_fn(|index| 100.0 + index as f32)
}

fn tau_update_keeps_health_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let before =
        StepScalars { lr: 1.0, clip: 2.0, beta: 3.0, tau: 4.0, depth_mask: [5.0, 6.0], health_at_epoch: 7.0, flags: 8 };
    let (bus_buffer, scalars) = (lab.upload(&bus())?, lab.upload(&[before])?);
    lab.run(boundary_shape(), tau_update::launch(bus_buffer.view(), scalars.view_mut()))?;
    assert_eq!(scalars.read()?, [StepScalars { health_at_epoch: 112.0, ..before }]);
    Ok(())
}

fn gamma_follows_health(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for health in [0.0f32, 0.3, 1.0] {
        let mut entries = bus();
        entries[isv::HEALTH] = health;
        let bus_buffer = lab.upload(&entries)?;
        lab.run(boundary_shape(), gamma_update::launch(bus_buffer.view_mut()))?;
        let got = bus_buffer.read()?;
        Tolerance { absolute: 3.0 * U, relative: 0.0 }.check("gamma", &[got[43]], &[boundary::gamma(health as f64)])?;
        entries[43] = got[43];
        assert_eq!(got, entries, "nothing else is written");
    }
    Ok(())
}

/// Eight operations on numbers up to 2, an exponential of 4 u whose argument is off by u of itself, at most 0.37 of it: 24 u.
/// The reference's constants are those that f32 holds.
fn epsilon_follows_its_equation(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (start, end, decay, steps_per_epoch) in [(1.0f32, 0.02f32, 20.0f32, 178u32), (1.0, 0.05, 2.0, 20)] {
        let schedule = EpsilonSchedule { start, end, decay, steps_per_epoch };
        let exact = boundary::EpsilonSchedule {
            start: start as f64,
            end: end as f64,
            decay: decay as f64,
            steps_per_epoch: steps_per_epoch as u64,
        };
        for adam_t in [0, 1, 19, 20, 177, 178, 1000, 35_600, 2_000_000_000] {
            for (volatility, health) in [(0.0f32, 1.0f32), (0.5, 0.5), (1.0, 1.0), (1.0, 0.01)] {
                let mut entries = bus();
                entries[isv::HEALTH] = health;
                entries[isv::REGIME_VOLATILITY] = volatility;
                let (bus_buffer, counters) =
                    (lab.upload(&entries)?, lab.upload(&[Counters { adam_t, ..Counters::default() }])?);
                lab.run(boundary_shape(), epsilon_update::launch(bus_buffer.view_mut(), counters.view(), schedule))?;
                let got = bus_buffer.read()?;
                let want = boundary::epsilon(&exact, adam_t as u64, volatility as f64, health as f64);
                let what = format!("epsilon at {adam_t}, volatility {volatility}, health {health}");
                Tolerance { absolute: 24.0 * U, relative: 0.0 }.check(&what, &[got[41]], &[want])?;
                assert!(got[41] <= 1.0 && got[41] >= end);
                entries[41] = got[41];
                assert_eq!(got, entries, "nothing else is written");
            }
        }
    }
    Ok(())
}
