//! Passes of the network against other ways to compute the same.

use crate::support::*;
use reference::activation::{sigmoid, silu, softmax, softplus};
use reference::config::{BRANCH_SIZES, N_BRANCHES, Sizes};
use reference::layout::Tensors;
use reference::matrix::{Matrix, dot, norm};
use reference::norm::rms_norm;
use reference::precision::Precision::Exact;
use reference::spectral::{power_iteration, scale, start_vector};
use reference::trunk::{TrunkContext, depth_masks, film_inputs, keep_probabilities};
use reference::{attention, branches, temporal, trunk};

const S: Sizes = Sizes::MINIATURE;

#[test]
fn rms_norm_by_hand() {
    // mean(x^2) = 12.5, so y = gain x / sqrt(12.50001).
    let y = rms_norm(&Matrix::from_values(1, 2, vec![3.0, 4.0]), &[2.0, 0.5]);
    let r = 1.0 / 12.500_01f64.sqrt();
    assert_close("first", y[(0, 0)], 6.0 * r, 1e-15);
    assert_close("second", y[(0, 1)], 2.0 * r, 1e-15);
}

/// Dao and Gu 2024, equation 6: y = (L o C B^T) (dt x) with L_ts = a_t .. a_{s+1}, the dual, quadratic form of the same map.
#[test]
fn scan_equals_the_quadratic_form() {
    let mut numbers = Numbers(1);
    let p = lively_parameters(&S, 1);
    let n_batch = 2;
    let bars = numbers.matrix(n_batch * S.window, S.features, 1.0);
    let scanned = temporal::forward(&S, Exact, &p, &bars).scanned;
    let (inner, heads, width) = (S.scan_inner(), S.scan_heads, S.scan_head_width);
    let (w_e, w_in, w_conv) =
        (p.matrix("temporal.embed.weight"), p.matrix("temporal.in_proj.weight"), p.matrix("temporal.conv.weight"));
    for i in 0..n_batch {
        let projected: Vec<Vec<f64>> = (0..S.window)
            .map(|t| {
                let x = bars.row(i * S.window + t);
                let e: Vec<f64> =
                    (0..S.temporal).map(|j| dot(w_e.row(j), x) + p.slice("temporal.embed.bias")[j]).collect();
                (0..w_in.n_rows).map(|j| dot(w_in.row(j), &e)).collect()
            })
            .collect();
        let active = |t: usize, c: usize| {
            let past = |back: usize| if t >= back { projected[t - back][inner + c] } else { 0.0 };
            let sum: f64 = (0..4).map(|back| w_conv[(c, 3 - back)] * past(back)).sum();
            silu(sum + p.slice("temporal.conv.bias")[c])
        };
        for head in 0..heads {
            let dt =
                |t: usize| softplus(projected[t][inner + S.conv_channels() + head] + p.slice("temporal.dt_bias")[head]);
            let log_decay = |t: usize| -p.slice("temporal.a_log")[head].exp() * dt(t);
            let last = S.window - 1;
            for q in 0..width {
                let channel = head * width + q;
                let mut y = p.slice("temporal.d")[head] * active(last, channel);
                for s in 0..S.window {
                    let decay: f64 = (s + 1..=last).map(log_decay).sum::<f64>().exp();
                    let cb: f64 =
                        (0..S.scan_state).map(|n| active(last, inner + S.scan_state + n) * active(s, inner + n)).sum();
                    y += decay * cb * dt(s) * active(s, channel);
                }
                assert_close("y", scanned[(i, channel)], y, 1e-13);
            }
        }
    }
}

#[test]
fn the_last_bar_alone_gives_the_gate_and_every_bar_counts() {
    let mut numbers = Numbers(2);
    let p = lively_parameters(&S, 2);
    let bars = numbers.matrix(S.window, S.features, 1.0);
    let output = temporal::forward(&S, Exact, &p, &bars).output;
    for bar in 0..S.window {
        let mut changed = bars.clone();
        changed[(bar, 0)] += 0.5;
        assert_ne!(temporal::forward(&S, Exact, &p, &changed).output, output, "bar {bar}");
    }
}

