"""How a manager accesses nodes in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

from adapters.redis.connection import RedisConnection
from adapters.redis.node import RedisNode
from adapters.redis.places import tag_in
from adapters.redis.probe import whole
from adapters.urls import as_user_of
from sequencing.errors import GamecastError, NetworkError
from sequencing.expected import Emptied, Tails
from sequencing.keyspace import NodeKeys
from sequencing.pending import are_awaited, lost_by
from sequencing.plan import Plan
from sequencing.sole import BeginAny, BeginNoMore
from sequencing.transition import Close, Closed, Drain, Forget, Open, Prepare, Seal, Task

RUN_TIMEOUT_S = 0.5
"""How long a server may take to report its run; after that it counts as unreachable until it answers.

The request continues meanwhile. To connect to a server on the other side of the world and ask it takes three round
trips, which is longer. The next caller then finds the answer.
"""


_Known = tuple[str, Mapping[str, tuple[int, int, int] | None]]
"""The run of a server; and the newest plan that each of its nodes knows, see `sequencing.errands.Runs`, None for an
empty node."""


def _installed(told: Sequence[bytes | None]) -> tuple[int, int, int] | None:
    epoch, version, run, network = told
    if epoch is None or version is None:
        return None if run is None else (0, 0, 0)
    return whole(network or b"0"), whole(epoch), whole(version)


class RedisNodeOperator:
    """Implements `adapters.leadership.NodeOperator`."""

    def __init__(self, url: str, *, retention_events: int, routes: Mapping[str, str] | None = None) -> None:
        """``url``: of the control Redis, which hosts nodes whose own url is empty; ``routes``: see `RedisNetwork`."""
        self._url = url
        self._routes = routes or {}
        self._retention_events = retention_events
        self._lookouts: dict[tuple[str, str], RedisConnection] = {}
        self._asked: dict[tuple[str, str], asyncio.Task[_Known | None]] = {}
        self.emptied: frozenset[str] = frozenset()
        """See `NodeOperator.emptied`."""
        self.installed: Mapping[str, tuple[int, int, int]] = {}
        """See `NodeOperator.installed`."""
        self._nodes: dict[tuple[str, str], RedisNode] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        """See `NodeOperator.perform`."""
        node = self._node(task.node, plan.nodes[task.node])
        async with self._turns.setdefault(task.node, asyncio.Lock()):
            node.follow(plan)
            return await perform(task, node, self._retention_events)

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """See `NodeOperator.runs`."""
        places = {name: (at := self._way_to(url), tag_in(at, name)) for name, url in nodes.items()}
        names: dict[tuple[str, str], list[str]] = {}
        for name, server in places.items():
            names.setdefault(server, []).append(name)
        asked = (self._run_of(server, there) for server, there in names.items())
        answers = dict(zip(names, await asyncio.gather(*asked), strict=True))
        answered = [answer for answer in answers.values() if answer is not None]
        self.installed = {name: number for _, known in answered for name, number in known.items() if number is not None}
        self.emptied = frozenset(name for _, known in answered for name, number in known.items() if number is None)
        return {name: answer[0] for name, server in places.items() if (answer := answers[server]) is not None}

    async def forget_publishers(self, plan: Plan, upto: int, living: AbstractSet[str]) -> None:
        """See `NodeOperator.forget_publishers`."""
        for name, url in plan.nodes.items():
            with suppress(NetworkError):  # an unreachable node forgets them when it is back
                cursor: int | None = 0
                while cursor is not None:
                    async with self._turns.setdefault(name, asyncio.Lock()):
                        node = self._node(name, url)
                        node.follow(plan)
                        cursor = await node.forget_publishers(upto, living, cursor)

    async def _run_of(self, server: tuple[str, str], names: Sequence[str]) -> _Known | None:
        asked = self._asked.get(server)
        if asked is None:
            asked = self._asked[server] = asyncio.create_task(self._ask(server, names), name="gamecast look for a run")
        await asyncio.wait({asked}, timeout=RUN_TIMEOUT_S)
        if not asked.done():
            return None
        self._asked.pop(server, None)
        return None if asked.cancelled() else asked.result()

    async def _ask(self, server: tuple[str, str], names: Sequence[str]) -> _Known | None:
        # A connection of its own, so that it does not wait for a long task.
        if server not in self._lookouts:
            self._lookouts[server] = RedisConnection(*server)
        with suppress(GamecastError):
            asked = [("HMGET", NodeKeys(name).node, "epoch", "version", "run", "network") for name in names]
            run, told = await self._lookouts[server].run_id_and(asked)
            return run, dict(zip(names, map(_installed, told), strict=True))
        return None

    async def close(self) -> None:
        """See `NodeOperator.close`."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._asked.clear()
        for node in self._nodes.values():
            await node.close()
        for lookout in self._lookouts.values():
            await lookout.close()

    def _way_to(self, url: str) -> str:
        known = url or self._url
        return self._routes.get(known) or as_user_of(known, self._url)

    def _node(self, name: str, url: str) -> RedisNode:
        place = name, self._way_to(url)
        if place not in self._nodes:
            self._nodes[place] = RedisNode(*place)
        return self._nodes[place]


async def perform(task: Task | BeginAny | BeginNoMore, node: RedisNode, retention_events: int) -> Any:
    """Do at a node in Redis what `task.perform` does at a node in memory."""
    match task:
        case Prepare(name, plan, steps, closing):
            if name in plan.runs:
                await node.admit(plan.runs[name])
            return await node.prepare(plan, retention_events, steps, dict(closing))
        case Close():
            return await _close(node, task)
        case Open(_, opening):
            await node.open_ingresses(opening)
        case Tails(_, targets):
            return await node.link_tails(targets)
        case Emptied(_, links):
            return await node.are_acknowledged(links)
        case Drain(_, streams):
            return await node.ended(streams)
        case Seal(_, sealed):
            await node.seal(sealed)
        case Forget(_, old, link_ends, headless, number):
            await node.forget(old, link_ends, headless, number)
        case BeginAny(_, plan):
            return await node.begin_any(plan, retention_events)
        case BeginNoMore(_, epoch):
            return await node.begin_no_more(epoch)
    return True


async def _close(node: RedisNode, task: Close) -> dict[tuple[str, int], Closed] | bool:
    closing = list(task.regions)
    answers = await node.close_ingresses(closing)
    names = {region for region, *_ in closing}
    passing = await node.undecided()
    if lost := lost_by(passing, task.lost, task.epoch):
        await node.resolve(dict.fromkeys(lost, task.epoch))
    if are_awaited({of: each for of, each in passing.items() if of not in lost}, task.regions):
        return False
    accepted, heads = await node.accepted(names), await node.heads(names)
    return {
        (region, epoch): Closed.by(answer, accepted[region], heads.get(region))
        for (region, epoch, _), answer in zip(closing, answers, strict=True)
    }
