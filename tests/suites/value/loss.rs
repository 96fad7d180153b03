//! `c51_loss`.

use gpu_kernels::c51::{c51_loss, row_loss};
use gpu_kernels::heads::N_ACTIONS;
use gpu_kernels::lanes::row_shape;
use half::bf16;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Failed, Outcome, case};
use reference::activation::log_sum_exp;
use reference::c51::{Distributions, losses};
use reference::config::{BRANCH_SIZES, N_BRANCHES};
use reference::cql;
use reference::matrix::{Matrix, dot};
use shared_types::Precision;

use crate::scene::{
    ATOMS, Heads, U, all_q, distributions, exact_actions, exact_atoms, p_error, q_error, random_actions, random_atoms,
    used_columns,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("loss::losses_equal_the_reference", losses_equal_the_reference),
        case("loss::the_gradient_equals_the_reference", the_gradient_equals_the_reference),
        case("loss::the_gradient_equals_differences_of_the_objective", the_gradient_equals_differences),
        case("loss::case_h_logits_of_80", case_h_logits_of_80),
        case("loss::without_cql_the_rest_is_that_of_no_weight", without_cql_the_rest_is_that_of_no_weight),
        case("loss::nan_reaches_its_row_alone", nan_reaches_its_row_alone),
        case("loss::a_target_of_nan_is_seen", a_target_of_nan_is_seen),
        case("loss::the_same_bits_twice", the_same_bits_twice),
    ]
}

const ALPHA: f32 = 0.1;

/// A batch: heads, atoms, and what else the loss takes.
struct Batch {
    heads: Heads,
    atoms: Vec<f32>,
    actions: Vec<[u8; 4]>,
    /// `[B, 4, K]`.
    targets: Vec<f32>,
    weights: Vec<f32>,
}

impl Batch {
    /// Targets that are 0 in places, as projections are.
    fn random(seed: u64, n_rows: usize, n_atoms: usize, m: f64) -> Self {
        let mut numbers = Numbers::new(seed);
        let heads = Heads::random(&mut numbers, n_rows, n_atoms, m);
        let atoms = random_atoms(&mut numbers, n_atoms, 1.0);
        let actions = random_actions(&mut numbers, n_rows);
        let mut targets = Vec::new();
        for _ in 0..n_rows * N_BRANCHES {
            let mut m: Vec<f64> = (0..n_atoms).map(|_| numbers.unit() * numbers.below(3) as f64).collect();
            m[numbers.below(n_atoms)] += 0.5;
            let sum: f64 = m.iter().sum();
            targets.extend(m.iter().map(|m| (m / sum) as f32));
        }
        let weights = (0..n_rows).map(|_| numbers.unit() as f32).collect();
        Self { heads, atoms, actions, targets, weights }
    }

    fn n_rows(&self) -> usize {
        self.heads.n_rows
    }

    /// Targets of each branch as the reference takes them.
    fn exact_targets(&self) -> Vec<Matrix> {
        let k = self.heads.n_atoms();
        let of = |b: usize| Matrix::from_fn(self.n_rows(), k, |i, atom| self.targets[(i * 4 + b) * k + atom] as f64);
        (0..N_BRANCHES).map(of).collect()
    }

    /// J in float64 for heads that may differ from the batch's.
    fn objective(&self, heads: &[f64], alpha: f64) -> f64 {
        let atoms = exact_atoms(&self.atoms);
        let d = distributions(&self.heads.columns, heads, &atoms);
        let actions = exact_actions(&self.actions);
        let of_rows = losses(&d, &actions, &self.exact_targets(), &atoms).cross_entropy;
        let weighted: f64 = of_rows.iter().zip(&self.weights).map(|(ce, w)| ce * *w as f64).sum();
        weighted / self.n_rows() as f64 + alpha * cql::value(&d, &actions)
    }

