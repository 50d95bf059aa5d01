#!/usr/bin/python3
"""Solves a system by another library: SciPy's incomplete and complete LU, PETSc's ILU(0), GAMG and hypre's BoomerAMG.

  kernels/bench/peers/solve_peers.py PEER A.npz B.npy X.npy

Needs python3-scipy, and python3-petsc4py for the peers of PETSc. Reads A as scipy.sparse.save_npz wrote it, writes the
solution to X.npy and one line of JSON to standard output: outcome, method, iterations, setup_ms, solve_ms. All to a
true relative residual of 1e-8 within 10,000 iterations, x0 = 0, one thread, else with the library's defaults. PETSc
takes CG where A is symmetric with a positive diagonal and, where that fails, as elsewhere, GMRES(100).
"""
import argparse
import glob
import importlib.util
import json
import sys
import time
import warnings

import numpy
import scipy.sparse
import scipy.sparse.linalg

RTOL, MAX_ITERATIONS, RESTART = 1e-8, 10000, 100
REFINEMENTS = 3
PETSC = {'petsc-ilu0': 'ilu', 'petsc-gamg': 'gamg', 'petsc-boomeramg': 'hypre'}
SCIPY = ['scipy-spilu', 'scipy-splu']
# Where Debian keeps petsc4py; its own link is made by another package alone.
DEBIAN = '/usr/lib/petscdir/*/*-real/lib/python3/dist-packages'


def find_petsc():
    """Whether petsc4py can be imported."""
    if importlib.util.find_spec('petsc4py') is None:
        sys.path += glob.glob(DEBIAN)
    return importlib.util.find_spec('petsc4py') is not None


def available():
    return SCIPY + (list(PETSC) if find_petsc() else [])


class Clock:
    """Milliseconds since the last call."""

    def __init__(self):
        self.last = time.monotonic()

    def __call__(self):
        now = time.monotonic()
        ms, self.last = 1e3 * (now - self.last), now
        return ms


def residual(a, b, x):
    return numpy.linalg.norm(b - a @ x) / numpy.linalg.norm(b)


def by_splu(a, b, clock):
    factors = scipy.sparse.linalg.splu(a.tocsc())
    setup = clock()
    x = factors.solve(b)
    steps = 0
    while steps < REFINEMENTS and not residual(a, b, x) <= RTOL:
        x += factors.solve(b - a @ x)
        steps += 1
    return x, 'lu', steps, setup, clock()


def by_spilu(a, b, clock):
    factors = scipy.sparse.linalg.spilu(a.tocsc(), drop_tol=1e-4, fill_factor=10)
    setup = clock()
    m = scipy.sparse.linalg.LinearOperator(a.shape, factors.solve)
    norms = []
    x, _ = scipy.sparse.linalg.gmres(a, b, M=m, tol=RTOL, atol=0, restart=RESTART,
                                     maxiter=MAX_ITERATIONS // RESTART, callback=norms.append,
                                     callback_type='pr_norm')
    return x, 'gmres', len(norms), setup, clock()


def by_petsc(kind, a, b, clock):
    import petsc4py
    petsc4py.init(['-pc_factor_shift_type', 'nonzero'])
    from petsc4py import PETSc
    positive = (a != a.T).nnz == 0 and a.diagonal().min() > 0
    a, each = a.tocoo(), numpy.arange(a.shape[0])  # ILU wants all of the diagonal stored
    at = numpy.append(a.row, each), numpy.append(a.col, each)
    a = scipy.sparse.coo_matrix((numpy.append(a.data, 0 * each), at), a.shape).tocsr()
    a.sort_indices()
    matrix = PETSc.Mat().createAIJ(a.shape, csr=(a.indptr, a.indices, a.data), comm=PETSc.COMM_SELF)
    rhs, x = PETSc.Vec().createWithArray(b, comm=PETSc.COMM_SELF), matrix.createVecRight()
    setup = solve = iterations = 0
    clock()
    for method in (['cg'] if positive else []) + ['gmres']:
        ksp = PETSc.KSP().create(PETSc.COMM_SELF)
        ksp.setOperators(matrix)
        ksp.setType(method)
        ksp.getPC().setType(kind)
        if method == 'gmres':
            ksp.setGMRESRestart(RESTART)
            ksp.setPCSide(PETSc.PC.Side.RIGHT)
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.setInitialGuessNonzero(True)
        ksp.setFromOptions()
        ksp.setUp()
        setup += clock()
        x.set(0)
        left = MAX_ITERATIONS
        while left > 0:  # again from there, where the residual of the recurrence was not the true one
            ksp.setTolerances(rtol=RTOL, atol=0, divtol=1e30, max_it=left)
            ksp.solve(rhs, x)
            left -= max(1, ksp.getIterationNumber())
            iterations += ksp.getIterationNumber()
            if residual(a, b, x.getArray()) <= RTOL or ksp.getConvergedReason() < 0 or not ksp.getIterationNumber():
                break
        solve += clock()
        if residual(a, b, x.getArray()) <= RTOL:
            break
    return x.getArray().copy(), method, iterations, setup, solve


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('peer', choices=SCIPY + list(PETSC))
    parser.add_argument('matrix')
    parser.add_argument('rhs')
    parser.add_argument('solution')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    a, b = scipy.sparse.load_npz(args.matrix).tocsr(), numpy.load(args.rhs)
    if args.peer in PETSC and not find_petsc():
        sys.exit('petsc4py is not installed')
    solvers = {'scipy-splu': by_splu, 'scipy-spilu': by_spilu}
    try:
        clock = Clock()
        if args.peer in PETSC:
            x, method, iterations, setup, solve = by_petsc(PETSC[args.peer], a, b, clock)
        else:
            x, method, iterations, setup, solve = solvers[args.peer](a, b, clock)
    except Exception as error:  # a zero pivot, too little memory: whatever the library says
        print(json.dumps({'outcome': 'REFUSED', 'detail': ' '.join(str(error).split())[-200:]}))
        return
    numpy.save(args.solution, x)
    print(json.dumps({'outcome': 'CONVERGED' if residual(a, b, x) <= RTOL else 'NOT_CONVERGED', 'method': method,
                      'iterations': iterations, 'setup_ms': setup, 'solve_ms': solve}))


if __name__ == '__main__':
    main()
