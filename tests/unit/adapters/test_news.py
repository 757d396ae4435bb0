"""What is announced is told to those of a process whom it concerns, each record once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.redis.announced import Told, announcement, read_entry
from adapters.redis.news import RECORDS_KEPT, News
from adapters.redis.together import Together, Turn
from adapters.redis.view import RedisView
from sequencing.errors import NotConnected, SessionExpired
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from tests.patience import patience

PLAN = Plan(1, 1, "acyclic", {"a": "redis://a"}, {"forest": ("a",)}, (Atom(AtomId(1), ("forest",), "a"),))


def told(before: Record | None, record: Record) -> Told:
    """Return a record as it is announced after another."""
    return read_entry(announcement(before, record, "").news).told_after(before.plan if before is not None else None)


class Announcing:
    """Stands for a control Redis in which the test announces."""

    def __init__(self) -> None:
        self._records: list[Told] = []
        self._more = asyncio.Event()
        self._closed = False
        self.superseded: dict[str, int] = {}
        self._newest: Record | None = None
        self.placed: list[tuple[str, frozenset[str]]] = []
        self.trimmed = 0
        """Up to this version, what was announced is not kept."""

    def announce(self, *records: Record) -> None:
        for record in records:
            self._records.append(told(self._newest, record))
            self._newest = record
        self._more.set()

    async def news(self, after: Plan | None, *, block_ms: int, turn: Any = None, at_box: bool = False) -> list[Told]:
        while True:
            if after is None and self._records:
                return self._records[-1:]
            behind = (after.epoch, after.version) if after is not None else (0, 0)
            if self.trimmed and after is not None and behind < (1, self.trimmed):
                raise SessionExpired
            if records := [each for each in self._records if (each.plan.epoch, each.plan.version) > behind]:
                return records
            if block_ms <= 1 or self._closed:
                return []
            self._more.clear()
            await self._more.wait()

    async def place(self, name: str, connection: int, regions: frozenset[str]) -> None:
        self.placed.append((name, regions))

    born = b"1"

    async def introduce(self, name: str) -> int:
        return 1

    async def ping(self) -> None:
        pass

    async def close(self, *, for_good: bool = False) -> None:
        self._closed = True
        self._more.set()


class World:
    """A process with connections, and a record after the other."""

    def __init__(self) -> None:
        self.control = cast("Any", Announcing())  # as much of a RedisControl as is asked
        self.record = Record(PLAN)
        news = News(self.control)
        self.shared: Any = SimpleNamespace(
            control=self.control, turn=asyncio.Lock(), news=news, url="redis://a", cannot_lead=None, stand_by=int
        )

    async def view(self, name: str) -> RedisView:
        view = RedisView(self.shared, is_alone=False)
        await view.open()
        await view.introduce(name)
        return view

    def of(self, name: str, record: Record) -> Record:
        """Return what a record says of a name."""
        heard = replace(record.heard[name], since={})
        return Record(record.plan, {name: record.members[name]}, {name: heard}, born=frozenset())

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
    assert await here.news(None, block_ms=0) == [replace(world.of("here", first), born=frozenset({"forest"}))]
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
    world.shared.news._offer([told(first, own)])
    world.shared.news._offer([told(own, other)])
    assert await waiting == [world.of("here", own)]


@pytest.mark.parametrize(
    "changed",
    [
        replace(PLAN, epoch=2),
        replace(PLAN, atoms=()),
        replace(PLAN, nodes={"a": "redis://elsewhere"}),
        replace(PLAN, runs={"a": "another run"}),
    ],
)
async def test_a_region_that_moves_and_other_nodes_are_told_to_everybody(world: World, changed: Plan) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    await here.news(None, block_ms=0)
    waiting = asyncio.create_task(here.news(first.plan, block_ms=0))
    await settled()
    world.control.announce(following := world.joined("other", layout=changed))
    assert await waiting == [replace(world.of("here", first), plan=following.plan)]


async def test_the_first_place_of_a_region_is_told_to_those_who_wait_for_it(world: World) -> None:
    world.control.announce(first := world.joined("here"))
    here, publishing, late = [await world.view(name) for name in ("here", "publishing", "late")]
    waiting = []
    for view in (here, publishing, late):
        await view.news(None, block_ms=0)
        waiting.append(asyncio.create_task(view.news(first.plan, block_ms=0)))
    await publishing.place(frozenset({"river"}))
    assert world.control.placed == [("publishing", {"river"})]
    await settled()
    paths = {**PLAN.paths, "river": ("a",)}
    world.control.announce(growing := world.joined("other", layout=replace(PLAN, paths=paths)))
    [record] = await waiting[1]
    assert record.plan == growing.plan
    assert record.born == frozenset({"river"})
    assert not waiting[0].done()
    await late.place(frozenset({"river"}))
    [record] = await waiting[2]
    assert record.plan == growing.plan
    assert len(world.control.placed) == 1, "it has a place already"
    assert not waiting[0].done()
    waiting[0].cancel()


async def test_what_was_read_at_once_is_there_for_those_it_concerns_however_much_it_is(world: World) -> None:
    world.control.announce(first := world.joined("here"))
    here = await world.view("here")
    await here.news(None, block_ms=0)
    waiting = asyncio.create_task(here.news(first.plan, block_ms=0))
    for number in range(3 * RECORDS_KEPT):  # which concern others
        world.control.announce(world.joined(f"other-{number}"))
        await settled()
    world.control.trimmed = 3 * RECORDS_KEPT
    own = world.joined("here")
    world.control.announce(own, *(world.joined(f"late-{number}") for number in range(2 * RECORDS_KEPT)))
    async with patience(5):
        assert await waiting == [world.of("here", own)]


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


async def test_who_waits_for_news_that_are_closed_fails_and_does_not_ask_for_ever() -> None:
    world = World()
    waiting, late = await world.view("waiting"), await world.view("late")
    async with patience(10):
        told = asyncio.create_task(waiting.news(PLAN, block_ms=1))
        await asyncio.sleep(0)
        await world.shared.news.close()
        for asked in (told, late.news(PLAN, block_ms=1)):
            with pytest.raises(NotConnected):
                await asked


async def test_what_is_asked_after_closing_fails_and_opens_no_connection_again() -> None:
    sent: list[int] = []

    async def send(asked: Sequence[int]) -> list[int]:
        sent.extend(asked)
        return [*asked]

    turn = Turn()
    together = Together(send, turn, "numbers")
    assert await together.ask(1) == 1
    await together.close()
    with pytest.raises(NotConnected):
        await together.ask(2)
    async with turn:
        closing = asyncio.create_task(turn.close())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(turn.acquire())
        await asyncio.sleep(0)
    await closing
    for asked in (waiting, turn.acquire()):
        with pytest.raises(NotConnected):
            await asked
    assert sent == [1]
    assert not turn.locked()
