"""Memory shared with a daemon on the same host: the connection to its --local-socket, sealed memfds, their leases
(proto/spaid/v1/local.proto), and segments that are kept to bring arrays from ordinary memory."""

from __future__ import annotations

import bisect
import collections
import errno
import fcntl
import mmap
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spaid import _wire
from spaid._arrays import Array, Outgoing, PHYSICAL_BYTES
from spaid.errors import Code, SpaidError, bad, from_details
from spaid.results import LocalStatus

_VERSION = 1
_MAX_MESSAGE = 8 << 10
_ALIGN = 8  # bytes, of a range in its segment
_PAGE = 64  # bytes between arrays in a kept segment
_RETRY_AFTER, _FOREIGN_FOR, _PATIENCE = 1.0, 60.0, 2.0  # seconds
_STAGED_FROM = 1 << 18  # bytes: a smaller array is sent as soon as it is copied
_GRANULE = 16 << 20  # bytes, of the size of a kept segment
_NOEXEC_SEAL = 8  # MFD_NOEXEC_SEAL, which Python does not name


def _memfd(size: int) -> int:
    """A sealed memfd whose pages are there, so that a lack of memory is an error here, not a signal later."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create('spaid', flags | _NOEXEC_SEAL)
    except OSError:  # an older kernel
        fd = os.memfd_create('spaid', flags)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(fd)
        raise
    return fd


class _Segment:
    """A memfd as the link knows it; the memory itself belongs to the arrays on it."""

    def __init__(self, fd: int, begin: int, size: int) -> None:
        self.fd, self.begin, self.size = fd, begin, size
        self.lease = ''
        self.next_try = 0.0  # after a refusal


def _address(array: Array) -> int:
    return int(array.__array_interface__['data'][0])


class LocalLink:
    """Shares memory with the daemon at a local socket. Thread-safe. Connects when something is to be shared, and again
    when the daemon was restarted; after a failure not before a second has passed."""

    def __init__(self, path: str, token: str) -> None:
        self._path, self._token = path, token
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._segments: list[_Segment] = []  # by begin
        self._begins: list[int] = []
        self._gone: collections.deque[_Segment] = collections.deque()  # finalizers push here, without the lock
        self._next_try = self._foreign_until = 0.0
        self._why, self._reason, self._tenant = '', '', ''
        self._shared = self._fallback = 0
        if not path:
            self._why = 'local_socket is not given; give the path of the daemon\'s --local-socket'

    @property
    def wanted(self) -> bool:
        return bool(self._path)

    def status(self) -> LocalStatus:
        """Connects if need be, at once."""
        with self._lock:
            available = self._connected(at_once=True)
            return LocalStatus(available and not self._why, self._why, self._reason, self._tenant, self._shared,
                               self._fallback)

    def close(self) -> None:
        with self._lock:
            self._disconnect()
            self._sweep()

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        """Zeros that the daemon can be shown; OUT_OF_MEMORY where there are none."""
        try:
            # Over all there is the kernel would not refuse at once, but end processes.
            fd = _memfd(size) if size <= PHYSICAL_BYTES else -1
        except OSError:
            fd = -1
        if fd < 0:
            raise SpaidError(Code.RESOURCE_EXHAUSTED, 'OUT_OF_MEMORY', f'no memory for an array of {size} bytes; this '
                             f'machine has {PHYSICAL_BYTES} in all')
        memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, 'MAP_POPULATE', 0))
        array = np.frombuffer(memory, np.uint8)
        segment = _Segment(fd, _address(array), size)
        weakref.finalize(memory, self._gone.append, segment).atexit = False
        with self._lock:
            self._sweep()
            at = bisect.bisect(self._begins, segment.begin)
            self._begins.insert(at, segment.begin)
            self._segments.insert(at, segment)
        return array

    def find(self, kind: int, array: Array) -> Any:
        """The ArraySegment of an array that lies in memory which the daemon knows, registered if need be; None: it is
        to be sent, or copied to a segment that is kept."""
        if not self.wanted or not array.size:
            return None
        with self._lock:
            self._sweep()
            begin = _address(array)
            at = bisect.bisect(self._begins, begin) - 1
            if at < 0:
                return None
            segment = self._segments[at]
            offset = begin - segment.begin
            if offset + array.nbytes > segment.size:
                return None
            if offset % _ALIGN or not self._registered(segment):
                self._fallback += array.nbytes
                return None
            return _wire.v1('ArraySegment')(array=kind, lease=segment.lease, offset=offset, bytes=array.nbytes)

    def usable(self) -> bool:
        """The daemon answers; asked before arrays are copied for it."""
        with self._lock:
            return self.wanted and self._connected(at_once=False)

    def forget(self, again: bool) -> None:
        """The daemon does not know a lease: all leases, and the connection that they came by, are void. again: nor does
        it know new ones, and for a minute none are asked for."""
        with self._lock:
            self._disconnect()
            self._fail('the daemon at the address does not know what was registered at '
                       f'{self._path}; are they the same daemon, and the tenant the same?', 'LEASE_UNKNOWN')
            self._next_try = 0.0  # it may have been restarted
            if again:
                self._foreign_until = time.monotonic() + _FOREIGN_FOR

    def count_shared(self, size: int) -> None:
        with self._lock:
            self._shared += size

    def _sweep(self) -> None:
        """Gives up the segments whose arrays are gone."""
        while self._gone:
            segment = self._gone.popleft()
            at = self._segments.index(segment)
            del self._segments[at], self._begins[at]
            os.close(segment.fd)
            if segment.lease and self._socket is not None:
                self._ask(_wire.v1('LocalRequest')(release={'lease': segment.lease}))

    def _connected(self, at_once: bool) -> bool:
        if self._socket is not None:
            readable = select.poll()
            readable.register(self._socket, select.POLLIN)
            if not readable.poll(0):
                return True
            self._disconnect()  # nothing comes that was not asked for: at an end it was the daemon's
        now = time.monotonic()
        if not self.wanted or now < self._foreign_until or (not at_once and now < self._next_try):
            return False
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(_PATIENCE)
            self._socket = connection
            connection.connect(self._path)
        except OSError as error:
            self._disconnect()
            self._fail(_cannot_connect(self._path, error))
            return False
        reply = self._ask(_wire.v1('LocalRequest')(hello={'version': _VERSION, 'token': self._token}))
        if reply is None or reply.WhichOneof('reply') != 'welcome':
            self._disconnect()
            return False
        self._why = self._reason = ''
        self._tenant = reply.welcome.tenant
        return True

    def _registered(self, segment: _Segment) -> bool:
        if not self._connected(at_once=False):
            return False
        now = time.monotonic()
        if segment.lease:
            return True
        if now < segment.next_try:
            return False
        reply = self._ask(_wire.v1('LocalRequest')(segment={'bytes': segment.size}), segment.fd)
        if reply is None or reply.WhichOneof('reply') != 'leased':
            segment.next_try = now + _RETRY_AFTER
            return False
        segment.lease = reply.leased.name
        self._why = self._reason = ''
        return True

    def _ask(self, request: Any, fd: int = -1) -> Any:
        """The answer; None: the connection broke, or the server refused, and the status tells."""
        assert self._socket is not None
        message = request.SerializeToString()
        try:
            try:
                if fd >= 0:
                    socket.send_fds(self._socket, [message], [fd])
                else:
                    self._socket.send(message)
            except (BrokenPipeError, ConnectionResetError):
                pass  # a server that hangs up at once has said why before: that can be read after all
            answer = self._socket.recv(_MAX_MESSAGE)
            reply = _wire.v1('LocalReply').FromString(answer)
            what = '' if answer else 'it hung up'
        except socket.timeout:
            what = 'it takes too long'
        except OSError as error:
            what = os.strerror(error.errno or 0)
        except _wire.DecodeError:
            what = 'not in this protocol'
        if what:
            self._disconnect()
            self._fail(f'the daemon\'s local socket {self._path} did not answer ({what})')
            return None
        if reply.WhichOneof('reply') == 'error':
            refused = from_details(reply.error.SerializeToString(), reply.error.code, reply.error.message)
            self._fail(refused.message, refused.reason)
            return None
        return reply

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for segment in self._segments:
            segment.lease = ''

    def _fail(self, why: str, reason: str = '') -> None:
        self._why, self._reason = why, reason
        self._next_try = time.monotonic() + _RETRY_AFTER


def _cannot_connect(path: str, error: OSError) -> str:
    why = f"cannot connect to the daemon's local socket {path} ({error.strerror or error}): "
    return why + {
        errno.ENOENT: 'is the daemon on this host, runs with this --local-socket, and is its folder visible from here?',
        errno.ECONNREFUSED: 'the daemon that made it has ended',
        errno.EACCES: "this user may not open it; it is for the daemon's user and group",
    }.get(error.errno or 0, 'calls send their arrays instead')


class Stage:
    """Room in a kept segment for the arrays of one call.

    Ends by `keep`, when the call has ended well, or is dropped: what a broken call may still write to is never given
    to another one.
    """

    def __init__(self, pool: StagePool, buffer: npt.NDArray[np.uint8]) -> None:
        self._pool, self._buffer, self._used = pool, buffer, 0

    def room(self, like: Array) -> Array:
        """An array of this type and shape, by columns, in the segment."""
        part = self._buffer[self._used:self._used + like.nbytes]
        self._used += _padded(like.nbytes)
        return part.view(like.dtype).reshape(like.shape, order='F')

    def keep(self) -> None:
        self._pool.give_back(self._buffer)


def _padded(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


class StagePool:
    """Segments that are kept from call to call: the first use of memory costs about as much as sending it.
    Thread-safe. limit: bytes of all of them."""

    def __init__(self, link: LocalLink, limit: int) -> None:
        self._link, self._limit = link, limit
        self._lock = threading.Lock()
        self._free: list[npt.NDArray[np.uint8]] = []
        self._bytes = 0
        self._gone: collections.deque[int] = collections.deque()  # of buffers that were dropped

    def take(self, sizes: list[int]) -> Stage | None:
        """Room for arrays of these sizes; None: they are over the limit, or nobody is there to share with."""
        size = sum(_padded(s) for s in sizes)
        if not size or size > self._limit or not self._link.usable():
            return None
        size = min(-(-size // _GRANULE) * _GRANULE, self._limit)
        with self._lock:
            fitting = [k for k, buffer in enumerate(self._free) if buffer.nbytes >= size]
            if fitting:
                return Stage(self, self._free.pop(min(fitting, key=lambda k: self._free[k].nbytes)))
            while self._free and self._bytes - sum(self._gone) + size > self._limit:
                self._free.pop(0)
            while self._gone:
                self._bytes -= self._gone.popleft()
            if self._bytes + size > self._limit:
                return None
            self._bytes += size
        try:
            buffer = self._link.allocate(size)
        except SpaidError:  # no memory: the arrays are sent as they are
            self._gone.append(size)
            return None
        weakref.finalize(buffer, self._gone.append, size).atexit = False
        return Stage(self, buffer)

    def give_back(self, buffer: npt.NDArray[np.uint8]) -> None:
        with self._lock:
            self._free.append(buffer)


class Placed(NamedTuple):
    """The arrays of one call, with the places of those that the daemon shares. solution: where x will be, in shared
    memory, and its ArraySegment; or None, None: x comes as chunks."""

    arrays: list[Outgoing]
    solution: Array | None = None
    solution_place: Any = None
    stage: Stage | None = None

    def done(self) -> None:
        """The call ended well."""
        if self.stage is not None:
            self.stage.keep()


def place(link: LocalLink, pool: StagePool, arrays: list[Outgoing], out: Array | None = None,
          solution_like: Array | None = None) -> Placed:
    """Finds, or makes by a copy, the places of large arrays. solution_like: as x will be; out: where the caller wants
    it, if he does."""
    if not link.wanted:
        return Placed(arrays)
    placed = [a._replace(place=link.find(a.kind, a.array)) for a in arrays]
    solution, solution_place = None, None
    if out is not None and not any(np.may_share_memory(out, a.array) for a in arrays):
        # The daemon, writing in place, must leave alone all that a second attempt would send.
        solution_place = link.find(_wire.SOLUTION, out)
        solution = out if solution_place is not None else None
    staged = [k for k, a in enumerate(placed) if a.place is None and a.array.nbytes >= _STAGED_FROM]
    stage_solution = solution is None and solution_like is not None and solution_like.nbytes >= _STAGED_FROM
    sizes = [placed[k].array.nbytes for k in staged]
    if stage_solution and solution_like is not None:
        sizes.append(solution_like.nbytes)
    stage = pool.take(sizes)
    if stage is not None:
        for k in staged:
            copy = stage.room(placed[k].array)
            copy[...] = placed[k].array
            placed[k] = Outgoing(placed[k].kind, copy, link.find(placed[k].kind, copy))
        if stage_solution and solution_like is not None:
            solution = stage.room(solution_like)
            solution_place = link.find(_wire.SOLUTION, solution)
    link.count_shared(sum(a.array.nbytes for a in placed if a.place is not None))
    return Placed(placed, solution if solution_place is not None else None, solution_place, stage)