    /// Gradient of J by the heads' outputs in float64, `[B, stride]`, 0 in columns of no group.
    fn gradient(&self, alpha: f64) -> Vec<f64> {
        let (columns, k, atoms) = (&self.heads.columns, self.heads.n_atoms(), exact_atoms(&self.atoms));
        let (d, actions) = (self.heads.distributions(&atoms), exact_actions(&self.actions));
        let weights: Vec<f64> = self.weights.iter().map(|w| *w as f64).collect();
        let of_ce = reference::c51::loss_dlogits(&d, &actions, &self.exact_targets(), &weights);
        let of_cql = cql::dlogits(&d, &actions, &atoms, alpha);
        let mut gradient = vec![0.0; self.heads.values.len()];
        for (b, n) in BRANCH_SIZES.into_iter().enumerate() {
            for row in 0..self.n_rows() {
                for atom in 0..k {
                    let of = |a: usize| of_ce[b][(row, a * k + atom)] + of_cql[b][(row, a * k + atom)];
                    let all: f64 = (0..n).map(of).sum();
                    gradient[self.heads.at(row, columns.value(b) + atom)] = all;
                    for a in 0..n {
                        gradient[self.heads.at(row, columns.advantage(b, a) + atom)] = of(a) - all / n as f64;
                    }
                }
            }
        }
        gradient
    }

    /// Bound on the error of an entry of the gradient, before it is rounded to an operand. Of the logit of the action taken,
    /// w_i / (4 B) of p times the mass, whose relative error is that of p and of the mass's sum; of every logit, alpha / (4 B)
    /// of pi p (z - Q): a policy that is off by both Q's errors, p's, and Q's error once more, |z - Q| at most 20. A sum over
    /// actions and its share are added: three times as much.
    fn gradient_error(&self, alpha: f64) -> f64 {
        let (p, q) = (p_error(self.heads.m), q_error(self.heads.m, 10.0));
        let by_target = p + 20.0 * U;
        let by_q = 20.0 * (2.0 * q + p + 8.0 * U) + q;
        3.0 / (4 * self.n_rows()) as f64 * (by_target + alpha * by_q)
    }
}

/// What the kernel leaves.
struct Got {
    dheads: Vec<f32>,
    row_losses: Vec<f32>,
    q: Vec<f32>,
}

fn run(lab: &Lab, lanes: u32, batch: &Batch, alpha: f32, precision: Precision) -> Result<Got, Failed> {
    run_with(lab, lanes, batch, Some(alpha), precision)
}

/// `alpha` is CQL's weight; without one there is no CQL.
fn run_with(lab: &Lab, lanes: u32, batch: &Batch, alpha: Option<f32>, precision: Precision) -> Result<Got, Failed> {
    let n_rows = batch.n_rows();
    let (heads, actions) = (lab.upload(&batch.heads.values)?, lab.upload(&batch.actions)?);
    let (targets, weights, atoms) =
        (lab.upload(&batch.targets)?, lab.upload(&batch.weights)?, lab.upload(&batch.atoms)?);
    // A NaN in both precisions where nothing is written.
    let dheads = lab.upload(&vec![0x7fc1u16; batch.heads.values.len() * precision.words()])?;
    let (row_losses, q) = (lab.poisoned(n_rows * row_loss::N)?, lab.poisoned(n_rows * N_ACTIONS)?);
    let launch = c51_loss::launch(
        heads.view(),
        actions.view(),
        targets.view(),
        weights.view(),
        atoms.view(),
        batch.heads.columns,
        alpha.is_some().into(),
        alpha.unwrap_or(f32::NAN),
        dheads.view_mut(),
        row_losses.view_mut(),
        q.view_mut(),
        precision,
    );
    lab.run(row_shape(n_rows, lanes), launch)?;
    let words = dheads.read()?;
    let dheads = match precision {
        Precision::Bf16 => words.iter().map(|word| bf16::from_bits(*word).to_f32()).collect(),
        Precision::F32 => words.chunks(2).map(|pair| f32::from_bits(pair[0] as u32 | (pair[1] as u32) << 16)).collect(),
    };
    Ok(Got { dheads, row_losses: row_losses.read()?, q: q.read()? })
}

fn column(row_losses: &[f32], column: usize) -> Vec<f32> {
    row_losses.chunks(row_loss::N).map(|row| row[column]).collect()
}

