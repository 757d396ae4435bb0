"""The manager at work: leases, connections and waits around `sequencing.manager`.

Any process may run one; of all that do, one leads. Whoever leads next goes on from the record.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from adapters.backoff import Backoff
from adapters.redis_control import RedisControl, Seen
from adapters.redis_node import RedisNode
from sequencing.errors import GamecastError
from sequencing.manager import Close, Closed, Drain, Forget, Open, Prepare, Seal, Task, Transition, next_record
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan
from sequencing.record import Record

LEASE_MS = 2_000
"""A leader that has not been heard of for so long is no leader any more."""

LOOK_EVERY_MS = 500
"""A leader looks around, and prolongs its lease, as often as this, or sooner when it is asked for something."""

AGAIN_S = 0.005
"""How long to wait before asking again whether an old epoch has drained."""

logger = logging.getLogger("gamecast.manager")


class RedisManager:
    """One candidate for leading a network."""

    def __init__(
        self,
        url: str,
        nodes: Callable[[], Awaitable[Mapping[str, str]]],
        *,
        ordering: Ordering,
        retention_events: int,
        may_lose: Collection[str] = (),
    ) -> None:
        """``url``: of the control Redis; ``nodes``: returns the registered nodes, name → url, empty for the control
        Redis; ``may_lose``: those that may come back from a restart with an older state."""
        self._url = url
        self._nodes = nodes
        self._ordering = ordering
        self._retention_events = retention_events
        self._may_lose = frozenset(may_lose)
        self._token = secrets.token_hex(8)
        self._control = RedisControl(url)
        self._connections: dict[tuple[str, str], RedisNode] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._stopping = False
        self.leads = False
        """Whether this one led when it looked last."""

    async def run(self) -> None:
        """Stand for election, and lead when elected, until `stop`; network trouble is waited out."""
        backoff = Backoff()
        try:
            while not self._stopping:
                try:
                    await self._turn()
                    backoff.reset()
                except Exception as error:  # noqa: BLE001 - a manager that ends leaves everybody who wants something waiting
                    if self._stopping:
                        return
                    logger.warning("manager: %r", error)
                    await backoff.wait()
        finally:
            with suppress(GamecastError):
                await self._control.resign(self._token)
            for node in self._connections.values():
                await node.close()
            await self._control.close()

    async def stop(self) -> None:
        """Let `run` return, and give the lease back; a wait is broken off."""
        self._stopping = True
        await self._control.close()

    async def _turn(self) -> None:
        seen = await self._control.look(self._token, LEASE_MS)
        self.leads = seen is not None
        if seen is None:
            await asyncio.sleep(LOOK_EVERY_MS / 1000)
            return
        nodes = await self._nodes()
        record = seen.record or Record(Plan(1, 0, self._ordering, dict(nodes), {}, ()))
        following = await self._following(seen, record, nodes)
        if following is not None:
            await self._control.save(self._token, following)
        elif record.behind:
            await self._move(record)
        else:
            await self._control.asked(seen.asked, block_ms=LOOK_EVERY_MS)

    async def _following(self, seen: Seen, record: Record, nodes: Mapping[str, str]) -> Record | None:
        runs = await self._runs(nodes)
        announced = not record.plan.paths or seen.is_announced(record.plan)
        # Imported here: it brings scipy, which only whoever leads needs.
        from placement.planner import make_plan

        def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
            return make_plan(membership, nodes, epoch=epoch, first_atom=first_atom, ordering=record.plan.ordering)

        decide = partial(next_record, record, seen.wishes, seen.published, planner, runs=runs, announced=announced)
        return await asyncio.to_thread(decide)

    async def _move(self, record: Record) -> None:
        """Bring a transition to its end, unless the lease is lost, or a node of it turns out to have begun anew."""
        transition, plan = Transition(record), record.plan
        announced = False
        while not transition.finished and not self._stopping:
            if transition.prepared and not announced:
                announced = await self._control.announce(self._token, record)
                if not announced:
                    return
            tasks = transition.tasks()
            answers = await asyncio.gather(*(self._do(task, plan) for task in tasks))
            for task, answer in zip(tasks, answers, strict=True):
                transition.done(task, answer)
            if transition.tasks() and not await self._goes_on(plan):
                return
        if transition.finished and (announced or await self._control.announce(self._token, record)):
            await self._control.save(self._token, record.settled())

    async def _goes_on(self, plan: Plan) -> bool:
        await asyncio.sleep(AGAIN_S)
        runs = await self._runs({node: plan.nodes[node] for node in plan.runs})
        if any(plan.runs[node] != run for node, run in runs.items()):
            return False
        return await self._control.renew(self._token, LEASE_MS)

    async def _do(self, task: Task, plan: Plan) -> Any:
        node = self._node(task.node, plan.nodes[task.node])
        try:
            async with self._turns.setdefault(task.node, asyncio.Lock()):
                if task.node in plan.runs and await node.run_id() != plan.runs[task.node]:
                    return False
                return await perform(task, node, self._retention_events)
        except GamecastError as error:
            logger.info("manager: %s at node %s: %r", type(task).__name__, task.node, error)
            return False

    async def _runs(self, nodes: Mapping[str, str]) -> dict[str, str]:
        """Return the runs of the nodes that may lose something and can be reached."""
        found: dict[str, str] = {}
        for name in self._may_lose.intersection(nodes):
            with suppress(GamecastError):
                found[name] = await self._node(name, nodes[name]).run_id()
        return found

    def _node(self, name: str, url: str) -> RedisNode:
        place = name, url or self._url
        if place not in self._connections:
            self._connections[place] = RedisNode(*place)
        return self._connections[place]


async def perform(task: Task, node: RedisNode, retention_events: int) -> Any:
    """Do at a node in Redis what `task.perform` does at one in memory."""
    match task:
        case Prepare(name, plan, steps, closing):
            if name in plan.runs:
                await node.admit(plan.runs[name])
            return await node.prepare(plan, retention_events, steps, dict(closing))
        case Close(_, regions):
            return await _close(node, regions)
        case Open(_, opening):
            await node.open_ingresses((region, epoch, dict(accepted)) for region, epoch, accepted in opening)
        case Drain(_, streams):
            return await node.ended(streams)
        case Seal(_, sealed):
            await node.seal(sealed)
        case Forget(_, old, link_ends):
            await node.forget(old, link_ends)
    return True


async def _close(node: RedisNode, regions: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int], Closed]:
    closing = list(regions)
    answers = await node.close_ingresses(closing)
    accepted = await node.accepted({region for region, *_ in closing})
    return {
        (region, epoch): Closed.by(answer, accepted[region])
        for (region, epoch, _), answer in zip(closing, answers, strict=True)
    }
