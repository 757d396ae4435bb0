"""One subscriber that joins and leaves, at every bad moment: small worlds that reach what the fault runs seldom does.

A node, four regions, and atoms over two to four of them at random. Each region is read at a pace of its own, markers
are published late and in any order, and the subscriber joins, leaves and comes back while frames wait. What it delivers
is held against the numbers that the node drew: nobody may see two of an atom the wrong way round. And where it says
that a region begins, nothing is missing and nothing comes again: history is read up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import pytest

import sequencing.subscriber
from sequencing.frames import FrameKind, StampedFrame
from sequencing.joins import View
from sequencing.plan import Atom, AtomId, Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Record
from sequencing.subscriber import Subscriber

REGIONS = "abcd"
STEPS = 400
WORLDS = 300


@dataclass
class Node:
    """It draws the numbers; ``egress``: what it has put out."""

    atoms: tuple[Atom, ...]
    egress: dict[str, list[StampedFrame]] = field(default_factory=lambda: {region: [] for region in REGIONS})
    numbers: dict[int, int] = field(default_factory=dict)
    drawn: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    """(region, last) → atom → number."""

    def publish(self, region: str, kind: FrameKind, publisher: str, body: bytes = b"") -> None:
        last = len(self.egress[region]) + 1
        mine = [int(atom.id) for atom in self.atoms if region in atom.regions]
        self.numbers |= {atom: self.numbers.get(atom, 0) + 1 for atom in mine}
        self.drawn[region, last] = {atom: self.numbers[atom] for atom in mine}
        stamp = ",".join(f"{atom},{self.numbers[atom]}" for atom in mine)
        meta = f"{int(kind)} 1 1 {last} {publisher}"
        self.egress[region].append(StampedFrame(region, 1, last, meta.encode(), stamp.encode(), body))


class World:
    """One run; ``delivered`` has (region, last) of events, in order."""

    def __init__(self, seed: int, leaving: float, kept: int = STEPS) -> None:
        """``kept``: how many frames of each region the node keeps."""
        self.random, self.leaving, self.kept = Random(seed), leaving, kept
        chosen = {
            tuple(sorted(self.random.sample(REGIONS, size))) for size in self.random.choices((2, 2, 3, 3, 4), k=4)
        }
        atoms = (Atom(AtomId(number), regions, "n1") for number, regions in enumerate(sorted(chosen), start=1))
        self.node = Node(tuple(atoms))
        self.subscriber = Subscriber("me", 1)
        self.delivered: list[tuple[str, int]] = []
        self.breaks: list[tuple[str, int, int]] = []
        """(region, after, last) of events that did not follow what came before, or where the region was to begin."""
        self.gaps = 0
        self._reached: dict[str, int] = {}
        self._markers: list[tuple[str, bytes]] = []
        self._news: list[Record] = []
        self._version = 0
        self._paces = {region: self.random.choice((0.1, 0.5, 1.0)) for region in REGIONS}
        self._busy = self.random.choice((0.02, 0.12, 0.3))

    def run(self) -> None:
        for _ in range(STEPS):
            self._step()
        for _ in range(200):  # until all is at rest
            self._announce()
            while self._news:
                self._out(self.subscriber.update(self._news.pop(0)))
            while self._markers:
                self._mark()
            if sum(map(self._read, REGIONS)) == 0 and not self._markers:
                for region in self.subscriber.joined:
                    self._reach(region, len(self.node.egress[region]) + 1)
                return
        raise AssertionError("it never comes to rest")

    def inversions(self) -> list[object]:
        found: list[object] = []
        for one, other in combinations(self.delivered, 2):
            before, after = self.node.drawn[one], self.node.drawn[other]
            if any(before[atom] >= after[atom] for atom in before.keys() & after.keys()):
                found.append((one, before, other, after))
        return found

    def _step(self) -> None:
        me, random = self.subscriber, self.random
        what = random.random()
        if what < 0.05:
            self._out(me.subscribe(random.sample(REGIONS, random.randint(1, 3))))
        elif what < 0.05 + self.leaving and me.wanted:
            self._out(me.unsubscribe(random.sample(sorted(me.wanted), random.randint(1, len(me.wanted)))))
        elif what < 0.12:
            self._announce()
        elif what < 0.25 and self._news:
            self._out(me.update(self._news.pop(0)))
        elif what < 0.45 and self._markers:
            self._mark()
        elif what < 0.45 + self._busy:
            self.node.publish(random.choice(REGIONS), FrameKind.EVENTS, "p")
        elif random.random() < self._paces[region := random.choice(REGIONS)]:
            self._read(region)

    def _announce(self) -> None:
        self._version += 1
        plan = Plan(1, self._version, "acyclic", {"n1": ""}, dict.fromkeys(REGIONS, ("n1",)), self.node.atoms)
        self._news.append(Record(plan, {"me": frozenset(REGIONS)}, {"me": self.subscriber.interest()}))

    def _mark(self) -> None:
        region, body = self._markers.pop(self.random.randrange(len(self._markers)))
        self.node.publish(region, FrameKind.JOIN, "me", body)

    def _read(self, region: str) -> bool:
        read, egress = self.subscriber.reads().get(region), self.node.egress[region]
        if read is None:
            return False
        if read.after is None:
            self._out(self.subscriber.found_ends([(region, 1, egress[-1] if egress else None)]))
            return True
        after = max(read.after, len(egress) - self.kept)
        frames = egress[after : after + self.random.randint(1, 3)]
        self._out(self.subscriber.receive(frames))
        return bool(frames)

    def _out(self, items: Iterable[Ready | Missing]) -> None:
        for item in items:
            if isinstance(item, Missing):
                assert item.last - item.first < len(self.node.egress[item.region]) - self.kept, item
                self._reached[item.region] = item.last
                self.gaps += 1
            elif item.meta.kind == FrameKind.EVENTS:
                self.delivered.append((item.frame.region, item.frame.last))
                self._reach(item.frame.region, item.frame.last)
        self._markers += self.subscriber.marks()
        for region in self._reached.keys() - self.subscriber.wanted:
            del self._reached[region]
        for region in self.subscriber.joined - self._reached.keys():
            _, self._reached[region] = self.subscriber.begin(region)

    def _reach(self, region: str, last: int) -> None:
        after = self._reached.get(region, last - 1)
        between = self.node.egress[region][after : last - 1]
        if last <= after or any(frame.meta.startswith(b"%d " % FrameKind.EVENTS) for frame in between):
            self.breaks.append((region, after, last))
        self._reached[region] = last


def failing(worlds: Iterable[int], *, kept: Sequence[int] = (STEPS,)) -> Iterator[int]:
    """Yield the seeds in whose worlds a promise is broken."""
    for seed in worlds:
        world = World(seed, leaving=(0.0, 0.01, 0.04)[seed % 3], kept=kept[seed % len(kept)])
        world.run()
        if (
            world.inversions()
            or world.breaks
            or world.subscriber.joined != world.subscriber.wanted
            or world.subscriber.held_frames
        ):
            yield seed


@pytest.mark.parametrize("first", range(0, WORLDS, 100))
def test_nothing_is_delivered_the_wrong_way_round_and_all_that_is_wanted_is_joined(first: int) -> None:
    assert list(failing(range(first, first + 100))) == []


@pytest.mark.parametrize("first", range(0, WORLDS, 100))
def test_what_the_node_does_not_keep_is_a_gap_and_nothing_waits_for_it(first: int) -> None:
    assert list(failing(range(first, first + 100), kept=(3, 5, 10, 20))) == []


@pytest.mark.parametrize("kept", [STEPS, 5])
def test_worlds_deliver_and_join(kept: int) -> None:
    worlds = [World(seed, leaving=0.01, kept=kept) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(len(world.delivered) for world in worlds) > 200
    assert any(world.gaps for world in worlds) == (kept < STEPS)


def test_leaving_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencing.subscriber, "staying", lambda *_, **__: set())
    assert any(True for _ in failing(range(3 * WORLDS)))


def test_forgetting_where_a_view_begins_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencing.subscriber, "staying", lambda *_, **__: set())
    monkeypatch.setattr(View, "bringing", lambda *_: set())
    assert any(True for _ in failing(range(WORLDS)))
