//! `loss_partials` and `loss_totals`.

use gpu_kernels::c51::{
    loss_partials, loss_partials_len, loss_partials_shape, loss_totals, loss_totals_shape, row_loss,
};
use gpu_kernels::heads::N_ACTIONS;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Failed, Outcome, case};
use reference::config::{BRANCH_SIZES, first_action};
use reference::matrix::{mean, variance};
use shared_types::LossTotals;

use crate::scene::U;

pub fn cases() -> Vec<Case> {
    vec![
        case("totals::equal_float64_at_every_size", |device| Lab::on_all_lanes(device, equal_float64_at_every_size)),
        case("totals::a_variance_survives_a_large_mean", |device| {
            Lab::on_all_lanes(device, a_variance_survives_a_large_mean)
        }),
        case("totals::without_statistics_of_q_the_rest_is_the_same", |device| {
            Lab::on_all_lanes(device, without_statistics_of_q_the_rest_is_the_same)
        }),
        case("totals::nan_reaches_its_means", |device| Lab::on_all_lanes(device, nan_reaches_its_means)),
    ]
}

const ALPHA: f32 = 0.25;
/// Past 256 blocks of 256 rows a block's threads take more than one.
const SIZES: [usize; 9] = [1, 2, 33, 255, 256, 257, 1000, 8192, 70_001];

struct Rows {
    losses: Vec<f32>,
    q: Vec<f32>,
    rewards: Vec<f32>,
}

impl Rows {
    fn random(n: usize) -> Self {
        let mut numbers = Numbers::new(n as u64);
        let mut signed = |scale: f64| (scale * (2.0 * numbers.unit() - 1.0)) as f32;
        let losses = (0..n * row_loss::N).map(|_| signed(1.0) + 1.5).collect();
        let q = (0..n * N_ACTIONS).map(|_| signed(8.0)).collect();
        Self { losses, q, rewards: (0..n).map(|_| signed(2.0)).collect() }
    }

    fn totals(&self, lab: &Lab) -> Result<LossTotals, Failed> {
        let n = self.rewards.len();
        let (losses, q, rewards) = (lab.upload(&self.losses)?, lab.upload(&self.q)?, lab.upload(&self.rewards)?);
        let partials = lab.upload(&vec![f64::NAN; loss_partials_len(n)])?;
        let totals = lab.upload(&[LossTotals::default()])?;
        let first = loss_partials::launch(losses.view(), q.view(), rewards.view(), partials.view_mut());
        lab.run(loss_partials_shape(n, lab.lanes()), first)?;
        lab.run(
            loss_totals_shape(lab.lanes()),
            loss_totals::launch(partials.view(), n as u32, ALPHA, totals.view_mut()),
        )?;
        Ok(totals.read()?[0])
    }

    fn column(&self, column: usize) -> Vec<f64> {
        self.losses.chunks(row_loss::N).map(|row| row[column] as f64).collect()
    }
}

fn numbers_of(totals: &LossTotals) -> Vec<f32> {
    bytemuck::cast_slice::<u32, f32>(&bytemuck::cast::<_, [u32; 16]>(*totals)[..13]).to_vec()
}

/// The sums are f64, off by 1e-16 of their terms at most 70,001 times over: what is left is a result's rounding to f32.
fn equal_float64_at_every_size(lab: &Lab) -> Outcome {
    for n in SIZES {
        let rows = Rows::random(n);
        let q: Vec<f64> = rows.q.iter().map(|q| *q as f64).collect();
        let rewards: Vec<f64> = rows.rewards.iter().map(|r| *r as f64).collect();
        let (ce, td, cql) =
            (mean(&rows.column(row_loss::WEIGHTED_CE)), rows.column(row_loss::TD), mean(&rows.column(row_loss::CQL)));
        let best: Vec<f64> = q
            .chunks(N_ACTIONS)
            .flat_map(|q| (0..4).map(|b| &q[first_action(b)..][..BRANCH_SIZES[b]]))
            .map(|q| q.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            .collect();
        let want = [
            ce,
            mean(&td),
            variance(&td),
            mean(&rows.column(row_loss::SQUARED_GAP)),
            cql,
            ce + ALPHA as f64 * cql,
            mean(&q),
            q.iter().copied().fold(f64::INFINITY, f64::min),
            q.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            variance(&q),
            mean(&best),
            mean(&rewards),
            variance(&rewards),
        ];
        let got = rows.totals(lab)?;
        Tolerance { absolute: 1e-12, relative: 1.01 * U }.check(&format!("{n} rows"), &numbers_of(&got), &want)?;
        assert_eq!(bits(&numbers_of(&rows.totals(lab)?)), bits(&numbers_of(&got)), "the same bits twice");
    }
    Ok(())
}

/// Rewards 1,000 and 1,000 + 2^-13 by turns: a variance of 2^-28, a quadrillionth of the squared mean's double.
fn a_variance_survives_a_large_mean(lab: &Lab) -> Outcome {
    let mut rows = Rows::random(4096);
    for (row, reward) in rows.rewards.iter_mut().enumerate() {
        *reward = 1000.0 + (row % 2) as f32 / 8192.0;
    }
    let got = rows.totals(lab)?.reward_var;
    // 4,096 sums of numbers near 10^6 in f64: 1e6 x 2^-53 x (4096 / 256 / 16 + 40) of 3.7e-9.
    // A thread alone adds 256 rows one after the other, which could err by six times as much; these rows stay within it.
    Tolerance { absolute: 1e6 * 41.0 * 2f64.powi(-53), relative: U }.check("variance", &[got], &[2f64.powi(-28)])?;
    rows.rewards.fill(0.1);
    assert!(rows.totals(lab)?.reward_var >= 0.0, "no variance is negative");
    Ok(())
}

fn without_statistics_of_q_the_rest_is_the_same(lab: &Lab) -> Outcome {
    for n in SIZES {
        let mut rows = Rows::random(n);
        let with = rows.totals(lab)?;
        rows.q.clear();
        let zeros = LossTotals { q_mean: 0.0, q_min: 0.0, q_max: 0.0, q_variance: 0.0, avg_max_q: 0.0, ..with };
        assert_eq!(bits(&numbers_of(&rows.totals(lab)?)), bits(&numbers_of(&zeros)), "{n} rows");
    }
    Ok(())
}

fn nan_reaches_its_means(lab: &Lab) -> Outcome {
    for at in [0, 300, 999] {
        let mut rows = Rows::random(1000);
        rows.losses[at * row_loss::N + row_loss::CQL] = f32::NAN;
        let got = rows.totals(lab)?;
        assert!(got.cql.is_nan() && got.objective.is_nan() && got.weighted_ce.is_finite(), "{got:?}");
        let mut rows = Rows::random(1000);
        rows.losses[at * row_loss::N + row_loss::TD] = f32::NAN;
        rows.rewards[at] = f32::INFINITY;
        rows.q[at * N_ACTIONS + 5] = f32::NAN;
        let got = rows.totals(lab)?;
        assert!(got.td_mean.is_nan() && got.td_var.is_nan() && got.objective.is_finite(), "{got:?}");
        assert!(got.reward_mean.is_infinite() && got.reward_var.is_nan(), "{got:?}");
        assert!(got.q_mean.is_nan() && got.q_variance.is_nan(), "{got:?}");
        assert!(got.q_min.is_finite() && got.q_max.is_finite(), "least and greatest pass over it: {got:?}");
    }
    Ok(())
}
