#!/usr/bin/env python3
"""The whole training step of onegraph in PyTorch: what onegraph's step is timed against, and checked against.

    step.py [--preset tiny|small|full] [--device cuda|cpu] [--learners core|defaults|all] [--modes eager,compile] [--json FILE]
    step.py --check DUMP [--modes compile]
        compares with a step of `onegraph dump --preset tiny --set precision=f32 --steps N --out DUMP`

`core`: trunk, branches, C51 with double DQN, prioritized replay, AdamW, target EMA. `defaults`: what docs/configuration.md has
on. `all`: every learner. Pruning is off in each preset and is not here.

Written as one who wants speed would write it:
  * static shapes, no synchronisation with the host, every scalar of the schedule on the device;
  * one flat f32 leaf for all parameters: one cast gives the operands, the gradient arrives flat, optimiser and target EMA
    go over ranges;
  * algebra before kernels: the last bar alone of the Mamba2 block (dual form), dueling's mean over actions folded into the
    weights, IQN at its fixed midpoints as one product, columns of u that are always zero left out;
  * what a learner that is off would need is not there at all.

What differs from onegraph: the ring holds random numbers; draws come from torch's generator, not Philox; the batch is drawn by
prefix sum and binary search; how many transitions of its episode follow a slot is a column of the ring, which a collector can
write between epochs. Causal sensitivity and the atoms' spacing are functions of their own, called when they are due, and counted.
"""
import argparse
import contextlib
import json
import math
import os
import struct
import time
import traceback

import torch
import torch.nn.functional as F

PRESETS = {  # docs/configuration.md
    'tiny': dict(window=4, hidden=32, branch_hidden=16, batch=32, capacity=1 << 12, envs=16, lr=2e-3, tau=(0.05, 0.01), v=3.0,
                 steps=100, episode=64),
    'small': dict(window=8, hidden=64, branch_hidden=32, batch=128, capacity=1 << 16, envs=64, lr=2e-3, tau=(0.05, 0.01), v=1.5,
                  steps=2000, episode=250),
    'full': dict(window=16, hidden=512, branch_hidden=128, batch=8192, capacity=1 << 20, envs=4096, lr=3e-4, tau=(0.01, 0.001),
                 v=3.0, steps=35600, episode=512),
}
DEFAULTS = {'film', 'spectral', 'depth', 'selection', 'spacing', 'cql', 'her', 'q_statistics', 'vaccine', 'adaptive_clip',
            'causal'}
LEARNERS = {
    'core': set(),
    'defaults': DEFAULTS,
    'all': DEFAULTS | {'temporal', 'attention', 'iqn', 'iql', 'selectivity', 'denoise', 'risk'},
}

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument('--preset', choices=PRESETS, default='small')
ap.add_argument('--device', choices=['cuda', 'cpu'], default='cuda' if torch.cuda.is_available() else 'cpu')
ap.add_argument('--learners', choices=LEARNERS, default='defaults')
ap.add_argument('--batch', type=int, help="default: the preset's")
ap.add_argument('--precision', choices=['bf16', 'f32'], help='operands of products; default: bf16 on a GPU, f32 on the CPU')
ap.add_argument('--modes', help='of eager, graph, compile, compile_graph; default: all on a GPU, eager,compile on the CPU')
ap.add_argument('--attention', choices=['sdpa', 'packed', 'bmm'], default='packed', help='how the two attentions are worked out')
ap.add_argument('--threads', type=int, help='of the CPU')
ap.add_argument('--rounds', type=int, default=7)
ap.add_argument('--steps', type=int, default=100, help='steps of a round')
ap.add_argument('--json', metavar='FILE')
ap.add_argument('--check', metavar='DUMP')
args = ap.parse_args()


# ---------------------------------------------------------------- safetensors
def read_safetensors(path):
    """Name -> tensor, and the types as they were."""
    types = {'F32': torch.float32, 'F64': torch.float64, 'U8': torch.uint8, 'BF16': torch.bfloat16, 'U32': torch.int32,
             'I32': torch.int32}
    with open(path, 'rb') as file:
        header = json.loads(file.read(struct.unpack('<Q', file.read(8))[0]))
        data = bytearray(file.read())
    tensors = {}
    for name, at in header.items():
        if name != '__metadata__':
            begin, end = at['data_offsets']
            empty = torch.empty(at['shape'], dtype=types[at['dtype']])
            tensors[name] = torch.frombuffer(data, dtype=empty.dtype, offset=begin, count=empty.numel()).view(at['shape']) \
                if end > begin else empty
    return tensors


C = dict(PRESETS[args.preset])
ON = LEARNERS[args.learners]
DUMP = read_safetensors(args.check) if args.check else None
if DUMP:
    has = {'temporal': 'd_temporal', 'attention': 'd_attention', 'iqn': 'iqn.phi', 'iql': 'q_taken', 'selectivity': 'p_trade',
           'denoise': 'd_denoise', 'risk': 'cvar_loss'}
    ON = DEFAULTS | {learner for learner, name in has.items() if name in DUMP}
    args.device, args.precision, args.batch = 'cpu', 'f32', DUMP['batch.actions'].shape[0]
    found = DUMP['param.before.trunk.in.bias'].numel(), DUMP['param.before.branch.value.hidden.bias'].numel()
    C['hidden'], C['branch_hidden'] = found
    C['window'] = DUMP['param.before.attention.channels.gain'].numel()
dev = torch.device(args.device)
CUDA = dev.type == 'cuda'
if args.threads:
    torch.set_num_threads(args.threads)
FP = torch.float32
WD = {'bf16': torch.bfloat16, 'f32': FP}[args.precision or ('bf16' if CUDA else 'f32')]  # of operands
B, CAP, T, H, M = args.batch or C['batch'], C['capacity'], C['window'], C['hidden'], C['branch_hidden']
NF, NACC, K, SIZES, NB, NA, NQ, L = 24, 16, 51, (4, 3, 3, 3), 4, 13, 8, 2
MK = T * NF                                      # columns of the market; the account's 15 and the goal follow
SD, GOAL = MK + NACC, MK + NACC - 1
DI, NH, DS = 128, 4, 16                          # Mamba2: inner width, heads, state
ALPHA, BETA0, EPS, HER_RATIO, HER_W, R_SCALE = 0.6, 0.4, 1e-6, 0.25, 0.01, 0.2
A_CQL, LAM_IQN, SIG_MAX, WDECAY, CLIP, V_WEIGHT, THRESHOLD = 0.001, 0.1, 3.0, 1e-4, 10.0, 1.0, 0.4
torch.manual_seed(0)
torch.set_float32_matmul_precision('high')       # tf32 for the few f32 products of a GPU
if CUDA:
    torch.backends.cuda.enable_cudnn_sdp(args.attention == 'sdpa')  # slow over tens of thousands of heads of few tokens
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
PAD = 8 if CUDA and WD != FP else 1              # rows of products begin at 16 bytes


# ---------------------------------------------------------------- parameters
HEADS = ['value', 'direction', 'size', 'order', 'hold']


def of_heads(part, heads=HEADS):
    return [f'branch.{head}.{part}' for head in heads]