/// With W_q = 0 all scores are equal, so that every token gets the mean of the values: attention by hand.
#[test]
fn attention_with_equal_scores_is_the_mean() {
    let mut numbers = Numbers(3);
    let mut p = lively_parameters(&S, 3);
    for block in ["bars", "channels"] {
        p.slice_mut(&format!("attention.{block}.wq")).fill(0.0);
    }
    let bars = numbers.matrix(S.window, S.features, 1.0);
    let mut x = Exact.linear(&bars, &p.matrix("attention.embed.weight"));
    x.add_to_rows(p.slice("attention.embed.bias"));
    for t in 0..S.window {
        for (j, angle) in [(0, t as f64), (1, t as f64), (2, t as f64 / 100.0), (3, t as f64 / 100.0)] {
            x[(t, j)] += if j % 2 == 0 { angle.sin() } else { angle.cos() };
        }
    }
    for block in ["bars", "channels"] {
        let values = Exact.linear(&x, &p.matrix(&format!("attention.{block}.wv")));
        let mean: Vec<f64> = values.sum_of_rows().iter().map(|sum| sum / values.n_rows as f64).collect();
        let mixed = Matrix::from_fn(x.n_rows, x.n_cols, |_, j| mean[j]);
        let mut y = Exact.linear(&mixed, &p.matrix(&format!("attention.{block}.wo")));
        y.add(&x);
        x = rms_norm(&y, p.slice(&format!("attention.{block}.gain"))).transposed();
    }
    // Transposed twice: rows are bars again.
    let output = attention::forward(&S, Exact, &p, &bars).output;
    for channel in 0..S.attention {
        let want = (0..S.window).map(|t| x[(t, channel)]).sum::<f64>() / S.window as f64;
        assert_close("output", output[(0, channel)], want, 1e-14);
    }
}

/// One head, one pair of tokens, by hand: weights are a softmax of q k / sqrt(width).
#[test]
fn attention_weights_are_scaled_softmax() {
    let sizes = Sizes { attention_heads: 1, window: 2, attention: 2, features: 2, ..S };
    let mut p = lively_parameters(&sizes, 4);
    let identity = [1.0, 0.0, 0.0, 1.0];
    for name in ["embed.weight", "bars.wq", "bars.wk", "bars.wv", "bars.wo"] {
        p.slice_mut(&format!("attention.{name}")).copy_from_slice(&identity);
    }
    p.slice_mut("attention.embed.bias").fill(0.0);
    p.slice_mut("attention.bars.gain").fill(1.0);
    // The second block adds nothing and norms each channel over the bars.
    p.slice_mut("attention.channels.wo").fill(0.0);
    p.slice_mut("attention.channels.gain").fill(1.0);
    let bars = Matrix::from_values(2, 2, vec![0.5, -1.0, 2.0, 0.25]);
    let x = [[0.5, -1.0 + 1.0], [2.0 + 1f64.sin(), 0.25 + 1f64.cos()]];
    let attended: Vec<Vec<f64>> = (0..2)
        .map(|t| {
            let scores: Vec<f64> = (0..2).map(|s| dot(&x[t], &x[s]) / 2f64.sqrt()).collect();
            let w = softmax(&scores);
            let row: Vec<f64> = (0..2).map(|j| x[t][j] + w[0] * x[0][j] + w[1] * x[1][j]).collect();
            let r = 1.0 / (dot(&row, &row) / 2.0 + 1e-5).sqrt();
            row.iter().map(|v| v * r).collect()
        })
        .collect();
    let output = attention::forward(&sizes, Exact, &p, &bars).output;
    for j in 0..2 {
        let over_bars = [attended[0][j], attended[1][j]];
        let r = 1.0 / (dot(&over_bars, &over_bars) / 2.0 + 1e-5).sqrt();
        assert_close("output", output[(0, j)], (over_bars[0] + over_bars[1]) / 2.0 * r, 1e-14);
    }
}

fn plain_context(depth: Vec<f64>) -> TrunkContext {
    TrunkContext { film: None, scales: vec![1.0; 1 + 2 * S.blocks], depth }
}

#[test]
fn film_off_equals_a_zero_matrix_and_a_dropped_block_is_the_identity() {
    let mut numbers = Numbers(5);
    let mut p = lively_parameters(&S, 5);
    let u = numbers.matrix(2, S.input().width, 1.0);
    let run = |p: &Tensors, context: &TrunkContext| trunk::forward(&S, Exact, p, &u, context);
    let off = run(&p, &plain_context(vec![0.0; 2]));
    assert_eq!(off.output, off.entry, "both blocks dropped and no modulation: h is the entry");
    let inputs = film_inputs(&[0.5; 12]);
    assert_eq!(inputs[1], 1.5f64.ln().tanh());
    assert_eq!(inputs[2], 0.5f64.tanh());
    let with_film = TrunkContext { film: Some(inputs), ..plain_context(vec![0.0; 2]) };
    let on = run(&p, &with_film);
    let w = p.matrix("film.weight");
    let want = off.entry[(1, 3)] * (1.0 + dot(w.row(3), &inputs)) + dot(w.row(S.hidden + 3), &inputs);
    assert_close("h (1 + g) + s", on.output[(1, 3)], want, 1e-14);
    p.slice_mut("film.weight").fill(0.0);
    assert_eq!(run(&p, &with_film).output, off.output, "the start: modulation is none");
}

#[test]
fn keep_probabilities_decay_linearly_and_masks_follow_them() {
    let keep = keep_probabilities(2, 0.9);
    assert_close("first block", keep[0], 0.95, 1e-15);
    assert_close("second block", keep[1], 0.9, 1e-15);
    assert_eq!(depth_masks(&[0.94, 0.94], &keep), [1.0, 0.0]);
}

