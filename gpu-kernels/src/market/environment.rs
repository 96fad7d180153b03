//! The environments of collection: one thread each, over one bar.

use cuda_std::prelude::*;
use shared_types::market::{N_ACCOUNT, N_FEATURES, N_RECENT, direction, portfolio};
use shared_types::{BarRecord, Collector, EnvParams, EnvState, MarketBar, PendingStep, isv, stream};

use super::account::{self, Recent};
use super::{real, trading};
use crate::philox;

/// Launch of a kernel with a thread for each of `n_envs` environments. A warp a block spreads few environments over all
/// multiprocessors.
pub const fn environment_shape(n_envs: usize) -> LaunchShape {
    LaunchShape::cover(n_envs, 32)
}

/// Launch of [`observe()`] for rows of `stride`: a thread an element.
pub const fn observe_shape(n_envs: usize, stride: usize) -> LaunchShape {
    LaunchShape::cover(n_envs * stride, 256)
}

/// Starts every environment's first episode, of a length of its own in \[1, episode_len\] so that they do not end together.
///
/// Shapes: params, collector \[1\]; bus \[64\]; states \[E\]; portfolio \[E, 16\]. Launch: [`environment_shape`].
#[kernel]
pub fn environment_reset(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    collector: GlobalSlice<Collector>,
    states: GlobalSliceMut<EnvState>,
    portfolio: GlobalSliceMut<f32>,
) {
    let env = thread::index_1d() as usize;
    if env >= states.len() {
        return;
    }
    let (params, step) = (params.get(0), collector.get(0).step);
    let mut state = episode_start(env as u32, env as u32, step, &params);
    state.length =
        1 + below(philox::draw(params.seed, stream::EPISODE_LENGTH, step, env as u32)[0], params.episode_len);
    let (cap, epsilon) = (bus.get(isv::KELLY_CAP), bus.get(isv::EPSILON));
    states.set(env, state);
    put_account(&portfolio, env, &account::features(&state, &Recent::default(), cap, epsilon, &params));
}

/// Takes every environment over the bar after its own and queues the step for replay; an episode that ends is followed by
/// the next at once, and the queued step keeps its true last state.
///
/// Equations: [`trading`], [`account`]. An episode ends when equity is under half of its start (done), or at its length or
/// the part's last bar (cut). Shapes: params, collector \[1\]; bus \[64\]; bars \[n\]; actions, states \[E\]; returns \[20, E\], log
/// returns of equity; portfolio \[E, 16\]; queue \[n_step, E\]; accounts \[n_step, E, 2, 16\], before and after the step.
/// Launch: [`environment_shape`].
#[kernel]
pub fn environment_step(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    collector: GlobalSlice<Collector>,
    bars: GlobalSlice<MarketBar>,
    actions: GlobalSlice<[u8; 4]>,
    states: GlobalSliceMut<EnvState>,
    returns: GlobalSliceMut<f32>,
    portfolio: GlobalSliceMut<f32>,
    queue: GlobalSliceMut<PendingStep>,
    accounts: GlobalSliceMut<f32>,
) {
    let (env, n_envs) = (thread::index_1d() as usize, states.len());
    if env >= n_envs {
        return;
    }
    let (params, step) = (params.get(0), collector.get(0).step);
    let (cap, epsilon) = (bus.get(isv::KELLY_CAP), bus.get(isv::EPSILON));
    let mut state = states.get(env);
    let queued = (step % params.n_step) as usize * n_envs + env;
    for column in 0..N_ACCOUNT {
        let seen = account_column(column, &bus, |column| portfolio.get(env * N_ACCOUNT + column));
        accounts.set(2 * queued * N_ACCOUNT + column, seen);
    }

    let record = step_once(&mut state, actions.get(env), cap, &bars, &params);
    let log_return = real::ln_1p(record.net_return);
    let reward = account::book(&mut state, log_return, &params);
    let recent = remember(&mut state, log_return, &returns, env, n_envs);
    let after = account::features(&state, &recent, cap, epsilon, &params);
    // Lost equity is under half whatever it was: the floor that keeps its logarithm finite must not hide that.
    let end = if record.flags & BarRecord::RUINED != 0 || account::is_under_half(&state) {
        PendingStep::DONE
    } else if state.steps >= state.length || state.bar >= state.last_bar {
        PendingStep::CUT
    } else {
        PendingStep::GOES_ON
    };
    let pending = PendingStep {
        bar: state.bar - 1,
        action: record.action,
        reward,
        achieved: account::achieved(&state, &params),
        episode: state.episode,
        goal: state.goal,
        end,
        reserved: 0,
    };
    queue.set(queued, pending);
    put_account(&accounts, 2 * queued + 1, &after);
    if end == PendingStep::GOES_ON {
        put_account(&portfolio, env, &after);
    } else {
        state = episode_start(env as u32, state.episode.wrapping_add(n_envs as u32), step.wrapping_add(1), &params);
        put_account(&portfolio, env, &account::features(&state, &Recent::default(), cap, epsilon, &params));
    }
    states.set(env, state);
}

