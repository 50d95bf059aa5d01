"""Takes sparse matrices of others: their arrays, sorted and as the wire has them, never changed in place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spaid import _wire
from spaid.errors import Code, InputError, bad

Array = npt.NDArray[Any]
MAX_N = 2**31 - 1


class Pattern(NamedTuple):
    """The pattern of a sparse matrix: rows sorted (or columns: by_rows False), without duplicates.

    pointers: int64, n + 1; indices: int32. order: where each sorted entry stands in the caller's values, or
    None: they are in order. starts: first of the sorted entries that are summed to one, or None: no two are.
    given: how many values the caller has.
    """

    n: int
    by_rows: bool
    pointers: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64] | None
    starts: npt.NDArray[np.int64] | None
    given: int

    @property
    def nnz(self) -> int:
        return int(self.indices.size)

    def values(self, data: Array) -> Array:
        """The caller's values in the order of the pattern; his own array where nothing is to be done."""
        taken = _real(data)
        if taken.shape != (self.given,):
            raise bad('SIZE_MISMATCH', 'values', f'has shape {taken.shape}, the matrix {self.given} stored '
                      'entries; for another pattern give the whole matrix')
        if self.order is not None:
            taken = taken[self.order]
        if self.starts is not None:
            taken = np.add.reduceat(taken, self.starts) if taken.size else taken
        return np.ascontiguousarray(taken)

    def same_as(self, other: Pattern) -> bool:
        return (self.n == other.n and self.by_rows == other.by_rows
                and np.array_equal(self.pointers, other.pointers)
                and np.array_equal(self.indices, other.indices))


class Sparse(NamedTuple):
    """A square matrix as it is sent; values fp64 or fp32."""

    pattern: Pattern
    values: Array


def _real(data: Array, field: str = 'values') -> Array:
    """fp32 as it is, all else as fp64, if that holds it."""
    array = np.asarray(data)
    kind = array.dtype.kind
    if kind == 'c':
        raise bad('BAD_MATRIX', field, 'are complex; spaid solves real systems: give the real form '
                  '[[Re, -Im], [Im, Re]]')
    if kind not in 'fiub':
        raise bad('BAD_MATRIX', field, f'have type {array.dtype}; give float64 or float32')
    if array.dtype.itemsize > 8:
        raise bad('BAD_MATRIX', field, f'have type {array.dtype}, which fp64 does not hold; round them: '
                  'A.astype(float)')
    if array.dtype == np.float32:
        return array.astype(np.float32, copy=False)
    wide = array.astype(np.float64, copy=False)
    if kind in 'iu' and array.dtype.itemsize == 8 and array.size and not np.array_equal(
            wide.astype(array.dtype), array):
        raise bad('BAD_MATRIX', field, 'are whole numbers beyond 2^53; round them: A.astype(float)')
    return wide


def _index(array: Any, limit: int, field: str) -> npt.NDArray[np.int64]:
    """Whole numbers as int64, all in 0 .. limit - 1."""
    taken = np.asarray(array)
    if taken.ndim != 1 or taken.dtype.kind not in 'iu':
        raise bad('BAD_MATRIX', field, f'has type {taken.dtype} and {taken.ndim} dimensions; give a row of '
                  'whole numbers')
    outside = (taken < 0) | (taken >= limit)
    if outside.any():
        first = int(np.argmax(outside))
        raise InputError(Code.INVALID_ARGUMENT, 'INDEX_OUT_OF_RANGE', f'{field}: entry {first} is {taken[first]}, '
                         f'outside 0 .. {limit - 1}', field, {'index': str(first)})
    return taken.astype(np.int64, copy=False)


