"""Serving a node: one task offers it the frames that a session has for it, one request at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from adapters.backoff import Backoff
from adapters.network import Lane, Sender
from adapters.redis.deadline import Deadline
from gamecast.client.receipts import Token
from gamecast.client.watching import Health, Late
from sequencing.errors import GamecastError, NetworkError, OtherSideError, PublishUncertain, Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.publisher import Question
from sequencing.resolved import Resolved
from sequencing.session import Effects, Session

_log = logging.getLogger(__name__)

LINGER_FROM_EVENTS = 64
LINGER_UNTIL_EVENTS = 2048
LINGER_S = 0.01
"""After a request of many events, the next one waits while the application goes on publishing, until there are really
many: what each frame costs its subscribers is spread over more events. No event waits for a pause: the first round of
the event loop without a new event ends it. Under light load, requests are small and never wait."""

WAIT_S = 0.002
"""How long to wait for an ingress that opens soon."""

PENDING_S = 0.0005, 0.016
"""How long to wait before events are offered again whose keys another node is deciding: so long at first, twice as long
each time, so long at most. What else there is to send meanwhile does not wait, and takes them along."""

ASK_S = 0.0003, 0.005
"""How long to wait before a node is asked again what became of events of several regions: half as long as the newest
have waited, within these bounds."""

LATE_S = 1.5
"""A request that is not answered within this counts as a way that is lost, and waits on."""

REQUEST_S_MIN = 1.0
"""A request is not given up sooner, also if ``publish_timeout_s`` is shorter: the answer may be there, and this process
too busy to read it."""


class Host(Protocol):
    """What carries out a session's effects."""

    is_closing: bool

    def carry_out(self, effects: Effects[Token]) -> None:
        """Carry out effects."""

    def resolve(self, resolved: Resolved[Token]) -> None:
        """Tell the publishers of the events of one frame their fate, where nothing else follows from that."""

    def watch_stale(self) -> None:
        """Have events given up later that an ingress refused, unless a plan comes."""

    def end(self, error: Exception) -> None:
        """Fail everything from now on."""