/// What every environment sees: \[window x F features, oldest bar first | portfolio | goal | zeros\].
///
/// Shapes: params \[1\]; bus \[64\]; features \[n, F\], scaled; states \[E\]; portfolio \[E, 16\]; rows \[E, stride\], stride at least
/// window F + 16. Launch: [`observe_shape`].
#[kernel]
pub fn observe(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    features: GlobalSlice<f32>,
    states: GlobalSlice<EnvState>,
    portfolio: GlobalSlice<f32>,
    rows: GlobalSliceMut<f32>,
) {
    let index = thread::index_1d() as usize;
    if index >= rows.len() {
        return;
    }
    let stride = rows.len() / states.len();
    let (env, column) = (index / stride, index % stride);
    let n_market = params.get(0).window as usize * N_FEATURES;
    let value = if column < n_market {
        features.get(window_start(states.get(env).bar, n_market) + column)
    } else if column < n_market + N_ACCOUNT {
        account_column(column - n_market, &bus, |column| portfolio.get(env * N_ACCOUNT + column))
    } else {
        0.0
    };
    rows.set(index, value);
}

/// The first element, in features \[n, F\], of the window of `n_market` elements that ends with `bar`.
#[inline]
pub(super) fn window_start(bar: u32, n_market: usize) -> usize {
    (bar as usize + 1) * N_FEATURES - n_market
}

/// A column of the account as the agent sees it: cap and exploration rate are those of now, not of the last step.
#[inline]
fn account_column(column: usize, bus: &GlobalSlice<f32>, stored: impl Fn(usize) -> f32) -> f32 {
    match column {
        portfolio::KELLY_CAP => bus.get(isv::KELLY_CAP),
        portfolio::EPSILON => bus.get(isv::EPSILON),
        _ => stored(column),
    }
}

/// Writes row `row` of accounts.
#[inline]
pub(super) fn put_account(rows: &GlobalSliceMut<f32>, row: usize, account: &[f32; N_ACCOUNT]) {
    for (column, value) in account.iter().enumerate() {
        rows.set(row * N_ACCOUNT + column, *value);
    }
}

/// A fresh episode of `env`: start bar uniform in \[first, last - episode_len\], goal uniform in \[0, 2\], flat.
#[inline]
pub fn episode_start(env: u32, episode: u32, step: u32, params: &EnvParams) -> EnvState {
    let n_starts = params.last_bar - params.first_bar - params.episode_len + 1;
    EnvState {
        bar: params.first_bar + below(philox::draw(params.seed, stream::EPISODE_START, step, env)[0], n_starts),
        last_bar: params.last_bar,
        length: params.episode_len,
        episode,
        goal: 2.0 * philox::uniform(params.seed, stream::GOAL, step, env),
        last_direction: direction::FLAT as u32,
        ..EnvState::default()
    }
}

/// A random word as a whole number uniform in \[0, n): the high word of word * n.
#[inline]
pub fn below(word: u32, n: u32) -> u32 {
    ((word as u64 * n as u64) >> 32) as u32
}

/// The trading of one bar, with the bars read from the series.
#[inline]
pub(super) fn step_once(
    state: &mut EnvState,
    action: [u8; 4],
    kelly_cap: f32,
    bars: &GlobalSlice<MarketBar>,
    params: &EnvParams,
) -> BarRecord {
    let bar = state.bar as usize;
    let (decided, next) = (bars.get(bar), bars.get(bar + 1));
    trading::trade(state, action, kelly_cap, &decided, &next, params)
}

/// Puts a log return into the environment's ring; the ring's moments.
#[inline]
pub(super) fn remember(
    state: &mut EnvState,
    log_return: f32,
    returns: &GlobalSliceMut<f32>,
    env: usize,
    n_envs: usize,
) -> Recent {
    let slot = state.n_returns as usize % N_RECENT;
    returns.set(slot * n_envs + env, log_return);
    state.n_returns = state.n_returns.wrapping_add(1);
    Recent::of(state.n_returns, |slot| returns.get(slot * n_envs + env))
}
