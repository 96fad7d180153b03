//! Causal sensitivity: its interventions and its mean against their definitions, and launches that hang on a word.

use gpu_kernels::causal::{
    causal_rows, causal_rows_shape, causal_sensitivity, causal_sensitivity_shape, n_pass_rows, n_rows,
};
use gpu_kernels::philox::uniform;
use gpu_kernels::scan::i64_to_u32;
use host::device::{Buffer, Device};
use host::graph::{ChildGraph, ParentGraph};
use host::images::KERNELS;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{Readback, stream};

pub fn cases() -> Vec<Case> {
    vec![
        case("causal::each_row_takes_one_feature_of_another", |device| {
            each_row_takes_one_feature_of_another(&Lab::new(device)?)
        }),
        case("causal::the_mean_is_the_definition_s", |device| Lab::on_all_lanes(device, the_mean_is_the_definition_s)),
        case("causal::a_mean_that_is_no_number_is_not_told", |device| {
            Lab::on_all_lanes(device, a_mean_that_is_no_number_is_not_told)
        }),
        case("causal::a_launch_hangs_on_its_word_at_each_replay", |device| {
            a_launch_hangs_on_its_word_at_each_replay(device, &Lab::new(device)?)
        }),
    ]
}

const SEED: [u32; 2] = [77, 3];
const N_FEATURES: usize = 24;

fn each_row_takes_one_feature_of_another(lab: &Lab) -> Outcome {
    for (n, window, stride) in [(1usize, 4usize, 128usize), (2, 4, 128), (33, 4, 112), (256, 8, 256), (301, 4, 128)] {
        let mut numbers = Numbers::new(n as u64);
        let states: Vec<f32> = (0..n * stride).map(|_| numbers.unit() as f32).collect();
        let buffer = lab.upload(&states)?;
        let rows = lab.upload(&vec![-1.0f32; n_pass_rows(n) * stride])?;
        let last_bar = (window - 1) * N_FEATURES;
        let run = |word: u32| -> Outcome {
            let (step, rows, last_bar) = (lab.upload(&[word])?, rows.view_mut(), last_bar as u32);
            let launch = causal_rows::launch(buffer.view(), step.view(), rows, SEED, stride as u32, last_bar);
            Ok(lab.run(causal_rows_shape(), launch.only_if(&step.ptr()))?)
        };
        run(0)?;
        ensure!(rows.read()?.iter().all(|&x| x == -1.0), "{n}: it is not due");
        run(300)?;
        let (got, r) = (rows.read()?, n_rows(n));
        let shift = 1 + (f64::from(uniform(SEED, stream::CAUSAL, 300, 0)) * (r - 1) as f64) as usize;
        ensure!(r == 1 || (1..r).contains(&shift), "{n}: shift {shift}");
        for intervention in 0..=N_FEATURES {
            for row in 0..r {
                let mut want = states[row * stride..(row + 1) * stride].to_vec();
                if intervention > 0 {
                    let column = last_bar + intervention - 1;
                    want[column] = states[(row + shift) % r * stride + column];
                }
                let at = (intervention * r + row) * stride;
                ensure!(got[at..at + stride] == want, "{n}: row {row} of intervention {intervention}");
            }
        }
    }
    Ok(())
}

/// What the two kernels' host side takes.
struct Told {
    sensitivity: Buffer<f32>,
    mean: Buffer<f32>,
    readback: Buffer<Readback>,
}

impl Told {
    fn new(lab: &Lab) -> Result<Self, Failed> {
        let readback = Readback { causal_mean_sens: 0.25, total_loss: 3.0, ..Readback::default() };
        Ok(Self { sensitivity: lab.poisoned(N_FEATURES)?, mean: lab.zeroed(1)?, readback: lab.upload(&[readback])? })
    }

    fn launch(&self, q: &Buffer<f32>) -> cuda_std::launch::Launch {
        let (sensitivity, mean) = (self.sensitivity.view_mut(), self.mean.view_mut());
        causal_sensitivity::launch(q.view(), sensitivity, mean, self.readback.view_mut())
    }

    fn run(&self, lab: &Lab, q: &[f32]) -> Outcome {
        Ok(lab.run(causal_sensitivity_shape(lab.lanes()), self.launch(&lab.upload(q)?))?)
    }
}

