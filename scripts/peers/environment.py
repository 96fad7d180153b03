#!/usr/bin/env python3
"""The market's environments (collection) in JAX: what onegraph's are timed against.

    environment.py [--preset tiny|small|full] [--envs N] [--network] [--bars N] [--json FILE]

One bar of every environment: actions, orders and their fills, costs, equity, reward, portfolio features, the next episode where
one ends. With `--network` the preset's trunk and branches (with the learners of the defaults) rank the actions of each state, and
each branch explores on a draw of its own; without it actions are random. Bars and features are random numbers; transitions are
not put into a replay. `--bars` bars are one call of a jitted `lax.scan`, as one who wants speed would write it.

`--check` compares worked examples.
"""
import argparse
import functools
import json
import math
import os
import time

import jax
import jax.numpy as jnp
from jax import lax

PRESETS = {  # docs/configuration.md
    'tiny': dict(envs=16, hidden=32, branch_hidden=16, episode=64, hold=(1, 2, 4), bars=3_000, epsilon=0.05, v=3.0),
    'small': dict(envs=64, hidden=64, branch_hidden=32, episode=250, hold=(1, 2, 4), bars=40_000, epsilon=0.05, v=1.5),
    'full': dict(envs=4096, hidden=512, branch_hidden=128, episode=512, hold=(1, 5, 15), bars=200_000, epsilon=0.02, v=3.0),
}
SIZES, K, NF, N_ACCOUNT, N_RECENT, L = (4, 3, 3, 3), 51, 24, 16, 20, 2
FIRST = (0, 4, 7, 10)
LEAST, LAMBDA_DD = 1e-6, 0.1
TAKER, MAKER, HALF_SPREAD, FINANCING, SIGMA = 2e-4, 1e-4, 1e-4, 0.0, 1e-3
SHORT, LONG, FLAT, HOLD = range(4)
FLOATS = ('position', 'unrealised', 'log_equity', 'peak', 'max_drawdown', 'goal')
WHOLE = ('bar', 'bars_held', 'hold_left', 'steps', 'length', 'n_returns', 'last_direction')

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument('--preset', choices=PRESETS, default='small')
ap.add_argument('--envs', type=int, help="default: the preset's")
ap.add_argument('--network', action='store_true')
ap.add_argument('--bars', type=int, default=32, help='bars of a call')
ap.add_argument('--rounds', type=int, default=7)
ap.add_argument('--calls', type=int, default=10, help='calls of a round')
ap.add_argument('--json', metavar='FILE')
ap.add_argument('--check', action='store_true')


def multiply(change, ruined, by):
    """Equity's change after a factor 1 + by. Once lost it stays lost."""
    change = change + by + change * by
    ruined = ruined | (1 + by <= LEAST) | (1 + change <= LEAST)
    return jnp.where(ruined, LEAST - 1, change), ruined


def trade(s, action, cap, decided, after_bar, hold):
    """One environment over one bar: order, fill, profit, holds. Returns its state and equity's simple return."""
    direction = jnp.where(s['hold_left'] > 0, HOLD, action[0])
    hold_left = jnp.maximum(s['hold_left'] - 1, 0)
    size = (action[1] + 1) / 3.0 * cap
    before = s['position']
    after = jnp.where(direction == SHORT, -size, jnp.where(direction == LONG, size, 0.0))
    asks = (direction != HOLD) & (after != before)
    sign = jnp.where(after > before, 1.0, -1.0)
    spread = after_bar['half_spread']
    # The fill: market at the open, limits where the bar reaches them.
    is_market = action[2] == 0
    limit = jnp.where(action[2] == 1, 0.0, sign * 0.5 * decided['half_spread'])
    reached = jnp.where(sign > 0, after_bar['low'] <= limit - spread, after_bar['high'] >= limit + spread)
    best = jnp.where(sign > 0, jnp.minimum(limit, after_bar['open']), jnp.maximum(limit, after_bar['open']))
    price = jnp.where(is_market, after_bar['open'] + sign * spread * (1 + after_bar['open']), best)
    fee = jnp.where(is_market, TAKER, MAKER)
    filled = asks & (is_market | reached)

    financing = jnp.maximum(-before, 0.0) * FINANCING * after_bar['elapsed_years']
    moved = before * after_bar['close']
    gap, rest = before * price, after * ((after_bar['close'] - price) / (1 + price))
    none, lost = jnp.zeros(()), jnp.zeros((), bool)
    without = multiply(none, lost, moved - financing)
    with_fill = multiply(*multiply(*multiply(none, lost, gap - financing), -fee * jnp.abs(after - before)), rest)
    pick = lambda a, b: jnp.where(filled, a, b)
    change, ruined = pick(with_fill[0], without[0]), pick(with_fill[1], without[1])
    goes_on = before * after > 0
    kept = jnp.minimum(jnp.abs(after) / jnp.maximum(jnp.abs(before), 1e-30), 1.0)
    unrealised = pick(jnp.where(goes_on, (s['unrealised'] + gap) * kept + rest, rest), s['unrealised'] + moved)
    held = pick(jnp.where(goes_on, s['bars_held'] + 1, (after != 0).astype(jnp.int32)), s['bars_held'] + (before != 0))
    hold_left = pick(jnp.maximum(hold[action[3]] - 1, 0), hold_left)
    keep = lambda x: jnp.where(ruined, jnp.zeros_like(x), x)
    return dict(s, bar=s['bar'] + 1, hold_left=hold_left, last_direction=direction, position=keep(pick(after, before)),
                unrealised=keep(unrealised), bars_held=keep(held)), change, ruined


