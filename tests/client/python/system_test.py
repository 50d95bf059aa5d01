"""spaid.System: what is neither sent nor built again, counted in bytes; M as SciPy's operator; what is lost is healed."""

import os
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import spaid
from conftest import QUICK, running
from problems import convection, poisson, residual, right_hand_side


@pytest.mark.parametrize('size', [20, 70])  # below and above what comes along with its first solve
def test_a_step_sends_values_and_right_hand_side_alone(client, size):
    a = poisson(size)
    n = a.shape[0]
    b = right_hand_side(a)
    system = client.system(a)
    first = system.solve(b, engine='fsai')
    assert first.timings.bytes_up == 8 * (n + 1) + 12 * a.nnz + 8 * n and first.reuse is None
    for k in range(1, 4):
        values = a.data * (1 + 0.01 * k)
        system.update(values)
        step = system.solve(b, engine='fsai')
        assert step.timings.bytes_up == 8 * a.nnz + 8 * n
        assert step.reuse.decision == 'kept' and step.preconditioner == first.preconditioner
        assert residual(sp.csr_matrix((values, a.indices, a.indptr)), step.x, b) < 2e-8
    assert system.solve(b, engine='fsai').timings.bytes_up == 8 * n  # of what is there
    rebuilt = system.solve(b, engine='fsai', reuse='rebuild')
    assert rebuilt.reuse.decision == 'rebuilt' and rebuilt.preconditioner != first.preconditioner
    assert system.solve(b, engine='fsai').preconditioner == rebuilt.preconditioner


def test_values_that_are_duplicates_and_unsorted(client):
    a = sp.coo_matrix(poisson(12))
    order = np.random.default_rng(1).permutation(2 * a.nnz)
    row, col = np.tile(a.row, 2)[order], np.tile(a.col, 2)[order]
    halves = np.tile(a.data / 2, 2)[order]
    b = right_hand_side(a)
    system = client.system(sp.coo_matrix((halves, (row, col)), shape=a.shape))
    assert residual(a, system.solve(b).x, b) < 2e-8
    system.update(halves * 3)
    step = system.solve(b)
    assert residual(3 * a, step.x, b) < 2e-8 and step.timings.bytes_up == 8 * a.nnz + 8 * a.shape[0]


def test_an_update_by_a_matrix(client):
    a = poisson(15)
    b = right_hand_side(a)
    system = client.system(a)
    system.solve(b, engine='fsai')
    system.update(a * 2)
    assert system.solve(b, engine='fsai').timings.bytes_up == 8 * a.nnz + 8 * a.shape[0]
    other = sp.csr_matrix(a + sp.diags([0.1], [3], shape=a.shape) + sp.diags([0.1], [-3], shape=a.shape))
    system.update(other)
    step = system.solve(b, engine='fsai')
    assert residual(other, step.x, b) < 2e-8 and step.timings.bytes_up > 12 * a.nnz and step.reuse.decision == 'kept'
    for bad, reason in ((np.ones(3), 'SIZE_MISMATCH'), (poisson(3), 'SIZE_MISMATCH')):
        with pytest.raises(spaid.InputError) as caught:
            system.update(bad)
        assert caught.value.reason == reason and caught.value.field == 'values'


def test_an_explicit_m_is_an_operator(client):
    a = sp.csc_matrix(convection(15))
    n = a.shape[0]
    m = client.system(a).preconditioner('static-spai', pattern_power=2)
    assert isinstance(m, sla.LinearOperator) and m.shape == (n, n) and m.dtype == float and m.factor is None
    dense = m.matrix.toarray()
    x, block = right_hand_side(a), right_hand_side(a, columns=3)
    assert np.allclose(m.matvec(x), dense @ x) and np.allclose(m.rmatvec(x), dense.T @ x)
    assert np.allclose(m.matmat(block), dense @ block) and np.allclose(m.rmatmat(block), dense.T @ block)
    assert np.allclose(m @ x, dense @ x) and np.allclose(m.T @ x, dense.T @ x) and np.allclose(m.H @ block, dense.T @ block)
    # The daemon's figures of M are so: ‖AM − I‖, and its density.
    assert np.isclose(np.linalg.norm(a.toarray() @ dense - np.eye(n)), m.quality.residual_frobenius)
    assert np.isclose(m.matrix.nnz / a.nnz, m.quality.density) and 'static-spai' in repr(m)


