//! Actions of collection and evaluation.

use cuda_std::prelude::*;
use shared_types::market::{BRANCH_SIZES, N_BRANCHES, direction};
use shared_types::{Collector, Counters, isv, stream};

use crate::c51::highest;
use crate::heads::N_ACTIONS;
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
    let step = collector.get(0).step;
    let epsilon = if rule.explore != 0 { bus.get(isv::EPSILON) } else { 0.0 };
    let stays_out =
        env < p_trade.len() && counters.get(0).adam_t >= rule.select_from && p_trade.get(env) < rule.select_threshold;
    let mut action = [0; N_BRANCHES];
    let mut first = 0;
    for (branch, choice) in action.iter_mut().enumerate() {
        let n = BRANCH_SIZES[branch];
        let element = (env * N_BRANCHES + branch) as u32;
        *choice = if philox::uniform(rule.seed, stream::EXPLORE, step, element) < epsilon {
            below(philox::draw(rule.seed, stream::EXPLORE_ACTION, step, element)[0], n as u32) as u8
        } else if branch == 0 && stays_out {
            direction::FLAT
        } else {
            let mut values = [f32::NEG_INFINITY; 4];
            for (of_action, value) in values.iter_mut().enumerate().take(n) {
                *value = ranks.get(env * N_ACTIONS + first + of_action);
            }
            highest(&values[..n])
        };
        first += n;
    }
    actions.set(env, action);
}
