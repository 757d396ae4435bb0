"""The manager at work: leases, waits and tries around `sequencing.manager` and `sequencing.transition`.

Whatever carries the network, any connection may run one; of all that do, one leads. Whoever leads next goes on from the
record.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from os import getpid
from socket import gethostname
from typing import Any, NamedTuple, Protocol

from adapters.backoff import Backoff
from sequencing.changes import Changes, changes_asked
from sequencing.errors import GamecastError, NotAllowed
from sequencing.plan import Ordering, Plan
from sequencing.record import Pair, Record, Wish
from sequencing.transition import Task, Transition

LEASE_MS = 2_000
"""A leader that has not been heard of for so long is no leader any more; see also `adapters.redis.lease`."""

LOOK_EVERY_MS = 500
"""A leader looks around, and prolongs its lease, as often as this, or sooner when it is asked for something."""

STAND_EVERY_MS = 1_000
"""How often the others try whether they may lead."""

CROWD = 20
GATHER_S = 0.005
GATHER_LOOKS_MAX = 10
"""Where no overlaps are declared a join mostly takes an epoch, which each of the others has to go over into. So among
many, whoever wants something is given so long for others to want something, too; as often as somebody does, up to
here."""

AGAIN_S = 0.002
"""How long to wait before asking again whether an old epoch, or a link, has drained: about what a hop takes."""

logger = logging.getLogger("gamecast.manager")


class Seen(NamedTuple):
    """What a leader decides by.

    ``record``: None in a network that is new; ``announced``: the (epoch, version) that everybody may know of;
    ``asked``: where `Control.asked` goes on; ``nodes``: name → url, of which those in ``may_lose`` may come back from a
    restart with an older state.
    """

    record: Record | None
    wishes: Mapping[str, Wish]
    published: frozenset[str]
    announced: tuple[int, int]
    asked: str
    nodes: Mapping[str, str]
    may_lose: frozenset[str] = frozenset()
    expected: int = 0
    """How many overlaps are declared."""
    taken: bool = False
    """Whether the lease was taken just now: somebody else may have led since whoever looks did."""

    def is_crowded(self) -> bool:
        """Return whether somebody of many wants something that is likely to concern all of them."""
        record = self.record
        if record is None or record.behind or self.expected or len(self.wishes) < CROWD:
            return False
        return any(wish.after(record.heard.get(name)) for name, wish in self.wishes.items())

    def is_announced(self, plan: Plan) -> bool:
        """Return whether everybody may know of a plan."""
        return (plan.epoch, plan.version) <= self.announced


class Control(Protocol):
    """The control store, as a manager uses it."""

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """Take the lease or prolong it, and return what a leader decides by; None while somebody else leads."""

    async def expected(self) -> frozenset[Pair]:
        """Return the overlaps that are declared; none is ever taken back."""

    async def keep(self, token: str, lease_ms: int) -> bool:
        """Prolong the lease; False when somebody else leads, or did since it ran out."""

    async def save(self, token: str, record: Record) -> bool:
        """Keep a record; False when the lease is lost."""

    async def announce(self, token: str, record: Record) -> bool:
        """Tell everybody of a plan that all nodes know, once; False when the lease is lost."""

    async def resign(self, token: str) -> None:
        """Give the lease back."""

    async def asked(self, after: str, *, block_ms: int) -> None:
        """Wait until somebody wants something new, or for ``block_ms``."""

    async def close(self) -> None:
        """Release the connection."""


class Hands(Protocol):
    """The nodes, as a manager reaches them."""

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """Return the runs that the servers of some nodes, name → url, are in: of those that can be reached."""

    async def perform(self, task: Task, plan: Plan) -> Any:
        """Do a task at its node, if that is in the run that the plan means, else return False."""

    async def close(self) -> None:
        """Release the connections."""


class Manager:
    """One candidate for leading a network."""

    def __init__(self, control: Control, hands: Hands, ordering: Ordering) -> None:
        """``ordering``: of the network, if it is new."""
        self._control = control
        self._hands = hands
        self._ordering: Ordering = ordering
        self._token = f"{gethostname()}:{getpid()}:{secrets.token_hex(8)}"
        self._stop = asyncio.Event()
        self._look_at = 0.0
        self._waits_for: tuple[int, int, str] | None = None
        self.leads = False
        """Whether this one led when it looked last."""

    async def run(self) -> None:
        """Stand for election, and lead when elected, until `stop`; network trouble is waited out."""
        backoff = Backoff()
        try:
            while not self._stop.is_set():
                try:
                    await self._turn()
                    backoff.reset()
                except NotAllowed as error:
                    # Servers of a secured network publish and subscribe, and leave leading to others.
                    logger.info("manager: this user may not lead: %s", error)
                    await self._stop.wait()
                except Exception as error:  # noqa: BLE001 - a manager that ends leaves everybody who wants something waiting
                    if self._stop.is_set():
                        return
                    logger.warning("manager: %r", error)
                    await backoff.wait()
        finally:
            with suppress(GamecastError):
                await self._control.resign(self._token)
            await self._hands.close()
            await self._control.close()

    async def stop(self) -> None:
        """Let `run` return, and give the lease back; waits are broken off."""
        self._stop.set()
        await self._hands.close()
        await self._control.close()

    async def _turn(self) -> None:
        seen = await self._look()
        self.leads = seen is not None
        if seen is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STAND_EVERY_MS / 1000):
                    await self._stop.wait()
            return
        if seen.is_crowded() and (seen := await self._gather(seen)) is None:
            return
        record = seen.record or Record(Plan(1, 0, self._ordering, dict(seen.nodes), {}, ()))
        following = await self._following(seen, record)
        if following is not None:
            if await self._control.save(self._token, following):
                await self._move(following)
        elif record.behind:
            await self._move(record)
        else:
            await self._control.asked(seen.asked, block_ms=LOOK_EVERY_MS)

    async def _gather(self, seen: Seen) -> Seen | None:
        """Look until nobody wants anything new; None when somebody else leads now."""
        for _ in range(GATHER_LOOKS_MAX):
            # Not by `asked`: a Redis that is idle looks every 100 ms only at what blocks.
            await asyncio.sleep(GATHER_S)
            latest = await self._look()
            if latest is None or latest.asked == seen.asked:
                return latest
            seen = latest
        return seen

    async def _look(self) -> Seen | None:
        self._look_at = time.monotonic() + LOOK_EVERY_MS / 1000
        return await self._control.look(self._token, LEASE_MS)

    async def _following(self, seen: Seen, record: Record) -> Record | None:
        runs = await self._hands.runs(seen.nodes)
        announced = not record.plan.paths or seen.is_announced(record.plan)
        # A node that is away gets nothing new. When all are, somebody will have to wait anyway.
        there = {name: url for name, url in seen.nodes.items() if name in runs} or seen.nodes
        losing = {name: run for name, run in runs.items() if name in seen.may_lose}
        expected = record.expected
        if seen.expected != len(expected):
            expected = await self._control.expected()
        changes = partial(changes_asked, record, seen.wishes, seen.published, runs=losing, expected=expected)
        deciding = asyncio.ensure_future(asyncio.to_thread(_decide, record, changes, seen.wishes, there, announced))
        return deciding.result() if await self._leads_until(deciding) else None

    async def _move(self, record: Record) -> None:
        """Bring a transition to its end, unless the lease is lost, or a node of it turns out to have begun anew."""
        transition, plan = Transition(record), record.plan
        announced = False
        while not transition.finished and not self._stop.is_set():
            if transition.prepared and not announced:
                announced = await self._control.announce(self._token, record)
                if not announced:
                    return
            tasks = transition.tasks()
            performing = asyncio.gather(*(self._perform(task, plan) for task in tasks))
            if not await self._leads_until(performing):
                return
            for task, answer in zip(tasks, performing.result(), strict=True):
                transition.done(task, answer)
            if (left := transition.tasks()) and not await self._goes_on(plan, wait_s=AGAIN_S if left == tasks else 0):
                return
        if transition.finished and (announced or await self._control.announce(self._token, record)):
            await self._control.save(self._token, record.settled())

    async def _leads_until(self, performing: asyncio.Future[Any]) -> bool:
        """Wait for tasks, which may take longer than a lease; return whether it is still ours.

        What a node is asked to do can be asked again, by whoever leads then; so nothing is broken off.
        """
        leads = True
        while True:
            await asyncio.wait((performing,), timeout=LOOK_EVERY_MS / 1000)
            if performing.done():
                return leads
            leads = leads and not self._stop.is_set() and await self._control.keep(self._token, LEASE_MS)

    async def _goes_on(self, plan: Plan, *, wait_s: float) -> bool:
        """Wait; return whether the lease is still ours, and the nodes are in the runs that the plan means."""
        await asyncio.sleep(wait_s)
        if time.monotonic() < self._look_at:
            return await self._control.keep(self._token, LEASE_MS)
        seen = await self._look()
        if seen is None or seen.taken:
            return False
        runs = await self._hands.runs({name: plan.nodes[name] for name in seen.may_lose.intersection(plan.nodes)})
        return all(plan.runs.get(name) == run for name, run in runs.items())

    async def _perform(self, task: Task, plan: Plan) -> Any:
        try:
            return await self._hands.perform(task, plan)
        except GamecastError as error:
            if self._waits_for != (waits_for := (plan.epoch, plan.version, task.node)):
                self._waits_for = waits_for
                logger.warning("manager: plan %d.%d waits for node %s: %r", *waits_for, error)
            return False


def _decide(
    record: Record,
    changes_of: Callable[[], Changes | None],
    wishes: Mapping[str, Wish],
    nodes: Mapping[str, str],
    announced: bool,
) -> Record | None:
    changes = changes_of()
    if changes is None:
        return None
    from adapters.planning import following  # only now, see there; and in this thread, because it takes a while

    return following(record, changes, wishes, nodes=nodes, announced=announced)
