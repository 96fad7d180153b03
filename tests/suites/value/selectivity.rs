//! Selectivity: P(trade), its labels, loss and gradient.

use std::sync::Arc;

use gpu_kernels::columns::{
    ColumnShape, column_partials_scaled, column_partials_shape, column_sums, column_sums_shape, n_column_partials,
};
use gpu_kernels::heads::N_ACTIONS;
use gpu_kernels::lanes::row_shape;
use gpu_kernels::selectivity::{
    SelectParams, cross_entropy, paid, selectivity_loss, selectivity_loss_shape, trade_probability,
};
use onegraph_tests::lab::{Lab, Numbers, bits, within_relative};
use onegraph_tests::{Case, Failed, Outcome, case, ensure, host_case};
use reference::activation::argmax;
use reference::config::Sizes;
use reference::layout::{Layout, Tensors};
use reference::matrix::Matrix;
use reference::selectivity::{counts, loss, market_part, rate};

pub fn cases() -> Vec<Case> {
    vec![
        case("selectivity::loss_and_gradient_equal_the_reference", |device| {
            Lab::on_all_lanes(device, loss_and_gradient_equal_the_reference)
        }),
        case("selectivity::gradients_equal_differences_of_the_loss", |device| {
            Lab::on_all_lanes(device, gradients_equal_differences)
        }),
        case("selectivity::without_a_row_that_counts_all_is_0", |device| {
            Lab::on_all_lanes(device, without_a_row_that_counts_all_is_0)
        }),
        host_case("selectivity::rounding_does_not_pay", rounding_does_not_pay),
        host_case("selectivity::far_logits_lose_nothing", far_logits_lose_nothing),
    ]
}

const PARAMS: SelectParams = SelectParams { goal_column: 5, reward_scale: 0.2, her_weight: 0.01, threshold: 0.4 };
const STRIDE: usize = 8;
const N_SLOTS: usize = 64;
const HIDDEN: usize = Sizes::TINY.hidden;
/// The design's bound on unrounded tensors.
const BOUND: f64 = 1e-5;

struct Problem {
    p: Tensors,
    h: Vec<f32>,
    q: Vec<f32>,
    actions: Vec<[u8; 4]>,
    rewards: Vec<f32>,
    states: Vec<f32>,
    achieved: Vec<f32>,
    indices: Vec<u32>,
}

/// What the kernels leave.
struct Found {
    p_trade: Vec<f32>,
    loss: f32,
    rate: f32,
    bias: f32,
    weight: Vec<f32>,
}

impl Problem {
    fn random(n: usize) -> Self {
        let mut numbers = Numbers::new(n as u64);
        let mut signed = |scale: f64| (scale * (2.0 * numbers.unit() - 1.0)) as f32;
        let mut p = Tensors::zeros(&Arc::new(Layout::new(&Sizes::TINY)));
        for name in ["select.weight", "select.bias"] {
            p.slice_mut(name).iter_mut().for_each(|x| *x = f64::from(signed(1.0)));
        }
        let (h, q) =
            ((0..n * HIDDEN).map(|_| signed(1.0)).collect(), (0..n * N_ACTIONS).map(|_| signed(1.0)).collect());
        let (rewards, states) = ((0..n).map(|_| signed(0.3)).collect(), (0..n * STRIDE).map(|_| signed(2.0)).collect());
        let achieved = (0..N_SLOTS).map(|_| signed(2.0)).collect();
        let actions = (0..n).map(|_| [numbers.below(4) as u8, 0, 1, 2]).collect();
        let indices = (0..n).map(|_| numbers.below(N_SLOTS) as u32).collect();
        Self { p, h, q, actions, rewards, states, achieved, indices }
    }