class Pack:
    """A learner's tensors in the flat leaf, in three parts: matrices in f32, tensors taken as operands, the rest in f32.
    An entry: name, shape, names in onegraph's layout."""

    def __init__(self, name, first, operands, rest, decay=None):
        self.name, self.parts = name, [list(first), list(operands), list(rest)]
        # Each learner begins where a vector of 16 bytes does.
        self.pad = -sum(math.prod(shape) for _, shape, _ in self.entries()) % 8
        self.parts[2] += [('pad', (self.pad,), [])] * (self.pad > 0)
        self.sizes = [[math.prod(shape) for _, shape, _ in part] for part in self.parts]
        self.n = sum(map(sum, self.sizes))
        # Weight decay goes over a prefix: the first part, and of the second those before `decay`.
        names = [entry[0] for entry in self.parts[1]]
        self.n_decay = sum(self.sizes[0]) + sum(self.sizes[1][:names.index(decay)]) if decay else 0

    def views(self, flat):
        first, operands, rest = flat.split([sum(sizes) for sizes in self.sizes])
        out = {}
        for values, sizes, part in zip((first, operands.to(WD), rest), self.sizes, self.parts):
            if part:
                out.update({name: x.view(shape) for (name, shape, _), x in zip(part, values.split(sizes))})
        return out

    def entries(self):
        return [entry for part in self.parts for entry in part]

    def initial(self):
        """Of the design's distributions; the values themselves do not matter here."""
        parts = []
        for name, shape, sources in self.entries():
            x = torch.zeros(shape, device=dev)
            if name.startswith('w_') and name not in ('w_film', 'w_gate'):
                x.normal_(0, (0.01 if name in ('w_v2', 'w_a0', 'w_a3', 'w_q2') else 1) / math.sqrt(shape[-1]))
            elif name.startswith('g_') or name == 'skip':
                x.fill_(1.0)
            elif 'conv' in name:
                x.uniform_(-0.5, 0.5)
            elif name == 'a_log':
                x.uniform_(1, 16).log_()
            elif name == 'dt_bias':
                x.uniform_(math.log(0.001), math.log(0.1)).exp_()
                x.add_(torch.log(-torch.expm1(-x)))
            parts.append(x.reshape(-1))
        return torch.cat(parts)

    def load(self, prefix):
        names = [prefix + source for _, _, sources in self.entries() for source in sources]
        return F.pad(torch.cat([DUMP[name].reshape(-1) for name in names]), (0, self.pad))


temporal_on = 'temporal' in ON
packs = [Pack(
    'theta',
    [('w_in', (H, 200), ['trunk.in.weight']),
     ('w_res', (2 * L, H, H), [f'trunk.block{b}.w{w}' for b in range(L) for w in (1, 2)]),
     ('w_a0', (4 * K, M), of_heads('out.weight', HEADS[1:2])), ('w_a3', (3, 3 * K, M), of_heads('out.weight', HEADS[2:]))]
    + [('w_film', (2 * H, 12), ['film.weight'])] * ('film' in ON),
    [('w_emb', (64, NF), ['temporal.embed.weight']), ('w_proj', (2 * DI + 2 * DS + NH, 64), ['temporal.in_proj.weight']),
     ('w_out', (64, DI), ['temporal.out_proj.weight'])] * temporal_on
    + [('w_gate', (NB * 8, H), [f'branch.gate.{head}.weight' for head in HEADS[1:]])] * ('selection' in ON)
    + [('w_hid', (5, M, H), of_heads('hidden.weight')), ('w_v2', (4 * K, M), of_heads('out.weight', HEADS[:1]))]
    + [('b_in', (H,), ['trunk.in.bias'])]
    + [('b_emb', (64,), ['temporal.embed.bias']), ('conv', (DI + 2 * DS, 4), ['temporal.conv.weight']),
       ('b_conv', (DI + 2 * DS,), ['temporal.conv.bias']), ('g_t', (DI,), ['temporal.norm.gain'])] * temporal_on
    + [('g_in', (H,), ['trunk.in.gain']), ('g_res', (L, H), [f'trunk.block{b}.gain' for b in range(L)]),
       ('b_res', (2 * L, H), [f'trunk.block{b}.b{w}' for b in range(L) for w in (1, 2)]),
       ('b_hid', (5, 1, M), of_heads('hidden.bias')), ('b_v2', (4 * K,), of_heads('out.bias', HEADS[:1]))],
    [('b_a0', (4 * K,), of_heads('out.bias', HEADS[1:2])), ('b_a3', (3, 3 * K), of_heads('out.bias', HEADS[2:]))]
    + [(name, (NH,), [f'temporal.{source}'])
       for name, source in (('dt_bias', 'dt_bias'), ('a_log', 'a_log'), ('skip', 'd'))] * temporal_on,
    decay='b_in')]
if 'attention' in ON:
    packs.append(Pack('attention', [], [
        ('w_emb', (64, NF), ['attention.embed.weight']), ('b_emb', (64,), ['attention.embed.bias'])] + [
        entry for over, n in (('bars', 64), ('channels', T)) for entry in (
            (f'w_{over}', (3 * n, n), [f'attention.{over}.w{x}' for x in 'qkv']),
            (f'w_{over}_o', (n, n), [f'attention.{over}.wo']), (f'g_{over}', (n,), [f'attention.{over}.gain']))], []))
if 'iqn' in ON:
    packs.append(Pack('iqn', [('w_phi', (H, 64), ['iqn.phi.weight']), ('b_phi', (H,), ['iqn.phi.bias']),
                              ('w_q1', (M, H), ['iqn.hidden.weight'])],
                      [('b_q1', (M,), ['iqn.hidden.bias']), ('w_q2', (NA, M), ['iqn.out.weight']),
                       ('b_q2', (NA,), ['iqn.out.bias'])],
                      []))
if 'iql' in ON:
    for name in ('iql_high', 'iql_low'):
        packs.append(Pack(name, [], [('w_1', (128, H), [f'{name}.hidden.weight']), ('b_1', (128,), [f'{name}.hidden.bias'])],
                          [('w_2', (128,), [f'{name}.out.weight']), ('b_2', (1,), [f'{name}.out.bias'])]))
if 'selectivity' in ON:
    packs.append(Pack('selectivity', [], [], [('w_s', (H,), ['select.weight']), ('b_s', (1,), ['select.bias'])]))
if 'denoise' in ON:
    packs.append(Pack('denoise', [], [('w_e', (32, NF), ['denoise.encoder.weight']), ('b_e', (32,), ['denoise.encoder.bias']),
                                      ('w_d', (NF, 32), ['denoise.decoder.weight']),
                                      ('b_d', (NF,), ['denoise.decoder.bias'])], []))
NAMES = [pack.name for pack in packs]
PACK = dict(zip(NAMES, packs))
LENGTHS = [pack.n for pack in packs]
NT = LENGTHS[0]
NTARGET = sum(pack.n for pack in packs if pack.name in ('theta', 'attention', 'iqn'))
N_DECAY = packs[0].n_decay


def split(flat):
    """The learners' parts of a flat tensor, by name."""
    return dict(zip(NAMES, flat.split(LENGTHS[:len(NAMES)] if flat.numel() == sum(LENGTHS) else target_lengths)))


target_lengths = [pack.n for pack in packs if pack.name in ('theta', 'attention', 'iqn')]
leaf = torch.cat([pack.initial() for pack in packs]).requires_grad_(True)
N = leaf.numel()
target = leaf.detach()[:NTARGET].clone()
adam_m, adam_v = torch.zeros(N, device=dev), torch.zeros(N, device=dev)
applied = torch.zeros(len(packs), device=dev)    # applied updates of each learner
snap = torch.zeros(NT, device=dev)

# ---------------------------------------------------------------- replay ring and state of the step
SS = torch.empty(2 * CAP, SD, device=dev)        # states in [0, CAP), next states in [CAP, 2 CAP)
for rows in SS.split(1 << 18):
    rows.normal_()
