"""Frames: what travels through the sequencing network, and how it is written down.

A *frame* is one publisher's batch of events for one region: the unit that is stamped, forwarded and stored. It is
made of three byte strings that no node needs to understand beyond their first fields:

``meta``
    ``kind count incarnation first publisher``, blank-separated; ``first`` numbers the publisher's events in this
    region from 1, so that a node can refuse frames that it has accepted before. Behind the publisher of a frame of
    several regions, in lines: each region, the number of the frame's last event there (0 as long as it has none), and
    the publisher's own ``first`` there.
``stamp``
    ``atom,number`` pairs, comma-separated, in the order in which the atoms were passed; before them, once the frame has
    come to its egress node, ``0`` and that node's own number (`NODE`). It is negative where the node numbered something
    else in another egress stream before it in the same step: see `sequencing.cut`.
``body``
    the events. JSON ``[sent_at_ns, [delay_ns, …], [payload, …]]``; a body of bytes payloads begins with a NUL and
    carries ``[sent_at_ns, [delay_ns, …], [length, …]]`` and a newline before the concatenated payloads. Where some
    events name keys, a fourth element is a list of these, null for each other event.

The region sequence counts events, so that every event of a region has a number of its own; atoms count frames, for
nothing can come between two events of one frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import orjson

from sequencing.errors import InvalidInput
from sequencing.keyed import NO_EXTRAS, Extras, Part

_BINARY = b"\x00"

NODE = 0
"""The id in a stamp before the egress node's own number: no atom has it."""


class FrameKind(IntEnum):
    """The kind of a frame: events, or a marker, which takes a number of its region and is stamped like any other
    frame."""

    EVENTS = 0
    JOIN = 1
    """A subscriber's own mark in a region: its view counts from here on. The subscriber recognises it by the body."""
    TICK = 2
    """The last frame of its region in its epoch."""
    JOINT = 3
    """Events of several regions: each region has a copy of the frame, and who has several of them takes the first
    one. The copies follow one another wherever they pass."""
    VOID = 4
    """Such a frame that was refused when some of its regions had numbered it: a marker that says nothing."""
    ASK = 5
    """No frame of the network: a publisher asks what became of a `JOINT` one. See `sequencing.landing`."""


CARRIES_EVENTS = frozenset({FrameKind.EVENTS, FrameKind.JOINT})
"""The kinds of frames that are not markers."""


UNKNOWN_END = 2**53 - 1
"""The number of a TICK if it is unknown how many events preceded it: the largest that Lua counts exactly."""


@dataclass(frozen=True, slots=True)
class PublishedFrame:
    """A frame as a publisher sends it to its region's ingress."""

    region: str
    epoch: int
    publisher: str
    incarnation: int
    first: int
    count: int
    body: bytes
    kind: FrameKind = FrameKind.EVENTS
    extras: Extras = NO_EXTRAS

    @property
    def meta(self) -> bytes:
        """The fields that travel with the frame to its subscribers."""
        return b"%d %d %d %d %s" % (self.kind, self.count, self.incarnation, self.first, self.publisher.encode())

    @property
    def parts(self) -> tuple[Part, ...]:
        """The regions that it goes to."""
        return (Part(self.region, self.first), *self.extras.also)

    def joint_meta(self, lasts: Sequence[int]) -> bytes:
        """Return the fields that travel with each copy of a frame of several regions; ``lasts``: as the node drew
        them."""
        lines = [
            b"%s\n%d\n%d" % (region.encode(), last, first)
            for (region, first), last in zip(self.parts, lasts, strict=True)
        ]
        return b"\n".join([self.meta, *lines])


class StampedFrame(NamedTuple):
    """A frame inside the network or leaving it: ``last`` is the region sequence of its last event.

    A tuple, because one is made for every frame that a subscriber reads: a frozen dataclass takes four times as long.
    """

    region: str
    epoch: int
    last: int
    meta: bytes
    stamp: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class LinkedFrame:
    """A frame with its place in a link."""

    sequence: int
    frame: StampedFrame
    also: tuple[StampedFrame, ...] = ()
    """Its further copies that go the same way, of a frame of several regions."""
    said: bytes = b""
    """Of one that has not come to its decider: what it says of keys (`Extras.encode`), if it does; or why it is
    refused, if it is void."""

    @property
    def refused(self) -> bytes:
        """Why it is refused; empty if it is not."""
        return b"" if self.said[:1] == b"[" else self.said

    @property
    def names_keys(self) -> bool:
        """Whether it is undecided, and names keys."""
        return self.said[:1] == b"+" or (self.said[:1] == b"[" and not self.said.startswith(b"[[],"))

    @property
    def is_undecided(self) -> bool:
        """Whether a region has yet to number it."""
        return any(not copy.last for copy in self.also) or not self.frame.last

    @property
    def copies(self) -> tuple[StampedFrame, ...]:
        """All frames that travel in this place."""
        return self.frame, *self.also


class JointPart(NamedTuple):
    """One of a frame's regions: the number of the frame's last event there, and the publisher's own of its first."""

    region: str
    last: int
    first: int


class Meta(NamedTuple):
    """The fields of a frame's ``meta`` that delivery needs."""

    kind: int
    events: int
    publisher: str


