#!/usr/bin/python3
"""What engine AUTO does with what people bring, beside every engine by hand and other codes: measures, and judges.

  kernels/bench/auto_ladder.py --spaid=build/release/bin/spaid --cache=FOLDER --out=result.csv
      [--matrices=$SPAID_MATRICES] [--unstructured=FILE] [--sets=real,scrambled,gallery,mesh] [--only=TEXT,...]
      [--columns=auto,scipy] [--limit=120] [--minutes=M] [--auto-inverse-unknowns=N]
  kernels/bench/auto_ladder.py --prepare --spaid=... --cache=FOLDER ...
  kernels/bench/auto_ladder.py --judge result.csv [without_inverse.csv]

Needs python3-scipy; python3-petsc4py for the columns of PETSC. Starts a daemon on the CPU, with all cores. Cases: real
matrices; each of them scrambled, its rows and columns permuted at random and scaled by powers of two from 2^-40 to
2^40 (both alike where it is symmetric); a gallery; finite elements on unstructured meshes, where --unstructured names
the program that makes them (unstructured.py KIND POINTS OUT.mtx.gz --order=random|rcm). What is made goes to --cache,
once; --prepare makes it and ends. b = A x of a random x, rtol 1e-8, at most 10,000 iterations, --limit seconds a run.

A row of the CSV is one run, written as it ends; a case and column that stands there already is not run again, so an
interrupted run is gone on with by the same command. Quick solves of the daemon run thrice, in turn, and the quickest
counts. setup_ms and solve_ms are the daemon's, of all rungs; wall_ms is the whole request without queue and transfers,
and so has AUTO's choosing in it. `auto` has --learned=off, `auto-learned` is the second of two equal requests.
`residual` is recomputed by SciPy, and it alone says what is solved; `row_residual` is the same in rows as they were
before they were scrambled: 1e-8 of a scrambled b is ruled by a few rows, and met by an x that is none. Peers run once, by one thread, each in a process
of its own (kernels/bench/peers/solve_peers.py says how).
"""
import argparse
import csv
import glob
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import types
import zlib

import numpy
import scipy.io
import scipy.sparse

from auto_engine import GALLERY
from auto_ladder_judge import BY_HAND, RTOL, SETS, judge, rows_of, solved, total
from daemon_figures import daemon
from peers import solve_peers

MAX_ITERATIONS = 10000
SPLU_UNKNOWNS = 30000
RUNS, QUICK_MS = 3, 500
LEARNED = 'auto-learned'  # the same request for the second time
OWN = {'auto': ['--engine=auto', '--learned=off'], LEARNED: ['--engine=auto'], **BY_HAND}
POSITIVE = {'fsai', 'afsai'}  # for symmetric matrices with a positive diagonal
MESHES = [(kind, points) for kind in ('diffusion', 'jumps', 'convection') for points in (30000, 200000)] + [
    ('elasticity', 30000), ('elasticity', 60000)]
FIELDS = ['case', 'n', 'nnz', 'kind', 'column', 'run', 'outcome', 'engine', 'method', 'rungs', 'iterations', 'setup_ms',
          'solve_ms', 'wall_ms', 'residual', 'row_residual', 'load', 'detail']


def open_text(path):
    return gzip.open(path, 'rt') if path.endswith('.gz') else open(path, encoding='ascii')


def stored(path):
    """Entries in the file of a square real matrix; 0: it is none."""
    with open_text(path) as file:
        kind = file.readline().lower().split()
        line = file.readline()
        while line.startswith('%') or not line.strip():
            line = file.readline()
    if kind[2] != 'coordinate' or kind[3] not in ('real', 'integer'):
        return 0
    rows, columns, entries = map(int, line.split())
    return entries if rows == columns else 0


def read(path):
    with open_text(path) as file:
        return scipy.sparse.csr_matrix(scipy.io.mmread(file))


