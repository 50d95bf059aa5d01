"""Options as keywords, by their names on the wire; checked against the descriptions in the contract."""

from __future__ import annotations

import datetime
import difflib
import functools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spaid import _wire
from spaid.errors import InputError, bad

_ENGINES = 'spaid.v1.EngineKind'
_YEAR = 366 * 24 * 3600.0


class _Place(NamedTuple):
    """The place of an option of a spec: in a message of PreconditionerSpec, or in that itself (None)."""

    message: Any
    option: _wire.Option
    engines: tuple[str, ...]  # that read it, as 'static-spai'; (): all


def _dashed(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower().replace('_', '-') for name in names)


@functools.lru_cache(maxsize=None)
def spec_options() -> dict[str, tuple[_Place, ...]]:
    """All options of specs: a name may stand in several messages, for several engines."""
    places: dict[str, list[_Place]] = {}
    for field in _wire.v1('PreconditionerSpec').DESCRIPTOR.fields:
        own = _wire.option_of(field)
        if own is None or field.name == 'engine':
            continue
        if field.message_type is None:
            places.setdefault(field.name, []).append(_Place(None, own, _dashed(own.engines)))
            continue
        for inner in field.message_type.fields:
            option = _wire.option_of(inner)
            if option is not None:
                engines = option.engines or own.engines
                places.setdefault(inner.name, []).append(_Place(field, option, _dashed(engines)))
    return {name: tuple(found) for name, found in places.items()}


@functools.lru_cache(maxsize=None)
def solve_options() -> dict[str, _wire.Option]:
    """All options of the iteration."""
    found = {field.name: _wire.option_of(field) for field in _wire.v1('SolveHeader').DESCRIPTOR.fields}
    return {name: option for name, option in found.items() if option is not None}


def enum_value(full_name: str, value: object, field: str) -> int:
    """The number of an enum's value by its name: 'static-spai'."""
    number = _wire.enum_number(full_name, value) if isinstance(value, str) else None
    if number is None:
        raise bad('BAD_OPTION', field, f'is {value!r}; give one of {", ".join(_wire.enum_names(full_name))}')
    return number


def _checked_number(option: _wire.Option, value: Any) -> Any:
    """An int or a float in range, as the field has it."""
    field = option.field
    whole = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32,
                               field.CPPTYPE_UINT64)
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        number = operator.index(value) if whole else float(value)
    except TypeError:
        raise bad('BAD_OPTION', field.name,
                  f'is {value!r}; give {"a whole number" if whole else "a number"}') from None
    low, high = option.min, option.max
    inside = (number > low if option.above_min else number >= low) and (
        number < high if option.below_max else number <= high)
    if not inside or not math.isfinite(number):
        raise bad('BAD_OPTION', field.name,
                  f'is {value!r}; it must be {_range_text(low, high, option)}')
    return number


def _range_text(low: float, high: float, option: _wire.Option) -> str:
    parts = []
    if math.isfinite(low):
        parts.append(f'{"above" if option.above_min else "at least"} {low:g}')
    if math.isfinite(high):
        parts.append(f'{"below" if option.below_max else "at most"} {high:g}')
    return ', '.join(parts) or 'finite'


def seconds_of(value: Any, field: str) -> float:
    """Seconds, of a number or a timedelta; over 0."""
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise bad('BAD_OPTION', field, f'is {value!r}; give seconds, more than 0')
    return min(float(seconds), _YEAR)


def set_duration(message: Any, value: Any, field: str) -> None:
    """Fills a Duration."""
    nanos = max(1, round(seconds_of(value, field) * 1e9))
    message.seconds, message.nanos = divmod(nanos, 1_000_000_000)


def set_option(message: Any, option: _wire.Option, value: Any) -> None:
    """Checks a value and sets the field; InputError/BAD_OPTION with the field's name."""
    field = option.field
    if field.enum_type is not None:
        setattr(message, field.name, enum_value(field.enum_type.full_name, value, field.name))
    elif field.message_type is not None:
        set_duration(getattr(message, field.name), value, field.name)
    elif field.cpp_type == field.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise bad('BAD_OPTION', field.name, f'is {value!r}; give True or False')
        setattr(message, field.name, value)
    elif field.cpp_type == field.CPPTYPE_STRING:
        handle = getattr(value, 'name', value)
        if not isinstance(handle, str) or not handle:
            raise bad('BAD_OPTION', field.name, f'is {value!r}; give a handle, or what upload() returned')
        setattr(message, field.name, handle)
    else:
        setattr(message, field.name, _checked_number(option, value))


def _unknown(name: str) -> InputError:
    known = sorted({*spec_options(), *solve_options()})
    near = difflib.get_close_matches(name, known, 1)
    hint = f'did you mean {near[0]}?' if near else f'there are {", ".join(known)}'
    return bad('BAD_OPTION', name, f'is no option; {hint}')


def _fill_required(message: Any) -> None:
    """AUTO, for what has no default on the wire."""
    for field in message.DESCRIPTOR.fields:
        option = _wire.option_of(field)
        if option is not None and option.required and getattr(message, field.name) == 0:
            setattr(message, field.name, enum_value(field.enum_type.full_name, 'auto', field.name))


def spec_of(engine: str, options: Mapping[str, Any]) -> Any:
    """A PreconditionerSpec; InputError/BAD_OPTION for what there is not, or the engine does not read."""
    spec = _wire.v1('PreconditionerSpec')()
    spec.engine = enum_value(_ENGINES, engine, 'engine')
    name_of_engine = _wire.enum_name(spec.DESCRIPTOR.fields_by_name['engine'].enum_type, spec.engine)
    for name, value in options.items():
        places = spec_options().get(name)
        if places is None:
            raise _unknown(name)
        readers = [p for p in places if not p.engines or name_of_engine in p.engines]
        if not readers:
            engines = sorted({e for p in places for e in p.engines})
            raise bad('BAD_OPTION', name,
                      f'is not read by engine {name_of_engine}, but by {", ".join(engines)}')
        # An option of the spec itself is not said once more in a message of it.
        for place in [p for p in readers if p.message is None] or readers:
            target = spec if place.message is None else getattr(spec, place.message.name)
            set_option(target, place.option, value)
            if place.message is not None:
                target.SetInParent()
                _fill_required(target)
    return spec


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(those of the iteration, those of a spec); InputError/BAD_OPTION for what is neither."""
    own, rest = {}, {}
    for name, value in options.items():
        if name in solve_options():
            own[name] = value
        elif name in spec_options():
            rest[name] = value
        else:
            raise _unknown(name)
    return own, rest


def fill_header(header: Any, options: Mapping[str, Any]) -> None:
    """Sets the options of an iteration in a SolveHeader, with this client's defaults."""
    for name, value in {'method': 'auto', 'rtol': 1e-8, **options}.items():
        if name != 'rtol' or value != 0 or not options.get('atol'):  # 0 beside atol: that alone counts
            set_option(header, solve_options()[name], value)
