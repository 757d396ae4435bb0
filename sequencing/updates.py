"""Updates: the newest value of a key, beside the order of events, for what changes many times a second.

An update may be lost, and one that is superseded before somebody takes it need not come. So nothing is stored, and who
is slow keeps one update of each key. They have no place in the order. But none comes before an event that its sender
had had, or had published, when it was made: it carries the sender's last position in its region, and waits until its
reader has passed that. So a position never comes before the event that introduced what moves. Who had a state had all
that it is made of: also what left no value there, an event without a key, or one that deletes a key.

- By order of arrival, a late packet would win: of two updates of one key by one sender, the later number wins.
- Without a position, an update would revive what is dead: `Update.position` says up to where its sender had seen the
  region, so a reader can tell that it is older than an event that it has had.

A sender's own events may still be on their way to their ingress. What is sent behind them waits for the answer, in one
bundle a region, while the next one gathers: so it is late by one answer at most, however much is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from sequencing.errors import InvalidInput
from sequencing.names import client_of

Position = tuple[int, int]
"""Epoch and sequence."""

NOWHERE: Position = (0, 0)
BUNDLE_BYTES = 60_000
"""Beyond this, the next update of a region goes in another message: so none holds others up for long."""
STALE_S = 10.0
"""What waits longer for an event, or is older than that when it comes, is dropped or forgotten."""
BYTES_MAX = 64 * 1024 * 1024
GUEST_KEYS_MAX = 512
"""Keys that a reader takes updates of from one client of gateways, in `STALE_S`, in all of its sessions and regions: a
player moves few things. So none fills the memory of all who look on, or takes the room of others."""
GUESTS_PART = 0.75
"""The part of a reader's keys that all clients of gateways have together at most: game servers find room."""
PARSED_FACTOR = 16
"""What is parsed takes so many times the bytes of its JSON, with lists of short numbers."""


class Bundle(NamedTuple):
    """Updates of one region that are sent together.

    ``network``: the first epoch of the network that they belong to; servers may have channels of several. ``seen``: up
    to where the sender had had the region's events; ``behind``: the event that readers must have had before, its
    sender's own last one included. ``first``: the number of the first update; the others have the next ones.
    """

    network: int
    sender: str
    incarnation: int
    sent_at_ns: int
    seen: Position
    behind: Position
    first: int
    keys: Sequence[str]
    payloads: Sequence[Any]
    """Of each key; sent are encoded ones: JSON as `orjson.Fragment`, or bytes."""
    size: int = 0
    """In bytes, of the message it came in."""


def encode(bundle: Bundle) -> bytes:
    """Return a bundle as it is sent: all in JSON, then, after a newline, the payloads that are bytes, one after the
    other."""
    raw = [(place, each) for place, each in enumerate(bundle.payloads) if type(each) is bytes]
    sizes = [(place, len(each)) for place, each in raw]
    payloads = bundle.payloads if not raw else [None if type(each) is bytes else each for each in bundle.payloads]
    head = orjson.dumps([*bundle[:4], *bundle.seen, *bundle.behind, bundle.first, bundle.keys, payloads, sizes])
    return b"".join((head, b"\n", *(each for _, each in raw)))


def decode(message: bytes) -> Bundle:
    """Return the bundle in a message; raises `InvalidInput`, as anybody may have sent it."""
    head, _, raw = message.partition(b"\n")
    try:
        network, sender, incarnation, sent_at_ns, *positions, first, keys, payloads, sizes = orjson.loads(head)
        seen_epoch, seen_sequence, behind_epoch, behind_sequence = positions
        end = 0
        for place, size in sizes:
            if size < 0 or payloads[place] is not None:
                raise ValueError("a payload is in two places")
            payloads[place], end = raw[end : end + size], end + size
        whole = network, incarnation, sent_at_ns, first, *positions
        is_fit = end == len(raw) and len(keys) == len(payloads) and type(keys) is type(payloads) is list
        if not is_fit or {*map(type, keys), type(sender)} != {str} or {*map(type, whole)} != {int}:
            raise ValueError("its parts are of other types")
    except (ValueError, TypeError, LookupError) as error:
        raise InvalidInput(f"this is no bundle of updates: {error}") from error
    seen, behind = (seen_epoch, seen_sequence), (behind_epoch, behind_sequence)
    return Bundle(network, sender, incarnation, sent_at_ns, seen, behind, first, keys, payloads, len(message))


