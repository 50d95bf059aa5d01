"""A preconditioner as SciPy's LinearOperator. Imports SciPy: imported where one is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import LinearOperator

from spaid._arrays import Csc
from spaid.results import PreconditionerInfo, Quality, Timings


class Preconditioner(LinearOperator):  # type: ignore[misc]
    """M, as `M=` of SciPy's solvers takes it; its arrays are here, and products need no daemon. Thread-safe.

    handle: its name on the server, for `preconditioner=` of solves. info, quality, timings: as the daemon told them.
    factor: G where M = GᵀG (fsai, afsai), else None.
    """

    def __init__(self, csc: Csc, info: PreconditionerInfo, timings: Timings) -> None:
        super().__init__(np.dtype(np.float64), (csc.n, csc.n))
        stored = csc_matrix((csc.data, csc.indices, csc.indptr), shape=self.shape, copy=False)
        self.info, self.timings = info, timings
        self.factor = stored if csc.is_factor else None
        self._stored = stored
        # Gᵀ by rows is G by columns: nothing is copied.
        self._transposed = stored.T

    @property
    def handle(self) -> str:
        return self.info.name

    @property
    def quality(self) -> Quality:
        return self.info.quality

    @property
    def matrix(self) -> Any:
        """M by columns; a product, where it is GᵀG: many more entries than G has."""
        return self._stored if self.factor is None else (self._transposed @ self._stored).tocsc()

    def _matvec(self, x: Any) -> Any:
        y = self._stored @ x
        return y if self.factor is None else self._transposed @ y

    def _rmatvec(self, x: Any) -> Any:
        return self._transposed @ x if self.factor is None else self._matvec(x)

    _matmat = _matvec
    _rmatmat = _rmatvec

    def __repr__(self) -> str:
        return (f'<spaid.Preconditioner {self.info.choice.engine}, n = {self.info.n}, nnz = {self.info.nnz}'
                f'{" (of G, M = GᵀG)" if self.factor is not None else ""}>')
