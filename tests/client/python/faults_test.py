"""A server of the tests' own, over a real socket, that refuses, breaks off and lies."""

import concurrent.futures
import contextlib

import grpc
import numpy as np
import pytest

import spaid
import spaid.aio
from problems import poisson
from spaid import _wire


class Fake(grpc.GenericRpcHandler):
    """Answers by `script[method]`, a list with an answer for each call: a function of (requests, context) that yields
    raw responses."""

    def __init__(self, **script):
        self.script, self.calls = script, []

    def service(self, details):
        name = details.method.rpartition('/')[2]

        def stream(requests, context):
            self.calls.append(name)
            yield from self.script[name].pop(0)(requests, context)
        if name.startswith(('Get', 'List', 'Delete', 'Cancel')):
            def unary(request, context):
                return next(stream(iter([request]), context))
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.stream_stream_rpc_method_handler(stream)


@contextlib.contextmanager
def serving(**script):
    handler = Fake(**script)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[handler])
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    try:
        yield f'127.0.0.1:{port}', handler
    finally:
        server.stop(None).wait()


def refuse(code, reason='', retry_ms=None, **metadata):
    def answer(requests, context):
        status = _wire.message('google.rpc.Status')(code=code.value[0], message='refused')
        if reason:
            info = _wire.message('google.rpc.ErrorInfo')(reason=reason, metadata=metadata)
            status.details.add(type_url='type.googleapis.com/google.rpc.ErrorInfo', value=info.SerializeToString())
        if retry_ms is not None:
            retry = _wire.message('google.rpc.RetryInfo')(retry_delay={'nanos': retry_ms * 1_000_000})
            status.details.add(type_url='type.googleapis.com/google.rpc.RetryInfo', value=retry.SerializeToString())
        context.set_trailing_metadata((('grpc-status-details-bin', status.SerializeToString()),))
        context.abort(code, 'refused')
        yield b''
    return answer


def say(kind, *events, then=None, listen=True):
    def answer(requests, context):
        if listen:
            for _ in requests:
                pass
        for event in events:
            yield _wire.v1(kind)(**event).SerializeToString()
        if then is not None:
            yield from then(requests, context)
    return answer


INFO = say('GetServerInfoResponse', {'version': '7'})
UNAVAILABLE = refuse(grpc.StatusCode.UNAVAILABLE)


def test_a_server_that_drains_is_asked_again():
    drains = refuse(grpc.StatusCode.UNAVAILABLE, 'DRAINING', retry_ms=10)
    with serving(GetServerInfo=[drains, drains, INFO]) as (address, fake), spaid.Client(address) as client:
        assert client.server_info().version == '7' and len(fake.calls) == 3
    with serving(GetServerInfo=[drains] * 9) as (address, fake), spaid.Client(address, max_attempts=3) as client:
        with pytest.raises(spaid.SpaidError) as caught:
            client.server_info()
        assert caught.value.reason == 'DRAINING' and caught.value.retry_after == 0.01 and len(fake.calls) == 3


def test_what_may_have_ended_the_server_is_repeated_once():
    with serving(GetServerInfo=[UNAVAILABLE] * 4) as (address, fake), spaid.Client(address) as client:
        with pytest.raises(spaid.SpaidError, match='CONNECTION_LOST'):
            client.server_info()
        assert len(fake.calls) == 2
    with serving(DeleteMatrix=[UNAVAILABLE] * 4) as (address, fake), spaid.Client(address) as client:
        with pytest.raises(spaid.SpaidError, match='CONNECTION_LOST'):
            client.delete_matrix('matrices/1')
        assert len(fake.calls) == 1


STORED = {'done': {'matrix': {'name': 'm1', 'n': 4, 'nnz': 12}}}


def test_a_refusal_is_seen_while_an_upload_goes_on():
    full = refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, 'MATRIX_TOO_LARGE', limit='1', actual='2')
    with serving(UploadMatrix=[full]) as (address, _), spaid.Client(address, send_digests=False) as client:
        with pytest.raises(spaid.SpaidError) as caught:
            client.upload(poisson(200))
        assert caught.value.metadata == {'limit': '1', 'actual': '2'}


def solution(*values, crc=None):
    chunk = {'array': 6, 'data': np.array(values, '<f8').tobytes()}
    return {'chunk': {**chunk, 'crc32': crc} if crc is not None else chunk}


DONE = {'done': {'outcomes': [{'outcome': 1, 'iterations': 1}], 'matrix': 'm1'}}


def test_answers_that_lie():
    upload = say('UploadMatrixResponse', STORED)
    for events, reason in (([solution(1, 2, 3, 4, crc=5), DONE], 'CHECKSUM_MISMATCH'),
                           ([solution(1, 2, 3), DONE], 'PROTOCOL_VIOLATION'),
                           ([solution(1, 2, 3, 4, 5), DONE], 'PROTOCOL_VIOLATION'), ([], 'PROTOCOL_VIOLATION')):
        with serving(UploadMatrix=[upload], Solve=[say('SolveResponse', *events)]) as (address, _), \
                spaid.Client(address, send_digests=False) as client:
            with pytest.raises(spaid.SpaidError) as caught:
                client.solve(poisson(2), np.ones(4))
            assert caught.value.reason == reason
    with serving(UploadMatrix=[upload], Solve=[say('SolveResponse', solution(1, 2, 3, 4), DONE)]) as (address, _), \
            spaid.Client(address, send_digests=False) as client:
        assert client.solve(poisson(2), np.ones(4)).x.tolist() == [1, 2, 3, 4]


