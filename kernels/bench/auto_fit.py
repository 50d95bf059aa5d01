#!/usr/bin/python3
"""Fits the numbers by which AUTO chooses an engine (kernels/engine/auto_tuning.h), and judges them.

  kernels/bench/auto_fit.py cpu results/auto_engine.json results/auto_engine_first.json
  kernels/bench/auto_fit.py gpu results/auto_engine_gpu_h100.json results/auto_engine_gpu_h100_first.json

Reads results of auto_engine.py: those to judge by, then those to fit on. Everything is fitted on the
gallery and the first half of the real matrices; the second half is looked at in the end, to be judged. What an engine
costs comes from least squares of logarithms (a soft L1 norm). Of the CPU, the numbers of iterations follow: by a search
from where they stand (START), for the least mean logarithm of total / best, averaged over a change of each of them by a
tenth up and down, plus PENALTY for each factor e by which one has moved: of numbers that choose as well the nearest. A
GPU shares them. Matrices without "look" (what AUTO sees of A, spaid_engine_times) count for costs alone.

The rule stands here a second time (engine_choice.cc, engine_costs.cc; one right-hand side); --check compares what it
chooses by the numbers of the header, which START repeats, with what AUTO chose in the run.
"""
import argparse
import json
import math

import numpy
from scipy.optimize import least_squares

import auto_engine

PENALTY = 0.04
LEAST_N = 1000  # fewer unknowns, and what is not in the formulas decides: not for costs on a CPU
BYTES_PER_MS = 3e9
ON_CHIP = 24e6
LONG_COLUMN = 64
FIXED = {'least_gain': 0.005, 'large': 1e5, 'large_size': 0.12, 'least_dominance': -0.1, 'most_gain': 1.0, 'fsai_gain': 0.2,
         'most_gain_ratio': 2, 'long_column_cube': 25}
# The numbers of the header.
START = {
    'cpu': {'entry_ns': 0.88, 'passes': 8.2, 'jacobi_row': 100, 'fsai_row': 220, 'fsai_entry': 100, 'afsai_row': 530,
            'afsai_entry': 20, 'spai_column': 690, 'spai_entry': 9.4, 'worth': 0.75},
    'gpu': {'cg_diagonal_us': 9.5, 'cg_diagonal_passes': 11.3, 'cg_factored_us': 20, 'cg_factored_passes': 18.6,
            'bicgstab_diagonal_us': 20, 'bicgstab_diagonal_passes': 34, 'bicgstab_explicit_us': 25,
            'bicgstab_explicit_passes': 30, 'cg_chip_us': 9.9, 'cg_chip_entry_us': 2.6e-6, 'bicgstab_chip_us': 15.2,
            'bicgstab_chip_entry_us': 1.23e-5, 'bicgstab_chip_row_us': 2.9e-6, 'place_fixed': 0.47, 'place_entry': 4e-7,
            'place_few': 7e-6, 'place_most': 0.83, 'vector_row': 3.8e-6, 'jacobi_row': 8.9e-6, 'jacobi_entry': 1.75e-7,
            'jacobi_few': 3.8e-6, 'jacobi_most': 0.54, 'jacobi_few_row': 6e-5, 'spai_fixed': 1.18, 'spai_row': 1.3e-5,
            'spai_entry': 2.9e-6, 'spai_few': 2.7e-5, 'spai_most': 2.4, 'long_column_cube': 1.6e-8, 'fsai_fixed': 1.7,
            'fsai_row': 1.74e-5, 'fsai_entry': 4.7e-6, 'fsai_few': 1.76e-5, 'fsai_most': 0.96, 'afsai_fixed': 1.39,
            'afsai_entry': 5.4e-6, 'afsai_few': 1.4e-5, 'afsai_most': 0.82, 'afsai_entry_of_a': 1.5e-7, 'look': 0.1,
            'look_row': 2e-5, 'look_entry': 1.5e-6, 'worth': 0.85}}
ITERATIONS = {'jacobi': 135, 'size': 0.32, 'dominant': 8.4, 'few': 3, 'fsai': 0.61, 'fsai_fall': 1.0, 'afsai_fall': 1.9,
              'most_ratio': 0.8, 'spai': 0.56, 'spai_fall': 1.5}


