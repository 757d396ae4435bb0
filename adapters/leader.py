"""The leader's work: the waits and retries around `sequencing.manager` and `sequencing.transition`.

A manager imports it when it begins to lead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

from adapters.gone import Gone
from adapters.leadership import LEASE_MS, LOOK_EVERY_MS, Control, NodeOperator, Seen
from adapters.urls import own_options
from sequencing.absence import Absence
from sequencing.changes import Changes, are_usable, changes_asked, given_up
from sequencing.errors import GamecastError, PlanError
from sequencing.joint import wished
from sequencing.plan import GIVEN_UP, Ordering, Plan, first_plan, sole_plan
from sequencing.record import Interest, Members, Record
from sequencing.sole import BeginAny, BeginNoMore, begin_listed, first_listed, following_on_one_node, is_sole
from sequencing.transition import Task, Transition

GATHER_FIRST_S = 0.002
"""Who joins alone waits no longer for others."""
GATHER_S = 0.005
GATHER_LOOKS_MAX = 10
"""How often the leader waits for more interests before it makes a plan.

Without declared overlaps, a join mostly takes an epoch, and every other subscriber has to enter that epoch. So in a
crowd, each new interest gives the others a moment to announce theirs as well; this limits how often.
"""

GRANTED_MAX = 100

FORGET_EVERY_S = 10.0
"""The minimum interval between removals of publishers. They are removed when they can no longer resume."""

MAY_GIVE_UP = "give_up_s="
"""Part of the URLs of nodes that may be given up, see `adapters.urls`."""

AGAIN_S = 0.002
"""How long to wait before checking again whether an old epoch, or a link, has drained: about as long as a hop takes."""

logger = logging.getLogger("gamecast.manager")


@dataclass(slots=True)
class Move:
    """A transition under way. ``record``: as grants beside it have changed it; ``writing``: held to change it."""

    record: Record
    announced: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Leader:
    """The work of a manager while it leads."""

    def __init__(
        self,
        control: Control,
        operator: NodeOperator,
        ordering: Ordering,
        token: str,
        stop: asyncio.Event,
        resume_s: float,
    ) -> None:
        """``ordering``: of a new network; ``token``: of the lease; ``stop``: set when the leader must end.

        ``resume_s``: how long a disconnected subscriber keeps its place.
        """
        self._control = control
        self._operator = operator
        self._emptied_before: tuple[tuple[int, int], AbstractSet[str]] = (0, 0), frozenset()
        """The nodes that were empty at the last check, and the plan of that check."""
        self._ordering: Ordering = ordering
        self._token = token
        self._stop = stop
        self._look_at = 0.0
        self._has_planned = False
        """Whether the planner is loaded."""
        self._waits_for: tuple[int, int, str] | None = None
        self._resume_s = resume_s
        self._connected: tuple[float, int, frozenset[str]] | None = None
        """When the connections were last listed, the last incarnation, and the names of the connections."""
        self._forgetting: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        """Waits for a new request."""
        self._there: Mapping[str, str] = {}
        """The nodes that answered when a plan was last thought about, name → url."""
        self._knows_who_asks = False
        """Whether all that was asked for before the last look is noted."""
        self._unheard: set[str] = set()
        """The names that may have asked for something that no plan has granted."""
        self._looked_at_nodes = self._let_go_at = 0.0
        self._granted = 0
        """How often joins were granted at once since all was thought about."""
        self._may_grant_beside = True
        """Whether joins are granted while a plan is made: not where one was in vain because of that."""
        self._gone = Gone(resume_s)
        self._absence = Absence()
        self._runs: dict[str, str] | None = None
        """The last run of each node that may be given up; None: not read yet."""
        self._asked_nodes_at = 0.0
        self._took = ""
        """The id of the last proposal that the network went over to."""

    async def turn(self, seen: Seen) -> None:
        """Act on what was just seen; if there is nothing to do, wait for a new request."""
        self._look_at = time.monotonic() + LOOK_EVERY_MS / 1000
        if seen.record is None:
            await self._found(seen)
            return
        if seen.record.plan.sole:
            await self._tend(seen, seen.record)
            return
        self._note(seen)
        latest: Seen | None = await self._grant_at_once(seen)
        if latest is not None and latest.is_crowded(self._unheard):
            latest = await self._gather(latest)
            latest = await self._grant_at_once(latest) if latest is not None else None
        record = latest.record if latest is not None else None
        if latest is None or record is None:
            return
        if self._is_calm(latest, record) and not self._unheard and not latest.published:
            await self._rest(latest, record)
            return
        following = await self._following(latest, record)
        if following is not None:
            await self._go_on_with(following, latest.asked)
        elif record.behind:
            await self._move(record, latest.asked)
        else:
            await self._rest(latest, record)

    async def _grant_at_once(self, seen: Seen) -> Seen | None:
        """Grant what takes no epoch; return what there is to decide by then, None if the lease is lost."""
        record = seen.record
        if record is None or not self._is_calm(seen, record) or not (self._unheard or seen.published):
            return seen
        granted = await self._granted_beside(seen, record, busy=frozenset())
        if granted is None:
            return seen
        if not await self._control.settle(self._token, granted):
            return None
        self._granted += 1
        after = seen._replace(
            record=granted,
            announced=(granted.plan.epoch, granted.plan.version),
            published=granted.plan.without_place(seen.published),
            touched=frozenset(),
        )
        self._note(after)
        return after

    async def _rest(self, seen: Seen, record: Record) -> None:
        """Forget who is gone, and wait for a new request."""
        await self._forget_publishers(record.plan)
        if (following := self._letting_go(seen, record)) is not None:
            await self._go_on_with(following, seen.asked)
        else:
            await self._next_request(seen.asked)

    async def _go_on_with(self, following: Record, asked: str) -> None:
        if Transition(following).finished:
            await self._control.settle(self._token, following)
        elif await self._control.save(self._token, following):
            await self._move(following, asked)

    def _letting_go(self, seen: Seen, record: Record) -> Record | None:
        """From time to time, return the record without those who have been gone for longer than they may be."""
        now = time.monotonic()
        if now < self._let_go_at or not self._has_planned or not seen.is_announced(record.plan):
            return None
        self._let_go_at = now + FORGET_EVERY_S
        gone = self._gone.for_good(record, seen.interests)
        return self._beside.let_go(record, gone) if gone else None

    def _note(self, seen: Seen) -> None:
        """Note who has asked for something, or has gone, since the last look."""
        record = seen.record
        touched = seen.touched if self._knows_who_asks else None
        self._knows_who_asks = record is not None and not record.plan.sole
        if record is None or record.plan.sole:
            return
        self._gone.note(record, seen.interests, record.members.keys() if touched is None else touched)
        self._unheard |= seen.interests.keys() if touched is None else touched
        self._unheard = {
            name
            for name in self._unheard
            if name in seen.interests and seen.interests[name].after(record.heard.get(name))
        }

    def _is_calm(self, seen: Seen, record: Record) -> bool:
        """Return whether joins may be granted in place at once: the nodes were looked at just now, and nothing is lost
        or declared. From time to time all is thought about, so that those who left are let go of."""
        return (
            self._has_planned
            and not record.behind
            and seen.is_announced(record.plan)
            and seen.expected == len(record.expected)
            and not seen.doubted
            and not seen.proposed
            and seen.nodes.keys() <= record.plan.nodes.keys()
            and time.monotonic() < self._looked_at_nodes + LOOK_EVERY_MS / 1000
            and self._granted < GRANTED_MAX
        )

    async def _found(self, seen: Seen) -> None:
        """Begin the network, once there is a connection: until then, nodes may be registered."""
        now_ms = time.time_ns() // 1_000_000
        if not seen.connections:
            await self._next_request(seen.asked)
            return
        if len(seen.nodes) > 1 or seen.may_lose:
            await self._control.settle(self._token, Record(first_plan(self._ordering, seen.nodes, now_ms)))
            return
        # First of all it is saved: so no node ever gets an epoch that is not the network's.
        [(node, url)] = seen.nodes.items()
        await self._control.save(self._token, Record(sole_plan(self._ordering, node, url, now_ms)))

    async def _tend(self, seen: Seen, record: Record) -> None:
        """Look after a network of one node, which needs no plan until it has another one, or loses something."""
        node = record.plan.sole
        if seen.proposed:
            await self._control.answer(self._token, seen.proposed, "the network has one node")
        if not seen.is_announced(record.plan):
            if await self._perform(BeginAny(node, record.plan), record.plan):
                await self._control.found(self._token, record)
            else:
                await self._goes_on(record.plan, wait_s=AGAIN_S)
            return
        runs = await self._operator.runs(record.plan.nodes)
        is_lost = node in runs and seen.doubted.get(node) == runs[node]
        is_lost = bool(self._found_empty(record.plan, {node})) or is_lost
        if seen.is_sole and [*seen.nodes] == [node] and not seen.may_lose and not is_lost:
            await self._forget_publishers(record.plan)
            await self._next_request(seen.asked)
            return
        interests = await self._control.begin_to_plan(self._token)
        if interests is None:
            return
        # What has lost something takes nothing more in this epoch.
        if is_lost or await self._perform(begin_listed(record, interests), record.plan):
            begun = await self._perform(BeginNoMore(node, record.plan.epoch), record.plan)
            if begun is not False:
                await self._control.settle(self._token, first_listed(record, interests, begun))
                return
        await self._goes_on(record.plan, wait_s=AGAIN_S)

    async def close(self) -> None:
        """Close the connections to the nodes, and break off waits for them."""
        running = [task for task in (self._forgetting, self._asking) if task is not None]
        self._asking = None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._operator.close()

    async def _next_request(self, after: str, until: asyncio.Future[Any] | None = None) -> bool:
        """Wait for a new request, at most for some time, or until something is done; return whether it may be there."""
        if self._stop.is_set():
            if until is not None:
                await asyncio.wait((until,))
            return False
        asking = self._asking
        if asking is None:
            asked = self._control.asked(after, block_ms=LOOK_EVERY_MS)
            asking = self._asking = asyncio.create_task(asked, name="gamecast requests")
        await asyncio.wait((asking,) if until is None else (asking, until), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done() or asking.cancelled():
            return False
        self._asking = None
        asking.result()
        return True

    async def _gather(self, seen: Seen) -> Seen | None:
        """Read the control store until no interest is new; return None if another candidate leads now."""
        for number in range(GATHER_LOOKS_MAX):
            # Not by `asked`: an idle Redis checks blocked commands only every 100 ms.
            await asyncio.sleep(GATHER_S if number else GATHER_FIRST_S)
            latest = await self._look()
            if latest is None or latest.asked == seen.asked:
                return latest
            seen = latest
        return seen

    async def _look(self) -> Seen | None:
        self._look_at = time.monotonic() + LOOK_EVERY_MS / 1000
        seen = await self._control.look(self._token, LEASE_MS)
        if seen is not None:
            self._note(seen)
        return seen

    def _in_place(self, seen: Seen, record: Record) -> Record | None:
        """Return the record after joins that affect no other subscriber: on one node, in existing regions.

        None if that does not apply or is unknown: planning takes imports and time, and runs in a thread of its own.
        """
        if [*seen.nodes] != [*record.plan.nodes] or len(seen.nodes) > 1 or record.behind or seen.proposed:
            return None
        if seen.may_lose or record.plan.runs or seen.doubted:
            return None
        alone = is_sole(record, seen.nodes)
        if seen.expected != len(record.expected) or not (alone or self._has_planned):
            return None
        if not seen.is_announced(record.plan):
            return None
        asking = {name: seen.interests[name] for name in self._unheard}
        changes = changes_asked(record, asking, seen.published, expected=record.expected)
        if changes is None or changes.missing:
            return None
        if alone:
            following = following_on_one_node
        else:
            from adapters.planning import following

        found = following(
            record, changes, seen.interests, nodes=seen.nodes, announced=True, away=self._gone.away(record)
        )
        return found if found.plan.is_laid_out_as(record.plan) else None

    async def _following(self, seen: Seen, record: Record) -> Record | None:
        if (following := self._in_place(seen, record)) is not None:
            return following
        runs = await self._operator.runs(seen.nodes)
        self._looked_at_nodes, self._granted = time.monotonic(), 0
        self._absence.note(seen.nodes, runs, time.monotonic())
        await self._note_runs(seen.nodes, runs)
        announced = not record.plan.paths or seen.is_announced(record.plan)
        # An unreachable node gets no new regions. If all are unreachable, some client has to wait anyway.
        there = are_usable(record.plan, seen.nodes, runs)
        named = self._named_runs(seen, record.plan)
        emptied: AbstractSet[str] = frozenset()
        if self._operator.emptied and announced and not record.behind:
            emptied = self._found_empty(record.plan, frozenset(chain.from_iterable(record.plan.paths.values())))
        losing = {
            name: run for name, run in runs.items() if name in named or name in emptied or seen.doubted.get(name) == run
        }
        for name in losing.keys() - named:
            logger.warning(
                "manager: node %s lost acknowledged events in a restart, although it is registered to keep all: its "
                "regions begin a new epoch, and from now on it counts as a node that may lose events",
                name,
            )
        for name, run in (silent := self._given_up(record, seen.nodes, runs)).items():
            logger.warning("manager: node %s (%s) does not answer: its regions go on at other nodes", name, run)
        losing |= silent
        there = {name: url for name, url in there.items() if name not in silent}
        is_whole = all(_is_named(record.plan, name, run) for name, run in losing.items())
        if seen.proposed and announced and not record.behind and is_whole:
            following = await self._proposed(seen, record, there)
            if following is not None:
                return following
        expected = record.expected
        if seen.expected != len(expected):
            expected = await self._control.expected()
        interests = dict(seen.interests)  # as they are now: more is noted while the plan is made
        asking = {name: interests[name] for name in self._unheard if name in interests}
        changes = partial(changes_asked, record, asking, seen.published, runs=losing, expected=expected)
        deciding = asyncio.ensure_future(
            asyncio.to_thread(_decide, record, changes, interests, there, announced, self._gone.away(record))
        )
        self._there = there
        is_calm = announced and not record.behind and not losing and len(expected) == len(record.expected)
        now = await self._serve_until(deciding, record, seen, is_calm=is_calm and self._may_grant_beside)
        if now is None:
            return None
        following = deciding.result()
        self._has_planned = self._has_planned or (following is not None and not is_sole(following, there))
        if following is not None and now is not record:
            following = self._beside.rebased(record, following, now)
        self._may_grant_beside = following is not None or now is record
        return following

    async def _proposed(self, seen: Seen, record: Record, nodes: Mapping[str, str]) -> Record | None:
        """Return the record that goes over to the plan that is proposed; None, with an answer, where it does not fit,
        or is what there is."""
        proposal, answer = seen.proposed, ""
        try:
            found = await self._control.proposal() if proposal != self._took else None
            if found is not None:
                proposal, plan = found
                interests, away = dict(seen.interests), self._gone.away(record)
                # Those of the plan, too, that are not registered: the control Redis, where a network began with it.
                others = {name: url for name, url in record.plan.nodes.items() if name not in seen.nodes}
                there = nodes.keys() | (await self._operator.runs(others)).keys()
                deciding = asyncio.ensure_future(
                    asyncio.to_thread(_go_over, record, plan, interests, nodes, there, away)
                )
                if not await self._leads_until(deciding):
                    return None
                if (following := deciding.result()) is not None:
                    self._took, self._has_planned, self._there = proposal, True, nodes
                    logger.info("manager: goes over to the plan that was proposed as %s", proposal)
                    return following
        except PlanError as error:
            answer = str(error)
        await self._control.answer(self._token, proposal, answer)
        return None

    def _given_up(self, record: Record, nodes: Mapping[str, str], runs: Mapping[str, str]) -> dict[str, str]:
        """Return what plans name the nodes to give up. ``runs``: of those that have answered now."""
        limits_s = {name: limit_s for name, url in nodes.items() if (limit_s := own_options(url)[1].give_up_s)}
        too_long = self._absence.too_long(limits_s, time.monotonic())
        return given_up(record, nodes, runs, too_long, last=self._runs or {})

    async def _note_runs(self, nodes: Mapping[str, str], runs: Mapping[str, str]) -> None:
        """Note the runs of nodes that may be given up, for the next leader, too: they are not back in the same run."""
        may_go = [name for name, url in nodes.items() if MAY_GIVE_UP in url]
        if not may_go:
            return
        if self._runs is None:
            self._runs = dict(await self._control.runs_seen())
        news = {name: runs[name] for name in may_go if name in runs and self._runs.get(name) != runs[name]}
        if news and await self._control.note_runs(self._token, news):
            self._runs |= news

    async def _is_overdue(self, record: Record) -> bool:
        """Note which nodes of a transition answer; return whether one of them is to be given up."""
        nodes = record.plan.nodes
        if not any(MAY_GIVE_UP in url for url in nodes.values()):
            return False
        runs = await self._operator.runs(nodes)
        self._absence.note(nodes, runs, time.monotonic())
        return bool(self._given_up(record, nodes, runs))

    async def _serve_until(
        self, deciding: asyncio.Future[Any], record: Record, seen: Seen, *, is_calm: bool
    ) -> Record | None:
        """Wait for a plan; meanwhile keep the lease, and grant in place what needs none. Return the record that is so
        then, None if this leader has lost the lease."""
        if not is_calm or not self._has_planned:
            return record if await self._leads_until(deciding) else None
        asking = {name: seen.interests[name].after(record.heard.get(name)) for name in self._unheard}
        placing, _ = wished(record.plan.without_place(seen.published))
        busy = placing.union(*asking.values(), *(record.members.get(name, ()) for name in asking))
        now, asked = record, seen.asked
        while not deciding.done():
            if not await self._next_request(asked, deciding):
                continue
            latest = await self._look()
            if latest is None or latest.taken:
                await self._leads_until(deciding)
                return None
            asked = latest.asked
            granted = await self._granted_beside(latest, now, busy=busy, apart_from=asking.keys())
            if granted is not None:
                if not await self._control.settle(self._token, granted):
                    await self._leads_until(deciding)
                    return None
                now = granted
        return now

    async def _granted_beside(
        self, seen: Seen, record: Record, *, busy: AbstractSet[str], apart_from: AbstractSet[str] = frozenset()
    ) -> Record | None:
        """Return the record in which something is granted beside a plan that is being made or brought to the nodes."""
        if seen.expected != len(record.expected) or seen.doubted or not seen.nodes.keys() <= record.plan.nodes.keys():
            return None
        nodes = {name: url for name, url in self._there.items() if name in record.plan.nodes}
        interests = {name: seen.interests[name] for name in self._unheard - apart_from}
        following = self._beside.granted_beside(
            record, interests, seen.published, nodes=nodes or record.plan.nodes, busy=busy
        )
        if following is None:
            return None
        performing = [self._perform(task, following.plan) for task in self._beside.to_prepare(record, following)]
        answers = await asyncio.gather(*performing)
        return following if all(answer is True for answer in answers) else None

    @property
    def _beside(self) -> ModuleType:
        from sequencing import beside  # takes the planner's libraries: by now they are loaded

        return beside

    def _found_empty(self, plan: Plan, used: AbstractSet[str]) -> AbstractSet[str]:
        """Return which nodes of a plan that are used were empty twice in a row.

        Once is not enough: a slow answer may date from before the node knew any plan.
        """
        number, now = (plan.epoch, plan.version), self._operator.emptied & used
        emptied = now & self._emptied_before[1] if self._emptied_before[0] == number else frozenset[str]()
        self._emptied_before = number, now
        return emptied

    async def _forget_publishers(self, plan: Plan) -> None:
        """From time to time, have the nodes remove publishers that are still disconnected since the last check."""
        now, before = time.monotonic(), self._connected
        if before is not None and now < before[0] + max(self._resume_s, FORGET_EVERY_S):
            return
        if self._forgetting is not None:
            if not self._forgetting.done():
                return
            if (error := self._forgetting.exception()) is not None:
                logger.warning("manager: cannot remove disconnected publishers: %r", error)
        last, names = await self._control.incarnations()
        self._connected = now, last, names
        if before is not None:
            forgetting = self._operator.forget_publishers(plan, before[1], names | before[2])
            self._forgetting = asyncio.create_task(forgetting, name="gamecast forgetting")

    async def _move(self, record: Record, asked: str) -> None:
        """Finish a transition, unless the lease is lost or a node of it has restarted; grant others joins meanwhile."""
        move = Move(record)
        moving = asyncio.create_task(self._transit(move), name="gamecast transition")
        announced = asyncio.create_task(move.announced.wait())
        try:
            await asyncio.wait((moving, announced), return_when=asyncio.FIRST_COMPLETED)
            if not moving.done() and self._has_planned:
                await self._serve_beside(move, moving, asked)
        finally:
            announced.cancel()
            # It ends by itself when the lease is lost; the next leader can repeat a task at a node.
            await asyncio.gather(moving, return_exceptions=True)
        moving.result()

    async def _serve_beside(self, move: Move, moving: asyncio.Future[None], asked: str) -> None:
        """Grant joins that a transition does not concern, until it has ended."""
        busy = self._beside.moving_regions(move.record)
        while not moving.done():
            if not await self._next_request(asked, moving):
                continue
            if (seen := await self._look()) is None or seen.taken:
                return
            asked = seen.asked
            granted = await self._granted_beside(seen, move.record, busy=busy)
            async with move.writing:
                if granted is None or move.is_over:
                    continue
                if not await self._control.grant(self._token, granted):
                    return
                move.record = granted

    async def _transit(self, move: Move) -> None:
        record = move.record
        transition, plan = Transition(record), record.plan
        announced = False
        while not transition.finished and not self._stop.is_set():
            if transition.prepared and not announced:
                announced = await self._control.announce(self._token, record)
                if not announced:
                    return
                move.announced.set()
            tasks = transition.tasks()
            performing = asyncio.gather(*(self._perform(task, plan) for task in tasks))
            if not await self._leads_until(performing, record):
                return
            for task, answer in zip(tasks, performing.result(), strict=True):
                transition.done(task, answer)
            left = transition.tasks()
            wait_s = AGAIN_S if left == tasks else 0
            if left and not await self._goes_on(plan, wait_s=wait_s, record=record):
                return
        if transition.finished and (announced or await self._control.announce(self._token, record)):
            async with move.writing:
                move.is_over = True
                await self._control.save(self._token, move.record.settled())

    async def _leads_until(self, performing: asyncio.Future[Any], record: Record | None = None) -> bool:
        """Wait for tasks, which may take longer than a lease; return whether this leader still has the lease.

        The next leader can repeat a task at a node, so tasks are not cancelled. But they are broken off, and False is
        returned, where a node of the transition of ``record`` is to be given up: one that hangs holds them up.
        """
        leads = True
        while True:
            await asyncio.wait((performing,), timeout=LOOK_EVERY_MS / 1000)
            if performing.done():
                return leads
            leads = leads and not self._stop.is_set() and await self._control.keep(self._token, LEASE_MS)
            if leads and record is not None and await self._is_overdue(record):
                performing.cancel()
                await asyncio.wait((performing,))
                return False

    async def _goes_on(self, plan: Plan, *, wait_s: float, record: Record | None = None) -> bool:
        """Wait; return whether this leader still has the lease, and the nodes are in the runs that the plan names.

        ``record``: of a transition, which does not go on where a node is to be given up.
        """
        await asyncio.sleep(wait_s)
        # Who grants joins beside a transition looks, too, but not at the nodes.
        if time.monotonic() < min(self._look_at, self._asked_nodes_at + LOOK_EVERY_MS / 1000):
            return await self._control.keep(self._token, LEASE_MS)
        self._asked_nodes_at = time.monotonic()
        seen = await self._look()
        if seen is None or seen.taken or (record is not None and await self._is_overdue(record)):
            return False
        named = self._named_runs(seen, plan) & plan.nodes.keys()
        runs = await self._operator.runs({name: plan.nodes[name] for name in named})
        return all(_is_named(plan, name, run) for name, run in runs.items())

    @staticmethod
    def _named_runs(seen: Seen, plan: Plan) -> AbstractSet[str]:
        """Return the nodes whose runs plans name.

        That includes nodes that are registered to keep all now: clients only talk to the run that the plan names.
        """
        return seen.may_lose | plan.runs.keys()

    async def _perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        try:
            return await self._operator.perform(task, plan)
        except GamecastError as error:
            if self._waits_for != (waits_for := (plan.epoch, plan.version, task.node)):
                self._waits_for = waits_for
                logger.warning("manager: plan %d.%d waits for node %s: %r", *waits_for, error)
            return False


def _is_named(plan: Plan, node: str, run: str) -> bool:
    """Return whether a plan names the run of a server, or has given its node up in that run."""
    return plan.runs.get(node) in (run, GIVEN_UP + run)


def _go_over(
    record: Record,
    proposed: Plan,
    interests: Mapping[str, Interest],
    nodes: Mapping[str, str],
    there: AbstractSet[str],
    away: Members,
) -> Record | None:
    found: Record | None = _planning().proposed_record(record, proposed, interests, nodes=nodes, there=there, away=away)
    return found


def _decide(
    record: Record,
    changes_of: Callable[[], Changes | None],
    interests: Mapping[str, Interest],
    nodes: Mapping[str, str],
    announced: bool,
    away: Members,
) -> Record | None:
    changes = changes_of()
    if changes is None:
        return None
    if is_sole(record, nodes):
        return following_on_one_node(record, changes, interests, nodes=nodes, announced=announced, away=away)
    found: Record = _planning().following(record, changes, interests, nodes=nodes, announced=announced, away=away)
    return found


def _planning() -> ModuleType:
    """Return `adapters.planning`, loaded only now, see there; in a thread that plans, because it takes a while."""
    try:
        from adapters import planning
    except Exception as error:  # incompatible libraries raise exceptions of all kinds
        raise ImportError(str(error)) from error

    return planning
