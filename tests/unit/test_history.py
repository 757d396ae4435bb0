"""History of an epoch that is being left while it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from adapters.network import Position
from gamecast import history
from gamecast.history import History, Recall
from sequencing.delivery import Missing, Ready
from sequencing.frames import FrameKind, StampedFrame
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Record

OLD = Plan(1, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(1), ("forest",), "a"),))
NEW = Plan(2, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(2), ("forest",), "a"),))


class LateNetwork:
    """Stands for a network whose streams get their frames when it has been asked so often."""

    def __init__(self, frames: Mapping[int, list[StampedFrame]]) -> None:
        """``frames``: after how many reads → which are there."""
        self.reads = 0
        self._frames = frames

    async def plans(self) -> list[Plan]:
        return [OLD, NEW]

    def reader(self, node: str, plan: Plan) -> LateNetwork:
        return self

    async def close(self) -> None:
        pass

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> list[StampedFrame]:
        self.reads += 1
        epoch, last = after["forest"]
        there = [frame for reads, frames in self._frames.items() if reads < self.reads for frame in frames]
        return [frame for frame in there if frame.epoch == epoch and frame.last > last]


def frame(epoch: int, number: int, kind: FrameKind = FrameKind.EVENTS) -> StampedFrame:
    return StampedFrame("forest", epoch, number, b"%d 1 1 %d s" % (kind, number), b"%d,%d" % (epoch, number), b"")


async def replayed(network: Any, record: Record) -> list[Ready | Missing]:
    recall = Recall({"forest": (1, 1)})
    recall.begins["forest"] = 2, 1
    found, read = list[Ready | Missing](), History(network, recall, record)
    while items := await read.next_items():
        found += items
    return found


async def test_what_is_under_way_in_an_epoch_that_is_being_left_is_waited_for() -> None:
    network = LateNetwork({0: [frame(2, 1)], 3: [frame(1, 2)], 6: [frame(1, 3, FrameKind.TICK)]})
    found = await replayed(network, Record(NEW, behind=(OLD,)))
    places = [(item.frame.epoch, item.frame.last) for item in found if isinstance(item, Ready)]
    assert places == [(1, 2), (1, 3), (2, 1)]
    assert len(found) == 3


@pytest.mark.parametrize("behind", [(), (OLD,)])
async def test_an_epoch_that_has_no_end_any_more_is_a_gap(
    behind: tuple[Plan, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "END_S_MAX", 0.1)
    network = LateNetwork({0: [frame(2, 1)]})
    gap, event = await replayed(network, Record(NEW, behind=behind))
    assert gap == Missing("forest", 1, 2, 0)
    assert isinstance(event, Ready)
    assert (network.reads > 2) == bool(behind)