class Cpu:
    GROWTHS = (('afsai 3x3', 10),)
    PIECES = ((('jacobi_row',), ('jacobi',)), (('fsai_row', 'fsai_entry'), ('fsai',)),
              (('afsai_row', 'afsai_entry'), ('afsai 3x3',)), (('spai_column', 'spai_entry'), ('static-spai',)))

    def usable(self, r):
        return r['n'] >= LEAST_N and 'look' in r

    def entries(self, r, engine, of_row=None):
        """That a product with M, or both factors, reads."""
        of_row = r['look'].get(engine, {}).get('grown_entries') if of_row is None else of_row
        return {'jacobi': 0, 'static-spai': r['nnz'], 'fsai': 2 * r['n'] * (r['look']['entries'] + 1)}.get(
            engine, 2 * r['n'] * (of_row or 0))

    measured_entries = staticmethod(lambda r, e: CPU.entries(r, e['engine']))
    measured_iteration = staticmethod(lambda e: e['solve_ms'] / e['iterations'])
    measured_once = staticmethod(lambda e: e['setup_ms'])

    def iteration(self, p, r, entries, method):
        one = r['nnz'] + p['passes'] * r['n'] + entries
        return 1e-6 * p['entry_ns'] / min(r['threads'], 4) * (2 if method == 'bicgstab' else 1) * one

    def once(self, p, r, engine, _):
        n, look = r['n'], r['look']
        if engine == 'jacobi':
            count = n * p['jacobi_row']
        elif engine == 'fsai':
            count = n * (p['fsai_row'] + p['fsai_entry'] * look['entries'])
        elif engine == 'static-spai':
            count = n * (p['spai_column'] + p['spai_entry'] * look['local_entries'])
            count += r['max_column'] ** 3 / p['long_column_cube'] if r['max_column'] > LONG_COLUMN else 0
        else:
            count = n * p['afsai_row'] + p['afsai_entry'] * r['nnz']
        return 1e-6 * p['entry_ns'] / r['threads'] * count

    def look(self, p, r):
        return 0

    def fit(self, p, rows):
        def ratio(q, r, e):
            return self.iteration(q, r, self.measured_entries(r, e), e['method']) / self.measured_iteration(e)
        fit_costs(p, ('entry_ns', 'passes'), observed(self, rows, None, 3), ratio)
        for keys, engines in self.PIECES:
            fit_costs(p, keys, observed(self, rows, engines), lambda q, r, e: self.once(q, r, e['engine'], 0) / e['setup_ms'])


class Gpu:
    GROWTHS = (('afsai 3x3', 10), ('afsai', 31))

    def usable(self, r):
        return True

    def entries(self, r, engine, of_row=None):
        if engine in ('afsai', 'afsai 3x3'):
            return 2 * r['n'] * (r['look'][engine]['grown_entries'] if of_row is None else of_row)
        return {'jacobi': 0, 'static-spai': r['nnz'], 'fsai': r['nnz'] + r['n']}[engine]

    @staticmethod
    def measured_entries(r, e):
        return {'jacobi': 0, 'static-spai': e['nnz_m']}.get(e['engine'], 2 * e['nnz_m'])

    @staticmethod
    def on_chip(r, entries):
        return entries == 0 and 12 * r['nnz'] + 8 * r['n'] <= ON_CHIP

    @staticmethod
    def kind(entries, method):
        return method + '_' + ('diagonal' if entries == 0 else 'explicit' if method == 'bicgstab' else 'factored')

    def iteration(self, p, r, entries, method):
        if self.on_chip(r, entries):
            rows = p['bicgstab_chip_row_us'] * r['n'] if method == 'bicgstab' else 0
            return 1e-3 * (p[method + '_chip_us'] + p[method + '_chip_entry_us'] * r['nnz'] + rows)
        kind, products = self.kind(entries, method), 2 if method == 'bicgstab' else 1
        return 1e-3 * p[kind + '_us'] + 8 * (products * (r['nnz'] + entries) + p[kind + '_passes'] * r['n']) / BYTES_PER_MS

    def once(self, p, r, engine, entries):
        n, nnz = r['n'], r['nnz']
        ms = p['place_fixed'] + p['place_entry'] * nnz + min(p['place_few'] * nnz, p['place_most']) + p['vector_row'] * n
        if engine == 'jacobi':
            few = p['jacobi_few_row'] * n + p['jacobi_few'] * nnz
            return ms + p['jacobi_row'] * n + p['jacobi_entry'] * nnz + min(few, p['jacobi_most'])
        name, count = {'static-spai': ('spai', entries), 'fsai': ('fsai', entries / 2)}.get(engine, ('afsai', entries / 2))
        ms += p[name + '_fixed'] + p.get(name + '_row', 0) * n + p[name + '_entry'] * count
        ms += min(p[name + '_few'] * count, p[name + '_most'])
        if name == 'spai' and r['max_column'] > LONG_COLUMN:
            ms += p['long_column_cube'] * r['max_column'] ** 3
        return ms + (p['afsai_entry_of_a'] * nnz if name == 'afsai' else 0)

    def look(self, p, r):
        return p['look'] + p['look_row'] * r['n'] + p['look_entry'] * r['nnz']

    def fit(self, p, rows):
        def iterating(q, r, e):
            return self.iteration(q, r, self.measured_entries(r, e), e['method']) * e['iterations'] / e['iterate_ms']

        def once(q, r, e):
            return self.once(q, r, e['engine'], self.measured_entries(r, e)) / (e['total_ms'] - e['iterate_ms'])
        iterated = observed(self, rows, None, 3)
        for method, keys in (('cg', ('us', 'entry_us')), ('bicgstab', ('us', 'entry_us', 'row_us'))):
            fit_costs(p, [f'{method}_chip_{k}' for k in keys], [
                (r, e) for r, e in iterated if e['method'] == method and self.on_chip(r, self.measured_entries(r, e))], iterating)
        for kind in ('cg_diagonal', 'cg_factored', 'bicgstab_diagonal', 'bicgstab_explicit'):
            fit_costs(p, (kind + '_us', kind + '_passes'), [
                (r, e) for r, e in iterated if not self.on_chip(r, self.measured_entries(r, e))
                and self.kind(self.measured_entries(r, e), e['method']) == kind], iterating)
        for names, engines in ((('place_', 'vector_', 'jacobi_'), ('jacobi',)), (('spai_', 'long_'), ('static-spai',)),
                               (('fsai_',), ('fsai',)), (('afsai_',), ('afsai', 'afsai 3x3'))):
            keys = [k for k in START['gpu'] if k.startswith(names)]
            fit_costs(p, keys, observed(self, rows, engines, 3), once)


