//! The layout, and sizes and values at the edges.

use gpu_kernels::temporal::{N_PARAMETERS, WIDTH, offset, temporal_n_parts};
use host::agent::Sizes;
use host::agent::layout::{Group, Layout};
use host::device::Device;
use onegraph_tests::lab::Lab;
use onegraph_tests::{Case, Outcome, case, ensure, host_case};
use shared_types::Precision;

use crate::passes::{compare, tolerance};
use crate::problem::{PRECISIONS, Problem, ways};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("edges::offsets_are_the_layouts", offsets_are_the_layouts),
        host_case("edges::every_block_has_a_tile", every_block_has_a_tile),
        case("edges::no_row_leaves_zero_gradients", no_row_leaves_zero_gradients),
        case("edges::windows_that_fill_no_tile", windows_that_fill_no_tile),
        case("edges::a_nan_stays_in_its_row", a_nan_stays_in_its_row),
        case("edges::huge_values_stay_finite", huge_values_stay_finite),
    ]
}

fn offsets_are_the_layouts() -> Outcome {
    let layout = Layout::new(&Sizes { window: 8, hidden: 64, branch_hidden: 32, atoms: 51 });
    let expected = [
        ("embed.weight", offset::EMBED),
        ("embed.bias", offset::EMBED_BIAS),
        ("in_proj.weight", offset::IN_PROJ),
        ("conv.weight", offset::CONV),
        ("conv.bias", offset::CONV_BIAS),
        ("dt_bias", offset::DT_BIAS),
        ("a_log", offset::A_LOG),
        ("d", offset::D),
        ("norm.gain", offset::GAIN),
        ("out_proj.weight", offset::OUT_PROJ),
    ];
    let first = layout.group(Group::Theta).start;
    for (name, offset) in expected {
        assert_eq!(layout.range(&format!("temporal.{name}")).start, first + offset, "{name}");
    }
    assert_eq!(layout.range("trunk.in.weight").start, first + N_PARAMETERS);
    Ok(())
}

/// No part of the gradients is without rows, but for no row at all.
fn every_block_has_a_tile() -> Outcome {
    for n_threads in [1, 256] {
        for n_rows in [0usize, 1, 15, 16, 17, 8192] {
            let n_tiles = n_rows.div_ceil(16);
            assert!(temporal_n_parts(n_rows, 4, n_threads) <= n_tiles.max(1), "{n_rows} rows, {n_threads} threads");
        }
    }
    Ok(())
}

fn no_row_leaves_zero_gradients(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(0, 8, 1);
    for way in ways(&lab, Precision::Bf16) {
        ensure!(problem.forward(&lab, Precision::Bf16, way)?.is_empty(), "an output of no row");
        let gradients = problem.gradients(&lab, Precision::Bf16, way)?;
        ensure!(gradients.iter().all(|&gradient| gradient == 0.0), "a gradient of no row");
    }
    Ok(())
}

/// Five rows of 12 bars leave 4 of a tile's 64 unused, of 36 bars there is one row a tile, and one of 64 is a tile.
fn windows_that_fill_no_tile(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (window, n_rows) in [(12, 7), (36, 3), (64, 2)] {
        let problem = Problem::new(n_rows, window, window as u64);
        for precision in PRECISIONS {
            for way in ways(&lab, precision) {
                let what = format!("T {window}, {precision:?}, {way:?}");
                let want = problem.reference(precision).output;
                let got = problem.forward(&lab, precision, way)?;
                compare(&what, &got, &want.values, tolerance(precision))?;
                let want = problem.reference_gradients(precision);
                let got = problem.gradients(&lab, precision, way)?;
                compare(&format!("gradients, {what}"), &got, &want.flat[..N_PARAMETERS], tolerance(precision))?;
            }
        }
    }
    Ok(())
}

fn a_nan_stays_in_its_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(9, 8, 3);
    for precision in PRECISIONS {
        for way in ways(&lab, precision) {
            let clean = problem.forward(&lab, precision, way)?;
            let mut faulty = problem.clone();
            faulty.bars[(4 * 8 + 2, 5)] = f64::NAN;
            let output = faulty.forward(&lab, precision, way)?;
            for (row, (got, clean)) in output.chunks_exact(WIDTH).zip(clean.chunks_exact(WIDTH)).enumerate() {
                let expected = if row == 4 { got.iter().all(|value| value.is_nan()) } else { got == clean };
                ensure!(expected, "{precision:?}, {way:?}: row {row}");
            }
            let gradients = faulty.gradients(&lab, precision, way)?;
            ensure!(gradients[offset::OUT_PROJ].is_nan(), "{precision:?}: a gradient hides the NaN");
        }
    }
    Ok(())
}

/// SiLU, softplus and the decay at their ends: features of 250, and a dt_bias where e^-x overflows and dt
/// underflows.
fn huge_values_stay_finite(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut problem = Problem::new(5, 8, 4);
    problem.bars = problem.bars.map(|feature| f64::from((1e2 * feature) as f32));
    problem.parameters.slice_mut("temporal.dt_bias").copy_from_slice(&[-1e6, -80.0, 80.0, 1e3]);
    for way in ways(&lab, Precision::F32) {
        let output = problem.forward(&lab, Precision::F32, way)?;
        compare("output", &output, &problem.reference(Precision::F32).output.values, 1e-4)?;
        let gradients = problem.gradients(&lab, Precision::F32, way)?;
        ensure!(gradients.iter().all(|gradient| gradient.is_finite()), "{way:?}: a gradient is not finite");
    }
    Ok(())
}
