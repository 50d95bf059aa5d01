"""Client of spaid: preconditioners and Krylov solves by a daemon, for SciPy's sparse matrices.

    import spaid
    x = spaid.solve(A, b).x                           # the daemon of $SPAID_ADDRESS, else of this host
    with spaid.Client('gpu-node:7433') as client:
        system = client.system(A, label='bridge')     # the pattern goes once
        result = system.solve(b, rtol=1e-10, engine='afsai', k_max=20)
        M = system.preconditioner('afsai', k_max=20)  # a SciPy LinearOperator
        system.update(values)                         # 8 bytes an entry go with the next call

spaid.aio has the same for asyncio, spaid.scipy SciPy's (x, info).
"""

from __future__ import annotations

import os
import threading
from typing import Any

from spaid._core import in_trace
from spaid.client import Client, Job, System
from spaid.errors import Code, InputError, SpaidError
from spaid.results import JobEnd, JobInfo, MatrixInfo, PreconditionerInfo, Progress, RhsOutcome, ServerInfo, SolveResult

__version__ = '0.1.0'
__all__ = ['Client', 'Code', 'InputError', 'Job', 'JobEnd', 'JobInfo', 'MatrixInfo', 'PreconditionerInfo', 'Progress',
           'RhsOutcome', 'ServerInfo', 'SolveResult', 'SpaidError', 'System', 'default_client', 'in_trace', 'solve']

_lock = threading.Lock()
_default: tuple[tuple[str | None, ...], Client] | None = None


def default_client() -> Client:
    """The client of $SPAID_ADDRESS, $SPAID_TOKEN and $SPAID_LOCAL_SOCKET as they are now; one a process while they
    stay the same."""
    global _default
    key = tuple(os.environ.get(name) for name in ('SPAID_ADDRESS', 'SPAID_TOKEN', 'SPAID_LOCAL_SOCKET'))
    with _lock:
        if _default is None or _default[0] != key:
            _default = (key, Client())
        return _default[1]


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def solve(a: Any, b: Any, **options: Any) -> SolveResult:
    """Solves A X = B by the default client: see Client.solve."""
    return default_client().solve(a, b, **options)
