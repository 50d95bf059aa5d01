"""Single attempts of calls, without input and output: what to send next, and what to make of what comes.

A driver (_sync.py, _async.py) sends what `next` gives, hands `take` what comes, and asks for `result` when the
server has ended the call with OK. `next` may be asked from another thread than `take`: the driver locks.
"""

from __future__ import annotations

import collections
import enum
from typing import Any, Union

import numpy as np

from spaid import _digest, _wire
from spaid._arrays import ArraySink, ArraySource, Csc, CscSink
from spaid._matrix import Sparse
from spaid.errors import violation
from spaid.results import JobInfo, Progress, Quality, Residual, Rung, read

# A server thins a job's residuals to 100,000, and may have sent some of them before.
_MAX_RESIDUALS = 2_000_000
MAX_RHS = 1024


class Feed(enum.Enum):
    """The answer to "what next?", where it is no request."""

    LATER = 1  # nothing until the server has said something
    END = 2  # no more


Next = Union[bytes, Feed]


class Routed:
    """A call, and where it goes."""

    address = affinity = ''

    def goes(self, address: str, affinity: str) -> None:
        self.address, self.affinity = address, affinity

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Its own, beside the client's."""
        return (('x-spaid-affinity', self.affinity),) if self.affinity else ()


class Unary(Routed):
    """A call of one request and one answer."""

    def __init__(self, method: str, request: Any, response: Any) -> None:
        self.method, self.request, self.response = method, request, response


class Stream(Routed):
    """A call whose answers are a stream. Chunks come to `chunk`, all else to `event`."""

    method = ''
    response: Any = None  # class
    chunk_field = 0  # of the response

    def __init__(self) -> None:
        self._first: collections.deque[bytes] = collections.deque()

    def next(self) -> Next:
        return self._first.popleft() if self._first else Feed.END

    def take(self, raw: bytes) -> list[Progress]:
        """Takes a response; SpaidError where the server breaks the contract."""
        try:
            piece = _wire.piece(raw)
            if piece is not None and piece[0] == self.chunk_field:
                return self.chunk(_wire.chunk_of(piece[1]))
            return self.event(self.response.FromString(raw))
        except _wire.DecodeError as error:
            raise violation(f'a message that cannot be read ({error})') from None

    @property
    def enough(self) -> bool:
        """The driver may leave the stream, which is not yet at its end."""
        return False

    def chunk(self, chunk: _wire.Chunk) -> list[Progress]:
        raise violation('a chunk that nobody asked for')

    def event(self, message: Any) -> list[Progress]:
        raise NotImplementedError


class JobFollower:
    """Turns job events into reports, each number once, and keeps what results need."""

    def __init__(self, job: str = '', last_event: int = 0) -> None:
        self.job, self.last_event = job, last_event
        self.finished: JobInfo | None = None
        self.residuals: list[tuple[int, int, float]] = []

    def take(self, event: Any) -> list[Progress]:
        if event.number > 0:  # a heartbeat has none
            if event.number <= self.last_event:
                return []
            self.last_event = event.number
        kind = event.WhichOneof('event')
        if kind is None:
            return []
        body = getattr(event, kind)
        more: dict[str, Any] = {}
        if kind == 'queued':
            self.job = body.job or self.job
            more = {'position': body.position, 'eta_ms': body.eta_ms}
        elif kind == 'heartbeat':
            more = {'position': body.position, 'eta_ms': body.eta_ms}
        elif kind == 'started':
            more = {'device': body.device}
        elif kind == 'progress':
            stage = body.DESCRIPTOR.fields_by_name['stage'].enum_type
            kind, more = 'stage', {'stage': _wire.enum_name(stage, body.stage), 'done': body.done,
                                   'total': body.total, 'device': body.device}
        elif kind == 'residuals':
            new = [(r.rhs, r.iteration, r.relative_residual) for r in body.residuals]
            if len(self.residuals) + len(new) > _MAX_RESIDUALS:
                raise violation('more residuals than a job can have')
            self.residuals += new
            more = {'residuals': tuple(Residual(*r) for r in new)}
        elif kind == 'quality':
            more = {'quality': read(Quality, body)}
        elif kind == 'rung':
            more = {'rung': read(Rung, body)}
        elif kind == 'finished':
            self.finished = read(JobInfo, body.job)
            more = {'job_info': self.finished}
        return [Progress(kind, self.job, event.number, **more)]


