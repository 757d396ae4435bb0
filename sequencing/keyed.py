"""Keys of events, and conditions on them.

An event may name a *key* of its region: a door, a sword, a table. The *head* of a key is the position of the last event
that named it, until an event deletes the key. The region's ingress keeps the heads, and sets them in the step that
draws the event's number. So a condition on a head, which the ingress checks in the same step, is decided in the
region's own order: of two events that require the same head, the first is accepted, and the other is refused.

Where an ingress has lost the heads, the head of each key that was not named since is the position of that loss: the
epoch that began with it, and 0. So a key that may be set is not taken for one that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import orjson

from sequencing.names import OWNER, PRESENT, client_of

KEYS_MAX = 4_096
"""The most keys that a region may have at once."""

RESERVED_KEYS = 512
"""So many of them only presence and ownership may have."""

SHARE_KEYS, SHARE_BYTES = 256, 1_048_576
"""The most keys that one client of gateways may have in a region at once, and the most bytes of values."""

SHARES_KEYS, SHARES_BYTES = 3_072, 8_388_608
"""The same of all clients of gateways together."""

CONDITIONS_MAX = 64
"""The most conditions that an event may have: a node looks at all of them in one step."""

Position = tuple[int, int]
"""Epoch, and number in the region."""


class Named(NamedTuple):
    """An event of a frame, by its place in it from 0, and the key that it names; ``deletes``: the key ends with it.

    ``start``, ``end``: where the body has its payload; ``sent``: what `Value` has of it beside the payload.
    """

    place: int
    key: str
    deletes: bool
    start: int = 0
    end: int = 0
    sent: str = ""


class Value(NamedTuple):
    """The last event that named a key. ``payload``: JSON, unless it is ``binary``."""

    position: Position
    sent_at_ns: int
    binary: bool
    publisher: str
    payload: bytes


def value_text(sent: str, publisher: str, payload: bytes) -> bytes:
    """Return a value as the ingress stores it, beside its position."""
    return b"%b %b\n%b" % (sent.encode(), publisher.encode(), payload)


def sent_text(sent_at_ns: int, *, binary: bool) -> str:
    """Return `Named.sent`."""
    return f"{sent_at_ns} {int(binary)}"


def value_of(position: Position, text: bytes) -> Value | None:
    """Return a stored value, None if it is none: publishers could write anything there."""
    about, newline, payload = text.partition(b"\n")
    try:
        sent_at_ns, binary, publisher = about.decode().split(" ", 2)
        return Value(position, int(sent_at_ns), bool(int(binary)), publisher, payload) if newline else None
    except ValueError:
        return None


class Snapshot(NamedTuple):
    """The keys of a region at its ingress, as of one moment.

    ``last``: the number of the last event that was accepted by then; ``lost``: the epoch that began with a loss of all
    that was before, 0 if none was.
    """

    last: int
    lost: int
    values: Mapping[str, Value]
    lacks_some: bool = False
    """Whether there are keys whose value cannot be read, or was never stored: an earlier version stored none."""


class Condition(NamedTuple):
    """What the head of a key must be for a frame to be accepted; None: the key is not set.

    ``part``: the place of its region among those of the frame.
    """

    key: str
    position: Position | None
    part: int = 0

    @property
    def may_hold_again(self) -> bool:
        """Whether it can hold later, once it does not: positions of events never return."""
        return self.position is None or self.position[1] == 0


class Part(NamedTuple):
    """A further region of a frame of several, and the publisher's own number there of the frame's first event."""

    region: str
    first: int


@dataclass(frozen=True, slots=True)
class Extras:
    """What a frame says of keys, and the regions that it goes to beside its first. It names its keys in all of them.

    ``elsewhere``: the places of those of its regions that other nodes number than the one where it enters, and which;
    ``way``: where there are any, the nodes that it visits until the last of them.
    """

    names: tuple[Named, ...] = ()
    conditions: tuple[Condition, ...] = ()
    also: tuple[Part, ...] = ()
    elsewhere: tuple[tuple[int, str], ...] = ()
    way: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return it as the node's script reads it."""
        names = [[place, key, int(deletes), *at] for place, key, deletes, *at in self.names]
        conditions = [[key, head_text(position), part] for key, position, part in self.conditions]
        parts = [[region, first] for region, first in self.also]
        said = [names, conditions, parts]
        return orjson.dumps([*said, self.elsewhere, self.way] if self.elsewhere else said)

    @classmethod
    def decode(cls, text: bytes) -> Extras:
        """Read what `encode` wrote, in a link."""
        names, conditions, also, elsewhere, way = orjson.loads(text)
        return cls(
            tuple(Named(place, key, bool(deletes), *at) for place, key, deletes, *at in names),
            tuple(Condition(key, _head_of(head), part) for key, head, part in conditions),
            tuple(Part(*part) for part in also),
            tuple((place, node) for place, node in elsewhere),
            tuple(way),
        )


