"""Presence: who is in a region, in the order of its events.

Who arrives publishes an event that sets the key ``@NAME`` of the region, and who leaves one that deletes it. So the
roster of a region is part of its state, and all who follow it see arrivals and leaves in one order with its events.

Before it arrives, a connection registers (`adapters.presence`), and it is heard of there from then on. Each connection
that uses presence looks for others that were not heard of for `PRESENT_MS`, and publishes their leaves:

- On the condition that the arrival is still the last event of the key. So a late leave ends no later stay, and of
  several who publish it one does.
- As the connection that left, with an incarnation of its own, the next one, which is given to no other. From then on,
  ingresses refuse what the connection itself publishes there: after a leave, nothing more of that stay comes. A
  connection that only stood still hears of it (`SessionExpired`), and connects again.

The arrival may be on its way when it is looked for. Then the leave deletes nothing, and is published all the same: what
is late is refused after it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.network import Lane, Network
from adapters.presence import DUE_MAX, PRESENT_MS, Absent
from gamecast.arguments import checked_regions
from gamecast.client.following import Following
from gamecast.client.keys import About
from gamecast.client.outgoing import Outgoing
from gamecast.client.receipts import Token
from gamecast.event import Receipt
from gamecast.positions import parse_position
from sequencing.errors import Conflict, GamecastError, SessionExpired
from sequencing.frames import FrameKind, PublishedFrame
from sequencing.keyed import Condition, Named, Snapshot, Value
from sequencing.names import PRESENT, check_key
from sequencing.node import Verdict
from sequencing.outbox import OpenFrame
from sequencing.plan import Plan
from sequencing.session import Session

_log = logging.getLogger("gamecast")

BEAT_S = PRESENT_MS / 4000
"""How often a connection is heard of, and looks for those that are not."""

LEAVE_S_MAX = 0.5
"""How long closing waits for its leaves to be published; after that, others publish them."""


def key_of(name: str) -> str:
    """Return the key that says whether a connection is present."""
    return PRESENT + name


class Presences:
    """What one connection says of its own presence, and of others that say nothing more."""

    def __init__(self, network: Network, session: Session[Token], outgoing: Outgoing, following: Following) -> None:
        self._network, self._session = network, session
        self._outgoing, self._following = outgoing, following
        self._register = network.presence()
        self._last_incarnation = session.incarnation
        self._at: dict[str, str] = {}
        """Region → the position of this connection's arrival there, empty while it is not known."""
        self._turn = asyncio.Lock()
        """Of what is said to the register, and of what is known of it."""
        self._registered: set[str] = set()
        self._unsure: set[str] = set()
        """Regions that are to be taken out of the register, if they are there."""
        self._is_gone = False
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self) -> None:
        """Look for others that are not heard of, until `close`."""
        if not self._tasks:
            self._tasks = [
                keep_running(self._live, name="gamecast presence"),
                keep_running(self._look, name="gamecast absence"),
            ]

    def require_fit(self, regions: Iterable[str], info: Any) -> None:
        """Raise what hinders saying that this connection is in regions."""
        check_key(key_of(self._session.name))
        for region in checked_regions(regions, "subscribe"):
            self._outgoing.encoded(region, self._said(info))

    async def arrive(self, regions: Iterable[str], info: Any) -> None:
        """Publish that this connection is in regions."""
        coming = dict.fromkeys(regions, "")
        self._at |= coming
        self._outgoing.on_renewed = self._renewed
        try:
            may_be = await self._be(coming)
        except BaseException:
            self._forget(coming)
            raise
        if not may_be:
            raise self._expired()
        payload, about = self._said(info), About(key_of(self._session.name))
        receipts: list[Receipt] = await asyncio.gather(
            *(self._outgoing.publish(region, payload, about) for region in coming if region in self._at)
        )
        known = {each.region: each.position for each in receipts if each.region in self._at}
        self._at |= known
        if not await self._be(known, again=True):
            raise self._expired()

    async def _be(self, regions: Mapping[str, str], *, again: bool = False) -> bool:
        """Register regions; ``again``: only those that have not been left since."""
        async with self._turn:
            if again:
                regions = {region: position for region, position in regions.items() if region in self._registered}
                if not self._registered:
                    return True
            # It may have been renewed before it was present.
            self._last_incarnation = max(self._last_incarnation, self._session.last_incarnation)
            self._unsure |= regions.keys() - self._registered  # until the answer is there
            is_known = bool(self._registered)
            may_be = await self._register.be(regions, self._last_incarnation, is_known=is_known)
            self._unsure -= regions.keys()
            self._registered |= regions.keys()
            return may_be

    def _said(self, info: Any) -> Any:
        return {"incarnation": self._session.incarnation, "info": info}

    def _forget(self, regions: Iterable[str]) -> None:
        for region in regions:
            self._at.pop(region, None)

    async def leave(self, regions: Iterable[str]) -> None:
        """Publish that this connection leaves those of some regions where it is."""
        # Taken out first: an arrival that still waits for the register is not published behind its leave then.
        left = {region: self._at.pop(region) for region in regions if region in self._at}
        if left and not self._is_gone:
            try:
                await asyncio.gather(*(self._leave(region, position) for region, position in left.items()))
            except BaseException:
                self._at = left | self._at
                raise
            self._unsure.update(left)
            with suppress(GamecastError):  # then it is said with the next beat
                await self._unregister()

    async def _unregister(self) -> None:
        async with self._turn:
            if left := {*self._unsure}:
                self._registered -= left
                await self._register.left(left)
                self._unsure -= left

    async def _leave(self, region: str, position: str) -> None:
        key = key_of(self._session.name)
        try:
            await self._outgoing.publish(region, None, About(key, _condition(key, position)))
        except Conflict as conflict:
            if conflict.position is None or (position and not conflict.position.endswith("-0")):
                return  # others have said so
            # It was not known whether the arrival was published, or the region has lost its keys.
            with suppress(Conflict):
                await self._outgoing.publish(region, None, About(key, _condition(key, conflict.position)))

    async def close(self) -> None:
        """Leave all regions; what cannot be published in time, others publish."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(GamecastError, TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await self.leave([*self._at])
        if self._at:
            with suppress(GamecastError, TimeoutError):
                async with asyncio.timeout(LEAVE_S_MAX):
                    await self._register.end()

    async def _renewed(self, incarnation: int) -> None:
        """Note the incarnation that this connection's events have from now on."""
        self._last_incarnation = max(self._last_incarnation, incarnation)
        if not await self._be({}, again=True):
            raise self._expired()

    async def _live(self) -> None:
        """Be heard of. Nothing that takes long is done here: others would take this connection for absent."""
        backoff, wait_s = Backoff(), 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                await self._unregister()
                async with self._turn:
                    is_there = not self._registered or await self._register.beat()
                if not is_there and await self._is_same_network():
                    self._following.fail(self._expired())
                    return
                backoff.reset()
                wait_s = BEAT_S * random.uniform(0.8, 1.2)
            except GamecastError as error:
                _log.debug("presence: %s", error)
                wait_s = backoff.next_s()

    async def _is_same_network(self) -> bool:
        """Return whether the network is the one that this connection has joined; else `Following` says so."""
        record, plan = await self._network.listed(), self._following.plan
        return plan is None or (record is not None and record.plan.first_epoch == plan.first_epoch)

    async def _look(self) -> None:
        """Look for others that are not heard of."""
        backoff, wait_s = Backoff(), 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                gone = await self._register.due()
                await self._end_all(gone)
                backoff.reset()
                wait_s = BEAT_S * random.uniform(0.8, 1.2) if len(gone) < DUE_MAX else 0.0
            except GamecastError as error:
                _log.debug("absence: %s", error)
                wait_s = backoff.next_s()

    async def _end_all(self, gone: list[Absent]) -> None:
        """Publish that other connections have left. One node may not answer, so nothing waits for the others there."""
        plan = self._following.plan
        if plan is None:
            return
        left_at: dict[str, list[tuple[int, str]]] = {}
        for number, absent in enumerate(gone):
            for region in absent.regions:
                if region in plan.paths:
                    left_at.setdefault(plan.paths[region][0], []).append((number, region))
                else:
                    self._outgoing.want_place(region)
        done: set[tuple[int, str]] = set()
        at_nodes = (self._end_at(node, plan, gone, left, done) for node, left in left_at.items())
        await asyncio.gather(*at_nodes)
        for number, absent in enumerate(gone):
            if all((number, region) in done for region in absent.regions):
                await self._register.ended(absent)

    async def _end_at(
        self, node: str, plan: Plan, gone: list[Absent], left: list[tuple[int, str]], done: set[tuple[int, str]]
    ) -> None:
        """Publish leaves of regions that enter at a node; ``done``: where those are noted that need nothing more."""
        reader, lane = self._network.reader(node, plan), self._network.lane(node, plan)
        known: dict[str, Snapshot] = {}
        try:
            for number, region in left:
                async with asyncio.timeout(PRESENT_MS / 2000):
                    if region not in known:
                        known |= await reader.snapshots([(region, plan.epoch_of(region))]) or {}
                    if region in known and await self._end_in(region, plan, gone[number], known[region], lane):
                        done.add((number, region))
        except (GamecastError, TimeoutError) as error:
            _log.debug("absence at node %s: %s", node, error)
        finally:
            await reader.close()
            await lane.close()

    async def _end_in(self, region: str, plan: Plan, absent: Absent, known: Snapshot, lane: Lane) -> bool:
        """Publish that another connection has left; return whether nothing more is to be done there.

        ``known``: the keys of the region, which may be newer by now: then the next look knows that.
        """
        key = key_of(absent.name)
        value = known.values.get(key)
        position = f"{known.lost}-0" if known.lost else None  # what a key has that may have been lost
        if value is not None:
            incarnation = _incarnation_in(value)
            if incarnation > absent.last_incarnation:
                return True  # it is back, as another connection
            position = "{}-{}".format(*value.position)
        [answer] = await lane.publish([_leave_of(region, plan, absent, position)])
        if answer.verdict in (Verdict.OK, Verdict.SEEN):
            return True
        if answer.verdict in (Verdict.FENCED, Verdict.FORGOTTEN):
            # It is back, and has published here, or it can publish nothing more: what is left is its key.
            if value is not None:
                with suppress(Conflict):
                    await self._outgoing.publish(region, None, About(key, _condition(key, position)))
            return True
        return False  # the next look has a newer plan, or a newer event of the key

    def _expired(self) -> SessionExpired:
        self._is_gone = True
        return SessionExpired(
            f"others were told that {self._session.name!r} has left, because it was not heard of for "
            f"{PRESENT_MS / 1000:g} s: reconnect(), and subscribe again"
        )


def _leave_of(region: str, plan: Plan, absent: Absent, position: str | None) -> PublishedFrame:
    """Return a leave as the connection that left would publish it."""
    key = key_of(absent.name)
    frame: OpenFrame[None] = OpenFrame(
        binary=False,
        payloads=[b"null"],
        sent_at_ns=[time.time_ns()],
        tokens=[None],
        names=(Named(0, key, deletes=True),),
        conditions=_condition(key, position),
    )
    body = frame.body()
    whose = absent.name, max(absent.incarnation, absent.last_incarnation) + 1
    return PublishedFrame(region, plan.epoch_of(region), *whose, 1, 1, body, FrameKind.EVENTS, frame.extras(body))


def _condition(key: str, position: str | None) -> tuple[Condition, ...]:
    return (Condition(key, parse_position(position) if position is not None else None),)


def _incarnation_in(value: Value) -> int:
    """Return which connection has said that it is present; 0 for what none of ours has written."""
    try:
        said = orjson.loads(value.payload)
        return int(said["incarnation"])
    except (orjson.JSONDecodeError, TypeError, KeyError, ValueError):
        return 0