class NodeService:
    """Publishes through one node. Implements `adapters.network.Sender`.

    As long as nothing is in the way, requests go out and are answered without the task: it is woken only where
    something is to be opened, waited for, repeated or given up.
    """

    def __init__(
        self,
        node: str,
        make_lane: Callable[[Sender], Lane],
        host: Host,
        session: Session[Token],
        health: Health,
        *,
        timeout_s: float,
    ) -> None:
        """``timeout_s``: how long frames are offered before their events fail."""
        self.limit_s = max(REQUEST_S_MIN, timeout_s)
        self.lane = make_lane(self)
        self.reconnects = 0
        self._wake = asyncio.Event()
        self._is_parked = False
        """Whether the task has nothing to do."""
        self._is_under_way = False
        """Whether there is a request without the task."""
        self._is_offered = False
        """Whether the lane will ask soon what there is."""
        self._began = 0.0
        """When such a request was sent."""
        self._has_failed = False
        self._failure: Exception | None = None
        """Whether such a request has failed, and with what, if it may have been accepted."""
        self._is_busy = self._is_early = False
        """Whether the last request was a large one; whether it was refused by an ingress that opens soon."""
        self._is_pending = False
        """Whether it was refused because another node is deciding a key."""
        self._pending_s = PENDING_S[0]
        self.pending_retries = 0
        """How often frames were refused for that, and offered again."""
        self._landing: dict[Question, float] = {}
        """Since when events of several regions wait for this node to decide them."""
        self._asking: asyncio.TimerHandle | None = None
        self._way = way_to(node)
        self._late = Late(health, self._way, LATE_S)
        self._node = node
        self._host = host
        self._session = session
        self._health = health
        self._timeout_s = timeout_s
        self.task = asyncio.create_task(self.serve(), name=f"gamecast publish {node}")

    def offer(self) -> None:
        """Offer what there is, together with all that is published in this round of the event loop."""
        if not (self._is_under_way or self._is_offered):
            self._is_offered = True
            self.lane.offer()

    def may_send(self) -> bool:
        """Return whether `send` can be called: nothing is in the way of a frame, and nothing could go with it."""
        is_free = self._is_parked and not self._is_under_way and not self._host.is_closing
        return is_free and self.lane.may_send()

    def send(self, frame: PublishedFrame) -> None:
        """Send a frame now that the session has taken alone."""
        self._is_under_way = True
        self._began = time.monotonic()
        self._late.begin()
        self.lane.send(frame)

    def close(self) -> None:
        """End: what is under way gets its answer."""
        self._wake.set()

    def must_publish(self) -> None:
        """See `Sender.must_publish`."""
        self._is_offered = False
        self._wake.set()

    def take(self) -> Sequence[PublishedFrame]:
        """See `Sender.take`."""
        self._is_offered = False
        if self._is_under_way:
            return ()
        if not self._is_parked or self._host.is_closing:
            self._wake.set()
            return ()
        frames = self._session.take(self._node)
        if frames:
            self._is_under_way = True
            self._began = time.monotonic()
            self._late.begin()
        return frames

    def answered(self, answers: Sequence[Answer], error: Exception | None) -> None:
        """See `Sender.answered`; what has failed is handed to the task."""
        self._is_under_way = False
        self._late.end()
        if error is not None:
            # What the other side refuses is offered once more, by the task: it may only lack the script.
            self._has_failed, self._failure = True, None if isinstance(error, OtherSideError) else error
            self._wake.set()
            return
        try:
            self._settle_at_once(answers)
        except Exception as wrong:  # noqa: BLE001 - whatever it is, publishing must fail with it
            self._end(wrong)
        if self._is_busy or self._is_early or self._is_pending or self._host.is_closing:
            self._wake.set()
        elif self._session.waiting_events(self._node):
            self.offer()
        self._ask_later()

    def _ask_later(self) -> None:
        """Ask again after a while what becomes of events that this node decides; give up those that take too long."""
        landing = self._session.landing(self._node)
        if not landing:
            self._landing.clear()
            return
        now = time.monotonic()
        self._landing = {each: self._landing.get(each, now) for each in landing}
        late = [each for each, since in self._landing.items() if now - since > self._timeout_s]
        if late:
            error = PublishUncertain(
                f"node {self._node!r} has not got these events for {self._timeout_s:g} s, of which other nodes have "
                "numbered a part: they may or may not be published"
            )
            self._host.carry_out(self._session.give_up_landing(self._node, late, error))
        if self._asking is None:
            least, most = ASK_S
            wait_s = min(max(least, (now - max(self._landing.values())) / 2), most)
            self._asking = asyncio.get_running_loop().call_later(wait_s, self._ask)

    def _ask(self) -> None:
        self._asking = None
        if not self._host.is_closing:
            self._session.ask_again(self._node)
            self.offer()

    def _settle_at_once(self, answers: Sequence[Answer]) -> None:
        lone = self._session.answered_lone(self._node, answers[0]) if len(answers) == 1 else None
        if lone is None:
            self._settle(self._session.in_flight(self._node), answers)
            return
        self._health.mark_up(self._way)
        self._host.resolve(lone)
        self._is_busy = len(lone.tokens) >= LINGER_FROM_EVENTS

    def _settle(self, frames: Sequence[PublishedFrame], answers: Sequence[Answer]) -> None:
        self._health.mark_up(self._way)
        self._host.carry_out(self._session.answered(self._node, answers))
        self._host.watch_stale()
        verdicts = [answer.verdict for answer in answers]
        self._is_early, self._is_pending = Verdict.WAIT in verdicts, Verdict.PENDING in verdicts
        if self._is_pending:
            self.pending_retries += verdicts.count(Verdict.PENDING)
        self._is_busy = sum([frame.count for frame in frames]) >= LINGER_FROM_EVENTS

    def _end(self, error: Exception) -> None:
        _log.error("publishing through node %s has ended", self._node, exc_info=error)
        self._host.end(error)

    async def serve(self) -> None:
        """Offer frames until the connection closes."""
        node, limit = self._node, Deadline()
        try:
            while not self._host.is_closing or self._is_under_way:
                if self._is_early:
                    await asyncio.sleep(WAIT_S)
                elif self._is_pending:
                    await self._wait_for_keys()
                else:
                    self._pending_s = PENDING_S[0]
                if self._is_busy:
                    await self._linger()
                self._is_early = self._is_busy = self._is_pending = False
                error, self._failure = self._failure, None
                frames = self._next()
                if not frames:
                    await self._park()
                    continue
                try:
                    answers = await self._offer(frames, limit, error)
                except Exception as failed:  # noqa: BLE001 - whatever it is, the events' futures must tell
                    if not isinstance(failed, OtherSideError):
                        self._session.unanswered(node)
                    self._give_up(as_ours(failed))
                    continue
                self._settle(frames, answers)
                self._ask_later()
                del answers, frames  # they may be many, and the next ones may be long in coming
        except Exception as error:  # noqa: BLE001 - whatever it is, publishing must fail with it
            self._end(error)
        finally:
            if self._asking is not None:
                self._asking.cancel()
            limit.close()
            self._late.close()
            await self.lane.close()

    async def _wait_for_keys(self) -> None:
        """Wait until another node may have decided, or there is more to send."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pending_s):
                await self._wake.wait()
        self._pending_s = min(2 * self._pending_s, PENDING_S[1])

    def _next(self) -> Sequence[PublishedFrame]:
        if self._has_failed:
            self._has_failed = False
            return self._session.in_flight(self._node)
        return () if self._is_under_way or self._host.is_closing else self._session.take(self._node)

    async def _park(self) -> None:
        self._wake.clear()
        if not self._host.is_closing or self._is_under_way:  # it may have begun while this one lingered
            self._is_parked, self._is_offered = True, False  # the lane may have had of the task what it asked for
            await self._wake.wait()
            self._is_parked = False

    async def _linger(self) -> None:
        node = self._node
        deadline = time.monotonic() + LINGER_S
        before, waiting = -1, self._session.waiting_events(node)
        while before < waiting < LINGER_UNTIL_EVENTS and time.monotonic() < deadline:
            await asyncio.sleep(0)
            before, waiting = waiting, self._session.waiting_events(node)

    async def _offer(
        self, frames: Sequence[PublishedFrame], limit: Deadline, failed: Exception | None
    ) -> Sequence[Answer]:
        """Offer frames until the node answers; raises the last error when that takes too long.

        ``limit``: for one request at a time; ``failed``: with what they have failed before, without an answer.
        """
        node, backoff = self._node, Backoff()
        began = time.monotonic() if failed is None else self._began
        deadline = began + self._timeout_s
        while True:
            if failed is None:
                self._late.begin()
                try:
                    with limit.within(max(REQUEST_S_MIN, deadline - time.monotonic())):
                        return await self.lane.publish(frames)
                except (NetworkError, TimeoutError) as caught:
                    failed = caught
                finally:
                    self._late.end()
            error = failed if isinstance(failed, NetworkError) else Unreachable(f"node {node!r} does not answer")
            self._session.unanswered(node)
            self.reconnects += 1
            self._health.mark_down(self._way, error)
            if not self._session.in_flight(node):
                return []  # given up meanwhile: the node was reset
            wait_s = backoff.next_s()
            if self._host.is_closing or time.monotonic() + wait_s > deadline:
                raise PublishUncertain(
                    f"no answer from the ingress for {time.monotonic() - began:.1f} s, so these events may or may "
                    f"not have been published: {error}"
                ) from failed
            failed = None
            await asyncio.sleep(wait_s)

    def _give_up(self, error: GamecastError) -> None:
        """Fail what is buffered for the node."""
        node = self._node
        cause = error.__cause__ if isinstance(error.__cause__, GamecastError) else "it does not answer"
        waiting = error if error.definite else Unreachable(f"the ingress {node!r} cannot be reached: {cause}")
        self._host.carry_out(self._session.give_up(node, in_flight=error, waiting=waiting))


def way_to(node: str) -> str:
    """Return what a node is called in the connection's status."""
    return f"publishing through {node}"


def as_ours(error: Exception) -> GamecastError:
    """Return an error of this library for any error."""
    return error if isinstance(error, GamecastError) else NetworkError(f"publishing failed unexpectedly: {error!r}")
