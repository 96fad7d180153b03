//! Hindsight relabelling against its definition: donors counted one by one, numbers in f64.

use gpu_kernels::hindsight::{her_relabel, her_relabel_shape};
use gpu_kernels::philox::uniform;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::replay::{Ring, relabelled_reward};
use shared_types::{Collector, Counters, stream};

pub fn cases() -> Vec<Case> {
    vec![
        case("hindsight::case_i_three_episodes_by_hand", |device| three_episodes_by_hand(&Lab::new(device)?)),
        case("hindsight::case_i_rows_are_the_references", |device| rows_are_the_references(&Lab::new(device)?)),
        case("hindsight::the_share_is_the_ratio", |device| the_share_is_the_ratio(&Lab::new(device)?)),
    ]
}

const SEED: [u32; 2] = [0x1234_5678, 0x9abc_def0];
const STRIDE: usize = 8;
const GOAL: usize = 5;

/// A ring, and a batch of its slots.
struct Scene {
    ring: Ring,
    episodes: Vec<u32>,
    achieved: Vec<f32>,
    indices: Vec<u32>,
    states: Vec<f32>,
    rewards: Vec<f32>,
    rng_step: u32,
}

/// What relabelling leaves.
struct Relabelled {
    states: Vec<f32>,
    next_states: Vec<f32>,
    rewards: Vec<f32>,
    rows: Vec<u8>,
}

impl Scene {
    fn relabel(&self, lab: &Lab, ratio: f32, weight: f32) -> Result<Relabelled, Failed> {
        let n = self.indices.len();
        let (indices, episodes) = (lab.upload(&self.indices)?, lab.upload(&self.episodes)?);
        let (achieved, rewards) = (lab.upload(&self.achieved)?, lab.upload(&self.rewards)?);
        let counters = lab.upload(&[Counters { rng_step: self.rng_step as i32, ..Counters::default() }])?;
        let collector = lab.upload(&[Collector { head: self.ring.head as u32, ..Collector::default() }])?;
        let (states, next_states) = (lab.upload(&self.states)?, lab.upload(&self.states)?);
        let rows = lab.upload(&vec![7u8; n])?;
        let launch = her_relabel::launch(
            indices.view(),
            episodes.view(),
            achieved.view(),
            counters.view(),
            collector.view(),
            states.view_mut(),
            next_states.view_mut(),
            rewards.view_mut(),
            rows.view_mut(),
            SEED,
            self.ring.n_environments as u32,
            GOAL as u32,
            ratio,
            weight,
        );
        lab.run(her_relabel_shape(n), launch)?;
        Ok(Relabelled {
            states: states.read()?,
            next_states: next_states.read()?,
            rewards: rewards.read()?,
            rows: rows.read()?,
        })
    }

    fn goal(&self, row: usize) -> f32 {
        self.states[row * STRIDE + GOAL]
    }
}

/// Two environments, eight slots. Environment 0 has slots 0, 2, 4, 6: episode 10 in 0 and 2, episode 12 in 4 and 6. Environment 1
/// has slots 1, 3, 5, 7, all of episode 11. The head is 4: slots 4 to 7 are older than 0 to 3, whose last ones are 2 and 3.
fn three_episodes_by_hand(lab: &Lab) -> Outcome {
    let scene = Scene {
        ring: Ring { capacity: 8, n_environments: 2, head: 4 },
        episodes: vec![10, 11, 10, 11, 12, 11, 12, 11],
        achieved: vec![0.5, 1.5, 0.25, 1.25, 2.0, 0.75, 3.0, -1.0],
        indices: vec![0, 2, 4, 6, 3],
        states: vec![1.0; 5 * STRIDE],
        rewards: vec![0.125; 5],
        rng_step: 9,
    };
    let got = scene.relabel(lab, 1.0, 2.0)?;
    // Slot 0's only donor is 2, slot 4's is 6; behind 2 and 3 comes the head, behind 6 another episode.
    assert_eq!(got.rows, [1, 0, 1, 0, 0]);
    let goals: Vec<f32> = got.states.chunks(STRIDE).map(|row| row[GOAL]).collect();
    assert_eq!(goals, [0.25, 1.0, 3.0, 1.0, 1.0]);
    // r + 2 (|1 - 0.5| - |0.25 - 0.5|) and r + 2 (|1 - 2| - |3 - 2|).
    assert_eq!(got.rewards, [0.625, 0.125, 0.125, 0.125, 0.125]);
    assert_eq!(got.states, got.next_states);
    let none = scene.relabel(lab, 0.0, 2.0)?;
    assert_eq!((none.rows, none.states, none.rewards), (vec![0; 5], scene.states.clone(), scene.rewards.clone()));
    Ok(())
}