def made(path, write):
    """`path`, which write(file) makes unless it is there."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = os.path.join(os.path.dirname(path), f'part{os.getpid()}.{os.path.basename(path)}')
        write(part)
        os.replace(part, path)
        print('made', path, file=sys.stderr, flush=True)
    return path


def powers(rng, n):
    return numpy.ldexp(1.0, rng.integers(-40, 41, n))


def row_powers(name, n):
    """The factors of the rows of case `name`: ones where it is not scrambled."""
    return powers(numpy.random.default_rng(zlib.crc32(name.encode())), n) if name.startswith('scrambled/') else (
        numpy.ones(n))


def write_scrambled(name, source, path):
    a = read(source)
    n, symmetric = a.shape[0], (a != a.T).nnz == 0
    rng = numpy.random.default_rng(zlib.crc32(name.encode()))
    left = scipy.sparse.diags(powers(rng, n))
    rows = rng.permutation(n)
    columns, right = (rows, left) if symmetric else (rng.permutation(n), scipy.sparse.diags(powers(rng, n)))
    scipy.io.mmwrite(path, left @ a[rows][:, columns] @ right, precision=17,
                     symmetry='symmetric' if symmetric else 'general')


def cases_of(args):
    """[(name, path)], those with few entries first; makes the files that are not there."""
    found, sets = {}, args.sets.split(',')
    name_of = lambda path: os.path.basename(path).split('.mtx')[0]

    def wanted(name):
        return not args.only or any(text in name for text in args.only.split(','))

    real = [path for path in sorted(glob.glob(os.path.join(args.matrices or '/nowhere', '*.mtx*')))
            if '_rhs' not in path and stored(path)]
    for path in real if 'real' in sets else []:
        found[f'real/{name_of(path)}'] = path
    for path in real if 'scrambled' in sets else []:
        name = f'scrambled/{name_of(path)}'
        if wanted(name):
            found[name] = made(os.path.join(args.cache, name + '.mtx'), lambda part: write_scrambled(name, path, part))
    for member in GALLERY[1::2] if 'gallery' in sets else []:
        family, size = member.split(':')
        if wanted(f'gallery/{member}'):
            found[f'gallery/{member}'] = made(
                os.path.join(args.cache, 'gallery', f'{family}-{size}.mtx'),
                lambda part: subprocess.run([args.spaidctl, 'gallery', family, f'--size={size}', f'--out={part}'],
                                            check=True, stdout=subprocess.DEVNULL))
    for kind, points in MESHES if 'mesh' in sets and args.unstructured else []:
        for order in ('random', 'rcm'):
            name = f'mesh/{kind}-{points}-{order}'
            if wanted(name):
                found[name] = made(os.path.join(args.cache, name + '.mtx.gz'), lambda part: subprocess.run(
                    [sys.executable, args.unstructured, kind, str(points), part, f'--order={order}'], check=True,
                    stdout=subprocess.DEVNULL))
    return sorted(((name, path) for name, path in found.items() if wanted(name)), key=lambda c: (stored(c[1]), c[0]))


def fits(column, facts):
    if column in POSITIVE:
        return facts['kind'] == 'positive'
    return column != 'scipy-splu' or int(facts['n']) <= SPLU_UNKNOWNS


class Bench:
    """One daemon, and one case at a time in it, as files in `folder`."""

    def __init__(self, args, address, folder):
        self.args, self.address = args, address
        self.at = lambda name: os.path.join(folder, name)

    def ask(self, *command):
        done = subprocess.run([self.args.spaidctl, f'--address={self.address}', '--json', *command],
                              capture_output=True, text=True, check=False, timeout=self.args.limit + 60)
        if done.returncode == 2 or not done.stdout:
            sys.exit(f'spaidctl {command}: {done.stderr}')
        answer = json.loads(done.stdout)
        if answer.get('error', {}).get('code') == 'UNAVAILABLE':
            sys.exit(f'the daemon is gone: {answer["error"]["message"]}')
        return answer

    def load(self, name, path):
        self.a = read(path)
        x = numpy.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, self.a.shape[0])
        self.b, self.rows = self.a @ x, row_powers(name, self.a.shape[0])
        scipy.io.mmwrite(self.at('b.mtx'), self.b.reshape(-1, 1), precision=17)
        uploaded = self.ask('upload', path, '--sum-duplicates')
        self.handle, seen = uploaded['name'], uploaded['diagnosis']
        positive = not any(seen[f'{which}_diagonal']['count'] for which in ('missing', 'zero', 'negative'))
        self.peers_ready = self.learned = False
        kind = 'general' if not seen['numerically_symmetric'] else 'positive' if positive else 'symmetric'
        self.facts = {'case': name, 'n': self.a.shape[0], 'nnz': self.a.nnz, 'kind': kind}

    def unload(self):
        self.ask('matrices', self.handle, '--delete')

    def residuals(self, x):
        with numpy.errstate(all='ignore'):
            r, norm = self.b - self.a @ x, numpy.linalg.norm
            return {'residual': float(norm(r) / norm(self.b)),
                    'row_residual': float(norm(r / self.rows) / norm(self.b / self.rows))}

    def own(self, column):
        """Runs an engine of the daemon, which has nothing built before."""
        if column == LEARNED and not self.learned:
            self.learned = True
            self.own(column)
        for m in self.ask('preconditioners')['preconditioners']:
            self.ask('preconditioners', m['name'], '--delete')
        solution = self.at('x.mtx')
        try:
            answer = self.ask('solve', self.handle, f'--rhs={self.at("b.mtx")}', f'--out={solution}', f'--rtol={RTOL}',
                              f'--max-iterations={MAX_ITERATIONS}', f'--max-run={self.args.limit}', *OWN[column])
        except subprocess.TimeoutExpired:
            return {'outcome': 'NO_ANSWER'}
        if 'error' in answer:
            return {'outcome': answer['error']['reason'] or answer['error']['code'],
                    'detail': answer['error']['message'][:200]}
        rungs = answer['rungs']
        # solve_ms leaves out what later rungs set up.
        setup = sum(rung['setup_ms'] for rung in rungs) or answer['setup_ms']
        return {'outcome': answer['outcome'], 'engine': answer['engine'], 'method': answer['method'],
                'rungs': ' > '.join(rung['what'] for rung in rungs), 'iterations': answer['iterations'],
                'setup_ms': setup, 'solve_ms': answer['solve_ms'],
                'wall_ms': answer['total_ms'] - sum(answer[f'{part}_ms'] for part in ('queue', 'upload', 'download')),
                **self.residuals(scipy.io.mmread(solution).ravel()), 'detail': answer['detail'][:200]}

    def peer(self, column):
        if not self.peers_ready:
            scipy.sparse.save_npz(self.at('a.npz'), self.a, compressed=False)
            numpy.save(self.at('b.npy'), self.b)
            self.peers_ready = True
        command = [sys.executable, solve_peers.__file__, column, *map(self.at, ('a.npz', 'b.npy', 'x.npy'))]
        start = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.args.limit, check=False,
                                  env={**os.environ, 'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'})
        except subprocess.TimeoutExpired:
            return {'outcome': 'TIME_LIMIT'}
        if done.returncode != 0:
            return {'outcome': 'DIED', 'detail': ' '.join(done.stderr.split())[-200:]}
        row = {'wall_ms': 1e3 * (time.monotonic() - start), **json.loads(done.stdout.splitlines()[-1])}
        if row['outcome'] != 'REFUSED':
            row.update(self.residuals(numpy.load(self.at('x.npy'))))
        return row


def measure(args, cases):
    columns = [column for column in [*OWN, *solve_peers.available()] if not args.columns or any(
        column == chosen or column.startswith(chosen + '-') for chosen in args.columns.split(','))]
    end = time.monotonic() + 60 * args.minutes
    known = {(row['case'], row['column'], int(row['run'])): row for row in rows_of(args.out)}
    binary = types.SimpleNamespace(bin=os.path.dirname(os.path.abspath(args.spaid)))
    flags = ['--devices=cpu', '--plan-cache-bytes=0']
    if args.auto_inverse_unknowns is not None:
        flags.append(f'--auto-inverse-unknowns={args.auto_inverse_unknowns}')

    def missing(name, column, run):
        if run == 0:
            return (name, column, 0) not in known
        first = known.get((name, column, 0))
        return (column in OWN and first is not None and solved(first) and total(first) < QUICK_MS and
                (name, column, run) not in known)

    with tempfile.TemporaryDirectory() as folder, open(args.out, 'a', newline='', encoding='utf-8') as out, daemon(
            binary, *flags, program=os.path.basename(args.spaid)) as (address, _, _):
        writer, bench = csv.DictWriter(out, FIELDS), Bench(args, address, folder)
        if not known:
            writer.writeheader()
        for name, path in cases:
            facts = next((row for key, row in known.items() if key[0] == name), None)
            if facts and not any(fits(column, facts) and missing(name, column, run)
                                 for column in columns for run in range(RUNS)):
                continue
            bench.load(name, path)
            for run, column in [(run, column) for run in range(RUNS) for column in columns]:
                if not fits(column, bench.facts) or not missing(name, column, run):
                    continue
                if time.monotonic() > end:
                    sys.exit(f'{args.minutes} minutes are over, before {name}, {column}; the same command goes on')
                row = {**bench.facts, 'column': column, 'run': run, 'load': f'{os.getloadavg()[0]:.1f}',
                       **(bench.own(column) if column in OWN else bench.peer(column))}
                known[name, column, run] = row
                writer.writerow({key: f'{value:.6g}' if isinstance(value, float) else value
                                 for key, value in row.items()})
                out.flush()
            bench.unload()
            print(name, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--spaid', default='build/release/bin/spaid', help='the daemon; spaidctl beside it')
    parser.add_argument('--matrices', default=os.environ.get('SPAID_MATRICES'))
    parser.add_argument('--unstructured', help='the program that makes meshes')
    parser.add_argument('--cache', default='auto_ladder', help='folder of what is made')
    parser.add_argument('--out', default='auto_ladder.csv')
    parser.add_argument('--sets', default=','.join(SETS))
    parser.add_argument('--only', help='cases whose name has one of these texts')
    parser.add_argument('--columns', help='these, or all that begin so: auto,scipy,petsc')
    parser.add_argument('--limit', type=float, default=120, help='seconds a run')
    parser.add_argument('--minutes', type=float, default=math.inf, help='no run begins later')
    parser.add_argument('--auto-inverse-unknowns', type=int, help='of the daemon; 0: no last rung')
    parser.add_argument('--prepare', action='store_true')
    parser.add_argument('--judge', nargs='+', metavar='CSV')
    args = parser.parse_args()
    if args.judge:
        judge(args.judge[0], args.judge[1] if len(args.judge) > 1 else None)
        return
    args.spaidctl = os.path.join(os.path.dirname(os.path.abspath(args.spaid)), 'spaidctl')
    cases = cases_of(args)
    if not args.prepare:
        measure(args, cases)


if __name__ == '__main__':
    main()
