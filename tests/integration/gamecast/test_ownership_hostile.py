"""Ownership where others publish what looks like it, and where servers die around an acceptance."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

import gamecast
from examples.arena.keepers import OGRE, Keeper
from examples.arena.world import REGIONS
from gamecast import BufferFull, PublishUncertain, Receipt, State
from gamecast.client.authority import Owners
from gamecast.client.moving import Mover
from gamecast.testing import memory_url
from tests.events import next_event, take
from tests.integration.gamecast.test_ownership import accepted, refused
from tests.integration.networks import Network
from tests.patience import patience, until

KINDS = ("memory", "memory-3", "redis-3")


HANDED = {"owner": "srv", "claim": "c", "from": "forest", "to": "forest", "state": None}
JUNK: list[tuple[str, Any]] = [
    ("owner:z", HANDED | {"to": []}),
    ("owner:z", HANDED | {"to": {}, "from": None}),
    ("owner:z", HANDED | {"to": "elsewhere"}),
    ("owner:z", HANDED | {"owner": ["srv"]}),
    ("owner:z", "text"),
    ("owner:z", [HANDED]),
    ("owner:", HANDED),
    ("owner: ", HANDED),
    ("owner:" + "x" * 194, HANDED | {"claim": 7}),
]


async def test_what_only_looks_like_a_handover_is_none() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="srv") as server, gamecast.connect(url, name="other") as other:
        await server.subscribe("forest")
        for key, payload in JUNK:
            await other.publish("forest", payload, key=key)
        for event in await take(server, len(JUNK)):
            assert await server.accept(event) is None


async def test_an_event_cannot_say_that_an_entity_has_left_a_region_that_it_is_not_in(network: Network) -> None:
    """Who may publish in the forest only takes nothing away from the river."""
    owner, server, other = [await network.connect(name) for name in ("owner", "srv", "other")]
    await server.subscribe("forest")
    await other.subscribe("river")
    mine = await owner.authority("forest", "troll")
    await mine.hand_to("other", to="river")
    handover = await next_event(other)
    claim = handover.payload["claim"]
    theirs = await other.accept(handover)
    assert theirs is not None
    forged = HANDED | {"claim": claim, "from": "river"}
    await owner.publish("forest", forged, key="owner:troll")
    await accepted(server)
    for _ in range(3):
        await asyncio.sleep(0.1)
        await theirs.publish("still here")


async def test_accepting_waits_for_no_region_that_an_event_names() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="srv") as server, gamecast.connect(url, name="other") as other:
        await server.subscribe("forest")
        clock = asyncio.get_running_loop().time
        for number in range(40):
            await other.publish("forest", HANDED | {"from": f"nowhere-{number}"}, key=f"owner:e{number}")
        begun = clock()
        for event in await take(server, 40):
            assert await server.accept(event) is not None
        assert clock() - begun < 2.0 * 10  # one after the other, each look would take 2 s
        assert len(server._clearing) <= 16
    assert not server._clearing or all(task.cancelled() or task.done() for task in server._clearing)


async def test_what_an_entity_left_behind_is_no_hindrance_when_it_comes_back(network: Network) -> None:
    """The new owner dies just after it has accepted, before it has deleted the key in the region that was left."""
    one, third = await network.connect("one"), await network.connect("third")
    dying = await network.connect("dying")
    await dying.subscribe("river", "forest")
    await third.subscribe("river")
    mine = await one.authority("forest", "goblin")
    await mine.hand_to("dying", to="river")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mover, "clear", lambda *_: None)
        theirs = await accepted(dying)
    await dying.close()
    taken = await third.authority("river", "goblin", after=theirs.position)
    await one.subscribe("forest")
    await taken.hand_to("one", to="forest", state={"hp": 3})
    back = await accepted(one)
    await back.publish("home")
    # Somebody who owns one there is not run over.
    await (await third.authority("river", "goblin", after=None)).release()
    again = await third.authority("river", "goblin")
    conflict = await refused(again.hand_to("one", to="forest"))
    assert (conflict.region, conflict.position) == ("forest", back.position)
    assert again.is_held
    # Unless its position is given.
    await again.hand_to("one", to="forest", after=back.position)
    await refused(back.publish("late"))


async def test_after_names_a_position_in_the_other_region() -> None:
    async with gamecast.connect(memory_url(), name="one") as one:
        mine = await one.authority("forest", "goblin")
        for wrong in ({"after": "1-1"}, {"after": "1-1", "to": "forest"}, {"after": 7, "to": "river"}):
            with pytest.raises(gamecast.UsageError, match="another region"):
                await mine.hand_to("one", **wrong)
        assert mine.is_held


async def test_a_claim_whose_answer_was_lost_and_that_another_has_taken_over_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = Owners.publish
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="other") as other:

        async def lossy(
            self: Owners, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
        ) -> Receipt:
            monkeypatch.setattr(Owners, "publish", publish)
            receipt = await publish(self, regions, payload, key, only_if)
            await other.authority("forest", "goblin", after=receipt.position)
            raise PublishUncertain

        monkeypatch.setattr(Owners, "publish", lossy)
        with pytest.raises(PublishUncertain, match="set by another by now"):
            await one.authority("forest", "goblin")


async def test_a_release_that_failed_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="other") as other:
        mine = await one.authority("forest", "goblin")

        async def full(self: Owners, *_: Any) -> Receipt:
            raise BufferFull

        with monkeypatch.context() as patch:
            patch.setattr(Owners, "publish", full)
            with pytest.raises(BufferFull):
                await mine.release()
        assert mine.is_held
        await refused(other.authority("forest", "goblin"))
        await mine.release()
        await other.authority("forest", "goblin")


@pytest.mark.parametrize("names", [("a", "b"), ("forest", "river")])
async def test_every_state_that_can_be_handed_over_can_be_accepted(names: tuple[str, str]) -> None:
    here, there = names
    url = memory_url()
    limit = 2_000
    async with gamecast.connect(url, name="one", payload_bytes_max=limit) as one:
        await one.subscribe(there)
        for spare in range(60, 160):
            mine = await one.authority(here, "e")
            try:
                await mine.hand_to("one", to=there, state="x" * (limit - spare))
            except gamecast.PayloadTooLarge:
                await mine.release()
                continue
            theirs = await accepted(one)
            assert len(theirs.state) == limit - spare
            return
    pytest.fail("no state was small enough")


async def test_an_acceptance_shows_the_state_to_who_comes_later() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="late") as late:
        await one.subscribe("river")
        await (await one.authority("forest", "goblin")).hand_to("one", to="river", state={"hp": 3})
        await accepted(one)
        await late.subscribe("river", state=True)
        state = await anext(late)
        assert isinstance(state, State)
        assert state.values["river"]["owner:goblin"].payload["state"] == {"hp": 3}


async def watching(url: str, *names: str) -> list[Keeper]:
    keepers = [Keeper(name, partial(gamecast.connect, url, name=name), frozenset(REGIONS)) for name in names]
    for keeper in keepers:
        await keeper.start()
    return keepers


@pytest.mark.parametrize("stalls", ["before it accepts", "after it has accepted"])
async def test_the_ogre_walks_on_when_its_new_keeper_dies_around_the_acceptance(stalls: str) -> None:
    url = memory_url()
    first, second = await watching(url, "keeper-a", "keeper-b")
    try:
        await first.create()
        accept, reached = second._client.accept, asyncio.Event()

        async def stalled(event: object) -> Any:
            if stalls == "before it accepts" and getattr(event, "payload", None) and "to" in event.payload:  # type: ignore[attr-defined]
                reached.set()
                await asyncio.Event().wait()
            mine = await accept(event)
            if mine is not None:
                reached.set()
                await asyncio.Event().wait()
            return mine

        second._client.accept = stalled  # type: ignore[method-assign]
        async with patience(30):
            await reached.wait()
        await second.stop()
        legs = set()

        def walks_on() -> bool:
            if first.seen is not None and first.seen["by"] == "keeper-a" and first.owns:
                legs.add(first.seen["leg"])
            return len(legs) >= 3

        await until(walks_on)
    finally:
        for keeper in (first, second):
            if keeper.runs:
                await keeper.stop()


async def test_the_ogre_walks_on_whatever_a_visitor_publishes() -> None:
    url = memory_url()
    [keeper] = await watching(url, "keeper-a")
    try:
        await keeper.create()
        junk = ({"do": OGRE}, {"do": OGRE, "leg": "x"}, HANDED | {"owner": "keeper-a"}, "text", None)
        async with gamecast.share(url) as shared, shared.guest("~eve", when_behind="skip", inbox_events_max=100) as eve:
            for payload in junk:
                for region in REGIONS:
                    await eve.publish(region, payload)
                    if payload is not None:
                        await eve.publish(region, payload, key="owner:another")
        seen = keeper.seen
        await until(lambda: keeper.seen is not None and keeper.seen != seen)
    finally:
        await keeper.stop()
