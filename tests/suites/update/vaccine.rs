//! The gradient vaccine: its formula by hand, its sums, and whole updates against the reference.

use gpu_kernels::vaccine::{gradvac_multiple, vaccinated};
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Outcome, case, ensure};
use reference::config::Sizes;
use reference::layout::Group;
use reference::vaccine as expected;
use shared_types::learner::THETA;
use shared_types::{Counters, GradientNorm, Precision, SnapshotProducts, UpdateScalars, VaccineScalars, isv};

use crate::world::{PARAMS, Step, World};

pub fn cases() -> Vec<Case> {
    vec![
        case("vaccine::opposite_gradients_by_hand", |device| opposite_gradients_by_hand(&Lab::new(device)?)),
        case("vaccine::updates_are_the_references", |device| Lab::on_all_lanes(device, updates_are_the_references)),
        case("vaccine::a_gated_step_keeps_the_snapshot", |device| {
            Lab::on_all_lanes(device, a_gated_step_keeps_the_snapshot)
        }),
        case("vaccine::weight_zero_is_no_vaccine", |device| Lab::on_all_lanes(device, weight_zero_is_no_vaccine)),
    ]
}

/// |g| = 3, |s| = 2 at a right angle, phi = 0.6: the sum must have the cosine 0.6 with s, so g + m s = (3, 2 m) has 2 m / sqrt(9 +
/// 4 m^2) = 0.6, m = 1.125.
fn opposite_gradients_by_hand(_: &Lab) -> Outcome {
    let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= 1e-6 * want.abs().max(1.0);
    ensure!(close(gradvac_multiple(3.0, 2.0, 0.0, 0.6), 1.125), "{}", gradvac_multiple(3.0, 2.0, 0.0, 0.6));
    let found = GradientNorm { sum_of_squares: 9.0, flags: 0 };
    let with = SnapshotProducts { dot: 0.0, squares: 4.0, kept_squares: 4.0, reserved: 0 };
    let (scalars, norm) = vaccinated(found, with, 0.6, 1.0);
    ensure!(scalars.compared == 1 && scalars.cosine == 0.0 && close(scalars.multiple, 1.125), "{scalars:?}");
    ensure!(close(norm.sum_of_squares, 9.0 + 1.125 * 1.125 * 4.0), "{norm:?}");
    // Above phi nothing is added; half the weight adds half.
    ensure!(vaccinated(found, SnapshotProducts { dot: 5.0, ..with }, 0.6, 1.0).0.multiple == 0.0, "cos 5/6 over 0.6");
    ensure!(close(vaccinated(found, with, 0.6, 0.5).0.multiple, 0.5625), "half the weight");
    // phi of 1, and gradients in one line, are finite.
    let (scalars, _) = vaccinated(found, SnapshotProducts { dot: -6.0, ..with }, 1.0, 1.0);
    ensure!(scalars.multiple.is_finite() && scalars.cosine == -1.0, "{scalars:?}");
    // Nothing to compare.
    let odd = [0.0, f32::NAN, f32::INFINITY];
    for (square, dot, squares) in
        odd.map(|odd| (odd, 1.0, 4.0)).into_iter().chain([(9.0, 0.0, 0.0), (9.0, f32::NAN, 4.0)])
    {
        let found = GradientNorm { sum_of_squares: square, flags: 0 };
        let (scalars, norm) = vaccinated(found, SnapshotProducts { dot, squares, ..with }, 0.6, 1.0);
        ensure!(scalars == VaccineScalars::default(), "{square} {dot} {squares}: {scalars:?}");
        ensure!(norm.sum_of_squares.to_bits() == square.to_bits(), "{square}: {norm:?}");
    }
    Ok(())
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Successive gradients that agree, disagree and are opposed, with phi on both sides of their cosines. g s and the squares are off by
/// c = (h + 32) 2^-24 of |g| |s|, c under 60 2^-24 as h is under 25 here; so the cosine by 2 c, the multiple by (2 c + 8 roundings) / sqrt(1 - phi^2)
/// of |g| / |s|, and each element of the sum by that times |s_i|. Compared is the first moment, a tenth of the clipped sum.
fn updates_are_the_references(lab: &Lab) -> Outcome {
    let mut world = World::new(lab, Sizes::TINY, Precision::Bf16)?;
    let theta = world.layout.range(Group::Theta);
    world.snapshot = lab.zeroed(theta.len())?;
    let mut numbers = Numbers::new(21);
    let first = world.gradient(&mut numbers, 1.0);
    let mut snapshot: Option<Vec<f64>> = None;
    for (t, (phi, mix)) in
        [(0.3f32, 1.0f32), (0.3, 0.9), (0.9, 0.4), (-0.5, -0.8), (0.99, 0.0), (-0.99, -1.0)].into_iter().enumerate()
    {
        let other = world.gradient(&mut numbers, 1.0);
        let gradient: Vec<f32> = first.iter().zip(&other).map(|(a, b)| mix * a + (1.0 - mix.abs()) * b).collect();
        world.counters.write(&[bytemuck::cast::<_, Counters>([t as i32 + 1; 8])])?;
        world.bus.slice(isv::VACCINE_COS_EMA..isv::VACCINE_COS_EMA + 1).write(&[phi])?;
        world.first.zero()?;
        world.update(&gradient, &Step::default(), PARAMS)?;
        let of_theta = wide(&gradient[theta.clone()]);
        let want = snapshot.as_ref().and_then(|snapshot| expected::vaccine(&of_theta, snapshot, phi.into(), 1.0));
        let got = world.vaccine.read()?[0];
        ensure!((got.compared == 1) == want.is_some(), "step {t}: {got:?}, {want:?} expected");
        let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let (mut sum, mut off) = (of_theta.clone(), 0.0);
        let c = 60.0 * 2f64.powi(-24);
        if let (Some(want), Some(snapshot)) = (&want, &snapshot) {
            let sine = (1.0 - f64::from(phi).powi(2)).sqrt();
            off = (2.0 * c + 8.0 * 2f64.powi(-24)) / sine * norm(&of_theta) / norm(snapshot);
            println!(
                "step {t}: cosine {:.3}, phi {phi}, multiple {:.3} off by {:.1e}",
                want.cosine,
                want.multiple,
                f64::from(got.multiple) - want.multiple
            );
            ensure!((f64::from(got.cosine) - want.cosine).abs() <= 2.0 * c, "step {t}: {got:?}, {want:?} expected");
            ensure!((f64::from(got.multiple) - want.multiple).abs() <= off, "step {t}: {got:?}, {want:?} expected");
            ensure!((got.multiple == 0.0) == (want.multiple == 0.0), "step {t}");
            sum.iter_mut().zip(snapshot).for_each(|(g, s)| *g += want.multiple * s);
        }
        let scalars = world.scalars.read()?[THETA];
        let square = norm(&sum).powi(2);
        // Cancelled terms are as large as |g|^2 + 2 m |g| |s| + m^2 |s|^2.
        let multiple = want.map_or(0.0, |want| want.multiple);
        let terms = (norm(&of_theta) + multiple * snapshot.as_deref().map_or(0.0, norm)).powi(2);
        let off_square = 3.0 * c * terms + 2.0 * off * snapshot.as_deref().map_or(0.0, norm) * norm(&sum);
        ensure!(
            (f64::from(scalars.squared_norm) - square).abs() <= off_square,
            "step {t}: {} {square}",
            scalars.squared_norm
        );
        let scale = f64::from(scalars.gradient_scale);
        let moments: Vec<f64> = sum.iter().map(|g| 0.1 * scale * g).collect();
        let most = snapshot.as_deref().map_or(0.0, |snapshot| snapshot.iter().fold(0f64, |most, s| most.max(s.abs())));
        let absolute = 0.1 * scale * (off * most + 4.0 * 2f64.powi(-24) * (1.0 + multiple.abs() * most));
        let tolerance = Tolerance { absolute, relative: 4.0 * 2f64.powi(-24) };
        tolerance.check(&format!("first moments of step {t}"), &world.first.read()?[theta.clone()], &moments)?;
        ensure!(
            bits(&world.snapshot.read()?) == bits(&gradient[theta.clone()]),
            "step {t}: the snapshot is the gradient without vaccine"
        );
        snapshot = Some(of_theta);
    }
    Ok(())
}

fn a_gated_step_keeps_the_snapshot(lab: &Lab) -> Outcome {
    let mut world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
    let theta = world.layout.range(Group::Theta);
    world.snapshot = lab.zeroed(theta.len())?;
    let mut numbers = Numbers::new(22);
    let applied = world.gradient(&mut numbers, 1.0);
    world.update(&applied, &Step::default(), PARAMS)?;
    for value in [f32::NAN, f32::INFINITY] {
        let mut gradient = world.gradient(&mut numbers, 1.0);
        gradient[theta.start + 3] = value;
        world.update(&gradient, &Step::default(), PARAMS)?;
        assert_ne!(world.scalars.read()?[THETA].gate & UpdateScalars::GATED, 0);
        assert_eq!(world.vaccine.read()?[0], VaccineScalars::default(), "nothing is compared with {value}");
        assert_eq!(bits(&world.snapshot.read()?), bits(&applied[theta.clone()]));
    }
    Ok(())
}

/// With weight 0 the update's bits are those without a vaccine.
fn weight_zero_is_no_vaccine(lab: &Lab) -> Outcome {
    let run = |vaccine: bool| -> Result<_, onegraph_tests::Failed> {
        let mut world = World::new(lab, Sizes::MINIATURE, Precision::Bf16)?;
        if vaccine {
            world.snapshot = lab.zeroed(world.layout.range(Group::Theta).len())?;
        }
        // Compared, and found to disagree.
        world.bus.slice(isv::VACCINE_COS_EMA..isv::VACCINE_COS_EMA + 1).write(&[0.9])?;
        let mut numbers = Numbers::new(23);
        for t in 1..=3 {
            world.counters.write(&[bytemuck::cast::<_, Counters>([t; 8])])?;
            let params = shared_types::GateParams { vaccine_weight: 0.0, ..PARAMS };
            world.update(&world.gradient(&mut numbers, 1.0), &Step::default(), params)?;
        }
        Ok(world.learned()?)
    };
    ensure!(run(true)? == run(false)?, "a vaccine of weight 0 changed the update");
    Ok(())
}
