"""The blocking face: Client, System, Job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from spaid import _matrix, _procedures, _requests
from spaid._calls import JobFollower
from spaid._core import Call, Deadline, Procedure, Settings
from spaid._sync import Callback, Driver
from spaid._system import SystemState
from spaid.results import (BuildEstimate, JobEnd, JobInfo, LocalStatus, MatrixInfo, PreconditionerInfo, Progress,
                           ServerInfo, SolveResult)

if TYPE_CHECKING:
    from spaid._multigrid import Multigrid
    from spaid._operator import Preconditioner

_T = TypeVar('_T')


class Client:
    """A connection to one daemon, or to some replicas. Thread-safe; connects with the first call, and anew in a forked
    process.

    address: HOST:PORT or unix:PATH; several, with commas between them: replicas, of which each matrix, by its pattern,
    has one (needs xxhash), and of which one that cannot be reached, or drains, is skipped for a while; lists and
    server_info are of the first that can be reached. None: $SPAID_ADDRESS, else 127.0.0.1:7433. token: bearer token; None:
    $SPAID_TOKEN. tenant: believed only by --trust-tenant-header. ca_file, certificate_file, key_file: PEM, any set:
    TLS; the last two: mTLS. local_socket: the --local-socket of a daemon on this host, None: $SPAID_LOCAL_SOCKET;
    with it arrays of 256 KiB and more go by shared memory, through segments of up to staging_bytes in all, or where
    they lie, if `allocate` made them. max_attempts: of calls that may be repeated, with back-off. chunk_bytes: 8 to
    3 MiB. send_digests: ask whether the daemon has a matrix before it is sent (needs xxhash). traceparent: the span
    that calls are part of, as W3C Trace Context writes it, with its tracestate; '': $TRACEPARENT and $TRACESTATE; of
    single calls: spaid.in_trace.

    InputError/BAD_OPTION, UNREADABLE_FILE at once; every call may raise SpaidError.

    >>> with spaid.Client() as client:  # A, b: SciPy's and NumPy's
    ...     result = client.solve(A, b, engine='fsai', rtol=1e-10)
    >>> result.converged, result.x.shape == b.shape, np.linalg.norm(A @ result.x - b) <= 1.001e-10 * np.linalg.norm(b)
    (True, True, True)
    """

    def __init__(self, address: str | None = None, *, token: str | None = None, tenant: str = '', ca_file: str = '',
                 certificate_file: str = '', key_file: str = '', local_socket: str | None = None,
                 max_attempts: int = 4, chunk_bytes: int = 1 << 20, send_digests: bool = True,
                 send_checksums: bool = True, staging_bytes: int = 256 << 20, traceparent: str = '',
                 tracestate: str = '') -> None:
        self._driver = Driver(Settings.of(
            address, token, local_socket, tenant=tenant, ca_file=ca_file, certificate_file=certificate_file,
            key_file=key_file, max_attempts=max_attempts, chunk_bytes=chunk_bytes, send_digests=send_digests,
            send_checksums=send_checksums, staging_bytes=staging_bytes, traceparent=traceparent,
            tracestate=tracestate))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; calls after this are CLOSED."""
        self._driver.close()

    @property
    def address(self) -> str:
        return self._driver.settings.address

    def _call(self, timeout: float | None) -> Call:
        return Call(self._driver.core, Deadline(timeout))

    def _run(self, call: Call, procedure: Procedure[_T], callback: Callback | None = None) -> _T:
        return self._driver.run(procedure, call.deadline, callback)

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, devices, limits and queue, and who it takes the caller for."""
        call = self._call(timeout)
        return self._run(call, _procedures.server_info(call))

    def local_status(self) -> LocalStatus:
        """Whether arrays are shared with the daemon, and if not, why; asks it."""
        return self._driver.core.link.status()

    def allocate(self, shape: Any, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Zeros by columns in memory that a daemon on this host reads, and writes, where it lies; ordinary zeros
        without a local_socket. After a fork parent and child share it. OUT_OF_MEMORY."""
        return _requests.allocate(self._driver.core.link, shape, dtype)

    def system(self, a: Any, *, label: str = '') -> System:
        """A system that is solved again and again: see System. Nothing is sent yet."""
        return System(self, a, label)

    def solve(self, a: Any, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None,
              reuse: str = '', reuse_factor: float | None = None, null_space: str = 'auto', null_vectors: Any = None,
              out: npt.NDArray[np.float64] | None = None, omit_solution: bool = False,
              callback: Callback | None = None, timeout: float | None = None, priority: str = 'normal',
              max_queue: float | None = None, max_run: float | None = None, **options: Any) -> SolveResult:
        """Solves A X = B. a: a sparse matrix, or the handle of a stored one; b: (n,) or (n, k).

        engine: 'auto' by default; or preconditioner: a Preconditioner or its handle, and reuse: what becomes of it
        ('keep', 'rebuild', 'auto') where it was made of an earlier A. options: those of the engine and of the
        iteration by their names on the wire: method, rtol (1e-8), atol, max_iterations, restart, k_max,
        pattern_power, … (docs/engines.md). Of engine 'amg' near_null_space, (n, k), and coordinates of the nodes,
        (n/2, 2) or (n/3, 3), are arrays, or handles. x0: initial guess. out: takes x. null_vectors: z with A z = 0, (n, k).
        callback: called with each Progress on this thread. timeout: of the whole call; max_queue, max_run: of the
        job; seconds. Ctrl-C cancels the job.

        A solve that does not converge raises nothing: look at `converged`. InputError: BAD_MATRIX, SIZE_MISMATCH,
        BAD_OPTION; SpaidError: the server's.
        """
        call = self._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse=reuse, reuse_factor=reuse_factor,
                      null_space=null_space, null_vectors=null_vectors, out=out, omit_solution=omit_solution,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        return self._run(call, _requests.solve(call, a, b, kwargs), callback)

    def upload(self, a: Any, *, label: str = '', timeout: float | None = None,
               callback: Callback | None = None) -> MatrixInfo:
        """Stores A, or finds it by its digests without sending it; the handle is `name`."""
        call = self._call(timeout)
        return self._run(call, _procedures.upload_matrix(call, _matrix.take(a), label), callback)

    def matrix(self, handle: str, *, timeout: float | None = None) -> MatrixInfo:
        """Describes a stored matrix. HANDLE_UNKNOWN, HANDLE_EVICTED."""
        call = self._call(timeout)
        return self._run(call, _procedures.matrix_info(call, handle))

    def matrices(self, *, timeout: float | None = None) -> list[MatrixInfo]:
        """All stored matrices, newest first."""
        call = self._call(timeout)
        return self._run(call, _procedures.listed(call, 'Matrices'))

    def delete_matrix(self, handle: str, *, timeout: float | None = None) -> None:
        """Deletes a matrix; jobs that use it keep it until they end."""
        call = self._call(timeout)
        self._run(call, _procedures.delete(call, 'Matrix', handle))

    def preconditioner(self, handle: str, *, timeout: float | None = None,
                       callback: Callback | None = None) -> Preconditioner | Multigrid:
        """Fetches a stored preconditioner as a LinearOperator (needs SciPy); one of engine amg by all of its parts."""
        call = self._call(timeout)
        return self._run(call, _requests.fetch(call, handle), callback)

    def part(self, preconditioner: Any, kind: str, level: int = 0, *, timeout: float | None = None,
             callback: Callback | None = None) -> Any:
        """Fetches one of `info.parts` of an M of engine amg, by kind and level, as a csc_matrix (needs SciPy)."""
        call = self._call(timeout)
        return self._run(call, _requests.part(call, preconditioner, kind, level), callback)

    def preconditioners(self, *, timeout: float | None = None) -> list[PreconditionerInfo]:
        """All stored preconditioners, newest first."""
        call = self._call(timeout)
        return self._run(call, _procedures.listed(call, 'Preconditioners'))

    def delete_preconditioner(self, handle: str, *, timeout: float | None = None) -> None:
        """Deletes a preconditioner."""
        call = self._call(timeout)
        self._run(call, _procedures.delete(call, 'Preconditioner', handle))

    def job(self, name: str) -> Job:
        """A job by its name; does not ask the server."""
        return Job(self, name)

    def jobs(self, state: str = '', *, all_tenants: bool = False, timeout: float | None = None) -> list[JobInfo]:
        """The tenant's jobs, newest first; state: only those that are 'queued', 'running', 'succeeded', 'failed' or
        'cancelled'. all_tenants: everybody's, with their `tenant`, for a client whose token, or certificate, is an
        administrator's; else SpaidError/NOT_ADMINISTRATOR."""
        call = self._call(timeout)
        return self._run(call, _requests.jobs(call, state, all_tenants))


