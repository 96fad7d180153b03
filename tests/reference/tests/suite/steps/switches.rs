//! Learners that are off.

use reference::config::{Learners, Sizes};
use reference::iql;
use reference::isv::index;
use reference::layout::Group;
use reference::step::{State, step};

use super::{ALL_BUT_THETA, agent, batch, run};

/// A switch leaves what does not depend on its learner as it was, bit for bit.
#[test]
fn a_learner_that_is_off_leaves_the_others_alone() {
    let after = |learners: Learners, n_steps: usize| {
        let mut state = agent(learners);
        run(&mut state, n_steps);
        state
    };
    let full = after(Learners::FULL, 3);
    for (why, learners, own) in [
        ("selectivity", Learners { selectivity: false, ..Learners::FULL }, Some(Group::Selectivity)),
        ("risk", Learners { risk: false, ..Learners::FULL }, None),
    ] {
        let state = after(learners, 3);
        for group in ALL_BUT_THETA.into_iter().chain([Group::Theta]) {
            let same = state.params.group(group) == full.params.group(group);
            assert_eq!(same, own != Some(group), "{why}: {group:?}");
        }
    }
    // These come back through the internal state vector or the target, which the second step reads.
    let first = after(Learners::FULL, 1);
    for (why, learners, own) in [
        ("iql", Learners { iql: false, ..Learners::FULL }, Some(Group::IqlHigh)),
        ("popart", Learners { popart: false, ..Learners::FULL }, Some(Group::IqlHigh)),
        ("q_statistics", Learners { q_statistics: false, ..Learners::FULL }, None),
        ("target_ema", Learners { target_ema: false, ..Learners::FULL }, None),
    ] {
        let theta = |state: &State| state.params.group(Group::Theta).to_vec();
        let without = after(learners, 1);
        assert!(theta(&without) == theta(&first), "{why}: theta after the first step");
        assert!(theta(&after(learners, 3)) != theta(&full), "{why} does not come back");
        let is_own = |group| without.params.group(group) != first.params.group(group);
        assert!(own.is_none_or(is_own), "{why}: its own parameters are the same");
    }
}

/// Off, V is the head's raw output and its loss on plain q; without a target, targets come from the online parameters.
#[test]
fn popart_and_the_target_network_can_be_left_out() {
    let mut state = agent(Learners { popart: false, target_ema: false, q_statistics: false, ..Learners::FULL });
    for _ in 0..3 {
        let before = state.clone();
        let out = run(&mut state, 1).remove(0);
        let pass = iql::forward(state.config.precision, &before.params, "iql_high", &out.at.pass.trunk.output);
        assert_eq!(out.aux.v_high, pass.outputs);
        let loss = out.aux.losses.iter().find(|(group, _)| *group == Group::IqlHigh).expect("it learns").1.loss;
        assert_eq!(loss, iql::loss(&pass, 0.9, &out.aux.q).0);
        let [mean, std] = [index::POPART_MEAN, index::POPART_STD].map(|entry| state.isv.entries[entry]);
        assert_eq!((mean, std, state.popart.moments), (0.0, 1.0, None));
        // Temporal block and attention included; the passes differ by the depth masks alone, behind u.
        assert_eq!(out.next.target.u, out.next.online.u);
        let sigmas = |at: usize| out.spectra[at].iter().map(|one| one.sigma).collect::<Vec<_>>();
        assert_eq!(sigmas(0), sigmas(1));
        for entry in [index::Q_MEAN_EMA, index::Q_VAR_EMA] {
            assert_eq!(state.isv.entries[entry], 0.0);
        }
    }
    assert_eq!(state.q_statistics, None, "taken at step 3 where they are on");
}

#[test]
fn parts_of_u_that_are_off_are_zero_and_the_layout_stays() {
    let (batch, draws) = batch();
    let mut core = agent(Learners::CORE);
    let mut full = agent(Learners::FULL);
    assert_eq!(core.params.flat, full.params.flat, "the start does not depend on switches");
    let columns = Sizes::TINY.input();
    let (off, on) = (step(&mut core, &batch, &draws).at.pass.u, step(&mut full, &batch, &draws).at.pass.u);
    for j in 0..columns.width {
        assert_eq!(off[(0, j)] == on[(0, j)], j < columns.temporal, "column {j}");
        assert!(j < columns.temporal || off[(0, j)] == 0.0);
    }
    assert_eq!(on[(2, columns.goal)], batch.states[(2, Sizes::TINY.state_dim() - 1)]);
    assert_eq!(on[(2, 0)], batch.states[(2, 3 * 24)], "the last bar's features come first");
    assert_eq!(on[(2, columns.portfolio)], batch.states[(2, 4 * 24)]);
}
