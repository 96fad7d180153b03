//! Replay's arithmetic, schedules, moving averages, the update, the epoch's boundary: known answers (case I among them).

use std::sync::Arc;

use crate::support::*;
use reference::adam::{adam_element, adaptive_clip, clip_scale, target_ema};
use reference::boundary::{self, EpsilonSchedule, epsilon, kelly_cap, kelly_fraction};
use reference::causal;
use reference::config::{PruneSchedule, Sizes};
use reference::isv::{Isv, RATE, health, index};
use reference::layout::{Layout, Tensors};
use reference::matrix::{Matrix, dot, norm};
use reference::pruning::{self, apply_masks, bin, is_due, masked_share, renew_masks, sparsity, threshold_bin};
use reference::replay::{
    self, Ring, importance_weights, modulated_td, priority, relabelled_reward, slot_of, stratified,
};
use reference::schedule::{Counters, beta, tau};
use reference::vaccine::{gradvac_multiple, vaccine};

#[test]
fn adam_known_answers() {
    // First step: m_hat = g, v_hat = g^2, so the move is lr sign(g), less eps; the decay is decoupled.
    let (w, m, v) = adam_element(2.0, 0.5, 0.0, 0.0, 1, 0.1, 0.0);
    assert_close("w", w, 2.0 - 0.1 * 0.5 / (0.5 + 1e-8), 1e-12);
    assert_close("m", m, 0.05, 1e-15);
    assert_close("v", v, 0.000_25, 1e-15);
    let (decayed, ..) = adam_element(2.0, 0.5, 0.0, 0.0, 1, 0.1, 0.01);
    assert_close("decay moves by lr wd w", w - decayed, 0.1 * 0.01 * 2.0, 1e-12);
    // Second step with g = -1/2: m = 0.045 - 0.05, v = 0.00025 * 0.999 + 0.00025.
    let (second, m, v) = adam_element(w, -0.5, m, v, 2, 0.1, 0.0);
    let (m_hat, v_hat) = ((0.045 - 0.05) / (1.0 - 0.81), (0.000_249_75 + 0.000_25) / (1.0 - 0.998_001));
    assert_close("second m", m, -0.005, 1e-15);
    assert_close("second v", v, 0.000_499_75, 1e-15);
    assert_close("second w", second, w - 0.1 * m_hat / (f64::sqrt(v_hat) + 1e-8), 1e-12);
}

#[test]
fn clip_known_answers() {
    assert_eq!(clip_scale(5.0, 10.0), 1.0);
    assert_eq!(clip_scale(40.0, 10.0), 0.25);
    assert_eq!(clip_scale(0.0, 10.0), 1.0);
    assert_eq!(adaptive_clip(10.0, None), 10.0, "before the first applied update");
    assert_eq!(adaptive_clip(10.0, Some(2.0)), 4.0);
    assert_eq!(adaptive_clip(10.0, Some(8.0)), 10.0);
}

#[test]
fn target_moves_by_tau_in_its_range_alone() {
    let layout = Arc::new(Layout::new(&Sizes::MINIATURE));
    let params = Tensors::filled(&layout, 2.0);
    let mut target = Tensors::filled(&layout, 1.0);
    target_ema(&mut target, &params, 0.25);
    assert!(target.slice("trunk.in.bias").iter().all(|x| *x == 1.25));
    assert!(target.slice("attention.bars.gain").iter().all(|x| *x == 1.25));
    assert!(target.slice("iqn.out.bias").iter().all(|x| *x == 1.25));
    assert!(target.slice("denoise.encoder.bias").iter().all(|x| *x == 1.0), "the bottleneck is shared, not averaged");
}

