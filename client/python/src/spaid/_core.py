"""The inside of a client, whatever drives it: its settings, and the calls that it makes of attempts.

A procedure is a generator: it yields a Unary, a Stream or a Sleep, which a driver runs, and gets the answer of a
Unary, or a SpaidError where it failed. What it returns is the result of the call.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import random
import re
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeVar, Union

from spaid._calls import Stream, Unary
from spaid._local import LocalLink, StagePool
from spaid._replicas import Replicas, affinity_of
from spaid._retry import Repeat, lost_in_mid_call, next_delay
from spaid.errors import Code, SpaidError, bad

DEFAULT_ADDRESS = '127.0.0.1:7433'
MAX_CHUNK_BYTES = 3 << 20
_MAX_ORDERS = 4096
_TRACEPARENT = re.compile('[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}')
_TRACESTATE = re.compile('[ -~]{0,512}')  # what everybody passes on
# A connection that failed is tried again at the pace of our own retries, which know what may be repeated.
CHANNEL_OPTIONS = [
    ('grpc.keepalive_time_ms', 30_000), ('grpc.keepalive_timeout_ms', 20_000),
    ('grpc.http2.max_pings_without_data', 0), ('grpc.initial_reconnect_backoff_ms', 100),
    ('grpc.max_reconnect_backoff_ms', 2_000), ('grpc.min_reconnect_backoff_ms', 5_000), ('grpc.enable_retries', 0),
    ('grpc.use_local_subchannel_pool', 1), ('grpc.primary_user_agent', 'spaid-python')]


_trace: contextvars.ContextVar[tuple[str, str] | None] = contextvars.ContextVar('spaid_trace', default=None)


def check_trace(parent: str, state: str) -> None:
    """BAD_OPTION unless they are a traceparent, or '', and what can go with it."""
    if parent and not _TRACEPARENT.fullmatch(parent):
        raise bad('BAD_OPTION', 'traceparent', 'is not 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower '
                  'case; see W3C Trace Context')
    if not _TRACESTATE.fullmatch(state):
        raise bad('BAD_OPTION', 'tracestate', 'has more than 512 characters, or some that a header cannot hold')


@contextlib.contextmanager
def in_trace(traceparent: str, tracestate: str = '') -> Iterator[None]:
    """Makes the calls of its `with` block part of a span, in place of their client's traceparent: of this thread, or of
    this asyncio task and those that it starts. InputError/BAD_OPTION."""
    check_trace(traceparent, tracestate)
    token = _trace.set((traceparent, tracestate))
    try:
        yield
    finally:
        _trace.reset(token)


class Sleep(NamedTuple):
    seconds: float


Effect = Union[Unary, Stream, Sleep]
_T = TypeVar('_T')
_Stream = TypeVar('_Stream', bound=Stream)
Procedure = Generator[Effect, Any, _T]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A client's; see spaid.Client."""

    address: str
    token: str = ''
    tenant: str = ''
    traceparent: str = ''
    tracestate: str = ''
    ca_file: str = ''
    certificate_file: str = ''
    key_file: str = ''
    local_socket: str = ''
    max_attempts: int = 4
    chunk_bytes: int = 1 << 20
    send_digests: bool = True
    send_checksums: bool = True
    staging_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if not self.address:
            raise bad('BAD_OPTION', 'address', 'is empty; give HOST:PORT')
        if '' in self.addresses or len(set(self.addresses)) < len(self.addresses):
            raise bad('BAD_OPTION', 'address', f"is '{self.address}'; give HOST:PORT, or several of them, each once, "
                      'with commas and nothing else between them')
        if self.max_attempts < 1:
            raise bad('BAD_OPTION', 'max_attempts', f'is {self.max_attempts}; at least 1 is needed')
        if not 8 <= self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise bad('BAD_OPTION', 'chunk_bytes', f'is {self.chunk_bytes}; it must be in 8 .. {MAX_CHUNK_BYTES}')
        if self.staging_bytes < 0:
            raise bad('BAD_OPTION', 'staging_bytes', f'is {self.staging_bytes}; 0 or more is needed')
        check_trace(self.traceparent, self.tracestate)
        for field in ('token', 'tenant'):
            if not all(' ' <= c <= '~' for c in getattr(self, field)):
                raise bad('BAD_OPTION', field, 'holds characters that a header cannot; is there a line end in it?')
        if bool(self.certificate_file) != bool(self.key_file):
            raise bad('BAD_OPTION', 'certificate_file' if self.key_file else 'key_file',
                      'is missing; a client certificate needs its key and the other way round')

    @classmethod
    def of(cls, address: str | None, token: str | None, local_socket: str | None, **others: Any) -> Settings:
        """With $SPAID_ADDRESS, $SPAID_TOKEN and $SPAID_LOCAL_SOCKET for what is None, and $TRACEPARENT, $TRACESTATE."""
        env = os.environ.get
        given, state = env('TRACEPARENT', ''), env('TRACESTATE', '')
        # A value that is none, set by somebody else, is nobody's error.
        if not others.get('traceparent') and _TRACEPARENT.fullmatch(given):
            others.update(traceparent=given, tracestate=state if _TRACESTATE.fullmatch(state) else '')
        return cls(address if address is not None else env('SPAID_ADDRESS') or DEFAULT_ADDRESS,
                   token if token is not None else env('SPAID_TOKEN', ''),
                   local_socket=local_socket if local_socket is not None else env('SPAID_LOCAL_SOCKET', ''),
                   **others)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self.address.split(','))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        pairs = []
        if self.token:
            pairs.append(('authorization', f'Bearer {self.token}'))
        if self.tenant:
            pairs.append(('x-spaid-tenant', self.tenant))
        parent, state = _trace.get() or (self.traceparent, self.tracestate)
        if parent:
            pairs.append(('traceparent', parent))
        if parent and state:
            pairs.append(('tracestate', state))
        return tuple(pairs)

    @property
    def secure(self) -> bool:
        return bool(self.ca_file or self.certificate_file)

    def pem(self, field: str) -> bytes | None:
        """A file's content; None where none is named; UNREADABLE_FILE."""
        path = getattr(self, field)
        if not path:
            return None
        try:
            with open(path, 'rb') as file:
                return file.read()
        except OSError as error:
            raise bad('UNREADABLE_FILE', field, f'cannot read {path} ({error.strerror}); name a PEM file that this '
                      'process may read') from None


