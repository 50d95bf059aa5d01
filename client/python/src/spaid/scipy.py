"""In the convention of scipy.sparse.linalg: x, info = solve(A, b).

    x, info = spaid.scipy.solve(A, b, tol=1e-8)       # where scipy.sparse.linalg.cg(A, b, tol=1e-8) stood
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import spaid
from spaid.results import Progress

__all__ = ['solve']


def solve(a: Any, b: Any, x0: Any = None, *, tol: float | None = None, rtol: float = 1e-5, atol: float | None = None,
          maxiter: int | None = None, M: Any = None, callback: Callable[[float], Any] | None = None,
          client: spaid.Client | None = None, **options: Any) -> tuple[npt.NDArray[np.float64], int]:
    """Solves A x = b: (x, info). b: (n,) or (n, 1); x has the shape of b.

    info: 0: |b - A x| <= max(rtol |b|, atol), recomputed; > 0: the number of iterations, where maxiter, the time or
    stagnation ended them; < 0: a breakdown (also of an indefinite A with cg, or values that are not finite). tol: the
    older name of rtol. maxiter: 10 n by default, as SciPy's. M: a Preconditioner of spaid, or its handle; else one is
    built (engine=…). callback: called with the relative residual after each iteration, as that of gmres with
    callback_type='pr_norm'. A call that is refused raises SpaidError, as spaid.Client.solve does.

    >>> x, info = spaid.scipy.solve(A, b, rtol=1e-8)
    >>> info
    0
    """
    shape = np.shape(b)
    if len(shape) == 2 and shape[1] != 1:
        raise spaid.InputError(spaid.Code.INVALID_ARGUMENT, 'SIZE_MISMATCH', f'b: has shape {shape}; SciPy\'s '
                               'convention is one right-hand side a call; for more there is spaid.solve', 'b')

    def report(progress: Progress) -> None:
        if callback is not None:
            for residual in progress.residuals:
                callback(residual.relative_residual)

    n = shape[0] if shape else 0
    result = (client or spaid.default_client()).solve(
        a, b, x0=x0, rtol=rtol if tol is None else tol, atol=atol or 0.0,
        max_iterations=maxiter if maxiter is not None else min(max(10 * n, 1), 2**31 - 1), preconditioner=M,
        callback=None if callback is None else report, **options)
    outcome = result.outcomes[0]
    assert result.x is not None
    if outcome.outcome == 'converged':
        return result.x, 0
    if outcome.outcome in ('breakdown', 'indefinite', 'non-finite'):
        return result.x, -1
    return result.x, max(1, outcome.iterations)
