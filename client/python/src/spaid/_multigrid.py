"""M of multigrid, a cycle on a hierarchy of matrices, as SciPy's LinearOperator. Imports SciPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import diags
from scipy.sparse.linalg import LinearOperator

from spaid.errors import bad
from spaid.results import PreconditionerInfo, Quality, Timings

_ROUNDING = 1e-6  # parts may have been stored in fp32


class Multigrid(LinearOperator):  # type: ignore[misc]
    """M, as `M=` of SciPy's solvers takes it, by its parts, which are here; in fp64. Thread-safe.

    handle: its name on the server, for `preconditioner=` of solves. info, quality, timings: as the daemon told them.
    parts: matrices by (kind, level): ('a', 0), ('p', 0), ('smoother', 1), …
    """

    def __init__(self, parts: Mapping[tuple[str, int], Any], info: PreconditionerInfo, timings: Timings) -> None:
        super().__init__(np.dtype(np.float64), (info.n, info.n))
        self.parts, self.info, self.timings = parts, info, timings
        self._smoothers = {part.level: part for part in info.parts if part.kind == 'smoother'}
        self._pre, self._post = (int(info.spec.get(name, 1)) for name in ('pre_sweeps', 'post_sweeps'))
        self._visits = 2 if info.spec.get('cycle') == 'w' else 1
        self._in, self._out = (diags(column) for column in parts['scale', 0].toarray().T)
        a = parts['a' if ('a', 0) in parts else 'coarse-inverse', 0]  # a level that is inverted has no A
        self._symmetric = bool(abs(a - a.T).max() <= _ROUNDING * abs(a).max())

    @property
    def handle(self) -> str:
        return self.info.name

    @property
    def quality(self) -> Quality:
        return self.info.quality

    def _smooth(self, level: int, r: Any, after: bool) -> Any:
        """Returns the step from the residual r; its adjoint after the coarser level."""
        s, part = self.parts['smoother', level], self._smoothers[level]
        if part.smoother == 'chebyshev':
            d = 4 / (3 * part.rho) * (s @ r)
            x = part.coefficients[0] * d
            for i, beta in enumerate(part.coefficients[1:], 1):
                r = r - self.parts['a', level] @ d
                d = (2 * i - 1) / (2 * i + 3) * d + (8 * i + 4) / ((2 * i + 3) * part.rho) * (s @ r)
                x = x + beta * d
            return x
        if part.smoother in ('fsai', 'afsai'):
            return part.omega * (s.T @ (s @ r))
        return (s.T if after and self._symmetric else s) @ r

    def _cycle(self, level: int, r: Any) -> Any:
        inverse = self.parts.get(('coarse-inverse', level))
        if inverse is not None:
            return inverse @ r
        a, p = self.parts['a', level], self.parts.get(('p', level))
        is_last = p is None  # and smoothed twice
        x = np.zeros_like(r)
        for _ in range(1 if is_last else self._pre):
            x = x + self._smooth(level, r - a @ x, False)
        for _ in range(0 if is_last else self._visits):
            x = x + p @ self._cycle(level + 1, self.parts['r', level] @ (r - a @ x))
        for _ in range(1 if is_last else self._post):
            x = x + self._smooth(level, r - a @ x, True)
        return x

    def _matvec(self, x: Any) -> Any:
        return self._out @ self._cycle(0, self._in @ np.asarray(x, np.float64))

    def _rmatvec(self, x: Any) -> Any:
        if not self._symmetric or self._pre != self._post:
            raise bad('NOT_SYMMETRIC', 'M', 'is not symmetric, and products with its transpose are not there; take a '
                      'method without them: bicgstab, gmres')
        return self._matvec(x)

    _matmat = _matvec
    _rmatmat = _rmatvec

    def __repr__(self) -> str:
        levels = 1 + max(level for _, level in self.parts)
        return f'<spaid.Multigrid n = {self.info.n}, {levels} levels, nnz = {self.info.nnz}>'
