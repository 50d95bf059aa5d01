"""Which failed calls are tried again, when, and what is done about what the server has lost; driven by hand."""

import pytest

import spaid
from problems import poisson
from spaid import _core, _matrix, _procedures, _system, _wire
from spaid._calls import Solve, Unary, Upload
from spaid._retry import Repeat, next_delay
from spaid.errors import Code, SpaidError

REFUSED = SpaidError(Code.UNAVAILABLE, 'DRAINING', 'x', retry_after=2.0)
UNREACHABLE = SpaidError(Code.UNAVAILABLE, 'UNREACHABLE', 'x')
LOST = SpaidError(Code.UNAVAILABLE, 'CONNECTION_LOST', 'x')
BUSY = SpaidError(Code.RESOURCE_EXHAUSTED, 'QUEUE_FULL', 'x', retry_after=0.5)
FULL = SpaidError(Code.RESOURCE_EXHAUSTED, 'MATRIX_TOO_LARGE', 'x')


@pytest.mark.parametrize('error,repeat,attempt,lost,expected', [
    (UNREACHABLE, Repeat.SAFE, 1, 0, 0.05), (UNREACHABLE, Repeat.SAFE, 3, 0, 0.2), (UNREACHABLE, Repeat.SAFE, 4, 0, None),
    (UNREACHABLE, Repeat.ONLY_IF_REFUSED, 1, 0, 0.05),
    (LOST, Repeat.SAFE, 1, 1, 0.05), (LOST, Repeat.SAFE, 2, 2, None), (LOST, Repeat.FOLLOW, 3, 3, 0.2),
    (LOST, Repeat.ONLY_IF_REFUSED, 1, 1, None),
    (REFUSED, Repeat.SAFE, 1, 0, 2.0125), (REFUSED, Repeat.ONLY_IF_REFUSED, 1, 0, 2.0125),
    (SpaidError(Code.UNAVAILABLE, 'DRAINING', 'x', retry_after=31.0), Repeat.SAFE, 1, 0, None),
    (BUSY, Repeat.ONLY_IF_REFUSED, 1, 0, 0.5125), (FULL, Repeat.SAFE, 1, 0, None),
    (SpaidError(Code.INVALID_ARGUMENT, 'BAD_SIZE', 'x'), Repeat.SAFE, 1, 0, None)])
def test_delays(error, repeat, attempt, lost, expected):
    assert next_delay(4, attempt, lost, error, repeat, 0.0) == (None if expected is None else pytest.approx(expected))
    if expected is not None and error.retry_after is None:
        assert next_delay(4, attempt, lost, error, repeat, 1.0) == pytest.approx(2 * expected)


def call_of(timeout=None, **settings):
    return _core.Call(_core.Core(_core.Settings('nowhere:1', **settings)), _core.Deadline(timeout))


def drive(procedure, answers):
    """(what it asked for, its result). An answer that is an exception is thrown, one that is callable is called with
    what was asked for; sleeps are passed over, and noted."""
    asked, answers = [], list(answers)
    send, value = procedure.send, None
    try:
        while True:
            effect = send(value)
            asked.append(effect)
            send, value = procedure.send, None
            if isinstance(effect, _core.Sleep):
                continue
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                send, value = procedure.throw, answer
            else:
                value = answer(effect) if callable(answer) else answer
    except StopIteration as end:
        assert not answers
        return asked, end.value


def kinds(asked):
    return [type(effect).__name__ for effect in asked]


def info(version='1'):
    return _wire.v1('GetServerInfoResponse')(version=version)


def test_a_plain_call_is_repeated():
    asked, result = drive(_procedures.server_info(call_of()), [UNREACHABLE, LOST, info()])
    assert kinds(asked) == ['Unary', 'Sleep', 'Unary', 'Sleep', 'Unary'] and result.version == '1'


@pytest.mark.parametrize('answers', [[FULL], [LOST, LOST], [UNREACHABLE] * 4])
def test_and_given_up(answers):
    with pytest.raises(SpaidError) as caught:
        drive(_procedures.server_info(call_of()), answers)
    assert caught.value is answers[-1]


def test_max_attempts_and_deadline():
    with pytest.raises(SpaidError):
        drive(_procedures.server_info(call_of(max_attempts=1)), [UNREACHABLE])
    with pytest.raises(SpaidError) as caught:  # the wait would pass the deadline
        drive(_procedures.server_info(call_of(timeout=0.01)), [UNREACHABLE])
    assert caught.value is UNREACHABLE
    call = call_of(timeout=1e-9)
    with pytest.raises(SpaidError, match='timeout of') as caught:
        drive(_procedures.server_info(call), [])
    assert caught.value.reason == 'TIMEOUT'


    want, _ = wanted()
    with pytest.raises(SpaidError, match='timeout of'):
        drive(_procedures.solve_stored(call, 'm1', 4, want), [])


