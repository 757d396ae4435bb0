"""The node script and the node state machine are one: same frames in, same bytes out, same bytes stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.embedded.server import EmbeddedServer
from adapters.redis.node import COPIED, STEP, RedisNode
from sequencing.errors import OtherSideError, PlanError
from sequencing.frames import FrameKind, LinkedFrame, PublishedFrame, StampedFrame
from sequencing.keyed import (
    KEYS_MAX,
    NO_EXTRAS,
    RESERVED_KEYS,
    SHARE_BYTES,
    SHARE_KEYS,
    SHARES_KEYS,
    Condition,
    Extras,
    Full,
    Heads,
    Named,
    Part,
)
from sequencing.keyspace import NodeKeys, keyspace
from sequencing.landing import asking
from sequencing.node import Answer, Node, Opening, Verdict
from sequencing.pending import Judgement
from sequencing.plan import Atom, AtomId, Plan

REGIONS = ("forest", "river", "höhle 7", "%d {x}")
PUBLISHERS = ("s1", "server with blanks", "~bob", "~bob~2 %d")
NODES = ("n1", "n2", "n3")
RETENTION_EVENTS = 1500


@dataclass(frozen=True)
class Install:
    plan: Plan


@dataclass(frozen=True)
class Prepare:
    """Install the steps of a plan; of the regions in ``closing``, ingresses wait for an epoch to be closed."""

    plan: Plan
    closing: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Close:
    node: str
    regions: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Open:
    """Open an ingress with what another node had accepted, and its heads, or with the loss of those."""

    source: str
    node: str
    region: str
    epoch: int
    lost: int


@dataclass(frozen=True)
class Forget:
    node: str
    steps: tuple[tuple[int, str], ...]
    link_ends: tuple[str, ...]
    headless: tuple[tuple[str, int], ...]
    plan: tuple[int, int]


@dataclass(frozen=True)
class ForgetPublishers:
    node: str
    living: frozenset[str]
    upto: int


@dataclass(frozen=True)
class Seal:
    node: str
    streams: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Admit:
    node: str
    run: str


@dataclass(frozen=True)
class BeginAny:
    node: str
    plan: Plan


@dataclass(frozen=True)
class BeginNoMore:
    node: str


@dataclass(frozen=True)
class Resolve:
    """Decide frames with keys that have passed a node, those of which another knows, or all."""

    node: str
    judged_by: str
    judgement: Judgement | int


@dataclass(frozen=True)
class Publish:
    node: str
    frames: tuple[PublishedFrame, ...]


@dataclass(frozen=True)
class Transfer:
    """Move what is on a link, from an offset that may repeat or skip, and acknowledge or not."""

    source: str
    target: str
    offset: int
    acknowledge: bool


@st.composite
def plans(draw: st.DrawFn, epoch: int, version: int) -> Plan:
    paths = {}
    for region in draw(st.lists(st.sampled_from(REGIONS), unique=True, min_size=1)):
        first = draw(st.integers(0, 2))
        paths[region] = NODES[first : draw(st.integers(first, 2)) + 1]
    atoms = []
    for number in range(draw(st.integers(0, 6))):
        node = draw(st.sampled_from(NODES))
        members = [region for region, path in paths.items() if node in path]
        if len(members) > 1:
            chosen = draw(st.lists(st.sampled_from(members), unique=True, min_size=2))
            atoms.append(Atom(AtomId(number + 1), tuple(chosen), node))
    return Plan(epoch, version, "overlap", dict.fromkeys(NODES, ""), paths, tuple(atoms))


bodies = st.binary(max_size=12)
KEYS = ("door", 'höhle "7"', "%d {x}", "owner:troll", "@~bob")
heads = st.sampled_from((None, (1, 1), (1, 2), (2, 1), (3, 0)))


@st.composite
def extras(draw: st.DrawFn, count: int, size: int, also: tuple[Part, ...] = ()) -> Extras:
    """What a frame says of keys: most say nothing."""
    if draw(st.integers(0, 3)):
        return Extras(also=also) if also else NO_EXTRAS
    places = draw(st.lists(st.integers(0, min(count, 3) - 1), unique=True, max_size=3))
    names = tuple(
        Named(place, draw(st.sampled_from(KEYS)), draw(st.booleans()), draw(st.integers(0, size)), size, f"{place} 0")
        for place in sorted(places)
    )
    conditions = draw(st.lists(st.tuples(st.sampled_from(KEYS), heads, st.integers(0, len(also))), max_size=2))
    return Extras(names, tuple(Condition(*each) for each in conditions), also)


firsts = st.sampled_from((1, 1, 2, 3, 4, 701, 1401))


@st.composite
def parts(draw: st.DrawFn, region: str) -> tuple[Part, ...]:
    """The further regions of a frame: most have none."""
    if draw(st.integers(0, 3)):
        return ()
    others = [other for other in REGIONS if other != region]
    chosen = draw(st.lists(st.sampled_from(others), unique=True, min_size=1))
    return tuple(Part(other, draw(firsts)) for other in chosen)


@st.composite
def published(draw: st.DrawFn) -> PublishedFrame:
    count, region = draw(st.sampled_from((1, 1, 2, 700))), draw(st.sampled_from(REGIONS))
    also, body = draw(parts(region)), draw(bodies)
    kinds = st.sampled_from((FrameKind.EVENTS, FrameKind.EVENTS, FrameKind.JOIN, FrameKind.TICK))
    return PublishedFrame(
        region=region,
        epoch=draw(st.integers(1, 3)),
        publisher=draw(st.sampled_from(PUBLISHERS)),
        incarnation=draw(st.integers(1, 2)),
        first=draw(firsts),
        count=count,
        body=body,
        kind=FrameKind.JOINT if also else draw(kinds),
        extras=draw(extras(count, len(body), also)),
    )


def forgetting(node: str) -> st.SearchStrategy[ForgetPublishers]:
    living = st.frozensets(st.sampled_from(PUBLISHERS))
    return st.builds(ForgetPublishers, st.just(node), living, st.integers(0, 2))


@st.composite
def actions(draw: st.DrawFn) -> list[Any]:
    found: list[Any] = [Install(draw(plans(draw(st.integers(1, 2)), 1)))]
    for _ in range(draw(st.integers(1, 30))):
        kind = draw(st.integers(0, 9))
        node, region = draw(st.sampled_from(NODES)), draw(st.sampled_from(REGIONS))
        epoch, following = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        if kind == 0:
            how = draw(st.integers(0, 3))
            plan = draw(plans(draw(st.integers(1, 3)), draw(st.integers(1, 2))))
            closing = draw(st.dictionaries(st.sampled_from(REGIONS), st.integers(0, 2)))
            found.append(Install(plan) if how == 0 else Prepare(plan, tuple(closing.items())))
        elif kind == 1:
            found.append(Close(node, ((region, epoch, following), (draw(st.sampled_from(REGIONS)), 1, 2))))
        elif kind == 2:
            other = draw(st.sampled_from(NODES))
            ends = draw(st.sampled_from(((), (), ("n2",), ("n3", "n1"))))
            tick = draw(st.sampled_from((0, 1, 3, 702)))
            changes = (
                Open(other, node, region, epoch, draw(st.sampled_from((0, 0, epoch)))),
                Forget(
                    node,
                    ((epoch, region),),
                    ends,
                    draw(st.sampled_from(((), ((region, following),)))),
                    draw(st.sampled_from(((0, 0), (epoch, following)))),
                ),
                Seal(node, ((region, epoch, tick),)),
                Admit(node, draw(st.sampled_from("12"))),
                draw(forgetting(node)),
                BeginAny(node, Plan(epoch, following, "overlap", dict.fromkeys(NODES, ""), {}, ())),
                BeginNoMore(node),
            )
            found.append(draw(st.sampled_from(changes)))
        elif kind < 7:
            frames = draw(st.lists(published(), min_size=1, max_size=5))
            found.append(Publish(draw(st.sampled_from(NODES)), tuple(frames)))
        else:
            source, target = draw(st.sampled_from((("n1", "n2"), ("n2", "n3"))))
            found.append(Transfer(source, target, draw(st.sampled_from((0, 0, 0, 1, -1))), draw(st.booleans())))
    return found


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Publishers that go on where they stopped, frame by frame, and now and then do not; epochs end under them."""
    found: list[Any] = [Install(draw(plans(1, 1)))]
    epoch, nexts = 1, dict.fromkeys(((region, publisher) for region in REGIONS for publisher in PUBLISHERS), 1)
    for _ in range(draw(st.integers(5, 40))):
        region, publisher = draw(st.sampled_from(REGIONS)), draw(st.sampled_from(PUBLISHERS))
        first, count = nexts[region, publisher], draw(st.sampled_from((1, 1, 2, 700)))
        astray = draw(st.sampled_from((0, 0, 0, 0, 0, 0, 1, -1, -count)))
        incarnation = draw(st.sampled_from((1, 1, 1, 1, 1, 2)))
        if astray == 0 and incarnation == 1:
            nexts[region, publisher] += count
        frame = PublishedFrame(region, epoch, publisher, incarnation, max(1, first + astray), count, draw(bodies))
        other = draw(st.sampled_from(REGIONS))
        if other != region and draw(st.integers(0, 3)) == 0:
            also = (Part(other, max(1, nexts[other, publisher] + draw(st.sampled_from((0, 0, 0, 0, -count))))),)
            if astray == 0 and incarnation == 1:
                nexts[other, publisher] += count
            frame = replace(frame, kind=FrameKind.JOINT, extras=draw(extras(count, len(frame.body), also)))
        elif draw(st.integers(0, 4)) == 0:
            frame = replace(frame, extras=draw(extras(count, len(frame.body))))
        found.append(Publish(draw(st.sampled_from(("n1", "n1", "n2"))), (frame,)))
        if draw(st.integers(0, 9)) == 0:
            epoch += 1
            plan = draw(plans(epoch, 1))
            found.append(Prepare(plan, tuple((region, epoch - 1) for region in plan.paths)))
        if draw(st.integers(0, 9)) == 0:
            found.append(draw(forgetting("n1")))
    return found


