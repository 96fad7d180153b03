//! IQN's loss, what it adds to the objective, and the interquartile range.

use gpu_kernels::heads::{N_ACTIONS, first_action};
use gpu_kernels::iqn::boundary::{N_IQR_ROWS, refresh_iqn_iqr, refresh_iqn_iqr_shape};
use gpu_kernels::iqn::loss::{iqn_loss, iqn_total, iqn_total_shape};
use gpu_kernels::iqn::{N_QUANTILES, QUANTILE_STRIDE, level};
use gpu_kernels::lanes::row_shape;
use half::bf16;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config::{BRANCH_SIZES, N_BRANCHES};
use reference::double_dqn::discount;
use reference::iqn::{interquartile_range, quantile_huber};
use reference::matrix::mean;
use shared_types::{LossTotals, Precision, isv};

use crate::scene::{U, random_actions};

pub fn cases() -> Vec<Case> {
    vec![
        case("iqn::losses_and_gradients_equal_the_reference", losses_and_gradients_equal_the_reference),
        case("iqn::numbers_worked_by_hand", numbers_worked_by_hand),
        case("iqn::nothing_is_bootstrapped_behind_an_end", nothing_is_bootstrapped_behind_an_end),
        case("iqn::a_nan_stays_in_its_row", a_nan_stays_in_its_row),
        case("iqn::the_loss_joins_the_objective", the_loss_joins_the_objective),
        case("iqn::the_range_is_between_the_quartiles", the_range_is_between_the_quartiles),
    ]
}

const GAMMA: f32 = 0.97;

/// What the loss takes. Columns that are no action's are NaN.
struct Batch {
    quantiles: Vec<f32>,
    next_quantiles: Vec<f32>,
    actions: Vec<[u8; 4]>,
    next_actions: Vec<[u8; 4]>,
    rewards: Vec<f32>,
    dones: Vec<u8>,
    powers: Vec<f32>,
}

/// Rows `[8 B, 16]` of what `value` gives for (row, quantile, action).
fn rows(n_rows: usize, mut value: impl FnMut(usize, usize, usize) -> f32) -> Vec<f32> {
    let mut rows = vec![f32::NAN; n_rows * N_QUANTILES * QUANTILE_STRIDE];
    for (at, row) in rows.chunks_mut(QUANTILE_STRIDE).enumerate() {
        for (action, place) in row[..N_ACTIONS].iter_mut().enumerate() {
            *place = value(at / N_QUANTILES, at % N_QUANTILES, action);
        }
    }
    rows
}

impl Batch {
    /// Quantiles up to 3 either way, so that deltas lie on both sides of the Huber loss's threshold.
    fn random(n_rows: usize) -> Self {
        let mut numbers = Numbers::new(n_rows as u64 + 40);
        let mut signed = |scale: f64| (scale * (2.0 * numbers.unit() - 1.0)) as f32;
        let (quantiles, next_quantiles) = (rows(n_rows, |_, _, _| signed(3.0)), rows(n_rows, |_, _, _| signed(3.0)));
        let rewards = (0..n_rows).map(|_| signed(1.0)).collect();
        Self {
            quantiles,
            next_quantiles,
            actions: random_actions(&mut numbers, n_rows),
            next_actions: random_actions(&mut numbers, n_rows),
            rewards,
            dones: (0..n_rows).map(|row| u8::from(row % 7 == 4)).collect(),
            powers: (0..n_rows).map(|row| 1.0 + (row % 3) as f32).collect(),
        }
    }

    fn n_rows(&self) -> usize {
        self.actions.len()
    }

