"""Single attempts of calls without a socket: what goes out in what order, and every breach of the contract by a server
that means harm."""

import zlib

import numpy as np
import pytest
import scipy.sparse as sp

import spaid
from problems import poisson
from spaid import _calls, _digest, _matrix, _wire
from spaid._arrays import ArraySink, ArraySource, Csc, CscSink, Outgoing, arrays_of
from spaid._calls import Feed

N = 4
A = _matrix.take(poisson(2))


def source_of(a=A, chunk_bytes=1 << 20):
    return ArraySource(arrays_of(a), chunk_bytes, True)


def upload(digest=True, values_alone=False, a=A, chunk_bytes=1 << 20):
    header = _matrix.header_of(a)
    if digest:
        _digest.add_xxh3(_digest.digest_of(a, header), a)
    return _calls.Upload(a, header, source_of(a, chunk_bytes), digest, values_alone)


def sent(call):
    """All that it sends until it waits: ('header', header) or (kind, offset, array)."""
    found = []
    while not isinstance(item := call.next(), Feed):
        request = _wire.v1('UploadMatrixRequest').FromString(item)
        if request.WhichOneof('message') == 'header':
            found.append(('header', request.header))
        else:
            chunk = request.chunk
            kind = {1: '<i8', 2: '<i4', 3: '<f8'}[chunk.array]
            assert zlib.crc32(chunk.data) == chunk.crc32
            found.append((chunk.array, chunk.offset, np.frombuffer(chunk.data, kind).tolist()))
    return found, item


def said(kind='UploadMatrixResponse', **event):
    return _wire.v1(kind)(**event).SerializeToString()


def need(*ranges, known=False):
    return said(need={'ranges': [dict(zip(('array', 'offset', 'count'), r)) for r in ranges], 'pattern_known': known})


EVERYTHING = ((1, 0, N + 1), (2, 0, A.pattern.nnz), (3, 0, A.pattern.nnz))
STORED = {'matrix': {'name': 'matrices/1', 'n': N, 'nnz': A.pattern.nnz}}


def test_upload_asks_then_sends_what_is_needed():
    call = upload()
    found, end = sent(call)
    assert [f[0] for f in found] == ['header'] and end is Feed.LATER
    assert len(found[0][1].sent_digest.pattern) == 16 and not found[0][1].sent_digest.pattern_sha256
    call.take(need(*EVERYTHING))
    found, end = sent(call)
    assert end is Feed.END
    assert found == [(1, 0, A.pattern.pointers.tolist()), (2, 0, A.pattern.indices.tolist()), (3, 0, A.values.tolist())]
    call.take(said(done=STORED))
    assert call.result().name == 'matrices/1'


def test_upload_in_pieces():
    call = upload(chunk_bytes=16)
    sent(call)
    call.take(need((1, 0, N + 1), (3, 2, 5)))
    found, _ = sent(call)
    assert [(f[0], f[1], len(f[2])) for f in found] == [(1, 0, 2), (1, 2, 2), (1, 4, 1), (3, 2, 2), (3, 4, 2), (3, 6, 1)]
    assert sum((f[2] for f in found if f[0] == 3), []) == A.values[2:7].tolist()


def test_upload_of_known_content_sends_nothing():
    call = upload()
    sent(call)
    call.take(said(wait={}))
    call.take(need(*EVERYTHING))  # its content may be there: asked again by SHA-256
    found, end = sent(call)
    assert [f[0] for f in found] == ['header'] and end is Feed.LATER
    assert len(found[0][1].sent_digest.pattern_sha256) == len(found[0][1].sent_digest.values_sha256) == 32
    call.take(said(have=STORED['matrix']))
    assert sent(call) == ([], Feed.END)
    call.take(said(done=STORED))
    assert call.result().nnz == A.pattern.nnz


def test_upload_of_a_known_pattern_sends_values():
    call = upload()
    sent(call)
    call.take(need(*EVERYTHING, known=True))
    found, _ = sent(call)
    assert found[0][1].sent_digest.pattern_sha256 and not found[0][1].sent_digest.values_sha256
    call.take(need((3, 0, A.pattern.nnz)))
    assert sent(call)[0] == [(3, 0, A.values.tolist())]


def test_upload_without_digests_goes_on_at_once():
    assert [f[0] for f in sent(upload(digest=False))[0]] == ['header', 1, 2, 3]
    assert [f[0] for f in sent(upload(digest=False, values_alone=True))[0]] == ['header', 3]


