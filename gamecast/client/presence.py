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
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson

from adapters.backoff import Backoff
from adapters.network import Network
from adapters.presence import PRESENT_MS, Absent
from gamecast.client.following import Following
from gamecast.client.keys import About
from gamecast.client.outgoing import Outgoing
from gamecast.client.receipts import Token
from gamecast.event import Receipt
from gamecast.positions import parse_position
from sequencing.errors import Conflict, GamecastError, SessionExpired
from sequencing.frames import FrameKind, PublishedFrame
from sequencing.keyed import Condition, Named, Value
from sequencing.names import PRESENT
from sequencing.node import Answer, Verdict
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
        self._is_gone = False
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look for others that are not heard of, until `close`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="gamecast presence")

    async def arrive(self, regions: Iterable[str], info: Any) -> None:
        """Publish that this connection is in regions."""
        coming = dict.fromkeys(regions, "")
        if not await self._register.be(coming, self._last_incarnation):
            raise self._expired()
        self._at |= coming
        self._outgoing.on_renewed = self._renewed
        payload = {"incarnation": self._session.incarnation, "info": info}
        about = About(key_of(self._session.name))
        receipts: list[Receipt] = await asyncio.gather(
            *(self._outgoing.publish(region, payload, about) for region in coming)
        )
        for receipt in receipts:
            self._at[receipt.region] = receipt.position
        if not await self._register.be({each.region: each.position for each in receipts}, self._last_incarnation):
            raise self._expired()

    async def leave(self, regions: Iterable[str]) -> None:
        """Publish that this connection leaves those of some regions where it is."""
        left = [region for region in regions if region in self._at]
        if left and not self._is_gone:
            await asyncio.gather(*map(self._leave, left))
            await self._register.left(left)
        for region in left:
            del self._at[region]

    async def _leave(self, region: str) -> None:
        key = key_of(self._session.name)
        position = self._at[region]
        try:
            await self._outgoing.publish(region, None, About(key, _condition(key, position)))
        except Conflict as conflict:
            if position or conflict.position is None:
                return  # others have said so
            with suppress(Conflict):  # it was not known whether the arrival was published
                await self._outgoing.publish(region, None, About(key, _condition(key, conflict.position)))

    async def close(self) -> None:
        """Leave all regions; what cannot be published in time, others publish."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
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
        if self._at and not await self._register.be({}, self._last_incarnation):
            raise self._expired()

    async def _run(self) -> None:
        backoff, wait_s = Backoff(), 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                if self._at and not await self._register.beat():
                    self._is_gone = True
                    self._following.fail(self._expired())
                    return
                for absent in await self._register.due():
                    if await self._end(absent):
                        await self._register.ended(absent)
                backoff.reset()
                wait_s = BEAT_S * random.uniform(0.8, 1.2)
            except GamecastError as error:
                _log.debug("presence: %s", error)
                wait_s = backoff.next_s()

    async def _end(self, absent: Absent) -> bool:
        """Publish that another connection has left; return whether that is done in all of its regions."""
        outcomes = await asyncio.gather(*(self._end_in(region, absent) for region in absent.regions))
        return all(outcomes)

    async def _end_in(self, region: str, absent: Absent) -> bool:
        plan = self._following.plan
        if plan is None:
            return False
        if region not in plan.paths:
            self._outgoing.want_place(region)
            return False
        value = await self._value(region, plan, key_of(absent.name))
        position: str | None = None
        if value is not None:
            incarnation = _incarnation_in(value)
            if incarnation > absent.last_incarnation:
                return True  # it is back, as another connection
            position = "{}-{}".format(*value.position)
        answer = await self._publish(region, plan, absent, position)
        if answer.verdict in (Verdict.OK, Verdict.SEEN):
            return True
        if answer.verdict in (Verdict.FENCED, Verdict.FORGOTTEN):
            # It is back, and has published here, or it can publish nothing more: what is left is its key.
            key = key_of(absent.name)
            if position is not None:
                with suppress(Conflict):
                    await self._outgoing.publish(region, None, About(key, _condition(key, position)))
            return True
        return False  # the next look has a newer plan, or a newer event of the key

    async def _value(self, region: str, plan: Plan, key: str) -> Value | None:
        reader = self._network.reader(plan.paths[region][0], plan)
        try:
            found = await reader.snapshots([(region, plan.epoch_of(region))])
        finally:
            await reader.close()
        if found is None:
            raise _NotOpen("the ingress of the region has moved")
        return found[region].values.get(key)

    async def _publish(self, region: str, plan: Plan, absent: Absent, position: str | None) -> Answer:
        """Publish a leave as the connection that left."""
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
        sent = PublishedFrame(region, plan.epoch_of(region), *whose, 1, 1, body, FrameKind.EVENTS, frame.extras(body))
        lane = self._network.lane(plan.paths[region][0], plan)
        try:
            [answer] = await lane.publish([sent])
        finally:
            await lane.close()
        return answer

    def _expired(self) -> SessionExpired:
        self._is_gone = True
        return SessionExpired(
            f"others were told that {self._session.name!r} has left, because it was not heard of for "
            f"{PRESENT_MS / 1000:g} s: reconnect(), and subscribe again"
        )


class _NotOpen(GamecastError):
    """A region is not where a plan says, not yet or not any more."""

    retriable = True


def _condition(key: str, position: str | None) -> tuple[Condition, ...]:
    return (Condition(key, parse_position(position) if position is not None else None),)


def _incarnation_in(value: Value) -> int:
    """Return which connection has said that it is present; 0 for what none of ours has written."""
    try:
        said = orjson.loads(value.payload)
        return int(said["incarnation"])
    except (orjson.JSONDecodeError, TypeError, KeyError, ValueError):
        return 0