class Core:
    """Settings, and what is shared with a daemon on the same host. One a process: after a fork there is another."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.link = LocalLink(settings.local_socket, settings.token)
        self.pool = StagePool(self.link, settings.staging_bytes)
        self.replicas = Replicas(settings.addresses)
        self._orders: dict[str, int] = {}

    def order(self, matrix: str) -> int | None:
        """n of a stored matrix, where it was heard: a handle is immutable."""
        return self._orders.get(matrix)

    def remember_order(self, matrix: str, n: int) -> None:
        # Forgetting costs a round trip a handle, so that forgetting all at once will do.
        if len(self._orders) >= _MAX_ORDERS:
            self._orders.clear()
        self._orders[matrix] = n


class Deadline:
    """The end of one call of the user, over all its attempts; seconds, or None."""

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None and (isinstance(timeout, bool) or not timeout > 0):
            raise bad('BAD_OPTION', 'timeout', f'is {timeout!r}; give seconds, more than 0, or None')
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        """Seconds, not below 0."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def would_pass(self, seconds: float) -> bool:
        left = self.left()
        return left is not None and seconds >= left

    def passed(self) -> SpaidError:
        return SpaidError(Code.DEADLINE_EXCEEDED, 'TIMEOUT', f'the timeout of {self._timeout:g} s passed; give it more '
                          'time, or start a job and watch it', 'timeout')


class Call(NamedTuple):
    """One call of the user. home: the affinity that all its parts go by, where things lie together; '': each by what
    it is about."""

    core: Core
    deadline: Deadline
    home: str = ''


def _ended(call: Call, one: Effect, error: SpaidError | None, delay: float | None = None) -> float | None:
    """Tells the replicas how it ended; returns the delay before the next attempt."""
    assert not isinstance(one, Sleep)
    elsewhere = call.core.replicas.ended(one.address, error)
    return 0.0 if elsewhere and delay is not None else delay


def attempts(call: Call, make: Callable[[], _Stream], repeat: Repeat, affinity: str) -> Procedure[_Stream]:
    """Runs streams made anew until one succeeds, may not be repeated, or is out of time; returns it. One that brought
    events before it failed (`progressed`) begins the count anew."""
    affinity = call.home or affinity
    attempt = lost = 0
    while True:
        attempt += 1
        if call.deadline.would_pass(0):
            raise call.deadline.passed()
        one = make()
        one.goes(call.core.replicas.pick(affinity), affinity)
        try:
            yield one
            _ended(call, one, None)
            return one
        except SpaidError as error:
            if getattr(one, 'progressed', False):
                attempt, lost = 1, 0
            lost += lost_in_mid_call(error)
            delay = _ended(call, one, error, next_delay(call.core.settings.max_attempts, attempt, lost, error, repeat,
                                                        random.random()))
            if delay is None or call.deadline.would_pass(delay):
                raise
        yield Sleep(delay)


def unary(call: Call, method: str, request: Any, response: Any, repeat: Repeat = Repeat.SAFE) -> Procedure[Any]:
    """A plain call, with its attempts. Goes by the handle that the request names, where it does."""
    affinity = call.home or affinity_of(getattr(request, 'name', '') or getattr(request, 'matrix', ''))
    attempt = lost = 0
    while True:
        attempt += 1
        if call.deadline.would_pass(0):
            raise call.deadline.passed()
        one = Unary(method, request, response)
        one.goes(call.core.replicas.pick(affinity), affinity)
        try:
            answer = yield one
            _ended(call, one, None)
            return answer
        except SpaidError as error:
            lost += lost_in_mid_call(error)
            delay = _ended(call, one, error, next_delay(call.core.settings.max_attempts, attempt, lost, error, repeat,
                                                        random.random()))
            if delay is None or call.deadline.would_pass(delay):
                raise
        yield Sleep(delay)


def with_leases(link: LocalLink, run: Callable[[bool], Procedure[_T]]) -> Procedure[_T]:
    """Runs `run(shared)`, once more where the daemon does not know a lease (it was restarted), and then, where it still
    does not (it is another daemon than that of the socket), without any."""
    for tries in range(2):
        try:
            return (yield from run(True))
        except SpaidError as error:
            if error.reason != 'LEASE_UNKNOWN':
                raise
            link.forget(again=tries > 0)
    return (yield from run(False))


def is_gone(error: SpaidError, handle: str) -> bool:
    """This handle is: evicted, deleted, or of another life of the daemon."""
    return (error.code == Code.NOT_FOUND and error.reason in ('HANDLE_EVICTED', 'HANDLE_UNKNOWN')
            and error.metadata.get('handle') == handle)