@pytest.mark.parametrize('ranges', [((1, 0, N + 2),), ((3, -1, 2),), ((3, 0, -1),), ((6, 0, 1),), ((3, 1, A.pattern.nnz),),
                                    ((3, 0, A.pattern.nnz), (3, 0, A.pattern.nnz)), ((3, 2**62, 2**62),)])
def test_a_server_that_needs_what_there_is_not(ranges):
    call = upload()
    sent(call)
    with pytest.raises(spaid.SpaidError, match='needs a part') as caught:
        call.take(need(*ranges))
    assert caught.value.reason == 'PROTOCOL_VIOLATION'


def test_uploads_that_end_oddly():
    with pytest.raises(spaid.SpaidError, match='without the stored matrix'):
        upload().result()
    call = upload()
    call.take(said(done={'matrix': {'name': 'matrices/1', 'n': N + 1}}))
    with pytest.raises(spaid.SpaidError, match='another matrix'):
        call.result()
    with pytest.raises(spaid.SpaidError, match='cannot be read'):
        call.take(b'\xff\xff\xff')


def chunk(kind, offset, array, crc=True):
    data = np.asarray(array).tobytes()
    message = _wire.v1('ArrayChunk')(array=kind, offset=offset, data=data)
    if crc:
        message.crc32 = zlib.crc32(data) ^ (crc == 'wrong')
    return message


def test_a_sink_takes_what_is_right():
    sink = ArraySink(6, 'f8', 5)
    for offset, part in ((0, [1.0, 2.0]), (2, [3.0]), (3, [4.0, 5.0])):
        assert not sink.complete
        sink.take(_wire.chunk_of(memoryview(chunk(6, offset, part).SerializeToString())))
    assert sink.complete and sink.result().tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize('kind,offset,array,crc,reason', [
    (3, 1, [2.0], True, 'PROTOCOL_VIOLATION'), (6, 0, [2.0], True, 'PROTOCOL_VIOLATION'),
    (6, 2, [2.0], True, 'PROTOCOL_VIOLATION'), (6, -1, [2.0], True, 'PROTOCOL_VIOLATION'),
    (6, 1, [2.0, 3.0], True, 'PROTOCOL_VIOLATION'), (6, 1, [], True, 'PROTOCOL_VIOLATION'),
    (6, 1, np.zeros(7, np.uint8), True, 'PROTOCOL_VIOLATION'), (6, 1, [2.0], 'wrong', 'CHECKSUM_MISMATCH')])
def test_a_sink_refuses_what_is_wrong(kind, offset, array, crc, reason):
    sink = ArraySink(6, 'f8', 2)
    sink.take(_wire.chunk_of(memoryview(chunk(6, 0, [1.0]).SerializeToString())))
    with pytest.raises(spaid.SpaidError) as caught:
        sink.take(_wire.chunk_of(memoryview(chunk(kind, offset, array, crc).SerializeToString())))
    assert caught.value.reason == reason and sink.received == 1


def test_a_promise_beyond_memory_takes_none():
    sink = ArraySink(6, 'f8', 2**60)
    sink.take(_wire.chunk_of(memoryview(chunk(6, 0, [1.0, 2.0]).SerializeToString())))
    sink.take(_wire.chunk_of(memoryview(chunk(6, 2, [3.0]).SerializeToString())))
    assert sink.result().tolist() == [1, 2, 3] and not sink.complete


def result_header(**fields):
    return _wire.v1('CscHeader')(**{'n': 2, 'nnz': 3, 'value_type': 1, **fields})


def built(header, *chunks, known=None):
    sink = CscSink(header, known)
    for one in chunks:
        sink.take(_wire.chunk_of(memoryview(one.SerializeToString())))
    return sink.result()


POINTERS, INDICES = np.array([0, 1, 3]), np.array([1, 0, 1], np.int32)
WHOLE = (chunk(1, 0, POINTERS), chunk(2, 0, INDICES), chunk(3, 0, [1.0, 2.0, 3.0]))
KNOWN = Csc(2, POINTERS, INDICES, np.zeros(3), False)


def test_a_matrix_is_put_together():
    m = built(result_header(is_factor=True), *WHOLE)
    assert m.is_factor and sp.csc_matrix((m.data, m.indices, m.indptr)).toarray().tolist() == [[0, 2], [1, 3]]
    m = built(result_header(values_only=True), WHOLE[2], known=KNOWN)
    assert m.indices is KNOWN.indices and m.data.tolist() == [1, 2, 3]
    tall = (WHOLE[0], chunk(2, 0, np.array([1, 0, 4], np.int32)), WHOLE[2])
    m = built(result_header(rows=5), *tall)
    assert (m.n, m.rows, m.indices.tolist()) == (2, 5, [1, 0, 4])


