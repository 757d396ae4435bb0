"""A leader's host: carries out the errands of `sequencing.leader` at the control store and the nodes.

A manager imports it when it begins to lead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from adapters.leadership import LEASE_MS, LOOK_EVERY_MS, Control, NodeOperator
from adapters.urls import own_options
from sequencing import errands, leader
from sequencing.errands import Errand, Handle, Planning, Runs, Seen, Steps
from sequencing.errors import GamecastError
from sequencing.plan import Ordering, Plan
from sequencing.sole import BeginAny, BeginNoMore
from sequencing.transition import Task

MAY_GIVE_UP = "give_up_s="
"""Part of the URLs of nodes that may be given up, see `adapters.urls`."""

PACE = leader.Pace(look_every_s=LOOK_EVERY_MS / 1000)

logger = logging.getLogger("gamecast.manager")


class _Work:
    """Work that was begun. Implements `sequencing.errands.Handle`."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task

    @property
    def is_done(self) -> bool:
        """See `Handle.is_done`."""
        return self.task.done()

    def result(self) -> Any:
        """See `Handle.result`."""
        return self.task.result()


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
        self._control, self._operator, self._token = control, operator, token
        self._ordering: Ordering = ordering
        self._resume_s, self._stop = resume_s, stop
        self._begun: set[asyncio.Task[Any]] = set()
        """What this turn has begun."""
        self._forgetting: asyncio.Task[Any] | None = None
        """Goes on beside turns."""
        self._asking: asyncio.Task[None] | None = None
        """Waits for a new request."""
        self._waits_for: tuple[int, int, str] | None = None
        self.machine = self._new_machine()

    def _new_machine(self) -> leader.Leader:
        return leader.Leader(
            self._ordering,
            self._resume_s,
            planning=_planning,
            give_up_s_of=_give_up_s,
            is_stopping=self._stop.is_set,
            now_s=time.monotonic,
            wall_ms=lambda: time.time_ns() // 1_000_000,
            pace=PACE,
        )

    async def turn(self, seen: Seen) -> None:
        """Act on what was just seen; if there is nothing to do, wait for a new request."""
        if seen.taken or self.machine.is_over:
            self.machine = self._new_machine()
        try:
            await self.carry_out(self.machine.turn(seen))
        finally:
            # It waits for all that it has begun, unless it fails; the next leader can repeat a task at a node.
            for task in (left := [*self._begun]):
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def close(self) -> None:
        """Break off waits for the nodes, and close the connections to them."""
        running = [task for task in (self._forgetting, self._asking) if task is not None]
        self._asking = None
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._operator.close()

    async def carry_out(self, steps: Steps[Any]) -> Any:
        """Carry out errands, one after the other; return what they come to."""
        answer, error = None, None
        while True:
            try:
                errand = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = await self._do(errand)
            except (Exception, asyncio.CancelledError) as failed:  # noqa: BLE001 - the leader's own work decides
                error = failed

    async def _do(self, errand: Errand) -> Any:
        control, operator, token = self._control, self._operator, self._token
        match errand:
            case errands.Look():
                return await control.look(token, LEASE_MS, begins=False)
            case errands.Keep():
                return await control.keep(token, LEASE_MS)
            case errands.Write(how, record):
                return await getattr(control, how)(token, record)
            case errands.Until(works, seconds, asked):
                return await self._until(works, seconds, asked)
            case errands.AskRuns(nodes):
                runs = await operator.runs(nodes)
                return Runs(runs, operator.emptied, operator.installed)
            case errands.Perform(tasks, plan):
                return await asyncio.gather(*(self._perform(task, plan) for task in tasks))
            case errands.Begin(work):
                return self._begin(work)
            case errands.BreakOff(_Work() as work):
                work.task.cancel()
                await asyncio.wait((work.task,))
            case errands.Compute(function):
                return await asyncio.to_thread(function)
            case errands.BeginToPlan():
                return await control.begin_to_plan(token)
            case errands.ReadExpected():
                return await control.expected()
            case errands.ReadProposal():
                return await control.proposal()
            case errands.AnswerProposal(proposal, answer):
                return await control.answer(token, proposal, answer)
            case errands.ReadRuns():
                return await control.runs_seen()
            case errands.NoteRuns(noted):
                return await control.note_runs(token, noted)
            case errands.ReadIncarnations():
                return await control.incarnations()
            case errands.ForgetPublishers(plan, upto, living):
                return await operator.forget_publishers(plan, upto, living)
            case errands.Tell(text, arguments, is_warning):
                logger.log(logging.WARNING if is_warning else logging.INFO, "manager: %s", text % arguments)
        return None

    def _begin(self, work: Errand | Steps[Any]) -> Handle:
        doing = self._do(work) if isinstance(work, Errand) else self.carry_out(work)
        task = asyncio.create_task(doing, name="gamecast leading")
        if isinstance(work, errands.ForgetPublishers):
            self._forgetting = task
        else:
            self._begun.add(task)
            task.add_done_callback(self._ended)
        return _Work(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # a turn that fails does not wait for what it has begun

    async def _until(self, works: tuple[Handle, ...], seconds: float | None, asked: str | None) -> bool:
        """See `sequencing.errands.Until`."""
        tasks = [work.task for work in works if isinstance(work, _Work)]
        waiting: list[asyncio.Future[Any]] = [*tasks]
        if asked is not None:
            # It waits for so long itself, and goes on waiting when some work ends first.
            if self._asking is None:
                asking = self._control.asked(asked, block_ms=LOOK_EVERY_MS)
                self._asking = asyncio.create_task(asking, name="gamecast requests")
            waiting.append(self._asking)
            seconds = None
        if not waiting:
            await asyncio.sleep(seconds or 0.0)
            return True
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if asked is None:
            return not any(task.done() for task in tasks)
        asking_done = self._asking
        if asking_done is None or not asking_done.done() or asking_done.cancelled():
            return False
        self._asking = None
        asking_done.result()
        return True

    async def _perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        try:
            return await self._operator.perform(task, plan)
        except GamecastError as error:
            if self._waits_for != (waits_for := (plan.epoch, plan.version, task.node)):
                self._waits_for = waits_for
                logger.warning("manager: plan %d.%d waits for node %s: %r", *waits_for, error)
            return False


def _give_up_s(url: str) -> float:
    return own_options(url)[1].give_up_s or 0.0 if MAY_GIVE_UP in url else 0.0


def _planning() -> Planning:
    """Return `adapters.planning`, loaded only now, see there; in a thread that plans, because it takes a while."""
    try:
        from adapters import planning
    except Exception as error:  # incompatible libraries raise exceptions of all kinds
        raise ImportError(str(error)) from error

    return planning
