"""spaid.Client against the real daemon: solves, handles, what is refused, callbacks, many threads, forked processes."""

import concurrent.futures
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import spaid
from conftest import running
from problems import convection, poisson, residual, right_hand_side


def test_the_server_tells_of_itself(client):
    info = client.server_info()
    assert info.version == spaid.__version__ and info.tenant == 'default' and not info.draining
    assert {'static-spai', 'fsai', 'afsai', 'dynamic-spai'} <= set(info.engines) and 'gmres' in info.methods
    assert [d.name for d in info.devices if d.in_use] == ['cpu'] and info.limits.heartbeat_interval.total_seconds() > 0
    assert info.start_time.year >= 2024


@pytest.mark.parametrize('a', [poisson(20), convection(20), poisson(20).astype(np.float32), sp.csc_matrix(convection(15)),
                               sp.coo_matrix(poisson(9)), sp.dia_matrix(poisson(9))], ids=lambda a: a.format)
def test_solves(client, a):
    b = right_hand_side(a)
    result = client.solve(a, b, rtol=1e-10)
    assert result.converged and result.x.shape == b.shape and residual(a, result.x, b) <= 1.001e-10
    assert result.residual_norms[0] <= 1.001e-10 * np.linalg.norm(b)
    assert result.choice.engine and result.reason and result.timings.total_ms > 0 and result.iterations > 0
    assert result.history[-1] <= 1e-9 and result.histories_iterations[0].tolist() == sorted(
        result.histories_iterations[0].tolist())


def test_several_right_hand_sides(client):
    a = convection(15)
    b = right_hand_side(a, columns=3)
    result = client.solve(a, b, engine='static-spai', method='bicgstab', pattern_power=2)
    assert result.x.shape == b.shape and len(result.outcomes) == len(result.histories) == 3
    for k in range(3):
        one = client.solve(a, b[:, k], engine='static-spai', method='bicgstab', pattern_power=2)
        assert np.allclose(one.x, result.x[:, k], rtol=1e-6)
        assert one.iterations == result.outcomes[k].iterations
    assert client.solve(a, b[:, :1]).x.shape == (a.shape[0], 1)


def test_a_guess_an_output_and_nothing(client):
    a = poisson(12)
    b = right_hand_side(a)
    exact = client.solve(a, b, rtol=1e-12).x
    assert client.solve(a, b, x0=exact, engine='none').iterations <= 1
    out = np.full(b.shape, np.nan)
    result = client.solve(a, b, out=out)
    assert result.x is out and residual(a, out, b) < 2e-8
    assert client.solve(a, b, omit_solution=True).x is None


def test_not_converging_raises_nothing(client):
    a = poisson(30)
    result = client.solve(a, right_hand_side(a), engine='none', method='cg', max_iterations=3)
    assert not result.converged and result.outcomes[0].outcome == 'max-iterations' and result.iterations == 3
    assert 'max-iterations' in result.reason and result.x is not None and len(result.history) >= 3


def test_a_singular_system(client):
    a = poisson(10)
    a = sp.csr_matrix(a - sp.diags(np.asarray(a.sum(axis=1)).ravel()))
    b = right_hand_side(a)
    b -= b.mean()
    by_auto = client.solve(a, b)
    assert by_auto.converged and by_auto.null_space and abs(by_auto.x.sum()) < 1e-6
    by_vector = client.solve(a, b, null_vectors=np.ones(a.shape[0]))
    assert np.allclose(by_auto.x, by_vector.x, atol=1e-6)
    unreachable = client.solve(a, b + 1)
    assert not unreachable.converged and unreachable.outcomes[0].unreachable > 0.1


def test_handles(client):
    a = convection(11)
    b = right_hand_side(a)
    info = client.upload(a, label='upwind')
    assert (info.n, info.nnz, info.label) == (a.shape[0], a.nnz, 'upwind')
    assert not info.diagnosis.numerically_symmetric and info.diagnosis.missing_diagonal.count == 0
    again = client.upload(a)
    assert again.name == info.name and again.label == 'upwind'
    for handle in (info, info.name):
        assert residual(a, client.solve(handle, b).x, b) < 2e-8
    assert client.matrix(info.name).digest == client.matrix(info.name).digest
    assert info.name in [m.name for m in client.matrices()]
    client.delete_matrix(info.name)
    with pytest.raises(spaid.SpaidError) as caught:
        client.solve(info.name, b)
    assert (caught.value.code, caught.value.reason) == (spaid.Code.NOT_FOUND, 'HANDLE_UNKNOWN')
    assert caught.value.metadata == {'handle': info.name}