slots = torch.arange(CAP, device=dev)
bar, env = slots // C['envs'], slots % C['envs']
META = torch.zeros(CAP, 6, device=dev)           # reward, done, n, achieved, later transitions of the episode
META[:, 0] = torch.randn(CAP, device=dev) * R_SCALE
META[:, 1] = (torch.rand(CAP, device=dev) < 1e-3).float()
META[:, 2] = 3.0
META[:, 3] = torch.randn(CAP, device=dev)
META[:, 4] = torch.minimum(C['episode'] - 1 - (bar + env * 7) % C['episode'], bar.max() - bar).float()
ACTS = torch.stack([torch.randint(0, n, (CAP,), device=dev) for n in SIZES], 1).to(torch.uint8)
P = torch.rand(CAP, device=dev) + 1e-3
scratch = torch.zeros(CAP, device=dev)
maxp = P.max().clone()

step_no = torch.zeros((), dtype=torch.int64, device=dev)
skipped = torch.zeros(1000, device=dev)
isv = torch.zeros(64, device=dev)
isv[12], isv[20], isv[41], isv[42], isv[43], isv[44], isv[45] = 1.0, 1.0, 1.0, C['tau'][0], 0.99, 1.0, 1.0
isv[23:31] = torch.tensor([-C['v'], C['v']] * NB)
health_at_epoch = torch.ones((), device=dev)
popart = torch.zeros(2, dtype=torch.float64, device=dev)
iqn_avg = torch.zeros(2, dtype=torch.float64, device=dev)  # of the head's loss, and its first value
u_on = [torch.randn(H, 1, device=dev), torch.randn(2 * L, H, 1, device=dev)]
u_tg = [torch.randn(H, 1, device=dev), torch.randn(2 * L, H, 1, device=dev)]
spacing = torch.zeros(NB, K - 1, device=dev)
atoms = torch.linspace(-C['v'], C['v'], K, device=dev).repeat(NB, 1)
mass = torch.zeros(NB, K, device=dev)
sens = torch.zeros(NF, device=dev)
rows_kept = torch.zeros(min(256, B), SD, device=dev)
rb = torch.zeros(16, device=dev)
rb_host = torch.zeros(16, pin_memory=CUDA)
if DUMP:
    leaf = torch.cat([pack.load('param.before.') for pack in packs]).requires_grad_(True)
    target = torch.cat([pack.load('target.before.') for pack in packs[:len(target_lengths)]])
    adam_m, adam_v = (torch.cat([pack.load(f'{which}_moment.before.') for pack in packs]) for which in ('first', 'second'))
    snap, isv, atoms, spacing = packs[0].load('snapshot.before.'), DUMP['isv.before'].clone(), DUMP['atoms'], \
        DUMP['spacing.before'].clone()
    taken = dict(theta='adam_t', attention='attn_t', iqn='iqn_t', iql_high='iql_t', iql_low='iql_low_t', selectivity='sel_t',
                 denoise='denoise_t')
    applied = torch.tensor([float(DUMP[f'counters.{taken[name]}']) - 1 for name in NAMES])
    step_no = DUMP['counters.rng_step'].long() - 1
    if 'iql' in ON:
        popart = torch.stack([DUMP['popart.before.mean'], DUMP['popart.before.square']])
    if 'iqn' in ON:
        iqn_avg = DUMP['iqn.averages.before'].double()

# constants
ar = torch.arange(B, device=dev)
ao = torch.tensor([0, 4, 7, 10], device=dev)     # first action of each branch
branch_of = torch.tensor([0] * 4 + [1] * 3 + [2] * 3 + [3] * 3, device=dev)
PAD16 = torch.tensor([0, 1, 2, 3, 4, 5, 6, 13, 7, 8, 9, 13, 10, 11, 12, 13], device=dev)
keep = torch.tensor([1 - (l / L) * 0.1 for l in range(1, L + 1)], device=dev) if 'depth' in ON else torch.ones(L, device=dev)
tauq = (torch.arange(NQ, device=dev) + 0.5) / NQ
cosq = torch.cos(math.pi * torch.arange(64, device=dev)[None, :] * tauq[:, None])
expectiles = torch.tensor([0.9, 0.1], device=dev)
COLUMNS = [(0, 40, True), (40, 104, temporal_on), (104, 168, 'attention' in ON), (168, 200, 'denoise' in ON)]
angle = torch.arange(T).double()[:, None] / 10_000 ** ((torch.arange(64) // 2 * 2).double() / 64)
positions = torch.where(torch.arange(64) % 2 == 0, angle.sin(), angle.cos()).to(dev, WD)
LAST = (torch.arange(T, device=dev) == T - 1).float().view(T, 1)  # D x_T inside the bars' weights
tiles = 64 // T                                  # rows whose bars fill one tile of 64 keys
tile_of = torch.arange(tiles * T, device=dev) // T
BLOCK = torch.zeros(tiles * T, tiles * T, device=dev, dtype=WD).masked_fill(tile_of[:, None] != tile_of[None, :], float('-inf'))


# ---------------------------------------------------------------- network
def rms(x, gain):
    return F.rms_norm(x, (x.shape[-1],), gain, 1e-5)


def prep(p, scale):
    """Weights as the products take them: spectral scale, columns that can be other than zero, dueling's mean taken away."""
    q = dict(p)
    w = p['w_in'] if scale is None else p['w_in'] * scale[0]
    used = [w[:, a:b] for a, b, on in COLUMNS if on]
    q['w_in'] = (used[0] if len(used) == 1 else torch.cat(used, 1)).to(WD)
    q['w_res'] = (p['w_res'] if scale is None else p['w_res'] * scale[1]).to(WD)

    def centred(x, n, axis):
        x = x.unflatten(axis, (n, K))
        x = (x - x.mean(axis, keepdim=True)).flatten(axis, axis + 1)
        extra = -x.shape[axis] % PAD
        return (F.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, extra)) if extra else x).to(WD)
    q['w_a0'], q['b_a0'] = centred(p['w_a0'], 4, 0), centred(p['b_a0'], 4, 0)
    q['w_a3'], q['b_a3'] = centred(p['w_a3'], 3, 1), centred(p['b_a3'], 3, 1)
    return q


