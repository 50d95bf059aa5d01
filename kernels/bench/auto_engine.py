#!/usr/bin/python3
"""How far engine AUTO is from the best engine: measures, and judges.

  kernels/bench/auto_engine.py --program=build/release/bin/spaid_engine_times \\
      --spaidctl=build/release/bin/spaidctl [--device=gpu] [--rhs=1] [--seconds=2] [--limit=10] --out=result.json FOLDER
  kernels/bench/auto_engine.py result.json

Measures on the gallery and on the square real Matrix Market files of FOLDER, two threads (pin them with
taskset), or on the first GPU and all cores, there on a larger gallery, which takes this program minutes to
convert: every engine that AUTO may choose and AUTO itself, set-up and solve to 1e-7 of --rhs right-hand sides,
the fastest of alternating runs for --seconds a matrix. AUTO climbs its ladder, with nothing learned. A solve may take
--limit seconds.
Prints a Markdown table of each set: the gallery and every other real matrix in the order of their names,
on which the rule's numbers were fitted, and those between them, on which it is judged. AUTO is good where
its total is within 20 % of the best; matrices on which nothing converges do not count.
"""
import argparse
import array
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

WITHIN = 1.2
GALLERY = ['poisson:12', 'poisson:24', 'poisson:40', 'p27:10', 'p27:20', 'p27:32', 'convdiff:12', 'convdiff:24',
           'convdiff:40', 'varcoef:24', 'neumann:24', 'aniso:40', 'aniso:100', 'aniso:200', 'elasticity:5', 'elasticity:8',
           'elasticity:12',
           'circuit:1000', 'circuit:5000', 'circuit:20000', 'helmholtz:30', 'helmholtz:60', 'stokes:15', 'stokes:40',
           'random:1000', 'random:5000', 'graph:2000', 'graph:20000', 'badscale:30', 'badscale:100', 'badscale:200']
GPU_GALLERY = ['poisson:64', 'poisson:100', 'poisson:128', 'p27:50', 'p27:100', 'convdiff:50', 'convdiff:100', 'aniso:400',
               'aniso:1000', 'aniso:1640', 'elasticity:20', 'elasticity:40', 'elasticity:60', 'circuit:50000',
               'circuit:300000', 'random:100000', 'random:400000', 'graph:100000', 'graph:1000000', 'badscale:316',
               'badscale:1000', 'helmholtz:316', 'stokes:200', 'helmholtz:1000', 'stokes:500']


def read_columns(path):
    """Columns of (row, value) of a square real coordinate file; None for any other."""
    with (gzip.open if path.endswith('.gz') else open)(path, 'rt') as file:
        kind = file.readline().lower().split()
        if kind[2] != 'coordinate' or kind[3] not in ('real', 'integer') or kind[4] not in ('general', 'symmetric'):
            return None
        line = file.readline()
        while line.startswith('%') or not line.strip():
            line = file.readline()
        rows, n, _ = map(int, line.split())
        if rows != n:
            return None
        columns = [[] for _ in range(n)]
        for line in file:
            if not line.strip():
                continue
            i, j, value = line.split()
            i, j, value = int(i) - 1, int(j) - 1, float(value)
            columns[j].append((i, value))
            if kind[4] == 'symmetric' and i != j:
                columns[i].append((j, value))
    return columns


def write_binary(columns, path):
    pointers, rows, values = array.array('i', [0]), array.array('i'), array.array('d')
    for column in columns:
        column.sort()
        for i, value in column:
            if len(rows) > pointers[-1] and rows[-1] == i:
                values[-1] += value
            else:
                rows.append(i)
                values.append(value)
        pointers.append(len(rows))
    with open(path, 'wb') as file:
        for data in (array.array('q', [len(columns), len(rows)]), pointers, rows, values):
            data.tofile(file)