def _order_of(shape: Any) -> int:
    """n of a square shape."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise bad('NOT_SQUARE', 'A', f'has shape {tuple(shape)}; a square matrix is needed, for a '
                  'least-squares problem A.T @ A')
    n = int(shape[0])
    if not 1 <= n <= MAX_N:
        raise bad('SIZE_MISMATCH', 'A', f'has {n} rows; 1 to {MAX_N} can be')
    return n


def _compressed(n: int, by_rows: bool, indptr: Any, indices: Any) -> Pattern:
    """The pattern of CSR or CSC, which need not be sorted."""
    pointers = np.asarray(indptr)
    if pointers.shape != (n + 1,) or pointers.dtype.kind not in 'iu':
        raise bad('BAD_POINTERS', 'indptr', f'has shape {pointers.shape} and type {pointers.dtype}; n + 1 = '
                  f'{n + 1} whole numbers are needed')
    pointers = pointers.astype(np.int64, copy=False)
    if pointers[0] != 0 or (np.diff(pointers) < 0).any():
        raise bad('BAD_POINTERS', 'indptr', 'must begin with 0 and never fall')
    nnz = int(pointers[-1])
    minor_given = np.asarray(indices)
    if minor_given.ndim != 1 or minor_given.size < nnz:
        raise bad('SIZE_MISMATCH', 'indices', f'has shape {minor_given.shape}; indptr counts {nnz} entries')
    minor = _index_32(minor_given[:nnz], n)
    # Sorted, without duplicates: each entry is above the one before it, or begins a row.
    rises = np.empty(nnz, bool)
    rises[:1] = True
    np.greater(minor[1:], minor[:-1], out=rises[1:])
    starts = pointers[:-1][pointers[:-1] < nnz]
    rises[starts] = True
    if rises.all():
        return Pattern(n, by_rows, pointers, minor, None, None, nnz)
    major = np.repeat(np.arange(n, dtype=np.int64), np.diff(pointers))
    return _sorted(n, by_rows, major, minor.astype(np.int64))


def _index_32(indices: Array, n: int) -> npt.NDArray[np.int32]:
    """Indices as int32, checked; a copy only where they are wider."""
    if indices.dtype == np.int32:
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= n):
            _index(indices, n, 'indices')
        return np.ascontiguousarray(indices)
    return _index(indices, n, 'indices').astype(np.int32)


def _sorted(n: int, by_rows: bool, major: npt.NDArray[np.int64], minor: npt.NDArray[np.int64]) -> Pattern:
    """The pattern of entries in any order, duplicates to be summed."""
    given = int(major.size)
    order = np.lexsort((minor, major)).astype(np.int64, copy=False)
    major, minor = major[order], minor[order]
    first = np.ones(given, bool)
    first[1:] = (major[1:] != major[:-1]) | (minor[1:] != minor[:-1])
    starts = None if first.all() else np.flatnonzero(first)
    if starts is not None:
        major, minor = major[starts], minor[starts]
    pointers = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(major, minlength=n), out=pointers[1:])
    return Pattern(n, by_rows, pointers, minor.astype(np.int32), order, starts, given)


def take(a: Any) -> Sparse:
    """Takes any sparse matrix or array of SciPy, or (data, indices, indptr) of CSR; square and real.

    Not copied where it is CSR or CSC, sorted, with int32 indices and fp64 or fp32 values. InputError:
    BAD_MATRIX, NOT_SQUARE, SIZE_MISMATCH, BAD_POINTERS.
    """
    if isinstance(a, tuple) and len(a) == 3:
        data, indices, indptr = a
        n = int(np.asarray(indptr).size) - 1
        return _with_values(_compressed(_order_of((n, n)), True, indptr, indices), data)
    form = getattr(a, 'format', None)
    if not isinstance(form, str) or not hasattr(a, 'shape'):
        dense = isinstance(a, (np.ndarray, list))
        raise bad('BAD_MATRIX', 'A', 'is dense; spaid takes sparse matrices: scipy.sparse.csr_array(A)'
                  if dense else f'is a {type(a).__name__}; give a sparse matrix of SciPy, or (data, indices, '
                  'indptr) of CSR')
    n = _order_of(a.shape)
    if form in ('csr', 'csc'):
        return _with_values(_compressed(n, form == 'csr', a.indptr, a.indices), a.data)
    if form == 'coo':
        major, minor = _index(a.row, n, 'row'), _index(a.col, n, 'col')
        return _with_values(_sorted(n, True, major, minor), a.data)
    rows = a.tocsr()  # dia, bsr, lil, dok: a copy of SciPy's
    return _with_values(_compressed(n, True, rows.indptr, rows.indices), rows.data)


def take_vectors(given: Any, field: str) -> Sparse:
    """Vectors as the first columns of a square matrix whose other columns are empty: (n, k) or (n,)."""
    array = _real(given, field).astype(np.float64, copy=False)
    if array.ndim not in (1, 2) or array.size == 0 or array.size > array.shape[0] ** 2 or array.shape[0] > MAX_N:
        raise bad('SIZE_MISMATCH', field, f'has shape {array.shape}; a row for each unknown or node and a column for '
                  'each vector are needed')
    n, size = array.shape[0], array.size
    pointers = np.minimum(np.arange(n + 1, dtype=np.int64) * n, size)
    indices = np.tile(np.arange(n, dtype=np.int32), size // n)
    return Sparse(Pattern(n, False, pointers, indices, None, None, size), array.ravel(order='F'))


def _with_values(pattern: Pattern, data: Any) -> Sparse:
    array = np.asarray(data)
    if array.ndim == 1 and array.size > pattern.given:  # SciPy allows room behind the last entry
        array = array[:pattern.given]
    return Sparse(pattern, pattern.values(array))


def header_of(a: Sparse, label: str = '') -> Any:
    """A MatrixHeader without digests."""
    header = _wire.v1('MatrixHeader')()
    header.n, header.nnz, header.label = a.pattern.n, a.pattern.nnz, label
    header.layout = 2 if a.pattern.by_rows else 1
    header.value_type = 2 if a.values.dtype == np.float32 else 1
    return header


def vectors(b: Any, n: int, field: str, columns: int | None = None) -> Array:
    """A (n,) or (n, k) array as fp64 by columns; the caller's own where it is that. columns: how many there must be."""
    array = _real(b, field).astype(np.float64, copy=False)
    if array.ndim not in (1, 2) or array.shape[0] != n or array.size == 0:
        raise bad('SIZE_MISMATCH', field, f'has shape {array.shape}; ({n},) or ({n}, k) is needed')
    k = 1 if array.ndim == 1 else array.shape[1]
    if columns is not None and k != columns:
        raise bad('SIZE_MISMATCH', field, f'has {k} columns, b has {columns}; they must agree')
    return np.asfortranarray(array)
