"""Updates: the newest value of a key, beside the order of events, for what changes many times a second.

An update may be lost, and one that is superseded before somebody takes it need not come. So nothing is stored, and who
is slow keeps one update of each key. They have no place in the order. But none comes before an event that its sender
had had, or had published, when it was sent: it carries the sender's last position in its region, and waits until its
reader has passed that. So a position never comes before the event that introduced what moves.

- By order of arrival, a late packet would win: of two updates of one key by one sender, the later number wins.
- Without a position, an update would revive what is dead: `Update.position` says up to where its sender had seen the
  region, so a reader can tell that it is older than an event that it has had.

A sender's own events may still be on their way to their ingress. What is sent behind them waits for the answer, in one
bundle a region, while the next one gathers: so it is late by one answer at most, however much is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from sequencing.compact import compact
from sequencing.errors import InvalidInput

Position = tuple[int, int]
"""Epoch and sequence."""

NOWHERE: Position = (0, 0)
BUNDLE_BYTES = 60_000
"""Beyond this, the next update of a region goes in another message: so none holds others up for long."""
STALE_S = 10.0
"""What waits longer for an event, or is older than that when it comes, is dropped or forgotten."""


class SentUpdate(NamedTuple):
    """One update on its way. ``number``: grows with each that its sender sends. ``payload``: encoded."""

    key: str
    number: int
    binary: bool
    payload: bytes


class Bundle(NamedTuple):
    """Updates of one region that are sent together.

    ``network``: the first epoch of the network that they belong to; servers may have channels of several. ``seen``: up
    to where the sender had had the region's events; ``behind``: the event that readers must have had before, its
    sender's own last one included.
    """

    network: int
    sender: str
    incarnation: int
    sent_at_ns: int
    seen: Position
    behind: Position
    updates: tuple[SentUpdate, ...]


def encode(bundle: Bundle) -> bytes:
    """Return a bundle as it is sent: what it says in JSON, a newline, and the payloads."""
    about = [(each.key, each.number, each.binary, len(each.payload)) for each in bundle.updates]
    head = orjson.dumps([*bundle[:4], *bundle.seen, *bundle.behind, about])
    return b"".join((head, b"\n", *(each.payload for each in bundle.updates)))


def decode(message: bytes) -> Bundle:
    """Return the bundle in a message; raises `InvalidInput`, as anybody may have sent it."""
    head, _, payloads = message.partition(b"\n")
    try:
        network, sender, incarnation, sent_at_ns, *positions, about = orjson.loads(head)
        seen, behind = (positions[0], positions[1]), (positions[2], positions[3])
        updates, end = [], 0
        for key, number, binary, size in about:
            begin, end = end, end + size
            if type(key) is not str or type(number) is not int or type(binary) is not bool or size < 0:
                raise ValueError("an update has another shape")
            updates.append(SentUpdate(key, number, binary, compact(payloads[begin:end])))
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInput(f"this is no bundle of updates: {error}") from error
    whole = network, incarnation, sent_at_ns, *seen, *behind
    if end != len(payloads) or type(sender) is not str or any(type(each) is not int for each in whole):
        raise InvalidInput("this is no bundle of updates")
    return Bundle(network, sender, incarnation, sent_at_ns, seen, behind, tuple(updates))


class Received(NamedTuple):
    """One update for the application; see `gamecast.Update`."""

    region: str
    key: str
    sender: str
    binary: bool
    payload: bytes
    seen: Position
    sent_at_ns: int


class NewestUpdates:
    """What one reader has received and not taken: the newest update of each region, key and sender.

    Memory grows with the keys that were updated in the last `STALE_S` seconds, or twice that.
    """

    def __init__(self, own_name: str, keys_max: int) -> None:
        """``own_name``: of the reader, which does not get its own updates. ``keys_max``: what is new beyond it waits in
        vain."""
        self._own_name, self._keys_max = own_name, keys_max
        self._waiting: dict[str, dict[tuple[str, str], tuple[float, Position, Received]]] = {}
        """Region → (key, sender) → since when, behind which event, what."""
        self._numbers: dict[tuple[str, str, str], tuple[int, int]] = {}
        """(region, key, sender) → incarnation and number of the newest."""
        self._numbers_before: dict[tuple[str, str, str], tuple[int, int]] = {}
        """The same, of the `STALE_S` before: old ones are forgotten together."""
        self._turned_at_s = 0.0
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
        is_new, sender = False, bundle.sender
        waiting = self._waiting.get(region)
        for key, number, binary, payload in bundle.updates:
            whose, stamp = (region, key, sender), (bundle.incarnation, number)
            newest = self._numbers.get(whose) or self._numbers_before.get(whose)
            if newest is not None and newest >= stamp:
                continue
            if newest is None and len(self._numbers) >= self._keys_max:
                self.dropped += 1
                continue
            self._numbers[whose] = stamp
            if waiting is None:
                waiting = self._waiting[region] = {}
            received = Received(region, key, sender, binary, payload, bundle.seen, bundle.sent_at_ns)
            waiting[key, sender] = now_s, bundle.behind, received
            is_new = True
        return is_new

    def take(self, has_passed: Callable[[str, Position], bool], now_s: float) -> list[Received]:
        """Return what was received, once. ``has_passed``: whether all of a region up to a position was delivered.

        What is sent behind an event that was not delivered stays.
        """
        taken: list[Received] = []
        for region, waiting in list(self._waiting.items()):
            passed: dict[Position, bool] = {}
            for whose, (since_s, behind, received) in list(waiting.items()):
                if behind not in passed:
                    passed[behind] = has_passed(region, behind)
                if passed[behind]:
                    taken.append(received)
                elif now_s - since_s <= STALE_S:
                    continue
                else:
                    self.dropped += 1
                del waiting[whose]
            if not waiting:
                del self._waiting[region]
        return taken

    def drop(self, regions: Iterable[str]) -> None:
        """Forget what was received of some regions, which were left."""
        for region in regions:
            self._waiting.pop(region, None)

    def _turn(self, now_s: float) -> None:
        is_long_ago = now_s - self._turned_at_s > 2 * STALE_S
        self._numbers_before, self._numbers = {} if is_long_ago else self._numbers, {}
        self._turned_at_s = now_s


@dataclass(slots=True)
class _Gathering:
    """What one sender has to send of a region. ``mark``: stands for its own events before what is ``closed``."""

    open: dict[str, tuple[bool, bytes]] = field(default_factory=dict)
    closed: dict[str, tuple[bool, bytes]] | None = None
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

    def __init__(self, name: str, incarnation: int, own: OwnEvents) -> None:
        self._name, self._incarnation, self._own = name, incarnation, own
        self._regions: dict[str, _Gathering] = {}
        self._number = 0

    def put(self, region: str, key: str, binary: bool, payload: bytes) -> None:
        """Have an update sent, in place of the one of the same key that is not sent yet."""
        gathering = self._regions.get(region)
        if gathering is None:
            gathering = self._regions[region] = _Gathering()
        gathering.open[key] = binary, payload

    @property
    def regions(self) -> list[str]:
        """The regions that have something to send."""
        return list(self._regions)

    def drop(self, region: str) -> int:
        """Forget what is not sent of a region; return how many updates that were."""
        gathering = self._regions.pop(region, _Gathering())
        return len(gathering.open.keys() | (gathering.closed or {}).keys())

    def take(self, region: str, network: int, seen: Position, last_event: Position, now_ns: int) -> Iterator[Bundle]:
        """Yield what can be sent of a region now.

        ``seen``: up to where the sender has had the region; ``last_event``: where the last event that it had is. There
        may be markers after that, of which readers are not told.
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
            about = network, self._name, self._incarnation, now_ns, seen
            yield from self._bundles(about, max(last_event, self._own.accepted_up_to(region)), ready)

    def _bundles(
        self, about: tuple[int, str, int, int, Position], behind: Position, ready: Mapping[str, tuple[bool, bytes]]
    ) -> Iterator[Bundle]:
        part: list[SentUpdate] = []
        part_bytes = 0
        for key, (binary, payload) in ready.items():
            if part and part_bytes + len(key) + len(payload) > BUNDLE_BYTES:
                yield Bundle(*about, behind, tuple(part))
                part, part_bytes = [], 0
            self._number += 1
            part.append(SentUpdate(key, self._number, binary, payload))
            part_bytes += len(key) + len(payload)
        if part:
            yield Bundle(*about, behind, tuple(part))