NO_EXTRAS = Extras()


def head_text(head: Position | None) -> str:
    """Return a head as it is stored, and sent."""
    return f"{head[0]} {head[1]}" if head is not None else ""


def _head_of(text: str) -> Position | None:
    """Return the head that `head_text` wrote."""
    epoch, _, sequence = text.partition(" ")
    return (int(epoch), int(sequence)) if text else None


class Full(IntEnum):
    """What there would be too much of, beside its limit in an answer."""

    REGION = 0
    SHARE_KEYS = 1
    SHARE_BYTES = 2
    SHARES_KEYS = 3
    SHARES_BYTES = 4


_HOLDER = re.compile(rb"[^ \n]* [^ \n]* ~([^~\n]*)")


class Shares:
    """What clients of gateways have of a region's keys: those that they set last, but for presence and ownership."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        """``values``: see `value_text`."""
        self.held: dict[str, tuple[int, str]] = {}
        """Key → the bytes of its value, and the client."""
        for key, value in values.items():
            if (holder := _HOLDER.match(value)) is not None and not is_reserved(key):
                self.held[key] = len(value), holder[1].decode(errors="replace")

    def of(self, client: str | None = None) -> tuple[int, int]:
        """Return how many keys a client has, and bytes of values; of all clients without one."""
        sizes = [size for size, holder in self.held.values() if client in (None, holder)]
        return len(sizes), sum(sizes)

    def fields(self) -> dict[str, str | bytes]:
        """Return them as they are stored; see `sequencing.keyspace.NodeKeys.shares`."""
        if not self.held:
            return {}
        shares = {f"s{client}": self.of(client) for _, client in self.held.values()} | {"a": self.of()}
        counts: dict[str, str | bytes] = {field: f"{keys} {size}" for field, (keys, size) in shares.items()}
        return counts | {f"k{key}": f"{size} {client}" for key, (size, client) in self.held.items()}


def is_reserved(key: str) -> bool:
    """Return whether a key is one of presence or ownership."""
    return key.startswith((PRESENT, OWNER))


class Heads:
    """The heads of one region's keys."""

    def __init__(
        self,
        known: Mapping[str, Position] | None = None,
        lost: int = 0,
        began: int = 0,
        values: Mapping[str, bytes] | None = None,
    ) -> None:
        """``lost``: the epoch that began with a loss of all before, 0 if none was; ``began``: the epoch from which on
        this node keeps them; ``values``: of the same keys, see `value_text`."""
        self.known = dict(known or {})
        self.values = dict(values or {})
        self.lost = lost
        self.began = began

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heads) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Heads:
        """Return the heads as they are now."""
        return Heads(self.known, self.lost, self.began, self.values)

    def head(self, key: str) -> Position | None:
        """Return the head of a key, None if it is not set."""
        return self.known.get(key, (self.lost, 0) if self.lost else None)

    def beyond(self, names: Sequence[Named], publisher: str = "", body: bytes = b"") -> tuple[int, Full] | None:
        """Return the limit that would be exceeded after these were named, in order, and of what; None if none is."""
        last = {named.key: named for named in names}
        more = {key for key, named in last.items() if not named.deletes and key not in self.known}
        fewer = sum(named.deletes and key in self.known for key, named in last.items())
        most = KEYS_MAX if all(map(is_reserved, more)) else KEYS_MAX - RESERVED_KEYS
        if len(more) > fewer and len(self.known) + len(more) - fewer > most:
            return most, Full.REGION
        client = client_of(publisher)
        if not last or client is None:
            return None
        after = Heads(self.known, values=self.values)
        after.name(names, 0, 0, publisher, body)
        before, then = self.shares(), after.shares()
        limits = (SHARE_KEYS, SHARE_BYTES, SHARES_KEYS, SHARES_BYTES)
        counts = zip(before.of(client) + before.of(), then.of(client) + then.of(), limits, strict=True)
        for what, (had, has, limit) in enumerate(counts, start=1):
            if has > had and has > limit:
                return limit, Full(what)
        return None

    def shares(self) -> Shares:
        """Return what clients of gateways have of the keys."""
        return Shares(self.values)

    def name(self, names: Iterable[Named], epoch: int, first: int, publisher: str = "", body: bytes = b"") -> None:
        """Set the heads and values of the keys that the events of a frame name; ``first``: the number of its first
        event."""
        for place, key, deletes, start, end, sent in names:
            if deletes:
                self.known.pop(key, None)
                self.values.pop(key, None)
            else:
                self.known[key] = epoch, first + place
                self.values[key] = value_text(sent, publisher, body[start:end])

    def snapshot(self, last: int) -> Snapshot:
        """Return the keys as they are; ``last``: the number of the region's last event."""
        pairs = ((key, value_of(head, self.values.get(key, b""))) for key, head in self.known.items())
        values = {key: value for key, value in pairs if value is not None}
        return Snapshot(last, self.lost, values, len(values) < len(self.known))
