"""The classic protocols live: five processes over mailboxes, judged by the guarantees that each protocol declares."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.mailboxes import MemoryMailbox, RedisMailbox
from classic.executions.guarantees import violations
from classic.executions.journal import Journal
from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.process import Deliver, Install, Message, Process
from classic.protocols.setup import Assumption, Setup
from gamecast.classic import ProtocolClient, connect
from gamecast.errors import NotConnected, OtherSideError, UnknownScheme, Unreachable, UsageError
from laboratory.protocols import connection as classic
from laboratory.protocols.executionlog import read_execution
from tests.events import next_event, take
from tests.laboratory.integration.classic_player import EACH as EACH_OF_PLAYERS
from tests.patience import patience, until

FIVE = ("p1", "p2", "p3", "p4", "p5")
EACH = 6
REGIONS = {"forest": ("p1", "p2", "p3"), "river": ("p2", "p3", "p4"), "hill": ("p3", "p4", "p5", "p1")}


def groups_for(protocol: type[Process]) -> Mapping[str, tuple[str, ...]]:
    if Assumption.ONE_TO_ONE in protocol.assumes:
        return {f"to-{process}": (process,) for process in FIVE}
    if protocol.assumes & {Assumption.ONE_GROUP, Assumption.BROADCAST}:
        return {"all": FIVE}
    return REGIONS


async def play(url: str, name: str) -> Journal:
    """Have five processes publish at once, answer some of what they deliver, and deliver everything."""
    protocol, network = PROTOCOLS[name], uuid4().hex
    groups = groups_for(protocol)
    journal = Journal(protocol, Setup.of(groups, FIVE))
    one_to_one = Assumption.ONE_TO_ONE in protocol.assumes
    due = dict.fromkeys(FIVE, 0)
    handed = dict.fromkeys(FIVE, 0)
    changed = asyncio.Event()

    def allowed(process: str) -> list[str]:
        return [group for group, members in groups.items() if (process in members) != one_to_one]

    async def publish(cast: classic.ClassicClient, number: int) -> None:
        own = allowed(cast.name)
        message = await cast.publish(own[number % len(own)], {"number": number})
        journal.published(message)
        for process in groups[message.group]:
            due[process] += 1

    async def listen(cast: classic.ClassicClient) -> None:
        async for item in cast:
            if isinstance(item, Message):
                journal.carried_out(cast.name, Deliver(item))
                handed[cast.name] += 1
                if handed[cast.name] in (2, 5):
                    await publish(cast, handed[cast.name])
            else:
                journal.carried_out(cast.name, item)
            changed.set()

    casts = [
        classic.connect(
            url, name=process, protocol=name, processes=FIVE, groups=groups, network=network, open_groups=one_to_one
        )
        for process in FIVE
    ]
    async with casts[0], casts[1], casts[2], casts[3], casts[4], patience(30):
        listeners = [asyncio.create_task(listen(cast)) for cast in casts]
        for number in range(EACH):
            for cast in casts:
                await publish(cast, number)
        while handed != due:
            changed.clear()
            waiting = asyncio.create_task(changed.wait())
            await asyncio.wait([waiting, *listeners], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for listener in listeners:
                if listener.done():
                    listener.result()
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    return journal


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_five_processes_over_redis_keep_what_the_protocol_declares(
    name: str, shared_redis: EmbeddedServer
) -> None:
    record = (await play(shared_redis.url, name)).record()
    assert len(record.messages) >= 5 * EACH
    assert [violation.text for violation in violations(record, PROTOCOLS[name].guarantees)] == []


@pytest.mark.parametrize("name", ["isis", "token-ring", "propagation-tree", "combining-counting"])
async def test_the_same_in_this_process(name: str) -> None:
    record = (await play("memory://", name)).record()
    assert [violation.text for violation in violations(record, PROTOCOLS[name].guarantees)] == []


async def test_five_operating_system_processes_keep_what_every_protocol_declares_by_the_logs_that_they_write(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    """The five are started once and run one protocol after the other."""
    network, root = uuid4().hex, Path(__file__).parents[3]
    players = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.laboratory.integration.classic_player"),
            *(shared_redis.url, network, process, str(tmp_path)),
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for process in FIVE
    ]

    def tell_all(line: str) -> None:
        for player in players:
            assert player.stdin is not None
            player.stdin.write(f"{line}\n".encode())

    broken: dict[str, list[str]] = {}
    try:
        for name in PROTOCOLS:
            tell_all(name)
            async with patience(30):
                for player in players:
                    assert player.stdout is not None
                    assert await player.stdout.readline() == b"done\n", name
            tell_all("enough")
            record = read_execution(tmp_path / f"{name}.{process}.jsonl" for process in FIVE)
            assert len(record.messages) == 5 * EACH_OF_PLAYERS
            broken[name] = [violation.text for violation in violations(record, PROTOCOLS[name].guarantees)]
        await asyncio.gather(*(player.communicate(b"") for player in players))
    finally:
        for player in players:
            if player.returncode is None:
                player.kill()
                await player.wait()
    assert broken == {name: [] for name in PROTOCOLS}


async def test_connect_runs_a_protocol_with_the_calls_of_a_cast(shared_redis: EmbeddedServer) -> None:
    groups = {"forest": ["p1", "p2"], "river": ["p1", "p2", "p3"]}
    p1, p2, p3 = (
        connect(shared_redis.url, name=name, protocol="isis-overlapping", groups=groups, network=uuid)
        for uuid in [uuid4().hex]
        for name in FIVE[:3]
    )
    async with p1, p2, p3, patience(10):
        await p1.subscribe("forest", "river")
        assert (await p1.publish("forest", {"type": "spell"})).region == "forest"
        p3.publish_async("river", b"bytes")
        with suppress(TimeoutError):  # who is cancelled has taken nothing
            async with asyncio.timeout(0):
                await anext(p2)
        one, other = [await take(cast, 2) for cast in (p1, p2)]
        assert [event[:5] for event in one] == [event[:5] for event in other]
        assert [event.payload for event in one] in ([{"type": "spell"}, b"bytes"], [b"bytes", {"type": "spell"}])
        assert (await next_event(p3)).payload == b"bytes"
        with pytest.raises(UsageError, match="p3 is not in forest"):
            await p3.subscribe("forest")
        with pytest.raises(UsageError, match="no history"):
            await p1.subscribe("forest", since=0)
    with pytest.raises(NotConnected):
        await p1.publish("forest", 1)


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_who_has_died_or_never_came_is_named_on_the_connection_and_in_the_log(
    kind: str, shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(classic, "BEAT_S", 0.05)
    monkeypatch.setattr(classic, "ABSENT_S", 0.6)
    url, network = "memory://" if kind == "memory" else shared_redis.url, uuid4().hex
    groups = {"forest": ["p1", "p2", "p3"], "river": ["p3", "p4"]}

    def cast(name: str) -> ProtocolClient:
        return connect(url, name=name, protocol="two-phase", groups=groups, network=network)

    async with cast("p1") as p1, patience(30):

        async def until_absent(*names: str) -> None:
            await until(lambda: p1.absent.keys() == {*names})

        async with cast("p2"):
            await until_absent("p3")  # which never came; with p4, p1 has no group in common
            assert p1.absent["p3"] >= 0.6
        await until_absent("p2", "p3")
        async with cast("p3"):
            await until_absent("p2")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum(text.startswith("p1: p3 has not been heard of") for text in said) == 1
    assert any("may wait for it for good" in text for text in said)


@pytest.mark.parametrize("protocol", ["arrow-joining", "combining-joining"])
async def test_a_process_joins_where_the_first_founder_has_left_and_that_one_comes_back(protocol: str) -> None:
    names, network = ["p1", "p2", "p3"], uuid4().hex

    async def next_payload(cast: ProtocolClient) -> object:
        item = await anext(cast)
        assert isinstance(item, gamecast.Event)
        return item.payload

    async with AsyncExitStack() as stack, patience(20):
        p1, p2, p3 = [
            await stack.enter_async_context(
                connect(
                    "memory://",
                    name=name,
                    protocol=protocol,
                    processes=names,
                    groups={"all": names[:2]},
                    network=network,
                )
            )
            for name in names
        ]
        for wrong in ("p3", "elsewhere"):
            with pytest.raises(UsageError, match="cannot join at"):
                await p3.subscribe("all", at=wrong)
        await p1.unsubscribe("all")
        with pytest.raises(StopAsyncIteration):
            await anext(p1)
        await p3.subscribe("all", at="p1")  # which passes it on
        await p3.publish("all", "joined")
        assert [await next_payload(cast) for cast in (p2, p3)] == ["joined"] * 2
        await p1.subscribe("all")
        await p1.publish("all", "back")
        assert [await next_payload(cast) for cast in (p1, p2, p3)] == ["back"] * 3


@pytest.mark.parametrize("protocol", ["arrow-joining", "combining-joining"])
async def test_processes_join_and_leave_a_tree_while_everybody_publishes(
    protocol: str, shared_redis: EmbeddedServer
) -> None:
    """p1, p3 and p4 begin, p5 joins; then p3 leaves, which is the middle of the tree, and after that p4 does."""
    network, groups = uuid4().hex, {"all": ["p1", "p3", "p4"]}
    names = ["p1", "p3", "p4", "p5"]
    tree = [("p1", "p3"), ("p3", "p4")]
    seen: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    changed = asyncio.Event()
    published = 0

    async def listen(cast: ProtocolClient) -> None:
        async for event in cast:
            assert isinstance(event, gamecast.Event)
            seen[cast.name].append((event.sender, event.payload))
            changed.set()

    async with AsyncExitStack() as stack:
        casts = {
            name: await stack.enter_async_context(
                connect(
                    shared_redis.url,
                    name=name,
                    protocol=protocol,
                    processes=names,
                    groups=groups,
                    tree=tree,
                    network=network,
                )
            )
            for name in names
        }
        listening = {name: asyncio.create_task(listen(cast)) for name, cast in casts.items()}
        for number in range(40):
            if number == 10:
                await casts["p5"].subscribe("all")
            if number == 20:
                await casts["p3"].unsubscribe("all")
            if number == 30:
                await casts["p4"].unsubscribe("all")
            publishers = [name for name in names if not listening[name].done() and name not in _leaving(number)]
            for name in publishers[: None if number >= 10 else 3]:
                await casts[name].publish("all", number)
                published += 1
            await asyncio.sleep(0.002)  # so that members come and go among messages, not before or after them
        async with patience(10):
            await asyncio.gather(listening["p3"], listening["p4"])
            while len(seen["p1"]) < published or seen["p5"][-3:] != seen["p1"][-3:]:
                changed.clear()
                await changed.wait()
        for name in ("p1", "p5"):
            listening[name].cancel()
        await asyncio.gather(*listening.values(), return_exceptions=True)
    everything = seen["p1"]
    assert len(everything) == published == 10 * 3 + 10 * 4 + 10 * 3 + 10 * 2
    assert 0 < len(seen["p5"]) < len(everything)
    assert seen["p5"] == everything[-len(seen["p5"]) :]
    for left in ("p3", "p4"):
        assert seen[left] == everything[: len(seen[left])]


def _leaving(number: int) -> set[str]:
    return {name for name, since in (("p3", 20), ("p4", 30)) if number >= since}


async def test_who_cannot_join_or_leave_is_told_which_protocols_can() -> None:
    async with connect("memory://", name="p1", protocol="arrow", processes=["p1", "p2"]) as cast:
        with pytest.raises(UsageError, match="leave groups with propagation-regrouping"):
            await cast.unsubscribe("all")
    async with classic.connect("memory://", name="p1", protocol="arrow", processes=["p1", "p2"]) as process:
        with pytest.raises(UsageError, match="leave with arrow-joining, combining-joining, virtual-synchrony"):
            process.leave()


async def test_processes_join_and_leave_groups_of_propagation_trees(shared_redis: EmbeddedServer) -> None:
    """p3 comes into the forest and goes again; meanwhile p1 and p2 publish to it without a pause of their own."""
    network, groups = uuid4().hex, {"forest": ["p1", "p2"], "river": ["p2", "p3"]}
    p1, p2, p3 = (
        connect(shared_redis.url, name=name, protocol="propagation-regrouping", groups=groups, network=network)
        for name in FIVE[:3]
    )
    async with p1, p2, p3, patience(20):
        number = 0

        async def published_until(member: bool) -> list[int]:
            """Publish one event after the other until p3 is in the forest, or is not; return what it was given."""
            nonlocal number
            given: list[int] = []
            while True:
                number += 1
                await p1.publish("forest", number)
                for cast in (p1, p2):
                    assert (await next_event(cast)).payload == number
                await p2.publish("river", 0)  # p3 has it only after all that it is to have from before
                assert (await next_event(p2)).payload == 0
                event = await next_event(p3)
                if event.payload:
                    given.append(event.payload)
                    assert (await next_event(p3)).payload == 0
                if bool(event.payload) is member:
                    return given

        await p3.subscribe("forest")
        first = await published_until(member=True)
        await p3.publish("forest", "from p3")
        assert [(await next_event(cast)).payload for cast in (p1, p2, p3)] == ["from p3"] * 3
        await p3.unsubscribe("forest")
        rest = await published_until(member=False)
    assert first + rest == list(range(first[0], first[0] + len(first + rest)))


async def test_a_protocol_in_this_process_and_one_on_a_private_server() -> None:
    async with patience(20):
        for url in ("memory://here", "embedded://"):
            async with AsyncExitStack() as stack:
                two = FIVE[:2]
                one = connect(url, name="p1", protocol="arrow", processes=two)
                await stack.enter_async_context(one)
                other = connect(one.url, name="p2", protocol="arrow", processes=two)
                await stack.enter_async_context(other)
                await other.publish("all", 7)
                seen = [await next_event(cast) for cast in (one, other)]
                assert [(event.sender, event.payload) for event in seen] == [("p2", 7)] * 2


async def test_a_view_changes_when_a_process_is_gone(shared_redis: EmbeddedServer) -> None:
    network = uuid4().hex
    a, b, c = (
        classic.connect(shared_redis.url, name=name, protocol="virtual-synchrony", processes=FIVE[:3], network=network)
        for name in FIVE[:3]
    )
    async with a, b, patience(10):
        async with c:
            views = [anext(aiter(cast)) for cast in (a, b, c)]
            assert [(await view) for view in views] == [Install(1, FIVE[:3])] * 3
        for cast in (a, b):
            cast.suspect("p3")
        assert [await anext(aiter(cast)) for cast in (a, b)] == [Install(2, FIVE[:2])] * 2
        message = await a.publish("all", "still here")
        assert [await anext(aiter(cast)) for cast in (a, b)] == [message] * 2


@pytest.mark.parametrize("protocol", ["view-synchronous-total", "viewstamped"])
async def test_a_total_order_goes_on_when_who_orders_is_gone(protocol: str, shared_redis: EmbeddedServer) -> None:
    network = uuid4().hex
    clients = [
        classic.connect(shared_redis.url, name=name, protocol=protocol, processes=FIVE, network=network)
        for name in FIVE
    ]
    seen: dict[str, list[str]] = {name: [] for name in FIVE}

    async def listen(client: classic.ClassicClient, count: int) -> None:
        while len(seen[client.name]) < count:
            if isinstance(item := await client.take(), Message):
                seen[client.name].append(item.id)

    async with AsyncExitStack() as stack, patience(20):
        async with clients[0] as orders:
            for client in clients[1:]:
                await stack.enter_async_context(client)
            for client in (orders, *clients[1:]):
                await client.publish("all", 1)
            await asyncio.gather(*(listen(client, 5) for client in clients))
        for client in clients[1:]:
            await client.publish("all", 2)
            client.suspect("p1")
            await client.publish("all", 3)
        await asyncio.gather(*(listen(client, 13) for client in clients[1:]))
    assert seen["p1"] == seen["p2"][:5]
    assert seen["p2"] == seen["p3"] == seen["p4"] == seen["p5"]


async def test_a_second_process_of_a_name_in_a_network_is_told(shared_redis: EmbeddedServer) -> None:
    network = uuid4().hex
    async with patience(20):
        for round_of in range(2):
            clients = [
                classic.connect(shared_redis.url, name=name, protocol="fifo", processes=FIVE[:2], network=network)
                for name in FIVE[:2]
            ]
            async with clients[0] as one, clients[1] as other:
                message = await one.publish("all", round_of)
                if round_of == 0:
                    assert await other.take() == message
                else:
                    assert await one.take() == message
                    with pytest.raises(OtherSideError, match=r"called p1 has sent in the network .* is used once"):
                        await one.take()


async def test_a_batch_that_is_sent_again_arrives_once(
    shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = uuid4().hex
    sender, receiver = (RedisMailbox(shared_redis.url, network, name, block_ms=50) for name in ("a", "b"))
    async with patience(10):
        await sender.send([("b", b"one"), ("b", b"two")])
        run = sender._writer.run

        async def lose_the_answer(*arguments: Any) -> None:
            monkeypatch.setattr(sender._writer, "run", run)
            await run(*arguments)
            raise Unreachable("the answer is lost")

        monkeypatch.setattr(sender._writer, "run", lose_the_answer)
        await sender.send([("b", b"three"), ("b", b"four")])
        received: list[tuple[str, bytes]] = []
        while len(received) < 4:
            received += await receiver.receive()
    assert received == [("a", b"one"), ("a", b"two"), ("a", b"three"), ("a", b"four")]
    for mailbox in (sender, receiver):
        await mailbox.close()


async def test_a_mailbox_survives_the_restart_of_a_durable_server() -> None:
    with EmbeddedServer(appendfsync="always") as server:
        sender, receiver = (RedisMailbox(server.url, "n", name, block_ms=50) for name in ("a", "b"))
        async with patience(20):
            await sender.send([("b", b"one")])
            assert await receiver.receive() == [("a", b"one")]
            reading = asyncio.create_task(receiver.receive())
            server.kill()
            writing = asyncio.create_task(sender.send([("b", b"two")]))
            await server.restart_async()
            await writing
            assert await reading == [("a", b"two")]
        for mailbox in (sender, receiver):
            await mailbox.close()


async def test_a_server_that_has_forgotten_mailboxes_is_noticed(redis_server: EmbeddedServer) -> None:
    sender = RedisMailbox(redis_server.url, "n", "a")
    try:
        async with patience(20):
            await sender.send([("b", b"one")])
            redis_server.kill()
            await redis_server.restart_async()
            with pytest.raises(OtherSideError, match=r"packet 2 of a .* comes after 0"):
                await sender.send([("b", b"two")])
    finally:
        await sender.close()


async def test_networks_in_memory_are_told_apart_by_name() -> None:
    one, other = MemoryMailbox("one", "a"), MemoryMailbox("other", "a")
    await one.send([("a", b"1")])
    await other.send([("a", b"2")])
    assert (await one.receive(), await other.receive()) == ([("a", b"1")], [("a", b"2")])


def test_a_protocol_that_does_not_fit_is_refused_and_what_would_fit_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is one group.*central.*isis-overlapping, .* would fit"):
        connect("memory://", name="p1", protocol="isis", groups=REGIONS)
    with pytest.raises(UsageError, match="give processes="):
        connect("memory://", name="p1", protocol="isis")
    with pytest.raises(UsageError, match=r"connect\(\) has no option processes"):
        gamecast.connect("memory://", name="p1", protocol="isis", processes=FIVE)  # type: ignore[call-arg]
    with pytest.raises(UnknownScheme, match="one server"):
        connect("embedded://?nodes=3", name="p1", protocol="isis", processes=FIVE)


def test_wrong_use_is_refused_with_its_cure() -> None:
    with pytest.raises(UsageError, match="there is one group"):
        classic.connect("memory://", name="p1", protocol="isis", processes=FIVE, groups=REGIONS)
    with pytest.raises(UsageError, match="none of the processes"):
        classic.connect("memory://", name="p9", protocol="isis", processes=FIVE)
    with pytest.raises(UsageError, match="there is no protocol"):
        classic.connect("memory://", name="p1", protocol="paxos", processes=FIVE)
    with pytest.raises(UnknownScheme):
        classic.connect("nats://localhost", name="p1", protocol="isis", processes=FIVE)


async def test_publishing_needs_an_open_process_and_a_group_of_its_own() -> None:
    cast = classic.connect("memory://", name="p1", protocol="fifo", processes=FIVE, groups=REGIONS)
    with pytest.raises(NotConnected):
        await cast.publish("forest", 1)
    async with cast:
        with pytest.raises(UsageError, match="open_groups"):
            await cast.publish("river", 1)
        with pytest.raises(UsageError, match="no group"):
            await cast.publish("sea", 1)


FOUNDERS = ["a", "b", "c"]


def joining(protocol: str, network: str, names: str = "abcd") -> list[ProtocolClient]:
    """Return the connections of three founders and of one more, in memory."""
    return [
        connect("memory://", name=name, protocol=protocol, processes=[*"abcd"], groups={"g": FOUNDERS}, network=network)
        for name in names
    ]


async def payloads_of(cast: ProtocolClient, count: int) -> list[object]:
    found: list[object] = []
    while len(found) < count:
        if isinstance(item := await anext(cast), gamecast.Event):
            found.append(item.payload)
    return found


JOINING = ("arrow-joining", "combining-joining", "virtual-synchrony", "propagation-regrouping")


@pytest.mark.parametrize("protocol", JOINING)
async def test_what_is_published_right_after_a_join_is_delivered(protocol: str) -> None:
    a, b, c, d = joining(protocol, uuid4().hex)
    async with a, b, c, d, patience(10):
        await d.subscribe("g")
        await c.publish("g", 1)
        await b.publish("g", 2)
        assert sorted(map(str, await payloads_of(d, 2))) == ["1", "2"]
        await d.subscribe("g")  # it is a member already


@pytest.mark.parametrize("protocol", ["arrow-joining", "combining-joining", "propagation-regrouping"])
async def test_a_join_that_calls_off_a_leave_returns_when_the_process_is_a_member(protocol: str) -> None:
    a, b, c, d = joining(protocol, uuid4().hex)
    async with a, b, c, d, patience(10):
        await d.subscribe("g")
        for number in range(5):
            for cast in (d, a):
                await cast.unsubscribe("g")
                await cast.subscribe("g")
            await b.publish("g", number)
            assert [await payloads_of(cast, 1) for cast in (a, d)] == [[number]] * 2


async def test_the_last_member_stays_one_when_it_joins_after_it_could_not_leave() -> None:
    [a] = (
        connect(
            "memory://", name="a", protocol="arrow-joining", processes=["a", "b"], groups={"g": ["a"]}, network="last"
        ),
    )
    async with a, patience(10):
        await a.unsubscribe("g")
        await a.subscribe("g")
        await a.publish("g", 1)
        assert await payloads_of(a, 1) == [1]


@pytest.mark.parametrize("protocol", JOINING)
async def test_closing_ends_a_wait_to_be_in(protocol: str) -> None:
    [d] = joining(protocol, uuid4().hex, "d")
    async with patience(10):
        await d.open()
        subscribing = asyncio.create_task(d.subscribe("g"))  # the others are not there to answer
        for _ in range(5):
            await asyncio.sleep(0)
        assert not subscribing.done()
        await d.close()
        with pytest.raises(NotConnected):
            await subscribing


async def test_a_process_that_is_removed_or_leaves_before_it_is_in_waits_no_more() -> None:
    async with patience(10):
        for protocol, error in (("virtual-synchrony", NotConnected), ("propagation-regrouping", UsageError)):
            [d] = joining(protocol, uuid4().hex, "d")
            async with d:
                subscribing = asyncio.create_task(d.subscribe("g"))
                for _ in range(5):
                    await asyncio.sleep(0)
                assert not subscribing.done()
                await d.unsubscribe("g")
                with pytest.raises(error):
                    await subscribing
