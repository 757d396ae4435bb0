"""A running network, as `gamecast plan --from` sees it: who has which regions, and how busy these are."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.networkstate import RegionState
from adapters.redis.survey import survey
from sequencing.errors import InvalidInput, NotAllowed, OtherSideError, PlanError, Unreachable
from sequencing.expected import observers
from sequencing.membership import Membership
from sequencing.plan import Plan

ANSWER_S_MAX = 60.0
"""How long a leader may take to bring a plan to all nodes."""
LOOK_S = 0.05
LOOKS_MAX = 10
LOOK_EVERY_S = 0.25
"""A measurement is of so many pieces at most, each at least so long: an epoch that begins spoils one of them."""


@dataclass(frozen=True, slots=True)
class Running:
    """A network at a moment: its plan, what that has to order, the nodes that answer, and events/s of its regions.

    ``unregistered``: nodes that answer, and that regions can only leave; ``silent``: nodes that do not answer.
    """

    plan: Plan
    membership: Membership
    subscribers: Membership
    """Without the overlaps that are only expected."""
    rates: Mapping[str, float]
    """Of those that could be measured: a region that begins an epoch at each look cannot, nor one of a silent node."""
    nodes: tuple[str, ...]
    unregistered: tuple[str, ...]
    silent: tuple[str, ...]


async def look(url: str, *, seconds: float) -> Running:
    """Look at a network for so long.

    Raises `UsageError` if it has no plan to be made better, `NetworkError` if its control Redis does not answer.
    """
    looks = [await survey(url, regions=True)]
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        await asyncio.sleep(min(left_s, max(LOOK_EVERY_S, seconds / LOOKS_MAX)))
        looks.append(await survey(url, regions=True))
    now = looks[-1]
    async with _control(url) as control:
        record, interests = await control.outlook()
    if record is None:
        raise InvalidInput("the network has no plan yet, because no client has connected to it")
    plan = record.plan
    if plan.sole or len(now.nodes) < 2:
        raise InvalidInput("the network has one node, so there is nothing to choose")
    if not plan.paths:
        raise InvalidInput("the network has no regions yet, so there is nothing to choose")
    there = [node for node in now.nodes if node.server is not None]
    nodes, unregistered = (tuple(node.name for node in there if node.registered is is_so) for is_so in (True, False))
    members = {
        # A client that is gone may come back, and then has what is counted for it.
        name: regions & interests[name].since.keys() if name in interests else regions
        for name, regions in record.members.items()
    }
    for name, interest in interests.items():
        members[name] = members.get(name, frozenset()) | (interest.since.keys() & plan.paths.keys())
    seen = observers(members, record.expected, plan.ordering)
    rates = rates_between([each.regions for each in looks])
    silent = tuple(node.name for node in now.nodes if node.server is None)
    known = frozenset(plan.paths)
    return Running(
        plan,
        Membership.of(seen, known, plan.joint),
        Membership.of(members, known, plan.joint),
        {region: rate for region, rate in rates.items() if region in plan.paths},
        nodes,
        unregistered,
        silent,
    )


def rates_between(looks: Sequence[Sequence[RegionState]]) -> dict[str, float]:
    """Return the events/s of each region, by the times between two looks at it in one epoch: each begins at 0."""
    drawn, seconds = dict[str, int](), dict[str, float]()
    for before, now in pairwise(looks):
        then = {region.name: region for region in before}
        for region in now:
            earlier = then.get(region.name)
            if earlier is None or earlier.epoch != region.epoch:
                continue
            if earlier.drawn is None or region.drawn is None or earlier.drawn_at_s is None or region.drawn_at_s is None:
                continue
            drawn[region.name] = drawn.get(region.name, 0) + max(0, region.drawn - earlier.drawn)
            seconds[region.name] = seconds.get(region.name, 0.0) + region.drawn_at_s - earlier.drawn_at_s
    return {region: drawn[region] / took_s for region, took_s in seconds.items() if took_s > 0}


async def empty(url: str, node: str) -> int:
    """Move all regions that a node has a part in to the nodes that are registered; return how many.

    Raises as `look` and `apply`, and `Unreachable` if a node that has a part in their paths does not answer.
    """
    from placement.replanning import Replanning, replanned

    running = await look(url, seconds=0.0)
    there = {region for region, path in running.plan.paths.items() if node in path}
    if not there:
        return 0
    network = Replanning(
        running.plan, running.membership, nodes=running.nodes, there=running.unregistered, rates=running.rates
    )
    found = await asyncio.to_thread(replanned, network, price=math.inf)
    moves = [move for move in found.moves if not there.isdisjoint(move.paths)]
    if lacking := there.difference(*(move.paths for move in moves)):
        raise Unreachable(
            f"{min(lacking)!r} cannot leave {node}: a node of its group does not answer ({', '.join(running.silent)})"
        )
    for move in moves:
        await apply(url, move)
    return len(there)


async def apply(url: str, move: Plan) -> float:
    """Have a network go over to a plan for some of its regions; return after how many seconds all is settled.

    Raises `PlanError` with the reason if the leader refuses it, `NoLeader` if there is none, and `OtherSideError` if it
    does not answer.
    """
    begun, proposal = time.monotonic(), uuid.uuid4().hex
    async with _control(url) as control:
        try:
            await control.propose(proposal, move)
        except NotAllowed as error:
            raise NotAllowed(f"{error}. Only the user `manager` may change where regions are") from error
        while (answer := await control.answered(proposal)) is None:
            if time.monotonic() > begun + ANSWER_S_MAX:
                raise OtherSideError(
                    f"the leader has given no answer for {ANSWER_S_MAX:.0f} s, and may still go over to the plan: "
                    "`gamecast doctor` says what it waits for"
                )
            await asyncio.sleep(LOOK_S)
    if answer:
        raise PlanError(answer)
    return time.monotonic() - begun


@asynccontextmanager
async def _control(url: str) -> AsyncIterator[LeaderControl]:
    control = LeaderControl(url)
    try:
        yield control
    finally:
        await control.close()