/// Adding the multiple of the snapshot makes the cosine phi: what GradVac's equation 2 is derived from.
#[test]
fn vaccine_brings_the_cosine_to_phi() {
    let mut numbers = Numbers(1);
    for phi in [-0.5, 0.0, 0.3, 0.8] {
        let (g, s) = (numbers.vector(20, 1.0), numbers.vector(20, 3.0));
        let cosine = dot(&g, &s) / (norm(&g) * norm(&s));
        let multiple = gradvac_multiple(norm(&g), norm(&s), cosine, phi);
        let moved: Vec<f64> = g.iter().zip(&s).map(|(g, s)| g + multiple * s).collect();
        assert_close("cosine", dot(&moved, &s) / (norm(&moved) * norm(&s)), phi, 1e-12);
    }
    // At phi = 0 the formula is PCGrad's projection.
    assert_close("projection", gradvac_multiple(2.0, 4.0, -0.5, 0.0), 0.25, 1e-15);
}

#[test]
fn vaccine_compares_before_it_averages() {
    let against = vaccine(&[-1.0, 1.0], &[1.0, 0.0], 0.0, 0.5).expect("both have a length");
    let cosine = -1.0 / 2f64.sqrt();
    assert_close("cosine", against.cosine, cosine, 1e-15);
    assert_close("half of the projection", against.multiple, 0.5, 1e-15);
    assert_close("phi starts at 0 and is not seeded", against.phi, 0.01 * cosine, 1e-15);
    let along = vaccine(&[1.0, 1.0], &[1.0, 0.0], 0.0, 0.5).expect("both have a length");
    assert_eq!(along.multiple, 0.0);
    assert_eq!(vaccine(&[0.0, 0.0], &[1.0, 0.0], 0.0, 1.0), None);
}

#[test]
fn pruning_schedule_is_cubic() {
    let schedule = PruneSchedule { final_sparsity: 0.8, start: 100, end: 300, every: 100 };
    assert_eq!(sparsity(&schedule, 100), 0.0);
    assert_close("half way", sparsity(&schedule, 200), 0.8 * (1.0 - 0.125), 1e-15);
    assert_eq!((sparsity(&schedule, 300), sparsity(&schedule, 900)), (0.8, 0.8));
    let due: Vec<u64> = (0..500).filter(|step| is_due(&schedule, *step)).collect();
    assert_eq!(due, [100, 200, 300]);
    assert!(!is_due(&PruneSchedule { final_sparsity: 0.0, ..schedule }, 200));
}

#[test]
fn pruning_threshold_is_the_highest_edge_with_few_enough_under_it() {
    let weights = [0.0, 0.1, -0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8, 0.9];
    for (share, pruned) in [(0.0, 0), (0.1, 1), (0.35, 3), (0.5, 5), (0.99, 9), (1.0, 10)] {
        let threshold = threshold_bin(&weights, share);
        let under = |edge: u32| weights.iter().filter(|w| bin(**w) < edge).count();
        assert_eq!(under(threshold), pruned, "share {share}");
        assert!(
            threshold == 1 << 16 || under(threshold + 1) > (share * 10.0) as usize,
            "share {share}: not the highest"
        );
    }
    // 8 bits of exponent and 8 of mantissa: a bin is 2^-8 wide, relative to its power of two.
    assert_eq!((bin(1.0), bin(-1.0), bin(1.0 + 2f64.powi(-8))), (0x7f00, 0x7f00, 0x7f01));
    // Two weights that differ below the top 16 bits share a bin, so they go together or stay together.
    let (a, b) = (f32::from_bits(0x3f80_0001), f32::from_bits(0x3f80_0002));
    assert_eq!(bin(f64::from(a)), bin(f64::from(b)));
    assert_eq!(threshold_bin(&[f64::from(a), f64::from(b)], 0.5), bin(1.0), "half of a pair: neither");
}