class Received(NamedTuple):
    """One update for the application; see `gamecast.Update`."""

    region: str
    key: str
    sender: str
    payload: Any
    seen: Position
    sent_at_ns: int


Whose = tuple[str, str]
"""Region and sender."""

_Waiting = tuple[float, Bundle, Any, int]
"""Since when it waits, with what it came (without keys and payloads), its payload, and about how many bytes that takes.
"""


class NewestUpdates:
    """What one reader has received and not taken: the newest update of each region, key and sender.

    Memory grows with the keys that were updated in the last `STALE_S` seconds, or twice that; what waits to be
    taken, with ``keys_max`` of them at most, and ``bytes_max``.
    """

    def __init__(self, own_name: str, keys_max: int, bytes_max: int = BYTES_MAX) -> None:
        """``own_name``: of the reader, which does not get its own updates. ``keys_max``, ``bytes_max``: what is new
        beyond them is dropped."""
        self._own_name, self._keys_max, self._bytes_max = own_name, keys_max, bytes_max
        self._waiting: dict[Whose, dict[str, _Waiting]] = {}
        self._numbers: dict[Whose, dict[str, tuple[int, int]]] = {}
        """Key → incarnation and number of the newest."""
        self._numbers_before: dict[Whose, dict[str, tuple[int, int]]] = {}
        """The same, of the `STALE_S` before: old ones are forgotten together."""
        self._known = 0
        """How many keys are in ``_numbers``."""
        self._untaken = 0
        """How many are in ``_waiting``."""
        self._untaken_bytes = 0
        """What their payloads take, about."""
        self._turned_at_s = 0.0
        self._of_guests: dict[str, int] = {}
        """Client of gateways → how many keys are in ``_numbers``; of all of them together under the empty name."""
        self.dropped = 0
        """Updates that found no room, or waited too long for an event."""

    @property
    def has_some(self) -> bool:
        """Whether anything was received and not taken."""
        return bool(self._waiting)

    def put(self, region: str, bundle: Bundle, now_s: float) -> bool:
        """Take what came; return whether anything of it is new."""
        if bundle.sender == self._own_name:
            return False
        if now_s - self._turned_at_s > STALE_S:
            self._turn(now_s)
        whose, incarnation, number = (region, bundle.sender), bundle.incarnation, bundle.first - 1
        waiting, numbers = self._waiting.get(whose) or {}, self._numbers.get(whose)
        if numbers is None:
            numbers = self._numbers[whose] = {}
        before = self._numbers_before.get(whose) or {}
        is_new = False
        about = bundle._replace(keys=(), payloads=())  # one key that is not taken does not hold all of them
        share = bundle.size // max(1, len(bundle.keys))
        guest = client_of(bundle.sender)
        for key, payload in zip(bundle.keys, bundle.payloads, strict=True):
            number += 1
            newest = numbers.get(key)
            if newest is None:
                newest = before.get(key)
                if self._known >= self._keys_max or (guest is not None and not self._has_room_for(guest)):
                    self.dropped += 1
                    continue
            if newest is None or newest < (incarnation, number):
                older = waiting.get(key)
                size = share * PARSED_FACTOR if isinstance(payload, (dict, list)) else share
                more = size - (older[3] if older is not None else 0)
                if (older is None and self._untaken >= self._keys_max) or (
                    more > 0 and self._untaken_bytes + more > self._bytes_max
                ):
                    self.dropped += 1
                    continue
                self._untaken += older is None
                self._untaken_bytes += more
                newest, waiting[key], is_new = (incarnation, number), (now_s, about, payload, size), True
            if key not in numbers:
                self._known += 1
                if guest is not None:
                    self._of_guests[guest] = self._of_guests.get(guest, 0) + 1
                    self._of_guests[""] = self._of_guests.get("", 0) + 1
            numbers[key] = newest
        if is_new:
            self._waiting[whose] = waiting
        return is_new

    def take(self, has_passed: Callable[[str, Position], bool], now_s: float) -> list[Received]:
        """Return what was received, once. ``has_passed``: whether all of a region up to a position was delivered.

        What is sent behind an event that was not delivered stays.
        """
        taken: list[Received] = []
        for whose, waiting in list(self._waiting.items()):
            region, sender = whose
            passed: dict[Position, bool] = {}
            held: dict[str, _Waiting] = {}
            for key, each in waiting.items():
                since_s, bundle, payload, size = each
                behind = bundle.behind
                if behind not in passed:
                    passed[behind] = has_passed(region, behind)
                if passed[behind]:
                    taken.append(Received(region, key, sender, payload, bundle.seen, bundle.sent_at_ns))
                elif now_s - since_s <= STALE_S:
                    held[key] = each
                    continue
                else:
                    self.dropped += 1
                self._untaken_bytes -= size
            self._untaken -= len(waiting) - len(held)
            if held:
                self._waiting[whose] = held
            else:
                del self._waiting[whose]
        return taken

    def drop(self, regions: Iterable[str]) -> None:
        """Forget what was received of some regions, which were left."""
        left = set(regions)
        for whose in [whose for whose in self._waiting if whose[0] in left]:
            waiting = self._waiting.pop(whose)
            self._untaken -= len(waiting)
            self._untaken_bytes -= sum(size for *_, size in waiting.values())

    def _has_room_for(self, guest: str) -> bool:
        counts = self._of_guests
        return counts.get(guest, 0) < GUEST_KEYS_MAX and counts.get("", 0) < GUESTS_PART * self._keys_max

    def _turn(self, now_s: float) -> None:
        """Keep the numbers since the last turn and forget older ones: called when the last turn is `STALE_S` ago."""
        is_long_ago = now_s - self._turned_at_s > 2 * STALE_S
        self._numbers_before, self._numbers, self._known = {} if is_long_ago else self._numbers, {}, 0
        self._of_guests = {}
        self._turned_at_s = now_s