def test_preconditioners(client):
    a = poisson(14)
    system = client.system(a)
    m = system.preconditioner('fsai', pattern_power=2)
    assert m.handle in [p.name for p in client.preconditioners()]
    again = client.preconditioner(m.handle)
    assert (abs(again.factor - m.factor)).nnz == 0 and again.info.is_factor
    result = client.solve(a, right_hand_side(a), preconditioner=m)
    assert result.converged and result.preconditioner == m.handle
    assert client.solve(a, right_hand_side(a), preconditioner=m.handle).iterations == result.iterations
    client.delete_preconditioner(m.handle)
    with pytest.raises(spaid.SpaidError, match='HANDLE_UNKNOWN'):
        client.preconditioner(m.handle)


def test_known_content_is_not_sent(client):
    a = poisson(61)  # nobody else's; over the size that is hashed at once
    first = client.solve(a, right_hand_side(a))
    second = client.solve(a, right_hand_side(a))
    assert first.timings.bytes_up == 8 * (a.shape[0] + 1) + 12 * a.nnz + 8 * a.shape[0]
    assert second.timings.bytes_up == 8 * a.shape[0] and second.matrix == first.matrix
    # Without digests it goes again, and is found by its content there.
    with spaid.Client(client.address, send_digests=False) as blind:
        third = blind.solve(a, right_hand_side(a))
    assert third.timings.bytes_up == first.timings.bytes_up and third.matrix == first.matrix


@pytest.mark.parametrize('kwargs,field,reason', [
    ({'b': np.ones(7)}, 'b', 'SIZE_MISMATCH'), ({'x0': np.ones((225, 2))}, 'x0', 'SIZE_MISMATCH'),
    ({'out': np.ones(225, np.float32)}, 'out', 'SIZE_MISMATCH'), ({'b': np.ones((225, 1025))}, 'b', 'SIZE_MISMATCH'),
    ({'null_vectors': np.ones(3)}, 'null_vectors', 'SIZE_MISMATCH'), ({'priority': 'now'}, 'priority', 'BAD_OPTION'),
    ({'max_run': 0}, 'max_run', 'BAD_OPTION'), ({'null_space': 'x'}, 'null_space', 'BAD_OPTION'),
    ({'reuse': 'auto'}, 'reuse', 'BAD_OPTION'), ({'reuse': 'auto', 'engine': 'fsai'}, 'reuse', 'BAD_OPTION'),
    ({'preconditioner': 3}, 'preconditioner', 'BAD_OPTION'),
    ({'preconditioner': 'preconditioners/1', 'engine': 'fsai'}, 'engine', 'BAD_OPTION'),
    ({'preconditioner': 'preconditioners/1', 'k_max': 3}, 'k_max', 'BAD_OPTION'),
    ({'preconditioner': 'preconditioners/1', 'reuse': 'often'}, 'reuse', 'BAD_OPTION'),
    ({'preconditioner': 'preconditioners/1', 'reuse': 'auto', 'reuse_factor': 0.5}, 'factor', 'BAD_OPTION'),
    ({'timeout': 0}, 'timeout', 'BAD_OPTION')])
def test_arguments_that_are_refused_here(client, kwargs, field, reason):
    a = poisson(15)
    with pytest.raises(spaid.InputError) as caught:
        client.solve(a, kwargs.pop('b', np.ones(225)), **kwargs)
    assert (caught.value.field, caught.value.reason) == (field, reason)


def test_what_the_server_refuses(client):
    a = poisson(10)
    with pytest.raises(spaid.SpaidError) as caught:
        client.system(convection(8)).preconditioner('afsai')
    assert (caught.value.code, caught.value.reason) == (spaid.Code.FAILED_PRECONDITION, 'NOT_SYMMETRIC')
    nan = a.copy()
    nan.data[5] = np.nan
    with pytest.raises(spaid.SpaidError) as caught:
        client.upload(nan)
    assert caught.value.reason == 'NON_FINITE_VALUE' and caught.value.metadata['index']
    with pytest.raises(spaid.SpaidError, match='BAD_LABEL'):
        client.upload(a, label='x' * 300)
    with pytest.raises(spaid.SpaidError) as caught:
        client.solve(a, right_hand_side(a), timeout=1e-3, engine='afsai')
    assert caught.value.code == spaid.Code.DEADLINE_EXCEEDED
    assert pickle.loads(pickle.dumps(caught.value)).code == caught.value.code


def test_nobody_there():
    with spaid.Client('127.0.0.1:1', max_attempts=2) as client, pytest.raises(spaid.SpaidError) as caught:
        client.server_info()
    assert caught.value.reason == 'UNREACHABLE' and '127.0.0.1:1' in str(caught.value)


def test_a_closed_client(address):
    client = spaid.Client(address)
    client.server_info()
    client.close()
    with pytest.raises(spaid.SpaidError, match='CLOSED'):
        client.server_info()


