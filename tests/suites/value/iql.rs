//! IQL's heads under PopArt.

use std::sync::Arc;

use gpu_kernels::columns::{column_sums, column_sums_shape, n_column_partials};
use gpu_kernels::heads::N_ACTIONS;
use gpu_kernels::iql::{
    HIDDEN, N_PARTIAL_COLUMNS, iql_hidden_gradient, iql_hidden_gradient_shape, iql_loss, iql_loss_shape, iql_outputs,
    rescaling, updated,
};
use gpu_kernels::lanes::row_shape;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits, relative, within_relative};
use onegraph_tests::{Case, Failed, Outcome, case, ensure, host_case};
use reference::config::Sizes;
use reference::iql;
use reference::layout::{Layout, Tensors};
use reference::matrix::{Matrix, mean};
use reference::precision::Precision::Exact;
use shared_types::{IqlTotals, PopArt, Precision};

use crate::scene::random_actions;

pub fn cases() -> Vec<Case> {
    vec![
        case("iql::losses_and_gradients_equal_the_reference", |device| {
            Lab::on_all_lanes(device, losses_and_gradients_equal_the_reference)
        }),
        case("iql::without_popart_values_are_the_raw_outputs", |device| {
            Lab::on_all_lanes(device, without_popart_values_are_the_raw_outputs)
        }),
        case("iql::gradients_equal_differences_of_the_losses", gradients_equal_differences),
        case("iql::a_nan_reaches_its_head_alone", |device| Lab::on_all_lanes(device, a_nan_reaches_its_head_alone)),
        host_case("iql::popart_by_hand", popart_by_hand),
    ]
}

/// Names of the heads with their expectiles.
const HEADS: [(&str, f64); 2] = [("iql_high", 0.9), ("iql_low", 0.1)];
/// The design's bound on unrounded tensors.
const BOUND: f64 = 1e-5;

struct Problem {
    p: Tensors,
    h: Matrix,
    q: Vec<f32>,
    actions: Vec<[u8; 4]>,
    /// None without PopArt.
    popart: Option<PopArt>,
}

/// PopArt as a step begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Seeded,
    Fresh,
    Off,
}

impl Problem {
    fn random(n_rows: usize, before: Before) -> Self {
        let seeded = before == Before::Seeded;
        let mut numbers = Numbers::new(n_rows as u64 + 1000 * u64::from(seeded));
        let layout = Arc::new(Layout::new(&Sizes::TINY));
        let mut p = Tensors::zeros(&layout);
        for (name, _) in HEADS {
            for part in ["hidden.weight", "hidden.bias", "out.weight", "out.bias"] {
                let scale = if part == "out.weight" { 0.3 } else { 0.5 };
                let values = p.slice_mut(&format!("{name}.{part}"));
                // As f32 holds them, so that both sides have the same parameters.
                values.iter_mut().for_each(|x| *x = f64::from((scale * (2.0 * numbers.unit() - 1.0)) as f32));
            }
        }
        let h = Matrix::from_fn(n_rows, Sizes::TINY.hidden, |_, _| 2.0 * numbers.unit() - 1.0);
        let q = (0..n_rows * N_ACTIONS).map(|_| (1.0 + 2.0 * numbers.unit()) as f32).collect();
        let popart = match before {
            Before::Seeded => Some(PopArt { mean: 0.7, square: 0.9, seeded: 1, reserved: 0 }),
            Before::Fresh => Some(PopArt::default()),
            Before::Off => None,
        };
        Self { p, h, q, actions: random_actions(&mut numbers, n_rows), popart }
    }

    /// W h + b of both heads, `[2, B, 128]`.
    fn pre(&self) -> Vec<f32> {
        let of_head = |(name, _): (&str, f64)| {
            let mut pre = Exact.linear(&self.h, &self.p.matrix(&format!("{name}.hidden.weight")));
            pre.add_to_rows(self.p.slice(&format!("{name}.hidden.bias")));
            pre.values
        };
        HEADS.into_iter().flat_map(of_head).map(|x| x as f32).collect()
    }

    /// Weights, then the bias.
    fn last_layer(&self, head: usize) -> Vec<f32> {
        let name = HEADS[head].0;
        let both = [format!("{name}.out.weight"), format!("{name}.out.bias")];
        both.iter().flat_map(|tensor| self.p.slice(tensor).to_vec()).map(|x| x as f32).collect()
    }

