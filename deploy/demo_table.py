"""Solves the demo's problems with spaidctl and prints a table of each.

    demo_table.py SPAIDCTL HOST:PORT

Exit 0 only where every call brought an answer, every residual that is called converged is below the
tolerance, and static SPAI converged on every problem whose answer is known.
"""

import json
import os
import pathlib
import subprocess
import sys

RTOL = 1e-8
MAX_ITERATIONS = 5000
# Of the folder SPAID_MATRICES: two with character, if they are there.
REAL = ('memplus', 'sherman5')

ROWS = (('none', 'no preconditioner'), ('jacobi', 'Jacobi'), ('static-spai', 'static SPAI'))


def problems():
    """Title, matrix, {engine: method}, and whether static SPAI must converge."""
    yield ('3-D linear elasticity, a clamped cube (SPD)', 'gallery:elasticity:12',
           {'none': 'cg', 'jacobi': 'cg', 'static-spai': 'bicgstab'}, True)
    yield ('3-D convection-diffusion, upwind (nonsymmetric)', 'gallery:convdiff:40',
           dict.fromkeys(('none', 'jacobi', 'static-spai'), 'bicgstab'), True)
    folder = os.environ.get('SPAID_MATRICES')
    if not folder:
        return
    files = {}
    for path in sorted(pathlib.Path(folder).glob('*.mtx*'), key=lambda p: p.stat().st_size):
        name = path.name.removesuffix('.gz').removesuffix('.mtx')
        if path.name.endswith(('.mtx', '.mtx.gz')) and '_rhs' not in name:
            files[name] = path
    chosen = [name for name in REAL if name in files]
    chosen += [name for name in files if name not in REAL][:2 - len(chosen)]
    for name in chosen:
        yield (f'{files[name].name} of {folder}', str(files[name]),
               {'none': 'auto', 'jacobi': 'auto', 'static-spai': 'bicgstab'}, name in REAL)


def solve(spaidctl, address, matrix, engine, method):
    """The JSON object that `spaidctl solve` prints; exit 3 is an honest outcome, not an error."""
    command = [spaidctl, f'--address={address}', 'solve', matrix, '--rhs=random',
               f'--engine={engine}', f'--method={method}', f'--rtol={RTOL}',
               f'--max-iterations={MAX_ITERATIONS}', '--json']
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 3):
        sys.exit(f'{" ".join(command)}\nended with {result.returncode}:\n'
                 f'{result.stdout}{result.stderr}')
    answer = json.loads(result.stdout)
    if (result.returncode == 0) != (answer['outcome'] == 'CONVERGED'):
        sys.exit(f'{" ".join(command)}\nended with {result.returncode} for {answer["outcome"]}')
    if answer['outcome'] == 'CONVERGED' and not answer['true_relative_residual'] <= RTOL:
        sys.exit(f'{" ".join(command)}\ncalls {answer["true_relative_residual"]} converged')
    return answer


def milliseconds(value):
    return f'{value:,.1f}' if value < 100 else f'{value:,.0f}'


def print_problem(spaidctl, address, title, matrix, methods, must_converge):
    print(f'\n{title}')
    first = True
    for engine, label in ROWS:
        answer = solve(spaidctl, address, matrix, engine, methods[engine])
        if first:
            print(f'{matrix if matrix.startswith("gallery:") else ""}'
                  f'  n = {answer["n"]:,}  nnz = {answer["nnz"]:,}  on {answer["device"]}'.strip())
            print(f'  {"":18} {"method":9} {"iterations":>10} {"set-up ms":>10} {"solve ms":>10} '
                  f'{"residual":>9}  outcome')
            first = False
        print(f'  {label:18} {answer["method"]:9} {answer["iterations"]:>10,} '
              f'{milliseconds(answer["setup_ms"]):>10} {milliseconds(answer["solve_ms"]):>10} '
              f'{answer["true_relative_residual"]:>9.1e}  '
              f'{answer["outcome"].lower().replace("_", " ")}', flush=True)
        if engine == 'static-spai' and must_converge and answer['outcome'] != 'CONVERGED':
            sys.exit(f'static SPAI did not converge on {matrix}: {answer["outcome"]} '
                     f'{answer.get("detail", "")}')


def main(spaidctl, address):
    for title, matrix, methods, must_converge in problems():
        print_problem(spaidctl, address, title, matrix, methods, must_converge)
    print(f'\nb = A x with x random in [-1, 1]; residual = |b - A x| / |b|, recomputed in fp64, '
          f'asked for: {RTOL:g}')


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2])
