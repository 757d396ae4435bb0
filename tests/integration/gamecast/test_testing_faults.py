"""Faults that users inject into memory:// networks, and what their handlers see of them."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gamecast
from gamecast import Client, Event, Gap, Item, Status, blocking
from gamecast.testing import DeliverySequence, Faults, faults, judge, memory_url
from tests.patience import patience, scaled, until

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(params=[1, 3])
def url(request: pytest.FixtureRequest) -> str:
    return memory_url(nodes=request.param)


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with gamecast.connect(url, name="server") as client:
        await client.subscribe("forest", "river")
        yield client


@pytest.fixture
def fault(url: str) -> Faults:
    return faults(url)


async def items(client: Client, count: int) -> list[Item]:
    async with patience(10):
        return [await anext(client) for _ in range(count)]


async def until_state(client: Client, name: str) -> Status:
    await until(lambda: client.status.name == name)
    return client.status


def is_gap(item: Item, region: str, events: int) -> bool:
    return isinstance(item, Gap) and (item.region, item.last_sequence - item.first_sequence + 1) == (region, events)


async def test_a_gap_comes_at_once_and_in_its_place(client: Client, fault: Faults) -> None:
    await client.publish("forest", "before")
    fault.gap("forest", events=3)
    receipt = await client.publish("forest", "after")
    before, gap, after = await items(client, 3)
    assert isinstance(before, Event)
    assert before.payload == "before"
    assert is_gap(gap, "forest", 3)
    assert isinstance(gap, Gap)
    assert gap.first_sequence == before.sequence + 1
    assert "no longer has them" in gap.reason
    assert isinstance(after, Event)
    assert (after.payload, after.position) == ("after", receipt.position)
    fault.gap("river")
    [gap] = await items(client, 1)
    assert is_gap(gap, "river", 1)


async def test_a_gap_comes_through_take_and_on_gap_and_blocking(url: str, client: Client, fault: Faults) -> None:
    handled: list[Gap] = []
    running = gamecast.connect(url, name="running")
    running.on_gap(handled.append)
    async with running:
        await running.subscribe("forest")
        task = asyncio.create_task(running.run())
        fault.gap("forest", events=2)
        [gap] = await client.fetch(timeout=scaled(10))
        assert is_gap(gap, "forest", 2)
        await until(lambda: handled)
        assert handled == [gap]
        task.cancel()


def test_faults_come_from_any_thread() -> None:
    url = memory_url()
    with blocking.connect(url, name="server") as client:
        client.subscribe("forest")
        thread = threading.Thread(target=faults(url).gap, args=("forest", 4))
        thread.start()
        thread.join()
        [gap] = client.fetch(timeout=scaled(10))
        assert is_gap(gap, "forest", 4)


async def test_lost_events_have_receipts_and_leave_a_gap_at_once(client: Client, fault: Faults) -> None:
    fault.lose("forest", events=2)
    receipts = [await client.publish("forest", number) for number in range(3)]
    await client.publish("river", "untouched")
    seen = await items(client, 4)
    covered = [
        (gap.region, number)
        for gap in seen
        if isinstance(gap, Gap)
        for number in range(gap.first_sequence, gap.last_sequence + 1)
    ]
    assert {(r.region, r.sequence) for r in receipts[:2]} <= set(covered)
    assert sorted(str(event.payload) for event in seen if isinstance(event, Event)) == ["2", "untouched"]


async def test_history_has_the_gaps_too(url: str, client: Client, fault: Faults) -> None:
    await client.publish("forest", 1)
    fault.gap("forest", events=3)
    await client.publish("forest", 2)
    async with gamecast.connect(url, name="late") as late:
        await late.subscribe("forest", since=0)
        first, gap, last = await items(late, 3)
        assert is_gap(gap, "forest", 3)
        assert isinstance(first, Event)
        assert isinstance(last, Event)
        assert [first.payload, last.payload] == [1, 2]


async def test_a_disconnected_connection_says_so_and_misses_nothing(url: str, client: Client, fault: Faults) -> None:
    states: list[str] = []
    client.on_status(lambda state: states.append(state.name))
    async with gamecast.connect(url, name="other") as other:
        fault.disconnect("server")
        state = await until_state(client, "disconnected")
        assert isinstance(state.error, gamecast.Unreachable)
        sent = client.publish_async("river", "from the cut off")
        for number in range(5):
            await other.publish("forest", number)
        assert await client.fetch(timeout=0.05) == []
        assert not sent.done()
        fault.reconnect("server")
        await until_state(client, "connected")
        events = await items(client, 6)
        assert [e.payload for e in events if isinstance(e, Event) and e.region == "forest"] == [*range(5)]
        assert (await sent).region == "river"
    assert states == ["disconnected", "connected"]


async def test_publishing_fails_while_disconnected_as_it_does_without_a_server(url: str, fault: Faults) -> None:
    async with gamecast.connect(url, name="server", publish_timeout_s=0.2) as client:
        await client.publish("forest", 1)
        failed: list[gamecast.PublishFailure] = []
        client.on_publish_error(failed.append)
        fault.disconnect("server")
        with pytest.raises(gamecast.NetworkError):
            await client.publish("forest", 2)
        client.publish_nowait("forest", 3)
        await until(lambda: failed)
        assert failed[0].payloads == [3] or tuple(failed[0].payloads) == (3,)
        fault.reconnect("server")


async def test_an_expired_session_ends_and_another_of_its_name_goes_on(url: str, client: Client, fault: Faults) -> None:
    async with gamecast.connect(url, name="other") as other:
        await other.publish("forest", "before")
        [last] = await items(client, 1)
        assert isinstance(last, Event)
        fault.expire("server")
        with pytest.raises(gamecast.SessionExpired, match="went on without server"):
            await items(client, 1)
        assert (await until_state(client, "failed")).error is not None
        with pytest.raises(gamecast.SessionExpired):
            await client.publish("forest", 1)
        await other.publish("forest", "meanwhile")
        async with gamecast.connect(url, name="server") as again:
            await again.subscribe("forest", since=last.position)
            await other.publish("forest", "after")
            seen = await items(again, 2)
            assert [e.payload for e in seen if isinstance(e, Event)] == ["meanwhile", "after"]


async def test_after_many_faults_the_order_still_holds_for_everybody(url: str) -> None:
    fault = faults(url)
    members = {"s0": "ab", "s1": "bc", "s2": "ca", "s3": "abc"}
    casts = {name: gamecast.connect(url, name=name) for name in members}
    for name, client in casts.items():
        await client.open()
        await client.subscribe(*members[name])
    for number in range(60):
        region = "abc"[number % 3]
        if number % 7 == 0:
            fault.gap(region, 1 + number % 3)
        if number % 11 == 0:
            fault.lose(region)
        if number % 20 == 5:
            fault.disconnect("s1")
        if number % 20 == 10:
            fault.reconnect("s1")
        await casts["s0" if region in "ab" else "s2"].publish(region, number)
    for region in "abc":
        await casts["s3"].publish(region, "end")
    sequences = []
    for name, client in casts.items():
        seen: list[Event] = []
        ends = 0
        while ends < len(members[name]):
            [item] = await items(client, 1)
            if isinstance(item, Event):
                seen.append(item)
                ends += item.payload == "end"
        ids = [f"{event.region} {event.position}" for event in seen]
        sequences.append(DeliverySequence(name, ids, [e.region for e in seen], [e.sender for e in seen]))
        await client.close()
    verdict = judge(sequences)
    assert verdict.fine, verdict.examples


async def test_what_cannot_be_injected_is_refused_with_what_there_is(url: str, client: Client, fault: Faults) -> None:
    for inject in (fault.disconnect, fault.expire):
        with pytest.raises(gamecast.UsageError, match=r"no connection to .* has the name 'serber'; known: server"):
            inject("serber")
    for lose in (fault.gap, fault.lose):
        with pytest.raises(gamecast.UsageError, match="'forrest' yet; known: forest, river"):
            lose("forrest")
        with pytest.raises(gamecast.UsageError, match="one event or more"):
            lose("forest", 0)
    with pytest.raises(gamecast.UsageError, match="memory:// networks"):
        faults("redis://127.0.0.1")
    with pytest.raises(gamecast.UsageError, match="connect first"):
        faults("nobody-opened-this").gap("forest")


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    page = (DOCS / "testing.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, object] = {"__name__": "example"}
    exec(compile(example, "docs/testing.md", "exec"), scope)
    test = scope["test_gaps_reach_the_handler"]
    assert callable(test)
    test()
