"""gamecast over several nodes that every event visits, one after the other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from adapters.embedded.server import EmbeddedServers
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.relays import RedisRelays
from laboratory.bench.peers.network import GamecastPeer
from laboratory.bench.peers.peer import Site
from laboratory.bench.workload import World
from laboratory.processes.worker import Worker
from sequencing.conditions import require_sound
from sequencing.membership import Membership
from sequencing.plan import Plan
from sequencing.record import Record

LEASE_MS = 1_000


@dataclass(frozen=True, slots=True)
class PathPeer(GamecastPeer):
    """Each node has a redis-server of its own, the first being the control too, and a process with its relay."""

    name: str = "1 node"
    nodes: int = 1

    @contextmanager
    def site(self, world: World) -> Iterator[Site]:
        with EmbeddedServers(self.nodes) as servers, ExitStack() as relays:
            control_url, *others = servers.urls
            nodes = {f"n{number}": url for number, url in enumerate(["", *others], start=1)}
            asyncio.run(announce(control_url, plan_through_all(membership_of(world), nodes)))
            pids = [relays.enter_context(Worker(_relay, control_url, name)).pid for name in list(nodes)[:-1]]
            yield Site(control_url, tuple(server.pid for server in servers.servers), tuple(pids))


def membership_of(world: World) -> Membership:
    """Return what the subscribers of a world will have."""
    regions = world.regions
    return Membership.of(
        {name: [regions[at] for at in world.members[index]] for index, name in enumerate(world.subscribers)}
    )


def plan_through_all(membership: Membership, nodes: Mapping[str, str]) -> Plan:
    """Return a plan in which each region's path visits all nodes (name → url) in their order.

    The planner would avoid that: it is for measuring what a path of such a length costs.
    """
    from placement.planner import make_plan

    names = tuple(nodes)
    least = make_plan(membership, {names[0]: nodes[names[0]]}, epoch=2)
    plan = replace(least, nodes=dict(nodes), paths=dict.fromkeys(least.paths, names))
    require_sound(plan, membership)
    return plan


async def announce(control_url: str, plan: Plan) -> None:
    """Leave a plan in a new network, for the first leader to go on with; no subscriber has joined anything yet."""
    control, token = LeaderControl(control_url), secrets.token_hex(8)
    try:
        for name, url in plan.nodes.items():
            await control.register_node(name, url)
        await control.look(token, LEASE_MS)
        before = Plan(1, 0, plan.ordering, plan.nodes, {}, ())
        next_atom = max((atom.id + 1 for atom in plan.atoms), default=1)
        await control.save(token, Record(plan, behind=(before,), next_atom=next_atom))
        await control.resign(token)
    finally:
        await control.close()


async def _relay(control_url: str, source: str, _: Connection) -> None:
    RedisRelays(control_url, frozenset({source})).start()
    await asyncio.Event().wait()
