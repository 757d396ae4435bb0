"""Ownership: one connection publishes for an entity, wherever it walks, and a paused owner is refused."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from itertools import count
from random import Random
from typing import Any

import pytest
import redis.asyncio

import gamecast
from gamecast import Authority, Client, Conflict, Event, NotTogether, PublishUncertain, Receipt, State
from gamecast.client import authority
from gamecast.client.authority import Owners
from gamecast.testing import faults, memory_url
from tests.events import next_event, take
from tests.integration.networks import Network
from tests.ownership_worlds import World, offences
from tests.patience import patience


async def accepted(client: Client) -> Authority:
    """Return the authority of the next handover to a client."""
    async with patience(20):
        while True:
            mine = await client.accept(await anext(client))
            if mine is not None:
                return mine


async def refused(call: Awaitable[Any]) -> Conflict:
    with pytest.raises(Conflict) as caught:
        await call
    return caught.value


async def test_an_entity_walks_into_the_region_of_another_server(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await one.subscribe("forest")
    await other.subscribe("river")
    async with await one.authority("forest", "goblin") as mine:
        with pytest.raises(Conflict) as taken:
            await other.authority("forest", "goblin")
        assert taken.value.position == mine.position
        await mine.publish({"hit": 1}, key="goblin", only_if=None)
        with pytest.raises(Conflict) as own:
            await mine.publish({"hit": 2}, key="goblin", only_if=None)
        assert own.value.key == "goblin"
        assert mine.is_held
        handed = await mine.hand_to("other", to="river", state={"hp": 3})
        assert handed.positions.keys() == {"forest", "river"}
        assert not mine.is_held
        with pytest.raises(Conflict, match="handed to 'other'"):
            await mine.publish({"hit": 3})
    handover = await next_event(other)
    assert await one.accept(handover) is None
    async with await other.accept(handover) or mine as theirs:
        assert (theirs.region, theirs.entity, theirs.state) == ("river", "goblin", {"hp": 3})
        assert await other.accept(handover) is None
        await theirs.publish("splash")
    claim, splash, release = await take(other, 3)
    assert (claim.key, claim.position) == ("owner:goblin", theirs.position)
    assert (splash.payload, release.payload) == ("splash", None)
    told = await take(one, 4)
    assert [(event.key, event.payload is None) for event in told] == [
        ("owner:goblin", False),
        ("goblin", False),
        ("owner:goblin", False),
        ("owner:goblin", True),
    ]
    assert [event.position for event in told[2:3]] == [handed.positions["forest"]]
    await one.authority("forest", "goblin")


async def test_a_paused_owner_is_refused_and_its_context_ends_with_that(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    mine = await one.authority("forest", "goblin")
    theirs = await other.authority("forest", "goblin", after=mine.position)

    async def act() -> None:
        async with mine:
            await mine.publish("late")

    assert (await refused(act())).position == theirs.position
    with pytest.raises(Conflict):
        await other.authority("forest", "goblin", after=mine.position)
    await theirs.publish("mine")
    await mine.release()
    with pytest.raises(ValueError, match="the game's own"):
        async with theirs:
            raise ValueError("the game's own")
    await one.authority("forest", "goblin")


async def test_an_owner_takes_its_entity_along_and_back(network: Network) -> None:
    one = await network.connect("one")
    await one.subscribe("forest", "river")
    mine = await one.authority("forest", "goblin")
    for region in ("river", "forest", "forest", "river"):
        await mine.hand_to("one", to=region, state=region)
        mine = await accepted(one)
        assert (mine.region, mine.state) == (region, region)
        await mine.publish("here")
    other = await one.authority("forest", "goblin")
    with pytest.raises(Conflict) as taken:
        await mine.hand_to("one", to="forest")
    assert (taken.value.region, taken.value.position) == ("forest", other.position)
    assert mine.is_held
    await mine.publish("still here")


async def test_who_was_away_accepts_from_the_state_once(network: Network) -> None:
    one = await network.connect("one")
    await (await one.authority("forest", "goblin")).hand_to("away", to="river", state={"hp": 1})
    away = await network.connect("away")
    await away.subscribe("river", state=True)
    [state] = await away.fetch(1, timeout=5)
    assert isinstance(state, State)
    event = state.values["river"]["owner:goblin"]
    mine, second = await asyncio.gather(away.accept(event), away.accept(event))
    held = mine or second
    assert held is not None
    assert (mine is None) != (second is None)
    await held.publish("here")
    async with patience(10):
        while True:  # the key in the forest is deleted
            with suppress(Conflict):
                await one.authority("forest", "goblin")
                break


async def test_an_authority_ends_with_its_connection(network: Network) -> None:
    _, one = await network.connect("stays"), await network.connect("one")
    mine = await one.authority("forest", "goblin")
    await one.reconnect()
    with pytest.raises(gamecast.NotConnected):
        await mine.publish("late")
    again = await one.authority("forest", "goblin", after=mine.position)
    await again.publish("here")


async def test_in_causal_order_an_entity_stays_in_its_region() -> None:
    async with gamecast.connect(memory_url(), name="one", ordering="causal") as one:
        await one.subscribe("forest", "river")
        async with await one.authority("forest", "goblin") as mine:
            with pytest.raises(NotTogether):
                await mine.hand_to("one", to="river")
            await mine.hand_to("one")
            assert (await accepted(one)).region == "forest"


async def test_what_cannot_be_is_refused_before_anything_is_sent() -> None:
    async with gamecast.connect(memory_url(), name="one") as one:
        for entity in ("", "new\nline", 7):
            with pytest.raises(gamecast.InvalidName):
                await one.authority("forest", entity)  # type: ignore[arg-type]
        with pytest.raises(gamecast.UsageError, match="after is the position"):
            await one.authority("forest", "goblin", after=7)  # type: ignore[arg-type]
        mine = await one.authority("forest", "goblin")
        with pytest.raises(gamecast.UsageError, match="who owns"):
            await mine.publish(1, key="owner:goblin")
        with pytest.raises(gamecast.UsageError, match="who owns"):
            await mine.publish(1, only_if={"owner:goblin": None})
        with pytest.raises(gamecast.InvalidName):
            await mine.hand_to("")
        assert await one.accept("no event") is None


@pytest.mark.parametrize("was_published", [True, False])
@pytest.mark.parametrize("kind", ["memory", "memory-3", "redis", "redis-3"])
async def test_after_a_lost_answer_each_step_is_done_once(
    monkeypatch: pytest.MonkeyPatch, kind: str, was_published: bool
) -> None:
    publish, losing = Owners.publish, [0]

    async def lossy(
        self: Owners, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
    ) -> Receipt:
        losing[0] += 1
        if losing[0] % 2 == 0:
            return await publish(self, regions, payload, key, only_if)
        if was_published:
            await publish(self, regions, payload, key, only_if)
        raise PublishUncertain

    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        one, other = await network.connect("one"), await network.connect("other")
        await one.subscribe("forest", "river")
        await other.subscribe("forest", "river")
        monkeypatch.setattr(Owners, "publish", lossy)
        mine = await one.authority("forest", "goblin")
        await mine.hand_to("other", to="river")
        theirs = await accepted(other)
        await theirs.release()
        events = await take(one, 5)
        assert sorted(event.regions for event in events) == [
            *[("forest",)] * 2,
            ("forest", "river"),
            *[("river",)] * 2,
        ]
        assert {mine.position, theirs.position} <= {event.position for event in events}


async def test_a_handover_that_others_went_on_from_before_its_answer_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish = Owners.publish
    async with gamecast.connect(memory_url(), name="one") as one:
        mine = await one.authority("forest", "goblin")

        async def lossy(
            self: Owners, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
        ) -> Receipt:
            monkeypatch.setattr(Owners, "publish", publish)
            handed = await publish(self, regions, payload, key, only_if)
            await one.authority("forest", "goblin", after=handed.position)
            raise PublishUncertain

        monkeypatch.setattr(Owners, "publish", lossy)
        with pytest.raises(PublishUncertain, match="has another owner by now"):
            await mine.hand_to("other", to="river")
        assert not mine.is_held
        with pytest.raises(Conflict):
            await mine.publish("late")


async def test_where_no_node_can_tell_a_lost_answer_stays_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = Owners.publish

    async def lossy(
        self: Owners, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
    ) -> Receipt:
        await publish(self, regions, payload, key, only_if)
        raise PublishUncertain

    async def untold(self: Owners, region: str, key: str, claim: str) -> str | None:
        raise gamecast.Unreachable

    async with gamecast.connect(memory_url(), name="one") as one:
        await one.subscribe("forest")
        monkeypatch.setattr(Owners, "publish", lossy)
        monkeypatch.setattr(Owners, "_position_of", untold)
        with pytest.raises(PublishUncertain):
            await one.authority("forest", "goblin")
        monkeypatch.undo()
        # Its event shows that it was accepted, and its position is the way on.
        claim = await next_event(one)
        assert (claim.key, claim.sender) == ("owner:goblin", "one")
        await (await one.authority("forest", "goblin", after=claim.position)).publish("here")


async def test_a_claim_that_is_cancelled_is_given_back(network: Network) -> None:
    one = await network.connect("one")
    await one.publish("forest", "begins")
    claiming = asyncio.create_task(one.authority("forest", "goblin"))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    async with patience(10):
        while True:
            with suppress(Conflict):
                await one.authority("forest", "goblin")
                return


@pytest.mark.parametrize("kind", ["memory", "memory-3", "redis", "redis-3"])
@pytest.mark.parametrize("step", range(6))
async def test_an_owner_that_stops_at_any_step_of_a_handover_is_replaced(kind: str, step: int) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        one, other, third = [await network.connect(name) for name in ("one", "other", "third")]
        await other.subscribe("forest", "river")
        await third.subscribe("forest", "river")
        mine = await one.authority("forest", "goblin")
        authorities = [mine]
        if step == 1:
            await mine.publish({"by": "one", "entity": "goblin", "token": mine.position})
        if step == 2:
            handing = asyncio.create_task(mine.hand_to("other", to="river"))
            await asyncio.sleep(0)
            await one.close()
            with suppress(gamecast.GamecastError):
                await handing
        if step >= 3:
            await mine.hand_to("other", to="river")
            [*_, handover] = await take(other, 2)
            if step == 4:
                accepting = asyncio.create_task(other.accept(handover))
                await asyncio.sleep(0)
                await other.close()
                with suppress(gamecast.GamecastError):
                    authorities += filter(None, [await accepting])
            elif step == 5:
                authorities += filter(None, [await other.accept(handover)])
        await one.close()
        await other.close()
        await third.publish("forest", "end")
        await third.publish("river", "end")
        events: list[Event] = []
        while [event.payload for event in events].count("end") < 2:
            events += await take(third, 1)
        # Where the entity is now, an event that set its key says.
        owner = next(event for event in reversed(events) if event.key == "owner:goblin" and event.payload is not None)
        region = "river" if "river" in owner.regions else "forest"
        taken = await third.authority(region, "goblin", after=owner.positions[region])
        authorities.append(taken)
        await taken.publish({"by": "third", "entity": "goblin", "token": taken.position})
        events += await take(third, 2)
        assert events[-1].payload["by"] == "third"
        tokens = Counter((each.region, each.entity, each.position) for each in authorities)
        assert offences(events, tokens) == []


async def test_of_two_connections_of_one_name_one_accepts(network: Network) -> None:
    one, old = await network.connect("one"), await network.connect("other")
    await old.subscribe("forest")
    new = await network.connect("other")
    await new.subscribe("forest")
    await (await one.authority("forest", "goblin")).hand_to("other")
    await one.publish("forest", "end")

    async def accept(client: Client) -> Authority | None:
        with suppress(gamecast.Superseded):
            async for item in client:
                assert isinstance(item, Event)
                if item.payload == "end":
                    break
                mine = await client.accept(item)
                if mine is not None:
                    return mine
        return None

    async with patience(20):
        held = [each for each in await asyncio.gather(accept(old), accept(new)) if each is not None]
    assert len(held) == 1


OWNER = """
import asyncio, sys, gamecast
async def main():
    async with gamecast.connect(sys.argv[1], name="paused") as client:
        async with await client.authority("forest", "goblin") as mine:
            print(mine.position, flush=True)
            while True:
                await mine.publish({"by": "paused", "entity": "goblin", "token": mine.position})
                await asyncio.sleep(0.001)
