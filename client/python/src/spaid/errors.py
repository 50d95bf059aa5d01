"""Errors of calls: SpaidError, and how they are read from the wire."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from spaid import _wire


class Code(enum.IntEnum):
    """Canonical gRPC codes."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class SpaidError(Exception):
    """A refused or failed call. Its text says what, where, and the cure.

    reason: UPPER_SNAKE, stable: the server's (proto/spaid/v1/README.md), or the client's own: UNREACHABLE,
    CONNECTION_LOST, TIMEOUT, SIZE_MISMATCH, BAD_MATRIX, BAD_OPTION, UNREADABLE_FILE, CHECKSUM_MISMATCH,
    PROTOCOL_VIOLATION, OUT_OF_MEMORY, NO_SCIPY, CLOSED; '' where the server gave none. field: what is at fault, or ''.
    metadata: 'index', 'limit', 'actual', and the like. retry_after: seconds, where the server says so.

    >>> try:
    ...     spaid.solve(A, b, engine='fsai', pattern_power=99)
    ... except spaid.SpaidError as error:
    ...     print(error, error.field)
    pattern_power: is 99; it must be at least 1, at most 16 [INVALID_ARGUMENT/BAD_OPTION] pattern_power
    """

    def __init__(self, code: Code, reason: str, message: str, field: str = '',
                 metadata: Mapping[str, str] | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.field = field
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f'{self.message} [{self.code.name}/{self.reason}]' if self.reason else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.code, self.reason, self.message, self.field, self.metadata,
                             self.retry_after))


class InputError(SpaidError, ValueError):
    """An argument that is wrong whatever the server says; nothing was sent."""


def bad(reason: str, field: str, message: str) -> InputError:
    """Makes the InputError of an argument: `message` follows its name."""
    return InputError(Code.INVALID_ARGUMENT, reason, f'{field}: {message}', field)


def violation(what: str) -> SpaidError:
    """Makes the error for a server that breaks its own contract."""
    return SpaidError(Code.INTERNAL, 'PROTOCOL_VIOLATION',
                      f'the server broke the protocol: {what}; are client and server of the same version?')


def code_of(number: int) -> Code:
    return Code(number) if 1 <= number <= 16 else Code.UNKNOWN


def from_status(number: int, text: str, metadata: Iterable[tuple[str, str | bytes]],
                address: str) -> SpaidError:
    """Reads a status that is not OK: its details where it has them, else a text for what users meet."""
    code = code_of(number)
    for key, value in metadata:
        if key == 'grpc-status-details-bin' and isinstance(value, bytes):
            error = _from_details(code, text, value)
            if error is not None:
                return error
    reason = ''
    if code == Code.UNAVAILABLE:
        # gRPC has one code for both, but only before a connection stands can the cure be "start it".
        if 'connect' in text or 'resol' in text:
            reason = 'UNREACHABLE'
            text = (f'no spaid daemon can be reached at {address}: {text}; is it running there '
                    f'(`spaid --address={address}`), and do both sides use TLS or neither?')
        else:
            reason = 'CONNECTION_LOST'
            text = (f'the connection to the spaid daemon at {address} broke: {text}; see the daemon\'s log, '
                    'and try again')
    elif number == Code.UNKNOWN:
        # The daemon has a code for everything: a proxy has ended a call whose status never came.
        code, reason = Code.UNAVAILABLE, 'CONNECTION_LOST'
        text = f'the call to {address} ended without a status ({text}); a proxy has lost its daemon: try again'
    elif code == Code.CANCELLED and 'Locally cancelled' not in text:
        # The daemon says why it cancels.
        code, reason = Code.UNAVAILABLE, 'CONNECTION_LOST'
        text = f'the call to {address} was reset ({text}); its daemon, or a proxy that has lost it, went away: try again'
    elif code == Code.DEADLINE_EXCEEDED:
        reason = 'TIMEOUT'
        text = (f'the timeout passed before the daemon at {address} had answered; give it more time, or '
                'start a job and watch it')
    elif code == Code.UNIMPLEMENTED:
        text = (f'the server at {address} does not know this call ({text}); is it a spaid daemon of this '
                'version?')
    return SpaidError(code, reason, text or 'the server gave no reason')


def from_details(details: bytes, number: int, text: str) -> SpaidError:
    """Reads a google.rpc.Status of a local socket."""
    code = code_of(number)
    return _from_details(code, text, details) or SpaidError(code, '', text or 'the server gave no reason')


def _from_details(code: Code, text: str, details: bytes) -> SpaidError | None:
    """None where there is nothing in the details that can be read."""
    reason, field, metadata, retry_after, found = '', '', {}, None, False
    try:
        for detail in _wire.message('google.rpc.Status').FromString(details).details:
            kind = detail.type_url.rpartition('/')[2]
            if kind == 'google.rpc.ErrorInfo':
                info = _wire.message(kind).FromString(detail.value)
                reason, metadata = info.reason, dict(sorted(info.metadata.items()))
            elif kind == 'google.rpc.RetryInfo':
                delay = _wire.message(kind).FromString(detail.value).retry_delay
                retry_after = max(0.0, delay.seconds + delay.nanos * 1e-9)
            elif kind == 'google.rpc.BadRequest':
                violations = _wire.message(kind).FromString(detail.value).field_violations
                field = violations[0].field if violations else ''
            else:
                continue
            found = True
    except _wire.DecodeError:
        return None
    return SpaidError(code, reason, text or 'the server gave no reason', field, metadata,
                      retry_after) if found else None