/// A ring of episodes of 1 to `longest` bars in `n_envs` environments, full or not, and `n` rows of it.
fn random(seed: u64, n_envs: usize, bars: usize, longest: usize, n: usize) -> Scene {
    let mut numbers = Numbers::new(seed);
    let capacity = n_envs * bars;
    // Written in the order of the head, so that the oldest episodes may be cut.
    let (head_bar, full) = (numbers.below(bars), numbers.below(2) == 1);
    let mut episodes = vec![0; capacity];
    for env in 0..n_envs {
        let mut left = 0;
        let mut episode = env as u32;
        for at in 0..bars {
            if left == 0 {
                (left, episode) = (1 + numbers.below(longest), episode + n_envs as u32);
            }
            left -= 1;
            let bar = if full { (head_bar + at) % bars } else { at };
            episodes[bar * n_envs + env] = episode;
        }
    }
    let filled = if full || head_bar == 0 { capacity } else { head_bar * n_envs };
    let mut number = || (4.0 * numbers.unit() - 2.0) as f32;
    let (achieved, states) = ((0..capacity).map(|_| number()).collect(), (0..n * STRIDE).map(|_| number()).collect());
    let rewards = (0..n).map(|_| number()).collect();
    let indices = (0..n).map(|_| numbers.below(filled) as u32).collect();
    let ring = Ring { capacity, n_environments: n_envs, head: head_bar * n_envs };
    Scene { ring, episodes, achieved, indices, states, rewards, rng_step: numbers.word() as u32 >> 1 }
}

/// Picks and donors are exact. The reward's four operations round by at most half an ulp each of values under 2 + 2 w 6.
fn rows_are_the_references(lab: &Lab) -> Outcome {
    let (ratio, scale, weight) = (0.25f32, 0.2, 0.5);
    for (seed, [n_envs, bars, longest, n]) in
        [[1, 1, 1, 1], [1, 7, 3, 5], [3, 5, 1, 40], [16, 33, 9, 257], [5, 300, 512, 1000], [4, 64, 20, 0]]
            .into_iter()
            .enumerate()
    {
        let scene = random(seed as u64, n_envs, bars, longest, n);
        let got = scene.relabel(lab, ratio, (scale * weight) as f32)?;
        let mut n_relabelled = 0;
        for row in 0..n {
            let slot = scene.indices[row] as usize;
            let uniform = |stream| uniform(SEED, stream, scene.rng_step, row as u32);
            let donor = scene.ring.donor(slot, &scene.episodes, uniform(stream::HER_DONOR).into());
            let donor = donor.filter(|_| uniform(stream::HER_PICK) < ratio);
            n_relabelled += usize::from(donor.is_some());
            ensure!(got.rows[row] == u8::from(donor.is_some()), "row {row} of {n}: {donor:?}");
            let goal = donor.map_or(scene.goal(row), |donor| scene.achieved[donor]);
            let mut want = scene.states[row * STRIDE..][..STRIDE].to_vec();
            want[GOAL] = goal;
            ensure!(got.states[row * STRIDE..][..STRIDE] == want, "row {row}: state");
            ensure!(got.next_states[row * STRIDE..][..STRIDE] == want, "row {row}: next state");
            let own = scene.achieved[slot].into();
            let reward = scene.rewards[row].into();
            let reward = relabelled_reward(reward, scene.goal(row).into(), goal.into(), own, scale, weight);
            let bound = 4.0 * 0.5 * f64::from(f32::EPSILON) * 4.0;
            ensure!((f64::from(got.rewards[row]) - reward).abs() <= bound, "row {row}: {} {reward}", got.rewards[row]);
        }
        println!("{n_envs} x {bars}, episodes to {longest}: {n_relabelled} of {n} rows relabelled");
    }
    Ok(())
}

/// Of rows that all have donors, a binomial share: within five standard deviations, 3 in 10^7 to miss, the seed fixed.
fn the_share_is_the_ratio(lab: &Lab) -> Outcome {
    const N: usize = 4096;
    let scene = Scene {
        ring: Ring { capacity: 8, n_environments: 1, head: 0 },
        episodes: vec![3; 8],
        achieved: (0..8).map(|slot| slot as f32).collect(),
        indices: vec![0; N],
        states: vec![0.0; N * STRIDE],
        rewards: vec![0.0; N],
        rng_step: 4,
    };
    let got = scene.relabel(lab, 0.25, 1.0)?;
    let bounds = |n: usize, share: f64| {
        let (mean, deviation) = (n as f64 * share, (n as f64 * share * (1.0 - share)).sqrt());
        mean - 5.0 * deviation..mean + 5.0 * deviation
    };
    let n_relabelled = got.rows.iter().filter(|&&row| row == 1).count();
    ensure!(bounds(N, 0.25).contains(&(n_relabelled as f64)), "{n_relabelled} of {N}");
    // Each of the seven later slots is as likely as another, and slot 0 is no donor of its own.
    let donors: Vec<usize> =
        (0..N).filter(|&row| got.rows[row] == 1).map(|row| got.states[row * STRIDE + GOAL] as usize).collect();
    for donor in 1..8 {
        let n = donors.iter().filter(|&&other| other == donor).count();
        ensure!(bounds(n_relabelled, 1.0 / 7.0).contains(&(n as f64)), "donor {donor}: {n} of {n_relabelled}");
    }
    ensure!(!donors.contains(&0), "a row's own goal");
    Ok(())
}
