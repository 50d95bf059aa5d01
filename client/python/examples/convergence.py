"""How preconditioners change the way to the solution: each one's residuals, as a picture.

    SPAID_ADDRESS=127.0.0.1:7433 python3 convergence.py [PICTURE.png]

The cells (# %%) run one by one in editors that know them.
"""

# %% A problem: heat in a plate with a fibre that conducts better, by finite differences
from __future__ import annotations

import sys
from typing import Any

import matplotlib
import numpy as np
import scipy.sparse as sp

import spaid


def plate(n: int) -> sp.csr_matrix:
    """The matrix of an n by n grid; the fibre, a tenth of the plate, conducts a hundred times better."""
    conductivity = np.ones((n, n))
    conductivity[:, n // 2 - n // 20:n // 2 + n // 20 + 1] = 100.0
    one = sp.diags([-1.0, 1.0], [0, 1], shape=(n - 1, n))
    along = sp.vstack([sp.kron(sp.identity(n), one), sp.kron(one, sp.identity(n))])
    flat = conductivity.ravel()
    ends = abs(along)
    weights = 1 / (ends @ (1 / flat) / 2)  # harmonic means, between the points
    return sp.csr_matrix(along.T @ sp.diags(weights) @ along + sp.diags(np.full(n * n, 1e-3)))


# %% Solve it with each preconditioner
ENGINES: dict[str, dict[str, Any]] = {
    'none': {'engine': 'none'},
    'Jacobi': {'engine': 'jacobi'},
    'FSAI': {'engine': 'fsai'},
    'adaptive FSAI': {'engine': 'afsai', 'k_max': 20},
}


def solve_by_each(client: spaid.Client, n: int) -> dict[str, spaid.SolveResult]:
    """The solves of the plate, heated at one corner, by name."""
    system = client.system(plate(n), label=f'plate {n}')
    b = np.zeros(n * n)
    b[0] = 1.0
    return {name: system.solve(b, method='cg', rtol=1e-8, **options) for name, options in ENGINES.items()}


# %% And look
def draw(results: dict[str, spaid.SolveResult]) -> Any:
    """The figure: a curve of residuals for each solve, on a logarithmic axis."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(7, 4.5), dpi=120, layout='constrained')
    axes = figure.subplots()
    for name, result in results.items():
        axes.semilogy(result.histories_iterations[0], result.history, label=f'{name}: {result.iterations} iterations')
    axes.axhline(1e-8, color='grey', linestyle=':', linewidth=1)
    axes.set_xlabel('iteration')
    axes.set_ylabel('relative residual')
    axes.set_title('Conjugate gradients on a plate with a fibre')
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


# %%
def main(picture: str = 'convergence.png', *, n: int = 60) -> None:
    """Solves, draws, and writes the picture."""
    matplotlib.use('Agg')
    with spaid.Client() as client:
        draw(solve_by_each(client, n)).savefig(picture)


if __name__ == '__main__':
    main(*sys.argv[1:2])
