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
COLUMNS = ([(method, e) for method in ('cg', 'minres') for e in ('none', 'Jacobi')] +
           [(method, e) for method in ('bicgstab', 'idr', 'gmres') for e in ENGINES])
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


def is_hard(row):
    """Singular, indefinite or without a diagonal: what a user must be told about."""
    d = row['upload']['diagnosis']
    counted = ('missing_diagonal', 'zero_diagonal', 'empty_rows', 'empty_columns')
    build = row['builds']['SPAI p1']
    return ('error' in build or build['quality']['warnings'] or
            any(d[key]['count'] for key in counted) or d['constants_in_null_space'] or
            -1 < d['structural_rank'] < row['upload']['n'] or
            row['solves']['cg none'].get('outcome') == 'INDEFINITE')


def clause(sentence):
    """What it is, without what it does and what helps: up to the first colon that is in no bracket."""
    depth = 0
    for at, char in enumerate(sentence):
        depth += (char == '(') - (char == ')')
        if depth == 0 and sentence.startswith(': ', at):
            return sentence[:at]
    return sentence.rstrip('.')


def print_tables(results):
    table(['matrix', 'n', 'nnz'] + [f'{e}, {m}' for m, e in COLUMNS],
          [[r['matrix'], r['upload']['n'], r['upload']['nnz']] +
           [cell(r['solves'][f'{m} {e}']) for m, e in COLUMNS]
           for r in results if 'error' not in r['upload']])
    rows = []
    for r in results:
        if 'error' in r['upload']:
            rows.append([r['matrix'], r['upload']['error']['message'], '', '', ''])
        elif is_hard(r):
            build = r['builds']['SPAI p1']
            warnings = ([build['error']['message']] if 'error' in build else
                        [clause(w) for w in build['quality']['warnings']])
            rows.append([r['matrix'],
                         '; '.join(clause(f) for f in r['upload']['diagnosis']['findings']),
                         '; '.join(warnings) or 'nothing', say(r['solves']['cg none']),
                         say(r['solves']['bicgstab SPAI p1'])])
    table(['matrix', 'the diagnosis says', 'the build of SPAI p1 warns', 'CG, no preconditioner',
           'BiCGSTAB, SPAI p1'], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--address')
    parser.add_argument('--spaidctl', default='build/release/bin/spaidctl')
    parser.add_argument('--rhs', default='ones')
    parser.add_argument('--max-run', default='60')
    parser.add_argument('--out')
    parser.add_argument('folder', help='or a result.json of an earlier run, to print its tables')
    args = parser.parse_args()
    if args.folder.endswith('.json'):
        with open(args.folder) as file:
            print_tables(json.load(file))
        return
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

    print_tables(results)
    if args.out:
        with open(args.out, 'w') as out:
            json.dump(results, out, indent=1)


if __name__ == '__main__':
    main()
