//! Every gradient by hand against central differences in float64, for every tensor and every input that carries one.

use crate::support::*;
use reference::config::{Config, Learners, N_BRANCHES, Sizes};
use reference::layout::Tensors;
use reference::matrix::{Matrix, dot};
use reference::objective::{Constants, gradients, objective};
use reference::precision::Precision::Exact;
use reference::trunk::TrunkContext;
use reference::{activation, attention, branches, c51, cql, denoise, iql, iqn, norm, selectivity, temporal, trunk};

const S: Sizes = Sizes::MINIATURE;
const N_BATCH: usize = 3;

/// Sum of an output times fixed numbers: a scalar that reaches every element.
fn probe(output: &Matrix, direction: &Matrix) -> f64 {
    dot(&output.values, &direction.values)
}

fn moved(m: &Matrix, values: &[f64]) -> Matrix {
    Matrix::from_values(m.n_rows, m.n_cols, values.to_vec())
}

fn context(numbers: &mut Numbers) -> TrunkContext {
    let isv = [1.5, 0.7, 0.3, -0.2, 0.9, -0.4, 0.1, 0.6, -0.8, 0.2, 0.5, -0.1];
    let scales = (0..1 + 2 * S.blocks).map(|_| 0.5 + 0.5 * numbers.uniform()).collect();
    TrunkContext { film: Some(trunk::film_inputs(&isv)), scales, depth: vec![1.0, 0.9] }
}

#[test]
fn scalar_slopes() {
    for x in [-30.0, -3.0, -0.1, 0.0, 0.2, 4.0, 30.0] {
        let slope = |f: fn(f64) -> f64| central_differences(&[x], |v| f(v[0]))[0];
        assert_close("silu", activation::silu_slope(x), slope(activation::silu), 1e-9);
        assert_close("softplus", activation::sigmoid(x), slope(activation::softplus), 1e-9);
    }
    let (x, direction) = ([0.3, -1.2, 2.0], [0.7, -0.4, 0.2]);
    let numeric = central_differences(&x, |x| dot(&activation::softmax(x), &direction));
    assert_gradient("softmax", &activation::softmax_backward(&activation::softmax(&x), &direction), &numeric);
}

#[test]
fn rms_norm() {
    let mut numbers = Numbers(1);
    let (x, gain, direction) = (numbers.matrix(3, 5, 1.0), numbers.vector(5, 1.0), numbers.matrix(3, 5, 1.0));
    let (dx, dgain) = norm::rms_norm_backward(&x, &gain, &direction);
    let by_x = central_differences(&x.values, |v| probe(&norm::rms_norm(&moved(&x, v), &gain), &direction));
    assert_gradient("x", &dx.values, &by_x);
    let by_gain = central_differences(&gain, |gain| probe(&norm::rms_norm(&x, gain), &direction));
    assert_gradient("gain", &dgain, &by_gain);
}

#[test]
fn temporal_block() {
    let mut numbers = Numbers(2);
    let p = lively_parameters(&S, 2);
    let (bars, direction) =
        (numbers.matrix(N_BATCH * S.window, S.features, 1.0), numbers.matrix(N_BATCH, S.temporal, 1.0));
    let pass = temporal::forward(&S, Exact, &p, &bars);
    let mut grads = Tensors::zeros(&p.layout);
    temporal::backward(&S, Exact, &p, &pass, &direction, &mut grads);
    assert_tensor_gradients(&p, &grads, &["temporal."], |p| {
        probe(&temporal::forward(&S, Exact, p, &bars).output, &direction)
    });
}

#[test]
fn attention_blocks() {
    let mut numbers = Numbers(3);
    let p = lively_parameters(&S, 3);
    let (bars, direction) =
        (numbers.matrix(N_BATCH * S.window, S.features, 1.0), numbers.matrix(N_BATCH, S.attention, 1.0));
    let pass = attention::forward(&S, Exact, &p, &bars);
    let mut grads = Tensors::zeros(&p.layout);
    attention::backward(&S, Exact, &p, &pass, &direction, &mut grads);
    assert_tensor_gradients(&p, &grads, &["attention."], |p| {
        probe(&attention::forward(&S, Exact, p, &bars).output, &direction)
    });
}

#[test]
fn trunk_with_film_and_residual_blocks() {
    let mut numbers = Numbers(4);
    let p = lively_parameters(&S, 4);
    let context = context(&mut numbers);
    let (u, direction) = (numbers.matrix(N_BATCH, S.input().width, 1.0), numbers.matrix(N_BATCH, S.hidden, 1.0));
    let run = |p: &Tensors, u: &Matrix| probe(&trunk::forward(&S, Exact, p, u, &context).output, &direction);
    let pass = trunk::forward(&S, Exact, &p, &u, &context);
    let mut grads = Tensors::zeros(&p.layout);
    let du = trunk::backward(&S, Exact, &p, (&pass, &context), &direction, &mut grads);
    assert_gradient("u", &du.values, &central_differences(&u.values, |v| run(&p, &moved(&u, v))));
    assert_tensor_gradients(&p, &grads, &["trunk.", "film."], |p| run(p, &u));
}

