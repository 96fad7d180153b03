//! The layout, and sizes and values at the edges.

use gpu_kernels::attention::{
    Block, EMBED, EMBED_BIAS, WIDTH, attention_n_parts, attention_tensor_n_parts, n_parameters,
};
use host::agent::Sizes;
use host::agent::layout::{Group, Layout};
use host::device::Device;
use onegraph_tests::lab::Lab;
use onegraph_tests::{Case, Outcome, case, ensure, host_case};
use shared_types::Precision;

use crate::passes::compare;
use crate::problem::{PRECISIONS, Problem, Way, n_threads, ways};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("edges::offsets_are_the_layouts", offsets_are_the_layouts),
        host_case("edges::every_block_has_a_tile", every_block_has_a_tile),
        case("edges::every_window_is_the_references", every_window_is_the_references),
        case("edges::no_row_leaves_zero_gradients", no_row_leaves_zero_gradients),
        case("edges::a_nan_stays_in_its_row", a_nan_stays_in_its_row),
        case("edges::huge_values_stay_finite", huge_values_stay_finite),
    ]
}

fn offsets_are_the_layouts() -> Outcome {
    for window in (4..=64).step_by(4) {
        let layout = Layout::new(&Sizes { window, hidden: 64, branch_hidden: 32, atoms: 51 });
        let group = layout.group(Group::Attention);
        let starts_at = |name: &str, offset: usize| {
            let start = layout.range(&format!("attention.{name}")).start;
            assert_eq!(start, group.start + offset, "{name}, T {window}");
        };
        starts_at("embed.weight", EMBED);
        starts_at("embed.bias", EMBED_BIAS);
        for (over, block) in [("bars", Block::bars()), ("channels", Block::channels(window))] {
            for (number, matrix) in ["wq", "wk", "wv", "wo"].into_iter().enumerate() {
                starts_at(&format!("{over}.{matrix}"), block.matrix(number));
            }
            starts_at(&format!("{over}.gain"), block.gain());
        }
        assert_eq!(group.len(), n_parameters(window), "T {window}");
    }
    Ok(())
}

/// No part of the gradients is without rows, but for no row at all.
fn every_block_has_a_tile() -> Outcome {
    for n_rows in [0usize, 1, 15, 16, 17, 8192] {
        assert!(attention_tensor_n_parts(n_rows) <= n_rows.div_ceil(8).max(1), "{n_rows} rows, on the tensor cores");
        for n_threads in [1, 256] {
            let n_tiles = n_rows.div_ceil(16);
            assert!(attention_n_parts(n_rows, 4, n_threads) <= n_tiles.max(1), "{n_rows} rows, {n_threads} threads");
        }
    }
    Ok(())
}

/// All windows that the configuration allows, one row more than a tile holds.
fn every_window_is_the_references(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let way = Way::Plain(n_threads(&lab)[0]);
    for window in (4..=64).step_by(4) {
        let problem = Problem::new(64 / window + 1, window, window as u64);
        let want = problem.reference(Precision::F32).output;
        let got = problem.forward(&lab, Precision::F32, way)?;
        compare(&format!("output, T {window}"), &got, &want.values, 1e-5)?;
        let want = problem.reference_gradients(Precision::F32);
        let want = &want.flat[problem.first()..][..problem.n_parameters()];
        let got = problem.gradients(&lab, Precision::F32, way)?;
        compare(&format!("gradients, T {window}"), &got, want, 1e-5)?;
    }
    Ok(())
}

fn no_row_leaves_zero_gradients(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(0, 8, 1);
    for way in ways(&lab, Precision::Bf16, 8) {
        ensure!(problem.forward(&lab, Precision::Bf16, way)?.is_empty(), "an output of no row");
        let gradients = problem.gradients(&lab, Precision::Bf16, way)?;
        ensure!(gradients.iter().all(|&gradient| gradient == 0.0), "a gradient of no row");
    }
    Ok(())
}

fn a_nan_stays_in_its_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(9, 8, 3);
    for precision in PRECISIONS {
        for way in ways(&lab, precision, 8) {
            let clean = problem.forward(&lab, precision, way)?;
            let mut faulty = problem.clone();
            faulty.bars[(4 * 8 + 2, 5)] = f64::NAN;
            let output = faulty.forward(&lab, precision, way)?;
            for (row, (got, clean)) in output.chunks_exact(WIDTH).zip(clean.chunks_exact(WIDTH)).enumerate() {
                let expected = if row == 4 { got.iter().all(|value| value.is_nan()) } else { got == clean };
                ensure!(expected, "{precision:?}, {way:?}: row {row}");
            }
            let gradients = faulty.gradients(&lab, precision, way)?;
            for block in [Block::bars(), Block::channels(8)] {
                for number in 0..4 {
                    ensure!(gradients[block.matrix(number)].is_nan(), "{precision:?}: a gradient hides the NaN");
                }
            }
        }
    }
    Ok(())
}

/// Softmax at its ends: features of 250 give scores of many thousands, whose exponentials neither overflow nor leave a sum of 0.
fn huge_values_stay_finite(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut problem = Problem::new(5, 8, 4);
    problem.bars = problem.bars.map(|feature| f64::from((1e2 * feature) as f32));
    for precision in PRECISIONS {
        for way in ways(&lab, precision, 8) {
            let output = problem.forward(&lab, precision, way)?;
            ensure!(output.iter().all(|value| value.is_finite()), "{precision:?}, {way:?}: an output is not finite");
            let gradients = problem.gradients(&lab, precision, way)?;
            let finite = gradients.iter().all(|gradient| gradient.is_finite());
            ensure!(finite, "{precision:?}, {way:?}: a gradient is not finite");
        }
    }
    Ok(())
}
