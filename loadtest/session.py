"""One connection of a game server that embeds the library, through `gamecast.blocking`, and its deliveries.

Locust replaces threads by greenlets. So the event loop of `gamecast.blocking` runs in a greenlet, and waits without
blocking the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future

from gamecast import blocking
from gamecast.errors import GamecastError
from gamecast.event import Event, Gap, Item, Receipt
from gamecast.holding import HoldTimes
from loadtest.crew import Crew
from loadtest.presence import Mark, Presence, mark_of, marked

WAY = "embedded"
OUTSTANDING_S_MAX = 5.0
"""Seconds that a closing session waits for the receipts of its events."""
JOIN_S_MAX = 60.0


class ServerSession:
    """A session from `open` to `close`. ``user``: the server's name; ``number``: the number of its connection.

    ``network``: the URL of the control Redis, if it is not that of the crew's options.
    """

    def __init__(self, crew: Crew, user: str, number: int, network: str = "") -> None:
        self.crew = crew
        self.presence = Presence(crew, user, number, way=WAY)
        self.client = blocking.connect(network or crew.options.network, name=user, subscribe_timeout_s=JOIN_S_MAX)
        self._is_taking = False
        """Whether a delivered batch is being noted."""
        self._hold = HoldTimes()
        self.lost = False
        self._closing = False
        self._follower = threading.Thread(target=self._follow, name=f"follow {user}", daemon=True)

    def open(self) -> None:
        """Connect. Raises `GamecastError`."""
        self.client.open()
        self._follower.start()
        self.crew.sessions.add(self)

    @property
    def regions(self) -> list[str]:
        """The regions that the session has joined or asked for."""
        return list(self.presence.stays)

    def join(self, *regions: str) -> None:
        """Subscribe, and report the duration."""
        stays = self.presence.asked(regions)
        began_s = time.perf_counter()
        try:
            self.client.subscribe(*regions)
        except GamecastError as error:
            self.crew.fire("join", WAY, (time.perf_counter() - began_s) * 1e3, error)
        else:
            self.crew.fire("join", WAY, (time.perf_counter() - began_s) * 1e3, None)
            self.presence.joined(stays)

    def leave(self, region: str) -> None:
        """Unsubscribe. Returns when no more events of the region can arrive."""
        self.client.unsubscribe(region)
        while not self._closing and self._is_taking:
            time.sleep(0.002)
        self.presence.left(region)

    def publish(self, mark: Mark, region: str, payload: Mapping[str, object]) -> None:
        """Publish, without waiting for the receipt."""
        self.presence.calls(mark.event, region, mark.due_ns)
        try:
            future = self.client.publish_async(region, marked(payload, mark, run=self.crew.options.run))
        except GamecastError as error:
            if error.definite:
                self.presence.withdrawn(mark.event)
            raise
        future.add_done_callback(lambda done: self._resolved(mark.event, done))

    def sample(self) -> dict[str, int]:
        """See `loadtest.crew.Reporting`."""
        figures = {"outstanding": self.presence.outstanding}
        if self._closing or not self._follower.is_alive():
            return figures
        now = self.client.statistics()
        for waited_ms in now.hold.since(self._hold).waits_ms():
            self.crew.fire("hold", WAY, waited_ms, None)
        self._hold = now.hold
        return figures | {
            "held": now.held_frames + now.inbox_events,
            "received_frames": now.received_frames,
            "waited_frames": now.hold.frames,
        }

    def close(self) -> None:
        """Wait for pending receipts, and close. Calling it again is harmless."""
        if self._closing:
            return
        deadline_s = time.monotonic() + OUTSTANDING_S_MAX
        while self.presence.unanswered and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self._closing = True
        try:
            self.client.close()
        except GamecastError as error:
            self.crew.fire("close", WAY, 0, error)
        if self._follower.is_alive():
            self._follower.join(OUTSTANDING_S_MAX)
        self.presence.end()
        self.crew.sessions.discard(self)

    def _follow(self) -> None:
        try:
            for batch in self.client.batches():
                self._is_taking = True
                now_ns = time.time_ns()
                for item in batch:
                    self._take(item, now_ns)
                self._is_taking = False
        except GamecastError as error:
            self.lost = True
            if not self._closing:
                self.crew.fire("deliver", WAY, 0, error)

    def _take(self, item: Item, now_ns: int) -> None:
        if isinstance(item, Gap):
            what = f"{item.region}, epoch {item.epoch}, {item.first_sequence} to {item.last_sequence}: {item.reason}"
            self.crew.journal.gap(self.presence.subscriber, what)
            return
        if isinstance(item, Event) and (mark := mark_of(item.payload, run=self.crew.options.run)) is not None:
            late_ms = (now_ns - mark.due_ns) / 1e6
            self.presence.delivered(
                mark.event, item.region, sender=item.sender, position=item.position, late_ms=late_ms
            )

    def _resolved(self, event: str, done: Future[Receipt]) -> None:
        error = done.exception() if not done.cancelled() else None
        if done.cancelled():
            return  # the session ends, and reports events without a receipt as uncertain
        if error is None:
            receipt = done.result()
            self.presence.acknowledged(event, f"{receipt.epoch}-{receipt.sequence}")
        else:
            self.presence.failed(event, error, definite=isinstance(error, GamecastError) and error.definite)
