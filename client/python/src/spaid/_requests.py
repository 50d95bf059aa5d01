"""From what users give to procedures: the part that both faces, blocking and not, have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from spaid import _digest, _matrix, _options, _procedures
from spaid._calls import JobFollower
from spaid._core import Call, Procedure
from spaid._local import LocalLink
from spaid._procedures import Wanted, Work
from spaid._replicas import affinity_of
from spaid._system import SystemState, Vectors
from spaid.errors import SpaidError, bad
from spaid.results import BuildEstimate, JobInfo, MatrixInfo, Part, PreconditionerInfo, SolveResult, Timings

if TYPE_CHECKING:
    from spaid._multigrid import Multigrid
    from spaid._operator import Preconditioner

_T = TypeVar('_T')
_MAX_TRIES = 3  # either of the vectors may be gone


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


def operator(call: Call, csc: Any, info: PreconditionerInfo,
             timings: Timings) -> Procedure[Preconditioner | Multigrid]:
    """csc: M; None: it has parts, which are fetched."""
    from spaid._multigrid import Multigrid  # these need SciPy, which is optional
    from spaid._operator import Preconditioner
    if csc is not None:
        return Preconditioner(csc, info, timings)
    parts = {}
    for one in info.parts:
        parts[one.kind, one.level] = yield from part(call, info.name, one.kind, one.level)
    return Multigrid(parts, info, timings)


def part(call: Call, handle: Any, kind: str, level: int) -> Procedure[Any]:
    """A part of multigrid's M as a csc_matrix."""
    need_scipy()
    from scipy.sparse import csc_matrix
    if isinstance(level, bool) or not isinstance(level, (int, np.integer)) or not 0 <= level < 2**31:
        raise bad('BAD_OPTION', 'level', f'is {level!r}; give a whole number, 0 of A itself')
    csc = yield from _procedures.download(call, handle_of(handle), Part(int(level), kind, 0, 0, 0))
    return csc_matrix((csc.data, csc.indices, csc.indptr), shape=(csc.rows or csc.n, csc.n), copy=False)


def with_vectors(call: Call, vectors: Vectors, options: Mapping[str, Any],
                 run: Callable[[dict[str, Any]], Procedure[_T]]) -> Procedure[_T]:
    """Runs with handles in place of the arrays among the options; again where the server has lost them."""
    for left in range(_MAX_TRIES, 0, -1):
        named = yield from vectors.named(call, options)
        try:
            return (yield from run(named))
        except SpaidError as error:
            if left == 1 or not vectors.forget(error):
                raise
    raise AssertionError('unreachable')


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
    if any(kwargs['options'].get(name) is not None for name in ('near_null_space', 'coordinates')):
        handle = a.name if isinstance(a, MatrixInfo) else a  # the vectors go where A does
        call = call._replace(home=affinity_of(handle) if isinstance(handle, str) else _digest.affinity(_matrix.take(a)))
    return (yield from with_vectors(call, Vectors(), kwargs['options'],
                                    lambda named: _solve(call, a, b, {**kwargs, 'options': named})))


def _solve(call: Call, a: Any, b: Any, kwargs: dict[str, Any]) -> Procedure[SolveResult]:
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
    call = state.at_home(call)

    def run(named: dict[str, Any]) -> Procedure[SolveResult]:
        want, follow = wanted(state.n, b, {**kwargs, 'options': named})
        return (yield from state.solve(call, want, follow))

    return (yield from with_vectors(call, state.vectors, kwargs['options'], run))


def start_system(call: Call, state: SystemState, b: Any, kwargs: dict[str, Any]) -> Procedure[JobFollower]:
    call = state.at_home(call)

    def run(named: dict[str, Any]) -> Procedure[JobFollower]:
        want, _ = wanted(state.n, b, {**kwargs, 'options': named})
        return (yield from state.start_solve(call, want))

    return (yield from with_vectors(call, state.vectors, kwargs['options'], run))


def build_system(call: Call, state: SystemState, engine: str, options: Mapping[str, Any],
                 work: Work) -> Procedure[Preconditioner | Multigrid]:
    need_scipy()
    call = state.at_home(call)

    def run(named: dict[str, Any]) -> Procedure[Preconditioner | Multigrid]:
        spec = _options.spec_of(engine, named)
        try:
            info, timings, csc = yield from state.build(call, spec, work, fetch=True)
        except SpaidError as error:
            if error.reason != 'PART_NEEDED':
                raise
            info, timings, csc = yield from state.build(call, spec, work, fetch=False)
        return (yield from operator(call, csc, info, timings))

    return (yield from with_vectors(call, state.vectors, options, run))


def start_build_system(call: Call, state: SystemState, engine: str, options: Mapping[str, Any],
                       work: Work) -> Procedure[JobFollower]:
    call = state.at_home(call)
    handle = yield from state.stored(call)
    follower, made = yield from with_vectors(
        call, state.vectors, options,
        lambda named: _procedures.start_build(call, handle, _options.spec_of(engine, named), work))
    if made:
        follower.finished = JobInfo('', 'build', 'succeeded', True, None, None, None, handle, made, '', '', 0, 0, None,
                                    (), 0, 0, work.priority, (), '', '')
    return follower


def estimate_system(call: Call, state: SystemState, engine: str,
                    options: Mapping[str, Any]) -> Procedure[BuildEstimate]:
    call = state.at_home(call)
    handle = yield from state.stored(call)
    return (yield from with_vectors(
        call, state.vectors, options,
        lambda named: _procedures.estimate(call, handle, _options.spec_of(engine, named))))


def fetch(call: Call, handle: str) -> Procedure[Preconditioner | Multigrid]:
    need_scipy()
    info = yield from _procedures.preconditioner_info(call, handle)
    csc = None if info.parts else (yield from _procedures.download(call, handle))
    return (yield from operator(call, csc, info, info.build_timings))


def jobs(call: Call, state: str, all_tenants: bool) -> Procedure[list[JobInfo]]:
    filters: dict[str, Any] = {'all_tenants': all_tenants}
    if state:
        filters['state'] = _options.enum_value('spaid.v1.JobState', state, 'state')
    return (yield from _procedures.listed(call, 'Jobs', **filters))