    fn run(&self, lab: &Lab, lanes: u32, precision: Precision) -> Result<(Vec<f32>, Vec<f32>), Failed> {
        let mut bus = [f32::NAN; isv::LEN];
        bus[isv::GAMMA] = GAMMA;
        let (quantiles, next) = (lab.upload(&self.quantiles)?, lab.upload(&self.next_quantiles)?);
        let (actions, next_actions) = (lab.upload(&self.actions)?, lab.upload(&self.next_actions)?);
        let (rewards, dones, powers) =
            (lab.upload(&self.rewards)?, lab.upload(&self.dones)?, lab.upload(&self.powers)?);
        let (bus, losses) = (lab.upload(&bus)?, lab.poisoned(self.n_rows())?);
        let d = lab.upload(&vec![0x7fc1u16; self.quantiles.len() * precision.words()])?;
        let launch = iqn_loss::launch(
            quantiles.view(),
            next.view(),
            actions.view(),
            next_actions.view(),
            rewards.view(),
            dones.view(),
            powers.view(),
            bus.view(),
            losses.view_mut(),
            d.view_mut(),
            precision,
        );
        lab.run(row_shape(self.n_rows(), lanes), launch)?;
        let words = d.read()?;
        let d = match precision {
            Precision::Bf16 => words.iter().map(|word| bf16::from_bits(*word).to_f32()).collect(),
            Precision::F32 => {
                words.chunks(2).map(|pair| f32::from_bits(pair[0] as u32 | (pair[1] as u32) << 16)).collect()
            }
        };
        Ok((losses.read()?, d))
    }

    /// Quantiles of a row's branch at the action taken, and their targets.
    fn of_branch(&self, row: usize, branch: usize) -> (Vec<f64>, Vec<f64>) {
        let column = |actions: &[[u8; 4]]| first_action(branch) + usize::from(actions[row][branch]);
        let of = |values: &[f32], column: usize| -> Vec<f64> {
            (0..N_QUANTILES).map(|n| f64::from(values[(row * N_QUANTILES + n) * QUANTILE_STRIDE + column])).collect()
        };
        let discount = discount(f64::from(GAMMA), self.powers[row] as u32, self.dones[row] == 1);
        let next = of(&self.next_quantiles, column(&self.next_actions));
        let targets = next.iter().map(|z| f64::from(self.rewards[row]) + discount * z).collect();
        (of(&self.quantiles, column(&self.actions)), targets)
    }
}

/// A target of at most 4 is off by at most 5 roundings, of which the power takes 2, delta of at most 7 by one more: 27 u. A term's slope by
/// delta is at most 1, also where the weight jumps, since the Huber loss is 0 there: a quantile's loss is off by that, and by 6
/// roundings of the term and 8 of the sum, of at most 6.5. A row's is the sum of 8 quantiles, mean over branches, with 40 additions more
/// at most. The derivative by a quantile is off by 27 u, 3 and 8 roundings of at most 1; it carries 1 / (4 B) and two roundings.
fn losses_and_gradients_equal_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in [0, 1, 3, 33, 257] {
        let batch = Batch::random(n_rows);
        let share = 1.0 / (N_BRANCHES * n_rows) as f64;
        let (mut want, mut want_d) = (Vec::new(), vec![0.0; batch.quantiles.len()]);
        for row in 0..n_rows {
            let mut of_branches = Vec::new();
            for branch in 0..N_BRANCHES {
                let (quantiles, targets) = batch.of_branch(row, branch);
                let (loss, gradient) = quantile_huber(&quantiles, &targets);
                of_branches.push(loss);
                let column = first_action(branch) + usize::from(batch.actions[row][branch]);
                for (n, d) in gradient.iter().enumerate() {
                    want_d[(row * N_QUANTILES + n) * QUANTILE_STRIDE + column] = share * d;
                }
            }
            want.push(mean(&of_branches));
        }
        for &lanes in lab.row_lanes() {
            let (losses, d) = batch.run(&lab, lanes, Precision::F32)?;
            let of_row = Tolerance { absolute: 8.0 * (27.0 + 14.0 * 6.5) * U, relative: 40.0 * U };
            of_row.check(&format!("losses of {n_rows} rows, {lanes} lanes"), &losses, &want)?;
            let of_quantile = Tolerance { absolute: if n_rows == 0 { 0.0 } else { 40.0 * share * U }, relative: 0.0 };
            of_quantile.check(&format!("gradients of {n_rows} rows, {lanes} lanes"), &d, &want_d)?;
            let (rounded_losses, rounded) = batch.run(&lab, lanes, Precision::Bf16)?;
            assert_eq!(bits(&rounded_losses), bits(&losses), "operands change no loss");
            let operands: Vec<f32> = d.iter().map(|d| bf16::from_f32(*d).to_f32()).collect();
            assert_eq!(bits(&rounded), bits(&operands), "operands are the gradient rounded once");
        }
    }
    Ok(())
}