BORDERS = {
    "forest": ("n1", "n2", "n3"),
    "river": ("n1", "n2"),
    "höhle 7": ("n2", "n3"),
    "%d {x}": ("n2",),
    "end": ("n3",),
}
SETS = (("forest", "höhle 7"), ("höhle 7", "forest", "end"), ("end", "höhle 7"), ("%d {x}", "river"), ("river", "end"))


@st.composite
def borders(draw: st.DrawFn) -> list[Any]:
    """Events of several regions over several nodes, whose ingresses close and wait meanwhile."""
    atoms = (Atom(AtomId(1), ("forest", "höhle 7"), "n2"), Atom(AtomId(2), ("forest", "river"), "n1"))
    epoch, nexts = 1, dict.fromkeys(((region, publisher) for region in BORDERS for publisher in PUBLISHERS), 1)
    found: list[Any] = [Install(Plan(1, 1, "overlap", dict.fromkeys(NODES, ""), BORDERS, atoms))]
    for _ in range(draw(st.integers(5, 40))):
        kind, publisher = draw(st.integers(0, 12)), draw(st.sampled_from(PUBLISHERS[:3]))
        count, incarnation = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, 1, 1, 2)))
        if kind < 5:
            lead, *others = draw(st.sampled_from(SETS)) if kind else (draw(st.sampled_from(list(BORDERS))),)
            astray = draw(st.sampled_from((0, 0, 0, 0, 0, -1, 1)))
            firsts = [max(1, nexts[region, publisher] + astray) for region in (lead, *others)]
            of_publisher = publisher, incarnation, firsts[0], count
            also = tuple(map(Part, others, firsts[1:]))
            entry = min(BORDERS[region][0] for region in (lead, *others)) if draw(st.integers(0, 7)) else "n2"
            regions = enumerate((lead, *others))
            elsewhere = tuple((n, BORDERS[region][0]) for n, region in regions if BORDERS[region][0] != entry)
            body = draw(bodies)
            said = draw(extras(count, len(body), also))
            if draw(st.booleans()):
                named = Named(0, "door", draw(st.integers(0, 3)) == 0, 0, len(body), "0 0")
                door = Condition("door", draw(heads), draw(st.integers(0, len(also))))
                said = Extras((named,), (door,) if draw(st.integers(0, 2)) == 0 else (), also)
            if elsewhere and also:
                away = sorted(elsewhere, key=lambda each: each[1])
                said = replace(said, elsewhere=tuple(away), way=("n1", "n2", "n3"), also=also)
            frame = PublishedFrame(
                *(lead, epoch, *of_publisher, body, FrameKind.JOINT if also else FrameKind.EVENTS), extras=said
            )
            found.append(Publish(entry, (frame,)))
            if draw(st.booleans()):
                nexts.update(
                    {(lead, publisher): firsts[0] + count}
                    | {(part.region, publisher): part.first + count for part in also}
                )
            found.append(Publish(draw(st.sampled_from(("n2", "n3"))), (asking(frame),)))
        elif kind < 9:
            source, target = draw(st.sampled_from((("n1", "n2"), ("n2", "n3"))))
            found.append(Transfer(source, target, draw(st.sampled_from((0, 0, 0, 1, -1))), draw(st.booleans())))
        elif kind == 9:
            epoch += 1
            moved = {region: (1 if draw(st.booleans()) else 0) for region in BORDERS}
            closing = tuple((region, epoch - 1 if stays else 0) for region, stays in moved.items())
            found.append(Prepare(Plan(epoch, 1, "overlap", dict.fromkeys(NODES, ""), BORDERS, ()), closing))
        elif kind == 12:
            node, judge = draw(st.sampled_from((("n1", "n2"), ("n2", "n3"), ("n1", "n1"))))
            judgements: tuple[Judgement | int, ...] = (Judgement.OK, Judgement.NO, epoch)
            found.append(Resolve(node, judge, draw(st.sampled_from(judgements))))
        elif kind == 10:
            region = draw(st.sampled_from(list(BORDERS)))
            found.append(Close(BORDERS[region][0], ((region, epoch, epoch + 1),)))
        else:
            node = draw(st.sampled_from(NODES))
            region = draw(st.sampled_from(list(BORDERS)))
            rare = (
                draw(forgetting(node)),
                Forget(node, ((epoch, region),), (), (), draw(st.sampled_from(((0, 0), (epoch + 1, 1))))),
                Seal(node, ((region, epoch, 0),)),
                Open(node, node, region, epoch, 0),
                Admit(node, "2"),
            )
            found.append(draw(st.sampled_from(rare)))
    return found


