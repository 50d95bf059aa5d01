"""M of multigrid, a cycle on a hierarchy of matrices, as SciPy's LinearOperator. Imports SciPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from spaid.errors import bad
from spaid.results import AmgQuality, PreconditionerInfo, Quality, Timings

# Of the Chebyshev polynomials of the fourth kind, by their degree (Lottes, NLAA 2023).
_BETAS = {1: (1.125,), 2: (1.02387287570313, 1.26408905371085),
          3: (1.00842544782028, 1.08867839208730, 1.33753125909618),
          4: (1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000)}


class Multigrid(LinearOperator):  # type: ignore[misc]
    """M, as `M=` of SciPy's solvers takes it, by its parts, which are here; in fp64. Thread-safe.

    handle: its name on the server, for `preconditioner=` of solves. info, quality, timings: as the daemon told them.
    parts: matrices by (kind, level): ('a', 0), ('p', 0), ('smoother', 1), …
    """

    def __init__(self, parts: Mapping[tuple[str, int], Any], info: PreconditionerInfo, timings: Timings) -> None:
        super().__init__(np.dtype(np.float64), (info.n, info.n))
        assert info.quality.amg is not None
        self.parts, self.info, self.timings = parts, info, timings
        self._amg: AmgQuality = info.quality.amg
        self._last = len(self._amg.levels) - 1
        self._inverse = parts.get(('coarse-inverse', self._last))
        self._scale = parts['scale', 0]
        self._degree = int(info.spec.get('chebyshev_degree', 2))
        self._pre, self._post = (int(info.spec.get(name, 1)) for name in ('pre_sweeps', 'post_sweeps'))
        self._visits = 2 if info.spec.get('cycle') == 'w' else 1
        a = parts['a', 0]
        self._symmetric = bool(abs(a - a.T).max() <= 1e-12 * abs(a).max())

    @property
    def handle(self) -> str:
        return self.info.name

    @property
    def quality(self) -> Quality:
        return self.info.quality

    def _smooth(self, level: int, r: Any, after: bool) -> Any:
        """What a step adds to x for the residual r; its adjoint after the coarser level."""
        s = self.parts['smoother', level]
        polynomial = level == self._last and self._symmetric  # of a last level that is not inverted
        if polynomial or self._amg.smoother == 'chebyshev':
            betas = _BETAS[4 if polynomial else self._degree]
            d = 4 / 3 * (s @ r)
            x = betas[0] * d
            for k, beta in enumerate(betas[1:], 1):
                r = r - self.parts['a', level] @ d
                d = (2 * k - 1) / (2 * k + 3) * d + (8 * k + 4) / (2 * k + 3) * (s @ r)
                x = x + beta * d
            return x
        if self._amg.smoother in ('fsai', 'afsai'):
            return s.T @ (s @ r)
        return (s.T if after and self._symmetric else s) @ r

    def _cycle(self, level: int, r: Any) -> Any:
        is_last = level == self._last
        if is_last and self._inverse is not None:
            return self._inverse @ r
        a = self.parts['a', level]
        x = np.zeros_like(r)
        for _ in range(1 if is_last else self._pre):
            x = x + self._smooth(level, r - a @ x, False)
        for _ in range(0 if is_last else self._visits):
            coarser = self._cycle(level + 1, self.parts['r', level] @ (r - a @ x))
            x = x + self.parts['p', level] @ coarser
        for _ in range(1 if is_last else self._post):
            x = x + self._smooth(level, r - a @ x, True)
        return x

    def _matvec(self, x: Any) -> Any:
        # Turned in sign behind the cycle, where A has a negative diagonal.
        return self._scale @ self._cycle(0, abs(self._scale) @ np.asarray(x, np.float64))

    def _rmatvec(self, x: Any) -> Any:
        if not self._symmetric or self._pre != self._post:
            raise bad('NOT_SYMMETRIC', 'M', 'is not symmetric, and products with its transpose are not there; take a '
                      'method without them: bicgstab, gmres')
        return self._matvec(x)

    _matmat = _matvec
    _rmatmat = _rmatvec

    def __repr__(self) -> str:
        return f'<spaid.Multigrid n = {self.info.n}, {self._last + 1} levels, nnz = {self.info.nnz}>'