/// All quantiles 0 and all targets the reward. 1/2 lies under the threshold: a quantile's loss is tau / 8, its derivative -tau / 2; levels add
/// up to 4. 3 lies above: 5/2 tau and -tau. -3 the same with 1 - tau. Short binary fractions: equality is exact.
fn numbers_worked_by_hand(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    // Reward, loss, and a and b of the derivative a + b tau.
    for (reward, loss, a, b) in [(0.5, 0.5, 0.0, -0.5), (3.0, 10.0, 0.0, -1.0), (-3.0, 10.0, 1.0, -1.0)] {
        let batch = Batch {
            quantiles: rows(1, |_, _, _| 0.0),
            next_quantiles: rows(1, |_, _, _| 0.0),
            actions: vec![[3, 2, 0, 1]],
            next_actions: vec![[0, 0, 0, 0]],
            rewards: vec![reward],
            dones: vec![0],
            powers: vec![1.0],
        };
        for &lanes in lab.row_lanes() {
            let (losses, d) = batch.run(&lab, lanes, Precision::F32)?;
            assert_eq!(losses, [loss], "reward {reward}");
            for (at, d) in d.iter().enumerate() {
                let (n, column) = (at / QUANTILE_STRIDE, at % QUANTILE_STRIDE);
                let want = if [3, 6, 7, 11].contains(&column) { 0.25 * (a + b * level(n)) } else { 0.0 };
                assert_eq!(*d, want, "reward {reward}, quantile {n}, column {column}");
            }
        }
    }
    assert_eq!(BRANCH_SIZES, [4, 3, 3, 3]);
    Ok(())
}

fn nothing_is_bootstrapped_behind_an_end(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut batch = Batch::random(5);
    batch.dones.fill(1);
    for &lanes in lab.row_lanes() {
        let before = batch.run(&lab, lanes, Precision::F32)?;
        batch.next_quantiles = rows(5, |row, n, action| (row + n + action) as f32);
        let after = batch.run(&lab, lanes, Precision::F32)?;
        assert_eq!((bits(&before.0), bits(&before.1)), (bits(&after.0), bits(&after.1)));
    }
    Ok(())
}

fn a_nan_stays_in_its_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_rows, row) = (9, 4);
    for of_target in [false, true] {
        let mut batch = Batch::random(n_rows);
        batch.dones.fill(0);
        let (values, actions) = match of_target {
            false => (&mut batch.quantiles, &batch.actions),
            true => (&mut batch.next_quantiles, &batch.next_actions),
        };
        values[(row * N_QUANTILES + 2) * QUANTILE_STRIDE + first_action(1) + usize::from(actions[row][1])] = f32::NAN;
        for &lanes in lab.row_lanes() {
            let (losses, d) = batch.run(&lab, lanes, Precision::Bf16)?;
            assert!(losses.iter().enumerate().all(|(i, loss)| loss.is_nan() == (i == row)), "{losses:?}");
            let per_row = d.chunks(N_QUANTILES * QUANTILE_STRIDE).enumerate();
            for (i, d) in per_row {
                assert!(d.iter().any(|d| d.is_nan()) == (i == row), "gradient of row {i}");
            }
        }
    }
    Ok(())
}