def stored(client: Any) -> dict[bytes, Any]:  # redis-py types its answers as text or nothing, too
    """Return every gamecast key with its content, in the form of `sequencing.keyspace`."""
    found: dict[bytes, Any] = {}
    for key in client.keys("gamecast:*"):
        if client.type(key) == b"hash":
            found[key] = client.hgetall(key)
            found[key].pop(COPIED.encode(), None)  # only written, so that something is: it says nothing
            found[key].pop(b"network", None)  # it only tells the first plan of another network
        else:
            found[key] = [
                (entry, [part for pair in fields.items() for part in pair]) for entry, fields in client.xrange(key)
            ]
    return found


def without_empty_streams(keyspace: dict[bytes, Any]) -> dict[bytes, Any]:
    """A trimmed stream stays in Redis as an empty key, or not, depending on the server's version."""
    return {key: content for key, content in keyspace.items() if content}


def runs_backwards(machine: Node) -> bool:
    """Tell whether an epoch that was over has begun again: no manager lets that happen, and Redis refuses it."""
    return any(one.last >= next_.last for stream in machine.egress.values() for one, next_ in pairwise(stream))


async def play(script: Sequence[Any], url: str) -> None:
    """Drive the machine and the script with the same actions; compare every answer, and what is stored after each."""
    machines = {name: Node(name, RETENTION_EVENTS) for name in NODES}
    scripts = {name: RedisNode(name, url) for name in NODES}
    client = redis.Redis.from_url(url)
    client.flushall()
    try:
        for action in script:
            if isinstance(action, Install):
                for name in NODES:
                    installed = machines[name].install(action.plan.epoch, action.plan.version, action.plan.steps(name))
                    try:
                        await scripts[name].install(action.plan, RETENTION_EVENTS)
                    except PlanError:
                        assert not installed
                    else:
                        assert installed
            elif isinstance(action, Prepare):
                plan, closing = action.plan, dict(action.closing)
                for name in NODES:
                    steps = list(plan.steps(name))
                    prepared = machines[name].prepare(plan.epoch, plan.version, steps, closing)
                    assert await scripts[name].prepare(plan, RETENTION_EVENTS, steps, closing) == prepared
            elif isinstance(action, Close):
                closed = machines[action.node].close(action.regions)
                if runs_backwards(machines[action.node]):
                    return
                assert await scripts[action.node].close_ingresses(action.regions) == closed
                for region, epoch, _ in action.regions:
                    expected_end = machines[action.node].ended(region, epoch)
                    assert await scripts[action.node].ended([(region, epoch)]) == expected_end
            elif isinstance(action, Open):
                accepted = machines[action.source].accepted(action.region)
                assert await scripts[action.source].accepted([action.region]) == {action.region: accepted}
                there = machines[action.source].heads.get(action.region)
                assert (await scripts[action.source].heads([action.region])).get(action.region) == there
                snapshots = await scripts[action.source].snapshots([(action.region, action.epoch)])
                assert snapshots == machines[action.source].snapshots([(action.region, action.epoch)])
                handed = Heads(lost=action.lost) if action.lost else there
                machines[action.node].open(action.region, action.epoch, accepted, handed)
                opening = Opening(action.region, action.epoch, tuple(accepted.items()), handed)
                await scripts[action.node].open_ingresses([opening])
            elif isinstance(action, Forget):
                told = action.steps, action.link_ends, action.headless, action.plan
                machines[action.node].forget(*told)
                await scripts[action.node].forget(*told)
            elif isinstance(action, ForgetPublishers):
                known = machines[action.node].accepted_of
                decided = machines[action.node].outcomes
                gone = [each for each in (*known, *decided) if each[1] not in action.living]
                machines[action.node].forget_publishers(gone, action.upto)
                cursor: int | None = 0
                while cursor is not None:
                    cursor = await scripts[action.node].forget_publishers(action.upto, action.living, cursor)
            elif isinstance(action, Seal):
                for stream in action.streams * 2:
                    machines[action.node].seal(*stream)
                await scripts[action.node].seal(action.streams * 2)
            elif isinstance(action, Admit):
                machines[action.node].admit(action.run)
                await scripts[action.node].admit(action.run)
            elif isinstance(action, BeginAny):
                begun = machines[action.node].begin_any(action.plan.epoch, action.plan.version)
                assert await scripts[action.node].begin_any(action.plan, RETENTION_EVENTS) == begun
            elif isinstance(action, BeginNoMore):
                machines[action.node].begin_no_more()
                assert await scripts[action.node].begin_no_more(2) == machines[action.node].begun(2)
            elif isinstance(action, Resolve):
                here = machines[action.node].undecided()
                assert await scripts[action.node].undecided() == here
                judged: dict[str, Judgement | int] = dict(machines[action.judged_by].verdicts(action.node))
                assert await scripts[action.judged_by].verdicts(action.node) == judged
                if action.node == action.judged_by:
                    judged = dict.fromkeys(here, action.judgement)
                machines[action.node].resolve(judged)
                if judged:
                    await scripts[action.node].resolve(judged)
                    machines[action.judged_by].settle(judged)
                    await scripts[action.judged_by].settle(judged)
            elif isinstance(action, Publish):
                expected = machines[action.node].publish(action.frames)
                if runs_backwards(machines[action.node]):
                    return
                assert await scripts[action.node].publish(action.frames) == expected
            else:
                link = machines[action.source].links.get(action.target, [])
                frames = link[action.offset :] if action.offset >= 0 else link[:1] + link
                expected_transfer = machines[action.target].transfer(action.source, frames)
                if runs_backwards(machines[action.target]):
                    return
                assert await scripts[action.target].transfer(action.source, frames) == expected_transfer
                if action.acknowledge:
                    machines[action.source].acknowledge(action.target, expected_transfer.accepted)
                    await scripts[action.source].acknowledge(action.target, expected_transfer.accepted)
            expected_keys: dict[bytes, Any] = {}
            for machine in machines.values():
                expected_keys |= keyspace(machine)
            assert without_empty_streams(stored(client)) == without_empty_streams(expected_keys)
    finally:
        client.close()
        for node in scripts.values():
            await node.close()