/// gap_i and CQL_i of each row in float64.
fn gaps_and_cql(batch: &Batch, d: &Distributions) -> (Vec<f64>, Vec<f64>) {
    let (atoms, actions, targets) = (exact_atoms(&batch.atoms), exact_actions(&batch.actions), batch.exact_targets());
    let mean = |f: &dyn Fn(usize) -> f64| (0..N_BRANCHES).map(f).sum::<f64>() / N_BRANCHES as f64;
    let rows = 0..batch.n_rows();
    let gap = |i: usize| mean(&|b| dot(targets[b].row(i), &atoms[b]) - d.q[b][(i, actions[i][b])]);
    let cql = |i: usize| mean(&|b| log_sum_exp(d.q[b].row(i)) - d.q[b][(i, actions[i][b])]);
    (rows.clone().map(gap).collect(), rows.map(cql).collect())
}

/// ln p is off by 26 u M and the roundings of itself (up to 6 M + ln K: 16 u M more, with its logarithm's 4 u), the target's
/// mass being 1; the KL's own logarithm and difference add 16 u of numbers up to 6 M + 10.
fn losses_equal_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(0, 51), (1, 51), (3, 51), (257, 51)].into_iter().chain(ATOMS.map(|k| (33, k))) {
        let batch = Batch::random((n_rows * 100 + n_atoms) as u64, n_rows, n_atoms, 3.0);
        let (m, atoms) = (batch.heads.m, exact_atoms(&batch.atoms));
        let d = batch.heads.distributions(&atoms);
        let want = losses(&d, &exact_actions(&batch.actions), &batch.exact_targets(), &atoms);
        let ce: Vec<f64> = want.cross_entropy.iter().zip(&batch.weights).map(|(ce, w)| ce * *w as f64).collect();
        let (gaps, cql) = gaps_and_cql(&batch, &d);
        let squares: Vec<f64> = gaps.iter().map(|gap| gap * gap).collect();
        let (ce_error, q_error) = ((42.0 * m + 50.0) * U, q_error(m, 10.0));
        let gap_error = q_error + 160.0 * U;
        for &lanes in lab.row_lanes() {
            let got = run(&lab, lanes, &batch, ALPHA, Precision::F32)?;
            let what = |name: &str| format!("{name} of {n_rows} rows, {n_atoms} atoms, {lanes} lanes");
            let check = |name: &str, absolute: f64, got: Vec<f32>, want: &[f64]| {
                Tolerance { absolute, relative: 16.0 * U }.check(&what(name), &got, want)
            };
            check("CE", ce_error, column(&got.row_losses, row_loss::WEIGHTED_CE), &ce)?;
            check("KL", ce_error + 16.0 * (6.0 * m + 10.0) * U, column(&got.row_losses, row_loss::TD), &want.td)?;
            let largest = gaps.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let squared = 2.0 * largest * gap_error + gap_error * gap_error;
            check("gap", squared, column(&got.row_losses, row_loss::SQUARED_GAP), &squares)?;
            check("CQL", 2.0 * q_error + 16.0 * U, column(&got.row_losses, row_loss::CQL), &cql)?;
            check("Q", q_error, got.q, &all_q(&d))?;
        }
    }
    Ok(())
}

/// As an operand of bf16 an entry is rounded once more, by 2^-8 of itself at most, and by 2^-8 / sqrt 3 in the mean square.
/// The whole gradient's distance is held to the design's 1e-5 for f32, which a bound on each entry is too wide for.
fn the_gradient_equals_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(1, 51), (65, 51)].into_iter().chain(ATOMS.map(|k| (9, k))) {
        let batch = Batch::random((n_rows * 100 + n_atoms) as u64, n_rows, n_atoms, 3.0);
        for alpha in [0.0, ALPHA] {
            let want = batch.gradient(alpha as f64);
            for (precision, relative) in [(Precision::F32, 4.0 * U), (Precision::Bf16, 1.0 / 256.0)] {
                for &lanes in lab.row_lanes() {
                    let got = run(&lab, lanes, &batch, alpha, precision)?;
                    let what =
                        format!("{precision:?} gradient, {n_rows} rows, {n_atoms} atoms, alpha {alpha}, {lanes} lanes");
                    Tolerance { absolute: batch.gradient_error(alpha as f64), relative }.check(
                        &what,
                        &got.dheads,
                        &want,
                    )?;
                    // The gap's zeros are exact.
                    let used = used_columns(&batch.heads.columns);
                    let gap = |index: usize| !used.contains(&(index % batch.heads.columns.stride as usize));
                    assert!(got.dheads.iter().enumerate().all(|(index, d)| !gap(index) || d.to_bits() == 0), "{what}");
                }
            }
        }
    }
    Ok(())
}

