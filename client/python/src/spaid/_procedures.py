"""The calls of a client, whatever drives them: see _core.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from spaid import _digest, _matrix, _options, _wire
from spaid._arrays import Array, Csc, Outgoing, ArraySource, arrays_of
from spaid._calls import Build, Download, JobFollower, MAX_RHS, Solve, Upload, Watch
from spaid._core import Call, Procedure, attempts, is_gone, unary, with_leases
from spaid._local import Placed, place
from spaid._matrix import Sparse
from spaid._replicas import affinity_of
from spaid._retry import Repeat
from spaid.errors import SpaidError, bad, violation
from spaid.results import (BuildEstimate, JobEnd, JobInfo, MatrixInfo, Part, PreconditionerInfo, ServerInfo,
                           SolveResult, Timings, member, read)

# A matrix up to here is hashed before it is known that this pays: asking takes as long.
_HASH_AT_ONCE = 256 << 10
_PAGE_SIZE, _MAX_PAGES, _MAX_LIST = 200, 100_000, 10_000_000
_MAX_UPLOADS = 2  # of one matrix in one call: the first, and once more where the server has lost it meanwhile


class Work(NamedTuple):
    """The part that builds and solves share: limits of the job in seconds, its priority."""

    priority: str = 'normal'
    max_queue: Any = None
    max_run: Any = None

    def fill(self, header: Any, detach: bool) -> None:
        header.priority = _options.enum_value('spaid.v1.Priority', self.priority, 'priority')
        header.detach = detach
        for name in ('max_queue', 'max_run'):
            value = getattr(self, name)
            if value is not None:
                _options.set_duration(getattr(header.limits, name), value, name)


class Source(NamedTuple):
    """A stored matrix; or one that comes along, whose pattern that of the handle may be: then its values alone go."""

    n: int
    matrix: str = ''
    a: Sparse | None = None


class Wanted(NamedTuple):
    """A solve that is asked for, checked. spec or preconditioner. b, guess, null_vectors by columns."""

    b: Array
    spec: Any = None
    preconditioner: str = ''
    reuse: str = ''
    reuse_factor: float | None = None
    options: Mapping[str, Any] = {}
    guess: Array | None = None
    null_space: str = 'auto'
    null_vectors: Array | None = None
    omit_solution: bool = False
    out: Array | None = None
    work: Work = Work()

    @property
    def rhs_count(self) -> int:
        return 1 if self.b.ndim == 1 else int(self.b.shape[1])


def want(n: int, b: Any, *, x0: Any, out: Any, null_vectors: Any, **others: Any) -> Wanted:
    """Checks the arrays of a solve."""
    rhs = _matrix.vectors(b, n, 'b')
    columns = 1 if rhs.ndim == 1 else rhs.shape[1]
    if columns > MAX_RHS:
        raise bad('SIZE_MISMATCH', 'b', f'has {columns} columns; {MAX_RHS} at most, in several solves')
    guess = None if x0 is None else _matrix.vectors(x0, n, 'x0', columns)
    null = None if null_vectors is None else _matrix.vectors(null_vectors, n, 'null_vectors')
    if out is not None and not (isinstance(out, np.ndarray) and out.dtype == np.float64 and out.shape == rhs.shape
                                and out.flags.f_contiguous and out.flags.writeable):
        raise bad('SIZE_MISMATCH', 'out', f'must be a writable float64 array of b\'s shape {rhs.shape}, by columns '
                  '(order="F")')
    return Wanted(rhs, guess=guess, null_vectors=null, out=out, **others)


def upload(call: Call, a: Sparse, label: str = '', same_pattern_as: str = '') -> Procedure[tuple[Any, Any]]:
    """(Matrix, Timings or None) of the wire. Values go where their pattern is."""
    return (yield from with_leases(call.core.link,
                                   lambda shared: _upload(call, shared, a, label, same_pattern_as)))


def _upload(call: Call, shared: bool, a: Sparse, label: str, same_pattern_as: str) -> Procedure[tuple[Any, Any]]:
    settings = call.core.settings
    arrays = arrays_of(a)
    header = _matrix.header_of(a, label)
    header.same_pattern_as = same_pattern_as
    if same_pattern_as:
        arrays = arrays[2:]
    # If all arrays are shared already, the server's copy costs less than asking whether it has them.
    in_place = shared and call.core.link.wanted and all(
        call.core.link.find(o.kind, o.array) is not None for o in arrays if o.size)
    asks = settings.send_digests and _digest.available() and not same_pattern_as and not in_place
    if asks:
        digest = _digest.digest_of(a, header)
        _digest.add_xxh3(digest, a)
        if sum(o.array.nbytes for o in arrays) <= _HASH_AT_ONCE:
            _digest.add_sha256(digest, a, pattern_alone=False)
    placed = place(call.core.link, call.core.pool, arrays) if shared else Placed(arrays)

    def make() -> Upload:
        source = ArraySource(placed.arrays, settings.chunk_bytes, settings.send_checksums)
        return Upload(a, header, source, asks, bool(same_pattern_as))

    affinity = affinity_of(same_pattern_as)
    if not affinity and not call.home:
        affinity = digest.pattern[:4].hex() if asks else _digest.affinity(a)
    one = yield from attempts(call, make, Repeat.SAFE, affinity)
    placed.done()
    call.core.remember_order(one.result().name, a.pattern.n)
    return one.result(), one.timings


def upload_matrix(call: Call, a: Sparse, label: str) -> Procedure[MatrixInfo]:
    stored, _ = yield from upload(call, a, label)
    return read(MatrixInfo, stored)


def _solve_header(source: Source, want: Wanted, detach: bool) -> Any:
    header = _wire.v1('SolveHeader')()
    if source.a is None:
        header.matrix = source.matrix
    else:
        header.inline_matrix.CopyFrom(_matrix.header_of(source.a))
        header.inline_matrix.same_pattern_as = source.matrix
    if want.preconditioner:
        header.preconditioner = want.preconditioner
    else:
        header.spec.CopyFrom(want.spec)
    if want.reuse:
        header.reuse.mode = _options.enum_value('spaid.v1.ReuseMode', want.reuse, 'reuse')
        if want.reuse_factor is not None:
            option = _wire.option_of(_wire.v1('ReusePolicy').DESCRIPTOR.fields_by_name['factor'])
            assert option is not None
            _options.set_option(header.reuse, option, want.reuse_factor)
    _options.fill_header(header, want.options)
    header.rhs_count = want.rhs_count
    header.has_initial_guess = want.guess is not None
    if want.null_vectors is not None:
        header.null_vectors = 1 if want.null_vectors.ndim == 1 else want.null_vectors.shape[1]
    else:
        header.null_space = _options.enum_value('spaid.v1.NullSpace', want.null_space, 'null_space')
    header.omit_solution = want.omit_solution
    want.work.fill(header, detach)
    return header


def _solve_arrays(source: Source, want: Wanted) -> list[Outgoing]:
    arrays = [Outgoing(_wire.RHS, want.b)]
    if want.guess is not None:
        arrays.append(Outgoing(_wire.GUESS, want.guess))
    if want.null_vectors is not None:
        arrays.append(Outgoing(_wire.NULL_SPACE, want.null_vectors))
    if source.a is not None:
        own = arrays_of(source.a)
        arrays += own[2:] if source.matrix else own
    return arrays


def solve(call: Call, source: Source, want: Wanted) -> Procedure[SolveResult]:
    """By a stored matrix, or with one that comes along."""
    return (yield from with_leases(call.core.link, lambda shared: _solve(call, shared, source, want)))


def _solve(call: Call, shared: bool, source: Source, want: Wanted) -> Procedure[SolveResult]:
    settings = call.core.settings
    header = _solve_header(source, want, detach=False)
    placed = Placed(_solve_arrays(source, want))
    if shared:
        like = None if want.omit_solution else want.b
        placed = place(call.core.link, call.core.pool, placed.arrays, want.out, like)
        if placed.solution_place is not None:
            header.solution_segment.CopyFrom(placed.solution_place)

    def make() -> Solve:
        source = ArraySource(placed.arrays, settings.chunk_bytes, settings.send_checksums)
        return Solve(header, source, want.b.shape)

    affinity = affinity_of(source.matrix)
    if not affinity and source.a is not None:
        affinity = _beside(want) or call.home or _digest.affinity(source.a)
    one = yield from attempts(call, make, Repeat.SAFE, affinity)
    done = one.result()
    x: Any = None
    if one.in_place:
        assert placed.solution is not None
        call.core.link.count_shared(placed.solution.nbytes)
        x = placed.solution
    elif not want.omit_solution:
        x = one.solution
    if want.out is not None and x is not None:
        if x is not want.out:
            want.out[...] = x
        x = want.out
    elif one.in_place:
        x = x.copy(order='F')  # the segment serves other calls
    placed.done()
    return _assemble(one, done, x)


def _assemble(one: Solve, done: Any, x: Any) -> SolveResult:
    histories, iterations = one.histories()
    names = ('outcomes', 'method', 'choice', 'matrix', 'preconditioner', 'nnz_ratio', 'timings', 'device', 'job',
             'preconditioner_storage', 'storage_reason', 'placement', 'figures', 'rungs', 'null_space', 'reuse')
    quality = member(done, 'quality') if done.HasField('quality') else None
    return SolveResult(x=x, histories=histories, histories_iterations=iterations, quality=quality,
                       **{name: member(done, name) for name in names})


def plus_upload(result: SolveResult, timings: Any) -> SolveResult:
    """The result with what its upload took."""
    if timings is None:
        return result
    own = result.timings
    return dataclasses.replace(result, timings=dataclasses.replace(
        own, upload_ms=own.upload_ms + timings.upload_ms, bytes_up=own.bytes_up + timings.bytes_up,
        total_ms=own.total_ms + timings.total_ms))


def _beside(want: Wanted) -> str:
    """The affinity of the first thing that a solve names besides A, which must lie where A does; '': it names none."""
    named = [want.preconditioner]
    if want.spec is not None:
        named += [want.spec.static_spai.pattern_matrix, want.spec.amg.near_null_space, want.spec.amg.coordinates]
    return next((affinity_of(handle) for handle in named if affinity_of(handle)), '')


def solve_sparse(call: Call, a: Sparse, want: Wanted) -> Procedure[SolveResult]:
    """Uploads A, or finds it by its digests, and solves; again where the server lost it in between."""
    call = call._replace(home=call.home or _beside(want))
    for left in range(_MAX_UPLOADS, 0, -1):
        stored, timings = yield from upload(call, a)
        try:
            result = yield from solve(call, Source(a.pattern.n, stored.name), want)
            return plus_upload(result, timings)
        except SpaidError as error:
            if left == 1 or not is_gone(error, stored.name):
                raise
    raise AssertionError('unreachable')


def solve_stored(call: Call, matrix: str, n: int, want: Wanted) -> Procedure[SolveResult]:
    return (yield from solve(call, Source(n, matrix), want))


def start_solve(call: Call, matrix: str, n: int, want: Wanted) -> Procedure[JobFollower]:
    """A detached solve, left as soon as it is queued."""
    settings = call.core.settings
    source = Source(n, matrix)
    header = _solve_header(source, want, detach=True)

    def make() -> Solve:
        arrays = ArraySource(_solve_arrays(source, want), settings.chunk_bytes, settings.send_checksums)
        return Solve(header, arrays, want.b.shape, detach=True)

    # A second detached solve would be a second job that nobody waits for.
    one = yield from attempts(call, make, Repeat.ONLY_IF_REFUSED, affinity_of(matrix))
    if not one.follower.job:
        raise violation('a detached solve without a job')
    return one.follower


def _build_header(matrix: str, spec: Any, work: Work, detach: bool) -> Any:
    header = _wire.v1('BuildHeader')(matrix=matrix, spec=spec)
    work.fill(header, detach)
    return header


def build(call: Call, matrix: str, spec: Any, work: Work, fetch: bool,
          known: Csc | None = None) -> Procedure[tuple[PreconditionerInfo, Timings, Csc | None]]:
    """known: an M from before; where the new one has its pattern, values alone come."""
    header = _build_header(matrix, spec, work, detach=False)
    header.stream_result = header.partial_result = fetch
    if fetch and known is not None:
        header.known_pattern = _digest.pattern_digest(known.pattern())
    one = yield from attempts(call, lambda: Build(header, known if header.known_pattern else None), Repeat.SAFE,
                              affinity_of(matrix))
    done, m = one.result()
    return read(PreconditionerInfo, done.preconditioner), member(done, 'timings'), m


def start_build(call: Call, matrix: str, spec: Any, work: Work) -> Procedure[tuple[JobFollower, str]]:
    """(follower, '') of a job; ('', handle) where the preconditioner was there."""
    header = _build_header(matrix, spec, work, detach=True)
    # A detached build is still one build when it is asked for twice: the daemon joins them by content.
    one = yield from attempts(call, lambda: Build(header, None, detach=True), Repeat.SAFE, affinity_of(matrix))
    if one.follower.job:
        return one.follower, ''
    return one.follower, read(PreconditionerInfo, one.result()[0].preconditioner).name


def download(call: Call, name: str, part: Part | None = None) -> Procedure[Csc]:
    request = _wire.v1('DownloadPreconditionerRequest')(name=name, value_type=1)
    if part is not None:
        request.part.level = part.level
        request.part.kind = _options.enum_value('spaid.v1.PartKind', part.kind, 'kind')
    one = yield from attempts(call, lambda: Download(request), Repeat.SAFE, affinity_of(name))
    return one.result()


def estimate(call: Call, matrix: str, spec: Any) -> Procedure[BuildEstimate]:
    answer = yield from unary(call, '/spaid.v1.PreconditionerService/EstimateBuild',
                              _wire.v1('EstimateBuildRequest')(matrix=matrix, spec=spec),
                              _wire.v1('EstimateBuildResponse'))
    return read(BuildEstimate, answer)


def _named(service: str, verb: str, kind: str) -> tuple[str, Any, Any]:
    """Method, request and response of a call that names one thing."""
    return (f'/spaid.v1.{service}Service/{verb}{kind}', _wire.v1(f'{verb}{kind}Request'),
            _wire.v1(f'{verb}{kind}Response'))


def matrix_info(call: Call, name: str) -> Procedure[MatrixInfo]:
    method, request, response = _named('Matrix', 'Get', 'Matrix')
    info = read(MatrixInfo, (yield from unary(call, method, request(name=name), response)).matrix)
    call.core.remember_order(name, info.n)
    return info


def preconditioner_info(call: Call, name: str) -> Procedure[PreconditionerInfo]:
    method, request, response = _named('Preconditioner', 'Get', 'Preconditioner')
    return read(PreconditionerInfo, (yield from unary(call, method, request(name=name), response)).preconditioner)


def job_info(call: Call, name: str) -> Procedure[JobInfo]:
    method, request, response = _named('Job', 'Get', 'Job')
    return read(JobInfo, (yield from unary(call, method, request(name=name), response)).job)


def cancel_job(call: Call, name: str) -> Procedure[JobInfo]:
    method, request, response = _named('Job', 'Cancel', 'Job')
    return read(JobInfo, (yield from unary(call, method, request(name=name), response)).job)


def delete(call: Call, kind: str, name: str) -> Procedure[None]:
    """kind: 'Matrix', 'Preconditioner'."""
    method, request, response = _named(kind, 'Delete', kind)
    yield from unary(call, method, request(name=name), response, Repeat.ONLY_IF_REFUSED)


def server_info(call: Call) -> Procedure[ServerInfo]:
    answer = yield from unary(call, '/spaid.v1.ServerService/GetServerInfo', _wire.v1('GetServerInfoRequest')(),
                              _wire.v1('GetServerInfoResponse'))
    return read(ServerInfo, answer)


_LISTS = {'Matrices': ('Matrix', 'matrices', MatrixInfo),
          'Preconditioners': ('Preconditioner', 'preconditioners', PreconditionerInfo),
          'Jobs': ('Job', 'jobs', JobInfo)}


def listed(call: Call, what: str, **filters: Any) -> Procedure[list[Any]]:
    """All pages of 'Matrices', 'Preconditioners' or 'Jobs'."""
    service, field, kind = _LISTS[what]
    found: list[Any] = []
    token = ''
    seen: set[str] = set()
    while True:
        request = _wire.v1(f'List{what}Request')(page_size=_PAGE_SIZE, page_token=token, **filters)
        page = yield from unary(call, f'/spaid.v1.{service}Service/List{what}', request,
                                _wire.v1(f'List{what}Response'))
        found += [read(kind, one) for one in getattr(page, field)]
        token = page.next_page_token
        if not token:
            return found
        if token in seen or len(seen) >= _MAX_PAGES or len(found) > _MAX_LIST:
            raise violation('a list whose pages have no end')
        seen.add(token)


def watch(call: Call, follower: JobFollower, with_solution: bool) -> Procedure[tuple[JobInfo, Any]]:
    """(how the job ended, its solution or None); reports events behind the follower's last one, and reconnects."""
    x = None
    try:
        one = yield from attempts(call, lambda: Watch(follower, with_solution), Repeat.FOLLOW,
                                  affinity_of(follower.job))
        x = one.result()
    except SpaidError:
        # A watch for events only does not care what follows the last of them.
        if with_solution or follower.finished is None:
            raise
    if follower.finished is None:  # it had ended before the first event that was asked for
        follower.finished = yield from job_info(call, follower.job)
        if follower.finished.end_time is None:
            follower.finished = None
            raise violation('the events ended before the job had')
    return follower.finished, x


def wait(call: Call, follower: JobFollower) -> Procedure[JobEnd]:
    """The job's end, with its solution where it has one."""
    why = ''
    x = None
    try:
        info, x = yield from watch(call, follower, with_solution=True)
    except SpaidError as error:
        if error.reason not in ('NOT_A_SOLVE', 'SOLUTION_GONE'):
            raise
        why = error.message
        info, _ = yield from watch(call, follower, with_solution=False)
    if x is not None and x.shape[1] == 1:
        x = x[:, 0]
    if x is None and not why:
        why = info.error.message if info.error is not None else 'the job has no solution'
    return JobEnd(info, x, '' if x is not None else why)