@pytest.mark.parametrize('header,chunks,known,text', [
    ({'n': 0}, (), None, 'a result of 0'), ({'nnz': 5}, (), None, '5 entries'), ({'value_type': 2}, (), None, 'fp64'),
    ({'values_only': True}, (), None, 'not asked for'), ({'values_only': True, 'nnz': 2}, (), KNOWN, 'not asked for'),
    ({}, WHOLE[:2], None, 'ended before'), ({'values_only': True}, WHOLE[:1], KNOWN, 'does not have'),
    ({}, (chunk(6, 0, [1.0]),), None, 'does not have'),
    ({}, (chunk(1, 0, np.array([0, 2, 1])), *WHOLE[1:]), None, 'not a CSC'),
    ({}, (chunk(1, 0, np.array([0, 4, 3])), *WHOLE[1:]), None, 'not a CSC'),
    ({}, (chunk(1, 0, np.array([1, 1, 3])), *WHOLE[1:]), None, 'not a CSC'),
    ({'rows': -1}, (), None, '-1 rows'), ({'rows': 1}, (), None, '1 rows and 3 entries'),
    ({'rows': 3}, (WHOLE[0], chunk(2, 0, np.array([1, 0, 3], np.int32)), WHOLE[2]), None, 'not a CSC'),
    ({}, (WHOLE[0], chunk(2, 0, np.array([1, 0, 2], np.int32)), WHOLE[2]), None, 'not a CSC'),
    ({}, (WHOLE[0], chunk(2, 0, np.array([1, -1, 1], np.int32)), WHOLE[2]), None, 'not a CSC')])
def test_a_matrix_that_is_none(header, chunks, known, text):
    with pytest.raises(spaid.SpaidError, match=text):
        built(result_header(**header), *chunks, known=known)


def solve_call(shape=(2,), **header):
    b = np.zeros(shape)
    return _calls.Solve(_wire.v1('SolveHeader')(**header), ArraySource([Outgoing(_wire.RHS, b)], 1 << 20, True), shape)


def answer(**event):
    return said('SolveResponse', **event)


OUTCOME = {'outcome': 1, 'iterations': 3}


def test_a_solve_that_is_told_in_full():
    call = solve_call((2, 2))
    request = _wire.v1('SolveRequest').FromString(call.next())
    assert request.WhichOneof('message') == 'header'
    assert _wire.v1('SolveRequest').FromString(call.next()).chunk.array == 4 and call.next() is Feed.END
    reports = call.take(answer(job={'number': 1, 'queued': {'job': 'jobs/1', 'position': 2}}))
    assert [(r.kind, r.job, r.position) for r in reports] == [('queued', 'jobs/1', 2)]
    call.take(answer(job={'number': 2, 'residuals': {'residuals': [
        {'rhs': 1, 'iteration': 0, 'relative_residual': 1.0}, {'rhs': 0, 'iteration': 1, 'relative_residual': 0.5}]}}))
    assert call.take(answer(job={'number': 2, 'residuals': {'residuals': [{'rhs': 9}]}})) == []  # known already
    call.take(answer(chunk=chunk(6, 0, [1.0, 2.0, 3.0])))
    call.take(answer(chunk=chunk(6, 3, [4.0])))
    call.take(answer(done={'outcomes': [OUTCOME, OUTCOME]}))
    assert len(call.result().outcomes) == 2 and call.solution.tolist() == [[1, 3], [2, 4]]
    histories, iterations = call.histories()
    assert [h.tolist() for h in histories] == [[0.5], [1.0]] and [i.tolist() for i in iterations] == [[1], [0]]


@pytest.mark.parametrize('events,text', [
    ((), 'without its outcome'),
    ((answer(done={'outcomes': []}),), 'as many outcomes'),
    ((answer(done={'outcomes': [OUTCOME]}),), 'before all of it'),
    ((answer(chunk=chunk(6, 0, [1.0, 2.0])), answer(job={'number': 1, 'residuals': {'residuals': [{'rhs': 1}]}}),
      answer(done={'outcomes': [OUTCOME]})), 'a right-hand side that was not sent'),
    ((answer(chunk=chunk(3, 0, [1.0])),), 'nobody asked for')])
def test_a_solve_that_is_told_wrongly(events, text):
    call = solve_call()
    with pytest.raises(spaid.SpaidError, match=text):
        for event in events:
            call.take(event)
        call.result()


