"""A running network, as `gamecast plan --from` sees it: who has which regions, and how busy these are."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.gateway.dashboard.rates import region_rates
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.networkstate import NetworkState
from adapters.redis.survey import survey
from gamecast.errors import InvalidInput, OtherSideError, PlanError
from sequencing.expected import observers
from sequencing.joint import regions_in
from sequencing.membership import Membership
from sequencing.plan import Plan

ANSWER_S_MAX = 60.0
"""How long a leader may take to bring a plan to all nodes."""
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    """A network at a moment: its plan, what that has to order, the nodes that answer, and events/s of its regions.

    ``silent``: registered nodes that do not answer.
    """

    plan: Plan
    membership: Membership
    subscribers: Membership
    """Without the overlaps that are only expected."""
    rates: Mapping[str, float]
    nodes: tuple[str, ...]
    silent: tuple[str, ...]


async def look(url: str, *, seconds: float) -> Running:
    """Look at a network for so long.

    Raises `UsageError` if it has no plan to be made better, `NetworkError` if its control Redis does not answer.
    """
    before = await survey(url, regions=True)
    await asyncio.sleep(seconds)
    now = await survey(url, regions=True)
    async with _control(url) as control:
        record, interests = await control.outlook()
    if record is None:
        raise InvalidInput("the network has no plan yet, because no client has connected to it")
    plan = record.plan
    if plan.sole or len(now.nodes) < 2:
        raise InvalidInput("the network has one node, so there is nothing to choose")
    nodes = tuple(node.name for node in now.nodes if node.registered and node.server is not None)
    members = {
        # A client that is gone may come back, and then has what is counted for it.
        name: regions & interests[name].since.keys() if name in interests else regions
        for name, regions in record.members.items()
    }
    for name, interest in interests.items():
        members[name] = members.get(name, frozenset()) | (interest.since.keys() & plan.paths.keys())
    sets = [regions_in(name) for name in plan.joint]
    seen = observers(members, [*record.expected, *sets], plan.ordering)
    rates = _rates(before, now, plan)
    silent = tuple(node.name for node in now.nodes if node.registered and node.server is None)
    known = frozenset(plan.paths)
    return Running(
        plan, Membership.of(seen, known, plan.joint), Membership.of(members, known, plan.joint), rates, nodes, silent
    )


def _rates(before: NetworkState, now: NetworkState, plan: Plan) -> dict[str, float]:
    """Return the events/s of each region, 0 where they were not measured."""
    found = region_rates(before, now)
    return {region: found.get(region, 0.0) for region in plan.paths}


async def apply(url: str, move: Plan) -> float:
    """Have a network go over to a plan for some of its regions; return after how many seconds all is settled.

    Raises `PlanError` with the reason if the leader refuses it, `NoLeader` if there is none, and `OtherSideError` if it
    does not answer.
    """
    begun, proposal = time.monotonic(), uuid.uuid4().hex
    async with _control(url) as control:
        await control.propose(proposal, move)
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
