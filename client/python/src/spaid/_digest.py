"""Digests of matrices, by which the daemon knows content that it has (proto/spaid/v1/README.md, "Digests").

XXH3 is the package xxhash's; without it the client never asks, and sends.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from spaid._matrix import Pattern, Sparse

try:
    import xxhash as _xxhash
except ImportError:
    _xxhash = None  # type: ignore[assignment]

xxhash: Any = _xxhash

_WIDENED = 1 << 16  # values at once


def available() -> bool:
    return xxhash is not None


def _add_pattern(into: Any, p: Pattern) -> Any:
    into.update(np.array([p.n, p.nnz], '<i8').tobytes())
    into.update(p.pointers.view(np.uint8))
    into.update(p.indices.view(np.uint8))
    return into


def _add_values(into: Any, values: npt.NDArray[Any]) -> Any:
    if values.dtype == np.float64:
        into.update(values.view(np.uint8))
    else:  # stored as fp64, and digested as that, without a second copy
        for at in range(0, values.size, _WIDENED):
            into.update(values[at:at + _WIDENED].astype('<f8').tobytes())
    return into


def pattern_digest(pattern: Pattern) -> bytes:
    """XXH3 of a pattern, for known_pattern; b'' without xxhash."""
    return bytes(_add_pattern(xxhash.xxh3_128(), pattern).digest()) if xxhash is not None else b''


def affinity(a: Sparse) -> str:
    """What calls about this pattern have in common (proto/spaid/v1/README.md, "Several replicas"); '' without xxhash."""
    return pattern_digest(a.pattern)[:4].hex()


def add_xxh3(digest: Any, a: Sparse) -> None:
    """Fills the first half of a MatrixDigest."""
    digest.pattern = _add_pattern(xxhash.xxh3_128(), a.pattern).digest()
    digest.values = _add_values(xxhash.xxh3_128(), a.values).digest()


def add_sha256(digest: Any, a: Sparse, pattern_alone: bool) -> None:
    """Fills the second half."""
    digest.pattern_sha256 = _add_pattern(hashlib.sha256(), a.pattern).digest()
    digest.values_sha256 = b'' if pattern_alone else _add_values(hashlib.sha256(), a.values).digest()


def digest_of(a: Sparse, header: Any) -> Any:
    """The MatrixDigest that a header of `a` has."""
    return header.sent_digest if a.pattern.by_rows else header.digest
