"""What is announced is told to those of a process whom it concerns, each record once and in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.redis.announced import Told, people_between
from adapters.shared.network import RECORDS_KEPT, SharedNews, SharedView
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from tests.patience import patience

PLAN = Plan(1, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(1), ("forest",), "a"),))


class Announcing:
    """Stands for a control Redis in which the test announces."""

    def __init__(self) -> None:
        self._records: list[Told] = []
        self._more = asyncio.Event()
        self._closed = False
        self.superseded: dict[str, int] = {}
        self._newest: Record | None = None

    def announce(self, *records: Record) -> None:
        for record in records:
            people = people_between(self._newest, record)
            self._records.append(Told(record.plan, people=people))
            self._newest = record
        self._more.set()

    async def news(self, after: Plan | None, *, block_ms: int, turn: asyncio.Lock | None = None) -> list[Told]:
        while True:
            if after is None and self._records:
                return self._records[-1:]
            behind = (after.epoch, after.version) if after is not None else (0, 0)
            if records := [each for each in self._records if (each.plan.epoch, each.plan.version) > behind]:
                return records
            if block_ms <= 1 or self._closed:
                return []
            self._more.clear()
            await self._more.wait()

    born = b"1"

    async def introduce(self, name: str) -> int:
        return 1

    async def close(self) -> None:
        self._closed = True
        self._more.set()


class World:
    """A process with connections, and a record after the other."""

    def __init__(self) -> None:
        self.control = cast("Any", Announcing())  # as much of a RedisControl as is asked
        self.record = Record(PLAN)
        news = SharedNews(self.control)
        self.shared: Any = SimpleNamespace(
            control=self.control, turn=asyncio.Lock(), news=news, url="redis://a", cannot_lead=None
        )

    async def view(self, name: str) -> SharedView:
        view = SharedView(self.shared)
        await view.introduce(name)
        return view

    def of(self, name: str, record: Record) -> Record:
        """Return what a record says of a name."""
        return Record(record.plan, {name: record.members[name]}, {name: record.heard[name]})

    def joined(self, name: str, *, layout: Plan | None = None) -> Record:
        """Return the next record, in which somebody has joined."""
        plan = replace(layout or self.record.plan, version=self.record.plan.version + 1)
        heard = {**self.record.heard, name: Interest(1, plan.version, {"forest": plan.version})}
        members = {**self.record.members, name: frozenset({"forest"})}
        self.record = replace(self.record, plan=plan, heard=heard, members=members)
        return self.record


@pytest.fixture
async def world() -> Any:
    world = World()
    yield world
    await world.shared.news.close()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_joins_is_told_and_who_is_there_already_sleeps(world: World) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    assert await here.news(None, block_ms=0) == [world.of("here", first)]
    waiting = asyncio.create_task(here.news(first.plan, block_ms=0))
    for number in range(3 * RECORDS_KEPT):
        world.control.announce(world.joined(f"other-{number}"))
        await settled()
    assert not here.changed.is_set()
    assert not waiting.done()
    world.control.announce(own := world.joined("here"))
    assert await waiting == [world.of("here", own)]


async def test_what_concerns_it_is_not_forgotten_for_what_comes_right_behind(world: World) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    await here.news(None, block_ms=0)
    waiting = asyncio.create_task(here.news(first.plan, block_ms=0))
    await settled()
    own, other = world.joined("here"), world.joined("other")
    here.offer([Told(own.plan, people=people_between(first, own))])
    here.offer([Told(other.plan, people=people_between(own, other))])
    world.control.announce(own, other)
    assert await waiting == [world.of("here", own)]


@pytest.mark.parametrize(
    "changed",
    [
        replace(PLAN, paths={"forest": ("a",), "river": ("a",)}),
        replace(PLAN, nodes={"a": "redis://elsewhere"}),
        replace(PLAN, runs={"a": "another run"}),
    ],
)
async def test_a_new_layout_and_other_nodes_are_told_to_everybody(world: World, changed: Plan) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    await here.news(None, block_ms=0)
    waiting = asyncio.create_task(here.news(first.plan, block_ms=0))
    await settled()
    world.control.announce(told := world.joined("other", layout=changed))
    assert await waiting == [Record(told.plan, {"here": first.members["here"]}, {"here": first.heard["here"]})]


async def test_who_comes_to_look_late_gets_all_that_concerns_it_in_order(world: World) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    await here.news(None, block_ms=0)
    expected = []
    for number in range(3 * RECORDS_KEPT):
        record = world.joined("here" if number % 10 == 0 else f"other-{number}")
        expected += [world.of("here", record)] if number % 10 == 0 else []
        world.control.announce(record)
        await settled()
    found, after = list[Record](), first.plan
    while len(found) < len(expected):
        async with patience(5):
            found += await here.news(after, block_ms=0)
        after = found[-1].plan
    assert found == expected