/// |got - want| / |want|.
fn distance(got: &[f32], want: &[f64]) -> f64 {
    let off: f64 = got.iter().zip(want).map(|(got, want)| (*got as f64 - want).powi(2)).sum();
    (off / want.iter().map(|want| want * want).sum::<f64>()).sqrt()
}

/// Central differences of J in float64: h^2 of its third derivative, and 1e-16 J / h, both under 1e-9.
fn the_gradient_equals_differences(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let batch = Batch::random(77, 2, 5, 2.0);
    let exact = batch.heads.exact();
    let h = 1e-5;
    let mut want = vec![0.0; exact.len()];
    for row in 0..batch.n_rows() {
        for column in used_columns(&batch.heads.columns) {
            let index = batch.heads.at(row, column);
            let at = |shift: f64| {
                let mut heads = exact.clone();
                heads[index] += shift;
                batch.objective(&heads, ALPHA as f64)
            };
            want[index] = (at(h) - at(-h)) / (2.0 * h);
        }
    }
    for &lanes in lab.row_lanes() {
        let got = run(&lab, lanes, &batch, ALPHA, Precision::F32)?;
        let absolute = batch.gradient_error(ALPHA as f64) + 1e-9;
        Tolerance { absolute, relative: 4.0 * U }.check("gradient by differences", &got.dheads, &want)?;
        assert!(distance(&got.dheads, &want) < 1e-5);
    }
    Ok(())
}

/// H: the target's mass where the logits are 160 under the greatest, so that p = e^-160 is no f32. The loss is 160 and the
/// gradient p - m, whole. Logits are exact here (V = +-80, A = 0), so the errors are those of M = 0 and of ln p near 160.
fn case_h_logits_of_80(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut batch = Batch::random(5, 51, 51, 1.0);
    batch.heads = Heads::from_fn(51, 51, 80.0, |row, column| {
        if column >= 204 {
            return 0.0;
        }
        if column % 51 == row { 80.0 } else { -80.0 }
    });
    batch.targets.fill(0.0);
    for row in 0..51 {
        for b in 0..4 {
            batch.targets[(row * 4 + b) * 51 + (row + 1 + b) % 51] = 1.0;
        }
    }
    let atoms = exact_atoms(&batch.atoms);
    let d = batch.heads.distributions(&atoms);
    let want = losses(&d, &exact_actions(&batch.actions), &batch.exact_targets(), &atoms);
    assert!(want.td.iter().all(|td| (td - 160.0).abs() < 1e-9), "the reference sees 160");
    let gradient = batch.gradient(ALPHA as f64);
    for &lanes in lab.row_lanes() {
        for (precision, relative) in [(Precision::F32, 4.0 * U), (Precision::Bf16, 1.0 / 256.0)] {
            let got = run(&lab, lanes, &batch, ALPHA, precision)?;
            let td = column(&got.row_losses, row_loss::TD);
            Tolerance { absolute: 0.0, relative: 8.0 * U }.check("KL of 160", &td, &want.td)?;
            let absolute = (24.0 * U + ALPHA as f64 * 20.0 * 100.0 * U) * 3.0 / (4.0 * 51.0);
            Tolerance { absolute, relative }.check("gradient", &got.dheads, &gradient)?;
        }
    }
    // Both signs at random: finite throughout.
    let batch = Batch::random(6, 33, 51, 80.0);
    for &lanes in lab.row_lanes() {
        let got = run(&lab, lanes, &batch, ALPHA, Precision::F32)?;
        assert!(got.row_losses.iter().chain(&got.dheads).chain(&got.q).all(|x| x.is_finite()));
        let want = batch.gradient(ALPHA as f64);
        let absolute = batch.gradient_error(ALPHA as f64);
        Tolerance { absolute, relative: 4.0 * U }.check("gradient of +-80", &got.dheads, &want)?;
    }
    Ok(())
}

