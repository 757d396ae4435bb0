"""Reports of what users published, delivered and joined, from the workers to the master.

A worker writes a `Journal`, and sends its new entries as a *chunk* every second. The master collects all chunks in a
`Ledger`. Chunks are compressed JSON: about 15 bytes for each delivery. Each line of a log has its start index, so that
the master notices a missing chunk: a run with missing reports is not fine.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from loadtest.course import Course, Delays, bucket_of
from sequencing.checkers import DeliverySequence
from sequencing.checkers.stays import Placed, Stay
from sequencing.errors import InvalidInput

Columns = list[list[Any]]
NS = 1_000_000_000
ERRORS_MAX = 100
"""Different errors of a process that are counted each by itself; the others are counted together."""


@dataclass(slots=True, eq=False)
class Log:
    """The deliveries of one subscriber, in order. A subscriber is one session of one user."""

    subscriber: str
    events: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    sent: int = 0
    """How many deliveries earlier chunks had."""
    ended: bool = False
    """Whether the session is over. The journal drops the log after its last entries are sent."""

    def deliver(self, event: str, region: str, sender: str, position: str) -> None:
        """Append a delivery."""
        self.events.append(event)
        self.regions.append(region)
        self.senders.append(sender)
        self.positions.append(position)

    @property
    def place(self) -> int:
        """The number of deliveries so far."""
        return self.sent + len(self.events)

    def take(self) -> dict[str, Any] | None:
        """Return the new entries, and remove them."""
        if not self.events:
            return None
        new = {
            "of": self.subscriber,
            "from": self.sent,
            "events": self.events,
            "regions": self.regions,
            "senders": self.senders,
            "positions": self.positions,
        }
        self.sent += len(self.events)
        self.events, self.regions, self.senders, self.positions = [], [], [], []
        return new


class Journal:
    """The reports of the users of one process."""

    def __init__(self, process: str) -> None:
        """``process``: a name that is unique in the run."""
        self.process = process
        self._logs: list[Log] = []
        self._stays: list[Stay] = []
        self._published: list[tuple[str, str, str, str, int]] = []
        self._uncertain: list[tuple[str, str, str, int]] = []
        self._gaps: list[tuple[str, str]] = []
        self._delays: dict[int, Delays] = {}
        self._failures: Counter[tuple[str, str, str]] = Counter()
        self._chunks = 0

    def log(self, subscriber: str) -> Log:
        """Begin the log of a subscriber."""
        log = Log(subscriber)
        self._logs.append(log)
        return log

    def stay(self, stay: Stay) -> None:
        """Note a stay. Call it again when the stay changes: the last call counts."""
        self._stays.append(stay)

    def published(self, event: str, region: str, sender: str, position: str, at_ns: int) -> None:
        """Note an acknowledged event; ``at_ns``: when publish was called."""
        self._published.append((event, region, sender, position, at_ns))

    def uncertain(self, event: str, region: str, sender: str, at_ns: int) -> None:
        """Note an event whose publisher does not know whether it was published."""
        self._uncertain.append((event, region, sender, at_ns))

    def took(self, delay_ms: float, at_ns: int) -> None:
        """Note how long a delivery took, from when its event was due."""
        self._delays.setdefault(at_ns // NS, Counter())[bucket_of(delay_ms)] += 1

    def failed(self, kind: str, way: str, error: str) -> None:
        """Note a request that failed."""
        known = (kind, way, error) in self._failures or len(self._failures) < ERRORS_MAX
        self._failures[kind, way, error if known else "other errors"] += 1

    def gap(self, subscriber: str, what: str) -> None:
        """Note that a subscriber got a gap."""
        self._gaps.append((subscriber, what))

    def take(self, **figures: Any) -> bytes:
        """Return a chunk with all new entries and the present figures."""
        lines = [line for log in self._logs if (line := log.take()) is not None]
        self._logs = [log for log in self._logs if not log.ended]
        chunk = {
            "process": self.process,
            "chunk": self._chunks,
            "logs": lines,
            "stays": [[s.subscriber, s.region, s.start, s.end, s.asked_at_ns, s.joined_at_ns] for s in self._stays],
            "published": self._published,
            "uncertain": self._uncertain,
            "gaps": self._gaps,
            "delays": [[second, list(counts.items())] for second, counts in self._delays.items()],
            "failures": [[*what, count] for what, count in self._failures.items()],
            "figures": figures,
        }
        self._chunks += 1
        self._stays, self._published, self._uncertain, self._gaps = [], [], [], []
        self._delays, self._failures = {}, Counter()
        return zlib.compress(orjson.dumps(chunk), 1)


@dataclass(slots=True)
class Ledger:
    """All reports of a run."""

    columns: dict[str, Columns] = field(default_factory=dict)
    """Subscriber → the events, regions, senders and positions of its deliveries, in order."""
    stays: dict[tuple[str, str, int], Stay] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    order: dict[str, list[str]] = field(default_factory=dict)
    """Publisher → its events, in the order of their receipts."""
    uncertain: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    figures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Process → the figures of its last chunk."""
    missing: list[str] = field(default_factory=list)
    """Descriptions of missing reports."""
    deliveries: int = 0
    course: Course = field(default_factory=Course)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Kind of request, access path and error → how often."""
    _chunks: dict[str, int] = field(default_factory=dict)
    _fresh: list[Placed] = field(default_factory=list)

    def add(self, data: bytes) -> str:
        """Add a chunk, and return the name of its process. Raises `InvalidInput` if it is malformed."""
        try:
            chunk = orjson.loads(zlib.decompress(data))
            process, number = chunk["process"], chunk["chunk"]
        except (zlib.error, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InvalidInput(f"a message of {len(data)} bytes is not a journal chunk: {error}") from error
        if (awaited := self._chunks.get(process, 0)) != number:
            self.missing.append(f"chunk {awaited} of {process} did not arrive before chunk {number}")
        self._chunks[process] = number + 1
        for line in chunk["logs"]:
            self._add_log(line)
        for subscriber, region, start, end, asked, joined in chunk["stays"]:
            self.stays[subscriber, region, start] = Stay(subscriber, region, start, end, asked, joined)
        for event, region, sender, position, at_ns in chunk["published"]:
            epoch, _, sequence = position.partition("-")
            self.placed[event] = placed = Placed(event, region, (int(epoch), int(sequence)), at_ns)
            self._fresh.append(placed)
            self.course.published(at_ns // NS)
            self.order.setdefault(sender, []).append(event)
        for event, region, sender, at_ns in chunk["uncertain"]:
            self.uncertain[event] = region, sender, at_ns
        self.gaps += map(tuple, chunk["gaps"])
        for second, counts in chunk["delays"]:
            self.course.delivered(second, dict(counts))
        for kind, way, failure, count in chunk["failures"]:
            self.failures[kind, way, failure] += count
        self.figures[process] = chunk["figures"]
        return str(process)

    def take_fresh(self) -> list[Placed]:
        """Return the published events that were not returned before."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def sequences(self) -> list[DeliverySequence]:
        """Return the deliveries of each subscriber."""
        return [DeliverySequence(name, *columns[:3]) for name, columns in self.columns.items()]

    def settle_uncertain(self) -> int:
        """Count uncertain events that a subscriber delivered as published. Return how many no subscriber delivered."""
        if self.uncertain:
            for columns in self.columns.values():
                for event, position in zip(columns[0], columns[3], strict=True):
                    if event in self.uncertain and event not in self.placed:
                        region, _, at_ns = self.uncertain[event]
                        epoch, _, sequence = position.partition("-")
                        self.placed[event] = Placed(event, region, (int(epoch), int(sequence)), at_ns)
        return sum(event not in self.placed for event in self.uncertain)

    def publication_order(self) -> dict[str, list[str]]:
        """Return each publisher's events in the order of publishing. Receipts may arrive in any order."""
        return {sender: sorted(events, key=_number_of) for sender, events in self.order.items()}

    def _add_log(self, line: Mapping[str, Any]) -> None:
        name = line["of"]
        columns = self.columns.setdefault(name, [[], [], [], []])
        if (known := len(columns[0])) != line["from"]:
            self.missing.append(f"deliveries {known} to {line['from']} of {name} did not arrive")
        for column, new in zip(columns, ("events", "regions", "senders", "positions"), strict=True):
            # Each event occurs once for each subscriber, and the other columns repeat a few names: share the strings.
            column += map(sys.intern, line[new])
        self.deliveries += len(line["events"])


def event_id(publisher: str, number: int) -> str:
    """Return the ID of a publisher's event; numbers grow in the order of publishing."""
    return f"{publisher}/{number}"


def _number_of(event: str) -> int:
    return int(event.rpartition("/")[2])