#[test]
fn dueling_branches_with_and_without_selection() {
    let mut numbers = Numbers(5);
    let p = lively_parameters(&S, 5);
    let h = numbers.matrix(N_BATCH, S.hidden, 1.0);
    for selection in [true, false] {
        let pass = branches::forward(&S, Exact, &p, &h, selection);
        let directions: Vec<Matrix> = pass.logits.iter().map(|l| numbers.matrix(l.n_rows, l.n_cols, 1.0)).collect();
        let run = |p: &Tensors, h: &Matrix| -> f64 {
            let pass = branches::forward(&S, Exact, p, h, selection);
            pass.logits.iter().zip(&directions).map(|(l, d)| probe(l, d)).sum()
        };
        let mut grads = Tensors::zeros(&p.layout);
        let dh = branches::backward(&S, Exact, &p, &pass, &directions, &mut grads);
        assert_gradient("h", &dh.values, &central_differences(&h.values, |v| run(&p, &moved(&h, v))));
        let prefixes: &[&str] = if selection {
            &["branch."]
        } else {
            assert!(grads.slice("branch.gate.size.weight").iter().all(|g| *g == 0.0), "no gate, no gradient");
            &["branch.value", "branch.direction", "branch.size", "branch.order", "branch.hold"]
        };
        assert_tensor_gradients(&p, &grads, prefixes, |p| run(p, &h));
    }
}

/// A small batch's values.
struct ValueProblem {
    atoms: Vec<Vec<f64>>,
    logits: Vec<Matrix>,
    actions: Vec<[usize; N_BRANCHES]>,
    targets: Vec<Matrix>,
}

fn value_problem(seed: u64) -> ValueProblem {
    let mut numbers = Numbers(seed);
    let atoms: Vec<Vec<f64>> =
        (0..N_BRANCHES).map(|_| reference::atoms::atoms(&numbers.vector(S.atoms - 1, 1.0), (-2.0, 3.0))).collect();
    let logits = reference::config::BRANCH_SIZES.iter().map(|n| numbers.matrix(N_BATCH, n * S.atoms, 2.0)).collect();
    let targets = (0..N_BRANCHES).map(|_| numbers.distributions(N_BATCH, S.atoms)).collect();
    ValueProblem { atoms, logits, actions: numbers.actions(N_BATCH), targets }
}

fn assert_dlogits(logits: &[Matrix], analytic: &[Matrix], f: impl Fn(&[Matrix]) -> f64) {
    for b in 0..N_BRANCHES {
        let numeric = central_differences(&logits[b].values, |v| {
            let mut changed = logits.to_vec();
            changed[b] = moved(&logits[b], v);
            f(&changed)
        });
        assert_gradient(&format!("logits of branch {b}"), &analytic[b].values, &numeric);
    }
}

#[test]
fn weighted_cross_entropy_by_logits() {
    let ValueProblem { atoms, logits, actions, targets } = value_problem(6);
    let weights = [0.3, 1.0, 0.7];
    let analytic = c51::loss_dlogits(&c51::Distributions::new(&logits, &atoms), &actions, &targets, &weights);
    assert_dlogits(&logits, &analytic, |logits| {
        let losses = c51::losses(&c51::Distributions::new(logits, &atoms), &actions, &targets, &atoms);
        dot(&losses.cross_entropy, &weights) / N_BATCH as f64
    });
}

#[test]
fn td_error_has_the_gradient_of_the_cross_entropy() {
    let ValueProblem { atoms, logits, actions, targets } = value_problem(7);
    let analytic = c51::loss_dlogits(&c51::Distributions::new(&logits, &atoms), &actions, &targets, &[1.0; N_BATCH]);
    assert_dlogits(&logits, &analytic, |logits| {
        let losses = c51::losses(&c51::Distributions::new(logits, &atoms), &actions, &targets, &atoms);
        losses.td.iter().sum::<f64>() / N_BATCH as f64
    });
}

#[test]
fn cql_by_logits() {
    let ValueProblem { atoms, logits, actions, .. } = value_problem(8);
    let analytic = cql::dlogits(&c51::Distributions::new(&logits, &atoms), &actions, &atoms, 0.3);
    assert_dlogits(&logits, &analytic, |logits| 0.3 * cql::value(&c51::Distributions::new(logits, &atoms), &actions));
}

#[test]
fn quantile_huber_by_quantiles() {
    // Gaps on both sides of kappa and of 0, none nearer to a kink than the step of the differences.
    let (quantiles, targets) = ([-2.0, 0.1, 0.9], [-0.6, 0.4, 3.0, 1.2]);
    let numeric = central_differences(&quantiles, |q| iqn::quantile_huber(q, &targets).0);
    assert_gradient("quantiles", &iqn::quantile_huber(&quantiles, &targets).1, &numeric);
}