    fn exact_q_taken(&self) -> Vec<f64> {
        let firsts = [0, 4, 7, 10];
        let of_row = |(row, action): (usize, &[u8; 4])| {
            let sum: f64 =
                (0..4).map(|b| f64::from(self.q[row * N_ACTIONS + firsts[b] + usize::from(action[b])])).sum();
            sum / 4.0
        };
        self.actions.iter().enumerate().map(of_row).collect()
    }

    fn run(&self, lab: &Lab, precision: Precision) -> Result<Found, Failed> {
        let n = self.actions.len();
        let (pre, q, actions) = (lab.upload(&self.pre())?, lab.upload(&self.q)?, lab.upload(&self.actions)?);
        let (high, low) = (lab.upload(&self.last_layer(0))?, lab.upload(&self.last_layer(1))?);
        let (outputs, q_taken, popart) = (lab.poisoned(2 * n)?, lab.poisoned(n)?, lab.upload(self.popart.as_slice())?);
        let launch = iql_outputs::launch(
            pre.view(),
            high.view(),
            low.view(),
            q.view(),
            actions.view(),
            outputs.view_mut(),
            q_taken.view_mut(),
        );
        lab.run(row_shape(n, lab.lanes()), launch)?;
        let (values, d_outputs, losses) = (lab.poisoned(2 * n)?, lab.poisoned(2 * n)?, lab.poisoned(2)?);
        let (totals, biases) = (lab.zeroed::<IqlTotals>(1)?, lab.poisoned(2)?);
        let launch = iql_loss::launch(
            outputs.view(),
            q_taken.view(),
            popart.view(),
            values.view_mut(),
            d_outputs.view_mut(),
            losses.view_mut(),
            totals.view_mut(),
            biases.slice(0..1).view_mut(),
            biases.slice(1..2).view_mut(),
        );
        lab.run(iql_loss_shape(lab.lanes()), launch)?;
        let d_pre = lab.upload(&vec![0x7fc0u16; 2 * n * HIDDEN * precision.words()])?;
        let partials = lab.poisoned(n_column_partials(n) * N_PARTIAL_COLUMNS)?;
        let launch = iql_hidden_gradient::launch(
            pre.view(),
            d_outputs.view(),
            high.view(),
            low.view(),
            totals.view(),
            d_pre.view_mut(),
            partials.view_mut(),
            precision,
        );
        lab.run(iql_hidden_gradient_shape(n), launch)?;
        let targets = lab.upload(&(0..N_PARTIAL_COLUMNS as u32).collect::<Vec<_>>())?;
        let columns = lab.poisoned(N_PARTIAL_COLUMNS)?;
        let launch = column_sums::launch(partials.view(), targets.view(), columns.view_mut());
        lab.run(column_sums_shape(N_PARTIAL_COLUMNS), launch)?;
        let words = d_pre.read()?;
        let d_pre = match precision {
            Precision::Bf16 => words.iter().map(|&word| f32::from_bits(u32::from(word) << 16)).collect(),
            Precision::F32 => bytemuck::cast_slice(&words).to_vec(),
        };
        Ok(Found {
            outputs: outputs.read()?,
            q_taken: q_taken.read()?,
            values: values.read()?,
            d_outputs: d_outputs.read()?,
            losses: losses.read()?,
            totals: totals.read()?[0],
            biases: biases.read()?,
            d_pre,
            columns: columns.read()?,
        })
    }

    fn exact_popart(&self) -> iql::PopArt {
        let seeded = self.popart.filter(|popart| popart.seeded == 1);
        iql::PopArt { moments: seeded.map(|popart| (popart.mean, popart.square)) }
    }

    /// PopArt with this batch.
    fn exact_updated(&self) -> iql::PopArt {
        let before = self.exact_popart();
        if self.popart.is_some() { before.updated(&self.exact_q_taken()) } else { before }
    }
}

/// What the kernels leave.
struct Found {
    outputs: Vec<f32>,
    q_taken: Vec<f32>,
    values: Vec<f32>,
    d_outputs: Vec<f32>,
    losses: Vec<f32>,
    totals: IqlTotals,
    biases: Vec<f32>,
    d_pre: Vec<f32>,
    /// Gradients of hidden biases, then of last weights.
    columns: Vec<f32>,
}

