"""Memory shared with the daemon on the same host: named, staged, refused, and lost."""

import gc
import os
import socket
import threading

import numpy as np
import pytest

import spaid
from conftest import QUICK, running
from problems import convection, poisson, residual, right_hand_side
from spaid import _wire
from spaid._local import LocalLink, StagePool

BIG = 1 << 18  # bytes: what is staged


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp('local') / 'socket')


@pytest.fixture(scope='module')
def daemon_address(path):
    with running(f'--local-socket={path}') as address:
        yield address


@pytest.fixture
def shared(daemon_address, path):
    with spaid.Client(daemon_address, local_socket=path) as client:
        yield client


def bytes_of(a):
    return 8 * (a.shape[0] + 1) + 12 * a.nnz


def test_arrays_are_taken_where_they_lie(shared):
    a = poisson(30)
    data, b, x = shared.allocate(a.nnz), shared.allocate(a.shape[0]), shared.allocate(a.shape[0])
    indices, indptr = shared.allocate(a.nnz, np.int32), shared.allocate(a.shape[0] + 1, np.int64)
    data[:], indices[:], indptr[:], b[:] = a.data, a.indices, a.indptr, right_hand_side(a)
    result = shared.solve((data, indices, indptr), b, out=x)
    assert result.x is x and residual(a, x, b) < 2e-8
    status = shared.local_status()
    assert status.available and status.why == '' and status.tenant == 'default'
    assert (status.shared_bytes, status.fallback_bytes) == (bytes_of(a) + 16 * a.shape[0], 0)


def test_large_arrays_of_ordinary_memory_are_staged(shared):
    a = poisson(200)
    b = right_hand_side(a)
    result = shared.solve(a, b, engine='fsai', rtol=1e-6)
    assert result.converged and residual(a, result.x, b) < 2e-6
    # values, indices, pointers, b and x are all over 256 KiB
    assert shared.local_status().shared_bytes == bytes_of(a) + 16 * a.shape[0]
    keep = result.x.copy()
    again = shared.solve(a, 2 * b, engine='fsai', rtol=1e-6)
    assert np.array_equal(result.x, keep) and residual(a, again.x, 2 * b) < 2e-6  # its memory was another's
    columns = right_hand_side(a, columns=2)
    assert residual(a, shared.solve(a, columns, engine='fsai', rtol=1e-6).x, columns) < 2e-6
    system = shared.system(a)
    system.solve(b, engine='fsai', rtol=1e-6)
    system.update(a.data * 2)
    assert residual(2 * a, system.solve(b, engine='fsai', rtol=1e-6).x, b) < 2e-6


def test_segments_are_kept_and_given_back(shared):
    a = poisson(200)
    shared.upload(a)
    link, pool = shared._driver.core.link, shared._driver.core.pool
    kept = len(link._segments)
    for k in range(5):
        shared.upload(a * (k + 2))
    assert len(link._segments) == kept == 1 and len(pool._free) == 1
    array = shared.allocate(10)
    view = array[2:]
    shared.local_status()
    assert len(link._segments) == 2
    del array
    gc.collect()
    view[:] = 1
    link._sweep()
    assert len(link._segments) == 2  # the view lives
    descriptors = len(os.listdir('/proc/self/fd'))
    del view
    gc.collect()
    link._sweep()
    assert len(link._segments) == 1 and len(os.listdir('/proc/self/fd')) == descriptors - 2  # mmap has its own


def test_more_than_may_be_staged_is_sent(daemon_address, path):
    a = poisson(200)
    with spaid.Client(daemon_address, local_socket=path, staging_bytes=1 << 20) as client:
        result = client.solve(a, right_hand_side(a), engine='jacobi', rtol=1e-2)
        assert result.converged and client.local_status().shared_bytes == 2 * 8 * a.shape[0]
    with spaid.Client(daemon_address, local_socket=path, staging_bytes=0) as client:
        assert client.solve(a, right_hand_side(a), engine='jacobi', rtol=1e-2).converged
        assert client.local_status().shared_bytes == 0


def test_bad_input_is_refused_as_on_the_wire(shared):
    a = poisson(30)
    data = shared.allocate(a.nnz)
    data[:] = a.data
    data[7] = np.inf
    with pytest.raises(spaid.SpaidError) as caught:
        shared.upload((data, a.indices, a.indptr))
    assert caught.value.reason == 'NON_FINITE_VALUE' and caught.value.metadata['index'] == '7'


def test_a_solution_over_its_right_hand_side(shared):
    a = poisson(30)
    both = shared.allocate(a.shape[0])
    both[:] = b = right_hand_side(a)
    assert shared.solve(a, both, out=both).x is both and residual(a, both, b) < 2e-8


