"""The state of one session of a user: its deliveries, its regions, and its published events without a receipt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadtest.crew import Crew
from loadtest.planting import plant
from sequencing.checkers.stays import Stay
from sequencing.errors import UsageError

MARK = "loadtest"
"""Field of every payload that holds the event's mark: its run, its ID, and when it was due."""
FILLING = "x" * 70
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
        self.crew.journal.took(late_ms, time.time_ns())
        self.crew.fire("deliver", self.way, late_ms, None)
        if self.crew.options.plant and not self.crew.planted:
            self.crew.planted = plant(self.crew.options.plant, self.log)

    def calls(self, event: str, region: str, due_ns: int) -> None:
        """Note that the session is about to publish. ``due_ns``: when the event was due, from which delays count."""
        self._outstanding[event] = region, time.time_ns(), due_ns

    def withdrawn(self, event: str) -> None:
        """Note that an event was not sent."""
        self._outstanding.pop(event, None)

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


@dataclass(frozen=True, slots=True)
class Mark:
    """What the judge needs to know of an event. ``due_ns``: when the event was due, from which delays count."""

    event: str
    due_ns: int


def marked(payload: object, mark: Mark, *, run: str) -> dict[str, object]:
    """Return a payload with an event's mark beside the user's own fields.

    Raises `UsageError` for a payload that has no fields.
    """
    if not isinstance(payload, Mapping):
        raise UsageError(
            f"payload() returned a {type(payload).__name__}: return a dict, to which the load test adds a field"
        )
    return {**payload, MARK: {"run": run, "id": mark.event, "due": mark.due_ns}}


def mark_of(payload: object, *, run: str) -> Mark | None:
    """Return the mark of a delivered payload, or None for an event that no user of this run published."""
    said = payload.get(MARK) if isinstance(payload, dict) else None
    if not isinstance(said, dict) or said.get("run") != run:
        return None
    return Mark(said["id"], said["due"])
