"""Several daemons for one client: who is asked, what handles end in, the dead and their matrices; and traces."""

import asyncio
import contextlib
import socket
import threading

import pytest

import spaid
import spaid.aio
from conftest import running
from problems import convection, poisson, residual, right_hand_side
from spaid import _digest, _matrix
from spaid._replicas import Replicas, affinity_of, rendezvous
from spaid.errors import Code, SpaidError

TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
PARENT = f'00-{TRACE}-00f067aa0ba902b7-01'


def nobody():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return f'127.0.0.1:{probe.getsockname()[1]}'


def test_the_order_is_the_contracts():
    # The C++ client's test has the same.
    assert rendezvous(('a:1', 'b:1', 'c:1'), 'a1b2c3d4') == ['a:1', 'c:1', 'b:1']
    assert rendezvous(('c:1', 'a:1', 'b:1'), '') == ['c:1', 'a:1', 'b:1']
    assert affinity_of('matrices/00-a1b2c3d4') == 'a1b2c3d4'
    assert affinity_of('matrices/00-none') == affinity_of('matrices/00') == affinity_of('') == ''


def test_a_dead_one_is_skipped():
    replicas = Replicas(('a:1', 'b:1'))
    assert replicas.pick('') == 'a:1'
    assert replicas.ended('a:1', SpaidError(Code.UNAVAILABLE, 'UNREACHABLE', ''))
    assert replicas.pick('') == 'b:1'
    assert not replicas.ended('b:1', SpaidError(Code.UNAVAILABLE, 'DRAINING', ''))
    assert replicas.pick('') == 'a:1', 'where all are away the first is asked'
    assert not replicas.ended('a:1', SpaidError(Code.NOT_FOUND, 'HANDLE_UNKNOWN', ''))
    assert replicas.pick('') == 'a:1'


@pytest.mark.parametrize('text', [',', 'a:1,', 'a:1,a:1'])
def test_addresses_are_separated_by_commas_alone(text):
    with pytest.raises(spaid.InputError, match='address'):
        spaid.Client(text)


def test_every_matrix_has_one_daemon_and_moves_when_it_dies():
    problems = [poisson(n) for n in range(6, 18)] + [convection(n) for n in range(6, 18)]
    with contextlib.ExitStack() as stack:
        first = contextlib.ExitStack()
        addresses = [first.enter_context(running()), stack.enter_context(running())]
        client = stack.enter_context(spaid.Client(','.join(addresses)))
        systems = []
        for a in problems:
            system = client.system(a)
            b = right_hand_side(a)
            assert residual(a, system.solve(b, engine='jacobi').x, b) < 1e-6
            assert affinity_of(system.matrix) == _digest.affinity(_matrix.take(a))
            systems.append((system, a, b))
        places = []
        for system, *_ in systems:
            place = rendezvous(tuple(addresses), affinity_of(system.matrix))[0]
            with spaid.Client(place) as alone:
                assert alone.matrix(system.matrix).name == system.matrix
            places.append(place)
        assert set(places) == set(addresses)
        first.close()  # the daemon has gone
        for system, a, b in systems:
            system.update(2 * a)
            assert residual(2 * a, system.solve(b, engine='jacobi').x, b) < 1e-6


def test_asyncio_has_several_too(address):
    async def solve():
        a = poisson(8)
        async with spaid.aio.Client(f'{nobody()},{address}') as client:
            return a, (await client.solve(a, right_hand_side(a))).x
    a, x = asyncio.run(solve())
    assert residual(a, x, right_hand_side(a)) < 1e-6


def test_calls_are_in_the_trace_of_their_caller(address, monkeypatch):
    a = poisson(8)
    monkeypatch.setenv('TRACEPARENT', 'nonsense')
    with spaid.Client(address, traceparent=PARENT) as client:
        job = client.system(a).start_solve(right_hand_side(a))
        assert job.wait().info.trace_id == TRACE
        with pytest.raises(SpaidError) as caught:
            client.matrix('matrices/none')
        assert caught.value.metadata['trace_id'] == TRACE
    with spaid.Client(address) as client:
        assert client.system(a).start_solve(right_hand_side(a)).wait().info.trace_id == ''
    monkeypatch.setenv('TRACEPARENT', PARENT)
    with spaid.Client(address) as client:
        assert client.system(a).start_solve(right_hand_side(a)).wait().info.trace_id == TRACE
    with pytest.raises(spaid.InputError, match='traceparent'):
        spaid.Client(address, traceparent=TRACE)
    with pytest.raises(spaid.InputError, match='tracestate'):
        spaid.Client(address, traceparent=PARENT, tracestate='a\n')


def test_single_calls_are_in_a_trace_of_their_own(address, monkeypatch):
    monkeypatch.delenv('TRACEPARENT', raising=False)
    a = poisson(8)
    b = right_hand_side(a)
    other = PARENT.replace(TRACE, TRACE[::-1])

    def trace_of(client):
        return client.system(a).start_solve(b).wait().info.trace_id

    with spaid.Client(address) as client, spaid.Client(address, traceparent=other) as traced:
        with spaid.in_trace(PARENT, 'vendor=1'):
            assert (trace_of(client), trace_of(traced)) == (TRACE, TRACE)
            with spaid.in_trace(other):
                assert trace_of(client) == TRACE[::-1]
            with spaid.in_trace(''):
                assert trace_of(traced) == ''
            seen = []
            thread = threading.Thread(target=lambda: seen.append(trace_of(client)))
            thread.start()
            thread.join()
            assert seen == [''], 'another thread is another context'
        assert (trace_of(client), trace_of(traced)) == ('', TRACE[::-1])
        with pytest.raises(spaid.InputError, match='traceparent'), spaid.in_trace('00'):
            pass

    async def both():
        async with spaid.aio.Client(address) as client:
            async def one(parent):
                with spaid.in_trace(parent):
                    return (await (await client.system(a).start_solve(b)).wait()).info.trace_id
            return await asyncio.gather(one(PARENT), one(other))

    assert asyncio.run(both()) == [TRACE, TRACE[::-1]]
