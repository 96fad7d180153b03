//! The denoise learner: noise, loss and gradients.

use std::sync::Arc;

use gpu_kernels::denoise::{DenoiseParams, N_COLUMNS, denoise_rows};
use gpu_kernels::lanes::row_shape;
use onegraph_tests::lab::{Lab, Numbers, bits, within_relative};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config::Sizes;
use reference::denoise::loss;
use reference::layout::{Group, Layout, Tensors};
use reference::matrix::Matrix;
use reference::philox;
use reference::precision::Precision as Exactness;
use shared_types::market::N_FEATURES;
use shared_types::{Counters, Precision, stream};

pub fn cases() -> Vec<Case> {
    vec![
        case("denoise::loss_and_gradients_equal_the_reference", |device| {
            Lab::on_all_lanes(device, loss_and_gradients_equal_the_reference)
        }),
        case("denoise::gradients_equal_differences_of_the_loss", |device| {
            Lab::on_all_lanes(device, gradients_equal_differences)
        }),
        case("denoise::another_step_draws_other_noise", |device| {
            Lab::on_all_lanes(device, another_step_draws_other_noise)
        }),
    ]
}

const SEED: u64 = 0x0123_4567_89ab_cdef;
const WINDOW: usize = 3;
const STRIDE: usize = 96;
const NOISE: f32 = 0.1;
const NAMES: [&str; 4] = ["encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"];

struct Problem {
    p: Tensors,
    rows: Vec<f32>,
    n: usize,
}

/// Row losses and both operands, as numbers.
struct Found {
    row_losses: Vec<f32>,
    inputs: Vec<f32>,
    gradients: Vec<f32>,
}

impl Problem {
    fn random(n: usize) -> Self {
        let mut numbers = Numbers::new(n as u64);
        let mut signed = |scale: f64| (scale * (2.0 * numbers.unit() - 1.0)) as f32;
        let mut p = Tensors::zeros(&Arc::new(Layout::new(&Sizes::TINY)));
        for name in NAMES {
            p.slice_mut(&format!("denoise.{name}")).iter_mut().for_each(|x| *x = f64::from(signed(0.4)));
        }
        Self { p, rows: (0..n * STRIDE).map(|_| signed(2.0)).collect(), n }
    }

    fn run(&self, lab: &Lab, step: i32, precision: Precision) -> Result<Found, Failed> {
        let parameters: Vec<f32> = self.p.group(Group::Denoise).iter().map(|&x| x as f32).collect();
        let (rows, parameters) = (lab.upload(&self.rows)?, lab.upload(&parameters)?);
        let counters = lab.upload(&[Counters { rng_step: step, ..Counters::default() }])?;
        let operands = || lab.upload(&vec![0x7fc0u16; self.n * N_COLUMNS * precision.words()]);
        let (inputs, gradients, row_losses) = (operands()?, operands()?, lab.poisoned(self.n)?);
        let launch = denoise_rows::launch(
            rows.view(),
            parameters.view(),
            counters.view(),
            inputs.view_mut(),
            gradients.view_mut(),
            row_losses.view_mut(),
            DenoiseParams { seed: [SEED as u32, (SEED >> 32) as u32], window: WINDOW as u32, noise: NOISE },
            precision,
        );
        lab.run(row_shape(self.n, lab.lanes()), launch)?;
        let decoded = |words: Vec<u16>| -> Vec<f32> {
            match precision {
                Precision::Bf16 => words.iter().map(|&word| f32::from_bits(u32::from(word) << 16)).collect(),
                Precision::F32 => bytemuck::cast_slice(&words).to_vec(),
            }
        };
        Ok(Found {
            row_losses: row_losses.read()?,
            inputs: decoded(inputs.read()?),
            gradients: decoded(gradients.read()?),
        })
    }

    fn clean(&self) -> Matrix {
        Matrix::from_fn(self.n, N_FEATURES, |row, f| f64::from(self.rows[row * STRIDE + (WINDOW - 1) * N_FEATURES + f]))
    }

    fn noisy(&self, step: u32) -> Matrix {
        let clean = self.clean();
        Matrix::from_fn(self.n, N_FEATURES, |row, f| {
            clean[(row, f)] + f64::from(NOISE) * philox::normal(SEED, stream::DENOISE, step, (row * 24 + f) as u32)
        })
    }
}

impl Found {
    /// Columns of an operand as a matrix.
    fn part(values: &[f32], first: usize, width: usize) -> Matrix {
        let n_rows = values.len() / N_COLUMNS;
        Matrix::from_fn(n_rows, width, |row, column| f64::from(values[row * N_COLUMNS + first + column]))
    }

