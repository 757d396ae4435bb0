"""Packets as bytes: the contents of a mailbox, and the weight of a protocol's metadata.

A packet is the JSON list of its kind's name and its fields; what it holds is read back by the types that the packet's
class declares. A kind of packet is known by its name among those that the protocol's module uses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from classic.protocols.process import Message, Process
from sequencing.errors import InvalidInput


def encode(packet: object) -> bytes:
    """Return a packet as bytes."""
    return orjson.dumps([type(packet).__name__, *_plain(packet)])


def decode(protocol: type[Process], data: bytes) -> object:
    """Return the packet of some bytes; raises `InvalidInput` for bytes that are none of the protocol's."""
    try:
        name, *values = orjson.loads(data)
        return _packet(_kinds(protocol)[name], values)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"not a packet of {protocol.title}: {data[:80]!r}") from error


def messages_in(packet: object) -> Iterator[Message]:
    """Yield the messages that a packet carries."""
    if isinstance(packet, Message):
        yield packet
    elif isinstance(packet, tuple):
        for value in packet:
            yield from messages_in(value)
    elif is_dataclass(packet) and not isinstance(packet, type):
        for field in fields(packet):
            yield from messages_in(getattr(packet, field.name))


def metadata_bytes(packet: object) -> int:
    """Return what a packet weighs beyond the payloads that it carries."""
    return len(encode(packet)) - sum(len(message.payload.encode()) for message in messages_in(packet))


def _plain(value: object) -> list[Any]:
    assert is_dataclass(value)
    return [_plain_field(getattr(value, field.name)) for field in fields(value)]


def _plain_field(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain_field(one) for one in value]
    return _plain(value) if is_dataclass(value) else value


@cache
def _kinds(protocol: type[Process]) -> dict[str, type]:
    modules = [vars(sys.modules[base.__module__]) for base in reversed(protocol.__mro__)]
    return {n: v for module in modules for n, v in module.items() if isinstance(v, type) and is_dataclass(v)}


@cache
def _types(kind: type) -> tuple[Any, ...]:
    hints = get_type_hints(kind)
    return tuple(hints[field.name] for field in fields(kind))


def _packet(kind: type, values: list[Any]) -> object:
    return kind(*(_read(hint, value) for hint, value in zip(_types(kind), values, strict=True)))


def _read(hint: Any, value: Any) -> object:
    if isinstance(hint, UnionType):
        [kind] = [one for one in get_args(hint) if one is not NoneType]
        return None if value is None else _read(kind, value)
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read(arguments[0], one) for one in value)
        return tuple(_read(one, part) for one, part in zip(arguments, value, strict=True))
    if is_dataclass(hint) and isinstance(hint, type):
        return _packet(hint, value)
    if not isinstance(value, hint):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value
