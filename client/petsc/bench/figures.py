#!/usr/bin/python3
"""Measures libspaidpetsc.so beside PETSc's and hypre's own preconditioners: the tables of docs/petsc.md.

    client/petsc/bench/figures.py set-up [--rounds=5] [--ranks=1] poisson:60 elasticity:20 convdiff:60
    client/petsc/bench/figures.py apply [--ranks=1] poisson:60 convdiff:60
    client/petsc/bench/figures.py totals [--ranks=1] ex45 elasticity
    client/petsc/bench/figures.py multigrid [--rounds=5] [--ranks=2] poisson:64 elasticity:20 FILE.bin

Build spaid, spaidctl, spaid_petsc and petsc_preconditioners before, and run it from the build folder. Set-up:
everything by turns in one process; each way of reaching the daemon has one of its own, so that no round finds
what another left. Medians but for the cold set-up, which is the first. multigrid: hypre's and PETSc's, beside which spaid_amg_times
measures ours (kernels/bench/amg_times.cc) on the same gallery matrices, or files of kernels/bench/matrix_file.h.
"""

import argparse
import csv
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy
import scipy.io
import scipy.sparse

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / 'tests/e2e/attacks'))
import daemon as daemon_module  # noqa: E402

BUILD = pathlib.Path.cwd()
os.environ.setdefault('SPAID_DAEMON', str(BUILD / 'bin/spaid'))
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
                  OMPI_MCA_rmaps_base_oversubscribe='1', OMPI_MCA_mpi_yield_when_idle='1',
                  OMP_NUM_THREADS='1')

# Name, options; {d} is where the daemon is.
SPD = (('Jacobi', '-ksp_type cg -pc_type jacobi'),
       ('ICC(0)', '-ksp_type cg -pc_type icc'),
       ('GAMG', '-ksp_type cg -pc_type gamg'),
       ('ParaSails', '-ksp_type cg -pc_type hypre -pc_hypre_type parasails -pc_hypre_parasails_sym SPD'),
       ('spaid fsai, TCP', '-ksp_type cg -pc_type spaid -pc_spaid_engine fsai {tcp}'),
       ('spaid fsai, shared', '-ksp_type cg -pc_type spaid -pc_spaid_engine fsai {shared}'),
       ('spaid afsai, TCP', '-ksp_type cg -pc_type spaid -pc_spaid_engine afsai {tcp}'),
       ('spaid afsai, shared', '-ksp_type cg -pc_type spaid -pc_spaid_engine afsai {shared}'))
GENERAL = (('Jacobi', '-ksp_type bcgs -pc_type jacobi'),
           ('ILU(0)', '-ksp_type bcgs -pc_type ilu'),
           ('ParaSails', '-ksp_type bcgs -pc_type hypre -pc_hypre_type parasails '
            '-pc_hypre_parasails_sym nonsymmetric'),
           ('spaid static-spai, TCP', '-ksp_type bcgs -pc_type spaid -pc_spaid_engine static-spai {tcp}'),
           ('spaid static-spai, shared', '-ksp_type bcgs -pc_type spaid -pc_spaid_engine static-spai {shared}'))


def write(a, folder):
    """A as PETSc's binary file."""
    a.sort_indices()
    path = pathlib.Path(folder, 'a.petsc')
    with open(path, 'wb') as out:
        out.write(struct.pack('>iiii', 1211216, *a.shape, a.nnz))
        out.write((a.indptr[1:] - a.indptr[:-1]).astype('>i4').tobytes())
        out.write(a.indices.astype('>i4').tobytes())
        out.write(a.data.astype('>f8').tobytes())
    return path


def convert(matrix, folder):
    """The gallery's matrix as PETSc's binary file; (path, rows, entries)."""
    a = matrix_of(matrix, folder)
    return write(a, folder), a.shape[0], a.nnz


