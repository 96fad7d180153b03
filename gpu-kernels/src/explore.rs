//! Actions of collection and evaluation.

use cuda_std::prelude::*;
use shared_types::market::{BRANCH_SIZES, N_BRANCHES, direction};
use shared_types::{Collector, Counters, isv, stream};

use crate::c51::highest;
use crate::heads::{N_ACTIONS, first_action};
use crate::market::environment::below;
use crate::philox;

/// How [`act()`] chooses; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActRule {
    /// Key of the random generator: low word, high word of the seed.
    pub seed: [u32; 2],
    /// 0: never explores, as in evaluation.
    pub explore: u32,
    /// P(trade) under which a greedy direction is flat.
    pub select_threshold: f32,
    /// adam_t from which that holds.
    pub select_from: i32,
}

/// Launch of [`act()`]: a thread an environment.
pub const fn act_shape(n_envs: usize) -> LaunchShape {
    LaunchShape::cover(n_envs, 32)
}

/// The action of each environment: in each branch on a draw of its own, with probability epsilon uniform, else the one that
/// `ranks` has highest, the lowest index of equal ones.
///
/// Draws: element environment * 4 + branch, word 2 the collector's step; whether a branch explores and what it then takes are
/// two streams. Where p_trade is under the threshold, a direction that is not explored is flat; p_trade may be empty.
/// Shapes: ranks `[E, 13]`, p_trade `[E]` or \[0\], bus \[64\], of which it reads epsilon, collector, counters \[1\], actions `[E]`.
/// Launch: [`act_shape`].
#[kernel]
pub fn act(
    ranks: GlobalSlice<f32>,
    p_trade: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    collector: GlobalSlice<Collector>,
    counters: GlobalSlice<Counters>,
    rule: ActRule,
    actions: GlobalSliceMut<[u8; 4]>,
) {
    let env = thread::index_1d() as usize;
    if env >= actions.len() {
        return;
    }
    let draws = Draws {
        seed: rule.seed,
        step: collector.get(0).step,
        first_element: (env * N_BRANCHES) as u32,
        epsilon: if rule.explore != 0 { bus.get(isv::EPSILON) } else { 0.0 },
    };
    let stays_out =
        env < p_trade.len() && counters.get(0).adam_t >= rule.select_from && p_trade.get(env) < rule.select_threshold;
    let ranks = ranks.sub(env * N_ACTIONS..(env + 1) * N_ACTIONS);
    let direction = match draws.explored(0, BRANCH_SIZES[0]) {
        Some(action) => action,
        None if stays_out => direction::FLAT,
        None => best::<4>(&ranks, 0),
    };
    let other = |branch: usize| match draws.explored(branch, BRANCH_SIZES[branch]) {
        Some(action) => action,
        None => best::<3>(&ranks, first_action(branch)),
    };
    actions.set(env, [direction, other(1), other(2), other(3)]);
}

/// What an environment's draws depend on.
struct Draws {
    seed: [u32; 2],
    step: u32,
    first_element: u32,
    epsilon: f32,
}

impl Draws {
    /// The action of a branch of `n` that explores.
    #[inline(always)]
    fn explored(&self, branch: usize, n: usize) -> Option<u8> {
        let element = self.first_element + branch as u32;
        let explores = philox::uniform(self.seed, stream::EXPLORE, self.step, element) < self.epsilon;
        explores.then(|| below(philox::draw(self.seed, stream::EXPLORE_ACTION, self.step, element)[0], n as u32) as u8)
    }
}

/// The action that an environment's ranks have highest among `N` from `first` on.
#[inline(always)]
fn best<const N: usize>(ranks: &GlobalSlice<f32>, first: usize) -> u8 {
    let mut values = [0.0; N];
    for (action, value) in values.iter_mut().enumerate() {
        *value = ranks.get(first + action);
    }
    highest(values)
}
