"""The wire contract without generated code: message classes from the descriptor set that the wheel brings,
and the framing of chunks, whose bytes pass protobuf by.

    header = message('spaid.v1.MatrixHeader')(n=3)

A pool of its own, so that nobody else's google.rpc is in the way. Works with protobuf 3.20 and later.
"""

from __future__ import annotations

import functools
import importlib.resources
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError

if sys.byteorder != 'little':
    raise ImportError('spaid sends arrays as they lie in memory, which must be little-endian')

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _load() -> tuple[Any, dict[str, bytes]]:
    """The pool, and the serialized spaid.v1.option of each field that has one, by the field's full name."""
    try:
        data = (importlib.resources.files('spaid') / 'spaid.binpb').read_bytes()
    except FileNotFoundError as error:
        raise ImportError('spaid has no descriptor set: install the wheel, which has one '
                          '(python3 -m build --no-isolation --wheel client/python)') from error
    pool, options = descriptor_pool.DescriptorPool(), {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
        for kind in file.message_type:
            for field in kind.field:
                # Read from the bytes: whether a pool of one's own knows extensions depends on protobuf.
                for number, value in fields(memoryview(field.options.SerializeToString())):
                    if number == 50001 and isinstance(value, memoryview):
                        options[f'{file.package}.{kind.name}.{field.name}'] = bytes(value)
    return pool, options


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError('a number that does not end')
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value & 0xffff_ffff_ffff_ffff, at
        shift += 7


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a serialized message: (number, value); bytes and messages as views."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | memoryview
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
            else:
                raise DecodeError(f'a field of kind {kind}')
            if size > len(data) - at:
                raise DecodeError('a field beyond the message')
            value = data[at:at + size]
            if kind != _BYTES:
                value = int.from_bytes(value, 'little')
            at += size
        yield tag >> 3, value


_POOL, _OPTIONS = _load()


@functools.lru_cache(maxsize=None)
def message(name: str) -> Any:
    """The class of the message of this full name."""
    descriptor = _POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, 'GetMessageClass'):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)


def v1(name: str) -> Any:
    """The class of a message of spaid.v1."""
    return message(f'spaid.v1.{name}')


def is_repeated(field: Any) -> bool:
    if hasattr(field, 'is_repeated'):  # of later protobufs, which warn of `label`
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


class Option(NamedTuple):
    """One option of the contract (proto/spaid/v1/options.proto). engines: that read it; (): all."""

    field: Any  # FieldDescriptor
    engines: tuple[str, ...]
    required: bool
    min: float
    max: float
    above_min: bool
    below_max: bool


def option_of(field: Any) -> Option | None:
    """The option that a field is; None: it is none."""
    data = _OPTIONS.get(field.full_name)
    if data is None:
        return None
    option = v1('Option').FromString(data)
    return Option(field, tuple(option.engines), option.required,
                  option.min if option.HasField('min') else -np.inf,
                  option.max if option.HasField('max') else np.inf, option.above_min, option.below_max)


def _prefix(enum: Any) -> str:
    """The beginning of the names of an enum's values: LOCAL_SOLVER_ of LOCAL_SOLVER_UNSPECIFIED."""
    return str(enum.values_by_number[0].name).removesuffix('UNSPECIFIED')


def enum_name(enum: Any, number: int) -> str:
    """The name for people: 'static-spai'; '' of UNSPECIFIED, 'unknown' of what is not listed."""
    if number == 0:
        return ''
    value = enum.values_by_number.get(number)
    if value is None:
        return 'unknown'
    return str(value.name).removeprefix(_prefix(enum)).lower().replace('_', '-')


@functools.lru_cache(maxsize=None)
def _choices(full_name: str) -> dict[str, int]:
    enum = _POOL.FindEnumTypeByName(full_name)
    return {enum_name(enum, value.number): value.number for value in enum.values if value.number}


def enum_number(full_name: str, name: str) -> int | None:
    """The number of 'static-spai', 'STATIC_SPAI' or 'static_spai'; None: there is none."""
    return _choices(full_name).get(name.lower().replace('_', '-'))


def enum_names(full_name: str) -> tuple[str, ...]:
    return tuple(_choices(full_name))


POINTERS, INDICES, VALUES, RHS, GUESS, SOLUTION, NULL_SPACE = range(1, 8)  # ArrayKind
CHUNK_FIELD = 2  # of a request that has an ArrayChunk


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def serialized_chunk(kind: int, offset: int, data: memoryview, checksum: bool) -> bytes:
    """A request with this ArrayChunk and nothing else; copies the data once."""
    head = b'\x08' + _number(kind) + (b'\x10' + _number(offset) if offset else b'') + b'\x1a' + _number(
        data.nbytes)
    tail = b'\x25' + zlib.crc32(data).to_bytes(4, 'little') if checksum else b''
    size = len(head) + data.nbytes + len(tail)
    return b''.join((bytes((CHUNK_FIELD << 3 | _BYTES,)), _number(size), head, data, tail))


class Chunk(NamedTuple):
    """A received ArrayChunk; its data is a view of the message. offset: elements."""

    kind: int
    offset: int
    data: memoryview
    crc32: int | None


def piece(raw: bytes) -> tuple[int, memoryview] | None:
    """The one field of a response, its number and its message; None where there is another number of them."""
    found = list(fields(memoryview(raw)))
    if len(found) != 1 or not isinstance(found[0][1], memoryview):
        return None
    return found[0][0], found[0][1]


def chunk_of(data: memoryview) -> Chunk:
    """Reads an ArrayChunk."""
    kind, offset, crc32, payload = 0, 0, None, memoryview(b'')
    for number, value in fields(data):
        if number == 3 and isinstance(value, memoryview):
            payload = value
        elif isinstance(value, memoryview):
            continue
        elif number == 1:
            kind = value
        elif number == 2:
            offset = value if value < 1 << 63 else value - (1 << 64)
        elif number == 4:
            crc32 = value
    return Chunk(kind, offset, payload, crc32)