def run(words, ranks):
    start = [] if ranks == 1 else ['mpirun', '-n', str(ranks)]
    return subprocess.run([*start, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def bench(path, rounds, configs, ranks, *more):
    """Runs petsc_preconditioners; returns {name: [[round, set-up, apply, solve, iterations, reason, residual]]}."""
    text = run([BUILD / 'bin/petsc_preconditioners', '-dll_append', BUILD / 'lib/libspaidpetsc.so', '-f', path,
                '-rounds', rounds, '-configs', ';'.join(configs), *more], ranks)
    rows = {}
    for line in text.splitlines():
        name, *numbers = line.rsplit(',', 7)
        rows.setdefault(name, []).append([float(v) for v in numbers])
    return rows


HYPRE = ('-pc_type hypre -pc_hypre_type boomeramg -pc_hypre_boomeramg_coarsen_type HMIS '
         '-pc_hypre_boomeramg_interp_type ext+i -pc_hypre_boomeramg_P_max 4')
MULTIGRID = (('BoomerAMG', HYPRE),
             ('BoomerAMG, one aggressive level', f'{HYPRE} -pc_hypre_boomeramg_agg_nl 1'),
             # Else a second round would keep the first one's interpolation.
             ('GAMG', '-pc_type gamg -pc_gamg_reuse_interpolation false'))


def matrix_of(name, folder):
    """A of a gallery matrix, or of a file of the benchmarks."""
    if not name.endswith('.bin'):
        family, size = name.split(':')
        market = pathlib.Path(folder, 'a.mtx')
        subprocess.run([BUILD / 'bin/spaidctl', 'gallery', family, f'--size={size}', f'--out={market}'],
                       check=True, stdout=subprocess.DEVNULL)
        return scipy.io.mmread(market).tocsr()
    with open(name, 'rb') as file:
        n, nnz = numpy.fromfile(file, '<i8', 2)
        pointers, rows = numpy.fromfile(file, '<i4', n + 1), numpy.fromfile(file, '<i4', nnz)
        return scipy.sparse.csc_matrix((numpy.fromfile(file, '<f8', nnz), rows, pointers), (n, n)).tocsr()


def multigrid(matrix, rounds, ranks):
    """Set-up, iterations and solve to 1e-7 in the true residual."""
    with tempfile.TemporaryDirectory() as folder:
        a = matrix_of(matrix, folder)
        path = write(a, folder)
        general = abs(a - a.T).max() > 1e-10 * abs(a).max()
        method = ('-ksp_type bcgs -ksp_pc_side right' if general
                  else '-ksp_type cg -ksp_norm_type unpreconditioned')
        block = ' -matload_block_size 3' if 'elasticity' in matrix else ''
        rows = bench(path, rounds, [f'{name}|{method} {options} -ksp_rtol 1e-7 -ksp_max_it 1000'
                                    for name, options in MULTIGRID], ranks, *block.split())
    out = csv.writer(sys.stdout)
    for name, measured in rows.items():
        set_up, _, solve, its = (statistics.median(row[k] for row in measured) for k in (1, 2, 3, 4))
        bad = max(row[6] for row in measured)
        out.writerow([pathlib.Path(matrix).stem, *a.shape[:1], a.nnz, name, ranks, f'{1e3 * set_up:.0f}', int(its),
                      f'{1e3 * solve:.0f}', f'{1e3 * (set_up + solve):.0f}', f'{bad:.0e}'])
    sys.stdout.flush()


def apply(matrix, ranks):
    """An application of M beside one of Jacobi that moves as many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path, n, nnz = convert(matrix, folder)
        symmetric = not matrix.startswith(('convdiff', 'circuit'))
        # A product: entries of 8 + 4 bytes, row pointers, a vector read and one written.
        product = 12 * ((nnz + n) / 2 if symmetric else nnz) + 20 * n
        bytes_moved = 2 * product if symmetric else product
        engine, method = ('fsai', 'cg') if symmetric else ('static-spai', 'bcgs')
        one = daemon_module.Daemon()
        try:
            rows = bench(path, 3, [f'spaid|-ksp_type {method} -pc_type spaid -pc_spaid_engine {engine} '
                                   f'-pc_spaid_address {one.address} -ksp_max_it 5'], ranks,
                         '-floor_bytes', bytes_moved)
        finally:
            one.close()
        mine = statistics.median(row[2] for row in rows['spaid'])
        floor = rows['floor'][0][2]
        csv.writer(sys.stdout).writerow([matrix, engine, ranks, f'{bytes_moved / 1e6:.1f}', f'{1e3 * mine:.2f}',
                                         f'{1e3 * floor:.2f}', f'{mine / floor:.2f}'])


def set_up(matrix, rounds, ranks):
    with tempfile.TemporaryDirectory() as folder:
        path, n, nnz = convert(matrix, folder)
        configs = GENERAL if matrix.startswith(('convdiff', 'circuit')) else SPD
        if ranks > 1:  # of one rank
            configs = [c for c in configs if not re.search('-pc_type (icc|ilu)', c[1])]
        daemons, words = [], []
        try:
            for name, options in configs:
                tcp = shared = ''
                if 'spaid' in options:
                    socket = pathlib.Path(folder, f's{len(daemons)}')
                    one = daemon_module.Daemon(f'--local-socket={socket}')
                    daemons.append(one)
                    tcp = f'-pc_spaid_address {one.address}'
                    shared = f'{tcp} -pc_spaid_local_socket {socket}'
                words.append(f'{name}|{options.format(tcp=tcp, shared=shared)} -ksp_rtol 1e-8')
            rows = bench(path, rounds, words, ranks)
        finally:
            for one in daemons:
                one.close()
    out = csv.writer(sys.stdout)
    for name, measured in rows.items():
        cold = measured[0][1]
        again, apply, solve, its = (statistics.median(row[k] for row in measured[1:]) for k in (1, 2, 3, 4))
        bad = max(row[6] for row in measured)
        out.writerow([matrix, n, nnz, name, f'{1e3 * cold:.1f}', f'{1e3 * again:.1f}', f'{1e3 * apply:.3f}',
                      int(its), f'{1e3 * solve:.0f}', f'{1e3 * (again + solve):.0f}', f'{bad:.0e}'])


PROGRAMS = {
    'ex45': ('{build}/tests/e2e/petsc/programs/ksp_ex45 -da_grid_x 61 -da_grid_y 61 -da_grid_z 61',
             ('-ksp_type bcgs -pc_type jacobi', '-ksp_type bcgs -pc_type {ilu}', '-ksp_type gmres -pc_type gamg',
              '-ksp_type gmres -pc_type hypre')),
    'elasticity': ('/usr/bin/dolfinx-scaling-test --problem_type elasticity --scaling_type strong --ndofs 60000',
                   ('-ksp_type cg -pc_type jacobi', '-ksp_type cg -pc_type {icc}', '-ksp_type cg -pc_type gamg',
                    '-ksp_type cg -pc_type hypre')),
}
WHOLE = ('-ksp_type spaid -pc_type spaid {tcp}', '-ksp_type spaid -pc_type spaid {shared}',
         '-ksp_type spaid -pc_type spaid -pc_spaid_engine {engine} {tcp}')


def total(program, options, ranks):
    """Seconds in KSPSolve, set-up included, of a program beside a daemon that knows nothing yet; iterations."""
    with tempfile.TemporaryDirectory() as folder:
        one = daemon_module.Daemon(f'--local-socket={folder}/s')
        tcp = f'-pc_spaid_address {one.address}'
        block = 'bjacobi -sub_pc_type ' if ranks > 1 else ''
        given = options.format(tcp=tcp, shared=f'{tcp} -pc_spaid_local_socket {folder}/s', ilu=f'{block}ilu',
                               icc=f'{block}icc', engine='static-spai' if 'ex45' in program else 'fsai')
        try:
            text = run([*program.split(), *given.split(), '-ksp_rtol', '1e-8', '-log_view',
                        '-ksp_converged_reason', '-dll_append', BUILD / 'lib/libspaidpetsc.so'], ranks)
        finally:
            one.close()
    its = int(re.search(r'converged due to \w+ iterations (\d+)', text)[1])
    return float(re.search(r'(?m)^KSPSolve +\d+ [\d.]+ ([\d.e+-]+) ', text)[1]), its


def totals(name, ranks):
    program, own = PROGRAMS[name]
    program = program.format(build=BUILD)
    out = csv.writer(sys.stdout)
    rows = {options: [] for options in (*own, *WHOLE)}
    for _ in range(3):  # by turns
        for options, measured in rows.items():
            measured.append(total(program, options, ranks))
    for options, measured in rows.items():
        out.writerow([name, ranks, options, measured[0][1],
                      f'{statistics.median(seconds for seconds, _ in measured):.2f}'])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', choices=('set-up', 'apply', 'totals', 'multigrid'))
    parser.add_argument('matrices', nargs='*')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--ranks', type=int, default=1)
    args = parser.parse_intermixed_args()
    for matrix in args.matrices:
        if args.what == 'totals':
            totals(matrix, args.ranks)
        elif args.what == 'apply':
            apply(matrix, args.ranks)
        elif args.what == 'multigrid':
            multigrid(matrix, args.rounds, args.ranks)
        else:
            set_up(matrix, args.rounds, args.ranks)


if __name__ == '__main__':
    main()
