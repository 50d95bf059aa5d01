"""Sparse matrices of others are taken as they are: compared with SciPy's own conversions, and never changed."""

import numpy as np
import pytest
import scipy.sparse as sp

import spaid
from problems import poisson
from spaid import _digest, _matrix


def rebuilt(taken):
    """The matrix that is sent, by SciPy."""
    p = taken.pattern
    make = sp.csr_matrix if p.by_rows else sp.csc_matrix
    return make((taken.values, p.indices, p.pointers), shape=(p.n, p.n))


def random(n=50, seed=0, form='csr'):
    a = sp.random(n, n, 0.1, random_state=seed, format=form)
    return a


def same(a, b):
    difference = abs(sp.csr_matrix(a, dtype=float) - sp.csr_matrix(b, dtype=float))
    return difference.nnz == 0 or difference.max() < 1e-15


@pytest.mark.parametrize('form', ['csr', 'csc', 'coo', 'bsr', 'dia', 'lil', 'dok'])
@pytest.mark.parametrize('array', [False, True])
def test_every_format(form, array):
    a = poisson(6).asformat(form)
    if array:
        a = getattr(sp, f'{form}_array')(a)
    before = a.copy()
    taken = _matrix.take(a)
    assert same(rebuilt(taken), a) and same(a, before)
    assert rebuilt(taken).has_canonical_format
    assert taken.pattern.pointers.dtype == np.int64 and taken.pattern.indices.dtype == np.int32


def test_what_is_right_already_is_not_copied():
    a = random()
    a.sort_indices()
    taken = _matrix.take(a)
    assert np.shares_memory(taken.values, a.data) and np.shares_memory(taken.pattern.indices, a.indices)


def test_the_callers_arrays_are_never_changed():
    rng = np.random.default_rng(3)
    for seed in range(20):
        n = int(rng.integers(1, 30))
        nnz = int(rng.integers(0, 200))
        a = sp.coo_matrix((rng.standard_normal(nnz), (rng.integers(0, n, nnz), rng.integers(0, n, nnz))), shape=(n, n))
        rows = a.tocsr()
        shuffled = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(n, n))
        for row in range(n):
            part = slice(shuffled.indptr[row], shuffled.indptr[row + 1])
            order = rng.permutation(part.stop - part.start)
            shuffled.indices[part], shuffled.data[part] = shuffled.indices[part][order], shuffled.data[part][order]
        for given in (a, shuffled):
            names = ('row', 'col', 'data') if given.format == 'coo' else ('indptr', 'indices', 'data')
            before = [getattr(given, name).copy() for name in names]
            for name in names:
                getattr(given, name).flags.writeable = False
            taken = _matrix.take(given)
            assert abs(rebuilt(taken) - rows).max() < 1e-14 if rows.nnz else taken.pattern.nnz == 0
            assert rebuilt(taken).has_canonical_format
            for name, old in zip(names, before):
                assert np.array_equal(getattr(given, name), old)


def test_duplicates_are_summed_and_new_values_go_the_same_way():
    row, col = np.array([1, 0, 1, 0]), np.array([0, 1, 0, 0])
    taken = _matrix.take(sp.coo_matrix(([1.0, 2.0, 4.0, 8.0], (row, col)), shape=(2, 2)))
    assert taken.pattern.pointers.tolist() == [0, 2, 3] and taken.pattern.indices.tolist() == [0, 1, 0]
    assert taken.values.tolist() == [8, 2, 5]
    assert taken.pattern.values(np.array([10.0, 20.0, 40.0, 80.0])).tolist() == [80, 20, 50]