    fn run(&self, lab: &Lab) -> Result<Found, Failed> {
        let n = self.actions.len();
        // The gap between weights and bias holds what must not be read.
        let mut layer: Vec<f32> = self.p.slice("select.weight").iter().map(|&x| x as f32).collect();
        layer.extend([f32::NAN; 3]);
        layer.push(self.p.slice("select.bias")[0] as f32);
        let (h, layer, q) = (lab.upload(&self.h)?, lab.upload(&layer)?, lab.upload(&self.q)?);
        let (logits, p_trade) = (lab.poisoned(n)?, lab.poisoned(n)?);
        let launch = trade_probability::launch(h.view(), layer.view(), logits.view_mut(), p_trade.view_mut());
        lab.run(row_shape(n, lab.lanes()), launch)?;
        let (actions, rewards, states) =
            (lab.upload(&self.actions)?, lab.upload(&self.rewards)?, lab.upload(&self.states)?);
        let (achieved, indices) = (lab.upload(&self.achieved)?, lab.upload(&self.indices)?);
        let (d_logits, scalars) = (lab.poisoned(n)?, lab.poisoned(3)?);
        let launch = selectivity_loss::launch(
            logits.view(),
            p_trade.view(),
            q.view(),
            actions.view(),
            rewards.view(),
            states.view(),
            achieved.view(),
            indices.view(),
            d_logits.view_mut(),
            scalars.slice(0..1).view_mut(),
            scalars.slice(1..2).view_mut(),
            scalars.slice(2..3).view_mut(),
            PARAMS,
        );
        lab.run(selectivity_loss_shape(lab.lanes()), launch)?;
        let partials = lab.poisoned(n_column_partials(n) * HIDDEN)?;
        let shape = ColumnShape::dense(n, HIDDEN);
        let launch = column_partials_scaled::launch(h.view(), d_logits.view(), partials.view_mut(), shape);
        lab.run(column_partials_shape(n, HIDDEN), launch)?;
        let (targets, weight) = (lab.upload(&(0..HIDDEN as u32).collect::<Vec<_>>())?, lab.poisoned(HIDDEN)?);
        let launch = column_sums::launch(partials.view(), targets.view(), weight.view_mut());
        lab.run(column_sums_shape(HIDDEN), launch)?;
        let scalars = scalars.read()?;
        let [loss, rate, bias] = [scalars[0], scalars[1], scalars[2]];
        Ok(Found { p_trade: p_trade.read()?, loss, rate, bias, weight: weight.read()? })
    }

    fn exact_h(&self) -> Matrix {
        Matrix::from_values(self.actions.len(), HIDDEN, self.h.iter().map(|&x| f64::from(x)).collect())
    }

    fn labels(&self) -> Vec<Option<bool>> {
        let of_row = |row: usize| {
            let q: Vec<f64> = self.q[row * N_ACTIONS..][..4].iter().map(|&q| f64::from(q)).collect();
            let (goal, slot) = (self.states[row * STRIDE + 5], self.indices[row] as usize);
            let [reward, goal, achieved] = [self.rewards[row], goal, self.achieved[slot]].map(f64::from);
            let market = market_part(reward, 0.2, 0.01, goal, achieved);
            counts(usize::from(self.actions[row][0]), argmax(&q)).then_some(market > 0.0)
        };
        (0..self.actions.len()).map(of_row).collect()
    }
}

fn loss_and_gradient_equal_the_reference(lab: &Lab) -> Outcome {
    for n in [1, 7, 33, 300, 1000] {
        let (problem, what) = (Problem::random(n), |part: &str| format!("{part} of {n} rows, {} lanes", lab.lanes()));
        let (found, mut grads) = (problem.run(lab)?, Tensors::zeros(&problem.p.layout));
        let labels = problem.labels();
        let want = loss(&problem.p, &problem.exact_h(), &labels, &mut grads);
        if n >= 33 {
            let n_paid = labels.iter().flatten().filter(|&&paid| paid).count();
            ensure!(0 < n_paid && n_paid < want.n_counted && want.n_counted < n, "{n_paid} of {}", want.n_counted);
        }
        within_relative(&what("P(trade)"), &found.p_trade, &want.p_trade, BOUND)?;
        within_relative(&what("loss"), &[found.loss], &[want.loss], BOUND)?;
        within_relative(&what("bias"), &[found.bias], grads.slice("select.bias"), BOUND)?;
        within_relative(&what("weight"), &found.weight, grads.slice("select.weight"), BOUND)?;
        let share = rate(&want.p_trade, 0.4);
        ensure!((f64::from(found.rate) - share).abs() < 1e-6, "rate {} of {share}", found.rate);
        ensure!(bits(&problem.run(lab)?.weight) == bits(&found.weight), "other bits");
    }
    Ok(())
}