impl Found {
    /// Gradient of a tensor of head `head`, as far as these kernels make it.
    fn gradient(&self, head: usize, part: &str) -> &[f32] {
        match part {
            "hidden.bias" => &self.columns[head * HIDDEN..(head + 1) * HIDDEN],
            "out.weight" => &self.columns[(2 + head) * HIDDEN..(3 + head) * HIDDEN],
            _ => &self.biases[head..head + 1],
        }
    }
}

fn losses_and_gradients_equal_the_reference(lab: &Lab) -> Outcome {
    use Before::{Fresh, Off, Seeded};
    for (n, kind) in [(1, Seeded), (3, Fresh), (33, Seeded), (257, Fresh), (700, Seeded), (1, Off), (257, Off)] {
        let problem = Problem::random(n, kind);
        let found = problem.run(lab, Precision::F32)?;
        let q = problem.exact_q_taken();
        within_relative("q", &found.q_taken, &q, BOUND)?;
        let before = problem.exact_popart();
        let popart = problem.exact_updated();
        let scalars = [found.totals.std, found.totals.shrink, found.totals.shift];
        let shift = (before.mean() - popart.mean()) / popart.std();
        // A batch of one row alone has no deviation: nu - mu^2 is what the rounding of q leaves.
        if n > 1 {
            within_relative("popart", &scalars, &[popart.std(), before.std() / popart.std(), shift], BOUND)?;
        }
        let mut rescaled = problem.p.clone();
        let mut gaps = Vec::new();
        for (head, (name, expectile)) in HEADS.into_iter().enumerate() {
            before.rescale(&popart, &mut rescaled, name);
            let pass = iql::forward(Exact, &rescaled, name, &problem.h);
            let targets: Vec<f64> = q.iter().map(|q| popart.normalised(*q)).collect();
            let (loss, d_outputs) = iql::loss(&pass, expectile, &targets);
            let mut grads = Tensors::zeros(&rescaled.layout);
            iql::backward(Exact, &rescaled, name, &pass, &d_outputs, &mut grads);
            let what = |part: &str| format!("{name}, {n} rows, {kind:?}, {} lanes: {part}", lab.lanes());
            let v: Vec<f64> = pass.outputs.iter().map(|out| popart.value(*out)).collect();
            within_relative(&what("V"), &found.values[head * n..(head + 1) * n], &v, BOUND)?;
            within_relative(&what("loss"), &found.losses[head..head + 1], &[loss], BOUND)?;
            let d: Vec<f32> = found.d_outputs.iter().skip(head).step_by(2).copied().collect();
            within_relative(&what("d outputs"), &d, &d_outputs, BOUND)?;
            for part in ["hidden.bias", "out.weight", "out.bias"] {
                let want = grads.slice(&format!("{name}.{part}"));
                within_relative(&what(part), found.gradient(head, part), want, BOUND)?;
            }
            let d_pre = &found.d_pre[head * n * HIDDEN..(head + 1) * n * HIDDEN];
            let d_pre = Matrix::from_values(n, HIDDEN, d_pre.iter().map(|&d| f64::from(d)).collect());
            let got: Vec<f32> = Exact.linear_dw(&d_pre, &problem.h).values.iter().map(|&d| d as f32).collect();
            within_relative(&what("hidden.weight"), &got, grads.slice(&format!("{name}.hidden.weight")), BOUND)?;
            gaps.push(mean(&v));
        }
        let off = (f64::from(found.totals.gap) - (gaps[0] - gaps[1])).abs();
        ensure!(off <= BOUND * (gaps[0].abs() + gaps[1].abs()), "gap {} of {gaps:?}", found.totals.gap);
        let again = problem.run(lab, Precision::F32)?;
        ensure!(bits(&again.columns) == bits(&found.columns) && again.totals == found.totals, "other bits");
        // Rounded once to 8 bits, each by at most half of the last.
        let rounded = problem.run(lab, Precision::Bf16)?;
        let exact: Vec<f64> = found.d_pre.iter().map(|&d| f64::from(d)).collect();
        ensure!(relative(&rounded.d_pre, &exact) <= 1.0 / 256.0, "operands");
    }
    Ok(())
}