def test_an_array_that_begins_askew_is_sent(shared):
    a = poisson(20).astype(np.float32)
    data = shared.allocate(a.nnz + 1, np.float32)[1:]
    data[:] = a.data
    b = right_hand_side(a)
    assert residual(a, shared.solve((data, a.indices, a.indptr), b).x, b) < 2e-8
    assert shared.local_status().fallback_bytes > 0


def test_many_threads_share_one_client(shared):
    failures = []

    def work(seed):
        a = convection(60) * (1 + seed)
        b = np.tile(right_hand_side(a, seed), (12, 1)).T  # some 340 KiB
        for _ in range(3):
            x = shared.solve(a, b, engine='static-spai').x
            if not residual(a, x, b) < 2e-8:
                failures.append(seed)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and shared.local_status().shared_bytes > 6 * 3 * 2 * BIG


def test_it_outlives_the_daemon(tmp_path):
    import daemon
    program, path = os.environ['SPAID_DAEMON'], str(tmp_path / 'socket')
    a = poisson(200)
    b = right_hand_side(a)
    with daemon.running(program, [*QUICK, f'--local-socket={path}']) as address:
        client = spaid.Client(address, local_socket=path, max_attempts=10)
        mine = client.allocate(a.shape[0])
        mine[:] = b
        client.solve(a, mine, engine='fsai', rtol=1e-4)
    with daemon.running(program, [f'--address={address}', *QUICK[1:], f'--local-socket={path}']), client:
        before = client.local_status().shared_bytes
        assert residual(a, client.solve(a, mine, engine='fsai', rtol=1e-4).x, b) < 2e-4
        assert client.local_status().shared_bytes - before >= bytes_of(a) and client.local_status().available


def test_the_socket_of_another_daemon(address, path, daemon_address):
    a = poisson(200)
    b = right_hand_side(a)
    with spaid.Client(address, local_socket=path) as client:  # the one, and the socket of the other
        assert residual(a, client.solve(a, b, engine='fsai', rtol=1e-4).x, b) < 2e-4
        assert 'are they the same daemon' in client.local_status().why
        assert client.local_status().reason == 'LEASE_UNKNOWN'
        assert client.solve(a, b, engine='fsai', rtol=1e-4).converged


def test_over_the_servers_limits(tmp_path):
    path = str(tmp_path / 'socket')
    a = poisson(200)
    with running(f'--local-socket={path}', '--local-bytes=1048576') as address, \
            spaid.Client(address, local_socket=path) as client:
        assert client.solve(a, right_hand_side(a), engine='jacobi', rtol=1e-2).converged
        status = client.local_status()
        assert not status.available and status.reason == 'SEGMENTS_FULL' and status.shared_bytes == 0
        small = client.allocate(1000)
        assert small.sum() == 0


@pytest.mark.parametrize('where,text', [('/nowhere/local', 'is the daemon on this host'), ('', 'local_socket is not given'),
                                        ('/' + 'x' * 200, 'cannot connect')])
def test_it_says_why_there_is_none(address, where, text):
    with spaid.Client(address, local_socket=where) as client:
        assert text in client.local_status().why
        array = client.allocate((3, 2))
        assert array.shape == (3, 2) and array.flags.f_contiguous
        assert client.solve(poisson(200), np.ones(40000), engine='jacobi', rtol=1e-2).converged


def answering(folder, *answers):
    """A socket that gives these answers, whatever it is asked."""
    path = str(folder / 'other')
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()

    def serve():
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                if not connection.recv(8192):
                    return
                connection.send(answer)
        listener.close()
    thread = threading.Thread(target=serve)
    thread.start()
    return path, thread


def test_a_lease_is_given_up_with_its_array(tmp_path):
    path = str(tmp_path / 'socket')
    a = poisson(30)
    with running(f'--local-socket={path}', '--local-segments=1') as address, \
            spaid.Client(address, local_socket=path) as client:
        for k in range(3):  # there is room for one at a time
            b = client.allocate(a.shape[0])
            b[:] = k + 1
            client.solve(a, b)
            del b
            gc.collect()
        assert client.local_status().shared_bytes == 3 * 8 * a.shape[0]


def test_without_a_daemon_shared_arrays_are_sent(address):
    with spaid.Client(address, local_socket='/nowhere/local') as client:
        b = client.allocate(900)
        b[:] = 1
        assert client.solve(poisson(30), b).converged
        assert client.local_status().fallback_bytes == b.nbytes


