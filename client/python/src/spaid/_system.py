"""A system that is solved again and again while its values change, whatever drives it: what is neither sent nor built
again, and what is when the server has lost it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from spaid import _digest, _matrix
from spaid._arrays import Csc
from spaid._calls import JobFollower
from spaid._core import Call, Procedure, is_gone
from spaid._matrix import Sparse
from spaid._replicas import affinity_of
from spaid._procedures import Source, Wanted, Work, build, plus_upload, solve, start_solve, upload
from spaid.errors import SpaidError, bad
from spaid.results import MatrixInfo, PreconditionerInfo, SolveResult, Timings

# A small matrix comes along with its first solve; a larger one is uploaded before, so that the server is asked first
# whether it has it.
_SMALL_ENTRIES = 16 << 10
_MAX_TRIES = 4  # the matrix, its pattern and M may all be gone
_MAX_KEPT = 16  # specs


@dataclasses.dataclass
class Kept:
    """An M of this system for one spec: its handle, and its arrays where they were fetched."""

    handle: str = ''
    csc: Csc | None = None


class SystemState:
    """A and what of it is on the server. Borrows the arrays of A. Used by one call at a time."""

    def __init__(self, a: Any, label: str) -> None:
        self.a: Sparse = _matrix.take(a)
        self._label = label
        self.matrix = ''  # handle, of these values
        self._pattern = ''  # handle, of some values on this pattern
        self._kept: dict[bytes, Kept] = {}
        self.vectors = Vectors()

    @property
    def n(self) -> int:
        return self.a.pattern.n

    def update(self, values: Any) -> None:
        """Other values in the order of A's, or another sparse matrix; nothing is sent yet."""
        if not hasattr(values, 'format') and not isinstance(values, tuple):
            self.a = Sparse(self.a.pattern, self.a.pattern.values(values))
            self.matrix = ''
            return
        taken = _matrix.take(values)
        if taken.pattern.n != self.n:
            raise bad('SIZE_MISMATCH', 'values', f'are of a matrix of {taken.pattern.n} rows, not {self.n}; make '
                      'another system for it')
        if taken.pattern.same_as(self.a.pattern):
            taken = Sparse(taken.pattern._replace(pointers=self.a.pattern.pointers, indices=self.a.pattern.indices),
                           taken.values)
        else:
            self._pattern = ''  # M of the one before serves on
        self.a = taken
        self.matrix = ''

    def at_home(self, call: Call) -> Call:
        """The call, to where all of this system lies, also what comes when its pattern is another one."""
        handles = [kept.handle for kept in self._kept.values()] + [self.matrix, self._pattern]
        home = next((affinity_of(handle) for handle in handles if affinity_of(handle)), '')
        return call._replace(home=home or _digest.affinity(self.a))

    def solve(self, call: Call, want: Wanted, follow: bool) -> Procedure[SolveResult]:
        """follow: M of an earlier step is named where there is one, and becomes what `reuse` makes of it."""
        key = b'' if want.spec is None else want.spec.SerializeToString(deterministic=True)
        for left in range(_MAX_TRIES, 0, -1):
            kept = self._kept.get(key, Kept())
            step = want
            if follow and kept.handle:
                step = want._replace(preconditioner=kept.handle, reuse=want.reuse or 'auto')
            elif not want.preconditioner:
                step = want._replace(reuse='')  # of an M that there is
            try:
                result = yield from self._solve_once(call, step)
            except SpaidError as error:
                if left == 1 or not self._forget(error):
                    raise
                continue
            self.matrix = self._pattern = result.matrix
            if follow and result.preconditioner:
                if result.preconditioner != kept.handle:
                    self._keep(key, Kept(result.preconditioner, kept.csc))
            return result
        raise AssertionError('unreachable')

    def _solve_once(self, call: Call, want: Wanted) -> Procedure[SolveResult]:
        if self.matrix:
            return (yield from solve(call, Source(self.n, self.matrix), want))
        if self._pattern or (self.a.pattern.nnz <= _SMALL_ENTRIES and not self._label):
            return (yield from solve(call, Source(self.n, self._pattern, self.a), want))
        stored, timings = yield from upload(call, self.a, self._label)
        self.matrix = self._pattern = stored.name
        return plus_upload((yield from solve(call, Source(self.n, stored.name), want)), timings)

    def stored(self, call: Call) -> Procedure[str]:
        """The handle of A with these values, sent if need be."""
        if not self.matrix:
            stored, _ = yield from upload(call, self.a, self._label, self._pattern)
            self.matrix = self._pattern = stored.name
        return self.matrix

    def build(self, call: Call, spec: Any, work: Work,
              fetch: bool) -> Procedure[tuple[PreconditionerInfo, Timings, Csc | None]]:
        """M of these values; fetch: with its arrays, values alone where it has the pattern of the last one."""
        key = spec.SerializeToString(deterministic=True)
        for left in range(_MAX_TRIES, 0, -1):
            known = self._kept.get(key, Kept()).csc if fetch and _digest.available() else None
            try:
                handle = yield from self.stored(call)
                info, timings, m = yield from build(call, handle, spec, work, fetch, known)
            except SpaidError as error:
                if left == 1 or not self._forget(error):
                    raise
                continue
            self._keep(key, Kept(info.name, m))
            return info, timings, m
        raise AssertionError('unreachable')

    def start_solve(self, call: Call, want: Wanted) -> Procedure[JobFollower]:
        for left in range(_MAX_TRIES, 0, -1):
            try:
                handle = yield from self.stored(call)
                return (yield from start_solve(call, handle, self.n, want))
            except SpaidError as error:
                if left == 1 or not self._forget(error):
                    raise
        raise AssertionError('unreachable')

    def _keep(self, key: bytes, kept: Kept) -> None:
        self._kept.pop(key, None)
        self._kept[key] = kept
        if len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def _forget(self, error: SpaidError) -> bool:
        """Forgets what the error says is gone. False: nothing of ours."""
        ours = False
        if self.matrix and is_gone(error, self.matrix):
            self.matrix, ours = '', True
        if self._pattern and is_gone(error, self._pattern):
            self._pattern, ours = '', True
        for kept in self._kept.values():
            if kept.handle and is_gone(error, kept.handle):
                kept.handle, ours = '', True
        return ours


class Vectors:
    """The arrays that were given in place of handles (near_null_space, coordinates), and their handles."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[Any, str]] = {}

    def named(self, call: Call, options: Mapping[str, Any]) -> Procedure[dict[str, Any]]:
        """The options with handles in place of arrays, which are uploaded; each once, while it is the same object."""
        named = dict(options)
        for name in ('near_null_space', 'coordinates'):
            given = options.get(name)
            if given is None or isinstance(given, (str, MatrixInfo)):
                continue
            before, handle = self._stored.get(name, (None, ''))
            if before is not given or not handle:
                stored, _ = yield from upload(call, _matrix.take_vectors(given, name))
                handle = stored.name
                self._stored[name] = given, handle
            named[name] = handle
        return named

    def forget(self, error: SpaidError) -> bool:
        """Forgets the vectors that the error says are gone. False: none of them."""
        gone = [name for name, (_, handle) in self._stored.items() if is_gone(error, handle)]
        for name in gone:
            del self._stored[name]
        return bool(gone)
