"""What the connections to a network in memory share, and the faults that tests ask for."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from adapters.background import keep_running
from adapters.leadership import BLIND_MS, TTL_MS
from adapters.manager import Manager
from adapters.network import Found, Hidden, Sender, UpdateUser
from adapters.places import Position
from adapters.presence import PresentInMemory
from adapters.relay import Relays, RelayTask
from sequencing.cut import NodeReads, ReadResult
from sequencing.errands import Seen
from sequencing.errors import (
    SessionExpired,
    Unreachable,
    session_expired_message,
)
from sequencing.frames import CARRIES_EVENTS, FrameKind, LinkedFrame, PublishedFrame, StampedFrame, parse_meta
from sequencing.keyed import Snapshot
from sequencing.listing import listed
from sequencing.node import Answer, Node, TransferAnswer
from sequencing.pending import Judgement, Passing
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Pair, Record
from sequencing.steps import StepState
from sequencing.store import ControlStore, Fence, Known
from sequencing.transition import Task

if TYPE_CHECKING:  # the leader brings them
    from sequencing.sole import BeginAny, BeginNoMore

T = TypeVar("T")

FAULTS = "gamecast.testing.faults"
"""The name of the publisher whose events are lost, to make gaps."""

BLOCK_MS = 2_000
"""How long a read waits at most: then it looks again whether the node can be reached."""


class MemoryWorld:
    """The shared state of all connections of one ``memory://NAME``. It lives while any of them is open."""

    def __init__(self, nodes: int, retention_events: int, ordering: Ordering, resume_s: float) -> None:
        self.nodes = {f"n{number}": Node(f"n{number}", retention_events) for number in range(1, nodes + 1)}
        self.store = ControlStore(dict.fromkeys(self.nodes, ""), ttl_ms=TTL_MS, blind_ms=BLIND_MS)
        self.probes: dict[str, bytes] = {}
        self.present = PresentInMemory()
        self.update_users: dict[tuple[str, str], dict[UpdateUser, None]] = {}
        """(node, region) → who listens to its updates."""
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.relays = Relays(self._relay)
        self.faults = MemoryFaults(self)
        self._changed = asyncio.Event()
        self._manager = Manager(MemoryControl(self), partial(MemoryNodeOperator, self), ordering, resume_s=resume_s)
        self._managing = keep_running(self._manager.run, name="gamecast manager")

    @property
    def cannot_plan(self) -> Exception | None:
        """See `Manager.cannot_plan`."""
        return self._manager.cannot_plan

    @property
    def now_ms(self) -> float:
        """The time of the control store."""
        return self.loop.time() * 1000

    def listed(self) -> Record | None:
        """See `Network.listed`."""
        record = next(iter(self.store.news(None)), None)
        if record is None or not record.plan.sole:
            return record
        return listed(record, self.store.interests, self.nodes[record.plan.sole].begun(record.plan.epoch))

    def changed(self) -> None:
        """Wake all tasks that wait for something to read."""
        self._changed.set()
        self._changed = asyncio.Event()

    def stepped(self, node: Node) -> None:
        """Wake all tasks that wait for the results of a node's step."""
        self.faults.stepped(node)
        self.changed()

    async def change(self, block_ms: int) -> None:
        """Wait for the next change, up to ``block_ms``."""
        try:
            async with asyncio.timeout(block_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def end(self) -> None:
        """Stop all tasks of this world."""
        await self._manager.stop()
        await self._managing
        await self.relays.stop()

    def _relay(self, source: str, target: str, plan: Plan) -> RelayTask:
        return RelayTask(MemoryNode(self, source), MemoryNode(self, target), (source, target))


class MemoryFaults:
    """The injected faults of a world; see `gamecast.testing.faults`.

    Frames are lost where a server loses them: in the stream that subscribers read. The subscribers handle the rest.
    """

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self._disconnected: set[str] = set()
        self._expired: set[int] = set()
        """Expired connections: the network continues without them."""
        self._losing: dict[str, int] = {}
        """Region → how many of its next events must be lost."""
        self._gaps: list[tuple[str, int]] = []
        """Gaps, (region, events) each, that wait for an open ingress; 0 events: only the marker that reveals one."""
        self._seen: dict[tuple[str, int, str], int] = {}
        """Stream (node, epoch, region) → the last number that steps have produced."""

    def gap(self, region: str, events: int) -> None:
        """Lose events that nobody published, at once."""
        self._watch()
        self._gaps.append((region, events))
        self._show_gaps()

    def lose(self, region: str, events: int) -> None:
        """Lose the next events of a region."""
        self._watch()
        self._losing[region] = self._losing.get(region, 0) + events

    def disconnect(self, name: str) -> None:
        """Refuse all requests of a name's connection."""
        self._disconnected.add(name)
        self._world.changed()

    def reconnect(self, name: str) -> None:
        """Accept the requests of a name's connection again."""
        self._disconnected.discard(name)
        self._world.changed()

    def expire(self, name: str) -> None:
        """Continue without a name's connection, which gets an error when it asks for news."""
        self._expired.add(self._world.store.connections[name])
        self._world.store.expire(name)
        self._world.changed()

    def require_reachable(self, name: str) -> None:
        """Raise `Unreachable` for a connection that is disconnected."""
        if name in self._disconnected:
            raise Unreachable(f"the test disconnected {name!r}: connect it again with faults.reconnect({name!r})")

    def require_known(self, name: str, connection: int) -> None:
        """Raise `Unreachable`, or `SessionExpired` for a connection that has expired."""
        self.require_reachable(name)
        if connection in self._expired:
            raise SessionExpired(session_expired_message(name))

    def stepped(self, node: Node) -> None:
        """Lose the results of a node's step that must be lost."""
        if not self._seen:
            return
        for (epoch, region), stream in node.egress.items():
            seen = self._seen.get((node.name, epoch, region), 0)
            if not stream or stream[-1].last <= seen:
                continue
            self._seen[node.name, epoch, region] = stream[-1].last
            kept = [frame for frame in stream if frame.last <= seen or not self._is_lost(frame)]
            if len(kept) < len(stream):
                stream[:] = kept
        self._show_gaps()

    def _watch(self) -> None:
        """Begin to watch the results of steps."""
        for node in self._world.nodes.values():
            for (epoch, region), stream in node.egress.items():
                if stream:
                    self._seen[node.name, epoch, region] = stream[-1].last
            self._seen.setdefault((node.name, 0, ""), 0)

    def _is_lost(self, frame: StampedFrame) -> bool:
        kind, events, publisher = parse_meta(frame.meta)
        if kind not in CARRIES_EVENTS:
            return False
        if publisher == FAULTS:
            return True
        left = self._losing.pop(frame.region, 0)
        if left > events:
            self._losing[frame.region] = left - events
        if left:
            self._gaps.append((frame.region, 0))  # so that its subscribers need not wait for the next event
        return left > 0

    def _show_gaps(self) -> None:
        """Publish the events to lose, and a marker after them, which shows subscribers that something is missing."""
        waiting, self._gaps = self._gaps, []
        for region, events in waiting:
            ingresses = [
                (epoch, node)
                for node in self._world.nodes.values()
                for (epoch, placed), step in node.steps.items()
                if placed == region and step.state is StepState.OPEN
            ]
            if not ingresses and self._world.store.is_sole:
                ingresses = [(node.any_epoch, node) for node in self._world.nodes.values()]
            if not ingresses:
                self._gaps.append((region, events))
                continue
            epoch, node = max(ingresses, key=lambda each: each[0])
            incarnation = self._world.store.next_incarnation()
            marker = PublishedFrame(region, epoch, FAULTS, incarnation, events + 1, 1, b"", FrameKind.JOIN)
            lost = PublishedFrame(region, epoch, FAULTS, incarnation, 1, events, b"")
            node.publish([lost, marker] if events else [marker])
            self._world.stepped(node)


class MemoryNode:
    """One task's access to one node in memory."""

    def __init__(self, world: MemoryWorld, name: str, of: str = "", sender: Sender | None = None) -> None:
        """``of``: the name of the connection that uses it, empty for a relay; ``sender``: its publishing."""
        self.name, self._of, self._sender = name, of, sender
        self._world = world
        self._node = world.nodes[name]
        self._reads = NodeReads()

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        await asyncio.sleep(0)
        self._world.faults.require_reachable(self._of)
        answers = self._node.publish(frames)
        self._world.stepped(self._node)
        return answers

    def offer(self) -> None:
        """See `Lane.offer`: everything is published by tasks here."""
        if self._sender is not None:
            self._sender.must_publish()

    def may_send(self) -> bool:
        """See `Lane.may_send`."""
        return False

    def send(self, frame: PublishedFrame) -> None:
        """See `Lane.send`."""
        raise AssertionError("it may not")

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """See `LinkTarget.transfer`."""
        answer = self._node.transfer(source, frames)
        self._world.stepped(self._node)
        return answer

    async def undecided(self) -> Mapping[str, Passing]:
        """See `LinkSource.undecided`."""
        return self._node.undecided()

    async def resolve(self, judgements: Mapping[str, Judgement | int]) -> None:
        """See `LinkSource.resolve`."""
        self._node.resolve(judgements)
        self._world.stepped(self._node)

    async def verdicts(self, source: str) -> Mapping[str, Judgement]:
        """See `LinkTarget.verdicts`."""
        return self._node.verdicts(source)

    async def settle(self, frames: Iterable[str]) -> None:
        """See `LinkTarget.settle`."""
        self._node.settle(frames)

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """See `Reader.read`."""
        self._world.faults.require_reachable(self._of)
        streams = {region: epoch for region, (epoch, _) in after.items()}
        frames = self._read_now(after, frames_max)
        if not frames and block_ms is not None and self._reads.may_wait(streams):
            await self._world.change(min(block_ms, BLOCK_MS))
            self._world.faults.require_reachable(self._of)
            frames = self._read_now(after, frames_max)
        return self._reads.result(streams, frames, frames_max)

    async def snapshots(self, regions: Sequence[tuple[str, int]]) -> dict[str, Snapshot] | None:
        """See `Reader.snapshots`."""
        await asyncio.sleep(0)
        self._world.faults.require_reachable(self._of)
        return self._node.snapshots(regions)

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._world.changed()

    def tell(self, receiver: Found | None) -> None:
        """See `Reader.tell`: not here."""

    def hidden(self) -> Sequence[Hidden]:
        """See `Reader.hidden`: here it is always empty."""
        return ()

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        self._world.faults.require_reachable(self._of)
        egresses = (self._node.egress.get((epoch, region)) for region, epoch in streams)
        return [stream[-1] if stream else None for stream in egresses]

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> list[LinkedFrame]:
        """See `LinkSource.read_link`."""
        link = self._node.links.get(target, [])
        frames = [linked for linked in link[: 2 * frames_max] if linked.sequence > after][:frames_max]
        if not frames:
            await self._world.change(block_ms)
        return frames

    opened = 1
    """See `LinkSource.opened`."""

    async def sent(self, target: str) -> tuple[int, int]:
        """See `LinkSource.sent`."""
        link = self._node.links.get(target, [])
        return self._node.link_last.get(target, 0), link[0].sequence if link else 0

    async def taken(self, source: str) -> int:
        """See `LinkTarget.taken`."""
        return self._node.accepted_from.get(source, 0)

    async def report_loss(self, lost: str) -> None:
        """See `LinkSource.report_loss`: nothing is lost here."""

    async def copied(self) -> None:
        """See `LinkSource.copied`: there are no replicas."""

    async def acknowledge(self, target: str, accepted: int) -> None:
        """See `LinkSource.acknowledge`."""
        self._node.acknowledge(target, accepted)

    async def close(self) -> None:
        """Wake a waiting `read` or `read_link`: it checks again, and its caller sees that it should stop."""
        self._world.changed()

    def _read_now(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        frames: list[StampedFrame] = []
        for region, position in after.items():
            stream = self._node.egress.get((position[0], region), [])
            start = bisect_right(stream, position[1], key=lambda frame: frame.last)
            frames += stream[start : start + frames_max]
        return frames


class MemoryControl:
    """A candidate's access to the control store in memory. Implements `adapters.leadership.Control`."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world, self._store = world, world.store
        self._known = Known()
        self._fence = 0

    def learn(self, other: MemoryControl) -> None:
        """Know what another access has learnt since it was a copy of this one."""
        self._known = max(self._known, other._known)
        self._fence = max(self._fence, other._fence)

    async def failed(self, reason: str) -> None:
        """See `Control.failed`: there is no look from outside."""

    async def look(self, token: str, lease_ms: int, *, begins: bool = True) -> Seen | None:
        """See `Control.look`."""
        seen = self._store.look(token, lease_ms, self._world.now_ms, self._known)
        if seen is not None:
            self._known = self._store.known
            if begins:
                self._fence = self._known.number
        return seen

    async def expected(self) -> frozenset[Pair]:
        """See `Control.expected`."""
        return self._store.expected

    async def keep(self, token: str, lease_ms: int) -> bool:
        """See `Control.keep`."""
        return self._store.keep(token, lease_ms, self._world.now_ms)

    async def save(self, token: str, record: Record) -> bool:
        """See `Control.save`."""
        return self._write(self._store.save, token, record)

    async def announce(self, token: str, record: Record) -> bool:
        """See `Control.announce`."""
        return self._tell(self._store.announce, token, record)

    async def grant(self, token: str, record: Record) -> bool:
        """See `Control.grant`."""
        return self._tell(self._store.grant, token, record)

    async def settle(self, token: str, record: Record) -> bool:
        """See `Control.settle`."""
        return self._tell(self._store.settle, token, record)

    async def found(self, token: str, record: Record) -> bool:
        """See `Control.found`."""
        return self._tell(self._store.found, token, record)

    async def begin_to_plan(self, token: str) -> Mapping[str, Interest] | None:
        """See `Control.begin_to_plan`."""
        wanted = self._store.begin_to_plan(Fence(token, self._fence), self._world.now_ms)
        if wanted is not None:
            self._wrote()
        return wanted

    async def proposal(self) -> tuple[str, Plan] | None:
        """See `Control.proposal`: no operator reaches another process's memory."""
        return self._store.proposed

    async def answer(self, token: str, proposal: str, answer: str) -> bool:
        """See `Control.answer`."""
        return self._store.answer(token, proposal, answer, self._world.now_ms)

    async def runs_seen(self) -> Mapping[str, str]:
        """See `Control.runs_seen`."""
        return dict(self._store.runs)

    async def note_runs(self, token: str, runs: Mapping[str, str]) -> bool:
        """See `Control.note_runs`."""
        return self._write(self._store.note_runs, token, runs)

    async def incarnations(self) -> tuple[int, frozenset[str]]:
        """See `Control.incarnations`."""
        return self._store.incarnation, frozenset(self._store.connections)

    async def resign(self, token: str) -> None:
        """See `Control.resign`."""
        self._store.resign(token)

    async def asked(self, after: str, *, block_ms: int) -> None:
        """See `Control.asked`."""
        if self._store.asked == after:
            await self._world.change(block_ms)

    async def close(self) -> None:
        """See `Control.close`."""
        self._world.changed()

    def _write(self, how: Callable[[Fence, T, float], bool], token: str, what: T) -> bool:
        done = how(Fence(token, self._fence), what, self._world.now_ms)
        if done:
            self._wrote()
        return done

    def _wrote(self) -> None:
        self._fence = self._store.known.number
        self._known = self._known._replace(number=self._fence)

    def _tell(self, how: Callable[[Fence, Record, float], bool], token: str, record: Record) -> bool:
        done = self._write(how, token, record)
        if done:
            self._world.relays.follow(record)
            self._world.changed()
        return done


class MemoryNodeOperator:
    """The nodes in memory. Implements `adapters.leadership.NodeOperator`."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world

    emptied: frozenset[str] = frozenset()
    """See `NodeOperator.emptied`."""
    installed: Mapping[str, tuple[int, int, int]] = {}
    """See `NodeOperator.installed`: the control store of this process loses nothing."""

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """See `NodeOperator.runs`."""
        return nodes

    async def perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        """See `NodeOperator.perform`."""
        node = self._world.nodes[task.node]
        answer = task.perform(node)
        self._world.stepped(node)
        return answer

    async def forget_publishers(self, plan: Plan, upto: int, living: AbstractSet[str]) -> None:
        """See `NodeOperator.forget_publishers`."""
        for node in self._world.nodes.values():
            known = {*node.accepted_of, *node.outcomes}
            node.forget_publishers([each for each in known if each[1] not in living], upto)

    async def close(self) -> None:
        """See `NodeOperator.close`."""