def test_a_delete_is_not_repeated_where_it_may_have_been_done():
    with pytest.raises(SpaidError):
        drive(_procedures.delete(call_of(), 'Matrix', 'matrices/1'), [LOST])
    assert kinds(drive(_procedures.delete(call_of(), 'Matrix', 'matrices/1'), [BUSY, None])[0]) == [
        'Unary', 'Sleep', 'Unary']


def gone(handle, reason='HANDLE_EVICTED'):
    return SpaidError(Code.NOT_FOUND, reason, 'gone', metadata={'handle': handle})


def uploaded(name):
    def answer(effect):
        assert isinstance(effect, Upload)
        effect.take(_wire.v1('UploadMatrixResponse')(done={'matrix': {'name': name, 'n': 4}}).SerializeToString())
    return answer


def solved(matrix, preconditioner='', check=lambda header: None):
    def answer(effect):
        assert isinstance(effect, Solve)
        request = _wire.v1('SolveRequest').FromString(effect.next())
        check(request.header)
        effect.take(_wire.v1('SolveResponse')(chunk={'array': 6, 'data': bytes(32)}).SerializeToString())
        effect.take(_wire.v1('SolveResponse')(done={'outcomes': [{'outcome': 1}], 'matrix': matrix,
                                                    'preconditioner': preconditioner}).SerializeToString())
    return answer


def wanted(**options):
    import numpy as np
    from spaid import _requests
    kwargs = dict(x0=None, engine=None, preconditioner=None, reuse='', reuse_factor=None, null_space='auto',
                  null_vectors=None, out=None, omit_solution=False, work=_procedures.Work(), options={})
    return _requests.wanted(4, np.ones(4), {**kwargs, **options})


def test_a_matrix_that_was_evicted_is_sent_once_more():
    want, _ = wanted()
    a = _matrix.take(poisson(2))
    asked, result = drive(_procedures.solve_sparse(call_of(), a, want),
                          [uploaded('m1'), gone('m1'), uploaded('m2'), solved('m2')])
    assert kinds(asked) == ['Upload', 'Solve', 'Upload', 'Solve'] and result.matrix == 'm2' and result.converged
    with pytest.raises(SpaidError, match='gone'):
        drive(_procedures.solve_sparse(call_of(), a, want), [uploaded('m1'), gone('m1'), uploaded('m2'), gone('m2')])
    with pytest.raises(SpaidError, match='gone'):  # somebody else's handle
        drive(_procedures.solve_sparse(call_of(), a, want), [uploaded('m1'), gone('pattern')])


def test_a_system_sends_again_what_was_lost():
    state = _system.SystemState(poisson(2), '')
    want, follow = wanted(engine='fsai')
    assert follow

    def first(header):
        assert header.HasField('inline_matrix') and not header.inline_matrix.same_pattern_as and header.HasField('spec')
    drive(state.solve(call_of(), want, follow), [solved('m1', 'p1', first)])

    def second(header):
        assert header.inline_matrix.same_pattern_as == 'm1' and header.preconditioner == 'p1' and header.reuse.mode == 3
    state.update(state.a.values * 2)
    drive(state.solve(call_of(), want, follow), [solved('m2', 'p1', second)])

    def third(header):
        assert header.matrix == 'm2' and header.preconditioner == 'p1'

    def all_of_it(header):
        assert not header.inline_matrix.same_pattern_as and header.WhichOneof('preconditioning') == 'spec'
        assert not header.HasField('reuse')
    asked, result = drive(state.solve(call_of(), want, follow),
                          [gone('m2'), gone('p1', 'HANDLE_UNKNOWN'), solved('m3', 'p3', all_of_it)])
    assert kinds(asked) == ['Solve'] * 3 and state.matrix == 'm3'
    with pytest.raises(SpaidError):
        drive(state.solve(call_of(), want, follow), [gone('another')])


def test_a_system_that_keeps_being_lost_gives_up():
    state = _system.SystemState(poisson(2), 'labelled')
    want, follow = wanted()
    answers = []
    for k in range(4):
        answers += [uploaded(f'm{k}'), gone(f'm{k}')]
    with pytest.raises(SpaidError, match='gone'):
        drive(state.solve(call_of(), want, follow), answers)