@settings(max_examples=150, deadline=None)
@given(script=actions())
def test_the_script_answers_and_stores_what_the_state_machine_does(
    shared_redis: EmbeddedServer, script: list[Any]
) -> None:
    asyncio.run(play(script, shared_redis.url))


@settings(max_examples=150, deadline=None)
@given(script=conversations())
def test_a_frame_that_comes_alone_is_taken_as_among_others(shared_redis: EmbeddedServer, script: list[Any]) -> None:
    asyncio.run(play(script, shared_redis.url))


@settings(max_examples=300, deadline=None)
@given(script=borders())
def test_events_of_regions_of_several_nodes_are_numbered_and_refused_alike(
    shared_redis: EmbeddedServer, script: list[Any]
) -> None:
    asyncio.run(play(script, shared_redis.url))


def keyed(
    publisher: str, first: int, keys: Iterable[str], *, size: int = 9, deletes: bool = False, region: str = "forest"
) -> PublishedFrame:
    """Return a frame that names keys, one an event, each with a value of some bytes."""
    names = tuple(Named(place, key, deletes, 0, size, "17 0") for place, key in enumerate(keys))
    return PublishedFrame(region, 1, publisher, 1, first, len(names), b"x" * max(10, size), extras=Extras(names))


def numbered(first: int, count: int) -> list[str]:
    return [f"k{number}" for number in range(first, first + count)]


