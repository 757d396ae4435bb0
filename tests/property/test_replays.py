"""History of random streams, of which nodes have lost a part, read in pages of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from sequencing.frames import UNKNOWN_END, FrameKind, StampedFrame
from sequencing.ready import Missing, Ready
from sequencing.replay import Replay

EPOCH = 3
REGIONS = "abc"
ATOMS = {1: "ab", 2: "bc", 3: "abc"}
WORLDS = 600


@dataclass
class World:
    """What passed a node, and what its streams have of it still; ``numbers``: (region, last) → atom → number."""

    random: Random
    streams: dict[str, list[StampedFrame]] = field(default_factory=lambda: {region: [] for region in REGIONS})
    kept: dict[str, list[StampedFrame]] = field(default_factory=dict)
    asked: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    numbers: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)

    def publish(self) -> None:
        random, last, drawn = self.random, dict.fromkeys(REGIONS, 0), dict.fromkeys(ATOMS, 0)
        ends = [(region, FrameKind.TICK) for region in REGIONS]
        events = [(random.choice(REGIONS), FrameKind.EVENTS) for _ in range(random.randint(0, 25))]
        for region, kind in [*events, *random.sample(ends, len(ends))]:
            count = 1 if kind == FrameKind.TICK else random.choice((1, 1, 3))
            last[region] += count
            mine = [atom for atom, regions in ATOMS.items() if region in regions]
            drawn |= {atom: drawn[atom] + 1 for atom in mine}
            self.numbers[region, last[region]] = {atom: drawn[atom] for atom in mine}
            stamp = ",".join(f"{atom},{drawn[atom]}" for atom in mine).encode()
            meta = b"%d %d 1 1 p" % (kind, count)
            self.streams[region].append(StampedFrame(region, EPOCH, last[region], meta, stamp, b""))

    def lose(self) -> None:
        """Lose some frames, their insides, or the end; and ask for all up to the TICK, or for some."""
        random = self.random
        for region, stream in self.streams.items():
            kept = [frame for frame in stream if random.random() > 0.15]
            if kept and random.random() < 0.3:
                place = random.randrange(len(kept))
                kept[place] = kept[place]._replace(stamp=b"not a stamp")
            end, sealed = stream[-1].last, random.random()
            if sealed < 0.2:
                tick = b"%d 1 0 0 " % FrameKind.TICK
                kept = [*(frame for frame in kept if frame.last < end),
                        StampedFrame(region, EPOCH, UNKNOWN_END, tick, b"", b"")]  # fmt: skip
            self.kept[region] = kept
            after = random.choice((0, 0, *(frame.last - random.choice((0, 0, 1)) for frame in stream)))
            later = [frame.last for frame in stream if frame.last >= after]
            self.asked[region] = after, random.choice((None, *later))

    def read(self) -> list[Ready | Missing]:
        """Read all in pages that begin a frame or two early."""
        replay, out = Replay(EPOCH, self.asked), list[Ready | Missing]()
        for _ in range(200):
            wanted = replay.wanted()
            assert bool(wanted) != replay.finished
            if replay.finished:
                assert replay.receive(REGIONS, [frame for kept in self.kept.values() for frame in kept]) == []
                return out
            asked = self.random.sample(sorted(wanted), self.random.randint(1, len(wanted)))
            found: list[StampedFrame] = []
            for region in asked:
                epoch, after = wanted[region]
                assert epoch == EPOCH
                left = [frame for frame in self.kept[region] if frame.last > after]
                again = [frame for frame in self.kept[region] if self.asked[region][0] < frame.last <= after]
                if left:
                    found += [*again[-self.random.randint(1, 2) :], *left[: self.random.randint(1, 4)]]
            out += replay.receive(asked, found)
        raise AssertionError("it never comes to an end")


def world(seed: int) -> World:
    found = World(Random(seed))
    found.publish()
    found.lose()
    return found


@pytest.mark.parametrize("first", range(0, WORLDS, 100))
def test_history_is_told_whole_once_and_in_order_with_gaps_where_something_is_lost(first: int) -> None:
    for seed in range(first, first + 100):
        one = world(seed)
        told = one.read()
        for region, (after, last) in one.asked.items():
            readable = [frame for frame in one.kept[region] if frame.stamp != b"not a stamp" and frame.last > after]
            mine = [
                each for each in told if (each.region if isinstance(each, Missing) else each.frame.region) == region
            ]
            frames = [each.frame for each in mine if isinstance(each, Ready)]
            assert frames == [frame for frame in readable if last is None or frame.last <= last], seed
            assert spans_of(mine) == expected_spans(frames, after, last), (seed, region, mine)
        orders = [one.numbers.get((each.frame.region, each.frame.last), {}) for each in told if isinstance(each, Ready)]
        for atom in ATOMS:
            numbers = [numbers[atom] for numbers in orders if atom in numbers]
            assert all(before < behind for before, behind in pairwise(numbers)), (seed, atom)


def spans_of(items: list[Ready | Missing]) -> list[tuple[str, int, int]]:
    """Return what was told of a region as (what, first, last), in order."""
    return [
        ("missing", item.first, item.last)
        if isinstance(item, Missing)
        else ("frame", item.frame.last - item.meta.events + 1, item.frame.last)
        for item in items
        if not isinstance(item, Missing) or item.epoch == EPOCH
    ]


def expected_spans(frames: list[StampedFrame], after: int, last: int | None) -> list[tuple[str, int, int]]:
    """Return the frames, with a gap wherever the numbers jump; 0 where nobody knows how far it goes."""
    spans: list[tuple[str, int, int]] = []
    for frame in frames:
        first = frame.last - int(frame.meta.split()[1]) + 1
        if first > after + 1:
            spans.append(("missing", after + 1, 0 if frame.last == UNKNOWN_END else first - 1))
        spans.append(("frame", first, frame.last))
        after = frame.last
    ended = bool(frames) and int(frames[-1].meta.split()[0]) == FrameKind.TICK
    if last is not None and after < last:
        spans.append(("missing", after + 1, last))
    elif last is None and not ended:
        spans.append(("missing", after + 1, 0))
    return spans


def test_worlds_lose_something_and_keep_something() -> None:
    told = [each for seed in range(50) for each in world(seed).read()]
    gaps = [each for each in told if isinstance(each, Missing)]
    assert min(len(gaps), len(told) - len(gaps)) > 50
    assert {gap.last == 0 for gap in gaps} == {True, False}
