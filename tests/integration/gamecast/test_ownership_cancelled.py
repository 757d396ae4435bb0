"""Handovers whose calls are cancelled, whose new owner dies, and whose keys the new region does not take."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gamecast
from gamecast import Authority, Client, Conflict, Receipt, TooManyKeys
from gamecast.client.authority import Owners
from gamecast.client.moving import NOTHING_MOVED, Moved, Mover
from gamecast.client.outgoing import Outgoing
from gamecast.testing import memory_url
from sequencing.keyed import KEYS_MAX, RESERVED_KEYS
from tests.events import next_event
from tests.integration.gamecast.test_ownership import accepted, refused, values_are
from tests.integration.networks import Network
from tests.patience import patience

KINDS = ("memory", "memory-3", "redis-3")


async def cancelled(call: Any) -> None:
    """Cancel a call after it has sent its first event, and before the answer."""
    sent = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        publish = Owners.publish

        async def seen(self: Owners, *arguments: Any) -> Receipt:
            sent.set()
            return await publish(self, *arguments)

        patch.setattr(Owners, "publish", seen)
        task = asyncio.create_task(call)
        await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def handed(one: Client, **arguments: Any) -> Authority:
    """Return an authority that was handed into the river, with a key."""
    mine = await one.authority("forest", "goblin")
    await mine.publish({"hp": 9}, key="goblin")
    await mine.hand_to("other", to="river", state={"hp": 9}, keys={"goblin": {"hp": 8}}, **arguments)
    return mine


async def taken_back(mine: Authority) -> Authority:
    """Take an entity back once a call of another connection that was cancelled has set the handover again."""
    async with patience(10):
        while True:
            back = await mine.take_back()
            if back is not None:
                return back


IN_THE_RIVER: dict[str, dict[str, Any]] = {"forest": {}, "river": {"goblin": {"hp": 8}}}


async def test_after_a_cancelled_acceptance_the_handover_can_be_accepted(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    await handed(one)
    handover = await next_event(other)
    for _ in range(2):
        await cancelled(other.accept(handover))
    theirs = await other.accept(handover)
    assert theirs is not None
    assert theirs.state == {"hp": 9}
    await theirs.publish("here")
    await values_are(network, IN_THE_RIVER)


async def test_after_a_cancelled_acceptance_its_event_comes_again_to_who_accepts_what_it_reads(
    network: Network,
) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    await handed(one)
    await cancelled(other.accept(await next_event(other)))
    theirs = await accepted(other)
    await theirs.publish("here")
    await values_are(network, IN_THE_RIVER)


async def test_after_a_cancelled_acceptance_the_old_owner_can_take_the_entity_back(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    mine = await handed(one)
    await cancelled(other.accept(await next_event(other)))
    back = await taken_back(mine)
    await back.publish("here")
    await values_are(network, IN_THE_RIVER)


async def test_what_was_to_be_taken_back_can_be_taken_back_after_that_was_cancelled(network: Network) -> None:
    one = await network.connect("one")
    mine = await handed(one)
    await cancelled(mine.take_back())
    back = await mine.take_back()
    assert back is not None
    await back.publish("here")
    await values_are(network, IN_THE_RIVER)


async def test_a_cancelled_claim_after_a_handover_sets_it_again(network: Network) -> None:
    one, third = await network.connect("one"), await network.connect("third")
    mine = await handed(one)
    there = (await refused(third.authority("river", "goblin"))).position
    await cancelled(third.authority("river", "goblin", after=there))
    back = await taken_back(mine)
    await back.publish("here")


async def test_a_cancelled_acceptance_leaves_the_entity_to_who_has_taken_it_over(network: Network) -> None:
    one, other, third = [await network.connect(name) for name in ("one", "other", "third")]
    await other.subscribe("river")
    mine = await handed(one)
    handover = await next_event(other)
    taken = await third.authority("river", "goblin", after=handover.position)
    await cancelled(other.accept(handover))
    assert await other.accept(handover) is None
    assert await mine.take_back() is None
    await taken.publish("still here")


async def dies_after_it_accepted(other: Client, deletes: bool = False) -> Authority:
    """Let a server accept, and be killed before it has moved the keys; ``deletes``: after it has set them."""
    with pytest.MonkeyPatch.context() as patch:
        # What a killed process does not do.
        if deletes:
            patch.setattr(Mover, "clear", lambda *_: None)
        else:

            async def unmoved(*_: Any) -> Moved:
                return NOTHING_MOVED

            patch.setattr(Mover, "move", unmoved)
        theirs = await accepted(other)
    await other.close()
    return theirs


@pytest.mark.parametrize("were_set", [False, True])
async def test_who_takes_over_from_a_server_that_died_after_it_accepted_moves_the_keys(
    network: Network, were_set: bool
) -> None:
    one, other, third = [await network.connect(name) for name in ("one", "other", "third")]
    await other.subscribe("river")
    mine = await handed(one)
    await dies_after_it_accepted(other, were_set)
    assert await mine.take_back() is None
    position = (await refused(third.authority("river", "goblin"))).position
    taken = await third.authority("river", "goblin", after=position)
    assert not taken.not_moved
    await values_are(network, IN_THE_RIVER)
    await one.authority("forest", "goblin")


async def test_a_second_takeover_moves_what_the_first_has_left_and_sets_nothing_back(network: Network) -> None:
    one, other, third = [await network.connect(name) for name in ("one", "other", "third")]
    await other.subscribe("river")
    mine = await one.authority("forest", "goblin")
    for key in ("goblin", "track"):
        await mine.publish("old", key=key)
    await mine.hand_to("other", to="river", keys={"goblin": "moved", "track": "moved"})
    dead = await dies_after_it_accepted(other, deletes=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mover, "clear", lambda *_: None)
        second = await third.authority("river", "goblin", after=dead.position)
    await second.publish("newer", key="goblin")
    third_owner = await one.authority("river", "goblin", after=second.position)
    await values_are(network, {"forest": {}, "river": {"goblin": "newer", "track": "moved"}})
    # When all is moved, who comes later sets nothing either.
    await third_owner.publish(None, key="track")
    await one.authority("river", "goblin", after=third_owner.position)
    await values_are(network, {"forest": {}, "river": {"goblin": "newer"}})


async def test_a_claim_moves_nothing_out_of_a_region_because_an_event_of_another_says_so() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="eve") as eve:
        mine = await one.authority("forest", "goblin")
        await mine.publish("mine", key="goblin")
        for moves in (
            {"claim": "c", "from": "forest", "after": "1-1", "keys": {"goblin": 1}},
            {"claim": "c", "from": "river", "after": "1-1", "keys": {"goblin": 1}},
            {"claim": "c", "from": [], "after": "1-1", "keys": {"goblin": 1}},
            {"claim": "c", "from": "forest", "after": 7, "keys": {"goblin": 1}},
            "text",
        ):
            forged = await eve.publish("river", {"owner": "eve", "claim": "d", "moves": moves}, key="owner:goblin")
            async with await one.authority("river", "goblin", after=forged.position) as there:
                await there.publish("here")
        await mine.publish("mine still", key="goblin", only_if={"goblin": (await _position(one, "goblin"))})


async def _position(client: Client, key: str) -> str | None:
    return (await refused(client.publish("forest", "no", key=key, only_if=None))).position


async def test_a_key_that_the_new_region_refuses_stays_in_the_old_one_and_the_authority_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="other") as other:
        await asyncio.gather(
            *(other.publish("river", 1, key=f"x{number}") for number in range(KEYS_MAX - RESERVED_KEYS - 1))
        )
        await other.subscribe("river")
        await handed(one)
        theirs = await accepted(other)
        assert theirs.is_held
        assert isinstance(theirs.not_moved["goblin"], TooManyKeys)
        assert "key 'goblin' of entity 'goblin' stays in region 'forest'" in caplog.text
        assert await _position(one, "goblin") is not None
        # When there is room, who claims after it moves the key.
        await other.publish("river", None, key="x0")
        again = await other.authority("river", "goblin", after=theirs.position)
        assert not again.not_moved
        async with patience(10):
            while True:
                try:
                    await one.publish("forest", "free", key="goblin", only_if=None)
                except Conflict:
                    continue
                break


async def test_more_keys_than_the_buffer_has_room_for_are_moved() -> None:
    url = memory_url()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(gamecast.connect(url, name="one"))
        other = await stack.enter_async_context(
            gamecast.connect(url, name="other", buffer_events_max=8, when_full="refuse")
        )
        await other.subscribe("river")
        mine = await one.authority("forest", "goblin")
        keys = {f"k{number}": number for number in range(30)}
        for key in keys:
            await mine.publish("old", key=key)
        await mine.hand_to("other", to="river", keys=keys)
        theirs = await accepted(other)
        assert not theirs.not_moved
        await theirs.release()  # waits until they are deleted in the forest
        assert [await one.publish("forest", 1, key=key, only_if=None) for key in keys]
        assert [(await refused(one.publish("river", 1, key=key, only_if=None))).key for key in keys] == list(keys)


async def test_no_key_is_deleted_before_it_was_set_in_the_new_region(monkeypatch: pytest.MonkeyPatch) -> None:
    url = memory_url()
    order: list[tuple[str, bool]] = []
    publish = Outgoing.publish

    async def seen(self: Outgoing, region: str, payload: Any, about: Any = None) -> Receipt:
        receipt = await publish(self, region, payload, about)
        if about.key == "goblin":
            order.append((region, payload is None))
        return receipt

    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="other") as other:
        await other.subscribe("river")
        await handed(one)
        monkeypatch.setattr(Outgoing, "publish", seen)
        await (await accepted(other)).release()
    assert order == [("river", False), ("forest", True)]


@pytest.mark.parametrize("target", ["river", None])
async def test_what_was_handed_over_by_a_call_that_was_cancelled_is_taken_back(
    network: Network, target: str | None
) -> None:
    one = await network.connect("one")
    mine = await one.authority("forest", "goblin")
    await cancelled(mine.hand_to("a-ghost", to=target, state={"hp": 9}))
    back = await mine.take_back()
    assert back is not None
    assert (back.region, back.state) == (target or "forest", {"hp": 9})
    assert not mine.is_held
    await back.publish("here")
    assert await mine.take_back() is None


async def test_a_handover_that_was_refused_leaves_the_entity_with_its_owner() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="other") as other:
        await other.authority("river", "goblin")
        mine = await one.authority("forest", "goblin")
        await cancelled(mine.hand_to("a-ghost", to="river"))
        assert await mine.take_back() is mine
        await mine.publish("here")
        await other.authority("forest", "goblin", after=mine.position)
        await refused(mine.hand_to("a-ghost"))
        assert await mine.take_back() is None


async def test_an_owner_whose_handover_was_cancelled_releases_what_it_still_has(network: Network) -> None:
    one = await network.connect("one")
    mine = await one.authority("forest", "goblin")
    await cancelled(mine.hand_to("a-ghost", to="river"))
    await mine.release()
    assert not mine.is_held
    back = await mine.take_back()
    assert back is not None
    await back.release()
    await one.authority("river", "goblin")


async def test_a_claim_that_is_as_large_as_can_be_is_made_without_what_is_to_be_moved() -> None:
    url = memory_url()
    limit = 2_000
    async with gamecast.connect(url, name="one", payload_bytes_max=limit) as one:
        await one.subscribe("river")
        for spare in range(60, 200):
            mine = await one.authority("forest", "e")
            try:
                await mine.hand_to("one", to="river", keys={"k": "x" * (limit - spare)})
            except gamecast.PayloadTooLarge:
                await mine.release()
                continue
            theirs = await accepted(one)
            await theirs.release()
            assert (await refused(one.publish("river", 1, key="k", only_if=None))).key == "k"
            return
    pytest.fail("no value was small enough")
