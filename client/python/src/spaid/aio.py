"""The face for asyncio: spaid.aio.Client, with the calls of spaid.Client as coroutines. Cancelling a task cancels its
call, and so its job. A callback may be a coroutine function, too.

    >>> async def solve_all(many):
    ...     async with spaid.aio.Client() as client:
    ...         return await asyncio.gather(*(client.solve(A, b) for b in many))
    >>> [result.converged for result in asyncio.run(solve_all([b, 2 * b]))]
    [True, True]
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from spaid import _matrix, _procedures, _requests
from spaid._async import Callback, Driver
from spaid._calls import JobFollower
from spaid._core import Call, Deadline, Procedure, Settings
from spaid._system import SystemState
from spaid.results import (BuildEstimate, JobEnd, JobInfo, LocalStatus, MatrixInfo, PreconditionerInfo, ServerInfo,
                           SolveResult)

if TYPE_CHECKING:
    from spaid._multigrid import Multigrid
    from spaid._operator import Preconditioner

__all__ = ['Client', 'Job', 'System']
_T = TypeVar('_T')


class Client:
    """A connection to one daemon, of one event loop; arguments as those of spaid.Client."""

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

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; calls after this are CLOSED."""
        await self._driver.close()

    @property
    def address(self) -> str:
        return self._driver.settings.address

    def _call(self, timeout: float | None) -> Call:
        return Call(self._driver.core, Deadline(timeout))

    async def _run(self, call: Call, procedure: Procedure[_T], callback: Callback | None = None) -> _T:
        return await self._driver.run(procedure, call.deadline, callback)

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, devices, limits and queue, and who it takes the caller for."""
        call = self._call(timeout)
        return await self._run(call, _procedures.server_info(call))

    async def local_status(self) -> LocalStatus:
        """Whether arrays are shared with the daemon, and if not, why; asks it."""
        return await asyncio.get_running_loop().run_in_executor(None, self._driver.core.link.status)

    def allocate(self, shape: Any, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """As spaid.Client.allocate; does not wait for anybody."""
        return _requests.allocate(self._driver.core.link, shape, dtype)

    def system(self, a: Any, *, label: str = '') -> System:
        """A system that is solved again and again: see spaid.System."""
        return System(self, a, label)

    async def solve(self, a: Any, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None,
                    reuse: str = '', reuse_factor: float | None = None, null_space: str = 'auto',
                    null_vectors: Any = None, out: npt.NDArray[np.float64] | None = None,
                    omit_solution: bool = False, callback: Callback | None = None, timeout: float | None = None,
                    priority: str = 'normal', max_queue: float | None = None, max_run: float | None = None,
                    **options: Any) -> SolveResult:
        """As spaid.Client.solve."""
        call = self._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse=reuse, reuse_factor=reuse_factor,
                      null_space=null_space, null_vectors=null_vectors, out=out, omit_solution=omit_solution,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        return await self._run(call, _requests.solve(call, a, b, kwargs), callback)

    async def upload(self, a: Any, *, label: str = '', timeout: float | None = None,
                     callback: Callback | None = None) -> MatrixInfo:
        """As spaid.Client.upload."""
        call = self._call(timeout)
        return await self._run(call, _procedures.upload_matrix(call, _matrix.take(a), label), callback)

    async def matrix(self, handle: str, *, timeout: float | None = None) -> MatrixInfo:
        """Describes a stored matrix."""
        call = self._call(timeout)
        return await self._run(call, _procedures.matrix_info(call, handle))

    async def matrices(self, *, timeout: float | None = None) -> list[MatrixInfo]:
        """All stored matrices, newest first."""
        call = self._call(timeout)
        return await self._run(call, _procedures.listed(call, 'Matrices'))

    async def delete_matrix(self, handle: str, *, timeout: float | None = None) -> None:
        """Deletes a matrix; jobs that use it keep it until they end."""
        call = self._call(timeout)
        await self._run(call, _procedures.delete(call, 'Matrix', handle))

    async def preconditioner(self, handle: str, *, timeout: float | None = None,
                             callback: Callback | None = None) -> Preconditioner | Multigrid:
        """Fetches a stored preconditioner as a LinearOperator (needs SciPy); one of engine amg by all of its parts."""
        call = self._call(timeout)
        return await self._run(call, _requests.fetch(call, handle), callback)

    async def part(self, preconditioner: Any, kind: str, level: int = 0, *, timeout: float | None = None,
                   callback: Callback | None = None) -> Any:
        """As spaid.Client.part."""
        call = self._call(timeout)
        return await self._run(call, _requests.part(call, preconditioner, kind, level), callback)

    async def preconditioners(self, *, timeout: float | None = None) -> list[PreconditionerInfo]:
        """All stored preconditioners, newest first."""
        call = self._call(timeout)
        return await self._run(call, _procedures.listed(call, 'Preconditioners'))

    async def delete_preconditioner(self, handle: str, *, timeout: float | None = None) -> None:
        """Deletes a preconditioner."""
        call = self._call(timeout)
        await self._run(call, _procedures.delete(call, 'Preconditioner', handle))

    def job(self, name: str) -> Job:
        """A job by its name; does not ask the server."""
        return Job(self, name)

    async def jobs(self, state: str = '', *, all_tenants: bool = False,
                   timeout: float | None = None) -> list[JobInfo]:
        """As spaid.Client.jobs."""
        call = self._call(timeout)
        return await self._run(call, _requests.jobs(call, state, all_tenants))


class System:
    """As spaid.System; one call at a time, others wait."""

    def __init__(self, client: Client, a: Any, label: str = '') -> None:
        self._client = client
        self._state = SystemState(a, label)
        self._lock = asyncio.Lock()

    @property
    def n(self) -> int:
        return self._state.n

    @property
    def matrix(self) -> str:
        """The handle of the present A on the server; '' where it is not there yet."""
        return self._state.matrix

    async def update(self, values: Any) -> None:
        """As spaid.System.update; waits for a call that runs."""
        async with self._lock:
            self._state.update(values)

    async def solve(self, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None,
                    reuse: str = '', reuse_factor: float | None = None, null_space: str = 'auto',
                    null_vectors: Any = None, out: npt.NDArray[np.float64] | None = None,
                    omit_solution: bool = False, callback: Callback | None = None, timeout: float | None = None,
                    priority: str = 'normal', max_queue: float | None = None, max_run: float | None = None,
                    **options: Any) -> SolveResult:
        """As spaid.System.solve."""
        call = self._client._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse=reuse, reuse_factor=reuse_factor,
                      null_space=null_space, null_vectors=null_vectors, out=out, omit_solution=omit_solution,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        async with self._lock:
            return await self._client._run(
                call, _requests.solve_system(call, self._state, b, kwargs), callback)

    async def preconditioner(self, engine: str = 'auto', *, callback: Callback | None = None,
                             timeout: float | None = None, priority: str = 'normal', max_queue: float | None = None,
                             max_run: float | None = None, **options: Any) -> Preconditioner | Multigrid:
        """As spaid.System.preconditioner."""
        call = self._client._call(timeout)
        work = _procedures.Work(priority, max_queue, max_run)
        async with self._lock:
            return await self._client._run(
                call, _requests.build_system(call, self._state, engine, options, work), callback)

    async def estimate(self, engine: str = 'auto', *, timeout: float | None = None, **options: Any) -> BuildEstimate:
        """Estimates that build, counted from the pattern."""
        call = self._client._call(timeout)
        async with self._lock:
            return await self._client._run(
                call, _requests.estimate_system(call, self._state, engine, options))

    async def start_solve(self, b: Any, *, x0: Any = None, engine: str | None = None, preconditioner: Any = None,
                          null_space: str = 'auto', null_vectors: Any = None, timeout: float | None = None,
                          priority: str = 'normal', max_queue: float | None = None, max_run: float | None = None,
                          **options: Any) -> Job:
        """As spaid.System.start_solve."""
        call = self._client._call(timeout)
        kwargs = dict(x0=x0, engine=engine, preconditioner=preconditioner, reuse='', reuse_factor=None,
                      null_space=null_space, null_vectors=null_vectors, out=None, omit_solution=False,
                      work=_procedures.Work(priority, max_queue, max_run), options=options)
        async with self._lock:
            follower = await self._client._run(call, _requests.start_system(call, self._state, b, kwargs))
        return Job(self._client, follower.job, follower)

    async def start_build(self, engine: str = 'auto', *, timeout: float | None = None, priority: str = 'normal',
                          max_queue: float | None = None, max_run: float | None = None, **options: Any) -> Job:
        """As spaid.System.start_build."""
        call = self._client._call(timeout)
        work = _procedures.Work(priority, max_queue, max_run)
        async with self._lock:
            follower = await self._client._run(
                call, _requests.start_build_system(call, self._state, engine, options, work))
        return Job(self._client, follower.job, follower)


class Job:
    """As spaid.Job; its events come to the callback."""

    def __init__(self, client: Client, name: str, follower: JobFollower | None = None) -> None:
        self._client = client
        self.name = name
        self._follower = follower or JobFollower(name)

    def __repr__(self) -> str:
        return f'<spaid.aio.Job {self.name}>'

    async def watch(self, callback: Callback | None = None, *, timeout: float | None = None) -> JobInfo:
        """Reports events until the job has ended, and returns how."""
        if self._follower.finished is None:
            call = self._client._call(timeout)
            await self._client._run(call, _procedures.watch(call, self._follower, False), callback)
        assert self._follower.finished is not None
        return self._follower.finished

    async def wait(self, callback: Callback | None = None, *, timeout: float | None = None) -> JobEnd:
        """Watches the job to its end and returns its solution, too."""
        if not self.name:
            return JobEnd(await self.watch(), None, 'the job is a build')
        call = self._client._call(timeout)
        return await self._client._run(call, _procedures.wait(call, self._follower), callback)

    async def cancel(self, *, timeout: float | None = None) -> JobInfo:
        """Tells the job to stop; `wait` returns when it has, with its best iterate."""
        if not self.name:
            return await self.watch()
        call = self._client._call(timeout)
        return await self._client._run(call, _procedures.cancel_job(call, self.name))

    async def info(self, *, timeout: float | None = None) -> JobInfo:
        """The job's present state."""
        if not self.name:
            return await self.watch()
        call = self._client._call(timeout)
        return await self._client._run(call, _procedures.job_info(call, self.name))
