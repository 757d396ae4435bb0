"""Synthetic sessions: worlds of any size, in the schema of a recorded session, with planted faults if requested.

Every subscriber delivers in one hidden order, with holding as in a sequencing network. So a session has no faults but
the planted ones. All is drawn from a seed, with numpy, some millions of deliveries a second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.session.schema import (
    FILE_RECORDER,
    FILE_SCHEMA,
    FILE_SESSION,
    PARTITION,
    SCHEMA_VERSION,
    SESSION_FILE,
    TABLE_OF,
    hour_of,
)

Fault = Literal["swap", "duplicate", "loss", "cycle", "causal"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
IntArray = npt.NDArray[np.int64]
Row = dict[str, Any]

BEGAN_AT_NS = 1_790_000_000_000_000_000
DELIVERIES_A_FILE = 2_000_000
CLOCKS_APART_NS = 1 << 40
"""More than any delivery takes: it separates the running maxima of different subscribers in one array."""


@dataclass(frozen=True, slots=True)
class World:
    """Subscribers on a map of regions in a ring, each with some neighbouring regions; all of them publish."""

    subscribers: int = 64
    regions: int = 32
    regions_each: int = 4
    events_per_s: int = 10_000
    seed: int = 1

    @property
    def names(self) -> list[str]:
        """The subscribers' names."""
        return [f"server-{number:03}" for number in range(self.subscribers)]

    @property
    def region_names(self) -> list[str]:
        """The regions' names."""
        return [f"region-{number:03}" for number in range(self.regions)]

    def membership(self) -> list[list[int]]:
        """Return the subscribers of each region."""
        members: list[list[int]] = [[] for _ in range(self.regions)]
        for subscriber in range(self.subscribers):
            for step in range(self.regions_each):
                members[(subscriber + step) % self.regions].append(subscriber)
        return members

    def direct_ms(self) -> npt.NDArray[np.float64]:
        """Return the direct one-way delay from each subscriber to each other one, 0 to itself."""
        places = np.random.default_rng([self.seed, 1]).random((self.subscribers, 2))
        away = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
        return np.where(np.eye(self.subscribers, dtype=bool), 0.0, 2.0 + 40.0 * away)


@dataclass(frozen=True, slots=True)
class Session:
    """What was written: where, how much, and which events are faulty."""

    directory: Path
    events: int
    deliveries: int
    planted: dict[Fault, dict[str, Any]] = field(default_factory=dict)