class Upload(Stream):
    """UploadMatrix: header, the server's answer, what it needs. `digest`: the header has XXH3; SHA-256 is added to
    it where the server may have the content. `source`: of the arrays; nothing is wanted of it yet."""

    method = '/spaid.v1.MatrixService/UploadMatrix'

    def __init__(self, a: Sparse, header: Any, source: ArraySource, digest: bool, values_alone: bool) -> None:
        super().__init__()
        self.response = _wire.v1('UploadMatrixResponse')
        self._a, self._header, self._source = a, header, source
        self._say_header, self._answered, self._known = True, not digest, False
        self.stored: Any = None
        self.timings: Any = None
        if not digest and values_alone:
            source.want(_wire.VALUES, 0, a.pattern.nnz)
        elif not digest:
            source.want_all()

    def next(self) -> Next:
        request = _wire.v1('UploadMatrixRequest')
        if self._say_header:
            self._say_header = False
            return bytes(request(header=self._header).SerializeToString())
        if not self._answered:
            return Feed.LATER
        return Feed.END if self._source.empty else self._source.next(request)

    def event(self, message: Any) -> list[Progress]:
        kind = message.WhichOneof('event')
        if kind == 'wait':
            self._known = True
        elif kind == 'have':
            self._answered, self.stored = True, message.have
        elif kind == 'need' and not self._answered:
            self._need(message.need)
        elif kind == 'done':
            self._answered = True
            self.stored, self.timings = message.done.matrix, message.done.timings
        done = self._source.sent
        return [Progress('upload', done=done, total=self._source.total)] if done else []

    def _need(self, need: Any) -> None:
        digest = _digest.digest_of(self._a, self._header)
        if (self._known or need.pattern_known) and not digest.pattern_sha256:
            # Content, or a pattern, of these XXH3 digests is there, or on its way: asked again by SHA-256.
            _digest.add_sha256(digest, self._a, pattern_alone=not self._known)
            self._say_header = True
            return
        self._answered = True
        for part in need.ranges:
            self._source.want(part.array, part.offset, part.count)

    def result(self) -> Any:
        """The stored Matrix."""
        if self.stored is None or not self.stored.name:
            raise violation('an upload ended without the stored matrix')
        if self.stored.n != self._a.pattern.n:
            raise violation('another matrix was stored')
        return self.stored


