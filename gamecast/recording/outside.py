"""Record a live network from outside: it is only read, and no member of it notices.

The announcements list the plans, and so the streams to read at each node: links show a frame where it leaves a node for
the next one, egress streams where it leaves the network. A frame's time at a node is the time when it was read there,
by this host's clock. So the times of one frame can be compared without other clocks.

Nothing is added to the network, no name, region or plan: memberships, atoms and epochs stay as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapters.backoff import Backoff
from adapters.redis.announced import Standing, with_people
from adapters.redis.control import RedisControl
from adapters.redis.node import RedisNode
from adapters.redis.tap import Look, NodeTap, Seen
from adapters.urls import as_user_of
from gamecast.recording.recorder import Recorder
from sequencing.errors import GamecastError, InvalidInput, is_passing
from sequencing.frames import CARRIES_EVENTS, parse_meta, parse_stamp
from sequencing.listing import listed
from sequencing.names import RegionPatterns
from sequencing.plan import Plan
from sequencing.record import Record

BLOCK_MS = 500
LAST_READ_S = 2.0
ANSWER_S = 2.0
"""How much longer a server may take to answer at the end."""
LIST_S = 1.0
"""Seconds between two looks at the regions of a network whose plan lists none."""
CLOCK_S = 1.0
"""Seconds between requests to each node's server for its time."""

OLD_STREAMS_S = 60.0
"""Seconds for which the streams of an older plan are still read: its last frames are in flight."""


@dataclass(slots=True)
class _Node:
    tap: NodeTap
    clock: NodeTap
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    round_trip_ns: int | None = None