async def test_no_client_of_gateways_has_more_than_its_share_of_a_region(shared_redis: EmbeddedServer) -> None:
    plan = Plan(1, 1, "overlap", {"n1": "", "n2": ""}, {"forest": ("n1",)}, ())
    firsts: dict[str, int] = {}
    script: list[Any] = [Install(plan)]
    machine = Node("n1")
    machine.install(1, 1, plan.steps("n1"))

    def say(publisher: str, keys: Sequence[str], **more: Any) -> Answer:
        """Publish a frame; what it is answered is judged here, and by the script in the end."""
        frame = keyed(publisher, firsts.get(publisher, 1), keys, **more)
        [answer] = machine.publish([frame])
        if answer.verdict is Verdict.OK:
            firsts[publisher] = frame.first + frame.count
        script.append(Publish("n1", (frame,)))
        return answer

    def full(limit: int, what: Full) -> Answer:
        return Answer(Verdict.FULL, (limit, what))

    assert say("~bob~1", numbered(0, SHARE_KEYS - 1)).verdict is Verdict.OK
    assert say("~bob~2", ["last"]).verdict is Verdict.OK
    assert say("~bob~3", ["more"]) == full(SHARE_KEYS, Full.SHARE_KEYS), "all of its sessions share"
    assert say("~bob~1", ["k1", "@~bob~1"]).verdict is Verdict.OK, "presence counts in no share"
    assert say("~bob~1", ["k1"], deletes=True).verdict is Verdict.OK
    assert say("~bob~3", ["more"]).verdict is Verdict.OK
    assert say("server", ["k2", "door"]).verdict is Verdict.OK
    assert say("~bob~3", ["still"]).verdict is Verdict.OK, "what somebody else sets is that one's"
    assert say("~bob~3", ["door"]) == full(SHARE_KEYS, Full.SHARE_KEYS)
    for number in range(SHARE_BYTES // 60_000):
        assert say("~eve", [f"big-{number}"], size=60_000).verdict is Verdict.OK
    assert say("~eve", ["big-0"], size=60_000).verdict is Verdict.OK
    assert say("~eve", ["big"], size=60_000) == full(SHARE_BYTES, Full.SHARE_BYTES)
    assert say("~eve", ["small"]).verdict is Verdict.OK
    script.append(Open("n2", "n1", "forest", 1, 0))
    client = 0
    while (share := min(200, SHARES_KEYS - len(machine.heads["forest"].shares().held))) > 0:
        assert say(f"~c{client}", numbered(10_000 + 1_000 * client, share)).verdict is Verdict.OK
        client += 1
    assert say("~new", ["x"]) == full(SHARES_KEYS, Full.SHARES_KEYS)
    room = KEYS_MAX - RESERVED_KEYS - len(machine.heads["forest"].known)
    assert say("server", numbered(100_000, room)).verdict is Verdict.OK
    assert say("server", ["x"]) == full(KEYS_MAX - RESERVED_KEYS, Full.REGION)
    assert say("~new", ["@~new"]).verdict is Verdict.OK, "who comes finds room"
    assert say("server", [f"owner:{number}" for number in range(RESERVED_KEYS - 1)]).verdict is Verdict.OK
    assert say("server", ["owner:more"]) == full(KEYS_MAX, Full.REGION)
    for number in range(100):
        say("~eve", [f"big-{number}"], deletes=True)
    assert "seve" in machine.heads["forest"].shares().fields()
    say("~eve", ["small"], deletes=True)
    assert "seve" not in machine.heads["forest"].shares().fields()
    await play(script, shared_redis.url)


async def test_streams_are_trimmed_by_frames_that_come_alone(shared_redis: EmbeddedServer) -> None:
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ())
    frames = [
        PublishedFrame("a", 1, "s", 1, first, 700, b"[0,[0],[1]]") for first in range(1, 4 * RETENTION_EVENTS, 700)
    ]
    await play([Install(plan), *(Publish("n1", (frame,)) for frame in frames)], shared_redis.url)