/// sigma of one iteration a step, kept up over steps, against the largest singular value by 10,000 iterations of W^T W.
#[test]
fn spectral_sigma_is_the_largest_singular_value() {
    let mut numbers = Numbers(6);
    let w = numbers.matrix(6, 9, 1.0);
    let mut v = numbers.vector(9, 1.0);
    let mut sigma = 0.0;
    for _ in 0..10_000 {
        let wv: Vec<f64> = (0..6).map(|i| dot(w.row(i), &v)).collect();
        let back: Vec<f64> = (0..9).map(|j| (0..6).map(|i| w[(i, j)] * wv[i]).sum()).collect();
        sigma = norm(&back).sqrt();
        v = back.iter().map(|x| x / norm(&back)).collect();
    }
    let mut u = start_vector(&w, &numbers.vector(6, 1.0));
    let mut estimates = Vec::new();
    for _ in 0..500 {
        let iteration = power_iteration(&w, &u);
        assert_close("u is a unit vector", norm(&iteration.u), 1.0, 1e-11);
        estimates.push(iteration.sigma);
        u = iteration.u;
    }
    assert_close("after 500 steps", *estimates.last().expect("many"), sigma, 1e-9 * sigma);
    assert!(estimates.is_sorted_by(|a, b| *a <= b + 1e-12), "a power iteration's estimate never falls");
    assert!(estimates[0] > 0.9 * sigma && estimates[0] <= sigma + 1e-12, "15 iterations are near: {}", estimates[0]);
    assert_eq!((scale(2.0, 3.0), scale(3.0, 3.0), scale(6.0, 3.0)), (1.0, 1.0, 0.5), "never scaled up");
}

#[test]
fn dueling_means_are_the_value_and_equal_gates_select_nothing() {
    let mut numbers = Numbers(7);
    let mut p = lively_parameters(&S, 7);
    let h = numbers.matrix(2, S.hidden, 1.0);
    for selection in [false, true] {
        let pass = branches::forward(&S, Exact, &p, &h, selection);
        // mean_a logits_{b,a} = V_b, from V's own two layers.
        let mut pre = Exact.linear(&h, &p.matrix("branch.value.hidden.weight"));
        pre.add_to_rows(p.slice("branch.value.hidden.bias"));
        let mut value = Exact.linear(&pre.map(silu), &p.matrix("branch.value.out.weight"));
        value.add_to_rows(p.slice("branch.value.out.bias"));
        for b in 0..N_BRANCHES {
            for k in 0..S.atoms {
                let n = BRANCH_SIZES[b];
                let mean: f64 = (0..n).map(|a| pass.logits[b][(1, a * S.atoms + k)]).sum::<f64>() / n as f64;
                assert_close("mean of logits", mean, value[(1, b * S.atoms + k)], 1e-14);
            }
        }
        for gate in &pass.gates {
            assert_close("gates sum to 1", gate.row(0).iter().sum(), 1.0, 1e-15);
        }
    }
    for name in reference::config::BRANCH_NAMES {
        p.slice_mut(&format!("branch.gate.{name}.weight")).fill(0.0);
    }
    let equal = branches::forward(&S, Exact, &p, &h, true);
    let off = branches::forward(&S, Exact, &p, &h, false);
    for b in 0..N_BRANCHES {
        let gap = equal.logits[b].zip(&off.logits[b], |x, y| x - y);
        assert!(gap.values.iter().all(|d| d.abs() < 1e-14), "W_g = 0: groups * 1 / groups = 1");
    }
}

#[test]
fn a_gate_scales_its_own_group() {
    let mut p = lively_parameters(&S, 8);
    // Branch 0 sees group 1 alone: scores (0, 60, 0, 0) for h with a first element of 1.
    let w = p.slice_mut("branch.gate.direction.weight");
    w.fill(0.0);
    w[S.hidden] = 60.0;
    let mut h = Matrix::from_values(1, S.hidden, vec![1.0, 0.3, -0.7, 0.2, 0.9, -0.4, 0.6, -0.1]);
    let before = branches::forward(&S, Exact, &p, &h, true);
    assert_close("gate", before.gates[0][(0, 1)], 1.0, 1e-15);
    // Group 3 (elements 6, 7) reaches branch 0 through V only, which is the same for all actions.
    h[(0, 6)] = 5.0;
    let after = branches::forward(&S, Exact, &p, &h, true);
    let advantage = |pass: &branches::BranchesPass| pass.logits[0][(0, 0)] - pass.logits[0][(0, S.atoms)];
    assert_close("A_0 - A_1 of atom 0", advantage(&after), advantage(&before), 1e-13);
    assert_close("sigmoid in the gate of two", softmax(&[1.0, 0.0])[0], sigmoid(1.0), 1e-15);
}
