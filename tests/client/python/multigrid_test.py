"""Engine amg: vectors as arrays, figures by level, and M by its parts, which is what the daemon applies."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import spaid
import spaid.aio
from problems import convection, poisson, residual, right_hand_side

KINDS = [
    (poisson, {}),
    (poisson, {'smoother': 'chebyshev', 'chebyshev_degree': 3, 'cycle': 'w'}),
    (poisson, {'smoother': 'afsai', 'pre_sweeps': 2, 'post_sweeps': 1}),
    (poisson, {'smoother': 'jacobi', 'max_levels': 2, 'max_coarse_size': 5}),
    (convection, {'smoother': 'static-spai'}),
    (lambda n: -poisson(n), {}),
]


@pytest.mark.parametrize('make, options', KINDS)
def test_parts_apply_the_m_of_the_daemon(client, make, options):
    """The first step of GMRES from zero is M b, up to a factor."""
    a = make(40)
    b = right_hand_side(a)
    system = client.system(a)
    m = system.preconditioner('amg', hierarchy_precision='fp64', **options)
    step = system.solve(b, preconditioner=m, method='gmres', max_iterations=1, rtol=1e-15).x
    product = m @ b
    scale = (product @ step) / (product @ product)
    assert np.allclose(step, scale * product, rtol=0, atol=1e-10 * np.abs(step).max())
    two = np.column_stack([b, 2 * b])
    assert np.allclose(m @ two, np.column_stack([product, 2 * product]))
    again = client.preconditioner(m.handle)
    assert np.array_equal(again @ b, product) and 'Multigrid' in repr(again)


def test_it_is_an_operator_for_scipy(client):
    a = poisson(60)
    b = right_hand_side(a)
    m = client.system(a).preconditioner('amg')
    counted = []
    x, info = sla.cg(a, b, M=m, tol=1e-10, atol=0, callback=counted.append)
    assert info == 0 and residual(a, x, b) < 2e-10 and len(counted) < 30
    assert np.allclose(m.rmatvec(b), m.matvec(b))  # symmetric
    levels = m.quality.amg.levels
    assert levels[0].rows == a.shape[0] and len(levels) > 1 and m.quality.amg.inverted
    assert m.parts['p', 0].shape == (levels[0].rows, levels[1].rows) == m.parts['r', 0].shape[::-1]
    one_sided = client.system(a).preconditioner('amg', post_sweeps=0)
    with pytest.raises(spaid.InputError, match='NOT_SYMMETRIC|not symmetric'):
        one_sided.rmatvec(b)


def test_parts_one_by_one(client):
    a = poisson(40)
    m = client.system(a).preconditioner('amg')
    assert (client.part(m, 'p') != m.parts['p', 0]).nnz == 0
    last = len(m.quality.amg.levels) - 1
    inverse = client.part(m.handle, 'coarse-inverse', last)
    assert inverse.shape == (m.quality.amg.levels[-1].rows,) * 2
    with pytest.raises(spaid.SpaidError, match='UNKNOWN_PART'):
        client.part(m, 'p', last)
    with pytest.raises(spaid.InputError, match='near-null'):
        client.part(m, 'q')
    with pytest.raises(spaid.InputError):
        client.part(m, 'p', -1)


def test_near_null_vectors_are_sent_once(client):
    a = poisson(40)
    n = a.shape[0]
    b = right_hand_side(a)
    system = client.system(a)
    wild = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    plain = system.preconditioner('amg')
    m = system.preconditioner('amg', near_null_space=wild)
    assert m.info.spec['near_null_space'].startswith('matrices/')
    assert m.quality.amg.near_null_rayleigh > 10 * plain.quality.amg.near_null_rayleigh
    before = len(client.matrices())
    assert system.solve(b, engine='amg', near_null_space=wild).converged
    assert len(client.matrices()) == before
    client.delete_matrix(m.info.spec['near_null_space'])
    assert system.estimate('amg', near_null_space=wild).nnz > a.nnz  # sent again
    assert client.solve(a, b, engine='amg', near_null_space=np.ones((n, 1))).converged
    handle = client.upload(sp.csc_matrix((np.ones(n), (np.arange(n), np.zeros(n, int))), shape=(n, n)))
    assert system.solve(b, engine='amg', near_null_space=handle).converged
    with pytest.raises(spaid.SpaidError, match='RANK_DEFICIENT'):
        system.solve(b, engine='amg', near_null_space=np.ones((n, 2)))
    for wrong in (np.ones((2, 3)), np.ones((n, 1, 1)), np.ones(n) * 1j, np.empty((0, 1))):
        with pytest.raises(spaid.InputError):
            system.solve(b, engine='amg', near_null_space=wrong)
    with pytest.raises(spaid.InputError, match='is not read by engine fsai'):
        system.solve(b, engine='fsai', near_null_space=wild)


def test_coordinates_of_nodes(client):
    side = 20
    scalar = poisson(side)
    a = sp.csr_matrix(sp.kron(scalar, np.array([[2.0, 0.5], [0.5, 2.0]])))  # two unknowns a node
    b = right_hand_side(a)
    x, y = np.meshgrid(np.arange(side, dtype=float), np.arange(side, dtype=float))
    places = np.column_stack([x.ravel(), y.ravel()])
    result = client.solve(a, b, engine='amg', node_size=2, coordinates=places)
    assert result.converged and residual(a, result.x, b) < 2e-8
    with pytest.raises(spaid.SpaidError, match='BAD_COORDINATES'):
        client.solve(a, b, engine='amg', coordinates=places[:, :1])


@pytest.mark.asyncio
async def test_without_blocking(address):
    a = poisson(40)
    async with spaid.aio.Client(address) as client:
        m = await client.system(a).preconditioner('amg', near_null_space=np.ones(a.shape[0]))
        assert ((await client.part(m, 'r')) != m.parts['r', 0]).nnz == 0