class Solve(Stream):
    """Solve: header and arrays up; events, solution and outcomes down. shape: of b, by columns."""

    method = '/spaid.v1.SolverService/Solve'
    chunk_field = 3

    def __init__(self, header: Any, source: ArraySource, shape: tuple[int, ...], detach: bool = False) -> None:
        super().__init__()
        self.response = _wire.v1('SolveResponse')
        self._header, self._source, self._shape = header, source, shape
        source.want_all()
        self._header_sent = False
        count = int(np.prod(shape))
        self._sink = ArraySink(_wire.SOLUTION, 'f8', count)
        self.follower = JobFollower()
        self.done: Any = None
        self._detach = detach

    def next(self) -> Next:
        request = _wire.v1('SolveRequest')
        if not self._header_sent:
            self._header_sent = True
            return bytes(request(header=self._header).SerializeToString())
        return Feed.END if self._source.empty else self._source.next(request)

    def chunk(self, chunk: _wire.Chunk) -> list[Progress]:
        self._sink.take(chunk)
        return [Progress('download', self.follower.job, done=8 * self._sink.received, total=8 * self._sink.count)]

    def event(self, message: Any) -> list[Progress]:
        kind = message.WhichOneof('event')
        if kind == 'job':
            return self.follower.take(message.job)
        if kind == 'done':
            self.done = message.done
        return []

    @property
    def enough(self) -> bool:
        """A detached job is queued: it has all its input, and runs on without this stream."""
        return self._detach and bool(self.follower.job)

    @property
    def rhs_count(self) -> int:
        return self._shape[1] if len(self._shape) > 1 else 1

    def result(self) -> Any:
        """SolveDone; `in_place` and `solution` tell of x."""
        if self.done is None:
            raise violation('a solve ended without its outcome')
        if len(self.done.outcomes) != self.rhs_count:
            raise violation('as many outcomes as right-hand sides were expected')
        if not (self._header.omit_solution or self.in_place or self._sink.complete):
            raise violation('the solution ended before all of it had come')
        if any(not 0 <= r[0] < self.rhs_count for r in self.follower.residuals):
            raise violation('a residual of a right-hand side that was not sent')
        return self.done

    @property
    def in_place(self) -> bool:
        """x lies in the header's solution_segment."""
        return bool(self._header.HasField('solution_segment')
                    and self.done.solution_bytes == 8 * self._sink.count)

    @property
    def solution(self) -> Any:
        return self._sink.result().reshape(self._shape, order='F')

    def histories(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(relative residuals, their iterations), of each right-hand side."""
        table = np.array(self.follower.residuals, np.float64).reshape(-1, 3)
        mine = [table[table[:, 0] == k] for k in range(self.rhs_count)]
        return tuple(m[:, 2] for m in mine), tuple(m[:, 1].astype(np.int64) for m in mine)


class Build(Stream):
    """BuildPreconditioner of a stored matrix; M comes with it where the header says so."""

    method = '/spaid.v1.PreconditionerService/BuildPreconditioner'
    chunk_field = 4

    def __init__(self, header: Any, known: Csc | None, detach: bool = False) -> None:
        super().__init__()
        self.response = _wire.v1('BuildPreconditionerResponse')
        request = _wire.v1('BuildPreconditionerRequest')(header=header)
        self._first.append(request.SerializeToString())
        self._header, self._known = header, known
        self._sink: CscSink | None = None
        self.follower = JobFollower()
        self.done: Any = None
        self._detach = detach

    def chunk(self, chunk: _wire.Chunk) -> list[Progress]:
        if self._sink is None:
            raise violation("a chunk before the result's header")
        self._sink.take(chunk)
        # One thing at a time: while M is being built, progress is that of the build.
        if self.follower.job and not self.follower.finished:
            return []
        return [Progress('download', self.follower.job, done=self._sink.received, total=self._sink.total)]

    def event(self, message: Any) -> list[Progress]:
        kind = message.WhichOneof('event')
        if kind == 'job':
            return self.follower.take(message.job)
        if kind == 'result':  # a second one voids what came before: the build began anew
            self._sink = CscSink(message.result, self._known)
        elif kind == 'done':
            self.done = message.done
        return []

    @property
    def enough(self) -> bool:
        """A detached job is queued: it has all its input, and runs on without this stream."""
        return self._detach and bool(self.follower.job)

    def result(self) -> tuple[Any, Csc | None]:
        """(BuildDone, M)."""
        if self.done is None:
            raise violation('a build ended without its result')
        if not self._header.stream_result:
            return self.done, None
        if self._sink is None:
            raise violation('the result that was asked for did not come')
        return self.done, self._sink.result()


class Download(Stream):
    """DownloadPreconditioner."""

    method = '/spaid.v1.PreconditionerService/DownloadPreconditioner'
    chunk_field = 2

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.response = _wire.v1('DownloadPreconditionerResponse')
        self._first.append(request.SerializeToString())
        self._sink: CscSink | None = None

    def chunk(self, chunk: _wire.Chunk) -> list[Progress]:
        if self._sink is None:
            raise violation("a chunk before the result's header")
        self._sink.take(chunk)
        return [Progress('download', done=self._sink.received, total=self._sink.total)]

    def event(self, message: Any) -> list[Progress]:
        if message.WhichOneof('event') == 'header':
            if self._sink is not None:
                raise violation('a second header of the result')
            self._sink = CscSink(message.header, None)
        return []

    def result(self) -> Csc:
        if self._sink is None:
            raise violation('a download ended without the result')
        return self._sink.result()


class Watch(Stream):
    """WatchJob, from the event behind the follower's last one."""

    method = '/spaid.v1.JobService/WatchJob'
    chunk_field = 3

    def __init__(self, follower: JobFollower, with_solution: bool) -> None:
        super().__init__()
        self.response = _wire.v1('WatchJobResponse')
        request = _wire.v1('WatchJobRequest')(name=follower.job, first_event=follower.last_event + 1,
                                              with_solution=with_solution)
        self._first.append(request.SerializeToString())
        self.follower, self._with_solution = follower, with_solution
        self.progressed = False
        self._sink: ArraySink | None = None
        self._shape = (0, 0)

    def chunk(self, chunk: _wire.Chunk) -> list[Progress]:
        if self._sink is None:
            raise violation("a chunk before the solution's size")
        self._sink.take(chunk)
        return []

    def event(self, message: Any) -> list[Progress]:
        if message.HasField('solution') and self._with_solution:
            n, count = message.solution.n, message.solution.rhs_count
            if self._sink is not None:
                raise violation('a second solution')
            if not 1 <= n <= 2**31 - 1 or not 1 <= count <= MAX_RHS:
                raise violation('a solution of an impossible size')
            self._shape = (n, count)
            self._sink = ArraySink(_wire.SOLUTION, 'f8', n * count)
        elif message.HasField('event'):
            self.progressed = True
            reports = self.follower.take(message.event)
            self.follower.residuals.clear()
            return reports
        return []

    def result(self) -> Any:
        """The solution, (n, k); None: there is none."""
        if self._sink is None:
            return None
        if not self._sink.complete:
            raise violation('the solution ended early')
        return self._sink.result().reshape(self._shape, order='F')