#[test]
fn masks_prune_each_tensor_by_its_share() {
    let mut p = lively_parameters(&Sizes::MINIATURE, 2);
    let mut masks = Tensors::filled(&p.layout, 1.0);
    renew_masks(&p, &mut masks, 0.5);
    for tensor in p.layout.tensors.iter().filter(|t| t.prunable) {
        let kept: f64 = masks.slice(&tensor.name).iter().sum();
        let share = 1.0 - kept / tensor.len() as f64;
        // Bins are 2^-8 wide, relative: few weights share the threshold's.
        assert!(share <= 0.5 && share > 0.4, "{}: {share}", tensor.name);
    }
    assert!((masked_share(&masks) - 0.5).abs() < 0.05);
    let before = p.clone();
    apply_masks(&mut p, &masks);
    assert_eq!(p.slice("film.weight"), before.slice("film.weight"));
    assert!(p.slice("trunk.in.weight").iter().filter(|w| **w == 0.0).count() > 0);
    pruning::renew_masks(&p, &mut masks, 0.5);
    assert!(masked_share(&masks) <= 0.5, "zeros stay pruned, and no more are");
}

#[test]
fn priorities_and_weights_known_answers() {
    assert_close("alpha 1/2", priority(0.25, 0.5), (0.25f64 + 1e-6).sqrt(), 1e-15);
    assert_eq!(priority(3.7, 0.0), 1.0, "alpha 0: uniform");
    assert_eq!(priority(1.0 + 2f64.powi(-9), 1.0), 1.0 + 1e-6, "the td passes through bf16");
    assert_eq!(priority(-2.0, 1.0), 2.0 + 1e-6);
    // n P = 2, 1, 1/2; beta 1: weights 1/2, 1, 2 over 2.
    assert_eq!(importance_weights(&[4.0, 2.0, 1.0], 6.0, 3, 1.0), [0.25, 0.5, 1.0]);
    assert_eq!(importance_weights(&[4.0, 1.0], 5.0, 2, 0.0), [1.0, 1.0], "beta 0: no correction");
    assert_eq!(stratified(&[0.5, 0.0], 8.0), [2.0, 4.0]);
    let leaves = [0.0, 1.0, 0.0, 2.0, 0.0];
    assert_eq!([0.0, 0.999, 1.0, 2.9, 3.0].map(|u| slot_of(&leaves, u)), [1, 1, 3, 3, 3].map(Some));
    assert_eq!(slot_of(&[0.0; 3], 0.0), None);
}

#[test]
fn of_duplicate_slots_the_steps_highest_priority_wins() {
    let mut leaves = [9.0, 9.0, 9.0];
    replay::write_leaves(&mut leaves, &[1, 0, 1, 1, 2], &[Some(2.0), None, Some(3.0), None, Some(1.0)]);
    assert_eq!(leaves, [9.0, 3.0, 1.0], "3 is under the old 9 and still wins; a kept leaf stays");
}

#[test]
fn modulation_is_bounded_by_four() {
    assert_close("exp(adv)", modulated_td(2.0, 1.5, 1.0, 1.0 - 1e-6, 1.0), 2.0 * 0.5f64.exp(), 1e-12);
    assert_close("at most 4", modulated_td(2.0, 100.0, 0.0, 1.0, 1.0), 8.0, 1e-12);
    assert_close("at least 1/4", modulated_td(2.0, -100.0, 0.0, 1.0, 1.0), 0.5, 1e-12);
    assert_eq!(modulated_td(2.0, -100.0, 0.0, 1.0, 0.0), 2.0);
}

