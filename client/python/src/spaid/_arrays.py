"""Arrays on the wire: cut into chunks or named by their place in shared memory, and put together again."""

from __future__ import annotations

import collections
import os
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spaid import _wire
from spaid._matrix import Pattern, Sparse
from spaid.errors import Code, SpaidError, violation

Array = npt.NDArray[Any]
# Memory that is not written to costs nothing. Who promises more than this machine has is believed as it comes.
PHYSICAL_BYTES = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')  # bytes


class Outgoing(NamedTuple):
    """An array to send: contiguous, and the caller's. place: an ArraySegment, where the daemon shares it."""

    kind: int
    array: Array
    place: Any = None

    @property
    def size(self) -> int:
        return int(self.array.size)


class Range(NamedTuple):
    """Elements [offset, offset + size) of an array."""

    outgoing: Outgoing
    offset: int
    size: int


def arrays_of(a: Sparse) -> list[Outgoing]:
    return [Outgoing(_wire.POINTERS, a.pattern.pointers), Outgoing(_wire.INDICES, a.pattern.indices),
            Outgoing(_wire.VALUES, a.values)]


class ArraySource:
    """The requests that bring arrays, in the order in which they were asked for; segments before chunks.

    Not thread-safe. sent, total: bytes of chunks.
    """

    def __init__(self, arrays: Sequence[Outgoing], chunk_bytes: int, checksums: bool) -> None:
        self._arrays = {a.kind: a for a in arrays if a.size}
        self._asked = dict.fromkeys(self._arrays, 0)
        self._chunk_bytes, self._checksums = chunk_bytes, checksums
        self._named: collections.deque[Any] = collections.deque()
        self._wanted: collections.deque[Range] = collections.deque()
        self.sent = self.total = 0

    def want_all(self) -> None:
        for outgoing in self._arrays.values():
            self.want(outgoing.kind, 0, outgoing.size)

    def want(self, kind: int, offset: int, count: int) -> None:
        """Queues a range; PROTOCOL_VIOLATION where it is not there, or is asked for twice."""
        outgoing = self._arrays.get(kind)
        if count == 0 and offset >= 0:
            return
        if outgoing is None or not 0 <= offset <= outgoing.size or not (
                0 < count <= outgoing.size - max(offset, self._asked[kind])):
            raise violation('it needs a part of an array that the client does not have, or one twice')
        self._asked[kind] += count
        # A part is sent: its place need not be one that a segment can be named by.
        if outgoing.place is not None and count == outgoing.size:
            self._named.append(outgoing.place)
            return
        self._wanted.append(Range(outgoing, offset, count))
        self.total += count * outgoing.array.itemsize

    @property
    def empty(self) -> bool:
        return not self._named and not self._wanted

    def next(self, request: Any) -> bytes:
        """The next request, serialized; `request`: its class. Not where it is empty."""
        if self._named:
            return bytes(request(segment=self._named.popleft()).SerializeToString())
        part = self._wanted.popleft()
        data, size = part.outgoing.array, part.outgoing.array.itemsize
        count = min(part.size, max(1, self._chunk_bytes // size))
        if count < part.size:
            self._wanted.appendleft(Range(part.outgoing, part.offset + count, part.size - count))
        view = _flat(data)[part.offset:part.offset + count].view(np.uint8).data
        self.sent += count * size
        return _wire.serialized_chunk(part.outgoing.kind, part.offset, view, self._checksums)


def _flat(array: Array) -> Array:
    """Its elements in memory order, not copied."""
    return array.reshape(-1, order='F' if array.flags.f_contiguous else 'C')


class ArraySink:
    """Takes the chunks of one array, in order. A wrong chunk is an error, and nothing is taken."""

    def __init__(self, kind: int, dtype: str, count: int) -> None:
        self.kind, self.count, self.received = kind, count, 0
        self._dtype = np.dtype(dtype)
        self._array = np.empty(0, self._dtype)

    def take(self, chunk: _wire.Chunk) -> None:
        size = self._dtype.itemsize
        if chunk.kind != self.kind:
            raise violation('a chunk of an array nobody asked for')
        if chunk.offset != self.received:
            raise violation('a chunk out of order')
        count, odd = divmod(chunk.data.nbytes, size)
        if odd or not count:
            raise violation('a chunk that is not a whole number of elements')
        if count > self.count - self.received:
            raise violation("a chunk beyond its array's end")
        if chunk.crc32 is not None and zlib.crc32(chunk.data) != chunk.crc32:
            raise SpaidError(Code.DATA_LOSS, 'CHECKSUM_MISMATCH', f'a received chunk at element {chunk.offset} '
                             'does not match its CRC-32; fetch the result again')
        end = self.received + count
        if end > self._array.size:
            self._grow(end)
        self._array[self.received:end] = np.frombuffer(chunk.data, self._dtype.newbyteorder('<'))
        self.received = end

    def _grow(self, end: int) -> None:
        trusted = self.count * self._dtype.itemsize <= PHYSICAL_BYTES
        room = self.count if trusted else min(self.count, max(end, 2 * self._array.size))
        wider = np.empty(room, self._dtype)
        wider[:self.received] = self._array[:self.received]
        self._array = wider

    @property
    def complete(self) -> bool:
        return self.received == self.count

    def result(self) -> Array:
        return self._array[:self.received]


class Csc(NamedTuple):
    """A received M by columns, or G, lower triangular, with M = GᵀG (is_factor)."""

    n: int
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float64]
    is_factor: bool
    rows: int = 0  # of a part that is not square; else 0: n

    def pattern(self) -> Pattern:
        return Pattern(self.n, False, self.indptr, self.indices, None, None, int(self.indices.size))


class CscSink:
    """Puts a streamed M together. known: whose pattern the client named in its request."""

    def __init__(self, header: Any, known: Csc | None) -> None:
        n, nnz, rows = header.n, header.nnz, header.rows or header.n
        if not 1 <= n <= 2**31 - 1 or not 1 <= rows <= 2**31 - 1 or not 0 <= nnz <= n * rows:
            raise violation(f'a result of {n} columns, {rows} rows and {nnz} entries')
        if header.value_type != 1:
            raise violation('values that are not fp64')
        if header.values_only and (known is None or known.n != n or known.indices.size != nnz):
            raise violation('values of a pattern that it was not asked for')
        self._n, self._rows, self._is_factor = n, rows, header.is_factor
        self._known = known if header.values_only else None
        self._sinks = {_wire.VALUES: ArraySink(_wire.VALUES, 'f8', nnz)}
        if self._known is None:
            self._sinks[_wire.POINTERS] = ArraySink(_wire.POINTERS, 'i8', n + 1)
            self._sinks[_wire.INDICES] = ArraySink(_wire.INDICES, 'i4', nnz)
        self.received = 0
        self.total = 8 * nnz if header.values_only else 8 * (n + 1) + 12 * nnz

    def take(self, chunk: _wire.Chunk) -> None:
        sink = self._sinks.get(chunk.kind)
        if sink is None:
            raise violation('a chunk of an array that the result does not have')
        sink.take(chunk)
        self.received += chunk.data.nbytes

    def result(self) -> Csc:
        """M; PROTOCOL_VIOLATION where it is not whole, or no CSC."""
        if not all(sink.complete for sink in self._sinks.values()):
            raise violation('the result ended before all of its arrays had come')
        values = self._sinks[_wire.VALUES].result()
        if self._known is not None:
            return Csc(self._n, self._known.indptr, self._known.indices, values, self._is_factor)
        pointers, indices = self._sinks[_wire.POINTERS].result(), self._sinks[_wire.INDICES].result()
        if pointers[0] != 0 or pointers[-1] != values.size or (np.diff(pointers) < 0).any() or (
                indices.size and not (0 <= int(indices.min()) and int(indices.max()) < self._rows)):
            raise violation('a result that is not a CSC matrix')
        rows = 0 if self._rows == self._n else self._rows
        return Csc(self._n, pointers, indices, values, self._is_factor, rows)