/// The kernel without CQL is an instance of its own: on the CPU it does what a weight of 0 does bit for bit, while a GPU's compiler may fuse
/// other multiplications and additions in it.
fn without_cql_the_rest_is_that_of_no_weight(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(1, 51), (65, 51)].into_iter().chain(ATOMS.map(|k| (9, k))) {
        let batch = Batch::random((n_rows * 100 + n_atoms) as u64, n_rows, n_atoms, 3.0);
        let (want, absolute) = (batch.gradient(0.0), batch.gradient_error(0.0));
        for ((precision, relative), &lanes) in [(Precision::F32, 4.0 * U), (Precision::Bf16, 1.0 / 256.0)]
            .into_iter()
            .flat_map(|p| lab.row_lanes().iter().map(move |lanes| (p, lanes)))
        {
            let got = run_with(&lab, lanes, &batch, None, precision)?;
            let what = format!("{n_rows} rows, {n_atoms} atoms, {lanes} lanes, {precision:?}");
            Tolerance { absolute, relative }.check(&format!("gradient of {what}"), &got.dheads, &want)?;
            assert!(column(&got.row_losses, row_loss::CQL).iter().all(|cql| cql.to_bits() == 0), "no CQL of {what}");
            let weightless = run(&lab, lanes, &batch, 0.0, precision)?;
            assert!(column(&weightless.row_losses, row_loss::CQL).iter().all(|cql| *cql > 0.0), "CQL of {what}");
            if device.backend_name() != "cpu" {
                continue;
            }
            assert_eq!(bits(&got.dheads), bits(&weightless.dheads), "gradient of {what}");
            assert_eq!(bits(&got.q), bits(&weightless.q), "Q of {what}");
            for part in [row_loss::WEIGHTED_CE, row_loss::TD, row_loss::SQUARED_GAP] {
                let of = |got: &Got| bits(&column(&got.row_losses, part));
                assert_eq!(of(&got), of(&weightless), "loss {part} of {what}");
            }
        }
    }
    Ok(())
}

fn nan_reaches_its_row_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut batch = Batch::random(8, 9, 51, 2.0);
    let clean = run(&lab, lab.row_lanes()[0], &batch, ALPHA, Precision::F32)?;
    let (taken, columns) = (batch.actions[4][1] as usize, batch.heads.columns);
    let at = batch.heads.at(4, columns.advantage(1, taken) + 50);
    batch.heads.values[at] = f32::NAN;
    let got = run(&lab, lab.row_lanes()[0], &batch, ALPHA, Precision::F32)?;
    let stride = columns.stride as usize;
    assert!(got.row_losses[16..20].iter().all(|loss| loss.is_nan()), "{:?}", &got.row_losses[16..20]);
    for row in (0..9).filter(|row| *row != 4) {
        let same = |mine: &[f32], other: &[f32], width: usize| {
            bits(&mine[row * width..(row + 1) * width]) == bits(&other[row * width..(row + 1) * width])
        };
        assert!(same(&got.row_losses, &clean.row_losses, 4) && same(&got.dheads, &clean.dheads, stride), "row {row}");
    }
    Ok(())
}

/// A target that is not finite must not look like one without mass.
fn a_target_of_nan_is_seen(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for bad in [f32::NAN, f32::INFINITY] {
        let mut batch = Batch::random(9, 3, 51, 2.0);
        batch.targets[(4 + 2) * 51 + 17] = bad;
        for &lanes in lab.row_lanes() {
            let got = run(&lab, lanes, &batch, ALPHA, Precision::F32)?;
            for (row, losses) in got.row_losses.chunks(4).enumerate() {
                let finite = losses[..3].iter().all(|loss| loss.is_finite());
                assert_eq!(finite, row != 1, "row {row}: {losses:?}");
                assert!(row != 1 || losses[..3].iter().all(|loss| !loss.is_finite()), "row {row}: {losses:?}");
            }
        }
    }
    Ok(())
}

fn the_same_bits_twice(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let batch = Batch::random(10, 40, 51, 3.0);
    for &lanes in lab.row_lanes() {
        let (a, b) =
            (run(&lab, lanes, &batch, ALPHA, Precision::F32)?, run(&lab, lanes, &batch, ALPHA, Precision::F32)?);
        assert_eq!(bits(&a.dheads), bits(&b.dheads));
        assert_eq!(bits(&a.row_losses), bits(&b.row_losses));
    }
    Ok(())
}
