"""One connection of a game server that embeds the library, through `gamecast.blocking`, and what it sees.

Locust has replaced threads by greenlets when this runs: the event loop of `gamecast.blocking` then runs in a greenlet,
and waits without blocking the others.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

from gamecast import blocking
from gamecast.errors import GamecastError
from gamecast.event import Event, Gap, Receipt
from gamecast.holding import HoldTimes
from gamecast.stays import Stay
from loadtest.crew import FILLING, Crew
from loadtest.planting import plant

OUTSTANDING_S_MAX = 5.0
"""How long a server that ends waits for the receipts of what it published."""
NAME = "embedded"
JOINS_S_MAX = 60.0


class ServerSession:
    """From `open` to `close`. ``user`` is the server's name, ``number`` says which of its connections it is."""

    def __init__(self, crew: Crew, user: str, number: int) -> None:
        self.crew = crew
        self.user = user
        self.subscriber = f"{user}#{number}"
        self.cast = blocking.connect(crew.options.network, name=user, subscribe_timeout_s=JOINS_S_MAX)
        self.log = crew.journal.log(self.subscriber)
        self.stays: dict[str, Stay] = {}
        self._handed_out = 0
        self._outstanding: dict[str, tuple[str, int]] = {}
        self._hold = HoldTimes()
        self._frames = 0
        self._closing = False
        self._follower = threading.Thread(target=self._follow, name=f"follow {self.subscriber}", daemon=True)

    def open(self) -> None:
        """Connect. Raises `GamecastError`."""
        self.cast.open()
        self._follower.start()
        self.crew.sessions.add(self)

    @property
    def regions(self) -> list[str]:
        """The regions that it is in, or asked for."""
        return list(self.stays)

    def join(self, *regions: str) -> None:
        """Subscribe, and report how long that took."""
        asked_ns = time.time_ns()
        stays = [Stay(self.subscriber, region, self.log.place, None, asked_ns) for region in regions]
        for stay in stays:
            self.stays[stay.region] = stay
            self.crew.journal.stay(stay)
        began = time.perf_counter()
        try:
            self.cast.subscribe(*regions)
        except GamecastError as error:
            self.crew.fire("join", NAME, (time.perf_counter() - began) * 1e3, error)
            return
        self.crew.fire("join", NAME, (time.perf_counter() - began) * 1e3, None)
        joined_ns = time.time_ns()
        for stay in stays:
            stay.joined_at_ns = joined_ns
            self.crew.journal.stay(stay)

    def leave(self, region: str) -> None:
        """Unsubscribe; returns when nothing of the region comes any more."""
        self.cast.unsubscribe(region)
        # What was ready before is still handed out; only then what is asked for anew can be told from it.
        while not self._closing and self._is_behind():
            time.sleep(0.002)
        self._end(self.stays.pop(region))

    def publish(self, event: str, region: str, due_ns: int) -> None:
        """Publish, without waiting for the receipt; ``due_ns``: when it was to be published, from where delays count.

        Raises `GamecastError` where it is refused at once.
        """
        called_ns = time.time_ns()
        self._outstanding[event] = region, called_ns
        payload = {"id": event, "due": due_ns, "filling": FILLING}
        future = self.cast.publish_soon(region, payload)
        future.add_done_callback(lambda done: self._resolved(event, due_ns, done))

    def sample(self) -> dict[str, int]:
        """See `loadtest.crew.Reporting`."""
        figures = {"outstanding": len(self._outstanding), "held": 0, "received_frames": 0}
        if self._closing or not self._follower.is_alive():
            return figures
        try:
            now = self.cast.statistics()
        except GamecastError:
            return figures
        for waited_ms in now.hold.since(self._hold).waits_ms():
            self.crew.fire("hold", NAME, waited_ms, None)
        self._hold = now.hold
        joining = sum(stay.joined_at_ns is None for stay in self.stays.values())
        return figures | {
            "held": now.held_frames + now.inbox_events,
            "outstanding": len(self._outstanding) + joining,
            "received_frames": now.received_frames,
            "waited_frames": now.hold.frames,
        }

    def close(self) -> None:
        """Wait for what is under way, and end. Harmless when repeated."""
        if self._closing:
            return
        deadline = time.monotonic() + OUTSTANDING_S_MAX
        while self._outstanding and time.monotonic() < deadline:
            time.sleep(0.01)
        self._closing = True
        try:
            self.cast.close()
        except GamecastError as error:
            self.crew.fire("close", NAME, 0, error)
        if self._follower.is_alive():
            self._follower.join(OUTSTANDING_S_MAX)
        for event, (region, called_ns) in self._outstanding.items():
            self.crew.journal.uncertain(event, region, self.user, called_ns)
        self._outstanding.clear()
        for stay in self.stays.values():
            self._end(stay)
        self.stays.clear()
        self.log.ended = True
        self.crew.sessions.discard(self)

    def _end(self, stay: Stay) -> None:
        stay.end = self.log.place
        self.crew.journal.stay(stay)

    def _is_behind(self) -> bool:
        now = self.cast.statistics()
        return now.inbox_events > 0 or now.delivered_events + now.gaps > self._handed_out

    def _follow(self) -> None:
        try:
            for batch in self.cast.batches():
                now_ns = time.time_ns()
                for item in batch:
                    self._take(item, now_ns)
                self._handed_out += len(batch)
        except GamecastError as error:
            if not self._closing:
                self.crew.fire("deliver", NAME, 0, error)

    def _take(self, item: Event | Gap, now_ns: int) -> None:
        if isinstance(item, Gap):
            what = f"{item.region}, epoch {item.epoch}, {item.first_sequence} to {item.last_sequence}: {item.reason}"
            self.crew.journal.gap(self.subscriber, what)
            return
        payload = item.payload
        self.log.deliver(payload["id"], item.region, item.sender, item.position)
        self.crew.fire("deliver", NAME, (now_ns - payload["due"]) / 1e6, None)
        if self.crew.options.plant and not self.crew.planted:
            self.crew.planted = plant(self.crew.options.plant, self.log)

    def _resolved(self, event: str, due_ns: int, done: Future[Receipt]) -> None:
        region, called_ns = self._outstanding.pop(event, ("", 0))
        if not region:
            return
        took_ms = (time.time_ns() - due_ns) / 1e6
        error: Any = done.exception() if not done.cancelled() else None
        if done.cancelled() or (error is not None and not (isinstance(error, GamecastError) and error.definite)):
            self.crew.journal.uncertain(event, region, self.user, called_ns)
        if error is not None:
            self.crew.fire("publish", NAME, took_ms, error)
        elif not done.cancelled():
            receipt = done.result()
            position = f"{receipt.epoch}-{receipt.sequence}"
            self.crew.journal.published(event, region, self.user, position, called_ns)
            self.crew.fire("publish", NAME, took_ms, None)
