"""Solves a 2-D Poisson problem by whatever KSP and PC the options name; says how it ended."""

import sys

import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc  # noqa: E402

N = 40
A = PETSc.Mat().createAIJ([N * N, N * N], nnz=5)
for i in range(*A.getOwnershipRange()):
    row, column = divmod(i, N)
    A[i, i] = 4
    for y, x in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
        if 0 <= y < N and 0 <= x < N:
            A[i, y * N + x] = -1
A.assemble()
x, b = A.createVecs()
b.set(1)
ksp = PETSc.KSP().create()
ksp.setOperators(A)
ksp.setFromOptions()
ksp.solve(b, x)
r = b.duplicate()
A.mult(x, r)
r.axpy(-1, b)
PETSc.Sys.Print('converged' if ksp.getConvergedReason() > 0 else 'diverged', ksp.getIterationNumber(),
                'residual', r.norm() / b.norm())