class System:
    """A x = b, solved again and again while the values of A change: the pattern is sent once, then values alone, and M
    is kept while it does. What the server has lost meanwhile is sent and built again.

    Borrows the arrays of A, and those of `update`: change them only to give them to `update`. One call at a time;
    others wait.

    >>> client = spaid.Client()
    >>> system = client.system(A, label='heat')
    >>> for step in range(3):
    ...     system.update(A.data * (1 + 0.01 * step))
    ...     result = system.solve(b, engine='fsai')
    >>> result.reuse.decision, result.timings.bytes_up == 8 * A.nnz + b.nbytes
    ('kept', True)
    >>> M = system.preconditioner('afsai', k_max=5)  # a LinearOperator of SciPy
    >>> x, info = scipy.sparse.linalg.cg(A, b, M=M, atol=0)
    >>> info
    0
    >>> client.close()
    """

    def __init__(self, client: Client, a: Any, label: str = '') -> None:
        self._client = client
        self._state = SystemState(a, label)
        self._lock = threading.Lock()

    @property
    def n(self) -> int:
        return self._state.n

    @property
    def matrix(self) -> str:
        """The handle of the present A on the server; '' where it is not there yet."""
        return self._state.matrix

    def update(self, values: Any) -> None:
        """Takes new values, in the order of those of A (A.data; of dia, bsr, lil, dok: those of A.tocsr()); or a sparse
        matrix, whose pattern is compared. They go to the server with the next call, 8 bytes an entry."""
        with self._lock:
            self._state.update(values)

    def solve(self, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None, reuse: str = '',
              reuse_factor: float | None = None, null_space: str = 'auto', null_vectors: Any = None,
              out: npt.NDArray[np.float64] | None = None, omit_solution: bool = False,
              callback: Callback | None = None, timeout: float | None = None, priority: str = 'normal',
              max_queue: float | None = None, max_run: float | None = None, **options: Any) -> SolveResult:
        """Solves A X = B, as Client.solve. Where an engine is named, M of an earlier step serves on, and is built anew
        by `reuse`: 'auto' (when it takes reuse_factor, 1.5, times its first count of iterations), 'keep', 'rebuild'."""
        call = self._client._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse=reuse, reuse_factor=reuse_factor,
                      null_space=null_space, null_vectors=null_vectors, out=out, omit_solution=omit_solution,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        with self._lock:
            return self._client._run(
                call, _requests.solve_system(call, self._state, b, kwargs), callback)

    def preconditioner(self, engine: str = 'auto', *, callback: Callback | None = None, timeout: float | None = None,
                       priority: str = 'normal', max_queue: float | None = None, max_run: float | None = None,
                       **options: Any) -> Preconditioner | Multigrid:
        """Builds M of the present A and fetches it: a SciPy LinearOperator, for `M=` of SciPy's solvers. options: the
        engine's, by their names on the wire."""
        call = self._client._call(timeout)
        work = _procedures.Work(priority, max_queue, max_run)
        with self._lock:
            return self._client._run(
                call, _requests.build_system(call, self._state, engine, options, work), callback)

    def estimate(self, engine: str = 'auto', *, timeout: float | None = None, **options: Any) -> BuildEstimate:
        """Estimates that build, counted from the pattern."""
        call = self._client._call(timeout)
        with self._lock:
            return self._client._run(call, _requests.estimate_system(call, self._state, engine, options))

    def start_solve(self, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None,
                    null_space: str = 'auto', null_vectors: Any = None, timeout: float | None = None,
                    priority: str = 'normal', max_queue: float | None = None, max_run: float | None = None,
                    **options: Any) -> Job:
        """Starts a solve that outlives this process, and returns once it is queued."""
        call = self._client._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse='', reuse_factor=None,
                      null_space=null_space, null_vectors=null_vectors, out=None, omit_solution=False,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        with self._lock:
            follower = self._client._run(call, _requests.start_system(call, self._state, b, kwargs))
        return Job(self._client, follower.job, follower)

    def start_build(self, engine: str = 'auto', *, timeout: float | None = None, priority: str = 'normal',
                    max_queue: float | None = None, max_run: float | None = None, **options: Any) -> Job:
        """Starts a build that outlives this process. A preconditioner that is there already is a job that has ended,
        without a name: its `info().preconditioner` is the handle."""
        call = self._client._call(timeout)
        work = _procedures.Work(priority, max_queue, max_run)
        with self._lock:
            follower = self._client._run(
                call, _requests.start_build_system(call, self._state, engine, options, work))
        return Job(self._client, follower.job, follower)