def parse_meta(meta: bytes) -> Meta:
    """Parse a frame's ``meta``; raises `InvalidInput` if it is not one."""
    try:
        kind, count, _, _, publisher = meta.split(b" ", 4)
        parsed = Meta(int(kind), int(count), publisher.decode())
    except ValueError as error:
        raise InvalidInput(f"not the meta of a frame: {meta[:80]!r}") from error
    if parsed.events < 1:
        raise InvalidInput(f"a frame takes at least one number of its region: {meta[:80]!r}")
    if parsed.kind in (FrameKind.JOINT, FrameKind.VOID):
        return parsed._replace(publisher=parsed.publisher.partition("\n")[0])
    return parsed


def joint_parts(meta: bytes) -> tuple[JointPart, ...]:
    """Return the regions of a frame of several, none of another; raises `InvalidInput` if they cannot be read."""
    _, *lines = meta.split(b"\n")
    try:
        if len(lines) % 3:
            raise ValueError("not a region and two numbers each")
        return tuple(
            JointPart(region.decode(), int(last), int(first))
            for region, last, first in zip(lines[::3], lines[1::3], lines[2::3], strict=True)
        )
    except ValueError as error:
        raise InvalidInput(f"not the meta of a frame of several regions: {meta[:80]!r}") from error


def own_number(meta: bytes, incarnation: int, region: str) -> int:
    """Return the last of the publisher's own numbers on a region's frame, 0 if it is of an earlier incarnation."""
    _, count, sent_by, first, _ = meta.split(b" ", 4)
    if b"\n" in meta:
        first = b"%d" % {part.region: part.first for part in joint_parts(meta)}[region]
    return int(first) + int(count) - 1 if int(sent_by) >= incarnation else 0


def parse_stamp(stamp: bytes) -> list[int]:
    """Return the stamp as a flat list: atom, number, atom, number, …; raises `InvalidInput` if it is not a stamp."""
    if stamp[:2] == b"0," and (only := stamp[2:]).isdigit():
        return [NODE, int(only)]  # most stamps are like this
    try:
        numbers: list[int] = orjson.loads(b"[%b]" % stamp)
        sum(numbers)  # the fastest check that they are numbers
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"not the stamp of a frame: {stamp[:80]!r}") from error
    if len(numbers) % 2:
        raise InvalidInput(f"a stamp holds pairs of atom and number: {stamp[:80]!r}")
    return numbers


def node_number(stamp: bytes) -> int:
    """Return the egress node's own number of a frame, 0 if it has no readable one; see ``stamp``."""
    if not stamp.startswith(b"0,"):
        return 0
    try:
        return int(stamp[2:].partition(b",")[0])
    except ValueError:
        return 0


Keys = Sequence[str | None]
"""The key that each event of a frame names, if any."""


def encode_json_body(sent_at_ns: Sequence[int], payloads: Sequence[bytes], keys: Keys = ()) -> bytes:
    """Write a body of payloads that are already JSON."""
    base = sent_at_ns[0]
    delays = orjson.dumps([at - base for at in sent_at_ns])
    if keys:
        return b"[%d,%b,[%b],%b]" % (base, delays, b",".join(payloads), orjson.dumps(keys))
    return b"[%d,%b,[%b]]" % (base, delays, b",".join(payloads))


def encode_binary_body(sent_at_ns: Sequence[int], payloads: Sequence[bytes], keys: Keys = ()) -> bytes:
    """Write a body of payloads that are plain bytes."""
    base = sent_at_ns[0]
    fields: list[Any] = [base, [at - base for at in sent_at_ns], [len(payload) for payload in payloads]]
    header = orjson.dumps([*fields, keys] if keys else fields)
    return b"".join([_BINARY, header, b"\n", *payloads])


def payload_starts(body: bytes, payloads: Sequence[bytes], *, binary: bool) -> list[int]:
    """Return where a body that names keys has each of its payloads."""
    if binary:
        begin, between = body.index(b"\n") + 1, 0
    else:
        begin, between = body.index(b"],[") + 3, 1
    return list(accumulate((len(payload) + between for payload in payloads[:-1]), initial=begin))


def decode_body(body: bytes) -> tuple[list[int], list[Any]]:
    """Return (sent_at_ns of each event, payload of each event); raises `InvalidInput` for a foreign body."""
    sent_at_ns, payloads, _ = decode_keyed_body(body)
    return sent_at_ns, payloads


def _keys(keyed: list[Any], events: int) -> Keys:
    [keys] = keyed
    if type(keys) is not list or len(keys) != events or not all(key is None or type(key) is str for key in keys):
        raise ValueError("not a key, or none, for each payload")
    return keys


def decode_keyed_body(body: bytes) -> tuple[list[int], list[Any], Keys]:
    """As `decode_body`, and return the key of each event; none at all where no event names one."""
    try:
        if not body.startswith(_BINARY):
            base, delays, payloads, *keyed = orjson.loads(body)
        else:
            header, _, rest = body[1:].partition(b"\n")
            base, delays, lengths, *keyed = orjson.loads(header)
            ends = [0, *accumulate(lengths)]
            if ends[-1] != len(rest) or min(lengths, default=0) < 0:
                raise ValueError("the payloads are not as long as they say")
            payloads = [rest[start:end] for start, end in pairwise(ends)]
        is_lone = type(delays) is list and len(delays) == 1  # as in quiet worlds, where each is waited for
        sent_at_ns = [base + delays[0]] if is_lone else [base + delay for delay in delays]
        if type(base) is not int or type(payloads) is not list or len(payloads) != len(sent_at_ns):
            raise ValueError("not a time for each payload")
        return sent_at_ns, payloads, _keys(keyed, len(payloads)) if keyed else ()
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"not the body of a frame: {body[:80]!r}") from error
