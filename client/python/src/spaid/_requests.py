"""From what users give to procedures: the part that both faces, blocking and not, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spaid import _matrix, _options, _procedures
from spaid._calls import JobFollower
from spaid._core import Call, Procedure
from spaid._local import LocalLink
from spaid._procedures import Wanted, Work
from spaid._system import SystemState
from spaid.errors import bad
from spaid.results import BuildEstimate, JobInfo, MatrixInfo, SolveResult

if TYPE_CHECKING:
    from spaid._operator import Preconditioner


def allocate(link: LocalLink, shape: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros by columns; shared ones where there is a local socket."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if kind.hasobject or size < 0:
        raise bad('BAD_OPTION', 'dtype' if kind.hasobject else 'shape', f'is {dtype if kind.hasobject else shape!r}; '
                  'numbers are needed')
    if not size or not link.wanted:
        return np.zeros(shape, kind, order='F')
    return link.allocate(size).view(kind).reshape(shape, order='F')


def operator(csc: Any, info: Any, timings: Any) -> Preconditioner:
    from spaid._operator import Preconditioner  # needs SciPy, which is optional
    return Preconditioner(csc, info, timings)


def need_scipy() -> None:
    """Before anything is built."""
    try:
        import scipy.sparse.linalg  # noqa: F401
    except ImportError:
        raise bad('NO_SCIPY', 'preconditioner', 'is a LinearOperator of SciPy, which is not installed '
                  '(Debian: python3-scipy); solve() needs none') from None


def handle_of(preconditioner: Any) -> str:
    """Returns the handle of a Preconditioner, of a PreconditionerInfo, or a string."""
    for name in ('handle', 'name'):
        preconditioner = getattr(preconditioner, name, preconditioner)
    if not isinstance(preconditioner, str) or not preconditioner:
        raise bad('BAD_OPTION', 'preconditioner', f'is {preconditioner!r}; give a Preconditioner, or its handle')
    return preconditioner


def wanted(n: int, b: Any, kwargs: dict[str, Any]) -> tuple[Wanted, bool]:
    """(what is asked for, whether M of an earlier step of a system may serve)."""
    own, rest = _options.split(kwargs.pop('options'))
    engine, preconditioner = kwargs.pop('engine'), kwargs.pop('preconditioner')
    spec: Any = None
    handle = ''
    if preconditioner is not None:
        if engine is not None or rest:
            raise bad('BAD_OPTION', 'engine' if engine is not None else next(iter(rest)),
                      'is given beside a preconditioner, which is made already; give one of them')
        handle = handle_of(preconditioner)
    else:
        spec = _options.spec_of(engine or 'auto', rest)
    follow = preconditioner is None and engine not in (None, 'none') and spec.engine > 2
    if kwargs['reuse'] and not follow and not handle:
        raise bad('BAD_OPTION', 'reuse', 'is for an M that there is; name an engine, or a preconditioner')
    return _procedures.want(n, b, spec=spec, preconditioner=handle, options=own, **kwargs), follow


def solve(call: Call, a: Any, b: Any, kwargs: dict[str, Any]) -> Procedure[SolveResult]:
    """By a handle, or with a sparse matrix."""
    stored = a.name if isinstance(a, MatrixInfo) else a
    if isinstance(stored, str):
        n = call.core.order(stored)
        if n is None:
            n = (yield from _procedures.matrix_info(call, stored)).n
        want, follow = wanted(n, b, kwargs)
        _no_reuse(want, follow)
        return (yield from _procedures.solve_stored(call, stored, n, want))
    taken = _matrix.take(a)
    want, follow = wanted(taken.pattern.n, b, kwargs)
    _no_reuse(want, follow)
    return (yield from _procedures.solve_sparse(call, taken, want))


def _no_reuse(want: Wanted, follow: bool) -> None:
    if want.reuse and follow:
        raise bad('BAD_OPTION', 'reuse', 'is for an M that there is; name it as preconditioner, or make a system')


def solve_system(call: Call, state: SystemState, b: Any, kwargs: dict[str, Any]) -> Procedure[SolveResult]:
    want, follow = wanted(state.n, b, kwargs)
    return (yield from state.solve(call, want, follow))


def start_system(call: Call, state: SystemState, b: Any, kwargs: dict[str, Any]) -> Procedure[JobFollower]:
    want, _ = wanted(state.n, b, kwargs)
    return (yield from state.start_solve(call, want))


def build_system(call: Call, state: SystemState, engine: str, options: Mapping[str, Any],
                 work: Work) -> Procedure[Preconditioner]:
    need_scipy()
    info, timings, csc = yield from state.build(call, _options.spec_of(engine, options), work)
    return operator(csc, info, timings)


def start_build_system(call: Call, state: SystemState, engine: str, options: Mapping[str, Any],
                       work: Work) -> Procedure[JobFollower]:
    handle = yield from state.stored(call)
    follower, made = yield from _procedures.start_build(call, handle, _options.spec_of(engine, options), work)
    if made:
        follower.finished = JobInfo('', 'build', 'succeeded', True, None, None, None, handle, made, '', '', 0, 0, None,
                                    (), 0, 0, work.priority, (), '')
    return follower


def estimate_system(call: Call, state: SystemState, engine: str,
                    options: Mapping[str, Any]) -> Procedure[BuildEstimate]:
    handle = yield from state.stored(call)
    return (yield from _procedures.estimate(call, handle, _options.spec_of(engine, options)))


def fetch(call: Call, handle: str) -> Procedure[Preconditioner]:
    need_scipy()
    info = yield from _procedures.preconditioner_info(call, handle)
    csc = yield from _procedures.download(call, handle)
    return operator(csc, info, info.build_timings)


def jobs(call: Call, state: str) -> Procedure[list[JobInfo]]:
    filters = {'state': _options.enum_value('spaid.v1.JobState', state, 'state')} if state else {}
    return (yield from _procedures.listed(call, 'Jobs', **filters))