def temporal(p, m):
    """Mamba2 block over m [n, T, 24], last bar: y_T = sum_t exp(sum_{s > t} a_s) dt_t (C_T . B_t) x_t + D x_T."""
    n = m.shape[0]
    w = p['w_proj']
    e = F.linear(m.reshape(n * T, NF), p['w_emb'], p['b_emb'])
    # z and C are needed of the last bar alone, C's convolution of the last four.
    xb, dt = F.linear(e, torch.cat([w[DI:2 * DI + DS], w[2 * DI + 2 * DS:]])).view(n, T, DI + DS + NH).split([DI + DS, NH], -1)
    e4 = e.view(n, T, 64)[:, T - 4:]
    z = F.linear(e4[:, 3], w[:DI])
    taps, bias = p['conv'], p['b_conv']
    y = torch.addcmul(bias[:DI + DS], xb, taps[:DI + DS, 3])
    for back in range(1, 4):
        y = torch.addcmul(y, F.pad(xb, (0, 0, back, -back)), taps[:DI + DS, 3 - back])
    x, bm = F.silu(y).split([DI, DS], -1)
    c4 = F.linear(e4.reshape(n * 4, 64), w[2 * DI + DS:2 * DI + 2 * DS]).view(n, 4, DS)
    c = F.silu((c4 * taps[DI + DS:].t()).sum(1) + bias[DI + DS:])
    dt = F.softplus(dt.float() + p['dt_bias'])
    decay = (dt * -p['a_log'].exp()).cumsum(1)
    g = (bm * c.unsqueeze(1)).sum(-1, dtype=FP)
    weight = (decay[:, -1:] - decay).exp() * dt * g.unsqueeze(-1) + p['skip'] * LAST
    y = (weight.to(WD).unsqueeze(-1) * x.reshape(n, T, NH, DI // NH)).sum(1)
    return F.linear(rms(y.reshape(n, DI) * F.silu(z), p['g_t']), p['w_out'])


def self_attention(x, w, w_o, gain, packed):
    """RMSNorm(X + MHA(X)), 4 heads, over tokens x [n, l, d]. `packed`: one tile of 64 keys holds several rows, apart by a
    block-diagonal mask, since kernels for long sequences waste a tile on a few tokens."""
    n, l, d = x.shape
    hd = d // 4
    qkv = F.linear(x, w)
    if packed:
        q, k, v = [y.transpose(1, 2) for y in qkv.view(n // tiles, tiles * l, 3, 4, hd).unbind(2)]
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=BLOCK)
        o = o.transpose(1, 2).reshape(n, l, d)
    else:
        q, k, v = [y.transpose(1, 2) for y in qkv.view(n, l, 3, 4, hd).unbind(2)]
        if args.attention == 'bmm':
            s = torch.matmul(q * hd ** -0.5, k.transpose(2, 3))
            o = torch.matmul(torch.softmax(s, -1, dtype=FP).to(WD), v)
        else:
            extra = -hd % 8 if CUDA and WD != FP else 0  # the kernels take heads of 16 bytes
            if extra:
                q, k, v = [F.pad(y, (0, extra)) for y in (q, k, v)]
            o = F.scaled_dot_product_attention(q, k, v, scale=hd ** -0.5)[..., :hd]
        o = o.transpose(1, 2).reshape(n, l, d)
    return rms(x + F.linear(o, w_o), gain)


def attention(a, m):
    n = m.shape[0]
    x = F.linear(m, a['w_emb'], a['b_emb']) + positions
    x = self_attention(x, a['w_bars'], a['w_bars_o'], a['g_bars'], args.attention == 'packed' and n % tiles == 0)
    x = self_attention(x.transpose(1, 2), a['w_channels'], a['w_channels_o'], a['g_channels'], False)
    return x.mean(2)


def trunk(p, a, x, depth, film):
    """h [n, H] of the rows x; `depth` multiplies the residual branches."""
    m = x['bars']
    u = [x['rest']]
    if temporal_on:
        u.append(temporal(p, m))
    if 'attention' in ON:
        u.append(attention(a, m))
    if 'denoise' in ON:
        u.append(x['bottleneck'])
    u = torch.cat(u, 1) if len(u) > 1 else u[0]
    h = F.silu(rms(F.linear(u, p['w_in'], p['b_in']), p['g_in']))
    if 'film' in ON:
        g, s = torch.mv(p['w_film'], film).to(WD).split(H)
        h = torch.addcmul(s, h, 1 + g)
    for l in range(L):
        y = F.silu(F.linear(rms(h, p['g_res'][l]), p['w_res'][2 * l], p['b_res'][2 * l]))
        y = F.linear(y, p['w_res'][2 * l + 1], p['b_res'][2 * l + 1])
        h = torch.addcmul(h, y, depth[l]) if 'depth' in ON else h + y
    return h


def heads(p, h):
    """Dueling C51 logits [n, 13, K]."""
    n = h.shape[0]
    if 'selection' in ON:
        gate = 8 * torch.softmax(F.linear(h, p['w_gate']).view(n, NB, 8).transpose(0, 1), -1)
        inputs = torch.cat([h.unsqueeze(0), (h.view(1, n, 8, H // 8) * gate.unsqueeze(-1)).reshape(NB, n, H)])
        a = F.silu(torch.baddbmm(p['b_hid'], inputs, p['w_hid'].transpose(1, 2)))
    else:
        a = F.silu(F.linear(h, p['w_hid'].view(5 * M, H), p['b_hid'].view(5 * M))).view(n, 5, M).transpose(0, 1)
    v = F.linear(a[0], p['w_v2'], p['b_v2']).view(n, NB, K)
    first = F.linear(a[1], p['w_a0'], p['b_a0'])[:, :4 * K].view(n, 4, K) + v[:, :1]
    rest = torch.baddbmm(p['b_a3'].unsqueeze(1), a[2:], p['w_a3'].transpose(1, 2))[..., :3 * K].view(3, n, 3, K)
    rest = rest + v[:, 1:].transpose(0, 1).unsqueeze(2)
    return torch.cat([first, rest.transpose(0, 1).reshape(n, 9, K)], 1)


def quantiles(q, h):
    """IQN at the 8 fixed midpoints, all 13 actions: W (h * phi_k) = (W diag(phi_k)) h, one product for all midpoints."""
    phi = F.relu(F.linear(cosq, q['w_phi'], q['b_phi']))
    w = (phi.unsqueeze(1) * q['w_q1']).to(WD).view(NQ * M, H)
    y = F.silu(F.linear(h, w).view(-1, NQ, M) + q['b_q1'])
    extra = -NA % PAD
    w2, b2 = (F.pad(q['w_q2'], (0, 0, 0, extra)), F.pad(q['b_q2'], (0, extra))) if extra else (q['w_q2'], q['b_q2'])
    return F.linear(y, w2, b2)[..., :NA]


def pad16(q, fill):
    """[n, 13] as [n, 4, 4]."""
    return F.pad(q, (0, 1), value=fill).index_select(1, PAD16).view(-1, NB, 4)


def power(w, u):
    """One power iteration on w [.., out, in] from u [.., out, 1]: u', 1 / max(1, sigma / sigma_max)."""
    v = w.mT @ u
    x = w @ (v / (v.norm(dim=-2, keepdim=True) + 1e-12))
    new = x / (x.norm(dim=-2, keepdim=True) + 1e-12)
    sigma = (new * x).sum(-2, keepdim=True)
    return new, (sigma / SIG_MAX).clamp(min=1).reciprocal()


def spectral():
    """Scales of W_in and of W1, W2 of both blocks, online and target."""
    if 'spectral' not in ON:
        return None, None
    scales = []
    for flat, us in ((leaf.detach()[:NT], u_on), (target[:NT], u_tg)):
        of_net = []
        for w, u in zip((flat[:H * 200].view(H, 200), flat[H * 200:H * 200 + 2 * L * H * H].view(2 * L, H, H)), us):
            new, scale = power(w, u)
            u.copy_(new)
            of_net.append(scale)
        scales.append(of_net)
    return scales


def film_inputs():
    return torch.tanh(torch.cat([torch.log1p(isv[:2]), isv[2:12]]))


def rows_of(x, denoise):
    out = dict(bars=x[:, :MK].to(WD).view(-1, T, NF), rest=x[:, MK - NF:SD].to(WD))
    if 'denoise' in ON:
        out['bottleneck'] = F.silu(F.linear(out['rest'][:, :NF], denoise['w_e'], denoise['b_e']))
    return out


# ---------------------------------------------------------------- the step
class Ops:
    """Reductions over the batch: where inductor fuses, in two stages, or it pulls all that comes before a mean into one block."""

    def __init__(self, compiled):
        self.compiled, self.stages = compiled, 64 if compiled and CUDA and B % 64 == 0 else 1

    def avg(self, x):
        return x.reshape(self.stages, -1).mean(1).mean() if self.stages > 1 else x.mean()

    def var_mean(self, x):
        if self.stages == 1:
            return torch.var_mean(x, correction=0)
        mean = self.avg(x)
        return (self.avg(x * x) - mean * mean).clamp(min=0), mean

    def dot(self, x, y):
        return (x * y).sum() if self.compiled else torch.dot(x, y)


def counters():
    """The step's scalars."""
    step_no.add_(1)
    applied.add_(1)
    progress = (applied[0] / C['steps']).clamp(max=1)
    low, high = C['tau'][1], C['tau'][0]
    tau = (low + (high - low) * 0.5 * (1 + torch.cos(math.pi * progress))) * (0.5 + 0.5 * health_at_epoch)
    return dict(tau=tau, beta=BETA0 + (1 - BETA0) * progress, depth=(torch.rand(L, device=dev) < keep).to(WD))


def sample(sc):
    """A prioritized batch, with hindsight."""
    cs = P.cumsum(0, dtype=torch.float64)
    at = (ar + torch.rand(B, device=dev, dtype=torch.float64)) * (cs[-1] / B)
    idx = torch.searchsorted(cs, at, right=True).clamp(max=CAP - 1)
    p = P.index_select(0, idx)
    X = SS.index_select(0, torch.cat([idx, idx + CAP]))
    r, done, n, achieved, left, _ = META.index_select(0, idx).unbind(1)
    relabelled = None
    if 'her' in ON:
        xi = torch.rand(2, B, device=dev)
        relabelled = (xi[0] < HER_RATIO) & (left > 0)
        donor = META.index_select(0, (idx + (1 + (xi[1] * left).long()) * C['envs']) % CAP)[:, 3]
        old = X[:B, GOAL]
        goal = torch.where(relabelled, donor, old)
        r = r + R_SCALE * HER_W * ((old - achieved).abs() - (goal - achieved).abs())
        X[:, GOAL] = goal.repeat(2)
    return dict(idx=idx, p=p, w=(p.amin() / p).pow(sc['beta']), s=X[:B], s2=X[B:], act=ACTS.index_select(0, idx).long(), r=r,
                done=done, n=n, achieved=achieved, relabelled=relabelled)


def learn(b, sc, scales, ops):
    """Passes, targets, losses, the one backward pass; and everything that later stages need of them."""
    avg = ops.avg
    on_scale, tg_scale = scales
    o = {name: PACK[name].views(flat) for name, flat in split(leaf).items()}
    net, att = prep(o['theta'], on_scale), o.get('attention')
    film = film_inputs() if 'film' in ON else None
    act, r = b['act'], b['r']
    taken = act + ao
    out = {}
    with torch.no_grad():
        t = {name: PACK[name].views(flat) for name, flat in split(target).items()}
        tnet = prep(t['theta'], tg_scale)
        denoise = o.get('denoise')
        now, nxt = rows_of(b['s'], denoise), rows_of(b['s2'], denoise)
        q_next = (torch.softmax(heads(net, trunk(net, att, nxt, sc['depth'], film)), -1, dtype=FP) * atoms[branch_of]).sum(-1)
        best = pad16(q_next, -1e30).argmax(-1) + ao
        ht = trunk(tnet, t.get('attention'), nxt, keep.to(WD), film)
        pick = best.unsqueeze(-1).expand(-1, -1, K)
        pn = torch.softmax(heads(tnet, ht).gather(1, pick), -1, dtype=FP).transpose(0, 1)
        discount = isv[43].pow(b['n']) * (1 - b['done'])
        tz = r[None, :, None] + discount[None, :, None] * atoms[:, None, :]
        tz = torch.minimum(torch.maximum(tz, atoms[:, None, :1]), atoms[:, None, -1:]).view(NB, B * K)
        j = (torch.searchsorted(atoms, tz, right=True) - 1).clamp(0, K - 2)
        low, high = atoms.gather(1, j), atoms.gather(1, j + 1)
        f = ((tz - low) / (high - low)).view(NB, B, K)
        j = j.view(NB, B, K)
        m = torch.zeros(NB, B, K, device=dev).scatter_add_(2, j, pn * (1 - f)).scatter_add_(2, j + 1, pn * f)
        entropy = torch.xlogy(m, m).sum((0, 2)) / NB
        if 'iqn' in ON:
            zt = quantiles(t['iqn'], ht).gather(2, best.unsqueeze(1).expand(-1, NQ, -1)).float()
            zt = r[:, None, None] + discount[:, None, None] * zt
        if 'denoise' in ON:
            clean = b['s'][:, MK - NF:MK]
            noisy = (sc['noisy'] if 'noisy' in sc else clean + 0.1 * torch.randn(B, NF, device=dev)).to(WD)

    h = trunk(net, att, now, sc['depth'], film)
    lp = torch.log_softmax(heads(net, h), -1, dtype=FP)
    Q = (lp.exp() * atoms[branch_of]).sum(-1)
    lpa = lp.gather(1, taken.unsqueeze(-1).expand(-1, -1, K))
    ce = -(m * lpa.transpose(0, 1)).sum((0, 2)) / NB
    Qa = Q.gather(1, taken)
    c51 = avg(b['w'] * ce)
    parts, own = [c51], {}
    J = c51
    if 'cql' in ON:
        cql = avg(torch.logsumexp(pad16(Q, float('-inf')), -1) - Qa)
        parts.append(A_CQL * cql)
        J = J + A_CQL * cql
        out['cql'] = cql.detach()
    if 'iqn' in ON:
        share = LAM_IQN * isv[21].clone()        # into the trunk; the head takes its own loss whole
        z = quantiles(o['iqn'], torch.lerp(h.detach(), h, share.to(WD)))
        z = z.gather(2, taken.unsqueeze(1).expand(-1, NQ, -1)).float()
        d = zt[:, None] - z[:, :, None]          # [B, online, target, branch]
        huber = torch.where(d.abs() <= 1, 0.5 * d * d, d.abs() - 0.5)
        own['iqn'] = avg(((tauq[:, None, None] - (d.detach() < 0).float()).abs() * huber).mean(2).sum(1))
        J = J + share * own['iqn'].detach()
    hd = h.detach()
    if 'iql' in ON:
        q_taken = Qa.detach().mean(1)
        mean, square = popart
        with torch.no_grad():
            rate, wide = torch.where(applied[NAMES.index('iql_high')] > 1, 0.01, 1.0), q_taken.double()
            new = torch.stack([mean + rate * (avg(wide) - mean), square + rate * (avg(wide * wide) - square)])
            std = (new[1] - new[0] ** 2).clamp(min=0).sqrt().clamp(min=1e-4)
            old_std = isv[20].double()
            shrink, shift = (old_std / std).float(), ((mean - new[0]) / std).float()
            std, new_mean = std.float(), new[0].float()
            aim = (q_taken - new_mean) / std
        heads_iql = [o['iql_high'], o['iql_low']]
        w1 = torch.cat([p['w_1'] for p in heads_iql])
        hid = F.silu(F.linear(hd, w1, torch.cat([p['b_1'] for p in heads_iql]))).view(B, 2, 128)
        # The last layers as PopArt leaves them: their values, and the gradient by the rescaled ones.
        w2, b2 = torch.stack([p['w_2'] for p in heads_iql]), torch.cat([p['b_2'] for p in heads_iql])
        w2, b2 = w2 + (w2 * (shrink - 1)).detach(), b2 + (b2 * (shrink - 1) + shift).detach()
        val = (hid.float() * w2).sum(-1) + b2
        x = aim[:, None] - val
        each = ((expectiles - (x.detach() < 0).float()).abs() * x * x)
        own['iql_high'], own['iql_low'] = avg(each[:, 0]), avg(each[:, 1])
        V = val.detach() * std + new_mean
        out.update(popart=new, std=std, mean=new_mean, shrink=shrink, shift=shift, v_high=V[:, 0], q_taken=q_taken,
                   gap=avg(V[:, 0] - V[:, 1]))
    if 'selectivity' in ON:
        logit = (hd.float() * o['selectivity']['w_s']).sum(-1) + o['selectivity']['b_s']
        with torch.no_grad():
            counts = ((act[:, 0] < 2) & (act[:, 0] == Q[:, :4].argmax(1))).float()
            off = HER_W * (b['s'][:, GOAL] - b['achieved']).abs()
            paid = (r / R_SCALE + off > 2 ** -21 * off).float()
        bce = F.binary_cross_entropy_with_logits(logit, paid, weight=counts, reduction='none')
        own['selectivity'] = bce.sum() / counts.sum().clamp(min=1)
        out['select_rate'] = avg((torch.sigmoid(logit.detach()) >= THRESHOLD).float())
    if 'denoise' in ON:
        p = o['denoise']
        decoded = F.linear(F.silu(F.linear(noisy, p['w_e'], p['b_e'])), p['w_d'], p['b_d'])
        own['denoise'] = avg((decoded.float() - clean).square())
    total = sum(parts) + sum(own.values())
    grad = torch.autograd.grad(total, leaf)[0]
    with torch.no_grad():
        Q, Qa, lpa, ce = Q.detach(), Qa.detach(), lpa.detach(), ce.detach()
        kl = ce + entropy
        out.update(J=J.detach(), c51=c51.detach(), grad=grad, own={name: loss.detach() for name, loss in own.items()}, q=Q, ce=ce,
                   kl=kl, next_q=q_next, best=best, targets=m)
        out['mse'] = avg(((m * atoms[:, None, :]).sum(-1).t() - Qa).mean(1).square())
        mass.copy_(m.mean(1))
        if 'risk' in ON:
            pa, eta = lpa.exp(), isv[45]
            before = pa.cumsum(-1) - pa
            cvar = (torch.minimum((eta - before).clamp(min=0), pa) * atoms).sum(-1) / eta
            out['cvar_loss'] = -avg(cvar)
    return out


def adam_fused(ranges, grads, decays, bad, scale, t):
    """AdamW on ranges of the leaf by torch's fused kernel: clip and gate inside it."""
    p = leaf.detach()
    for (a, b), g, wd in zip(ranges, grads, decays):
        torch._fused_adamw_([p[a:b]], [g], [adam_m[a:b]], [adam_v[a:b]], [], [t], lr=C['lr'], beta1=0.9, beta2=0.999,
                            weight_decay=wd, eps=1e-8, amsgrad=False, maximize=False, grad_scale=scale, found_inf=bad)


def adam_plain(ranges, grads, decays, bad, scale, t):
    """The same in plain operations, for inductor to fuse."""
    p, good = leaf.detach(), bad == 0
    c1, c2 = 1 - torch.pow(0.9, t), 1 - torch.pow(0.999, t)
    for (a, b), g, wd in zip(ranges, grads, decays):
        x, m, v = p[a:b], adam_m[a:b], adam_v[a:b]
        g = g / scale
        mm, vv = torch.lerp(m, g, 0.1), torch.lerp(v, g * g, 0.001)
        new = x * (1 - C['lr'] * wd) - C['lr'] * (mm / c1) / ((vv / c2).sqrt() + 1e-8)
        m.copy_(torch.where(good, mm, m))
        v.copy_(torch.where(good, vv, v))
        x.copy_(torch.where(good, new, x))


def update(b, sc, out, ops):
    """Vaccine, norms, clips, gates; target EMA, AdamW and Adams; internal state vector; priorities; readback."""
    avg, dot, g = ops.avg, ops.dot, out['grad']
    p = leaf.detach()
    segments = split(g)
    theta = segments['theta']
    zero = torch.zeros((), device=dev)
    gg, cosine, multiple, compared = dot(theta, theta), zero, zero, None
    norm2 = gg
    if 'vaccine' in ON:
        gs, ss = dot(theta, snap), dot(snap, snap)
        compared = (ss > 0) & (gg > 0) & torch.isfinite(gg + gs)
        cosine = torch.where(compared, gs / gg.sqrt() / ss.sqrt(), zero).clamp(-1, 1)
        phi = isv[18]
        bound = phi.clamp(-0.99, 0.99)
        sine = lambda x: ((1 - x) * (1 + x)).sqrt()
        multiple = gg.sqrt() * (bound * sine(cosine) - cosine * sine(bound)) / (ss.sqrt() * sine(bound))
        multiple = torch.where(compared & (cosine < phi), V_WEIGHT * multiple, zero)
        norm2 = (gg + multiple * (2 * gs + multiple * ss)).clamp(min=0)
    norm = norm2.sqrt()
    clip = torch.full((), CLIP, device=dev)
    if 'adaptive_clip' in ON:
        clip = torch.where(applied[0] > 1, (2 * isv[22]).clamp(max=CLIP), clip)
    good = torch.isfinite(out['J'] + norm)
    bad = 1 - good.float()
    out.update(norm2=norm2, multiple=multiple, cosine=cosine, clip=clip)

    target.lerp_(p[:NTARGET], sc['tau'] * good)
    if 'iql' in ON:
        at = sum(LENGTHS[:NAMES.index('iql_high')])
        for name in ('iql_high', 'iql_low'):
            at += PACK[name].n
            last = p[at - PACK[name].pad - 129:at - PACK[name].pad]
            last.mul_(torch.where(good, out['shrink'], 1.0))
            last[128:].add_(torch.where(good, out['shift'], 0.0))
    vaccinated = torch.addcmul(theta, snap, multiple) if 'vaccine' in ON else theta
    if 'vaccine' in ON:
        snap.copy_(torch.where(good, theta, snap))
    applied[0].sub_(bad)
    adam = adam_plain if ops.compiled else adam_fused
    adam([(0, N_DECAY), (N_DECAY, NT)], [vaccinated[:N_DECAY], vaccinated[N_DECAY:]], [WDECAY, 0.0], bad,
         (norm / clip).clamp(min=1), applied[0])
    at = NT
    for i, name in enumerate(NAMES[1:], 1):
        s = segments[name]
        own = dot(s, s).sqrt()
        off = 1 - (good & torch.isfinite(own + out['own'].get(name, zero))).float()
        applied[i].sub_(off)
        adam([(at, at + LENGTHS[i])], [s], [0.0], off, (own / CLIP).clamp(min=1), applied[i])
        at += LENGTHS[i]

    # Priorities: of duplicates the highest; a relabelled row, one without a number and a gated step keep theirs.
    td = out['kl']
    if 'iql' in ON:
        advantage = (out['q_taken'] - out['v_high']) / (out['std'] + 1e-6)
        td = td * advantage.clamp(-math.log(4), math.log(4)).exp()
    td = td.to(torch.bfloat16).float()
    writes = good & torch.isfinite(td)
    if b['relabelled'] is not None:
        writes = writes & ~b['relabelled']
    new = torch.where(writes, (td.abs() + EPS).pow(ALPHA), -1.0)
    scratch.index_fill_(0, b['idx'], -1.0)
    scratch.scatter_reduce_(0, b['idx'], new, 'amax')
    won = scratch.index_select(0, b['idx'])
    P.index_copy_(0, b['idx'], torch.where(won >= 0, won, b['p']))
    maxp.copy_(torch.maximum(maxp, new.amax()))
    out['td'], out['new_p'] = td, torch.where(won >= 0, won, b['p'])

    # The internal state vector.
    rate = torch.where(applied[0] > 1, 0.01, 1.0)
    slow_rate = torch.where(applied[0] > 1, 0.001, 1.0)
    td_var, td_mean = ops.var_mean(out['kl'])
    r_var, r_mean = ops.var_mean(b['r'])
    old = isv.clone()
    e = lambda at, x, a=rate: torch.where(good & torch.isfinite(x), torch.lerp(old[at], x, a), old[at])
    v = {0: e(0, out['c51']), 1: e(1, out['c51'], slow_rate), 2: e(2, norm), 3: e(3, td_mean), 4: e(4, td_var), 7: e(7, r_mean),
         8: e(8, r_var), 22: e(22, norm), 42: sc['tau']}
    q_var = q_mean = zero
    if 'q_statistics' in ON:
        q_var, q_mean = ops.var_mean(out['q'])
        v.update({5: e(5, q_mean), 6: e(6, q_var)})
    if 'cql' in ON:
        v[14] = e(14, out['cql'])
    if 'vaccine' in ON:
        v[18] = torch.where(good & compared, torch.lerp(old[18], cosine, 0.01), old[18])
    if 'iql' in ON:
        v.update({10: torch.where(good, out['gap'], old[10]), 19: torch.where(good, out['mean'], old[19]),
                  20: torch.where(good, out['std'], old[20])})
        popart.copy_(torch.where(good, out['popart'], popart))
    if 'denoise' in ON:
        v[15] = e(15, out['own']['denoise'])
    if 'selectivity' in ON:
        v[16] = torch.where(good, out['select_rate'], old[16])
    if 'risk' in ON:
        v[45] = torch.where(good, (old[45] - 1e-3 * out['cvar_loss']).clamp(0.05, 1.0), old[45])
    if 'iqn' in ON:
        loss = out['own']['iqn'].double()
        first = applied[NAMES.index('iqn')] <= 1
        later = torch.stack([iqn_avg[0] + 0.01 * (loss - iqn_avg[0]), iqn_avg[1]])
        average = torch.where(first, torch.stack([loss, loss]), later)
        iqn_avg.copy_(torch.where(good, average, iqn_avg))
        v[21] = torch.where(good, (1 - iqn_avg[0] / iqn_avg[1]).clamp(0, 1).float(), old[21])
    at = (step_no % 1000).view(1)
    skipped.index_copy_(0, at, bad.view(1))
    v[13] = old[13] + bad
    v[12] = 1 / ((1 + skipped.sum()) * (1 + (v[0] - v[1]).abs() / (v[1] + 1e-6)))
    isv.copy_(torch.stack([v.get(i, old[i]) for i in range(64)]))

    q_low, q_high = torch.aminmax(out['q']) if 'q_statistics' in ON else (zero, zero)
    best = avg(pad16(out['q'], -1e30).amax(-1)) if 'q_statistics' in ON else zero
    flags = [b['w'].sum() + b['r'].sum(), out['ce'].sum(), out['targets'].sum(), sum(out['own'].values(), zero),
             norm, bad, td.sum()]
    rb.copy_(torch.cat([torch.stack([out['J'], out['mse'], norm2, q_mean, q_low, q_high, q_var, best, sens.mean()]),
                        torch.isfinite(torch.stack(flags)).logical_not().float()]))


def make_step(compiled):
    ops = Ops(compiled)

    def step():
        with torch.no_grad():
            sc = counters()
            b = sample(sc)
            rows_kept.copy_(b['s'][:rows_kept.shape[0]])
            scales = spectral()
        out = learn(b, sc, scales, ops)
        with torch.no_grad():
            update(b, sc, out, ops)

    return step


def move_spacing():
    """Every 50 steps: less room where there is more than a fair share of the targets' mass."""
    with torch.no_grad():
        x = spacing - 0.05 * (0.5 * (mass[:, 1:] + mass[:, :-1]) - 1 / (K - 1))
        spacing.copy_((x - x.mean(1, keepdim=True)).clamp(-3, 3))


def causal():
    """Every 100 steps: how much the values hang on each feature of the last bar."""
    with torch.no_grad():
        n = rows_kept.shape[0]
        shift = 1 + (torch.rand((), device=dev) * (n - 1)).long()
        other = (torch.arange(n, device=dev) + shift) % n
        fi = torch.arange(NF, device=dev)
        x = rows_kept.unsqueeze(0).repeat(NF + 1, 1, 1)
        x[fi + 1, :, MK - NF + fi] = rows_kept.index_select(0, other)[:, MK - NF:MK].t()
        o = {name: PACK[name].views(flat) for name, flat in split(leaf.detach()).items()}
        net = prep(o['theta'], None)
        h = trunk(net, o.get('attention'), rows_of(x.view(-1, SD), o.get('denoise')), keep.to(WD),
                  film_inputs() if 'film' in ON else None)
        q = pad16((torch.softmax(heads(net, h), -1, dtype=FP) * atoms[branch_of]).sum(-1), -1e30).amax(-1).view(NF + 1, n, NB)
        sens.copy_((q[1:] - q[:1]).abs().mean((1, 2)))


# ---------------------------------------------------------------- comparison with a dump
def check():
    d = DUMP
    theta_scales = d['spectral.scales']
    scales = [[theta_scales[i, 0].view(1, 1), theta_scales[i, 1:].view(2 * L, 1, 1)] for i in range(2)]
    b = dict(idx=d['batch.indices'].long(), p=d['priority.before'], w=d['batch.weights'], s=d['batch.states'][:, :SD],
             s2=d['batch.next_states'][:, :SD], act=d['batch.actions'].long(), r=d['batch.rewards'],
             done=d['batch.dones'].float(), n=d['batch.discount_powers'], achieved=d['batch.achieved'],
             relabelled=d['batch.relabelled'] != 0)
    sc = dict(tau=d['scalars.tau'], depth=d['scalars.depth_mask'])
    if 'denoise' in ON:
        sc['noisy'] = d['denoise.inputs'][:, :NF]
    applied.add_(1)
    step_no.add_(1)
    compiles = args.modes == 'compile'
    ops = Ops(compiles)

    def whole():
        found = learn(b, sc, scales, ops)
        gradient = found['grad'].clone()         # the fused Adam clips in place
        with torch.no_grad():
            update(b, sc, found, ops)
        return dict(found, grad=gradient)
    if compiles:
        torch._dynamo.config.trace_autograd_ops = True
        whole = torch.compile(whole, fullgraph=True)
    out = whole()
    results = []

    def compare(what, got, want, bound):
        got, want = got.double().reshape(-1), want.double().reshape(-1)
        off = float((got - want).norm() / want.norm().clamp(min=1e-30)) if float(want.norm()) else float(got.norm())
        results.append((what, off, bound, off <= bound))

    compare('importance weights', (b['p'].amin() / b['p']).pow(d['scalars.beta']), d['batch.weights'], 1e-5)
    compare('Q(s\', .), online', out['next_q'], d['next_q'], 1e-5)
    same = (out['best'] - ao == d['next_actions'].long()).double().mean()
    compare('a*: share that is the same', same, torch.ones(()), 0)
    compare('targets m', out['targets'].transpose(0, 1), d['targets'], 1e-5)
    compare('Q(s, .), online', out['q'], d['q'], 1e-5)
    compare('weighted cross-entropy (C51)', out['c51'], d['totals.weighted_ce'], 1e-5)
    compare('rows of it', b['w'] * out['ce'], d['row_losses'][:, 0], 1e-5)
    compare('KL of rows', out['kl'], d['row_losses'][:, 1], 1e-4)
    compare('mse_loss', out['mse'], d['readback.mse_loss'], 1e-5)
    if 'cql' in ON:
        compare('CQL', out['cql'], d['totals.cql'], 1e-5)
    compare('J', out['J'], d['readback.total_loss'], 1e-5)
    order = ['attention', 'iqn', 'iql_high', 'iql_low', 'selectivity', 'denoise']
    for name, loss in out['own'].items():
        compare(f'loss of {name}', loss, d['head_losses'][order.index(name)], 1e-5)
    if 'risk' in ON:
        compare('CVaR loss', out['cvar_loss'], d['cvar_loss'], 1e-5)
    worst = []
    for pack, g in zip(packs, split(out['grad']).values()):
        compare(f'gradient of {pack.name}', g, pack.load('gradient.'), 1e-5)
        pieces = g.split([math.prod(shape) for _, shape, _ in pack.entries()])
        for (_, _, sources), piece in zip(pack.entries(), pieces):
            if not sources:
                continue
            want = torch.cat([d['gradient.' + source].reshape(-1) for source in sources])
            scale = float(want.norm())
            worst.append((float((piece - want).norm()) / scale if scale else float(piece.norm()), sources[0]))
    off, name = max(worst)
    results.append((f'worst tensor of the gradient ({name})', off, 1e-4, off <= 1e-4))
    compare('grad_norm_sq, with the vaccine', out['norm2'], d['readback.grad_norm_sq'], 1e-5)
    compare('vaccine: multiple', out['multiple'], d['vaccine.multiple'], 1e-4)
    compare('vaccine: cosine', out['cosine'], d['vaccine.cosine'], 1e-4)
    before = torch.cat([pack.load('param.before.') for pack in packs])
    after = torch.cat([pack.load('param.after.') for pack in packs])
    compare('first moments', adam_m, torch.cat([pack.load('first_moment.after.') for pack in packs]), 1e-5)
    compare('second moments', adam_v, torch.cat([pack.load('second_moment.after.') for pack in packs]), 1e-5)
    for name, got, was, want in zip(NAMES, leaf.detach().split(LENGTHS), before.split(LENGTHS), after.split(LENGTHS)):
        compare(f'step of {name}\'s parameters', got - was, want - was, 1e-2)  # m / sqrt(v) of what is almost 0 is noise
    compare('target network', target, torch.cat([pack.load('target.after.') for pack in packs[:len(target_lengths)]]), 1e-6)
    number = torch.isfinite(d['td_errors'].float())
    keeps = number == (out['new_p'] != b['p']) if len(set(b['idx'].tolist())) == B else number == number
    compare('rows that keep their priority: share that is the same', keeps.double().mean(), torch.ones(()), 0)
    compare('TD errors, bf16', out['td'][number], d['td_errors'].float()[number], 2 ** -8)
    compare('priorities', out['new_p'], d['priority.after'], 2 ** -8)
    here = [i for i in range(46) if i not in (11, 17)]  # without the sensitivity and pruning's share
    compare('internal state vector', isv[here], d['isv.after'][here], 1e-5)
    if 'iql' in ON:
        compare('PopArt', popart, torch.stack([d['popart.after.mean'], d['popart.after.square']]), 1e-5)
    if int(step_no) % 50 == 0:
        move_spacing()
        compare('spacing of the atoms', spacing, d['spacing.after'], 1e-5)
    print(f'step {int(step_no)}, {"all" if "iqn" in ON else "default"} learners, batch {B}: relative L2 distance to the dump')
    width = max(len(what) for what, *_ in results)
    for what, off, bound, fine in results:
        print(f'{what:{width}}  {off:9.2e}  at most {bound:.0e}  {"" if fine else "FAILED"}')
    failed = [what for what, _, _, fine in results if not fine]
    print(f'{len(results) - len(failed)} passed, {len(failed)} failed')
    return 1 if failed else 0


# ---------------------------------------------------------------- timing
def sync():
    if CUDA:
        torch.cuda.synchronize()


def capture(fn):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(stream)
    sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    sync()
    return graph.replay


compiled_step = []


def compile_step():
    """The step, backward included, as one graph of the compiler's where it can."""
    if compiled_step:
        return compiled_step[0]
    import torch._dynamo as dynamo
    dynamo.config.trace_autograd_ops = True
    try:
        step = torch.compile(make_step(True), fullgraph=True)
        step()
        found = step, 'one graph'
    except Exception as error:
        print(f'# one graph failed, breaks are allowed: {type(error).__name__}: {str(error)[:300]!r}', flush=True)
        dynamo.reset()
        step = torch.compile(make_step(True))
        step()
        found = step, 'with graph breaks'
    sync()
    compiled_step.append(found)
    return found


def prepare(mode):
    """What is called in each step, what is due every 50 and every 100, and how it was made."""
    began = time.time()
    step, how = (make_step(False), '') if mode in ('eager', 'graph') else compile_step()
    due = [move_spacing if 'spacing' in ON else None, causal if 'causal' in ON else None]

    def whole():
        step()
        rb_host.copy_(rb, non_blocking=True)
    for _ in range(3):
        whole()
        for fn in due:
            if fn:
                fn()
    sync()
    if mode.endswith('graph'):
        return capture(whole), [fn and capture(fn) for fn in due], how + f', prepared in {time.time() - began:.0f} s'
    return whole, due, ', '.join(filter(None, [how, f'prepared in {time.time() - began:.0f} s']))


def timed(fn, n):
    sync()
    began, processors = time.perf_counter(), time.process_time()
    for i in range(n):
        fn(i)
    sync()
    return (time.perf_counter() - began) * 1e6 / n, (time.process_time() - processors) * 1e6 / n


def measure(mode):
    step, due, how = prepare(mode)

    def one(i):
        step()
        if i % 50 == 25 and due[0]:
            due[0]()
        if i % 100 == 50 and due[1]:
            due[1]()
    for i in range(10):
        one(i)
    times, processors = (sorted(x) for x in zip(*(timed(one, args.steps) for _ in range(args.rounds))))
    middle, loss, flags = len(times) // 2, float(rb_host[0]), float(rb_host[9:].sum())
    found = dict(us=times[middle], min_us=times[0], max_us=times[-1], processor_us=processors[middle], how=how, loss=loss,
                 flags=flags)
    print(f'{mode:14} {times[middle]:10.1f} {times[0]:10.1f} {times[-1]:10.1f} {processors[middle]:10.1f}   {how}; J {loss:.4f}, '
          f'flags {flags:.0f}', flush=True)
    return found


def main():
    if DUMP:
        return check()
    modes = (args.modes or ('eager,graph,compile,compile_graph' if CUDA else 'eager,compile')).split(',')
    name = torch.cuda.get_device_name() if CUDA else f'the CPU, {torch.get_num_threads()} threads'
    precision = 'f32' if WD == FP else 'bf16'
    print(f'PyTorch {torch.__version__} on {name}: {args.preset}, {args.learners} learners, batch {B}, {precision}, '
          f'{N} parameters; {args.rounds} rounds of {args.steps} steps, load {os.getloadavg()[0]:.1f}')
    print(f'{"us a step":14} {"median":>10} {"least":>10} {"most":>10} {"processor":>10}')
    found = {}
    for mode in modes:
        try:
            found[mode] = measure(mode)
        except Exception as error:
            print(f'{mode:14} failed: {type(error).__name__}: {str(error)[:500]!r}', flush=True)
            traceback.print_exc()
            if CUDA:  # A failed capture leaves the generator capturing.
                with contextlib.suppress(Exception):
                    fresh = torch.Generator('cuda').manual_seed(1)
                    torch.cuda.default_generators[0].graphsafe_set_state(fresh.graphsafe_get_state())
    best = min(found, key=lambda mode: found[mode]['us'], default=None)
    if args.json:
        with open(args.json, 'w') as file:
            json.dump(dict(torch=torch.__version__, device=name, preset=args.preset, learners=args.learners, batch=B,
                           precision=precision, threads=torch.get_num_threads(), best=best,
                           step_us=best and found[best]['us'], modes=found), file, indent=1)
    return 0 if best else 1


raise SystemExit(main())
