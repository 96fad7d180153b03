"""The tables of scripts/bench-cpu and scripts/bench-gpu: `table.py cpu|gpu FOLDER [JSON]` reads the figures in FOLDER."""
import json
import pathlib
import statistics
import sys

WIDTHS = (62, 10, 10, 6, 20)


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def shown(rows, head):
    for row in [head, *rows]:
        print('  '.join(str(cell).ljust(width) if i in (0, 4) else str(cell).rjust(width)
                        for i, (cell, width) in enumerate(zip(row, WIDTHS))).rstrip())


def cpu(folder):
    rows, found = [], []
    for learners in ('defaults', 'all'):
        of = lambda what: [read(path) for path in sorted(folder.glob(f'{learners}.*.{what}'))]
        ours = statistics.median(x['step_us'] for x in of('ours'))
        seconds = lambda what: [sum(map(float, path.read_text().split())) for path in sorted(folder.glob(f'{learners}.*.{what}'))]
        processor = statistics.median((many - few) / 80 * 1e6 for many, few in zip(seconds('many'), seconds('few')))
        peers = {mode: tuple(statistics.median(x['modes'][mode][key] for x in of('peer') if mode in x['modes'])
                             for key in ('us', 'processor_us')) for mode in {mode for x in of('peer') for mode in x['modes']}}
        load = ' | '.join(path.read_text().split(',')[0] for path in sorted(folder.glob(f'{learners}.*.load')))
        best = min(peers, key=peers.get)
        for mode, (us, peer_processor) in sorted(peers.items()):
            mark = 'target: 3 or more' if mode == best else ''
            rows.append((f'{learners}, PyTorch {mode}: a step, us', f'{ours:.0f}', f'{us:.0f}', f'{us / ours:.2f}', mark))
            rows.append((f'{learners}, PyTorch {mode}: processor time of a step, us', f'{processor:.0f}', f'{peer_processor:.0f}',
                         f'{peer_processor / processor:.2f}', ''))
            found.append(dict(learners=learners, mode=mode, ours_us=ours, peer_us=us, ours_processor_us=processor,
                              peer_processor_us=peer_processor, load=load))
        rows.append((f'  load of one minute before each turn: {load}', '', '', '', ''))
    shown(rows, ('what', 'ours', 'peer', 'ratio', 'of the fastest peer'))
    return found


def gpu(folder):
    rows, found = [], []
    targets = {('core', 8192): 200, ('all', 8192): 700, ('all', 1024): 200}
    for learners in ('core', 'defaults', 'all'):
        for batch in (8192, 1024):
            ours, peer = read(folder / f'step.{learners}.{batch}.ours'), read(folder / f'step.{learners}.{batch}.peer')
            a, b = ours and ours['step_us'], peer and peer['step_us']
            target = targets.get((learners, batch))
            rows.append((f'step, us: {learners}, batch {batch}' + (f', {peer["best"]}' if peer else ''), *numbers(a, b),
                         f'{target} us' if target else ''))
            found.append(dict(what='step', learners=learners, batch=batch, ours=a, peer=b, target=target))
    of_name = {'environment': '', 'environment.many': ', 262,144', 'environment.network': ', network'}
    for name, which in of_name.items():
        ours, peer = read(folder / f'{name}.ours'), read(folder / f'{name}.peer')
        ours = ours[0] if isinstance(ours, list) else ours
        a, b = ours and ours['steps_a_second'] / 1e6, peer and peer['steps_a_second'] / 1e6
        target = '50 million a second' if name == 'environment.network' else '500 million a second'
        missing = '' if peer else ', no JAX here'
        rows.append((f'environments, million steps a second{which}{missing}', *numbers(a, b, True), target))
        found.append(dict(what=name, ours=a, peer=b, target=target))
    kernels = [row for row in (read(folder / 'kernels.json') or {}).get('kernels', []) if row['peer']]
    for row in kernels:
        a, b = row['graph_us'], row['peer']['graph_us']
        rows.append((f'kernel, us: {row["key"]}'[:WIDTHS[0]], *numbers(a, b), '0.98 of its speed'))
        found.append(dict(what=row['key'], ours=a, peer=b, target=0.98))
    if not kernels:
        rows.append(('kernels beside CUDA C++ (no figures)', '-', '-', '-', '0.98 of its speed'))
    shown(rows, ('what', 'ours', 'peer', 'ratio', 'target'))
    return found


def numbers(ours, peer, more_is_better=False):
    """Both as text, and how many times as fast ours is."""
    show = lambda x: '-' if x is None else f'{x:.1f}'
    if ours is None or peer is None:
        return show(ours), show(peer), '-'
    return show(ours), show(peer), f'{(ours / peer if more_is_better else peer / ours):.2f}'


def main():
    kind, folder, *out = sys.argv[1:]
    found = {'cpu': cpu, 'gpu': gpu}[kind](pathlib.Path(folder))
    if out and out[0]:
        pathlib.Path(out[0]).write_text(json.dumps(found, indent=1))


main()