def test_a_factored_m_is_an_operator(client):
    a = poisson(15)
    m = client.system(a).preconditioner('afsai', k_max=10)
    g = m.factor.toarray()
    assert np.array_equal(g, np.tril(g)) and 'GᵀG' in repr(m)
    x, block = right_hand_side(a), right_hand_side(a, columns=2)
    dense = g.T @ g
    for product, expected in ((m.matvec(x), dense @ x), (m.rmatvec(x), dense @ x), (m.matmat(block), dense @ block),
                              (m.rmatmat(block), dense @ block), (m.matrix.toarray(), dense)):
        assert np.allclose(product, expected)
    assert np.allclose(np.diag(g @ a.toarray() @ g.T), 1)  # as FSAI promises
    assert m.quality.fsai.steps <= 10 and m.quality.dynamic_spai is None


@pytest.mark.parametrize('engine', ['jacobi', 'static-spai', 'dynamic-spai', 'auto'])
def test_every_engine_gives_an_operator(client, engine):
    a = convection(10)
    b = right_hand_side(a)
    system = client.system(a)
    m = system.preconditioner(engine)
    x, info = sla.bicgstab(a, b, M=m, tol=1e-10, atol=0)
    assert info == 0 and residual(a, x, b) < 1e-9
    assert system.estimate(engine).nnz >= m.info.nnz


def test_no_engine_is_no_m(client):
    with pytest.raises(spaid.SpaidError, match='NOTHING_TO_BUILD'):
        client.system(poisson(5)).preconditioner('none')


def test_m_of_new_values_brings_values_alone(client):
    a = convection(40)
    system = client.system(a)
    first = system.preconditioner('static-spai')
    down = 8 * (a.shape[0] + 1) + 12 * a.nnz
    assert first.timings.bytes_down == down
    system.update(a.data * 2)
    second = system.preconditioner('static-spai')
    assert second.timings.bytes_down == 8 * a.nnz and second.timings.rebuild
    assert np.allclose(second.matrix.data, first.matrix.data / 2)
    assert system.solve(right_hand_side(a), engine='static-spai').preconditioner == second.handle


def test_what_was_evicted_is_sent_and_built_again():
    a = poisson(40)
    b = right_hand_side(a)
    one = 8 * (a.shape[0] + 1) + 12 * a.nnz
    with running(f'--max-matrix-bytes={2 * one}', f'--matrix-store-bytes={3 * one}') as address, \
            spaid.Client(address) as client:
        system = client.system(a)
        first = system.solve(b, engine='fsai')
        for k in range(2, 10):  # each of another pattern
            client.solve(a + sp.eye(a.shape[0], k=k), b, engine='static-spai')
        with pytest.raises(spaid.SpaidError) as caught:
            client.matrix(first.matrix)
        assert caught.value.reason == 'HANDLE_EVICTED'
        again = system.solve(b, engine='fsai')
        assert again.converged and again.matrix != first.matrix and residual(a, again.x, b) < 2e-8


def test_a_deleted_pattern_and_m(client):
    a = poisson(33)
    b = right_hand_side(a)
    system = client.system(a, label='healed')
    first = system.solve(b, engine='fsai')
    client.delete_matrix(first.matrix)
    client.delete_preconditioner(first.preconditioner)
    system.update(a.data * 2)
    second = system.solve(b, engine='fsai')
    assert second.converged and second.timings.bytes_up > 12 * a.nnz
    client.delete_matrix(second.matrix)
    m = system.preconditioner('fsai')
    assert np.allclose(m.factor.diagonal() > 0, True) and client.matrix(system.matrix).label == 'healed'


def test_a_daemon_that_was_restarted(tmp_path):
    """On the same port: the system knows nothing of it but what it hears."""
    a = poisson(33)
    b = right_hand_side(a)
    sys.path.insert(0, os.environ['SPAID_SOURCE'] + '/tests/deploy')
    import daemon
    program = os.environ['SPAID_DAEMON']
    with daemon.running(program, QUICK) as address:
        client = spaid.Client(address, max_attempts=10)
        system = client.system(a)
        first = system.solve(b, engine='fsai')
    with daemon.running(program, [f'--address={address}', *QUICK[1:]]), client:
        second = system.solve(b, engine='fsai')
        assert second.converged and second.matrix != first.matrix and second.timings.bytes_up > 12 * a.nnz


def test_estimates(client):
    estimate = client.system(poisson(20)).estimate('static-spai', pattern_power=2)
    assert estimate.predicted_ms > 0 and estimate.host_bytes > 0 and estimate.choice.engine == 'static-spai'