async def test_a_full_server_still_says_what_it_has_accepted(redis_server: EmbeddedServer) -> None:
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ())
    frame = PublishedFrame("a", 1, "s", 1, 1, 1, b"[0,[0],[1]]")
    node = RedisNode("n1", redis_server.url)
    await node.install(plan, RETENTION_EVENTS)
    [accepted] = await node.publish([frame])
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory", 1)
        assert await node.publish([frame]) == [Answer(Verdict.SEEN, accepted.numbers)]
        client.config_set("maxmemory", 0)
        assert client.hget(node.keys.counters, COPIED) is None
        await node.publish([frame])
        assert client.hget(node.keys.counters, COPIED) == b"1", "so that WAIT has something to wait for"
    await node.close()


@pytest.mark.parametrize("frames", [1, 2])
async def test_what_cannot_be_appended_is_not_accepted(redis_server: EmbeddedServer, frames: int) -> None:
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ())
    first, *more = [PublishedFrame("a", 1, "s", 1, number, 1, b"[0,[0],[1]]") for number in (1, 2, 3)][: frames + 1]
    node = RedisNode("n1", redis_server.url)
    await node.install(plan, RETENTION_EVENTS)
    await node.publish([first])
    with redis.Redis.from_url(redis_server.url) as client:
        client.xadd(node.keys.egress(1, "a"), {"m": "x", "s": "", "b": ""}, id="1-100")  # nobody of ours does that
    for _ in range(2):
        with pytest.raises(OtherSideError, match="XADD"):
            await node.publish(more)
    assert (await node.accepted(["a"]))["a"]["s"].last == 1
    await node.close()


