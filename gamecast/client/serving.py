"""Serving a node: one task offers it the frames that a session has for it, one request at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from adapters.backoff import Backoff
from adapters.network import Lane
from adapters.redis.deadline import Deadline
from gamecast.client.receipts import Token
from gamecast.client.watching import Health, Late
from sequencing.errors import GamecastError, NetworkError, OtherSideError, PublishUncertain, Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
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

    def watch_stale(self) -> None:
        """Have events given up later that an ingress refused, unless a plan comes."""

    def end(self, error: Exception) -> None:
        """Fail everything from now on."""


class NodeService:
    """Publishes through one node."""

    def __init__(
        self, node: str, lane: Lane, host: Host, session: Session[Token], health: Health, *, timeout_s: float
    ) -> None:
        """``timeout_s``: how long frames are offered before their events fail."""
        self.lane = lane
        self.wake = asyncio.Event()
        """Set when there may be something to offer."""
        self.reconnects = 0
        self._node = node
        self._host = host
        self._session = session
        self._health = health
        self._timeout_s = timeout_s
        self.task = asyncio.create_task(self.serve(), name=f"gamecast publish {node}")

    async def serve(self) -> None:
        """Offer frames until the connection closes."""
        node, wake = self._node, self.wake
        limit, late = Deadline(), Late(self._health, way_to(node), LATE_S)
        busy = False
        try:
            while not self._host.is_closing:
                if busy:
                    await self._linger()
                frames = self._session.take(node)
                if not frames:
                    wake.clear()
                    if not self._host.is_closing:  # which may have begun while this one lingered
                        await wake.wait()
                    continue
                try:
                    answers = await self._offer(frames, limit, late)
                except Exception as error:  # noqa: BLE001 - whatever it is, the events' futures must tell
                    if not isinstance(error, OtherSideError):
                        self._session.unanswered(node)
                    self._give_up(as_ours(error))
                    continue
                self._host.carry_out(self._session.answered(node, answers))
                self._host.watch_stale()
                if any(answer.verdict is Verdict.WAIT for answer in answers):
                    await asyncio.sleep(WAIT_S)
                busy = sum(frame.count for frame in frames) >= LINGER_FROM_EVENTS
                del answers, frames  # they may be many, and the next ones may be long in coming
        except Exception as error:  # noqa: BLE001 - whatever it is, publishing must fail with it
            _log.exception("publishing through node %s has ended", node)
            self._host.end(error)
        finally:
            limit.close()
            late.close()
            await self.lane.close()

    async def _linger(self) -> None:
        node = self._node
        deadline = time.monotonic() + LINGER_S
        before, waiting = -1, self._session.waiting_events(node)
        while before < waiting < LINGER_UNTIL_EVENTS and time.monotonic() < deadline:
            await asyncio.sleep(0)
            before, waiting = waiting, self._session.waiting_events(node)

    async def _offer(self, frames: Sequence[PublishedFrame], limit: Deadline, late: Late) -> list[Answer]:
        """Offer frames until the node answers; raises the last error when that takes too long.

        ``limit`` and ``late``: for one request at a time.
        """
        node, backoff, way = self._node, Backoff(), way_to(self._node)
        began = time.monotonic()
        deadline = began + self._timeout_s
        while True:
            left_s = max(REQUEST_S_MIN, deadline - time.monotonic())
            late.begin()
            try:
                with limit.within(left_s):
                    answers = await self.lane.publish(frames)
                self._health.mark_up(way)
                return answers
            except (NetworkError, TimeoutError) as failed:
                error = failed if isinstance(failed, NetworkError) else Unreachable(f"node {node!r} does not answer")
                self._session.unanswered(node)
                self.reconnects += 1
                self._health.mark_down(way, error)
                if not self._session.is_in_flight(node):
                    return []  # given up meanwhile: the node was reset
                wait_s = backoff.next_s()
                if self._host.is_closing or time.monotonic() + wait_s > deadline:
                    raise PublishUncertain(
                        f"no answer from the ingress for {time.monotonic() - began:.1f} s, so these events may or may "
                        f"not have been published: {error}"
                    ) from failed
                await asyncio.sleep(wait_s)
            finally:
                late.end()

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