def write_session(
    directory: Path,
    world: World,
    *,
    deliveries: int,
    faults: Collection[Fault] = (),
    deliveries_a_file: int = DELIVERIES_A_FILE,
) -> Session:
    """Write a session of about this many deliveries; takes about 1.5 s and 1 GB for each file of 2 million.

    The tables are deliveries, publishes and stays. Faults are planted in the middle file.
    """
    members = world.membership()
    fan_out = sum(map(len, members)) / world.regions
    a_file = max(1, min(math.ceil(deliveries / fan_out), int(deliveries_a_file / fan_out)))
    files = max(1, round(deliveries / fan_out / a_file))
    drawing = _Drawing(world, members)
    directory.mkdir(parents=True, exist_ok=True)
    document = {"schema": SCHEMA_VERSION, "session": directory.name, "began_at_ns": BEGAN_AT_NS, "gamecast": "0"}
    (directory / SESSION_FILE).write_text(json.dumps({**document, "ordering": "acyclic", "url": "memory://synthetic"}))
    written, planted = 0, dict[Fault, dict[str, Any]]()
    for number in range(files):
        chunk = drawing.draw(a_file, list(faults) if number == files // 2 else [])
        planted |= chunk.planted
        for table, arrays in (("deliveries", chunk.deliveries), ("publishes", chunk.publishes)):
            _write(directory, table, _table(table, arrays), number=number)
        written += len(chunk.deliveries["index"])
    _write(directory, "stays", _rows("stays", list(drawing.stays())), number=0)
    return Session(directory, drawing.event, written, planted)


@dataclass(slots=True)
class _Chunk:
    deliveries: dict[str, Any]
    publishes: dict[str, Any]
    planted: dict[Fault, dict[str, Any]]


class _Drawing:
    """Draws one file after the other; remembers the state of each subscriber and region."""

    def __init__(self, world: World, members: Sequence[Sequence[int]]) -> None:
        self.world, self.event = world, 0
        self._random = np.random.default_rng(world.seed)
        self._fan = np.array([len(each) for each in members])
        self._members = np.zeros((world.regions, int(self._fan.max())), np.int64)
        for region, each in enumerate(members):
            self._members[region, : len(each)] = each
        # Some regions are hot: the busiest has some ten times the events of the quietest.
        weight = 1.0 / (1.0 + np.arange(world.regions) % 10)
        self._weight = weight / weight.sum()
        self._direct_ns = world.direct_ms() * 1e6
        self._detour = 1.2 + 0.6 * np.random.default_rng([world.seed, 2]).random(world.regions)
        self._next_index = np.zeros(world.subscribers, np.int64)
        self._last_ns = np.zeros(world.subscribers, np.int64)
        self._next_sequence = np.ones(world.regions, np.int64)
        self._strangers: set[tuple[str, str]] = set()

    def draw(self, events: int, faults: Sequence[Fault]) -> _Chunk:
        world, random = self.world, self._random
        region = random.choice(world.regions, size=events, p=self._weight)
        publisher = self._members[region, random.integers(0, self._fan[region])]
        gap_ns = 1_000_000_000 // world.events_per_s
        sent_ns = BEGAN_AT_NS + (self.event + np.arange(events)) * gap_ns
        sequence = self._sequences(region)
        self.event += events
        fan = self._fan[region]
        event = np.repeat(np.arange(events), fan)
        nth = np.arange(len(event)) - np.repeat(np.cumsum(fan) - fan, fan)
        subscriber = self._members[region[event], nth]
        by_subscriber = np.argsort(subscriber.astype(np.int16), kind="stable")
        planted: dict[Fault, dict[str, Any]] = {}
        event, subscriber = event[by_subscriber], subscriber[by_subscriber]
        for fault in faults:
            if fault in ("swap", "duplicate", "loss"):
                event, subscriber, row = _tamper(event, subscriber, region, fault)
                planted[fault] = self._named(row, event, region, sequence)
                planted[fault]["subscriber"] = world.names[int(row[0])]
        way_ns = self._direct_ns[publisher[event], subscriber] * self._detour[region[event]]
        received_ns = sent_ns[event] + (way_ns + random.exponential(1e6, len(event)) + 2e5).astype(np.int64)
        delivered_ns, index = self._deliver(subscriber, received_ns)
        published = {
            "publisher": _names(world.names, publisher),
            "host": _names(world.names, publisher),
            "region": _names(world.region_names, region),
            "epoch": np.ones(events, np.int64),
            "sequence": sequence,
            "bytes": np.full(events, 190, np.int64),
            "published_at_ns": sent_ns,
            "acknowledged_at_ns": sent_ns + 1_500_000,
            "outcome": _names(["acknowledged"], np.zeros(events, np.int64)),
        }
        delivered = {
            "subscriber": _names(world.names, subscriber),
            "host": _names(world.names, subscriber),
            "index": index,
            "region": _names(world.region_names, region[event]),
            "publisher": _names(world.names, publisher[event]),
            "epoch": np.ones(len(event), np.int64),
            "sequence": sequence[event],
            "sent_at_ns": sent_ns[event],
            "received_at_ns": received_ns,
            "delivered_at_ns": delivered_ns,
        }
        chunk = _Chunk(delivered, published, planted)
        for fault in faults:
            if fault in ("cycle", "causal"):
                rows = _ring(int(sent_ns[events // 2])) if fault == "cycle" else _answer(int(sent_ns[events // 2]))
                self._add(chunk, rows)
                planted[fault] = {"events": [f"{each['region']} 1-1" for each in rows[0]]}
        return chunk

    def stays(self) -> Iterator[Row]:
        names, regions = self.world.names, self.world.region_names
        pairs = [(names[s], regions[r]) for r, fan in enumerate(self._fan) for s in self._members[r, :fan]]
        for number, (subscriber, region) in enumerate([*pairs, *sorted(self._strangers)]):
            asked = BEGAN_AT_NS - 1_000_000_000
            stay = {"subscriber": subscriber, "host": subscriber, "region": region, "stay": number, "revision": 1}
            times = {"asked_at_ns": asked, "joined_at_ns": asked + 30_000_000, "noted_at_ns": asked + 30_000_000}
            yield {**stay, **times, "from_index": 0, "epoch": 1}

    def _sequences(self, region: IntArray) -> IntArray:
        """Return the sequence of each event in its region, continued from the previous file."""
        order = np.argsort(region.astype(np.int16), kind="stable")
        counts = np.bincount(region, minlength=self.world.regions)
        sequence = np.empty(len(region), np.int64)
        start = np.repeat(np.cumsum(counts) - counts, counts)
        sequence[order] = np.arange(len(region)) - start + self._next_sequence[region[order]]
        self._next_sequence += counts
        return sequence

    def _deliver(self, subscriber: IntArray, received_ns: IntArray) -> tuple[IntArray, IntArray]:
        """Return the time of each delivery, after all that the subscriber must deliver before; and its index."""
        counts = np.bincount(subscriber, minlength=self.world.subscribers)
        first = np.flatnonzero(np.diff(subscriber, prepend=-1))
        who = subscriber[first]
        since_ns = received_ns - BEGAN_AT_NS
        since_ns[first] = np.maximum(since_ns[first], self._last_ns[who])
        apart = subscriber * CLOCKS_APART_NS * 64
        held_ns = np.maximum.accumulate(since_ns + apart) - apart
        self._last_ns[who] = held_ns[np.append(first[1:], len(subscriber)) - 1]
        index = np.arange(len(subscriber)) - np.repeat(np.cumsum(counts) - counts, counts)
        index += self._next_index[subscriber]
        self._next_index += counts
        return held_ns + BEGAN_AT_NS, index

    def _named(self, row: Sequence[int], event: IntArray, region: IntArray, sequence: IntArray) -> dict[str, Any]:
        names = self.world.region_names
        return {"events": [f"{names[int(region[each])]} 1-{int(sequence[each])}" for each in row[1:]]}

    def _add(self, chunk: _Chunk, rows: tuple[list[Row], list[Row]]) -> None:
        """Append rows of subscribers and regions outside the world."""
        for table, added in ((chunk.publishes, rows[0]), (chunk.deliveries, rows[1])):
            for name, column in table.items():
                values = [row[name] for row in added]
                if isinstance(column, pa.Array):
                    table[name] = pa.concat_arrays([column, pa.array(values, pa.string())])
                else:
                    table[name] = np.concatenate([column, np.array(values, np.int64)])
        self._strangers.update((row["subscriber"], row["region"]) for row in rows[1])


def _tamper(
    event: IntArray, subscriber: IntArray, region: IntArray, fault: Fault
) -> tuple[IntArray, IntArray, tuple[int, ...]]:
    """Return the rows with one fault, and the subscriber and the events of the fault."""
    # Each fault has a place of its own, away from the others.
    at = int(len(event) * {"swap": 0.51, "duplicate": 0.26, "loss": 0.77}.get(fault, 0.0))
    if fault == "swap":
        while subscriber[at] != subscriber[at + 1] or abs(int(region[event[at]]) - int(region[event[at + 1]])) != 1:
            at += 1
        event = event.copy()
        event[[at, at + 1]] = event[[at + 1, at]]
        return event, subscriber, (int(subscriber[at]), int(event[at]), int(event[at + 1]))
    # Not a subscriber's first or last: an event before all its known deliveries is not a loss.
    culprit = int(subscriber[at]), int(event[at])
    if fault == "duplicate":
        return np.insert(event, at, event[at]), np.insert(subscriber, at, subscriber[at]), culprit
    return np.delete(event, at), np.delete(subscriber, at), culprit


def _ring(at_ns: int) -> tuple[list[Row], list[Row]]:
    """Return one event in each of three regions, and three subscribers of two of them that close a ring."""
    regions = ["ring-a", "ring-b", "ring-c"]
    deliveries = []
    for number in range(3):
        for index, region in enumerate((regions[number], regions[(number + 1) % 3])):
            deliveries.append(
                _delivery(f"ring-server-{number}", index, region, "ring-publisher", at_ns, late_ms=5 + index)
            )
    return [_publish("ring-publisher", region, at_ns) for region in regions], deliveries


def _answer(at_ns: int) -> tuple[list[Row], list[Row]]:
    """Return a spell, an answer by a subscriber that delivered it, and one that delivers the answer first."""
    later_ns = at_ns + 20_000_000
    published = [_publish("caster", "spell", at_ns), _publish("answerer", "answer", later_ns)]
    return published, [
        _delivery("answerer", 0, "spell", "caster", at_ns, late_ms=5),
        _delivery("bystander", 0, "answer", "answerer", later_ns, late_ms=5),
        _delivery("bystander", 1, "spell", "caster", at_ns, late_ms=40),
    ]


def _publish(publisher: str, region: str, at_ns: int) -> Row:
    row = {"publisher": publisher, "host": publisher, "region": region, "epoch": 1, "sequence": 1, "bytes": 190}
    return {**row, "published_at_ns": at_ns, "acknowledged_at_ns": at_ns + 1_500_000, "outcome": "acknowledged"}


def _delivery(subscriber: str, index: int, region: str, publisher: str, at_ns: int, *, late_ms: int) -> Row:
    row = {"subscriber": subscriber, "host": subscriber, "index": index, "region": region, "publisher": publisher}
    there_ns = at_ns + late_ms * 1_000_000
    times = {"sent_at_ns": at_ns, "received_at_ns": there_ns, "delivered_at_ns": there_ns}
    return {**row, "epoch": 1, "sequence": 1, **times}


def _names(names: Sequence[str], numbers: IntArray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(names)).cast(pa.string())


def _table(table: str, arrays: dict[str, Any]) -> pa.Table:
    schema = TABLE_OF[table].arrow_schema()
    count = len(next(iter(arrays.values())))
    missing = {column.name: pa.nulls(count, column.type) for column in schema if column.name not in arrays}
    return pa.table({name: {**arrays, **missing}[name] for name in schema.names}, schema=schema)


def _rows(table: str, rows: Sequence[Row]) -> pa.Table:
    schema = TABLE_OF[table].arrow_schema()
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _write(directory: Path, table: str, rows: pa.Table, *, number: int) -> None:
    if not len(rows):
        return
    hour = hour_of(rows[TABLE_OF[table].time][0].as_py())
    folder = directory / table / f"{PARTITION}={hour}"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {FILE_SCHEMA: str(SCHEMA_VERSION), FILE_SESSION: directory.name, FILE_RECORDER: "synthetic"}
    pq.write_table(rows.replace_schema_metadata(metadata), folder / f"synthetic-{number:06}.parquet")