/// L in f64 is exact to f32's rounding; J adds two more.
fn the_loss_joins_the_objective(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (lambda, readiness, objective) = (0.1f32, 0.75f32, 1.5f32);
    let run = |losses: &[f32], readiness: f32, lanes: u32| -> Result<(f32, LossTotals), Failed> {
        let mut bus = [f32::NAN; isv::LEN];
        bus[isv::IQN_READINESS] = readiness;
        let before = LossTotals { objective, weighted_ce: 7.0, reward_var: 8.0, ..LossTotals::default() };
        let (losses, bus) = (lab.upload(losses)?, lab.upload(&bus)?);
        let (head_loss, totals) = (lab.poisoned(1)?, lab.upload(&[before])?);
        let launch = iqn_total::launch(losses.view(), bus.view(), lambda, head_loss.view_mut(), totals.view_mut());
        lab.run(iqn_total_shape(lanes), launch)?;
        let after = totals.read()?[0];
        assert_eq!(LossTotals { objective, ..after }, before, "J alone is written");
        Ok((head_loss.read()?[0], after))
    };
    for n_rows in [1, 3, 33, 257, 8192] {
        let mut numbers = Numbers::new(n_rows as u64);
        let losses: Vec<f32> = (0..n_rows).map(|_| numbers.heavy()).collect();
        let want = mean(&losses.iter().map(|&loss| f64::from(loss)).collect::<Vec<_>>());
        let want_j = f64::from(objective) + f64::from(lambda) * f64::from(readiness) * want;
        for &lanes in lab.row_lanes() {
            let (loss, totals) = run(&losses, readiness, lanes)?;
            let tolerance = Tolerance { absolute: 0.0, relative: 3.0 * U };
            tolerance.check(&format!("L and J of {n_rows} rows"), &[loss, totals.objective], &[want, want_j])?;
            let (loss, totals) = run(&losses, 0.0, lanes)?;
            assert_eq!(totals.objective, objective, "L = {loss} without weight");
        }
    }
    for &lanes in lab.row_lanes() {
        let (loss, totals) = run(&[1.0, f32::NAN, 2.0], 0.0, lanes)?;
        assert!(loss.is_nan() && totals.objective.is_nan(), "a NaN must be seen, whatever L weighs");
    }
    Ok(())
}

/// Rows behind the first 256 are NaN. A range's two sums, difference and half round three times, of quantiles up to 3: 9 u and, with 14
/// or, alone, 256 additions, relative to a mean of at most 6.
fn the_range_is_between_the_quartiles(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in [1, 3, 33, N_IQR_ROWS, 300] {
        let mut numbers = Numbers::new(n_rows as u64 + 7);
        let mut signed = || (6.0 * numbers.unit() - 3.0) as f32;
        let quantiles = rows(n_rows, |row, _, _| if row < N_IQR_ROWS { signed() } else { f32::NAN });
        let q: Vec<f32> = (0..n_rows * N_ACTIONS).map(|_| signed().round()).collect();
        let ranges: Vec<f64> = (0..n_rows.min(N_IQR_ROWS))
            .flat_map(|row| (0..N_BRANCHES).map(move |branch| (row, branch)))
            .map(|(row, branch)| {
                let first = row * N_ACTIONS + first_action(branch);
                let of_branch: Vec<f64> =
                    q[first..first + BRANCH_SIZES[branch]].iter().map(|&q| f64::from(q)).collect();
                let column = first_action(branch) + reference::activation::argmax(&of_branch);
                let of = |n: usize| f64::from(quantiles[(row * N_QUANTILES + n) * QUANTILE_STRIDE + column]);
                interquartile_range(&(0..N_QUANTILES).map(of).collect::<Vec<_>>())
            })
            .collect();
        let before: [f32; isv::LEN] = std::array::from_fn(|entry| entry as f32);
        for &lanes in lab.row_lanes() {
            let run = |quantiles: &[f32]| -> Result<Vec<f32>, Failed> {
                let (quantiles, q, bus) = (lab.upload(quantiles)?, lab.upload(&q)?, lab.upload(&before)?);
                let launch = refresh_iqn_iqr::launch(quantiles.view(), q.view(), bus.view_mut());
                lab.run(refresh_iqn_iqr_shape(lanes), launch)?;
                Ok(bus.read()?)
            };
            let after = run(&quantiles)?;
            let tolerance = Tolerance { absolute: (9.0 + 6.0 * 260.0) * U, relative: 0.0 };
            tolerance.check(&format!("range of {n_rows} rows"), &after[9..10], &[mean(&ranges)])?;
            for (entry, (after, before)) in after.iter().zip(&before).enumerate() {
                ensure!(entry == isv::IQN_IQR || after == before, "entry {entry} is written");
            }
            let nan = run(&vec![f32::NAN; quantiles.len()])?;
            ensure!(nan == before, "a range that is no number was taken over");
        }
    }
    Ok(())
}
