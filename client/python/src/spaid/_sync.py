"""Drives procedures on the calling thread, by grpcio; Ctrl-C there cancels the call, and so its job."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from spaid._calls import Feed, Stream, Unary
from spaid._core import CHANNEL_OPTIONS, Core, Deadline, Procedure, Settings, Sleep
from spaid.errors import Code, SpaidError, from_status
from spaid.results import Progress

_T = TypeVar('_T')
Callback = Callable[[Progress], Any]


def _raw(message: bytes) -> bytes:
    return message


def error_of(error: grpc.RpcError, address: str) -> SpaidError:
    """A SpaidError of gRPC's, of either face."""
    return from_status(error.code().value[0], error.details() or '', error.trailing_metadata() or (), address)


def credentials_of(settings: Settings) -> Any:
    """None: in the clear."""
    if not settings.secure:
        return None
    return grpc.ssl_channel_credentials(settings.pem('ca_file'), settings.pem('key_file'),
                                        settings.pem('certificate_file'))


_drivers: weakref.WeakSet[Driver] = weakref.WeakSet()
# Guards the channels of all drivers, and is held during a fork. A generator that is dropped may end its call anywhere.
_lock = threading.RLock()
_forked_in_call = False  # this process came of a fork while gRPC was at work


class Driver:
    """Channels, and what runs procedures on it. Thread-safe. Connects with the first call; a process that was forked
    between calls connects anew, and has segments of its own; one forked during a call refuses to."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._credentials = credentials_of(settings)
        self._begin()
        _drivers.add(self)

    def _begin(self) -> None:
        self.core = Core(self.settings)
        self._channels: dict[str, Any] = {}  # by address
        self._calls = 0  # that run
        self._closed = False

    def before_fork(self) -> None:
        """gRPC goes on in a child only where none of its threads was in a call, and they outlast the last call by a
        moment: a channel that rests is closed, which waits for them."""
        if not self._calls:
            for channel in self._channels.values():
                channel.close()
            self._channels = {}

    def after_fork(self) -> None:
        """In the child: the parent's channel and connections are not touched, nor closed."""
        global _forked_in_call
        _forked_in_call = _forked_in_call or self._calls > 0
        closed = self._closed
        self._left = (self._channels, self.core)  # kept, so that nothing of it is ended here
        self._begin()
        self._closed = closed

    @contextmanager
    def _call(self, address: str) -> Iterator[Any]:
        """The channel to one of the addresses, for one call."""
        with _lock:
            if self._closed:
                raise SpaidError(Code.FAILED_PRECONDITION, 'CLOSED', 'the client is closed; make another one')
            if _forked_in_call:
                raise SpaidError(Code.FAILED_PRECONDITION, 'FORKED_DURING_CALL', 'this process was forked while a call '
                                 'of its parent ran, and gRPC cannot go on in it; fork between calls, or start '
                                 'processes by multiprocessing\'s "spawn"')
            if address not in self._channels:
                self._channels[address] = (
                    grpc.insecure_channel(address, CHANNEL_OPTIONS) if self._credentials is None else
                    grpc.secure_channel(address, self._credentials, CHANNEL_OPTIONS))
            channel = self._channels[address]
            self._calls += 1
        try:
            yield channel
        finally:
            with _lock:
                self._calls -= 1

    def close(self) -> None:
        with _lock:
            channels, self._channels, self._closed = self._channels, {}, True
        for channel in channels.values():
            channel.close()
        self.core.link.close()

    def run(self, procedure: Procedure[_T], deadline: Deadline, callback: Callback | None = None) -> _T:
        """Runs a procedure to its end. An exception of the callback cancels the call, and is raised."""
        steps = self.reports(procedure, deadline)
        try:
            while True:
                report = next(steps)
                if callback is not None:
                    callback(report)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def reports(self, procedure: Procedure[_T], deadline: Deadline) -> Generator[Progress, None, _T]:
        """The same, giving reports as they come; closed early, the call is cancelled."""
        answer: Any = None
        failure: SpaidError | None = None
        while True:
            try:
                effect = procedure.throw(failure) if failure is not None else procedure.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer, failure = None, None
            try:
                if isinstance(effect, Sleep):
                    time.sleep(effect.seconds)
                elif isinstance(effect, Unary):
                    answer = self._unary(effect, deadline)
                else:
                    yield from self._stream(effect, deadline)
            except SpaidError as error:
                failure = error

    def _unary(self, one: Unary, deadline: Deadline) -> Any:
        with self._call(one.address) as channel:
            call = channel.unary_unary(one.method, type(one.request).SerializeToString, one.response.FromString)
            try:
                return call(one.request, timeout=deadline.left(), metadata=self.settings.metadata + one.metadata)
            except grpc.RpcError as error:
                raise error_of(error, one.address) from None

    def _stream(self, one: Stream, deadline: Deadline) -> Iterator[Progress]:
        said = threading.Condition()  # guards `one`
        over = False
        failures: list[BaseException] = []

        def requests() -> Iterator[bytes]:
            """On a thread of gRPC's; what goes wrong is raised on the caller's."""
            try:
                while True:
                    with said:
                        item = one.next()
                        while item is Feed.LATER and not over:
                            said.wait()
                            item = one.next()
                        if over or isinstance(item, Feed):
                            return
                    yield item
            except Exception as error:  # the server will say that input is missing; this is why
                failures.append(error)

        with self._call(one.address) as channel:
            call = channel.stream_stream(one.method, _raw, _raw)(
                requests(), timeout=deadline.left(), metadata=self.settings.metadata + one.metadata)
            try:
                for raw in call:
                    with said:
                        reports = one.take(raw)
                        said.notify_all()
                    yield from reports
                    if one.enough:
                        return
                if failures:
                    raise failures[0]
            except grpc.RpcError as error:
                if failures:
                    raise failures[0] from None
                raise error_of(error, one.address) from None
            finally:
                with said:
                    over = True
                    said.notify_all()
                call.cancel()  # nothing, where it has ended


def _before_fork() -> None:
    _lock.acquire()  # no call begins until after the fork
    for driver in list(_drivers):
        driver.before_fork()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for driver in list(_drivers):
        driver.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=lambda: _lock.release(), after_in_child=_after_fork_in_child)