def test_a_second_result_voids_the_first():
    call = _calls.Build(_wire.v1('BuildHeader')(stream_result=True), None)
    response = 'BuildPreconditionerResponse'
    with pytest.raises(spaid.SpaidError, match='before the result'):
        call.take(said(response, chunk=WHOLE[0]))
    call.take(said(response, result=result_header()))
    call.take(said(response, chunk=WHOLE[0]))
    call.take(said(response, result=result_header()))
    for part in WHOLE:
        call.take(said(response, chunk=part))
    with pytest.raises(spaid.SpaidError, match='without its result'):
        call.result()
    none = _calls.Build(_wire.v1('BuildHeader')(stream_result=True), None)
    none.take(said(response, done={}))
    with pytest.raises(spaid.SpaidError, match='asked for did not come'):
        none.result()
    call.take(said(response, done={'preconditioner': {'name': 'preconditioners/1'}}))
    assert call.result()[1].data.tolist() == [1, 2, 3]


def test_downloads_that_are_told_wrongly():
    response = 'DownloadPreconditionerResponse'
    call = _calls.Download(_wire.v1('DownloadPreconditionerRequest')(name='x'))
    with pytest.raises(spaid.SpaidError, match='without the result'):
        call.result()
    with pytest.raises(spaid.SpaidError, match="result's header"):
        call.take(said(response, chunk=WHOLE[0]))
    call.take(said(response, header=result_header()))
    with pytest.raises(spaid.SpaidError, match='second header'):
        call.take(said(response, header=result_header()))


def test_watches_that_are_told_wrongly():
    response = 'WatchJobResponse'
    for events, text in (((said(response, chunk=chunk(6, 0, [1.0])),), "solution's size"),
                         ((said(response, solution={'n': 2, 'rhs_count': 2000}),), 'impossible'),
                         ((said(response, solution={'n': 2, 'rhs_count': 1}),) * 2, 'a second solution'),
                         ((said(response, solution={'n': 2, 'rhs_count': 1}),), 'ended early')):
        call = _calls.Watch(_calls.JobFollower('jobs/1'), True)
        with pytest.raises(spaid.SpaidError, match=text):
            for event in events:
                call.take(event)
            call.result()


def test_a_watch_goes_on_behind_the_last_event():
    follower = _calls.JobFollower('jobs/1', 4)
    call = _calls.Watch(follower, False)
    assert _wire.v1('WatchJobRequest').FromString(call.next()).first_event == 5
    assert call.take(said('WatchJobResponse', event={'number': 4, 'started': {}})) == []
    assert [r.event_number for r in call.take(said('WatchJobResponse', event={'number': 5, 'started': {}}))] == [5]
    assert call.result() is None and call.progressed


def test_events_of_all_kinds(monkeypatch):
    follower = _calls.JobFollower()
    event = _wire.v1('JobEvent')
    assert follower.take(event(number=1)) == []  # of a kind that comes with a later version
    beat, = follower.take(event(heartbeat={'position': 3, 'eta_ms': 5}))
    assert (beat.kind, beat.event_number, beat.position, beat.eta_ms) == ('heartbeat', 0, 3, 5)
    stage, = follower.take(event(number=2, progress={'stage': 2, 'done': 1, 'total': 4, 'device': 'cpu'}))
    assert (stage.kind, stage.stage, stage.done, stage.total) == ('stage', 'build', 1, 4)
    rung, = follower.take(event(number=3, rung={'engine': 3, 'method': 2, 'left': 'slow'}))
    assert (rung.rung.engine, rung.rung.method, rung.rung.left) == ('jacobi', 'cg', 'slow')
    monkeypatch.setattr(_calls, '_MAX_RESIDUALS', 2)
    with pytest.raises(spaid.SpaidError, match='more residuals'):
        follower.take(event(number=4, residuals={'residuals': [{}] * 3}))


def test_a_chunk_in_an_answer_that_has_none():
    with pytest.raises(spaid.SpaidError, match='nobody asked for'):
        upload().take(b'\x02\x00')


def test_nothing_is_sent_of_nothing():
    call = upload()
    sent(call)
    call.take(need((3, 0, 0), (6, 0, 0)))
    assert sent(call) == ([], Feed.END)


def test_random_bytes_break_no_call():
    rng = np.random.default_rng(2)
    for make in (upload, solve_call, lambda: _calls.Build(_wire.v1('BuildHeader')(), None),
                 lambda: _calls.Watch(_calls.JobFollower('j'), True)):
        for size in rng.integers(0, 60, 500):
            try:
                make().take(rng.integers(0, 256, size, np.uint8).tobytes())
            except spaid.SpaidError:
                pass