CPU = Cpu()
BACKENDS = {'cpu': CPU, 'gpu': Gpu()}
ENGINES = ('jacobi', 'fsai', 'afsai', 'afsai 3x3', 'static-spai')


def numbers(name):
    """Of the header."""
    return {**FIXED, **START[name], **{'it_' + k: v for k, v in ITERATIONS.items()}}


def observed(backend, rows, engines, least_iterations=0):
    """(matrix, engine) of what converged."""
    known = engines or [e for e in ENGINES if e in ('jacobi', 'fsai', 'static-spai') or e in dict(backend.GROWTHS)]
    return [(r, e) for r in rows if backend.usable(r) for e in r['engines']
            if e['engine'] in known and e['outcome'] == 'converged' and e['iterations'] >= least_iterations]


def fit_costs(p, keys, seen, ratio):
    """`p[keys]`, so that the logarithms of ratio(p, matrix, engine) are small; left where there are too few to tell."""
    if len(seen) < 3 * len(keys):
        print(f'{len(seen):4} seen: left as they are: ' + ', '.join(keys))
        return
    start = [math.log(p[k]) for k in keys]

    def errors(x):
        q = {**p, **{k: math.exp(v) for k, v in zip(keys, x)}}
        return [math.log(ratio(q, r, e)) for r, e in seen]

    found = least_squares(lambda x: errors(x) + [0.05 * (v - s) for v, s in zip(x, start)], start, loss='soft_l1', f_scale=0.3).x
    p.update({k: math.exp(v) for k, v in zip(keys, found)})
    rms = [math.exp(math.sqrt(numpy.mean(numpy.square(errors(x))))) for x in (start, found)]
    print(f'{len(seen):4} seen, off by a factor {rms[0]:.2f} -> {rms[1]:.2f}: ' + ', '.join(f'{k} {p[k]:.3g}' for k in keys))