def queued(job):
    def answer(effect):
        if job:
            effect.take(_wire.v1('SolveResponse')(job={'number': 1, 'queued': {'job': job}}).SerializeToString())
            assert effect.enough
    return answer


def test_a_job_whose_matrix_was_lost():
    state = _system.SystemState(poisson(2), '')
    want, _ = wanted()
    asked, follower = drive(state.start_solve(call_of(), want),
                            [uploaded('m1'), gone('m1'), uploaded('m2'), queued('jobs/1')])
    assert follower.job == 'jobs/1' and state.matrix == 'm2'
    with pytest.raises(SpaidError, match='gone'):
        drive(state.start_solve(call_of(), want), [gone('another')])
    with pytest.raises(SpaidError, match='without a job'):
        drive(state.start_solve(call_of(), want), [queued('')])
    with pytest.raises(SpaidError, match='x'):  # it may have been made: no second one is
        drive(state.start_solve(call_of(), want), [LOST])


def test_a_system_keeps_few_preconditioners():
    state = _system.SystemState(poisson(2), '')
    for k in range(1, 40):
        want, follow = wanted(engine='afsai', options={'k_max': k})
        drive(state.solve(call_of(), want, follow), [solved('m', f'p{k}')])
    assert len(state._kept) == 16 and {kept.handle for kept in state._kept.values()} == {f'p{k}' for k in range(24, 40)}


def test_orders_are_remembered_and_forgotten():
    core = _core.Core(_core.Settings('nowhere:1'))
    for k in range(5000):
        core.remember_order(f'm{k}', k)
    assert core.order('m4999') == 4999 and core.order('m0') is None


def test_a_handle_of_elsewhere_is_asked_for_once():
    from spaid import _requests
    import numpy as np
    call = call_of()
    matrix = _wire.v1('GetMatrixResponse')(matrix={'name': 'm1', 'n': 4})

    def kwargs():
        return dict(x0=None, engine=None, preconditioner=None, reuse='', reuse_factor=None, null_space='auto',
                    null_vectors=None, out=None, omit_solution=False, work=_procedures.Work(), options={})
    asked, _ = drive(_requests.solve(call, 'm1', np.ones(4), kwargs()), [matrix, solved('m1')])
    assert kinds(asked) == ['Unary', 'Solve']
    asked, _ = drive(_requests.solve(call, 'm1', np.ones(4), kwargs()), [solved('m1')])
    assert kinds(asked) == ['Solve']


def test_lists_without_an_end():
    def page(token):
        return _wire.v1('ListMatricesResponse')(next_page_token=token)
    with pytest.raises(SpaidError, match='no end'):
        drive(_procedures.listed(call_of(), 'Matrices'), [page('a'), page('b'), page('a')])
    asked, found = drive(_procedures.listed(call_of(), 'Matrices'), [page('a'), page('')])
    assert [effect.request.page_token for effect in asked] == ['', 'a'] and found == []
    assert all(isinstance(effect, Unary) for effect in asked)


@pytest.mark.parametrize('field,settings', [
    ('address', {'address': ''}), ('max_attempts', {'max_attempts': 0}), ('chunk_bytes', {'chunk_bytes': 7}),
    ('chunk_bytes', {'chunk_bytes': 4 << 20}), ('token', {'token': 'a\n'}), ('tenant', {'tenant': 'ä'}),
    ('key_file', {'certificate_file': 'x'}), ('certificate_file', {'key_file': 'x'}),
    ('staging_bytes', {'staging_bytes': -1})])
def test_settings_that_cannot_work(field, settings):
    with pytest.raises(spaid.InputError) as caught:
        spaid.Client(**{'address': 'a:1', **settings})
    assert caught.value.field == field and caught.value.reason == 'BAD_OPTION'


def test_settings_of_the_environment(monkeypatch):
    monkeypatch.setenv('SPAID_ADDRESS', 'there:2')
    monkeypatch.setenv('SPAID_TOKEN', 'secret')
    monkeypatch.setenv('SPAID_LOCAL_SOCKET', '/x')
    found = _core.Settings.of(None, None, None)
    assert (found.address, found.token, found.local_socket) == ('there:2', 'secret', '/x')
    assert found.metadata == (('authorization', 'Bearer secret'),)
    assert _core.Settings.of('here:1', '', '').metadata == ()
    monkeypatch.delenv('SPAID_ADDRESS')
    assert spaid.Client().address == '127.0.0.1:7433'


@pytest.mark.parametrize('timeout', [0, -1, True, float('nan')])
def test_timeouts_that_are_none(timeout):
    with pytest.raises(spaid.InputError, match='timeout'):
        _core.Deadline(timeout)
