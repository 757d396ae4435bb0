"""A network whose control plane and sequencing nodes live in Redis.

The control Redis holds, under one hash tag: the roster, the registry of nodes, the lease of whoever plans, and the
plans, as a stream whose entry ids are ``epoch-version``, so that a plan can only follow older ones. Who publishes first
plans: there is no daemon to wait for.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from adapters.redis_connection import RedisConnection, Script, redacted
from adapters.redis_node import RedisNode
from sequencing.errors import GamecastError, MembershipSettled, NetworkError, PlanError, Superseded
from sequencing.names import check_node_name
from sequencing.plan import Ordering, Plan
from sequencing.roster import settled_message, superseded_message

ROSTER = Script.beside(__file__, "roster.lua")
RELEASE = Script(b"return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0")

TTL_MS = 10_000
"""A connection that has not been heard of for so long counts as gone."""

LEASE_MS = 10_000
"""How long a planner may take before another may try: planning and installing take well under a second."""

LEASE_POLL_S = 0.05
PLANS_KEPT = 16
"""For whoever wants to see how the network came to be; only the newest counts."""

SOLE_NODE = "n1"
"""A network in which no node is registered sequences in the control Redis itself, under this name."""


class ControlKeys:
    """The Redis keys of the control plane."""

    state = "gamecast:{control}:state"
    members = "gamecast:{control}:members"
    alive = "gamecast:{control}:alive"
    participants = "gamecast:{control}:participants"
    incarnations = "gamecast:{control}:incarnations"
    nodes = "gamecast:{control}:nodes"
    lease = "gamecast:{control}:lease"
    plans = "gamecast:{control}:plans"
    roster = (state, members, alive, participants, incarnations)


class RedisNetwork:
    """One connection's view of a network in Redis. Implements `adapters.network.Network`."""

    def __init__(self, url: str, *, ordering: Ordering, retention_events: int) -> None:
        """``url``: of the control Redis. ``ordering`` and ``retention_events`` count for plans made from here."""
        self.url = url
        self._ordering = ordering
        self._retention_events = retention_events
        self._calls = RedisConnection(url)
        self._calls_turn = asyncio.Lock()
        self._watch = RedisConnection(url)
        self._planning = asyncio.Lock()
        self._name = ""
        self._incarnation = 0

    async def open(self) -> None:
        """Reach the control Redis."""
        await self._call("PING")

    async def close(self) -> None:
        """Close the connections to the control Redis."""
        await self._watch.close()
        await self._calls.close()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        self._name = name
        self._incarnation = int(await self._roster("introduce"))
        return self._incarnation

    async def renew(self) -> int:
        """See `Network.renew`."""
        self._incarnation = int(await self._roster("renew"))
        return self._incarnation

    async def subscribe(self, regions: Iterable[str]) -> int:
        """See `Network.subscribe`."""
        wanted = sorted(regions)
        answer = await self._roster("subscribe", *wanted)
        if answer == b"settled":
            raise MembershipSettled(settled_message(self._name, wanted))
        return int(answer)

    async def unsubscribe(self, regions: Iterable[str]) -> bool:
        """See `Network.unsubscribe`."""
        return bool(await self._roster("unsubscribe", *sorted(regions)))

    async def subscribed(self) -> frozenset[str]:
        """See `Network.subscribed`."""
        return frozenset(orjson.loads(await self._roster("subscribed")))

    async def beat(self) -> None:
        """See `Network.beat`."""
        await self._roster("beat")

    async def leave(self) -> None:
        """See `Network.leave`."""
        await self._roster("leave")

    async def settle(self, regions: Iterable[str]) -> Plan:
        """See `Network.settle`. Under the lease: settle the roster, plan, check, install, publish the plan."""
        wanted = frozenset(regions)
        async with self._planning:
            while True:
                epoch = int(await self._roster("publishing"))
                plan = await self.latest_plan()
                if plan is not None and plan.epoch >= abs(epoch) and wanted <= plan.paths.keys():
                    return plan
                token = secrets.token_hex(8)
                if await self._call("SET", ControlKeys.lease, token, "NX", "PX", LEASE_MS):
                    break
                await asyncio.sleep(LEASE_POLL_S)
            try:
                plan = await self.latest_plan()
                if plan is None or plan.epoch < abs(epoch):
                    plan = await self._first_plan(wanted, before=plan)
                elif missing := wanted - plan.paths.keys():
                    plan = await self._install_or_newer(plan.with_regions(missing))
                return plan
            finally:
                await self._release(token)

    async def plan_since(self, epoch: int, *, block_ms: int) -> Plan | None:
        """See `Network.plan_since`."""
        return await self.plan_after(epoch, 0, block_ms=block_ms)

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        await self._watch.close()

    async def plan_after(self, epoch: int, version: int, *, block_ms: int) -> Plan | None:
        """Return the newest plan later than (epoch, version), waiting up to ``block_ms`` for one."""
        reply = await self._watch.call("XREAD", "BLOCK", block_ms, "STREAMS", ControlKeys.plans, f"{epoch}-{version}")
        if not reply:
            return None
        return Plan.from_json(reply[0][1][-1][1][1])

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""
        newest = await self._call("XREVRANGE", ControlKeys.plans, "+", "-", "COUNT", 1)
        return Plan.from_json(newest[0][1][1]) if newest else None

    async def nodes(self) -> Mapping[str, str]:
        """Return the registered nodes, name → url (empty: the control Redis), in the order of their names."""
        flat = await self._call("HGETALL", ControlKeys.nodes)
        found = {name.decode(): url.decode() for name, url in zip(flat[::2], flat[1::2], strict=True)}
        return dict(sorted(found.items())) or {SOLE_NODE: ""}

    async def register_node(self, name: str, url: str) -> None:
        """Add a sequencing node to the registry; plans made from now on use it. ``url`` empty: the control Redis."""
        await self._call("HSET", ControlKeys.nodes, check_node_name(name), url)

    def lane(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.lane`."""
        return RedisNode(node, plan.nodes[node] or self.url)

    def reader(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.reader`."""
        return self.lane(node, plan)

    async def _first_plan(self, wanted: frozenset[str], *, before: Plan | None) -> Plan:
        """Settle, plan and install an epoch; when no plan comes of it, membership is open again."""
        epoch, flat = await self._roster("settle")
        members = {
            subscriber.decode(): orjson.loads(packed) for subscriber, packed in zip(flat[::2], flat[1::2], strict=True)
        }

        def plan_it(nodes: Mapping[str, str]) -> Plan:
            from adapters.planning import plan_epoch

            return plan_epoch(members, wanted, nodes, epoch=epoch, ordering=self._ordering, before=before)

        try:
            return await self._install_or_newer(await asyncio.to_thread(plan_it, await self.nodes()))
        except GamecastError:
            await self._roster("reopen")
            raise

    async def _install_or_newer(self, plan: Plan) -> Plan:
        """Install a plan; if that fails and it, or one that covers it, is there all the same, return that one.

        It may be ours, if only the last answer was lost, or come from who held the lease after us.
        """
        try:
            await self._install(plan)
        except GamecastError:
            newest = await self.latest_plan()
            if newest is None or newest.epoch < plan.epoch or not newest.paths.keys() >= plan.paths.keys():
                raise
            return newest
        return plan

    async def _install(self, plan: Plan) -> None:
        nodes = [self.lane(name, plan) for name in plan.nodes]
        try:
            for node in nodes:
                try:
                    await node.install(plan, self._retention_events)
                except NetworkError as error:
                    where = redacted(plan.nodes[node.name] or self.url)
                    raise PlanError(
                        f"the plan needs node {node.name!r} at {where}, which cannot be reached: {error}"
                    ) from error
        finally:
            for node in nodes:
                await node.close()
        plan_id = f"{plan.epoch}-{plan.version}"
        await self._call("XADD", ControlKeys.plans, "MAXLEN", "=", PLANS_KEPT, plan_id, "plan", plan.to_json())

    async def _release(self, token: str) -> None:
        with suppress(GamecastError):  # the lease expires by itself
            async with self._calls_turn:
                await self._calls.run(RELEASE, (ControlKeys.lease,), token)

    async def _roster(self, verb: str, *regions: str) -> Any:
        async with self._calls_turn:
            answer = await self._calls.run(
                ROSTER, ControlKeys.roster, verb, self._name, self._incarnation, TTL_MS, *regions
            )
        if answer == b"superseded" and verb not in ("beat", "leave"):
            raise Superseded(superseded_message(self._name))
        return answer

    async def _call(self, *command: Any) -> Any:
        async with self._calls_turn:
            return await self._calls.call(*command)