def measure(args):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        binary, market = os.path.join(folder, 'a.bin'), os.path.join(folder, 'a.mtx')
        real = [(os.path.basename(path).split('.')[0], 'real', path)
                for path in sorted(glob.glob(os.path.join(args.folder, '*.mtx*'))) if '_rhs' not in path]
        gallery = GPU_GALLERY if args.device == 'gpu' else GALLERY
        for name, of, path in [(g, 'gallery', market) for g in gallery] + real:
            if of == 'gallery':
                family, size = name.split(':')
                subprocess.run([args.spaidctl, 'gallery', family, f'--size={size}', f'--out={market}'], check=True,
                               stdout=subprocess.DEVNULL)
            columns = read_columns(path)
            if columns is None:
                continue
            write_binary(columns, binary)
            done = subprocess.run([args.program, binary, f'device={args.device}', f'rhs={args.rhs}',
                                   f'threads={0 if args.device == "gpu" else 2}', f'seconds={args.seconds}',
                                   f'limit_s={args.limit}'], capture_output=True, text=True, check=True)
            results.append({**json.loads(done.stdout), 'matrix': name, 'set': of})
            print(name, file=sys.stderr, flush=True)
    with open(args.out, 'w') as out:
        out.write('[\n' + ',\n'.join(json.dumps(r) for r in results) + '\n]\n')
    return results


def halves(results):
    """Of one right-hand side: the gallery; the real matrices that the rule was fitted on; those that it is judged on."""
    one = [r for r in results if r.get('rhs', 1) == 1]
    real = sorted((r for r in one if r['set'] == 'real'), key=lambda r: r['matrix'])
    return [r for r in one if r['set'] == 'gallery'], real[0::2], real[1::2]


def several(results):
    """Those of more right-hand sides."""
    return [r for r in results if r.get('rhs', 1) > 1]


def converged(result):
    """Total milliseconds of the engines that converged, AUTO apart."""
    return {e['engine']: e['total_ms'] for e in result['engines']
            if e['outcome'] == 'converged' and e['engine'] != 'auto'}


def auto_of(result):
    return next(e for e in result['engines'] if e['engine'] == 'auto')


def auto_total(result):
    """Milliseconds; None where AUTO does not converge."""
    auto = auto_of(result)
    return auto['total_ms'] if auto['outcome'] == 'converged' else None


def ratio(result):
    """AUTO's total over the best one; infinite where AUTO alone fails, None where nothing converges."""
    totals, total = converged(result), auto_total(result)
    if not totals:
        return None
    return total / min(totals.values()) if total is not None else float('inf')


def judge(results):
    """How many are good, of how many that count."""
    ratios = [r for r in (ratio(result) for result in results) if r is not None]
    return sum(r <= WITHIN for r in ratios), len(ratios)


def cell(result, engine):
    e = next((e for e in result['engines'] if e['engine'] == engine), None)
    if e is None:
        return ''
    return f'{e["total_ms"]:.3g}' if e['outcome'] == 'converged' else '–'


def print_tables(results):
    shown = ['jacobi', 'static-spai', 'fsai', 'fsai p2', 'afsai', 'afsai 10', 'afsai 3x3', 'amg']
    if any(r.get('device') == 'gpu' for r in results):
        shown += ['afsai gain 1e-3', 'afsai gain 1e-2']
    titles = ('gallery', 'fitted on', 'judged on', 'several right-hand sides')
    for title, part in zip(titles, (*halves(results), several(results))):
        if not part:
            continue
        good, counted = judge(part)
        print(f'{title}: within {WITHIN:g} of the best on {good} of {counted} ({100 * good / counted:.0f} %)\n')
        print('| matrix | AUTO | chose | best | AUTO / best | ' + ' | '.join(shown) + ' |\n|' + ' --- |' * (5 + len(shown)))
        for r in part:
            totals, total, of_best = converged(r), auto_total(r), ratio(r)
            print(f'| {r["matrix"]} | {"–" if total is None else f"{total:.3g}"} | {auto_of(r)["chosen"]} | '
                  f'{min(totals, key=totals.get) if totals else "none converges"} | '
                  f'{"" if of_best is None else f"{of_best:.2f}"} | ' + ' | '.join(cell(r, e) for e in shown) + ' |')
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--program', default='build/release/bin/spaid_engine_times')
    parser.add_argument('--spaidctl', default='build/release/bin/spaidctl')
    parser.add_argument('--device', default='cpu', choices=('cpu', 'gpu'))
    parser.add_argument('--rhs', default='1')
    parser.add_argument('--seconds', default='2')
    parser.add_argument('--limit', default='10')
    parser.add_argument('--out', default='auto_engine.json')
    parser.add_argument('folder', help='or a result.json of an earlier run, to print its tables')
    args = parser.parse_args()
    if args.folder.endswith('.json'):
        with open(args.folder) as file:
            print_tables(json.load(file))
    else:
        print_tables(measure(args))


if __name__ == '__main__':
    main()
