//! The whole step: order, gating, switches, learning.

mod switches;

use crate::support::*;
use reference::adam::{adam_element, group_norm};
use reference::config::{Config, Learners, PruneSchedule, Sizes};
use reference::isv::index;
use reference::layout::Group;
use reference::matrix::{dot, norm};
use reference::step::{Batch, Draws, Outputs, State, rescored_td, step};

const SPECTRAL_STREAM: u32 = 11;
const ALL_BUT_THETA: [Group; 6] =
    [Group::Attention, Group::Iqn, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];

fn agent(learners: Learners) -> State {
    let config = Config {
        prune: PruneSchedule { final_sparsity: 0.5, start: 2, end: 6, every: 2 },
        stats_every: 3,
        causal_every: 4,
        ..Config::new(Sizes::TINY, learners)
    };
    State::new(config, 5, 1.0, SPECTRAL_STREAM)
}

fn batch() -> (Batch, Draws) {
    random_batch(&Sizes::TINY, 8, 3)
}

fn run(state: &mut State, n_steps: usize) -> Vec<Outputs> {
    let (batch, draws) = batch();
    (0..n_steps).map(|_| step(state, &batch, &draws)).collect()
}

/// All that a gated step leaves alone.
fn assert_same_learner(got: &State, want: &State, why: &str) {
    assert_eq!(got.params.flat, want.params.flat, "{why}: parameters");
    assert_eq!(got.moments, want.moments, "{why}: moments");
    assert_eq!(got.target, want.target, "{why}: target");
    assert_eq!(got.popart, want.popart, "{why}: PopArt");
    assert_eq!(got.spacing, want.spacing, "{why}: spacing");
    assert_eq!(got.max_priority, want.max_priority, "{why}: greatest priority");
    assert_eq!(got.snapshot, want.snapshot, "{why}: snapshot");
    assert_eq!(got.iqn, want.iqn, "{why}: IQN's averages");
    for entry in 0..23 {
        // Health and the count tell of the gating itself; causal_mean is no average and of parameters that are well.
        if ![index::HEALTH, index::SKIPPED_UPDATES, index::CAUSAL_MEAN].contains(&entry) {
            assert_eq!(got.isv.entries[entry], want.isv.entries[entry], "{why}: entry {entry}");
        }
    }
}