def test_a_machine_without_memory(shared, monkeypatch):
    def none(*_):
        raise OSError(12, 'Cannot allocate memory')
    descriptors = len(os.listdir('/proc/self/fd'))
    for name in ('os.posix_fallocate', 'os.memfd_create'):
        with monkeypatch.context() as patch:
            patch.setattr(name, none)
            with pytest.raises(spaid.SpaidError, match='OUT_OF_MEMORY'):
                shared.allocate(1000)
            a = poisson(200)
            assert shared.solve(a, np.ones(40000), engine='jacobi', rtol=1e-2).converged  # sent as it is
    assert len(os.listdir('/proc/self/fd')) <= descriptors + 8  # gRPC's and the socket
    assert shared.local_status().shared_bytes == 0


def test_an_older_kernel(shared, monkeypatch):
    make = os.memfd_create

    def refuse_new_flags(name, flags):
        if flags & 8:
            raise OSError(22, 'Invalid argument')
        return make(name, flags)
    monkeypatch.setattr('os.memfd_create', refuse_new_flags)
    b = shared.allocate(900)
    b[:] = 1
    assert shared.solve(poisson(30), b).converged and shared.local_status().shared_bytes == b.nbytes


class Usable:
    """A link that counts what it gave."""

    def usable(self):
        return True

    def allocate(self, size):
        return np.zeros(size, np.uint8)


def test_a_pool_keeps_within_its_limit():
    pool = StagePool(Usable(), 40 << 20)
    first = pool.take([20 << 20])
    assert pool.take([20 << 20]) is None  # 32 MiB are taken
    first.keep()
    second = pool.take([1])
    assert second._buffer is first._buffer
    second.keep()
    del first, second
    third = pool.take([33 << 20])
    assert third is not None  # the kept one gave way
    assert pool.take([1 << 20]) is None
    del third
    assert pool.take([1 << 20]) is not None  # the one that was dropped is gone
    assert pool.take([]) is None and pool.take([41 << 20]) is None


def test_sockets_of_strangers(tmp_path):
    refusal = _wire.v1('LocalReply')(error={'code': 7, 'message': 'not you'}).SerializeToString()
    for k, (answers, text) in enumerate((((b'\xff\xff',), 'not in this protocol'), ((), 'it hung up|Connection reset'),
                                         ((refusal,), 'not you'))):
        folder = tmp_path / str(k)
        folder.mkdir()
        path, thread = answering(folder, *answers)
        link = LocalLink(path, '')
        status = link.status()
        link.close()
        thread.join()
        assert not status.available
        assert any(part in status.why for part in text.split('|')), status.why


def test_a_socket_that_never_answers(tmp_path, monkeypatch):
    monkeypatch.setattr('spaid._local._PATIENCE', 0.1)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with listener:
        listener.bind(str(tmp_path / 'mute'))
        listener.listen()
        link = LocalLink(str(tmp_path / 'mute'), '')
        assert 'it takes too long' in link.status().why
        link.close()


def test_a_socket_that_hangs_up_at_once(tmp_path):
    """Its last word can be read after all."""
    refusal = _wire.v1('LocalReply')(error={'code': 7, 'message': 'not you'}).SerializeToString()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.send(refusal)
    theirs.close()
    link = LocalLink('/nowhere', '')
    link._socket = ours
    assert link._ask(_wire.v1('LocalRequest')(release={'lease': 'x'})) is None
    assert link._why == 'not you'
    link.close()


def test_allocations_that_cannot_be(shared):
    with pytest.raises(spaid.InputError, match='numbers are needed'):
        shared.allocate(3, object)
    with pytest.raises(spaid.InputError, match='numbers are needed'):
        shared.allocate(-3)
    with pytest.raises(spaid.SpaidError) as caught:
        shared.allocate(1 << 50)
    assert caught.value.reason == 'OUT_OF_MEMORY'
    assert shared.allocate(0).size == 0


def test_a_forked_process_has_segments_of_its_own(shared):
    a = poisson(200)
    b = right_hand_side(a)
    shared.solve(a, b, engine='fsai', rtol=1e-4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            good = residual(a, shared.solve(a, 3 * b, engine='fsai', rtol=1e-4, timeout=60).x, 3 * b) < 2e-4
            os.write(write, b'ok' if good and shared.local_status().available else b'wrong')
        except BaseException as error:
            os.write(write, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write)
    assert residual(a, shared.solve(a, b, engine='fsai', rtol=1e-4).x, b) < 2e-4
    with os.fdopen(read, 'rb') as pipe:
        assert pipe.read() == b'ok'
    os.waitpid(child, 0)