async def test_a_seal_comes_after_all_that_is_there(shared_redis: EmbeddedServer) -> None:
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ())
    frames = tuple(PublishedFrame("a", 1, "s", 1, first, 1, b"[0,[0],[1]]") for first in (1, 2, 3))
    for tick in (0, 1, 3, 4, 9):
        await play(
            [Install(plan), Publish("n1", frames), Seal("n1", (("a", 1, tick), ("b", 1, tick)))], shared_redis.url
        )


async def test_a_call_of_thousands_of_atoms_is_not_too_much_for_the_script(shared_redis: EmbeddedServer) -> None:
    atoms = tuple(Atom(AtomId(number), ("a", "b"), "n1") for number in range(1, 9001))
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, atoms)
    frames = tuple(PublishedFrame(region, 1, "s", 1, 1, 1, b"[0,[0],[1]]") for region in "ab")
    alone = PublishedFrame("a", 1, "s", 1, 2, 1, b"[0,[0],[1]]")
    await play([Install(plan), Publish("n1", frames), Publish("n1", (alone,))], shared_redis.url)


async def test_what_the_script_stores_is_what_the_reader_reads(shared_redis: EmbeddedServer) -> None:
    redis.Redis.from_url(shared_redis.url).flushall()
    node, machine = RedisNode("n1", shared_redis.url), Node("n1")
    plan = Plan(1, 1, "overlap", {"n1": "", "n2": ""}, {"a": ("n1",), "b": ("n1", "n2")}, ())
    machine.install(1, 1, plan.steps("n1"))
    await node.install(plan, 10)
    frames = [PublishedFrame(region, 1, "s", 1, 1, 2, b"x") for region in "ab"]
    assert await node.publish(frames) == machine.publish(frames)
    assert await node.read({"a": (1, 0)}, frames_max=10, block_ms=100) == (machine.egress[1, "a"], {"a": 1})
    assert await node.read({"a": (1, 2)}, frames_max=10, block_ms=10) == ([], {"a": 1})
    linked: list[LinkedFrame] = await node.read_link("n2", 0, frames_max=10, block_ms=100)
    assert linked == machine.links["n2"]
    assert isinstance(linked[0].frame, StampedFrame)
    await node.close()