def choose(backend, p, r):
    """The engine that the rule chooses; what it does not choose by costs, as it did in the run."""
    if '; predicted with' not in auto_engine.auto_of(r).get('reason', ''):
        return auto_engine.chosen_by(r)
    look, n = r['look'], r['n']
    method = 'cg' if r['symmetric'] and r['negative_diagonal'] + r['zero_diagonal'] == 0 else 'bicgstab'
    gain = max(look['gain'], p['least_gain'])
    jacobi = p['it_jacobi'] * min(n, p['large']) ** p['it_size'] * max(1, n / p['large']) ** p['large_size'] * gain
    if look['dominance'] > 0 and look['low_dominance'] > p['least_dominance']:
        jacobi = min(jacobi, p['it_dominant'] / math.sqrt(look['dominance']) + p['it_few'])
    jacobi = min(jacobi, n)

    def total(engine, iterations, of_row=None):
        entries = backend.entries(r, engine, of_row)
        return backend.once(p, r, engine, entries) + max(1, iterations) * backend.iteration(p, r, entries, method)

    worth = p['worth'] * total('jacobi', jacobi)
    if method == 'cg':
        fsai = p['it_fsai'] * min(1, math.exp(-p['it_fsai_fall'] * (look['gain'] - p['fsai_gain']))) * jacobi

        def grown(engine, gains, of_row=None):
            share = math.exp(-p['it_afsai_fall'] * (min(gains, p['most_gain_ratio']) - 1))
            return total(engine, min(share * fsai, p['it_most_ratio'] * jacobi), of_row)

        totals = {'fsai': total('fsai', fsai)}
        for engine, most in backend.GROWTHS:
            if grown(engine, p['most_gain_ratio'], most) + backend.look(p, r) < worth:
                gains = [max(look[engine][k], p['least_gain']) for k in ('grown_gain', 'static_gain')]
                totals[engine] = grown(engine, gains[0] / gains[1])
    else:
        totals = {'static-spai': total('static-spai', p['it_spai'] * math.exp(-p['it_spai_fall'] * gain) * jacobi)}
    best = min(totals, key=totals.get)
    return 'jacobi' if totals[best] > worth or look['gain'] > p['most_gain'] else best


def ratio_of(r, chosen):
    """Its total, with the time that AUTO took in the run to choose, over the best one."""
    totals = auto_engine.converged(r)
    return (auto_engine.auto_of(r)['resolve_ms'] + totals[chosen]) / min(totals.values()) if chosen in totals else math.inf


def judged(rows):
    return [r for r in rows if 'look' in r and auto_engine.converged(r)]


def loss(backend, p, rows):
    return float(numpy.mean([math.log(min(10, ratio_of(r, choose(backend, p, r)))) for r in rows]))


def search(backend, p, rows):
    """The numbers of iterations, and the worth."""
    keys = ['it_' + k for k in ITERATIONS] + ['worth']
    start = dict(p)

    def smooth(q):
        steps = [(k, h) for k in keys for h in ((1.03, 1 / 1.03) if k == 'it_size' else (1.1, 1 / 1.1))]
        around = [loss(backend, q, rows)] + [loss(backend, {**q, k: q[k] * h}, rows) for k, h in steps]
        return float(numpy.mean(around)) + PENALTY * sum(abs(math.log(q[k] / start[k])) for k in keys)

    best, moved = smooth(p), True
    while moved:
        moved = False
        for k in keys:
            for h in (1.5, 1 / 1.5, 1.2, 1 / 1.2, 1.08, 1 / 1.08, 1.04, 1 / 1.04):
                q = {**p, k: p[k] * h}
                if q['worth'] > 1 or (value := smooth(q)) >= best - 1e-5:
                    continue
                best, moved = value, True
                p.update(q)
    print('iterations: ' + ', '.join(f'{k[3:]} {p[k]:.3g}' for k in keys[:-1]) + f'; worth {p["worth"]:.2f}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('backend', choices=BACKENDS)
    parser.add_argument('results', nargs='+')
    parser.add_argument('--check', action='store_true', help='compares with the choices of the run, and fits nothing')
    args = parser.parse_args()
    backend, p = BACKENDS[args.backend], numbers(args.backend)
    runs = [auto_engine.halves(json.load(open(path))) for path in args.results]
    gallery, first, second = (judged(part) for part in runs[0])
    if args.check:
        for r in gallery + first + second:
            if (chosen := choose(backend, p, r)) != auto_engine.chosen_by(r):
                print(f'{r["matrix"]}: {chosen}, AUTO chose {auto_engine.chosen_by(r)}')
    else:
        backend.fit(p, runs[-1][0] + runs[-1][1])
        if args.backend == 'cpu':
            search(backend, p, judged(runs[-1][0] + runs[-1][1]))
    for title, part in (('gallery', gallery), ('fitted on', first), ('judged on', second)):
        ratios = {r['matrix']: (choose(backend, p, r), ratio_of(r, choose(backend, p, r))) for r in part}
        good = sum(x <= auto_engine.WITHIN for _, x in ratios.values())
        wrong = ', '.join(f'{m} ({e}, {x:.2f})' for m, (e, x) in ratios.items() if x > auto_engine.WITHIN)
        print(f'{title}: within {auto_engine.WITHIN:g} of the best on {good} of {len(ratios)}' + (': not ' + wrong if wrong else ''))


if __name__ == '__main__':
    main()