/// Target quantiles of a batch.
fn quantile_targets(numbers: &mut Numbers) -> Vec<[Vec<f64>; N_BRANCHES]> {
    (0..N_BATCH).map(|_| std::array::from_fn(|_| numbers.vector(S.quantiles, 2.0))).collect()
}

#[test]
fn iqn_head() {
    let mut numbers = Numbers(9);
    let p = lively_parameters(&S, 9);
    let (h, actions, targets) =
        (numbers.matrix(N_BATCH, S.hidden, 1.0), numbers.actions(N_BATCH), quantile_targets(&mut numbers));
    let run = |p: &Tensors, h: &Matrix| iqn::loss(&iqn::forward(&S, Exact, p, h), &actions, &targets).0;
    let pass = iqn::forward(&S, Exact, &p, &h);
    let mut grads = Tensors::zeros(&p.layout);
    let dh = iqn::backward(&S, Exact, &p, &pass, &iqn::loss(&pass, &actions, &targets).1, &mut grads);
    assert_gradient("h", &dh.values, &central_differences(&h.values, |v| run(&p, &moved(&h, v))));
    assert_tensor_gradients(&p, &grads, &["iqn."], |p| run(p, &h));
}

#[test]
fn iql_heads() {
    let mut numbers = Numbers(10);
    let p = lively_parameters(&S, 10);
    let (h, targets) = (numbers.matrix(N_BATCH, S.hidden, 1.0), numbers.vector(N_BATCH, 1.0));
    for (name, expectile) in [("iql_high", 0.9), ("iql_low", 0.1)] {
        let pass = iql::forward(Exact, &p, name, &h);
        let mut grads = Tensors::zeros(&p.layout);
        iql::backward(Exact, &p, name, &pass, &iql::loss(&pass, expectile, &targets).1, &mut grads);
        assert_tensor_gradients(&p, &grads, &[name], |p| {
            iql::loss(&iql::forward(Exact, p, name, &h), expectile, &targets).0
        });
    }
}

#[test]
fn selectivity_head() {
    let mut numbers = Numbers(11);
    let p = lively_parameters(&S, 11);
    let h = numbers.matrix(N_BATCH, S.hidden, 1.0);
    let labels = [Some(true), None, Some(false)];
    let run = |p: &Tensors, grads: &mut Tensors| selectivity::loss(p, &h, &labels, grads).loss;
    let mut grads = Tensors::zeros(&p.layout);
    run(&p, &mut grads);
    assert_tensor_gradients(&p, &grads, &["select."], |p| run(p, &mut Tensors::zeros(&p.layout)));
}

#[test]
fn denoise_layers() {
    let mut numbers = Numbers(12);
    let p = lively_parameters(&S, 12);
    let (noisy, clean) = (numbers.matrix(N_BATCH, S.features, 1.0), numbers.matrix(N_BATCH, S.features, 1.0));
    let run = |p: &Tensors, grads: &mut Tensors| denoise::loss(Exact, p, &noisy, &clean, grads);
    let mut grads = Tensors::zeros(&p.layout);
    run(&p, &mut grads);
    assert_tensor_gradients(&p, &grads, &["denoise."], |p| run(p, &mut Tensors::zeros(&p.layout)));
}

/// J through everything it reaches, for the full agent and the core one.
#[test]
fn objective_of_the_full_and_the_core_agent() {
    for (learners, prefixes) in [
        (Learners::FULL, &["temporal.", "trunk.", "film.", "branch.", "attention."][..]),
        (
            Learners::CORE,
            &["trunk.", "branch.value", "branch.direction", "branch.size", "branch.order", "branch.hold"][..],
        ),
    ] {
        let mut numbers = Numbers(13);
        let config = Config { alpha_cql: 0.5, ..Config::new(S, learners) };
        let p = lively_parameters(&S, 13);
        let heads = lively_parameters(&S, 14);
        let ValueProblem { atoms, actions, targets, .. } = value_problem(15);
        let states = numbers.matrix(N_BATCH, S.state_dim(), 1.0);
        let context = match learners.film {
            true => context(&mut numbers),
            false => TrunkContext { film: None, scales: vec![1.0; 1 + 2 * S.blocks], depth: vec![1.0; S.blocks] },
        };
        let quantiles = quantile_targets(&mut numbers);
        let constants = Constants {
            states: &states,
            actions: &actions,
            weights: &[0.4, 1.0, 0.8],
            targets: &targets,
            quantile_targets: learners.iqn.then_some(&quantiles[..]),
            atoms: &atoms,
            context: &context,
            heads: &heads,
            readiness: 0.7,
        };
        let analytic = gradients(&config, &p, &constants, &objective(&config, &p, &constants)).params;
        assert_tensor_gradients(&p, &analytic, prefixes, |p| objective(&config, p, &constants).total);
    }
}