/// I: goals come from the row's own episode, never across the ring's write head; donors are later transitions; reward follows the goal.
#[test]
fn case_i_donors_stay_in_their_episode() {
    // Two environments, eight slots: environment 0 at even slots. The head stands at 4, so slots 4.. are the oldest.
    let ring = Ring { capacity: 8, n_environments: 2, head: 4 };
    //                 0  1  2  3  4  5  6  7
    let episodes = [1, 2, 1, 3, 1, 2, 1, 2];
    assert_eq!(ring.n_donors(4, &episodes), 3, "4 -> 6 -> 0 -> 2, and the head stops it");
    assert_eq!(ring.n_donors(6, &episodes), 2);
    assert_eq!(ring.n_donors(2, &episodes), 0, "the next slot is the oldest, though its episode number is the same");
    assert_eq!(ring.n_donors(7, &episodes), 1, "7 -> 1, then episode 3 begins");
    assert_eq!(ring.n_donors(1, &episodes), 0);
    let drawn: Vec<usize> =
        [0.0, 0.3, 0.34, 0.7, 0.999].iter().filter_map(|xi| ring.donor(4, &episodes, *xi)).collect();
    assert_eq!(drawn, [6, 6, 0, 2, 2], "j = 1 + floor(3 xi)");
    assert_eq!(ring.donor(2, &episodes, 0.5), None);
    let full = Ring { capacity: 8, n_environments: 2, head: 0 };
    assert_eq!(full.n_donors(0, &[1; 8]), 3, "the oldest slot is the head's own");
}

#[test]
fn case_i_relabelled_reward_follows_the_goal() {
    // Stored 0.2 (m - 0.1 |2 - 0.5|); with goal 0.5 met, 0.2 m.
    let stored = 0.2 * (0.7 - 0.1 * 1.5);
    assert_close("goal met", relabelled_reward(stored, 2.0, 0.5, 0.5, 0.2, 0.1), 0.2 * 0.7, 1e-15);
    assert_close("same goal", relabelled_reward(stored, 2.0, 2.0, 0.5, 0.2, 0.1), stored, 1e-15);
}