class Job:
    """A job on the server, which runs on without this process. Following it outlives broken connections: it goes on
    behind the last event. `name` is kept, and `Client.job(name)` finds it from elsewhere. watch, wait and events: one
    thread at a time.

    >>> with spaid.Client() as client:
    ...     name = client.system(A).start_solve(b).name
    ...     end = client.job(name).wait()  # in this process or another one
    >>> end.info.state, end.x.shape == b.shape
    ('succeeded', True)
    """

    def __init__(self, client: Client, name: str, follower: JobFollower | None = None) -> None:
        self._client = client
        self.name = name
        self._follower = follower or JobFollower(name)

    def __repr__(self) -> str:
        return f'<spaid.Job {self.name}>'

    def events(self, *, timeout: float | None = None) -> Iterator[Progress]:
        """The events that were not seen yet, as they come, until the job has ended."""
        if self._follower.finished is not None:
            return
        call = self._client._call(timeout)
        yield from self._client._driver.reports(_procedures.watch(call, self._follower, False), call.deadline)

    def watch(self, callback: Callback | None = None, *, timeout: float | None = None) -> JobInfo:
        """Reports events until the job has ended, and returns how; Ctrl-C ends the watch, not the job."""
        if self._follower.finished is None:
            call = self._client._call(timeout)
            self._client._run(call, _procedures.watch(call, self._follower, False), callback)
        assert self._follower.finished is not None
        return self._follower.finished

    def wait(self, callback: Callback | None = None, *, timeout: float | None = None) -> JobEnd:
        """Watches the job to its end and returns its solution, too."""
        if not self.name:
            assert self._follower.finished is not None
            return JobEnd(self._follower.finished, None, 'the job is a build')
        call = self._client._call(timeout)
        return self._client._run(call, _procedures.wait(call, self._follower), callback)

    def cancel(self, *, timeout: float | None = None) -> JobInfo:
        """Tells the job to stop; `wait` returns when it has, with its best iterate."""
        if not self.name:
            return self.watch()
        call = self._client._call(timeout)
        return self._client._run(call, _procedures.cancel_job(call, self.name))

    def info(self, *, timeout: float | None = None) -> JobInfo:
        """The job's present state."""
        if not self.name:
            return self.watch()
        call = self._client._call(timeout)
        return self._client._run(call, _procedures.job_info(call, self.name))
