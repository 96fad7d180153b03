//! Paths for evaluation: the trading of collection, without episodes' ends, recorded bar by bar.
//!
//! A path runs from its state's bar to its `last_bar`, where what is left of the position is closed. Every episode_len bars
//! start equity, peak and progress restart while the position stays. Ruin ends trading; later returns are 0.

use cuda_std::prelude::*;
use shared_types::market::{direction, order};
use shared_types::{BarRecord, EnvParams, EnvState, MarketBar, isv, stream};

use super::account;
use super::environment::{put_account, remember, step_once};
use super::{real, trading};
use crate::philox;

/// Never trades.
pub const FLAT: u32 = 0;
/// Buys at full size by one market order at the start, and holds.
pub const BUY_AND_HOLD: u32 = 1;
/// A direction drawn uniformly at every bar, full size, market orders.
pub const RANDOM: u32 = 2;
/// Does what a script says, bar by bar.
pub const SCRIPT: u32 = 3;

const FULL_SIZE: u8 = 2;

/// Takes every path that has not ended over its next bar.
///
/// Shapes: params \[1\]; bus \[64\]; bars \[n\]; actions, states \[P\]; returns \[20, P\]; portfolio \[P, 16\];
/// records \[any\], path p writes at
/// its state's `record_idx` and on. Launch: [`super::environment::environment_shape`].
#[kernel]
pub fn evaluation_step(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    bars: GlobalSlice<MarketBar>,
    actions: GlobalSlice<[u8; 4]>,
    states: GlobalSliceMut<EnvState>,
    returns: GlobalSliceMut<f32>,
    portfolio: GlobalSliceMut<f32>,
    records: GlobalSliceMut<BarRecord>,
) {
    let (path, n_paths) = (thread::index_1d() as usize, states.len());
    if path >= n_paths {
        return;
    }
    let mut state = states.get(path);
    if state.status & EnvState::FINISHED != 0 {
        return;
    }
    let params = params.get(0);
    let (cap, epsilon) = (bus.get(isv::KELLY_CAP), bus.get(isv::EPSILON));
    let (record, log_return) = evaluate_once(&mut state, actions.get(path), cap, &bars, &params);
    records.set(state.record_idx as usize, record);
    state.record_idx += 1;
    let recent = remember(&mut state, log_return, &returns, path, n_paths);
    states.set(path, state);
    put_account(&portfolio, path, &account::features(&state, &recent, cap, epsilon, &params));
}

/// Runs a policy without a network from the states' bars to the paths' ends. `policy` is [`FLAT`], [`BUY_AND_HOLD`],
/// [`RANDOM`], whose path p draws element p of its stream at the path's bar, or [`SCRIPT`].
///
/// Shapes: params \[1\]; bus \[64\]; bars \[n\]; script \[records\], the action before each record, or \[0\] for the other policies;
/// states \[P\]; records \[any\], as in [`evaluation_step()`].
/// Launch: [`super::environment::environment_shape`].
#[kernel]
pub fn baseline_path(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    bars: GlobalSlice<MarketBar>,
    script: GlobalSlice<[u8; 4]>,
    states: GlobalSliceMut<EnvState>,
    records: GlobalSliceMut<BarRecord>,
    policy: u32,
) {
    let path = thread::index_1d() as usize;
    if path >= states.len() {
        return;
    }
    let params = params.get(0);
    let cap = bus.get(isv::KELLY_CAP);
    let mut state = states.get(path);
    let mut entered = false;
    while state.status & EnvState::FINISHED == 0 {
        let action = if policy == SCRIPT {
            script.get(state.record_idx as usize)
        } else {
            baseline_action(policy, entered, path as u32, state.bar, &params)
        };
        let (record, _) = evaluate_once(&mut state, action, cap, &bars, &params);
        entered |= record.flags & BarRecord::FILLED != 0;
        records.set(state.record_idx as usize, record);
        state.record_idx += 1;
    }
    states.set(path, state);
}

/// What a baseline chooses on `bar`.
#[inline]
pub fn baseline_action(policy: u32, entered: bool, path: u32, bar: u32, params: &EnvParams) -> [u8; 4] {
    let direction = match policy {
        BUY_AND_HOLD => {
            if entered {
                direction::HOLD
            } else {
                direction::LONG
            }
        }
        RANDOM => (philox::draw(params.seed, stream::RANDOM_BASELINE, bar, path)[0] >> 30) as u8,
        _ => direction::FLAT,
    };
    [direction, FULL_SIZE, order::MARKET, 0]
}

/// One bar of a path: its record, and the log return that is booked.
#[inline]
fn evaluate_once(
    state: &mut EnvState,
    action: [u8; 4],
    kelly_cap: f32,
    bars: &GlobalSlice<MarketBar>,
    params: &EnvParams,
) -> (BarRecord, f32) {
    let trades = state.status & EnvState::RUINED == 0;
    let mut record = if trades {
        step_once(state, action, kelly_cap, bars, params)
    } else {
        state.bar += 1;
        BarRecord { bar: state.bar, action: [direction::HOLD, action[1], action[2], action[3]], ..BarRecord::default() }
    };
    if state.bar >= state.last_bar {
        trading::close_out(state, &mut record, &bars.get(state.bar as usize), params);
        state.status |= EnvState::FINISHED;
    }
    if record.flags & BarRecord::RUINED != 0 {
        state.status |= EnvState::RUINED;
        if trades {
            record.net_return = -1.0;
        }
    }
    let log_return = real::ln_1p(record.net_return.max(trading::LEAST_FACTOR - 1.0));
    account::book(state, log_return, params);
    if state.steps >= state.length {
        account::restart(state);
    }
    (record, log_return)
}