def test_callbacks(client):
    a = poisson(40) * 1.25  # nobody else's
    reports = []
    result = client.solve(a, right_hand_side(a), engine='afsai', callback=reports.append)
    kinds = [r.kind for r in reports]
    assert kinds[-1] == 'download' and {'upload', 'queued', 'started', 'residuals', 'quality', 'finished'} <= set(kinds)
    numbers = [r.event_number for r in reports if r.event_number]
    assert numbers == list(range(1, len(numbers) + 1))
    told = [r.relative_residual for report in reports for r in report.residuals]
    assert told == result.history.tolist()
    assert next(r for r in reports if r.kind == 'finished').job_info.state == 'succeeded'

    class Enough(Exception):
        pass

    def fail(report):
        if report.kind == 'queued':
            job.append(report.job)
            raise Enough
    job = []
    with pytest.raises(Enough):
        client.solve(poisson(300), np.ones(90000), engine='none', rtol=1e-14, callback=fail)
    assert client.job(job[0]).watch(timeout=60).state in ('cancelled', 'failed')


def test_many_threads_share_a_client(client):
    matrices = [poisson(12 + k) for k in range(4)]

    def one(k):
        a = matrices[k % 4]
        b = right_hand_side(a, seed=k)
        return residual(a, client.solve(a, b, engine='fsai').x, b)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert max(pool.map(one, range(32))) < 2e-8


def in_child(work):
    """What `work`, or its error, says in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, str(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, 'rb') as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_forked_process_connects_anew(client):
    a = poisson(12)
    b = right_hand_side(a)
    system = client.system(a)
    expected = system.solve(b).x
    assert in_child(lambda: 'ok' if np.allclose(system.solve(b, timeout=60).x, expected) else 'other') == 'ok'
    assert np.allclose(system.solve(b).x, expected)  # nor did the child end the parent's


def test_a_process_forked_during_a_call_refuses(client):
    a = poisson(30)
    answers = []

    def fork_once(_):
        if not answers:
            answers.append(in_child(lambda: client.solve(a, right_hand_side(a), timeout=60).reason))
    assert residual(a, client.solve(a, right_hand_side(a), callback=fork_once).x, right_hand_side(a)) < 2e-8
    assert 'FORKED_DURING_CALL' in answers[0] and 'fork between calls' in answers[0]


def test_forks_beside_calls_that_have_just_ended(client):
    """Their threads are gone from gRPC before the fork."""
    a = poisson(12)
    b = right_hand_side(a)
    for _ in range(10):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: client.solve(a, b), range(4)))
        assert in_child(lambda: str(client.solve(a, b, timeout=60).converged)) == 'True'
        assert client.solve(a, b).converged


def test_the_default_client(address, monkeypatch):
    monkeypatch.setenv('SPAID_ADDRESS', address)
    a = poisson(8)
    b = right_hand_side(a)
    assert residual(a, spaid.solve(a, b).x, b) < 2e-8
    assert spaid.default_client() is spaid.default_client()
    with running() as another:
        monkeypatch.setenv('SPAID_ADDRESS', another)
        assert spaid.default_client().address == another and spaid.solve(a, b).converged


def test_an_iteration_has_its_options(client):
    a = convection(20)
    b = right_hand_side(a)
    gmres = client.solve(a, b, engine='jacobi', method='gmres', restart=5)
    assert gmres.method == 'gmres' and gmres.converged
    assert client.solve(a, b, engine='jacobi', method='gmres', restart=300).iterations < gmres.iterations
    assert client.solve(a, b, engine='static-spai', preconditioner_storage='fp32').preconditioner_storage == 'fp32'
    with pytest.raises(spaid.SpaidError, match='NOT_SYMMETRIC'):
        client.solve(a, b, method='minres', engine='none')
    budget = client.solve(poisson(20), np.ones(400), engine='afsai', time_budget=10.0, k_max=3)
    assert budget.quality.fsai.steps == 3


WITHOUT = """
import sys
sys.modules['scipy'] = sys.modules['xxhash'] = None
import numpy as np
import spaid
n = 900
indptr = np.concatenate([[0], np.cumsum(np.r_[2, np.full(n - 2, 3), 2])])
indices = np.concatenate([[0, 1], *[[i - 1, i, i + 1] for i in range(1, n - 1)], [n - 2, n - 1]])
data = np.where(indices == np.repeat(np.arange(n), np.diff(indptr)), 4.0, -1.0)
with spaid.Client(sys.argv[1]) as client:
    system = client.system((data, indices, indptr))
    for k in (1, 2):
        result = system.solve(np.ones(n), engine='fsai')
        assert result.converged and np.isclose(result.x[n // 2], 0.5 / k, rtol=1e-6), result.x
        system.update(data * 2)
    twice = [client.solve((data, indices, indptr), np.ones(n)).timings.bytes_up for _ in range(2)]
    assert twice == [8 * (n + 1) + 12 * data.size + 8 * n] * 2, twice  # nobody asks first
    try:
        system.preconditioner('fsai')
    except spaid.InputError as error:
        assert error.reason == 'NO_SCIPY' and 'python3-scipy' in str(error)
        print('all right')
"""


def test_without_scipy_and_xxhash(address):
    result = subprocess.run([sys.executable, '-c', WITHOUT, address], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    assert result.stdout == 'all right\n' and result.returncode == 0, result.stdout