class _Unsent(NamedTuple):
    """``payload``: encoded, as `Bundle.payloads`. ``seen_max``: how far it may say that its sender had seen the region,
    None: as far as that had."""

    payload: Any
    size: int
    seen_max: Position | None


@dataclass(slots=True)
class _Gathering:
    """What one sender has to send of a region. ``mark``: stands for its own events before what is ``closed``."""

    open: dict[str, _Unsent] = field(default_factory=dict)
    closed: dict[str, _Unsent] | None = None
    mark: Any = None


class OwnEvents(Protocol):
    """What a sender of updates must know of its own events: implemented by `sequencing.publisher`."""

    def last_own(self, region: str) -> Any:
        """Return what stands for the last event that was published there and has no answer; None if there is none."""

    def is_answered(self, region: str, event: Any) -> bool:
        """Return whether it has its answer by now."""

    def accepted_up_to(self, region: str) -> Position:
        """Return the position of the last accepted event."""


class OutgoingUpdates:
    """What one sender has not sent yet: the newest of each region and key."""

    def __init__(
        self, name: str, incarnation: int, own: OwnEvents, keys_max: int = 65_536, bytes_max: int = BYTES_MAX
    ) -> None:
        """``keys_max``, ``bytes_max``: what is new beyond them, while nothing can be sent, is dropped."""
        self._name, self._incarnation, self._own = name, incarnation, own
        self._keys_max, self._bytes_max = keys_max, bytes_max
        self._regions: dict[str, _Gathering] = {}
        self._unsent = 0
        """How many keys are open or closed."""
        self._unsent_bytes = 0
        """Of their payloads."""
        self._number = 0
        self.dropped = 0
        """Updates that found no room."""

    def put(self, region: str, key: str, payload: Any, size: int, seen_max: Position | None = None) -> None:
        """Have an update sent, in place of the one of the same key that is not sent yet.

        ``payload``: encoded, as `Bundle.payloads`, in ``size`` bytes. ``seen_max``: up to where its maker had seen the
        region, if that may be less than this sender has.
        """
        gathering = self._regions.get(region)
        if gathering is None:
            gathering = self._regions[region] = _Gathering()
        older = gathering.open.get(key)
        more = size - (older.size if older is not None else 0)
        if (older is None and self._unsent >= self._keys_max) or (
            more > 0 and self._unsent_bytes + more > self._bytes_max
        ):
            self.dropped += 1
            return
        self._unsent += older is None
        self._unsent_bytes += more
        gathering.open[key] = _Unsent(payload, size, seen_max)

    @property
    def regions(self) -> list[str]:
        """The regions that have something to send."""
        return list(self._regions)

    def drop(self, region: str) -> int:
        """Forget what is not sent of a region; return how many updates that were."""
        gathering = self._regions.pop(region, _Gathering())
        for part in (gathering.open, gathering.closed or {}):
            self._unsent -= len(part)
            self._unsent_bytes -= sum(each.size for each in part.values())
        return len(gathering.open.keys() | (gathering.closed or {}).keys())

    def take(self, region: str, network: int, seen: Position, last_event: Position, now_ns: int) -> Iterator[Bundle]:
        """Yield what can be sent of a region now.

        ``seen``: up to where the sender has had the region; ``last_event``: where the last event that it had is, or its
        state, which may be as of a marker.
        """
        gathering = self._regions.get(region)
        while gathering is not None:
            if gathering.closed is None:
                if not gathering.open:
                    del self._regions[region]
                    return
                gathering.closed, gathering.open = gathering.open, {}
                gathering.mark = self._own.last_own(region)
            if gathering.mark is not None and not self._own.is_answered(region, gathering.mark):
                return
            ready, gathering.closed, gathering.mark = gathering.closed, None, None
            self._unsent -= len(ready)
            self._unsent_bytes -= sum(each.size for each in ready.values())
            behind = max(last_event, self._own.accepted_up_to(region))
            by_seen: dict[Position, dict[str, _Unsent]] = {}
            for key, unsent in ready.items():
                by_seen.setdefault(min(seen, unsent.seen_max or seen), {})[key] = unsent
            for each_seen, together in by_seen.items():
                about = network, self._name, self._incarnation, now_ns, each_seen
                yield from self._bundles(about, behind, together)

    def _bundles(
        self, about: tuple[int, str, int, int, Position], behind: Position, ready: Mapping[str, _Unsent]
    ) -> Iterator[Bundle]:
        keys: list[str] = []
        payloads: list[Any] = []
        part_bytes = 0
        for key, (payload, size, _) in ready.items():
            if keys and part_bytes + len(key) + size > BUNDLE_BYTES:
                yield self._bundle(about, behind, keys, payloads)
                keys, payloads, part_bytes = [], [], 0
            keys.append(key)
            payloads.append(payload)
            part_bytes += len(key) + size
        if keys:
            yield self._bundle(about, behind, keys, payloads)

    def _bundle(
        self, about: tuple[int, str, int, int, Position], behind: Position, keys: list[str], payloads: list[Any]
    ) -> Bundle:
        first, self._number = self._number + 1, self._number + len(keys)
        return Bundle(*about, behind, first, keys, payloads)
