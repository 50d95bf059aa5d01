"""spaid.scipy.solve in SciPy's convention, and M for SciPy's own solvers on SciPy's own test matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import spaid
import spaid.scipy
from problems import convection, poisson, residual, right_hand_side

iterative = pytest.importorskip('scipy.sparse.linalg._isolve.tests.test_iterative', reason='SciPy has no tests here')
CASES = [case for case in iterative.IterativeParams().cases if not np.iscomplexobj(case.A)
         and not (sp.issparse(case.A) and case.A.dtype.kind == 'c')]


def test_the_convention(client):
    a = poisson(15)
    b = right_hand_side(a)
    x, info = spaid.scipy.solve(a, b, rtol=1e-9, client=client)
    expected, _ = sla.cg(a, b, tol=1e-9, atol=0)
    assert info == 0 and np.allclose(x, expected, atol=1e-6)
    assert np.array_equal(spaid.scipy.solve(a, b, tol=1e-9, client=client)[0], x)
    column, info = spaid.scipy.solve(a, b[:, None], client=client)
    assert column.shape == (a.shape[0], 1) and info == 0
    x, info = spaid.scipy.solve(a, b, maxiter=4, engine='none', method='cg', client=client)
    assert info == 4 and x.shape == b.shape
    assert spaid.scipy.solve(a, b, x0=expected, rtol=1e-6, engine='none', client=client)[1] == 0
    history = []
    spaid.scipy.solve(a, b, callback=history.append, client=client)
    assert history[-1] <= 1e-5 and all(isinstance(value, float) for value in history)
    m = client.system(a).preconditioner('fsai')
    assert spaid.scipy.solve(a, b, M=m, client=client)[1] == 0
    with pytest.raises(spaid.InputError, match='one right-hand side'):
        spaid.scipy.solve(a, np.ones((225, 2)), client=client)
    with pytest.raises(spaid.SpaidError):
        spaid.scipy.solve(convection(5), np.ones(25), engine='fsai', client=client)


def test_an_indefinite_system_is_a_breakdown(client):
    a = sp.diags([1.0, -1.0, 1.0, 2.0], format='csr')
    x, info = spaid.scipy.solve(a, np.ones(4), engine='none', method='cg', client=client)
    assert info < 0 and x.shape == (4,)


def test_the_default_client_serves(address, monkeypatch):
    monkeypatch.setenv('SPAID_ADDRESS', address)
    assert spaid.scipy.solve(poisson(6), np.ones(36))[1] == 0


def names():
    return [f'{case.name}-{np.asarray(case.A.data if sp.issparse(case.A) else case.A).dtype}' for case in CASES]


def test_there_are_cases_of_scipy():
    assert len(CASES) >= 15


@pytest.mark.parametrize('case', CASES, ids=names())
def test_scipys_own_matrices_are_solved(client, case):
    a = sp.csr_matrix(case.A)
    b = case.b.astype(float)
    result = client.solve(a, b, rtol=1e-8)
    assert result.converged, result.reason
    assert residual(a, result.x, b) < 2e-8
    expected = np.linalg.solve(a.toarray().astype(float), b)
    condition = np.linalg.cond(a.toarray().astype(float))
    assert np.linalg.norm(result.x - expected) <= 2e-8 * condition * np.linalg.norm(expected)


@pytest.mark.parametrize('case', CASES, ids=names())
def test_m_serves_scipys_solvers(client, case):
    a = sp.csr_matrix(case.A).astype(float)
    b = case.b.astype(float)
    dense = a.toarray()
    definite = np.array_equal(dense, dense.T) and np.linalg.eigvalsh(dense).min() > 0
    system = client.system(a)
    if definite:
        x, info = sla.cg(a, b, M=system.preconditioner('afsai'), tol=1e-8, atol=0)
    else:
        x, info = sla.gmres(a, b, M=system.preconditioner('static-spai', pattern_power=2), tol=1e-8, atol=0,
                            restart=len(b))
    assert info == 0 and residual(a, x, b) < 1e-6