class OutsideTap:
    """Records into one recorder, from `start` to `close`."""

    def __init__(
        self, recorder: Recorder, url: str, *, regions: str = "**", way: Callable[[str], str] | None = None
    ) -> None:
        """``url``: of the control Redis; ``regions``: a pattern, as in `Client.on`; ``way``: URL → URL to use."""
        self.frames = 0
        self.stamps: Counter[str] = Counter()
        """Node → frames seen there."""
        self.missed = 0
        """Frames that were removed from a link before they were read."""
        self.events = 0
        self._recorder = recorder
        self._url = url
        self._way = way or (lambda known: known)
        self._pattern = RegionPatterns([regions])
        self._control = RedisControl(self._way(url))
        self._nodes: dict[str, _Node] = {}
        self._plans: list[tuple[Plan, float]] = []
        self._members: dict[tuple[str, str], dict[str, Any]] = {}
        self._stays = 0
        self._from_begin = False
        """Whether new streams are read from their beginning; those that existed when the tap started are not."""
        self._standings: dict[str, Standing] = {}
        self._sole: Record | None = None
        """The newest record, if it lists no region."""
        self._lister: RedisNode | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.failure: Exception | None = None

    @property
    def plan(self) -> Plan | None:
        """The newest known plan."""
        return self._plans[-1][0] if self._plans else None

    async def start(self) -> None:
        """Learn the plans, and begin; raises `NetworkError` or `OtherSideError` if the network is not available."""
        await self._control.ping()
        newest = await self._control.newest()
        if newest is not None:
            # What changes while it is read is in the news, too.
            self._standings = await self._control.standings()
            await self._hear(newest)
            await asyncio.gather(*(node.tap.find_ends() for node in self._nodes.values()))
        self._from_begin = True
        for node in self._nodes.values():
            self._begin(node)
        self._task = asyncio.create_task(self._follow(), name="gamecast record news")

    async def close(self) -> None:
        """Read the frames that are there, for `LAST_READ_S` at most, and stop."""
        self._stopping = True
        tasks = [self._task] if self._task is not None else []
        tasks += [task for node in self._nodes.values() for task in node.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        loop = asyncio.get_running_loop()
        for node in self._nodes.values():
            end_s = loop.time() + LAST_READ_S
            try:
                async with asyncio.timeout(LAST_READ_S + ANSWER_S):
                    # A busy network always has more.
                    while loop.time() < end_s and (look := await node.tap.read(1)).seen:
                        self._take(node, look)
            except (GamecastError, TimeoutError) as error:
                self.failure = self.failure or error
            await node.tap.close()
            await node.clock.close()
        if self._lister is not None:
            await self._lister.close()
        await self._control.close()

    async def _follow(self) -> None:
        backoff = Backoff()
        while not self._stopping:
            try:
                for told in await self._control.news(self.plan, block_ms=BLOCK_MS):
                    for name, change in told.people.items():
                        self._standings[name] = change.after(self._standings.get(name, Standing()))
                    await self._hear(Record(told.plan))
                if self._sole is not None and time.monotonic() > self._plans[-1][1] + LIST_S:
                    await self._look_for_regions(self._sole)
                self._forget_old()
                backoff.reset()
            except GamecastError as error:
                if not is_passing(error):
                    self.failure = error
                    return
                await backoff.wait()

    async def _hear(self, record: Record) -> None:
        self._recorder.planned(record.plan)
        self._plans.append((record.plan, time.monotonic()))
        self._sole = record if record.plan.sole else None
        if self._sole is not None:
            await self._look_for_regions(self._sole)
        else:
            self._note_members(with_people(record, self._standings))
            self._turn_to_plans()

    async def _look_for_regions(self, record: Record) -> None:
        """Learn which regions and members there are, in a network whose plan lists none."""
        node = record.plan.sole
        if self._lister is None:
            url = as_user_of(record.plan.nodes[node], self._url) or self._url
            self._lister = RedisNode(node, self._way(url))
        fuller = listed(record, await self._control.interests(), await self._lister.begun(record.plan.epoch))
        self._plans[-1] = fuller.plan, time.monotonic()
        self._recorder.list_regions(fuller.plan.paths)
        self._note_members(fuller)
        self._turn_to_plans()

    def _forget_old(self) -> None:
        known = len(self._plans)
        horizon = time.monotonic() - OLD_STREAMS_S
        # A plan is left behind once its successor has existed for long enough.
        while len(self._plans) > 1 and self._plans[1][1] < horizon:
            self._plans.pop(0)
        if len(self._plans) != known:
            self._turn_to_plans()

    def _turn_to_plans(self) -> None:
        """Read the streams that the current plans use, and stop reading those of old ones."""
        streams: dict[str, set[tuple[str, int]]] = {}
        links: dict[str, set[str]] = {}
        urls: dict[str, str] = {}
        for plan, _ in self._plans:
            urls |= plan.nodes
            for region, path in plan.paths.items():
                if region in self._pattern:
                    streams.setdefault(path[-1], set()).add((region, plan.epoch_of(region)))
            for source, target in plan.links:
                links.setdefault(source, set()).add(plan.link_end(target))
        for name in streams.keys() | links.keys() | self._nodes.keys():
            node = self._nodes.get(name)
            if node is None:
                url = self._way(as_user_of(urls[name], self._url) or self._url)
                node = self._nodes[name] = _Node(NodeTap(name, url), NodeTap(name, url))
                if self._from_begin:
                    self._begin(node)
            node.tap.follow(streams.get(name, ()), links.get(name, ()), from_begin=self._from_begin)

    def _begin(self, node: _Node) -> None:
        node.tasks = [
            asyncio.create_task(self._read(node), name=f"gamecast record {node.tap.name}"),
            asyncio.create_task(self._ask_clock(node), name=f"gamecast record clock {node.tap.name}"),
        ]

    async def _read(self, node: _Node) -> None:
        backoff = Backoff()
        while not self._stopping:
            try:
                look = await node.tap.read(BLOCK_MS)
                backoff.reset()
            except GamecastError as error:
                if not is_passing(error):
                    self.failure = error
                    return
                await backoff.wait()
                continue
            self._take(node, look)
            # Send the next request at once: links are trimmed soon.
            await asyncio.sleep(0)

    async def _ask_clock(self, node: _Node) -> None:
        while not self._stopping:
            try:
                sent, reached, returned = await node.clock.clock()
            except GamecastError:
                await asyncio.sleep(CLOCK_S)
                continue
            if returned > sent:
                node.round_trip_ns = min(node.round_trip_ns or returned - sent, returned - sent)
            row = {
                "kind": "node",
                "origin": self._recorder.name,
                "target": node.tap.name,
                "origin_host": self._recorder.host,
                "target_host": f"node {node.tap.name}",
                "sent_at_ns": sent,
                "reached_at_ns": reached,
                "answered_at_ns": reached,
                "returned_at_ns": returned,
            }
            self._recorder.add("probes", row)
            await asyncio.sleep(CLOCK_S)

    def _take(self, node: _Node, look: Look) -> None:
        if look.missed:
            self.missed += look.missed
            self._recorder.count_lost("stamps", "unread", look.missed)
        known = look.not_before_ns and node.round_trip_ns is not None
        not_before_ns = look.not_before_ns - (node.round_trip_ns or 0) if known else None
        for seen in look.seen:
            if seen.frame.region in self._pattern:
                self._note(node.tap.name, seen, look.at_ns, not_before_ns)

    def _note(self, node: str, seen: Seen, at_ns: int, not_before_ns: int | None) -> None:
        """Record a frame that was seen at a node: its stamps there, and all of it where it leaves the network."""
        region, epoch, last, meta, stamp, body = seen.frame
        try:
            kind, events, _ = parse_meta(meta)
            numbers = parse_stamp(stamp)
        except InvalidInput:
            self._recorder.count_lost("frames", "unread", 1)
            return
        if kind not in CARRIES_EVENTS:
            return
        plan = self._plan_of(region, epoch, node)
        if plan is None:
            self._recorder.count_lost("stamps", "unread", 1)
            return
        path = plan.paths[region]
        here = {int(atom.id) for atom in plan.atoms_of.get(region, ()) if atom.node == node}
        passed = zip(numbers[::2], numbers[1::2], strict=True)
        pairs: list[tuple[int | None, int | None]] = [(atom, number) for atom, number in passed if atom in here]
        place = region, epoch, last, path.index(node), len(path), at_ns, not_before_ns
        self._recorder.add_stamps([(node, *place, *pair) for pair in pairs or [(None, None)]])
        self.stamps[node] += 1
        if seen.leaves:
            self.frames += 1
            self.events += events
            note = region, epoch, last, meta, stamp, len(body), at_ns, _first_sent_at_ns(body)
            self._recorder.add_frame(note)

    def _plan_of(self, region: str, epoch: int, node: str) -> Plan | None:
        for plan, _ in reversed(self._plans):
            path = plan.paths.get(region)
            if path is not None and plan.epoch_of(region) == epoch and node in path:
                return plan
        return None

    def _note_members(self, record: Record) -> None:
        """Note which regions each subscriber has now, as far as the record counts them."""
        at = time.time_ns()
        there = {
            (subscriber, region)
            for subscriber, regions in record.members.items()
            for region in regions
            if region in self._pattern
        }
        for key in sorted(self._members.keys() - there):
            row = self._members.pop(key)
            self._note_stay({**row, "revision": 1, "left_at_ns": at, "noted_at_ns": at})
        for subscriber, region in sorted(there - self._members.keys()):
            heard = record.heard.get(subscriber)
            self._stays += 1
            row = {
                "subscriber": subscriber,
                "incarnation": heard.incarnation if heard is not None else None,
                "host": self._recorder.host,
                "stay": -self._stays,
                "revision": 0,
                "region": region,
                "joined_at_ns": at,
                "epoch": record.plan.epoch_of(region) if region in record.plan.paths else None,
                "noted_at_ns": at,
            }
            self._members[subscriber, region] = row
            self._note_stay(row)

    def _note_stay(self, row: dict[str, Any]) -> None:
        self._recorder.add("stays", row)


def _first_sent_at_ns(body: bytes) -> int | None:
    """Return when the first event of a frame was published, None if the body does not contain it."""
    head = body.removeprefix(b"\x00")[:32]
    try:
        first_ns = orjson.loads(head[1 : head.index(b",")])
    except ValueError:
        return None
    return first_ns if type(first_ns) is int else None