def test_explicit_zeros_stay():
    a = sp.csr_matrix((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    assert _matrix.take(a).pattern.nnz == 3


def test_types_of_values():
    a = poisson(3)
    assert _matrix.take(a.astype(np.float32)).values.dtype == np.float32
    for kind in (np.int8, np.int64, np.float16, np.uint32):
        assert _matrix.take(a.astype(kind) if kind != np.uint32 else abs(a).astype(kind)).values.dtype == np.float64
    assert _matrix.take(sp.csr_matrix(a, dtype='>f8')).values.tolist() == a.data.tolist()


def test_wide_indices_are_narrowed():
    a = poisson(4)
    a.indices, a.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    taken = _matrix.take(a)
    assert taken.pattern.indices.dtype == np.int32 and same(rebuilt(taken), a)


def test_arrays_without_scipy():
    a = poisson(4)
    assert same(rebuilt(_matrix.take((a.data, a.indices, a.indptr))), a)
    assert _matrix.take(([1.0, 2.0], [0, 1], [0, 1, 2])).values.tolist() == [1, 2]


def test_room_behind_the_last_entry():
    taken = _matrix.take((np.array([1.0, 2.0, 9.0, 9.0]), np.array([0, 1, 7, 7]), np.array([0, 1, 2])))
    assert taken.values.tolist() == [1, 2] and taken.pattern.indices.tolist() == [0, 1]


def broken(indices=None, indptr=None):
    a = poisson(3)
    return (a.data, a.indices if indices is None else indices, a.indptr if indptr is None else indptr)


@pytest.mark.parametrize('a,reason,text', [
    (np.eye(3), 'BAD_MATRIX', 'scipy.sparse.csr_array(A)'),
    ([[1.0]], 'BAD_MATRIX', 'dense'),
    ('matrices/1', 'BAD_MATRIX', 'a str'),
    (sp.csr_matrix((3, 4)), 'NOT_SQUARE', '(3, 4)'),
    (sp.csr_matrix((0, 0)), 'SIZE_MISMATCH', '0 rows'),
    (poisson(3) * 1j, 'BAD_MATRIX', 'complex'),
    (poisson(3).astype(np.longdouble), 'BAD_MATRIX', 'astype(float)'),
    (sp.csr_matrix(np.array([[2**53 + 1]])), 'BAD_MATRIX', '2^53'),
    (broken(indices=poisson(3).indices + 5), 'INDEX_OUT_OF_RANGE', 'outside'),
    (broken(indices=poisson(3).indices.astype(np.int64) + 2**32), 'INDEX_OUT_OF_RANGE', 'outside'),
    (broken(indices=poisson(3).indices - 1), 'INDEX_OUT_OF_RANGE', 'outside'),
    ((np.ones(1), [[0]], [0, 1]), 'SIZE_MISMATCH', 'shape (1, 1)'),
    ((np.ones(1), [0.0], [0, 1]), 'BAD_MATRIX', 'float64'), ((['a'], [0], [0, 1]), 'BAD_MATRIX', 'type <U1'),
    (([1.0], [0, 0], [0, 2]), 'SIZE_MISMATCH', 'stored'),
    (broken(indptr=poisson(3).indptr[::-1]), 'BAD_POINTERS', 'never fall'),
    (broken(indptr=poisson(3).indptr * 2), 'SIZE_MISMATCH', 'entries'),
    (broken(indptr=poisson(3).indptr * 1.0), 'BAD_POINTERS', 'whole numbers'),
], ids=lambda x: x if isinstance(x, str) else '')
def test_what_is_refused(a, reason, text):
    with pytest.raises(spaid.InputError) as caught:
        _matrix.take(a)
    assert caught.value.reason == reason and text in str(caught.value) and caught.value.field
    assert isinstance(caught.value, ValueError)


def test_vectors_by_columns():
    b = np.arange(6.0).reshape(3, 2)
    taken = _matrix.vectors(b, 3, 'b')
    assert taken.flags.f_contiguous and np.array_equal(taken, b)
    assert np.shares_memory(_matrix.vectors(b[:, 0].copy(), 3, 'b'), b) is False
    column = np.arange(3.0)
    assert np.shares_memory(_matrix.vectors(column, 3, 'b'), column)
    for bad in (np.ones(4), np.ones((3, 0)), np.ones((3, 1, 1)), np.ones(3) * 1j, 'text'):
        with pytest.raises(spaid.InputError):
            _matrix.vectors(bad, 3, 'b')


def test_vectors_as_the_first_columns_of_a_matrix():
    taken = _matrix.take_vectors(np.array([[1.0, 4.0], [0.0, 5.0], [3.0, 6.0]]), 'near_null_space')
    assert taken.pattern.pointers.tolist() == [0, 3, 6, 6] and not taken.pattern.by_rows
    assert taken.pattern.indices.tolist() == [0, 1, 2, 0, 1, 2]
    assert taken.values.tolist() == [1, 0, 3, 4, 5, 6]  # zeros, too
    assert _matrix.take_vectors([1, 2], 'coordinates').pattern.pointers.tolist() == [0, 2, 2]
    for wrong in (np.ones((2, 3)), np.ones((2, 2, 1)), np.empty((0, 1)), np.ones(2) * 1j):
        with pytest.raises(spaid.InputError):
            _matrix.take_vectors(wrong, 'coordinates')


def test_digests_by_hand():
    """Over what the contract says, as plain bytes."""
    import hashlib
    import xxhash
    a = _matrix.take(sp.csc_matrix(np.array([[1.0, 0.0], [2.0, 3.0]], np.float32)))
    pattern = (np.array([2, 3, 0, 2, 3], '<i8').tobytes() + np.array([0, 1, 1], '<i4').tobytes())
    values = np.array([1.0, 2.0, 3.0], '<f8').tobytes()
    from spaid import _wire
    digest = _wire.v1('MatrixDigest')()
    _digest.add_xxh3(digest, a)
    _digest.add_sha256(digest, a, False)
    assert digest.pattern == xxhash.xxh3_128(pattern).digest() == _digest.pattern_digest(a.pattern)
    assert digest.values == xxhash.xxh3_128(values).digest()
    assert digest.pattern_sha256 == hashlib.sha256(pattern).digest()
    assert digest.values_sha256 == hashlib.sha256(values).digest()
