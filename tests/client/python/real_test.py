"""Every real matrix of SPAID_MATRICES: M in SciPy's solvers, and spaid.solve, beside SciPy's own LU."""

import os
import pathlib
import warnings

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import spaid
from problems import residual

FOLDER = os.environ.get('SPAID_MATRICES', '')
FILES = sorted(p for p in pathlib.Path(FOLDER).glob('*.mtx.gz') if '_rhs' not in p.name) if FOLDER else []
pytestmark = pytest.mark.skipif(not FILES, reason='SPAID_MATRICES names no folder of matrices')
# Singular to rounding (README.md of the folder), so that solutions say nothing: residuals alone are compared.
SINGULAR = {'saylr3', 'laser', 'bcsstm03', 'plat1919'}


def name_of(path):
    return path.name.removesuffix('.mtx.gz')


def load(path):
    return sp.csr_matrix(scipy.io.mmread(path), dtype=float)


def right_hand_side_of(a):
    """A @ x of a known x: there is a solution, whatever A is."""
    return a @ np.random.default_rng(3).standard_normal(a.shape[0])


def direct(a, b):
    """SciPy's spsolve; None where it says that A is singular."""
    with warnings.catch_warnings():
        warnings.simplefilter('error', sla.MatrixRankWarning)
        try:
            return sla.spsolve(a.tocsc(), b)
        except (RuntimeError, sla.MatrixRankWarning):
            return None


@pytest.fixture(params=FILES or [None], ids=lambda p: name_of(p) if p else 'none')
def problem(request):
    a = load(request.param)
    return name_of(request.param), a, right_hand_side_of(a)


def test_it_is_solved_as_by_scipy(client, problem):
    name, a, b = problem
    before = a.copy()
    result = client.solve(a, b, rtol=1e-8, timeout=240)
    assert (before != a).nnz == 0 and result.x.shape == b.shape
    found = residual(a, result.x, b)
    assert np.isclose(found, result.outcomes[0].true_relative_residual, rtol=1e-3, atol=1e-14)
    assert result.converged == (found <= 1.0001e-8)
    assert result.converged, (name, result.reason)
    exact = direct(a, b)
    if exact is None or name in SINGULAR:
        return
    # Two solutions x and y with residuals r and s: |x - y| <= |A⁻¹| |r - s|; |A⁻¹| as SciPy's LU has it.
    lu = sla.splu(a.tocsc())
    n = a.shape[0]
    inverse = sla.LinearOperator(a.shape, matvec=lu.solve, rmatvec=lambda v: lu.solve(v, 'T'))
    norm = sla.onenormest(inverse) * np.sqrt(n)
    bound = norm * (np.linalg.norm(b - a @ result.x) + np.linalg.norm(b - a @ exact))
    assert np.linalg.norm(result.x - exact) <= 1.01 * bound + 1e-12 * np.linalg.norm(exact)


def test_m_serves_scipys_solvers(client, problem):
    """If SciPy's solver with M ends well, x is a solution; and what the daemon says of M is so."""
    name, a, b = problem
    if a.nnz > 200_000:
        pytest.skip('3,000 iterations by SciPy, or the product with M, would take most of a minute')
    definite = client.upload(a).diagnosis
    symmetric = definite.numerically_symmetric and definite.zero_diagonal.count == 0 and (
        definite.negative_diagonal.count == 0)
    system = client.system(a)
    try:
        m = system.preconditioner('afsai' if symmetric else 'static-spai', timeout=240)
    except spaid.SpaidError as error:
        assert error.reason in ('ZERO_COLUMN', 'NOT_POSITIVE_DEFINITE', 'NOT_SYMMETRIC'), error
        return
    if not symmetric:  # what the daemon says of M is so
        found = sla.norm(a @ m.matrix - sp.identity(a.shape[0]))
        assert np.isclose(found, m.quality.residual_frobenius, rtol=1e-6, atol=1e-9)
    solver = sla.cg if symmetric else sla.bicgstab
    with np.errstate(all='ignore'):
        x, info = solver(a, b, M=m, tol=1e-8, atol=0, maxiter=3000)
    OUTCOMES[name] = (solver.__name__, info)
    if info == 0:
        assert residual(a, x, b) < 1e-6


OUTCOMES: dict = {}


def test_most_were_solved_by_scipy_with_m():
    """After the others: M is worth something."""
    if len(OUTCOMES) < len(FILES) // 2:
        pytest.skip('some matrices were left out')
    by = {kind: [info for solver, info in OUTCOMES.values() if solver == kind] for kind in ('cg', 'bicgstab')}
    print({kind: f'{sum(i == 0 for i in infos)} of {len(infos)}' for kind, infos in by.items()}, OUTCOMES)
    assert sum(i == 0 for i in by['cg']) >= 0.6 * len(by['cg'])
    assert sum(i == 0 for i in by['bicgstab']) >= 0.4 * len(by['bicgstab'])
