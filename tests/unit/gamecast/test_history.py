"""History of an epoch that is being left while it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

import pytest

from adapters.places import Position
from gamecast.client import history, regionhistory
from gamecast.client.history import History, Recall
from gamecast.client.regionhistory import RegionHistory
from gamecast.event import Event
from sequencing.cut import ReadResult
from sequencing.errors import NetworkError, UnknownPosition, Unreachable
from sequencing.frames import UNKNOWN_END, FrameKind, StampedFrame, encode_json_body
from sequencing.plan import Atom, AtomId, Plan
from sequencing.ready import Missing, Ready
from tests.patience import patience

OLD = Plan(1, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(1), ("forest",), "a"),))
NEW = Plan(2, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(2), ("forest",), "a"),))


class LateNetwork:
    """Stands for a network whose streams get their frames when it has been asked so often."""

    def __init__(
        self,
        frames: Mapping[int, list[StampedFrame]],
        *,
        ending: bool = True,
        ended: bool = False,
        plans: Sequence[Plan] = (OLD, NEW),
    ) -> None:
        """``frames``: after how many reads → which are there; ``ending``: whether the old epoch is being left.

        ``ended``: whether the newest frames of streams are TICKs.
        """
        self._plans = plans
        self._kind = FrameKind.TICK if ended else FrameKind.EVENTS
        self.reads = 0
        self.is_ending = ending
        self._frames = frames

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        return [*self._plans]

    def newest_plan(self) -> Plan:
        return NEW

    async def latest_plan(self) -> Plan | None:
        return NEW

    async def ending(self) -> frozenset[tuple[str, int]]:
        return frozenset({("forest", 1)} if self.is_ending else ())

    def reader(self, node: str, plan: Plan) -> LateNetwork:
        return self

    def follow(self, plan: Plan) -> None:
        pass

    async def close(self) -> None:
        pass

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        return [frame(epoch, 9, self._kind) for _, epoch in streams]

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> ReadResult:
        self.reads += 1
        epoch, last = after["forest"]
        there = [frame for reads, frames in self._frames.items() if reads < self.reads for frame in frames]
        return ReadResult([frame for frame in there if frame.epoch == epoch and frame.last > last], {"forest": epoch})


def frame(epoch: int, number: int, kind: FrameKind = FrameKind.EVENTS) -> StampedFrame:
    return StampedFrame(
        "forest",
        epoch,
        number,
        b"%d 1 1 %d s" % (kind, number),
        b"%d,%d" % (epoch, number),
        encode_json_body([1], [b"1"]),
    )


async def replayed(network: Any, ending: Callable[[], AbstractSet[tuple[str, int]]]) -> list[Ready | Missing]:
    recall = Recall({"forest": (1, 1)})
    recall.begins["forest"] = 2, 1
    found, read = list[Ready | Missing](), History(network, recall, network.newest_plan, ending)
    while items := await read.next_items():
        found += items
    return found


async def test_what_is_under_way_in_an_epoch_that_is_being_left_is_waited_for() -> None:
    network = LateNetwork({0: [frame(2, 1)], 3: [frame(1, 2)], 6: [frame(1, 3, FrameKind.TICK)]})
    found = await replayed(network, lambda: {("forest", 1)})
    places = [(item.frame.epoch, item.frame.last) for item in found if isinstance(item, Ready)]
    assert places == [(1, 2), (1, 3), (2, 1)]
    assert len(found) == 3


async def test_what_came_just_before_an_epoch_had_been_left_is_found() -> None:
    network = LateNetwork({0: [frame(2, 1)], 3: [frame(1, 2), frame(1, 3, FrameKind.TICK)]})
    # As soon as it is there to be read, it counts as left.
    found = await replayed(network, lambda: {("forest", 1)} if network.reads < 3 else set())
    assert [item.frame.last for item in found if isinstance(item, Ready)] == [2, 3, 1]
    assert len(found) == 3


@pytest.mark.parametrize("since", [(0, 7), (2, 7), (3, 7)])
async def test_a_position_of_an_epoch_that_the_region_never_had_is_refused(since: Position) -> None:
    recall = Recall({"forest": since})
    recall.begins["forest"] = 4, 1
    plans = [replace(OLD, epoch=epoch) for epoch in (1, 4)]
    network = LateNetwork({0: [frame(1, 9, FrameKind.TICK)]}, plans=plans)
    with pytest.raises(UnknownPosition):
        await History(cast(Any, network), recall, lambda: plans[-1], set).admit()


async def test_a_position_behind_the_end_of_an_old_epoch_is_refused_and_that_of_its_end_is_not() -> None:
    for number, is_given in ((9, True), (10, False)):
        recall = Recall({"forest": (1, number)})
        recall.begins["forest"] = 2, 1
        network = LateNetwork({0: [frame(1, 9, FrameKind.TICK)]}, ended=True)
        history = History(cast(Any, network), recall, network.newest_plan, set)
        if is_given:
            await history.admit()
        else:
            with pytest.raises(UnknownPosition, match="1-10, its newest is 1-9"):
                await history.admit()


async def test_an_epoch_that_was_left_without_an_end_is_a_gap() -> None:
    network = LateNetwork({0: [frame(2, 1)]})
    gap, event = await replayed(network, set)
    assert gap == Missing("forest", 1, 2, 0)
    assert isinstance(event, Ready)
    assert network.reads == 2


async def test_an_epoch_whose_end_is_too_late_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LATE_S_MAX", 0.1)
    network = LateNetwork({0: [frame(2, 1)]})
    gap, event = await replayed(network, lambda: {("forest", 1)})
    assert gap == Missing("forest", 1, 2, 0)
    assert isinstance(event, Ready)
    assert network.reads > 2


class RestartedNetwork(LateNetwork):
    """Its node may lose something, and is in another run at each of the first reads than the newest plan says."""

    run = ""

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        return [replace(OLD, runs={"a": "1"}), self.newest_plan()]

    async def latest_plan(self) -> Plan | None:
        return self.newest_plan()

    def newest_plan(self) -> Plan:
        return replace(NEW, runs={"a": str(self.reads)})

    def reader(self, node: str, plan: Plan) -> LateNetwork:
        self.follow(plan)
        return self

    def follow(self, plan: Plan) -> None:
        self.run = plan.runs["a"]

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> ReadResult:
        self.reads = min(self.reads + 1, 3)
        if self.run != "3":
            raise Unreachable("the server has restarted, and no plan names its new run yet")
        return await super().read(after, frames_max=frames_max, block_ms=block_ms)


async def test_an_old_epoch_is_read_in_the_run_that_the_newest_plan_means() -> None:
    network = RestartedNetwork({0: [frame(1, 2), frame(1, UNKNOWN_END, FrameKind.TICK), frame(2, 1)]})
    async with patience(5):
        found = await replayed(network, set)
    assert [item for item in found if isinstance(item, Missing)] == [found[1]] == [Missing("forest", 1, 3, 0)]
    places = [(item.frame.epoch, item.frame.last) for item in found if isinstance(item, Ready)]
    assert places == [(1, 2), (1, UNKNOWN_END), (2, 1)]


async def test_pages_of_an_old_epoch_are_read_in_the_run_that_the_newest_plan_means() -> None:
    network = RestartedNetwork({0: [frame(1, 2), frame(1, UNKNOWN_END, FrameKind.TICK), frame(2, 1)]})
    network.reads = 3
    assert await pages(network, "1-1") == ["1-2", "[1: 3-0]", "2-1"]


async def test_plans_that_cannot_be_read_just_now_are_asked_for_again() -> None:
    class Faltering(LateNetwork):
        failures = 2

        async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
            self.failures -= 1
            if self.failures >= 0:
                raise NetworkError("the record was replaced while it was being read")
            return await super().plans(regions, after)

    network = Faltering({0: [frame(1, 2), frame(1, 3, FrameKind.TICK), frame(2, 1)]})
    assert len(await replayed(network, set)) == 3


def told(items: Iterable[Any]) -> list[str]:
    """Events by their positions, and gaps in brackets."""
    return [e.position if isinstance(e, Event) else f"[{e.epoch}: {e.first_sequence}-{e.last_sequence}]" for e in items]


async def pages(network: Any, after: str, *, events_max: int = 10) -> list[str]:
    """Return what pages have from a position on, to the last."""
    read, found, more = RegionHistory(network), list[str](), True
    while more:
        page = await read.page("forest", after=after, events_max=events_max)
        found += told(page.items)
        after, more = page.next, page.more
    return found


@pytest.mark.parametrize("events_max", [1, 10])
async def test_pages_wait_for_what_is_under_way_in_an_epoch_that_is_being_left(events_max: int) -> None:
    network = LateNetwork({0: [frame(1, 2), frame(2, 1)], 3: [frame(1, 3)], 6: [frame(1, 4, FrameKind.TICK)]})
    assert await pages(network, "1-1", events_max=events_max) == ["1-2", "1-3", "2-1"]


class ChangingNetwork(LateNetwork):
    """Announces the new plan when it has been asked for plans so often."""

    def __init__(self, frames: Mapping[int, list[StampedFrame]], *, announced_after: int) -> None:
        super().__init__(frames)
        self._old_answers = announced_after

    def is_announced(self) -> bool:
        self._old_answers -= 1
        return self._old_answers < 0

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        return [OLD, NEW] if self.is_announced() else [OLD]

    async def latest_plan(self) -> Plan | None:
        return NEW if self.is_announced() else OLD

    async def ending(self) -> frozenset[tuple[str, int]]:
        return await super().ending() if self.is_announced() else frozenset()


@pytest.mark.parametrize("announced_after", range(5))
@pytest.mark.parametrize("after", ["0-0", "1-0"])
async def test_pages_have_what_is_under_way_when_a_new_epoch_is_announced_meanwhile(
    after: str, announced_after: int
) -> None:
    under_way = [frame(1, 3), frame(1, 4, FrameKind.TICK)]
    network = ChangingNetwork(
        {0: [frame(1, 1), frame(1, 2), frame(2, 1)], 6: under_way}, announced_after=announced_after
    )
    read, found = RegionHistory(cast(Any, network)), list[str]()
    while "2-1" not in found:
        page = await read.page("forest", after=after, events_max=10)
        after = page.next
        found += told(page.items)
    assert found == ["1-1", "1-2", "1-3", "2-1"]


@pytest.mark.parametrize("ending", [False, True])
async def test_pages_have_what_comes_with_the_end_of_an_epoch_while_that_is_looked_for(ending: bool) -> None:
    last = [frame(1, 3), frame(1, 4, FrameKind.TICK)]
    network = LateNetwork({0: [frame(1, 1), frame(1, 2), frame(2, 1)], 2: last}, ending=ending)
    assert await pages(network, "1-0") == ["1-1", "1-2", "1-3", "2-1"]


@pytest.mark.parametrize("after", ["0-0", "1-1", "1-2", "1-3"])
async def test_pages_do_not_wait_behind_the_end_of_an_epoch(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regionhistory, "END_S_MAX", 60.0)
    network = LateNetwork({0: [frame(1, 1), frame(1, 2), frame(1, 3, FrameKind.TICK), frame(2, 1)]})
    expected = ["1-1", "1-2", "2-1"]
    assert await pages(network, after) == expected[min(2, int(after[-1])) :]


@pytest.mark.parametrize(("after", "gap"), [("1-1", ["[1: 2-0]"]), ("0-0", [])])
async def test_pages_of_an_epoch_that_has_no_end_any_more_have_a_gap(after: str, gap: list[str]) -> None:
    network = LateNetwork({0: [frame(2, 1)]}, ending=False)
    assert await pages(network, after) == [*gap, "2-1"]
    assert network.reads <= 5


@pytest.mark.parametrize("after", ["0-0", "1-1"])
async def test_pages_end_in_an_epoch_whose_end_is_late_and_go_on_when_it_has_come(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regionhistory, "END_S_MAX", 0.1)
    under_way = [frame(1, 1), frame(1, 2), frame(1, 3, FrameKind.TICK)]
    network = LateNetwork({0: [frame(2, 1)], 100: under_way})
    read = RegionHistory(cast(Any, network))
    for reads_max in (100, 5):
        network.reads = 0
        page = await read.page("forest", after=after, events_max=10)
        assert (page.items, page.more, page.is_late) == ([], False, True)
        assert page.next == f"1-{after[-1]}"
        assert network.reads <= reads_max, "what was waited for in vain is not waited for again"
        after = page.next
    network.reads = 100
    page = await read.page("forest", after=after, events_max=10)
    assert told(page.items) == ["1-1", "1-2", "2-1"][int(after[-1]) :]
    assert (page.more, page.is_late) == (False, False)


@pytest.mark.parametrize(("after", "gap"), [("1-1", "[1: 2-0]"), ("0-0", "[1: 1-0]")])
async def test_pages_of_an_epoch_whose_end_never_comes_have_a_gap_some_time(
    after: str, gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regionhistory, "END_S_MAX", 0.1)
    read = RegionHistory(cast(Any, LateNetwork({0: [frame(2, 1)]})))
    assert (await read.page("forest", after=after, events_max=10)).is_late
    monkeypatch.setattr(regionhistory, "LATE_S_MAX", 0.1)
    assert told((await read.page("forest", after=after, events_max=10)).items) == [gap, "2-1"]


async def test_a_page_of_what_has_come_says_that_the_end_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regionhistory, "END_S_MAX", 0.1)
    read = RegionHistory(cast(Any, LateNetwork({0: [frame(1, 2), frame(2, 1)]})))
    page = await read.page("forest", after="1-1", events_max=10)
    assert (told(page.items), page.next, page.more, page.is_late) == (["1-2"], "1-2", True, False)
    await read.page("forest", after="1-2", events_max=10)
    page = await read.page("forest", after="1-1", events_max=10)
    assert (told(page.items), page.next, page.more, page.is_late) == (["1-2"], "1-2", False, True)