def book(s, change, recent):
    """The account after a bar; its reward."""
    log_return = jnp.log1p(change)
    log_equity = s['log_equity'] + log_return
    peak = jnp.maximum(s['peak'], log_equity)
    deepest = jnp.maximum(s['max_drawdown'], peak - log_equity)
    reward = jnp.clip((log_return - LAMBDA_DD * (deepest - s['max_drawdown'])) / SIGMA, -10, 10)
    recent = jnp.where(jnp.arange(N_RECENT) == s['n_returns'] % N_RECENT, log_return, recent)
    s = dict(s, log_equity=log_equity, peak=peak, max_drawdown=deepest, steps=s['steps'] + 1, n_returns=s['n_returns'] + 1)
    return s, recent, reward


def account(s, recent, cap, epsilon, episode):
    """The 15 portfolio features and the goal."""
    n = jnp.minimum(s['n_returns'], N_RECENT)
    there = jnp.arange(N_RECENT) < n
    mean = jnp.where(there, recent, 0).sum() / jnp.maximum(n, 1)
    std = jnp.sqrt(jnp.where(there, (recent - mean) ** 2, 0).sum() / jnp.maximum(n, 1))
    episode_sigma = SIGMA * math.sqrt(episode)
    values = [s['position'], s['unrealised'] / (SIGMA * jnp.sqrt(1.0 + s['bars_held'])), s['bars_held'] / 15, s['hold_left'] / 15,
              s['log_equity'] / episode_sigma, (s['peak'] - s['log_equity']) / episode_sigma,
              mean * n / (SIGMA * math.sqrt(N_RECENT)), std / SIGMA, *(s['last_direction'] == jnp.arange(4)).astype(jnp.float32),
              cap, epsilon, s['steps'] / jnp.maximum(s['length'], 1)]
    return jnp.append(jnp.clip(jnp.stack([jnp.asarray(v, jnp.float32) for v in values]), -5, 5), s['goal'])


def one(s, recent, action, start, goal, cap, epsilon, market, c):
    """A bar of one environment, with the next episode where this one ends."""
    take = lambda at: {name: values[at] for name, values in market.items()}
    hold = jnp.asarray(c['hold'])
    s, change, ruined = trade(s, action, cap, take(s['bar']), take(s['bar'] + 1), hold)
    s, recent, reward = book(s, change, recent)
    after = account(s, recent, cap, epsilon, c['episode'])
    done = ruined | (s['log_equity'] < -math.log(2))
    ends = done | (s['steps'] >= s['length']) | (s['bar'] >= c['bars'] - 1)
    fresh = dict({name: jnp.zeros(()) for name in FLOATS}, **{name: jnp.zeros((), jnp.int32) for name in WHOLE})
    fresh.update(bar=start, length=jnp.int32(c['episode']), goal=goal, last_direction=jnp.int32(FLAT))
    s = {name: jnp.where(ends, fresh[name], s[name]) for name in s}
    seen = jnp.where(ends, account(s, recent, cap, epsilon, c['episode']), after)
    return s, recent, seen, reward, after, done


def rms(x, gain):
    return x * lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype) * gain


