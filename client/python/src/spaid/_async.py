"""Drives procedures in an event loop, by grpc.aio; cancelling the task cancels the call, and so its job."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, Union

import grpc
import grpc.aio

from spaid._calls import Feed, Stream, Unary
from spaid._core import CHANNEL_OPTIONS, Core, Deadline, Procedure, Settings, Sleep
from spaid._sync import credentials_of, error_of
from spaid.errors import Code, SpaidError
from spaid.results import Progress

_T = TypeVar('_T')
Callback = Callable[[Progress], Union[None, Awaitable[None]]]


class Driver:
    """Channels of grpc.aio, and what runs procedures on it; of one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.core = Core(settings)
        self._credentials = credentials_of(settings)
        self._channels: dict[str, Any] = {}  # by address
        self._closed = False

    def channel(self, address: str) -> Any:
        if self._closed:
            raise SpaidError(Code.FAILED_PRECONDITION, 'CLOSED', 'the client is closed; make another one')
        if address not in self._channels:
            self._channels[address] = (
                grpc.aio.insecure_channel(address, CHANNEL_OPTIONS) if self._credentials is None else
                grpc.aio.secure_channel(address, self._credentials, CHANNEL_OPTIONS))
        return self._channels[address]

    async def close(self) -> None:
        channels, self._channels, self._closed = self._channels, {}, True
        for channel in channels.values():
            await channel.close()
        self.core.link.close()

    async def run(self, procedure: Procedure[_T], deadline: Deadline, callback: Callback | None = None) -> _T:
        """Runs a procedure to its end. An exception of the callback cancels the call, and is raised."""
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
                    await asyncio.sleep(effect.seconds)
                elif isinstance(effect, Unary):
                    answer = await self._unary(effect, deadline)
                else:
                    await self._stream(effect, deadline, callback)
            except SpaidError as error:
                failure = error

    async def _unary(self, one: Unary, deadline: Deadline) -> Any:
        call = self.channel(one.address).unary_unary(one.method, type(one.request).SerializeToString, one.response.FromString)
        try:
            return await call(one.request, timeout=deadline.left(), metadata=self.settings.metadata + one.metadata)
        except grpc.RpcError as error:
            raise error_of(error, one.address) from None

    async def _stream(self, one: Stream, deadline: Deadline, callback: Callback | None) -> None:
        said = asyncio.Event()
        failures: list[BaseException] = []

        async def requests() -> AsyncIterator[bytes]:
            try:
                while True:
                    item = one.next()
                    while item is Feed.LATER:
                        await said.wait()
                        said.clear()
                        item = one.next()
                    if isinstance(item, Feed):
                        return
                    yield item
            except Exception as error:  # the server will say that input is missing; this is why
                failures.append(error)

        call = self.channel(one.address).stream_stream(one.method)(requests(), timeout=deadline.left(),
                                                        metadata=self.settings.metadata + one.metadata)
        try:
            async for raw in call:
                reports = one.take(raw)
                said.set()
                for report in reports:
                    if callback is not None:
                        told = callback(report)
                        if inspect.isawaitable(told):
                            await told
                if one.enough:
                    return
            if failures:
                raise failures[0]
        except grpc.RpcError as error:
            if failures:
                raise failures[0] from None
            raise error_of(error, one.address) from None
        finally:
            call.cancel()  # nothing, where it has ended