/// Fourth-order central differences of the reference's loss at the rescaled parameters, PopArt held, for some elements of each tensor.
fn gradients_equal_differences(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::random(33, Before::Seeded);
    let found = problem.run(&lab, Precision::F32)?;
    let q = problem.exact_q_taken();
    let popart = problem.exact_updated();
    let targets: Vec<f64> = q.iter().map(|q| popart.normalised(*q)).collect();
    for (head, (name, expectile)) in HEADS.into_iter().enumerate() {
        let mut rescaled = problem.p.clone();
        problem.exact_popart().rescale(&popart, &mut rescaled, name);
        for part in ["hidden.bias", "out.weight", "out.bias"] {
            let gradient = found.gradient(head, part);
            let scale = gradient.iter().fold(0f32, |most, g| most.max(g.abs()));
            for element in (0..gradient.len()).step_by(29) {
                let loss = |by: f64| {
                    let mut p = rescaled.clone();
                    p.slice_mut(&format!("{name}.{part}"))[element] += by;
                    iql::loss(&iql::forward(Exact, &p, name, &problem.h), expectile, &targets).0
                };
                let step = 3e-4;
                let want =
                    (loss(-2.0 * step) - 8.0 * loss(-step) + 8.0 * loss(step) - loss(2.0 * step)) / (12.0 * step);
                let off = (f64::from(gradient[element]) - want).abs();
                // A residual that passes 0 within the step bends the parabola there: by at most its curvature times the step.
                ensure!(off <= 1e-4 * f64::from(scale), "{name}.{part}[{element}] {} of {want}", gradient[element]);
            }
        }
    }
    Ok(())
}

/// Bit for bit, and PopArt is what it is before any batch.
fn without_popart_values_are_the_raw_outputs(lab: &Lab) -> Outcome {
    for n in [1, 33, 1500] {
        let found = Problem::random(n, Before::Off).run(lab, Precision::F32)?;
        for head in 0..2 {
            let outputs: Vec<f32> = found.outputs.iter().skip(head).step_by(2).copied().collect();
            ensure!(bits(&found.values[head * n..(head + 1) * n]) == bits(&outputs), "{n} rows: V of head {head}");
        }
        let plain = IqlTotals { gap: found.totals.gap, ..rescaling(PopArt::default(), PopArt::default()) };
        ensure!(
            found.totals == plain && (plain.std, plain.shrink, plain.shift) == (1.0, 1.0, 0.0),
            "{:?}",
            found.totals
        );
    }
    Ok(())
}

fn a_nan_reaches_its_head_alone(lab: &Lab) -> Outcome {
    let mut problem = Problem::random(40, Before::Seeded);
    let good = problem.run(lab, Precision::Bf16)?;
    problem.p.slice_mut("iql_high.out.bias")[0] = f64::NAN;
    let found = problem.run(lab, Precision::Bf16)?;
    ensure!(found.losses[0].is_nan() && found.biases[0].is_nan(), "the loss of V_high is a number");
    ensure!(found.values[..40].iter().all(|v| v.is_nan()), "V_high is a number");
    ensure!(found.totals.gap.is_nan(), "the gap is a number");
    ensure!(found.losses[1].to_bits() == good.losses[1].to_bits(), "the loss of V_low changed");
    ensure!(bits(&found.values[40..]) == bits(&good.values[40..]), "V_low changed");
    ensure!(found.totals.popart == good.totals.popart, "PopArt takes in q alone");
    Ok(())
}

fn popart_by_hand() -> Outcome {
    let first = updated(PopArt::default(), 1.0, 2.0);
    assert_eq!((first.mean, first.square, first.seeded), (1.0, 2.0, 1), "the first batch seeds");
    // Before it mu is 0 and std 1: std becomes 1, so that only the bias moves.
    let rescaled = rescaling(PopArt::default(), first);
    assert_eq!((rescaled.std, rescaled.shrink, rescaled.shift), (1.0, 1.0, -1.0));
    // mu 1 -> 1 + 0.01 (3 - 1) = 1.02; nu 2 -> 2 + 0.01 (10 - 2) = 2.08; the rate is f32's 0.01.
    let second = updated(first, 3.0, 10.0);
    assert!((second.mean - 1.02).abs() < 1e-8 && (second.square - 2.08).abs() < 1e-8, "{second:?}");
    let constant = updated(PopArt::default(), 2.0, 4.0);
    assert_eq!(rescaling(PopArt::default(), constant).std, 1e-4, "a constant q does not divide by 0");
    assert!(rescaling(first, updated(first, f64::NAN, 1.0)).shift.is_nan());
    Ok(())
}