#[test]
fn full_and_core_agents_learn_a_fixed_batch() {
    for learners in [Learners::FULL, Learners::CORE] {
        let mut state = agent(learners);
        let outputs = run(&mut state, 20);
        let td = |o: &Outputs| reference::matrix::mean(&o.at.losses.td);
        // KL, not cross-entropy: the target's own entropy is no error.
        println!("td {} -> {}", td(&outputs[0]), td(&outputs[19]));
        assert!(td(&outputs[19]) < 0.5 * td(&outputs[0]), "{learners:?}");
        assert!(outputs.iter().all(|o| !o.gated));
        assert_eq!((state.counters.adam_t, state.counters.rng_step), (20, 20));
        assert!(state.params.flat.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn the_same_start_gives_the_same_bits_and_another_seed_does_not() {
    let (mut a, mut b) = (agent(Learners::FULL), agent(Learners::FULL));
    run(&mut a, 3);
    run(&mut b, 3);
    assert_eq!(a.params.flat, b.params.flat);
    let other = State::new(a.config.clone(), 6, 1.0, SPECTRAL_STREAM);
    assert_ne!(other.params.flat, agent(Learners::FULL).params.flat);
}

/// I5: whatever is not finite gates the step, and the next good one goes on.
#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let (good, draws) = batch();
    let mut warm = agent(Learners::FULL);
    run(&mut warm, 3);
    let with = |change: &dyn Fn(&mut Batch)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    for (why, bad) in [
        ("a feature", with(&|b| b.states[(2, 1)] = f64::NAN)),
        ("a next state", with(&|b| b.next_states[(2, 1)] = f64::INFINITY)),
        ("a reward", with(&|b| b.rewards[4] = f64::NAN)),
        ("a weight", with(&|b| b.weights[0] = f64::INFINITY)),
    ] {
        let mut state = warm.clone();
        let outputs = step(&mut state, &bad, &draws);
        assert!(outputs.gated, "{why}");
        assert!(outputs.priorities.iter().all(Option::is_none), "{why}");
        assert_same_learner(&state, &warm, why);
        assert_eq!(state.counters.adam_t, 3, "{why}: adam_t counts applied updates");
        assert_eq!(state.counters.rng_step, 4, "{why}: rng_step counts steps");
        for group in ALL_BUT_THETA {
            assert_eq!(*state.counter(group), 3, "{why}: {group:?}");
        }
        assert_eq!(state.isv.entries[index::SKIPPED_UPDATES], 1.0, "{why}");
        assert!(state.isv.entries[index::HEALTH] < 0.51, "{why}");
        assert!(!step(&mut state, &good, &draws).gated, "{why}: training goes on");
    }
}

#[test]
fn a_head_is_gated_alone() {
    let (good, draws) = batch();
    let mut state = agent(Learners::FULL);
    run(&mut state, 2);
    state.params.slice_mut("iql_low.hidden.bias")[0] = f64::NAN;
    let theta = state.params.group(Group::Theta).to_vec();
    let outputs = step(&mut state, &good, &draws);
    assert!(!outputs.gated);
    for head in &outputs.heads {
        assert_eq!(head.applied, head.group != Group::IqlLow, "{:?}", head.group);
    }
    assert_eq!((state.counters.iql_low_t, state.counters.iql_t, state.counters.adam_t), (2, 3, 3));
    assert_ne!(state.params.group(Group::Theta), theta);
    assert!(outputs.td_modulated.iter().all(|td| td.is_finite()), "V_high alone modulates");
}

#[test]
fn a_row_with_a_td_that_is_not_finite_keeps_its_leaf() {
    let (good, draws) = batch();
    let mut state = agent(Learners::FULL);
    state.params.slice_mut("iql_high.out.bias")[0] = f64::NAN;
    let outputs = step(&mut state, &good, &draws);
    assert!(!outputs.gated);
    assert!(outputs.priorities.iter().all(Option::is_none));
    assert_eq!(state.max_priority, 1.0);
}

#[test]
fn relabelled_rows_do_not_write_their_priority() {
    let (good, draws) = batch();
    let mut state = agent(Learners::FULL);
    let outputs = step(&mut state, &good, &draws);
    for (i, priority) in outputs.priorities.iter().enumerate() {
        assert_eq!(priority.is_none(), good.relabelled[i], "row {i}");
    }
    let top = outputs.priorities.iter().flatten().copied().fold(1.0, f64::max);
    assert_eq!(state.max_priority, top);
}

/// Theta's first update recomputed from the gradient: norm, clip, AdamW, mask; and the target from the parameters before it.
#[test]
fn first_update_follows_from_its_gradient() {
    let (batch, draws) = batch();
    let mut state = agent(Learners::FULL);
    let before = state.clone();
    let outputs = step(&mut state, &batch, &draws);
    assert_eq!(outputs.update.clip, 10.0, "the control clip at the first applied update");
    assert_close("norm", outputs.update.norm, group_norm(&outputs.first.params, Group::Theta), 1e-14);
    let scale = (10.0 / outputs.update.norm).min(1.0);
    for (name, decay) in [("trunk.block1.w2", 1e-4), ("temporal.conv.weight", 0.0), ("branch.order.out.bias", 0.0)] {
        for (i, gradient) in outputs.first.params.slice(name).iter().enumerate() {
            let (want, ..) = adam_element(before.params.slice(name)[i], scale * gradient, 0.0, 0.0, 1, 2e-3, decay);
            assert_close(name, state.params.slice(name)[i], want, 1e-14);
        }
    }
    assert_eq!(state.target, before.target, "target and parameters start equal, so the first EMA moves nothing");
    let (params, target) = (state.params.clone(), state.target.clone());
    let outputs = step(&mut state, &batch, &draws);
    for name in ["trunk.in.weight", "attention.bars.wq", "iqn.phi.weight"] {
        let (old, online) = (target.slice(name), params.slice(name));
        for i in 0..old.len() {
            assert_close(name, state.target.slice(name)[i], old[i] + outputs.tau * (online[i] - old[i]), 1e-15);
        }
    }
    let ema = state.isv.seeded(index::CLIP_EMA).expect("two applied updates");
    assert_close("clip follows the norm", outputs.update.clip, (2.0 * before_norm(&before)).min(10.0), 1e-12);
    assert!(ema > 0.0);
}

/// Norm of the first step's gradient, by running it again.
fn before_norm(before: &State) -> f64 {
    let (batch, draws) = batch();
    step(&mut before.clone(), &batch, &draws).update.norm
}

#[test]
fn vaccine_meets_the_snapshot_of_the_step_before() {
    let outputs = run(&mut agent(Learners::FULL), 3);
    assert_eq!(outputs[0].update.vaccine, None, "without a snapshot nothing is added");
    for pair in outputs.windows(2) {
        let (s, g) = (&pair[0].update.masked, &pair[1].update.masked);
        let vaccine = pair[1].update.vaccine.expect("a snapshot is there");
        // The mask may have been renewed between the two; the cosine is of what was stored.
        assert_close("cosine", vaccine.cosine, dot(g, s) / (norm(g) * norm(s)), 1e-14);
    }
}

#[test]
fn pruned_weights_stay_zero() {
    let mut state = agent(Learners::FULL);
    let mut pruned_before = 0;
    for n in 1..=8 {
        run(&mut state, 1);
        let pruned = |state: &State| {
            let w = state.params.slice("trunk.block0.w1");
            w.iter().filter(|w| **w == 0.0).count()
        };
        assert!(pruned(&state) >= pruned_before, "step {n}");
        pruned_before = pruned(&state);
    }
    assert!((state.isv.entries[index::SPARSITY] - 0.5).abs() < 0.02, "{}", state.isv.entries[index::SPARSITY]);
    assert!(pruned_before > 400, "half of 1,024 less a bin: {pruned_before}");
}

#[test]
fn what_is_due_every_n_steps_is_done_then() {
    let mut state = agent(Learners::FULL);
    for n in 1..=4u64 {
        let spacing = state.spacing.clone();
        let outputs = run(&mut state, 1).remove(0);
        assert_eq!(outputs.causal.is_some(), n % 4 == 0, "step {n}");
        assert_eq!(state.spacing != spacing, n % 3 == 0, "step {n}");
        assert_eq!(state.q_statistics.is_some(), n >= 3, "step {n}");
    }
    let even = state.atoms.clone();
    state.refresh_atoms();
    assert_ne!(state.atoms, even, "atoms wait for the epoch's boundary");
    assert!(state.isv.entries[index::CAUSAL_MEAN] > 0.0);
}

#[test]
fn depth_masks_reach_online_passes_and_keep_probabilities_the_target() {
    let (batch, mut draws) = batch();
    let kept = step(&mut agent(Learners::FULL), &batch, &draws);
    draws.depth_uniforms = vec![0.99; 2];
    let dropped = step(&mut agent(Learners::FULL), &batch, &draws);
    assert_ne!(kept.at.pass.trunk.output, dropped.at.pass.trunk.output);
    assert_ne!(kept.next.online.trunk.output, dropped.next.online.trunk.output);
    assert_eq!(kept.next.target.trunk.output, dropped.next.target.trunk.output);
    assert!(dropped.first.params.slice("trunk.block0.w1").iter().all(|g| *g == 0.0), "a dropped block learns nothing");
}

#[test]
fn readiness_opens_iqn_to_the_trunk_after_the_first_step() {
    let mut state = agent(Learners::FULL);
    let outputs = run(&mut state, 6);
    let reach = |o: &Outputs| norm(&o.first.dh_iqn.as_ref().expect("IQN is on").values);
    assert_eq!(reach(&outputs[0]), 0.0, "readiness is 0 as the first step begins");
    assert_eq!(reach(&outputs[1]), 0.0, "the first loss seeds its own average");
    assert!(reach(&outputs[5]) > 0.0);
    assert!(state.readiness() > 0.0);
    assert_eq!(state.isv.entries[index::IQN_READINESS], state.readiness());
}

/// The other learners recomputed from what the step gave: targets and values under the batch's own PopArt, modulation by its std.
#[test]
fn iql_and_modulation_use_popart_as_updated() {
    let outputs = run(&mut agent(Learners::FULL), 2).remove(1);
    let (aux, td) = (&outputs.aux, &outputs.at.losses.td);
    let (mean_gap, std) = (
        |v: &[f64], e: f64| {
            let gaps = aux.q.iter().zip(v).map(|(q, v)| (q - v) / aux.popart.std());
            let loss = gaps.map(|gap| if gap < 0.0 { (1.0 - e) * gap * gap } else { e * gap * gap });
            loss.sum::<f64>() / v.len() as f64
        },
        aux.popart.std(),
    );
    assert!((std - 1.0).abs() > 0.1, "another std than at the start, or nothing is tested: {std}");
    for (group, want) in [(Group::IqlHigh, mean_gap(&aux.v_high, 0.9)), (Group::IqlLow, mean_gap(&aux.v_low, 0.1))] {
        let head = outputs.heads.iter().find(|head| head.group == group).expect("IQL is on");
        assert_close("expectile loss", head.loss, want, 1e-10 * want);
    }
    for (i, td) in td.iter().enumerate() {
        let advantage = (aux.q[i] - aux.v_high[i]) / (std + 1e-6);
        let want = td * advantage.exp().clamp(0.25, 4.0);
        assert_close("td", outputs.td_modulated[i], want, 1e-12);
    }
}

#[test]
fn averages_take_in_what_section_5_says() {
    let mut state = agent(Learners::FULL);
    let outputs = run(&mut state, 2);
    let (batch, _) = batch();
    let (mean, variance) = (reference::matrix::mean, reference::matrix::variance);
    let expect = |entry: usize, rate: f64, sample: &dyn Fn(&Outputs) -> f64| {
        let (first, second) = (sample(&outputs[0]), sample(&outputs[1]));
        let want = first + rate * (second - first);
        assert_close(&format!("entry {entry}"), state.isv.entries[entry], want, 1e-12 * want.abs().max(1e-3));
    };
    let q = |o: &Outputs| o.at.pass.distributions.all_q();
    expect(index::LOSS_EMA, 0.01, &|o| o.at.weighted_cross_entropy);
    expect(index::LOSS_SLOW, 0.001, &|o| o.at.weighted_cross_entropy);
    expect(index::GRAD_NORM_EMA, 0.01, &|o| o.update.norm);
    expect(index::CLIP_EMA, 0.01, &|o| o.update.norm);
    expect(index::TD_EMA, 0.01, &|o| mean(&o.at.losses.td));
    expect(index::TD_VAR_EMA, 0.01, &|o| variance(&o.at.losses.td));
    expect(index::Q_MEAN_EMA, 0.01, &|o| mean(&q(o)));
    expect(index::Q_VAR_EMA, 0.01, &|o| variance(&q(o)));
    expect(index::REWARD_EMA, 0.01, &|_| mean(&batch.rewards));
    expect(index::REWARD_VAR_EMA, 0.01, &|_| variance(&batch.rewards));
    expect(index::CQL_EMA, 0.01, &|o| o.at.cql);
    let loss = |o: &Outputs, group: Group| o.heads.iter().find(|h| h.group == group).expect("on").loss;
    expect(index::DENOISE_EMA, 0.01, &|o| loss(o, Group::Denoise));
    let last = &outputs[1].aux;
    for (entry, want) in [
        (index::IQL_GAP, mean(&last.v_high) - mean(&last.v_low)),
        (index::POPART_MEAN, last.popart.mean()),
        (index::POPART_STD, last.popart.std()),
        (index::SELECT_RATE, last.p_trade.iter().filter(|p| **p >= 0.4).count() as f64 / 8.0),
        (index::RISK_ETA, {
            let first = (1.0 - 1e-3 * outputs[0].aux.cvar_loss).clamp(0.05, 1.0);
            (first - 1e-3 * last.cvar_loss).clamp(0.05, 1.0)
        }),
    ] {
        assert_close(&format!("entry {entry}"), state.isv.entries[entry], want, 1e-12);
    }
}

/// A snapshot against the gradient makes the vaccine add; the next snapshot is of before that.
#[test]
fn the_snapshot_is_taken_before_the_vaccine() {
    let mut state = agent(Learners::FULL);
    run(&mut state, 2);
    let old: Vec<f64> = state.snapshot.iter().flatten().map(|s| -s).collect();
    state.snapshot = Some(old.clone());
    let outputs = run(&mut state, 1).remove(0);
    let update = &outputs.update;
    let multiple = update.vaccine.expect("there is a snapshot").multiple;
    assert!(multiple > 0.0);
    assert_eq!(state.snapshot.as_ref(), Some(&update.masked));
    // In the gaps between tensors the masks are 0 and so are the gradients.
    let kept = |i: usize| update.masks.group(Group::Theta)[i];
    for (i, g) in update.gradient.group(Group::Theta).iter().enumerate() {
        assert_close("gradient", *g, (update.masked[i] + multiple * old[i]) * kept(i), 1e-14);
    }
}

/// Each network is scaled by its own spectral norm, and both see the present bottleneck.
#[test]
fn target_has_its_own_spectral_norm_and_shares_the_bottleneck() {
    let (batch, draws) = batch();
    let mut state = agent(Learners { pruning: false, ..Learners::FULL });
    run(&mut state, 3);
    let columns = Sizes::TINY.input();
    let outputs = step(&mut state.clone(), &batch, &draws);
    let part = columns.bottleneck..columns.width;
    assert_eq!(outputs.next.online.u.columns(part.clone()), outputs.next.target.u.columns(part));
    // Twenty and forty times W_2 of the target: both far over sigma_max, so that the scaled matrix is the same.
    let grown = |factor: f64| {
        let mut grown = state.clone();
        grown.target.slice_mut("trunk.block1.w2").iter_mut().for_each(|w| *w *= factor);
        step(&mut grown, &batch, &draws)
    };
    let (twenty, forty) = (grown(20.0), grown(40.0));
    assert!(twenty.spectra[1][4].sigma > 3.0 && twenty.spectra[0][4].sigma < 3.0);
    let difference = twenty.next.target.trunk.output.zip(&forty.next.target.trunk.output, |a, b| a - b);
    assert!(norm(&difference.values) < 1e-10 * norm(&twenty.next.target.trunk.output.values));
    assert_eq!(twenty.next.online.trunk.output, outputs.next.online.trunk.output);
}

/// Priority refresh: the td of the step with keep probabilities in every pass, and nothing written.
#[test]
fn rescoring_uses_keep_probabilities() {
    let (batch, draws) = batch();
    let mut state = agent(Learners { depth: false, ..Learners::FULL });
    let rescored = rescored_td(&state, &batch);
    assert_eq!(
        rescored,
        step(&mut state, &batch, &draws).at.losses.td,
        "without stochastic depth all passes are alike"
    );
    let mut state = agent(Learners::FULL);
    let rescored = rescored_td(&state, &batch);
    assert_ne!(rescored, step(&mut state, &batch, &draws).at.losses.td);
    assert!(rescored.iter().all(|td| td.is_finite() && *td >= 0.0));
}

#[test]
fn named_outputs_have_unique_names_and_full_shapes() {
    let outputs = run(&mut agent(Learners::FULL), 4).remove(3);
    let named = outputs.named();
    let mut names: Vec<&str> = named.iter().map(|n| n.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), named.len());
    for one in &named {
        assert_eq!(one.shape.iter().product::<usize>(), one.values.len(), "{}", one.name);
    }
    for name in ["u", "logits.hold", "target.size", "td_modulated", "grad.attention.bars.wq", "causal", "sigma.target"]
    {
        assert!(names.contains(&name), "{name}");
    }
}