#[test]
fn gather_pads_with_zeros() {
    let source = Matrix::from_values(2, 2, vec![1.0, 2.0, 3.0, 4.0]);
    let got = replay::gather_rows_padded(&source, &[1, 0, 1], 4);
    assert_eq!(got.values, [3.0, 4.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
}

#[test]
fn schedules_known_answers() {
    assert_close("tau at the start", tau(0, 100, (0.05, 0.01), 1.0), 0.05, 1e-15);
    assert_close("half way", tau(50, 100, (0.05, 0.01), 1.0), 0.03, 1e-15);
    assert_close("past the end, health 0", tau(300, 100, (0.05, 0.01), 0.0), 0.005, 1e-15);
    assert_close("beta", beta(50, 100, 0.4), 0.7, 1e-15);
    assert_eq!(beta(500, 100, 0.4), 1.0);
    let one = Counters::default().incremented();
    assert_eq!((one.adam_t, one.rng_step, one.iqn_t), (1, 1, 1));
}

#[test]
fn averages_are_seeded_and_skip_what_is_not_finite() {
    let mut isv = Isv::at_start(0.05, 1.0, (-10.0, 10.0));
    for (entry, want) in [
        (index::GAMMA, 0.99),
        (index::TAU, 0.05),
        (index::EPSILON, 1.0),
        (index::KELLY_CAP, 1.0),
        (index::RISK_ETA, 1.0),
        (index::HEALTH, 1.0),
        (index::POPART_STD, 1.0),
        (index::ATOM_BOUNDS + 6, -10.0),
        (index::ATOM_BOUNDS + 7, 10.0),
        (31, 0.0),
        (index::LOSS_EMA, 0.0),
    ] {
        assert_eq!(isv.entries[entry], want, "entry {entry}");
    }
    assert_eq!(isv.seeded(index::LOSS_EMA), None);
    for (sample, want) in [(4.0, 4.0), (f64::NAN, 4.0), (8.0, 4.04), (f64::INFINITY, 4.04)] {
        isv.average(index::LOSS_EMA, sample, RATE);
        assert_close("average", isv.entries[index::LOSS_EMA], want, 1e-15);
    }
}

#[test]
fn a_vector_from_a_dump_goes_on_averaging() {
    let mut isv = Isv::from_entries([2.0; reference::isv::LEN], 1);
    isv.average(index::LOSS_EMA, 4.0, RATE);
    assert_close("not seeded again", isv.entries[index::LOSS_EMA], 2.02, 1e-15);
    isv.close_step(true);
    assert_close("two skips", isv.entries[index::HEALTH], health(2, 2.02, 2.0), 1e-15);
}

#[test]
fn health_falls_with_skips_and_with_a_loss_away_from_its_slow_average() {
    assert_eq!(health(0, 2.0, 2.0), 1.0);
    assert_close("one skip", health(1, 2.0, 2.0), 0.5, 1e-15);
    assert_close("loss doubled", health(0, 2.0, 1.0), 0.5, 1e-6);
    let mut isv = Isv::at_start(0.05, 1.0, (-1.0, 1.0));
    isv.close_step(true);
    assert_eq!((isv.entries[index::HEALTH], isv.entries[index::SKIPPED_UPDATES]), (0.5, 1.0));
    for _ in 0..999 {
        isv.close_step(false);
    }
    assert_eq!(isv.entries[index::HEALTH], 0.5, "still within the last 1,000");
    isv.close_step(false);
    assert_eq!((isv.entries[index::HEALTH], isv.entries[index::SKIPPED_UPDATES]), (1.0, 1.0));
}

#[test]
fn epoch_boundary_known_answers() {
    assert_close("gamma", boundary::gamma(0.5), 0.97, 1e-15);
    let schedule = EpsilonSchedule { start: 1.0, end: 0.05, decay: 2.0, steps_per_epoch: 20 };
    assert_eq!(epsilon(&schedule, 0, 0.5, 1.0), 1.0);
    let want = 0.05 + 0.95 * (-1.0f64).exp();
    assert_close("two epochs", epsilon(&schedule, 45, 0.5, 1.0), want, 1e-15);
    assert_close("health 0 doubles it", epsilon(&schedule, 45, 0.5, 0.0), 2.0 * want, 1e-15);
    assert_close("volatile", epsilon(&schedule, 45, 1.0, 1.0), 0.05 + 0.95 * (-1.0f64).exp() * 1.25, 1e-15);
    assert_eq!(epsilon(&schedule, 0, 1.0, 0.0), 1.0, "never above 1");
    assert_eq!(kelly_fraction(&[0.01; 19]), 1.0, "too few bars");
    assert_eq!(kelly_fraction(&[0.01; 30]), 1.0, "flat");
    // +-0.1 around 0.002: m / s^2 = 0.2, half of it 0.1.
    let returns: Vec<f64> = (0..20).map(|i| 0.002 + if i % 2 == 0 { 0.1 } else { -0.1 }).collect();
    assert_close("fraction", kelly_fraction(&returns), 0.5 * 0.002 / (0.01 + 1e-8), 1e-12);
    let losing: Vec<f64> = returns.iter().map(|r| r - 0.01).collect();
    assert_eq!(kelly_fraction(&losing), 0.0);
    assert_close("cap", kelly_cap(0.5, &[1.0, 0.2]), 0.3, 1e-15);
    assert_eq!(kelly_cap(0.5, &[0.0]), 0.1);
}

#[test]
fn causal_shift_and_intervention() {
    assert_eq!([0.0, 0.5, 0.999].map(|xi| causal::shift(xi, 5)), [1, 3, 4]);
    assert_eq!(causal::shift(0.7, 1), 1, "one row takes its own value");
    let config = reference::config::Config::new(Sizes::MINIATURE, reference::config::Learners::CORE);
    let s = config.sizes;
    let states = Matrix::from_fn(3, s.state_dim(), |i, j| (100 * i + j) as f64);
    let changed = causal::intervened(&config, &states, 2, 1);
    let column = (s.window - 1) * s.features + 2;
    for i in 0..3 {
        for j in 0..s.state_dim() {
            let from = if j == column { (i + 1) % 3 } else { i };
            assert_eq!(changed[(i, j)], states[(from, j)], "row {i}, column {j}");
        }
    }
}