fn gradients_equal_differences(lab: &Lab) -> Outcome {
    let problem = Problem::random(100);
    let (found, labels, h) = (problem.run(lab)?, problem.labels(), problem.exact_h());
    let check = |name: &str, element: usize, got: f32| -> Outcome {
        let at = |by: f64| {
            let mut p = problem.p.clone();
            p.slice_mut(name)[element] += by;
            loss(&p, &h, &labels, &mut Tensors::zeros(&p.layout)).loss
        };
        let step = 3e-4;
        let want = (at(-2.0 * step) - 8.0 * at(-step) + 8.0 * at(step) - at(2.0 * step)) / (12.0 * step);
        ensure!((f64::from(got) - want).abs() <= 1e-6, "{name}[{element}]: {got}, {want} by differences");
        Ok(())
    };
    check("select.bias", 0, found.bias)?;
    (0..HIDDEN).try_for_each(|element| check("select.weight", element, found.weight[element]))
}

fn without_a_row_that_counts_all_is_0(lab: &Lab) -> Outcome {
    let mut problem = Problem::random(50);
    // Flat and hold never count, whatever is greedy.
    problem.actions.iter_mut().for_each(|action| action[0] = 2 + action[0] % 2);
    let found = problem.run(lab)?;
    assert_eq!((found.loss, found.bias), (0.0, 0.0));
    ensure!(found.weight.iter().all(|&g| g == 0.0), "a gradient of no row");
    ensure!(found.p_trade.iter().all(|p| p.is_finite()) && found.rate > 0.0, "P(trade) is of every row");
    Ok(())
}

/// Stored rewards of a market that paid nothing, as the collector rounds them, at many distances from the goal; and of one that paid
/// a ten-thousandth of a bar's deviation.
fn rounding_does_not_pay() -> Outcome {
    let mut numbers = Numbers::new(3);
    let stored = |market: f32, off_goal: f32| PARAMS.reward_scale * (market - PARAMS.her_weight * off_goal);
    for _ in 0..100_000 {
        let off_goal = (4.0 * numbers.unit()) as f32;
        ensure!(!paid(stored(0.0, off_goal), off_goal, &PARAMS), "nothing at {off_goal} from the goal paid");
        ensure!(paid(stored(1e-4, off_goal), off_goal, &PARAMS), "1e-4 at {off_goal} from the goal did not pay");
        ensure!(!paid(stored(-1e-4, off_goal), off_goal, &PARAMS), "a loss at {off_goal} from the goal paid");
    }
    assert!(!paid(0.0, 0.0, &PARAMS) && paid(1e-30, 0.0, &PARAMS));
    Ok(())
}

fn far_logits_lose_nothing() -> Outcome {
    for (logit, label, want) in
        [(80.0f32, false, 80.0f32), (80.0, true, 0.0), (-80.0, true, 80.0), (-80.0, false, 0.0), (1e30, false, 1e30)]
    {
        let (loss, d) = cross_entropy(logit, label);
        // e^-80 of the far side is left.
        ensure!((loss - want).abs() <= 1e-6 * want + 1e-34, "loss {loss} at {logit}, {want} expected");
        let slope = if label { -1.0 } else { 1.0 };
        let want = if want > 0.0 { slope } else { 0.0 };
        ensure!((d - want).abs() < 1e-6, "slope {d} at {logit}, {want} expected");
    }
    // ln 2 and 1/2 at 0.
    let (loss, d) = cross_entropy(0.0, true);
    assert!((loss - std::f32::consts::LN_2).abs() < 1e-6 && d == -0.5);
    assert!(cross_entropy(f32::NAN, true).0.is_nan() && cross_entropy(f32::NAN, false).1.is_nan());
    Ok(())
}
