"""Game servers on the move: one driver takes a workload's changes and publications in the order of the trace.

So trace time is one for all servers, however fast it goes. The driver asks for regions and does not wait until they
are joined: the match continues meanwhile, as a real one would. Trace time stands still only while `JOINS_PENDING_MAX`
calls of subscribe are in flight, or `EVENTS_PENDING_MAX` events wait for their receipts. Otherwise, as fast as
possible, the match would be over before any server is in a region. A server that has to leave a region before it is in
cancels the join.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from demo.match.hosting import Publication, Workload
from demo.match.roaming import Change, settled
from demo.replay import BURST_EVENTS, Delivered, Pace, Travels
from sequencing.checkers.stays import Placed, Position, Stay

JOINS_PENDING_MAX = 16
"""More make a replay faster, because one new epoch takes in all that wait; fewer let servers miss less of the match."""

EVENTS_PENDING_MAX = 1024

_CLOCK_NS = time.time_ns() - time.monotonic_ns()


class Port(Protocol):
    """A game server's access to a network. Its deliveries go to `Journey.delivered`."""

    async def subscribe(self, *regions: str) -> None:
        """Return when all that is published from then on will be delivered."""

    async def unsubscribe(self, *regions: str) -> None:
        """Have nothing more of these regions delivered than is decided upon."""

    def publish(self, publication: Publication) -> asyncio.Future[Any]:
        """Publish; the future ends when that is done, or with the error."""

    @property
    def decided(self) -> int:
        """The number of decided deliveries that are still to be made; everything else comes after them."""


class Journey:
    """One replay by servers that roam: their deliveries, and their stays."""

    def __init__(self, workload: Workload, ports: Mapping[str, Port]) -> None:
        self.deliveries: dict[str, list[Delivered]] = {name: [] for name in workload.servers}
        self.stays: list[Stay] = []
        self.settled = 0
        """The number of stays when the servers had settled."""
        self._complete = asyncio.Event()
        self._workload = workload
        self._ports = ports
        self._open: dict[tuple[str, str], Stay] = {}
        self._newest: dict[tuple[str, str], tuple[int, str]] = {}
        """(server, region) → place and id of the last delivery."""
        self._last: dict[str, Placed] | None = None
        """Region → its last event, when all is published and all joins are through."""
        self._placed: tuple[Placed, ...] = ()
        self._published: list[tuple[Publication, int, asyncio.Future[Any]]] = []
        self._events_pending = asyncio.Semaphore(EVENTS_PENDING_MAX)
        self._joins_pending = asyncio.Semaphore(JOINS_PENDING_MAX)
        self._joining: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def settle(self) -> None:
        """Have all servers join the regions in which they are before the replay begins."""
        joins = (self._join(server, regions) for server, regions in settled(self._workload.changes).items() if regions)
        await asyncio.gather(*joins)
        self.settled = len(self.stays)

    async def drive(self, pace: Pace) -> None:
        """Do everything, in the order of the trace; return when all joins are through and all events are published.

        Raises the first error of any.
        """
        try:
            for count, step in enumerate(self._workload.steps(), start=1):
                ahead_s = pace.ahead_s(step.t_s if isinstance(step, Publication) else step[1].t_s)
                if ahead_s or count % BURST_EVENTS == 0:
                    await asyncio.sleep(ahead_s)
                if self._failure is not None:
                    raise self._failure
                if isinstance(step, Publication):
                    await self._publish(step)
                else:
                    await self._change(*step)
            await asyncio.gather(*self._joining, *(future for _, _, future in self._published))
        finally:
            for task in self._joining:
                task.cancel()

    def receipts(self) -> dict[str, Any]:
        """Return what publishing answered: event → the result of `Port.publish`. For after `drive`."""
        return {publication.event: future.result() for publication, _, future in self._published}

    def place(self, positions: Mapping[str, Position]) -> None:
        """Take the positions, by event, of all published events: from now on, the last deliveries can be determined."""
        self._placed = tuple(
            Placed(publication.event, publication.region, positions[publication.event], called_ns)
            for publication, called_ns, _ in self._published
        )
        self._last = {each.region: each for each in sorted(self._placed, key=lambda each: each.position)}
        self._look()

    async def until_complete(self) -> None:
        """Return when everything required is delivered; later deliveries are ignored."""
        await self._complete.wait()

    def travels(self, *, epochs: int | None = None, in_place: int | None = None) -> Travels:
        """Return how the servers roamed; for after `place`."""
        return Travels(tuple(self.stays), self.settled, self._placed, epochs, in_place)

    def delivered(self, server: str, batch: Sequence[Delivered]) -> None:
        """Take a server's deliveries, in order."""
        if self._complete.is_set():
            return
        seen = self.deliveries[server]
        for place, each in enumerate(batch, start=len(seen)):
            self._newest[server, each.region] = place, each.event
        seen += batch
        self._look()

    def _look(self) -> None:
        if self._last is not None and not any(self._is_awaited(stay, self._last) for stay in self._open.values()):
            self._complete.set()

    def _is_awaited(self, stay: Stay, last: Mapping[str, Placed]) -> bool:
        """Return whether the last event of a region is still to be delivered in a stay that lasts to the end."""
        event = last.get(stay.region)
        if event is None or stay.joined_at_ns is None:
            return False
        place, newest = self._newest.get((stay.subscriber, stay.region), (-1, ""))
        if place >= stay.start:
            return newest != event.event
        return event.published_at_ns > stay.joined_at_ns

    async def _publish(self, publication: Publication) -> None:
        await self._events_pending.acquire()
        called_ns = now_ns()
        future = self._ports[publication.server].publish(publication)
        future.add_done_callback(lambda done: self._answered(done, self._events_pending))
        self._published.append((publication, called_ns, future))

    async def _change(self, server: str, change: Change) -> None:
        if change.leaves:
            await self._leave(server, change.leaves)
        if change.joins:
            await self._joins_pending.acquire()
            task = asyncio.create_task(self._join(server, change.joins), name=f"{server} joins")
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)
            task.add_done_callback(lambda done: self._answered(done, self._joins_pending))
            await asyncio.sleep(0)  # it asks before anything else is done

    def _answered(self, done: asyncio.Future[Any], pending: asyncio.Semaphore) -> None:
        pending.release()
        if not done.cancelled() and self._failure is None:
            self._failure = done.exception()

    async def _join(self, server: str, regions: Iterable[str]) -> None:
        port = self._ports[server]
        asked = [Stay(server, region, self._place(server), asked_at_ns=now_ns()) for region in sorted(regions)]
        for stay in asked:
            self._open[server, stay.region] = stay
        self.stays += asked
        await port.subscribe(*(stay.region for stay in asked))
        joined_ns = now_ns()
        for stay in asked:
            if stay.end is None:
                stay.joined_at_ns = joined_ns

    async def _leave(self, server: str, regions: Iterable[str]) -> None:
        end = self._place(server)
        for region in regions:
            self._open.pop((server, region)).end = end
        await self._ports[server].unsubscribe(*regions)

    def _place(self, server: str) -> int:
        """Return the place of the next delivery that is not decided upon yet."""
        return len(self.deliveries[server]) + self._ports[server].decided


def now_ns() -> int:
    """Return nanoseconds since the Unix epoch, by a clock that is not adjusted meanwhile."""
    return time.monotonic_ns() + _CLOCK_NS