    fn loss(&self) -> f32 {
        self.row_losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() as f32
    }

    /// Gradients in the order of [`NAMES`], as the products and the sums over rows that follow make them.
    fn gradients(&self) -> [Vec<f32>; 4] {
        let (noisy, code) = (Self::part(&self.inputs, 0, 24), Self::part(&self.inputs, 24, 32));
        let (d_pre, d_decoded) = (Self::part(&self.gradients, 0, 32), Self::part(&self.gradients, 32, 24));
        let weight = |d: &Matrix, x: &Matrix| Exactness::Exact.linear_dw(d, x).values;
        [weight(&d_pre, &noisy), d_pre.sum_of_rows(), weight(&d_decoded, &code), d_decoded.sum_of_rows()]
            .map(|values| values.into_iter().map(|x| x as f32).collect())
    }
}

/// Unrounded, the design's 1e-5. With bf16 operands a value at the middle of two may round the other way than the reference's, and
/// the sums of biases take the rounded gradients: a share of 2^-8 of each element, 1% of a tensor at the most.
fn loss_and_gradients_equal_the_reference(lab: &Lab) -> Outcome {
    for n in [1, 7, 33, 300] {
        let problem = Problem::random(n);
        for (precision, exactness, bound) in
            [(Precision::F32, Exactness::Exact, 1e-5), (Precision::Bf16, Exactness::Bf16, 1e-2)]
        {
            let found = problem.run(lab, 9, precision)?;
            let mut grads = Tensors::zeros(&problem.p.layout);
            let want = loss(exactness, &problem.p, &problem.noisy(9), &problem.clean(), &mut grads);
            let what = |part: &str| format!("{part} of {n} rows, {precision:?}, {} lanes", lab.lanes());
            within_relative(&what("loss"), &[found.loss()], &[want], bound)?;
            for (name, got) in NAMES.into_iter().zip(found.gradients()) {
                within_relative(&what(name), &got, grads.slice(&format!("denoise.{name}")), bound)?;
            }
            let again = problem.run(lab, 9, precision)?;
            ensure!(bits(&again.gradients) == bits(&found.gradients), "other bits");
        }
    }
    Ok(())
}

fn gradients_equal_differences(lab: &Lab) -> Outcome {
    let problem = Problem::random(20);
    let (noisy, clean) = (problem.noisy(2), problem.clean());
    let found = problem.run(lab, 2, Precision::F32)?;
    for (name, got) in NAMES.into_iter().zip(found.gradients()) {
        let scale = got.iter().fold(0f32, |most, g| most.max(g.abs()));
        for element in (0..got.len()).step_by(41) {
            let at = |by: f64| {
                let mut p = problem.p.clone();
                p.slice_mut(&format!("denoise.{name}"))[element] += by;
                loss(Exactness::Exact, &p, &noisy, &clean, &mut Tensors::zeros(&p.layout))
            };
            let step = 3e-4;
            let want = (at(-2.0 * step) - 8.0 * at(-step) + 8.0 * at(step) - at(2.0 * step)) / (12.0 * step);
            let off = (f64::from(got[element]) - want).abs();
            ensure!(off <= 1e-5 * f64::from(scale), "{name}[{element}]: {}, {want} by differences", got[element]);
        }
    }
    Ok(())
}

/// The noise of 7,200 elements has the mean and the deviation of a normal within five standard errors, and none is drawn twice.
fn another_step_draws_other_noise(lab: &Lab) -> Outcome {
    let problem = Problem::random(300);
    let clean = problem.clean();
    let noise = |step: i32| -> Result<Vec<f64>, Failed> {
        let noisy = Found::part(&problem.run(lab, step, Precision::F32)?.inputs, 0, N_FEATURES);
        Ok(noisy.values.iter().zip(&clean.values).map(|(x, c)| x - c).collect())
    };
    let (one, two) = (noise(1)?, noise(2)?);
    for noise in [&one, &two] {
        let n = noise.len() as f64;
        let mean = noise.iter().sum::<f64>() / n;
        let square = noise.iter().map(|x| x * x).sum::<f64>() / n;
        ensure!(mean.abs() < 5.0 * 0.1 / n.sqrt(), "mean {mean}");
        ensure!((square / 0.01 - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "mean square {square}");
    }
    let correlation: f64 = one.iter().zip(&two).map(|(a, b)| a * b / 0.01).sum::<f64>() / one.len() as f64;
    ensure!(correlation.abs() < 5.0 / (one.len() as f64).sqrt(), "two steps correlate by {correlation}");
    Ok(())
}
