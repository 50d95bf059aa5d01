"""Matrices of known properties."""

import numpy as np
import scipy.sparse as sp


def poisson(n, dimensions=2):
    """The 5- or 7-point Laplacian on a grid of n points a side: symmetric positive definite."""
    one = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    a = one
    for k in range(1, dimensions):
        a = sp.kron(sp.identity(n), a) + sp.kron(one, sp.identity(n**k))
    return sp.csr_matrix(a)


def convection(n, wind=0.8):
    """The upwind scheme on an n by n grid: not symmetric."""
    one = sp.diags([-1 - wind, 2 + wind, -1], [-1, 0, 1], shape=(n, n))
    two = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    return sp.csr_matrix(sp.kron(sp.identity(n), one) + sp.kron(two, sp.identity(n)))


def right_hand_side(a, seed=7, columns=None):
    return np.random.default_rng(seed).standard_normal(a.shape[0] if columns is None else (a.shape[0], columns))


def residual(a, x, b):
    """|b - A x| / |b| of the worst right-hand side."""
    a64 = a.astype(float)
    return float(np.max(np.linalg.norm(b - a64 @ x, axis=0) / np.linalg.norm(b, axis=0)))