def test_a_server_that_needs_what_there_is_not():
    need = say('UploadMatrixResponse', {'need': {'ranges': [{'array': 3, 'offset': 0, 'count': 99}]}}, listen=False)
    with serving(UploadMatrix=[need]) as (address, _), spaid.Client(address) as client:
        with pytest.raises(spaid.SpaidError, match='PROTOCOL_VIOLATION'):
            client.upload(poisson(2))


@pytest.mark.asyncio
async def test_the_same_by_asyncio():
    upload = say('UploadMatrixResponse', STORED)
    with serving(GetServerInfo=[UNAVAILABLE, INFO], UploadMatrix=[upload] * 2,
                 Solve=[refuse(grpc.StatusCode.NOT_FOUND, 'HANDLE_EVICTED', handle='m1'),
                        say('SolveResponse', solution(1, 2, 3, 4), DONE)]) as (address, fake):
        async with spaid.aio.Client(address, send_digests=False) as client:
            assert (await client.server_info()).version == '7'
            assert (await client.solve(poisson(2), np.ones(4))).x.tolist() == [1, 2, 3, 4]
            assert fake.calls[-4:] == ['UploadMatrix', 'Solve', 'UploadMatrix', 'Solve']


def test_a_watch_reconnects_and_loses_nothing():
    first = [{'event': {'number': k, 'started': {'device': 'cpu'}}} for k in (1, 2)]
    rest = [{'event': {'number': k, 'started': {'device': 'cpu'}}} for k in (2, 3)]
    end = {'event': {'number': 4, 'finished': {'job': {'name': 'jobs/1', 'state': 3}}}}
    asked = []

    def broken(requests, context):
        asked.append(_wire.v1('WatchJobRequest').FromString(next(requests)).first_event)
        yield from say('WatchJobResponse', *first, then=UNAVAILABLE, listen=False)(requests, context)

    def whole(requests, context):
        asked.append(_wire.v1('WatchJobRequest').FromString(next(requests)).first_event)
        yield from say('WatchJobResponse', *rest, end, listen=False)(requests, context)
    with serving(WatchJob=[broken, UNAVAILABLE, UNAVAILABLE, whole]) as (address, _), spaid.Client(address) as client:
        reports = []
        assert client.job('jobs/1').watch(reports.append).state == 'succeeded'
        assert [r.event_number for r in reports] == [1, 2, 3, 4] and asked == [1, 3]
    with serving(WatchJob=[UNAVAILABLE] * 9) as (address, fake), spaid.Client(address) as client:
        with pytest.raises(spaid.SpaidError, match='CONNECTION_LOST'):
            client.job('jobs/1').watch()
        assert len(fake.calls) == 4


def test_a_watch_whose_events_end_early():
    job = {'job': {'name': 'jobs/1', 'state': 2}}
    with serving(WatchJob=[say('WatchJobResponse')], GetJob=[say('GetJobResponse', job)]) as (address, _), \
            spaid.Client(address) as client:
        with pytest.raises(spaid.SpaidError, match='before the job had'):
            client.job('jobs/1').watch()


class Trouble(Exception):
    pass


@pytest.mark.parametrize('ends', ['with an error', 'well'])
@pytest.mark.parametrize('face', ['blocking', 'asyncio'])
def test_what_goes_wrong_while_requests_are_made_is_raised(monkeypatch, face, ends):
    """They are made on a thread of gRPC's, which would only log it."""
    def fail(self):
        raise Trouble
    monkeypatch.setattr('spaid._calls.Upload.next', fail)
    refusal = refuse(grpc.StatusCode.INVALID_ARGUMENT, 'ARRAY_INCOMPLETE')
    with serving(UploadMatrix=[say('UploadMatrixResponse', then=refusal if ends == 'with an error' else None)]) as (address, _):
        with pytest.raises(Trouble):
            if face == 'blocking':
                with spaid.Client(address) as client:
                    client.upload(poisson(2))
            else:
                async def upload():
                    async with spaid.aio.Client(address) as client:
                        await client.upload(poisson(2))
                import asyncio
                asyncio.run(upload())


def test_a_stream_that_waits_is_left_by_a_refusal():
    """The request thread, which waits for `need`, ends with the call."""
    import threading
    before = threading.active_count()
    busy = refuse(grpc.StatusCode.FAILED_PRECONDITION, 'VALUES_NEEDED')
    with serving(UploadMatrix=[busy] * 5) as (address, _), spaid.Client(address) as client:
        for _ in range(5):
            with pytest.raises(spaid.SpaidError, match='VALUES_NEEDED'):
                client.upload(poisson(2))
    for thread in threading.enumerate():
        if 'consum' in thread.name.lower():
            thread.join(10)
    assert threading.active_count() <= before + 9  # those of the server's pool