try:
    asyncio.run(main())
except gamecast.Conflict as refused:
    print(refused.position, flush=True)
"""


async def test_a_process_that_was_paused_is_refused_when_it_goes_on() -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start("redis", stack)
        watcher, other = await network.connect("watcher"), await network.connect("other")
        await watcher.subscribe("forest")
        paused = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OWNER, network.url), stdout=asyncio.subprocess.PIPE
        )
        assert paused.stdout is not None
        try:
            async with patience(30):
                position = (await paused.stdout.readline()).decode().strip()
                events = await take(watcher, 5)
                paused.send_signal(signal.SIGSTOP)
                mine = await other.authority("forest", "goblin", after=position)
                await mine.publish({"by": "other", "entity": "goblin", "token": mine.position})
                paused.send_signal(signal.SIGCONT)
                assert (await paused.stdout.readline()).decode().strip() == mine.position
                await paused.wait()
                await mine.publish("end")
                while events[-1].payload != "end":
                    events += await take(watcher, 1)
        finally:
            with suppress(ProcessLookupError):
                paused.kill()
            await paused.wait()
        assert offences(events, Counter()) == []


Fault = Callable[[Random], Awaitable[None]]


async def faults_of(network: Network, kind: str, stack: AsyncExitStack) -> Fault:
    """Return what breaks connections of a network off, also in the middle of their requests."""
    if kind.startswith("memory"):

        async def disconnect(random: Random) -> None:
            name = f"s{random.randrange(3)}"
            faults(network.url.partition("?")[0]).disconnect(name)
            try:
                for _ in range(random.randrange(20)):
                    await asyncio.sleep(0)
            finally:
                faults(network.url.partition("?")[0]).reconnect(name)

        return disconnect
    servers = [redis.asyncio.Redis.from_url(url, single_connection_client=True) for url in network.urls]
    for server in servers:
        stack.push_async_callback(server.aclose)
    one_at_a_time = asyncio.Lock()

    async def kill(random: Random) -> None:
        async with one_at_a_time:
            await random.choice(servers).client_kill_filter(_type="normal", skipme=True)

    return kill


async def played(kind: str, seed: int, steps: int) -> tuple[list[Event], World]:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        clients = [await network.connect(f"s{number}") for number in range(3)]
        observer = await network.connect("observer")
        await observer.publish("forest", "begins")
        world = World(seed, await faults_of(network, kind, stack))
        async with patience(60):
            events = await world.play(clients, observer, steps)
        # It goes on: what anybody left can be taken over.
        for region, entity in (("forest", "goblin"), ("river", "wolf")):
            await taken_over(observer, region, entity)
        return events, world


async def taken_over(client: Client, region: str, entity: str) -> None:
    """Own an entity, whatever of others is still on its way."""
    after: str | None = None
    async with patience(20):
        while True:
            try:
                await client.authority(region, entity, after=after)
            except Conflict as conflict:
                after = conflict.position
            else:
                return


@pytest.mark.parametrize(
    ("kind", "seeds", "steps"), [("memory", 30, 60), ("memory-3", 10, 40), ("redis", 3, 60), ("redis-3", 2, 40)]
)
async def test_there_is_one_owner_at_every_position_whatever_fails(kind: str, seeds: int, steps: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        events, world = await played(kind, seed, steps)
        assert offences(events, world.tokens) == [], f"seed {seed}"
        counts += world.counts
    print(kind, dict(counts))
    assert min(counts[each] for each in ("accepted", "handed over", "refused", "faults", "cancelled")) > 0


async def test_the_judge_sees_owners_whose_events_are_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "guarded", lambda *_: {"nothing": None})
    found = []
    for seed in range(3):
        events, world = await played("memory", seed, 60)
        found += offences(events, world.tokens)
    assert any("while the owner is" in offence for offence in found)


async def values_seen_by(late: Client, *regions: str) -> dict[str, dict[str, Any]]:
    """Return the payloads of the keys of regions, but for those of owners, as a late subscriber finds them."""
    await late.subscribe(*regions, state=True)
    state = await anext(late)
    assert isinstance(state, State)
    await late.unsubscribe(*regions)
    return {
        region: {key: event.payload for key, event in values.items() if not key.startswith("owner:")}
        for region, values in state.values.items()
    }


async def values_are(network: Network, expected: dict[str, dict[str, Any]]) -> None:
    async with patience(20):
        for number in count():
            if await values_seen_by(await network.connect(f"late-{number}"), *expected) == expected:
                return


async def test_the_keys_of_an_entity_walk_with_it(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    mine = await one.authority("forest", "goblin")
    for key in ("goblin", "goblin/track", "camp"):
        await mine.publish({"hp": 9}, key=key)
    await mine.hand_to("other", to="river", keys={"goblin": {"hp": 8}, "goblin/track": None})
    theirs = await accepted(other)
    await values_are(network, {"forest": {"camp": {"hp": 9}}, "river": {"goblin": {"hp": 8}}})
    await theirs.publish({"hp": 7}, key="goblin")
    await values_are(network, {"river": {"goblin": {"hp": 7}}})


async def test_the_keys_of_an_entity_walk_with_who_takes_it_over_before_it_is_accepted(network: Network) -> None:
    one, third = await network.connect("one"), await network.connect("third")
    mine = await one.authority("forest", "goblin")
    await mine.publish({"hp": 9}, key="goblin")
    handed = await mine.hand_to("dead", to="river", keys={"goblin": {"hp": 8}})
    await third.authority("river", "goblin", after=handed.positions["river"])
    await values_are(network, {"forest": {}, "river": {"goblin": {"hp": 8}}})


async def test_a_handover_warns_of_keys_that_stay_behind(caplog: pytest.LogCaptureFixture) -> None:
    async with gamecast.connect(memory_url(), name="one") as one:
        await one.subscribe("river", "forest")
        for keys in (None, {}, {"goblin": 1}):
            mine = await one.authority("forest", "goblin")
            await mine.publish({"hp": 9}, key="goblin")
            await mine.publish({"hp": 9}, key="hat")
            await mine.publish(None, key="hat")
            await mine.hand_to("one", to="river", keys=keys)
            await (await accepted(one)).release()
            said = "keys 'goblin' of entity 'goblin' stay in region 'forest'"
            assert (said in caplog.text) is (keys is None), keys
            caplog.clear()
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"keys": {"a": 1}}, "another region"),
            ({"keys": ["a"], "to": "river"}, "keys is a mapping"),
            ({"keys": dict.fromkeys(map(str, range(65))), "to": "river"}, "at most 64"),
            ({"keys": {"owner:goblin": 1}, "to": "river"}, "owns an entity"),
        )
        mine = await one.authority("forest", "goblin", after=None)
        for arguments, message in wrong:
            with pytest.raises((gamecast.UsageError, gamecast.InvalidName), match=message):
                await mine.hand_to("one", **arguments)
        assert mine.is_held


async def test_an_entity_that_is_not_accepted_is_taken_back(network: Network) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    mine = await one.authority("forest", "goblin")
    with pytest.raises(gamecast.UsageError, match="was not handed over"):
        await mine.take_back()
    await mine.publish({"hp": 9}, key="goblin")
    await mine.hand_to("typo", to="river", state={"hp": 9}, keys={"goblin": {"hp": 8}})
    back = await mine.take_back()
    assert back is not None
    assert (back.region, back.entity, back.state) == ("river", "goblin", {"hp": 9})
    assert await mine.take_back() is None
    await values_are(network, {"forest": {}, "river": {"goblin": {"hp": 8}}})
    await back.hand_to("other")
    theirs = await accepted(other)
    assert await back.take_back() is None
    await theirs.publish("mine")


async def test_after_a_lost_answer_an_entity_is_taken_back_unless_it_was_accepted(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("river")
    publish = Owners.publish

    async def lossy(
        self: Owners, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
    ) -> Receipt:
        monkeypatch.setattr(Owners, "publish", publish)
        await publish(self, regions, payload, key, only_if)
        raise PublishUncertain("the answer is lost")

    for entity, owner in (("goblin", "typo"), ("ogre", "other")):
        mine = await one.authority("forest", entity)
        monkeypatch.setattr(Owners, "publish", lossy)
        await mine.hand_to(owner, to="river", state={"hp": 9})
        theirs = await accepted(other) if owner == "other" else None
        back = await mine.take_back()
        if theirs is None:
            assert back is not None
            await back.publish("home")
        else:
            assert back is None
            await theirs.publish("away")