@pytest.mark.parametrize(
    "extras",
    [
        *("nonsense", "7", "{}", "[]", "[1,2]", '[[["x",0,0]],[]]', "[[[0]],[]]", '[[[0,"",0]],[]]', "[[[0,7,0]],[]]"),
        *('[[[1,"x",0]],[]]', '[[[-1,"x",0]],[]]', '[[[0.5,"x",0]],[]]', '[[[NaN,"x",0]],[]]', '[[[1e400,"x",0]],[]]'),
        *('[[],[["x"]]]', '[[],[["x",7]]]', '[[],[[7,""]]]', f'[[[0,"{"x" * 201}",0]],[]]', "[" * 2_000),
        "[[" + ",".join(['[0,"x",0]'] * 9_000) + "],[]]",
        *('[[],[],[["b"]]]', '[[],[],[["b",0.5]]]', "[[],[],[[7,1]]]", '[[],[],[["",1]]]', '[[],[],[["b",1],["b",1]]]'),
        *(
            '[[[0,"x",0]],[],[]]',
            '[[[0,"x",0,0,99,""]],[],[]]',
            '[[[0,"x",0,2,1,""]],[],[]]',
            '[[[0,"x",0,0,0,7]],[],[]]',
        ),
        *('[[],[["x","",1]],[]]', '[[],[["x","",-1]],[["b",1]]]', "[[],[],7]", "[[],[],[7]]", '[[],[],[["a",1]]]'),
    ],
)
async def test_what_no_publisher_says_of_keys_is_refused_before_anything_is_written(
    redis_server: EmbeddedServer, extras: str
) -> None:
    node = RedisNode("n1", redis_server.url)
    await node.install(Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ()), 100)
    good = PublishedFrame("a", 1, "good", 1, 1, 1, b"[]", extras=Extras((Named(0, "x", False),)))
    await node.publish([good])
    with redis.Redis.from_url(redis_server.url) as client:
        before = stored(client)
        words = ("a", 1, "evil", 1, 1, 1, 0, b"[]")
        try:
            await node.connection.run(STEP, node._step_keys, "publish+", *words, b"", *words, extras)
        except OtherSideError:
            assert stored(client) == before
        else:
            raise AssertionError("it was taken")
    assert await node.publish([replace(good, first=2)]) == [Answer(Verdict.OK, (1, 2))]
    await node.close()


async def test_a_node_of_a_network_that_was_lost_forgets_it_in_another_one(redis_server: EmbeddedServer) -> None:
    node, machine = RedisNode("n1", redis_server.url), Node("n1")
    nodes, paths = {"n1": "", "n2": ""}, {"a": ("n1",), "b": ("n1", "n2")}
    old, new = Plan(7, 1, "overlap", nodes, paths, ()), Plan(9, 1, "overlap", nodes, paths, (), first_epoch=8)
    for plan in (old, new):
        steps = [*plan.steps("n1")]
        machine.prepare(plan.epoch, plan.version, steps, {}, first_epoch=plan.first_epoch)
        await node.prepare(plan, 10, steps, {})
        frames = [
            PublishedFrame("a", plan.epoch, "s", 1, 1, 1, b"[]", extras=Extras((Named(0, "x", False),))),
            PublishedFrame("b", plan.epoch, "s", 1, 1, 1, b"[]"),
        ]
        answers = await node.publish(frames)
        assert answers == machine.publish(frames)
        assert [answer.verdict for answer in answers] == [Verdict.OK] * 2
        assert [answer.numbers for answer in answers] == [(plan.epoch, 1)] * 2
        assert await node.link_tails(["n2"]) == {"n2": machine.link_tail("n2")} == {"n2": 1}
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ttl(node.keys.egress(7, "a")) > 0, "it is removed when it is of no more use"
        assert client.ttl(node.keys.egress(9, "a")) == -1
    assert await node.begun(7) == frozenset()
    await node.close()


async def test_what_is_no_head_counts_for_none(redis_server: EmbeddedServer) -> None:
    node = RedisNode("n1", redis_server.url)
    await node.install(Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ()), 100)
    await node.publish([PublishedFrame("a", 1, "good", 1, 1, 1, b"[]", extras=Extras((Named(0, "x", False),)))])
    with redis.Redis.from_url(redis_server.url) as client:
        keys = NodeKeys("n1")
        client.hset(keys.heads("a"), mapping={b"\xff\xfe": b"1 2", "odd": "1 nan", "odder": "", "oddest": "-1 1"})
        client.hset(keys.keyed, mapping={b"\xff": b"0 0", "b": "nan nan"})
    assert await node.heads(["a", "b"]) == {"a": Heads({"x": (1, 1)}, began=1, values={"x": b" good\n"})}
    await node.close()
