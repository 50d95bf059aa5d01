#!/usr/bin/python3
"""Iterations and honest outcomes on a folder of Matrix Market files, through a running daemon.

  kernels/bench/real_matrices.py --address=HOST:PORT --spaidctl=build/release/bin/spaidctl \\
      [--rhs=ones|random] [--max-run=60] [--out=result.json] FOLDER

Writes two Markdown tables to standard output: the iterations of every pair of engine and method, one
row a matrix (an outcome that is not convergence is named, with the residual that it left); and, of the
matrices that are singular, indefinite, badly scaled or lack a diagonal, what the diagnosis, the build
and the solve say. b = A x with x of ones or seeded random, relative residual 1e-8, at most 5000
iterations, GMRES(50), x0 = 0, at most --max-run seconds a solve.
"""
import argparse
import glob
import json
import os
import subprocess
import sys

ENGINES = {'none': ['--engine=none'], 'Jacobi': ['--engine=jacobi'],
           'SPAI p1': ['--engine=static-spai', '--pattern-power=1'],
           'SPAI p2': ['--engine=static-spai', '--pattern-power=2'],
           'SPAI p1, row match': ['--engine=static-spai', '--pattern-power=1', '--row-match']}
COLUMNS = ([('cg', e) for e in ('none', 'Jacobi')] + [('bicgstab', e) for e in ENGINES] +
           [('gmres', e) for e in ENGINES])
NO_CG = {'PRECONDITIONER_NOT_SPD', 'NOT_SYMMETRIC', 'ZERO_DIAGONAL', 'ZERO_COLUMN'}


def call(args, *command):
    done = subprocess.run([args.spaidctl, f'--address={args.address}', '--json', *command],
                          capture_output=True, text=True, check=False)
    if done.returncode == 2:
        sys.exit(f'wrong usage: {command}: {done.stderr}')
    return json.loads(done.stdout)


def outcome_of(result):
    return result['outcome'].lower().replace('_', ' ')


def cell(result):
    if 'error' in result:
        return '–' if result['error']['reason'] in NO_CG else result['error']['reason']
    if result['outcome'] == 'CONVERGED':
        return str(result['iterations'])
    return f'{outcome_of(result)} {result["true_relative_residual"]:.0e}'


def say(result):
    """One matrix's hardest facts in words, as the server said them."""
    if 'error' in result:
        return result['error']['message']
    text = f'{outcome_of(result)} after {result["iterations"]}'
    if result['outcome'] != 'CONVERGED':
        text += f' at {result["true_relative_residual"]:.1e}'
        if result.get('detail'):
            text += f' ({result["detail"]})'
    return text


def table(header, rows):
    print('| ' + ' | '.join(header) + ' |\n|' + ' --- |' * len(header))
    for row in rows:
        print('| ' + ' | '.join(str(c).replace('|', '\\|') for c in row) + ' |')
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--address', required=True)
    parser.add_argument('--spaidctl', default='build/release/bin/spaidctl')
    parser.add_argument('--rhs', default='ones')
    parser.add_argument('--max-run', default='60')
    parser.add_argument('--out')
    parser.add_argument('folder')
    args = parser.parse_args()
    results = []
    for path in sorted(glob.glob(os.path.join(args.folder, '*.mtx*'))):
        name = os.path.basename(path).split('.')[0]
        if '_rhs' in name:
            continue
        matrix = call(args, 'upload', path)
        row = {'matrix': name, 'upload': matrix, 'builds': {}, 'solves': {}}
        results.append(row)
        if 'error' in matrix:
            continue
        for engine, flags in ENGINES.items():
            if engine != 'none':
                row['builds'][engine] = call(args, 'build', matrix['name'],
                                             f'--max-run={args.max_run}', *flags)
        for method, engine in COLUMNS:
            row['solves'][f'{method} {engine}'] = call(
                args, 'solve', path, f'--rhs={args.rhs}', f'--method={method}',
                '--rtol=1e-8', '--max-iterations=5000', '--restart=50',
                f'--max-run={args.max_run}', *ENGINES[engine])
        print(name, file=sys.stderr, flush=True)

    table(['matrix', 'n', 'nnz'] + [f'{e}, {m}' for m, e in COLUMNS],
          [[r['matrix'], r['upload']['n'], r['upload']['nnz']] +
           [cell(r['solves'][f'{m} {e}']) for m, e in COLUMNS]
           for r in results if 'error' not in r['upload']])
    rows = []
    for r in results:
        if 'error' in r['upload']:
            rows.append([r['matrix'], r['upload']['error']['message'], '', ''])
            continue
        findings = r['upload']['diagnosis']['findings']
        build = r['builds']['SPAI p1']
        warnings = ([build['error']['message']] if 'error' in build else
                    build['quality']['warnings'])
        if findings or warnings:
            rows.append([r['matrix'], '; '.join(findings), '; '.join(warnings) or 'nothing',
                         say(r['solves']['bicgstab SPAI p1'])])
    table(['matrix', 'diagnosis', 'static SPAI, p = 1', 'BiCGSTAB with it'], rows)
    if args.out:
        with open(args.out, 'w') as out:
            json.dump(results, out, indent=1)


if __name__ == '__main__':
    main()
