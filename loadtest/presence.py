"""The state of one session of a user: its deliveries, its regions, and its published events without a receipt."""

from __future__ import annotations

import time
from collections.abc import Iterable

from loadtest.crew import Crew
from loadtest.planting import plant
from sequencing.checkers.stays import Stay

FILLING = "x" * 110
"""Makes an event about as long as a game's events: 190 bytes of JSON."""


class Presence:
    """``user``: the sender's name that others see; ``way``: the name of its access path in reports."""

    def __init__(self, crew: Crew, user: str, number: int, *, way: str) -> None:
        self.crew = crew
        self.user = user
        self.way = way
        self.subscriber = f"{user}#{number}"
        self.log = crew.journal.log(self.subscriber)
        self.stays: dict[str, Stay] = {}
        self._outstanding: dict[str, tuple[str, int, int]] = {}

    @property
    def outstanding(self) -> int:
        """Events without a receipt, and regions that are not joined yet."""
        return len(self._outstanding) + sum(stay.joined_at_ns is None for stay in self.stays.values())

    @property
    def unanswered(self) -> int:
        """Events without a receipt."""
        return len(self._outstanding)

    def asked(self, regions: Iterable[str]) -> list[Stay]:
        """Note that the session asks for regions."""
        now_ns = time.time_ns()
        stays = [Stay(self.subscriber, region, self.log.place, None, now_ns) for region in regions]
        for stay in stays:
            self.stays[stay.region] = stay
            self.crew.journal.stay(stay)
        return stays

    def joined(self, stays: Iterable[Stay]) -> None:
        """Note that the session has joined regions."""
        now_ns = time.time_ns()
        for stay in stays:
            stay.joined_at_ns = now_ns
            self.crew.journal.stay(stay)

    def left(self, region: str) -> None:
        """Note that the session has left a region and gets no more of its events."""
        if (stay := self.stays.pop(region, None)) is not None:
            stay.end = self.log.place
            self.crew.journal.stay(stay)

    def delivered(self, event: str, region: str, *, sender: str, position: str, late_ms: float) -> None:
        """Note a delivery.

        Posters share the gateway's connections, and so the sender. But each poster waits for its answers, so it has its
        own order, which is checked under its own name.
        """
        publisher = event.rpartition("/")[0]
        self.log.deliver(event, region, publisher if "-poster-" in publisher else sender, position)
        self.crew.fire("deliver", self.way, late_ms, None)
        if self.crew.options.plant and not self.crew.planted:
            self.crew.planted = plant(self.crew.options.plant, self.log)

    def calls(self, event: str, region: str, due_ns: int) -> None:
        """Note that the session is about to publish. ``due_ns``: when the event was due, from which delays count."""
        self._outstanding[event] = region, time.time_ns(), due_ns

    def acknowledged(self, event: str, position: str) -> None:
        """Note a receipt."""
        if (call := self._outstanding.pop(event, None)) is not None:
            region, called_ns, due_ns = call
            self.crew.journal.published(event, region, self.user, position, called_ns)
            self.crew.fire("publish", self.way, (time.time_ns() - due_ns) / 1e6, None)

    def failed(self, event: str, error: BaseException, *, definite: bool) -> None:
        """Note that publishing failed. ``definite``: whether the event was certainly not published."""
        if (call := self._outstanding.pop(event, None)) is not None:
            region, called_ns, due_ns = call
            if not definite:
                self.crew.journal.uncertain(event, region, self.user, called_ns)
            self.crew.fire("publish", self.way, (time.time_ns() - due_ns) / 1e6, error)

    def end(self) -> None:
        """Note that the session is over."""
        for event, (region, called_ns, _) in self._outstanding.items():
            self.crew.journal.uncertain(event, region, self.user, called_ns)
        self._outstanding.clear()
        for region in list(self.stays):
            self.left(region)
        self.log.ended = True


def payload_of(event: str, due_ns: int) -> dict[str, object]:
    """Return the payload of an event: its ID, when it was due, and filling."""
    return {"id": event, "due": due_ns, "filling": FILLING}