/// Values of Q under 8: a difference is a rounding of at most 8 2^-24 off, a sum of 4 R of them at most 4 R roundings of the sum.
fn the_mean_is_the_definition_s(lab: &Lab) -> Outcome {
    const BRANCHES: [std::ops::Range<usize>; 4] = [0..4, 4..7, 7..10, 10..13];
    for n in [1usize, 3, 32, 100, 256, 500] {
        let r = n_rows(n);
        let mut numbers = Numbers::new(n as u64);
        let q: Vec<f32> = (0..n_pass_rows(n) * 13).map(|_| (16.0 * numbers.unit() - 8.0) as f32).collect();
        let told = Told::new(lab)?;
        told.run(lab, &q)?;
        let most = |row: usize, branch: &std::ops::Range<usize>| {
            branch.clone().map(|action| f64::from(q[row * 13 + action])).fold(f64::NEG_INFINITY, f64::max)
        };
        let got = told.sensitivity.read()?;
        let mut mean = 0.0;
        for (feature, got) in got.into_iter().enumerate() {
            let of_row = |row: usize| -> f64 {
                BRANCHES.iter().map(|branch| (most(row, branch) - most((feature + 1) * r + row, branch)).abs()).sum()
            };
            let want = (0..r).map(of_row).sum::<f64>() / (4 * r) as f64;
            let bound = 2f64.powi(-24) * (8.0 + (4 * r) as f64 * want);
            ensure!((f64::from(got) - want).abs() <= bound, "{n}, feature {feature}: {got} {want}");
            mean += want / N_FEATURES as f64;
        }
        let readback = told.readback.read()?[0];
        let bound = 2f64.powi(-24) * (8.0 + (4 * r + 24) as f64 * mean);
        ensure!((f64::from(readback.causal_mean_sens) - mean).abs() <= bound, "{n}: {readback:?}, {mean} expected");
        ensure!(told.mean.read()?[0].to_bits() == readback.causal_mean_sens.to_bits(), "{n}: what the step takes over");
        ensure!(readback.total_loss == 3.0, "the rest of the readback stays");
    }
    Ok(())
}

fn a_mean_that_is_no_number_is_not_told(lab: &Lab) -> Outcome {
    for value in [f32::NAN, f32::INFINITY] {
        let told = Told::new(lab)?;
        let mut q = vec![1.0; n_pass_rows(2) * 13];
        // Every action of a branch, since a maximum passes a NaN over.
        q[2 * 13..2 * 13 + 4].fill(value);
        told.run(lab, &q)?;
        ensure!(told.readback.read()?[0].causal_mean_sens == 0.25, "{value} was told");
        ensure!(!told.mean.read()?[0].is_finite(), "{value} is hidden from the step's end");
    }
    Ok(())
}

/// Captured once: what the word says when a replay comes to it counts.
fn a_launch_hangs_on_its_word_at_each_replay(device: &Device, lab: &Lab) -> Outcome {
    let stream = device.stream()?;
    let (word, told) = (lab.upload(&[0u32])?, Told::new(lab)?);
    let mut numbers = Numbers::new(5);
    let q = lab.upload(&(0..n_pass_rows(3) * 13).map(|_| numbers.unit() as f32).collect::<Vec<_>>())?;
    let child = ChildGraph::capture(device, "causal", &KERNELS, |recorder| {
        recorder.launch(causal_sensitivity_shape(lab.lanes()), told.launch(&q).only_if(&word.ptr()))
    })?;
    let graph = ParentGraph::compose(device, vec![child])?;
    let replay = || -> Result<Vec<u32>, Failed> {
        graph.launch(&stream)?;
        stream.synchronize()?;
        Ok(bits(&told.sensitivity.read()?))
    };
    let untouched = bits(&told.sensitivity.read()?);
    ensure!(replay()? == untouched, "0: nothing");
    word.write(&[1])?;
    let measured = replay()?;
    ensure!(measured != untouched && measured.iter().all(|&x| f32::from_bits(x).is_finite()), "1: everything");
    told.sensitivity.write(&[f32::NAN; N_FEATURES])?;
    word.write(&[0])?;
    ensure!(replay()? == untouched, "0 again: nothing");
    // A kernel without a condition would run whatever the word says.
    let unconditional = i64_to_u32::launch(lab.zeroed(1)?.view(), lab.zeroed(1)?.view_mut());
    let hang = std::panic::AssertUnwindSafe(|| drop(unconditional.only_if(&word.ptr())));
    let refusal = std::panic::catch_unwind(hang).expect_err("it was accepted");
    let refusal = refusal.downcast_ref::<String>().map(String::as_str).unwrap_or_default();
    ensure!(refusal.contains("`i64_to_u32`") && refusal.contains("#[kernel(conditional)]"), "{refusal}");
    Ok(())
}