def policy(p, u, atoms):
    """Ranks [E, 13]: the mean of each action's distribution."""
    h = jax.nn.silu(rms(u.astype(p['w_in'].dtype) @ p['w_in'] + p['b_in'], p['g_in']))
    h = h * (1 + p['film'][0]) + p['film'][1]
    for l in range(L):
        y = jax.nn.silu(rms(h, p['g_res'][l]) @ p['w_res'][2 * l] + p['b_res'][2 * l])
        h = h + (1 - (l + 1) / L * 0.1) * (y @ p['w_res'][2 * l + 1] + p['b_res'][2 * l + 1])
    n, width = h.shape
    gate = 8 * jax.nn.softmax((h @ p['w_gate']).reshape(n, 4, 8), -1)
    of_branch = (h.reshape(n, 1, 8, width // 8) * gate[..., None]).reshape(n, 4, width)
    inputs = jnp.concatenate([h[None], of_branch.transpose(1, 0, 2)])
    hidden = jax.nn.silu(jnp.einsum('bnh,bhm->bnm', inputs, p['w_hid']) + p['b_hid'])
    v = (hidden[0] @ p['w_v']).reshape(n, 4, 1, K)
    ranks = []
    for branch, n_actions in enumerate(SIZES):
        a = (hidden[branch + 1] @ p['w_a'][branch]).reshape(n, n_actions, K)
        logits = (v[:, branch] + a - a.mean(1, keepdims=True)).astype(jnp.float32)
        ranks.append((jax.nn.softmax(logits, -1) * atoms).sum(-1))
    return ranks


def network(key, c, dtype):
    h, m = c['hidden'], c['branch_hidden']
    keys = iter(jax.random.split(key, 32))
    w = lambda *shape: (jax.random.normal(next(keys), shape) / math.sqrt(shape[-2])).astype(dtype)
    zeros, ones = lambda *shape: jnp.zeros(shape, dtype), lambda *shape: jnp.ones(shape, dtype)
    return dict(w_in=w(NF + N_ACCOUNT, h), b_in=zeros(h), g_in=ones(h), film=w(2, h), w_res=w(2 * L, h, h), b_res=zeros(2 * L, h),
                g_res=ones(L, h), w_gate=w(h, 32), w_hid=w(5, h, m), b_hid=zeros(5, 1, m), w_v=w(m, 4 * K),
                w_a=[w(m, n * K) for n in SIZES])


def run(carry, key, market, features, net, c, n_bars, with_network):
    """`n_bars` bars of all environments; sums of rewards keep the work alive."""
    cap, epsilon = jnp.float32(1.0), jnp.float32(c['epsilon'])
    atoms = jnp.linspace(-c['v'], c['v'], K)

    def bar(carry, key):
        s, recent, seen, total = carry
        n = seen.shape[0]
        bits = jax.random.bits(key, (10, n), jnp.uint32)
        uniform = lambda i: (bits[i] >> 8).astype(jnp.float32) * 2.0 ** -24
        explored = [(uniform(4 + i) * size).astype(jnp.int32) for i, size in enumerate(SIZES)]
        if with_network:
            ranks = policy(net, jnp.concatenate([features[s['bar']], seen], 1), atoms)
            greedy = [r.argmax(1).astype(jnp.int32) for r in ranks]
            chosen = [jnp.where(uniform(i) < epsilon, e, g) for i, (e, g) in enumerate(zip(explored, greedy))]
        else:
            chosen = explored
        starts = (uniform(8) * (c['bars'] - 1 - 128 - c['episode'])).astype(jnp.int32) + 128
        step = functools.partial(one, cap=cap, epsilon=epsilon, market=market, c=c)
        s, recent, seen, reward, after, done = jax.vmap(step)(s, recent, jnp.stack(chosen, 1), starts, 2 * uniform(9))
        return (s, recent, seen, total + reward + after.sum(1) + done), None

    return lax.scan(bar, carry, jax.random.split(key, n_bars))[0]


def simulated(key, n):
    a, b, d = (jax.random.normal(k, (n,)) * SIGMA for k in jax.random.split(key, 3))
    open_, close = 0.1 * a, b
    tail = jnp.abs(d) / 2
    return dict(open=open_, close=close, high=jnp.maximum(open_, close) + tail, low=jnp.minimum(open_, close) - tail,
                half_spread=jnp.full((n,), HALF_SPREAD), elapsed_years=jnp.full((n,), 60 / (365.25 * 86400)))


def check():
    """A bar that opens at +1%, falls to -1%, rises to +3% and closes at +2%, half spread 1 bp."""
    before = dict(open=0.0, high=0.0, low=0.0, close=0.0, half_spread=1e-4, elapsed_years=0.0)
    after = dict(before, open=0.01, high=0.03, low=-0.01, close=0.02)
    hold, failed = jnp.asarray((1, 2, 4)), 0
    state = dict({name: jnp.zeros(()) for name in FLOATS}, **{name: jnp.zeros((), jnp.int32) for name in WHOLE})
    bought, sold = 1.01 * 1.0001, 1.01 * 0.9999
    cases = [  # what, position before, action, hold left, return, position after, hold left after
        ('flat stays flat', 0, (FLAT, 0, 0, 0), 0, 0, 0, 0),
        ('a market buy', 0, (LONG, 2, 0, 2), 0, (1 - TAKER) * (1 + 1.02 / bought - 1) - 1, 1, 3),
        ('a market sale of a whole position', 1, (FLAT, 0, 0, 0), 0, sold * (1 - TAKER) - 1, 0, 0),
        ('a limit to buy at the close fills', 0, (LONG, 2, 1, 0), 0, (1 - MAKER) * 1.02 - 1, 1, 0),
        ('a limit to sell fills at the open', 1, (FLAT, 0, 1, 0), 0, 1.01 * (1 - MAKER) - 1, 0, 0),
        ('a third short, by market', 0, (SHORT, 0, 0, 1), 0, (1 - TAKER / 3) * (1 - (1.02 / sold - 1) / 3) - 1, -1 / 3, 1),
        ('the hold keeps the position', 1, (SHORT, 2, 0, 0), 2, 0.02, 1, 1),
    ]
    for what, position, action, left, want, want_position, want_left in cases:
        s = dict(state, position=jnp.float32(position), hold_left=jnp.int32(left))
        s, change, _ = trade(s, jnp.asarray(action), jnp.float32(1), before, after, hold)
        fine = abs(float(change) - want) < 1e-6 and abs(float(s['position']) - want_position) < 1e-6
        fine = fine and int(s['hold_left']) == want_left
        failed += not fine
        print(f'{what:36} {float(change):10.6f} {want:10.6f}  {"" if fine else "FAILED"}')
    print(f'{len(cases) - failed} passed, {failed} failed')
    return failed > 0


def main():
    args = ap.parse_args()
    if args.check:
        return check()
    jax.config.update('jax_default_prng_impl', 'rbg')
    c = PRESETS[args.preset]
    n = args.envs or c['envs']
    key = jax.random.key(0)
    device = jax.devices()[0]
    market, features = simulated(key, c['bars']), jax.random.normal(key, (c['bars'], NF))
    net = network(key, c, jnp.bfloat16 if device.platform == 'gpu' else jnp.float32) if args.network else None
    state = dict({name: jnp.zeros((n,)) for name in FLOATS}, **{name: jnp.zeros((n,), jnp.int32) for name in WHOLE})
    state.update(bar=jax.random.randint(key, (n,), 128, c['bars'] - 1 - c['episode']),
                 last_direction=jnp.full((n,), FLAT, jnp.int32), length=jax.random.randint(key, (n,), 1, c['episode'] + 1))
    carry = (state, jnp.zeros((n, N_RECENT)), jnp.zeros((n, N_ACCOUNT)), jnp.zeros((n,)))
    go = jax.jit(functools.partial(run, c=c, n_bars=args.bars, with_network=args.network), donate_argnums=0)
    rates = []
    for round_ in range(args.rounds + 1):       # the first compiles
        began = time.perf_counter()
        for call in range(args.calls):
            carry = go(carry, jax.random.key(round_ * args.calls + call), market, features, net)
        jax.block_until_ready(carry)
        rates.append(n * args.bars * args.calls / (time.perf_counter() - began))
    rates = sorted(rates[1:])
    rate = rates[len(rates) // 2]
    loop = ', network in the loop' * args.network
    print(f'JAX {jax.__version__} on {device.device_kind}: {args.preset}, {n} environments{loop}, load {os.getloadavg()[0]:.1f}')
    print(f'{rate:.4g} environment steps a second ({rates[0]:.4g} to {rates[-1]:.4g}, '
          f'{args.rounds} rounds of {args.calls} x {args.bars} bars); '
          f'mean of rewards and features {float(carry[3].mean()):.4f}')
    if args.json:
        with open(args.json, 'w') as file:
            json.dump(dict(jax=jax.__version__, device=device.device_kind, preset=args.preset, envs=n, network=args.network,
                           steps_a_second=rate, least=rates[0], most=rates[-1]), file, indent=1)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
