"""One violation of the promises, named so that a reader can find it in the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["inversion", "cycle", "publisher_order", "duplicate", "lost", "unexpected"]


@dataclass(frozen=True, slots=True)
class Offence:
    """An example of a violation.

    The meaning of the columns depends on ``kind``; ``regions[i]`` is always the region of ``events[i]``.

    - inversion: two events, two subscribers: the first delivered the events in the order given, the second did not.
    - cycle: as many subscribers as events: ``subscribers[i]`` delivered ``events[i]`` before ``events[i + 1]``, and the
      last one delivered the last event before the first.
    - publisher_order: two events in the order in which ``sender`` published them; the subscriber delivered the second
      one first.
    - duplicate, lost, unexpected: one event, one subscriber.
    """

    kind: Kind
    events: tuple[str, ...]
    regions: tuple[str, ...]
    subscribers: tuple[str, ...]
    sender: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the offence as values for JSON, with the sentence of `describe`."""
        values: dict[str, object] = {
            "kind": self.kind,
            "events": list(self.events),
            "regions": list(self.regions),
            "subscribers": list(self.subscribers),
        }
        if self.sender is not None:
            values["sender"] = self.sender
        values["says"] = self.describe()
        return values

    def describe(self) -> str:
        """Return one sentence that names the events and the subscribers."""
        named = [f"{event} ({region})" for event, region in zip(self.events, self.regions, strict=True)]
        one, other = named[0], named[-1]
        who = self.subscribers
        match self.kind:
            case "inversion":
                return f"{who[0]} delivered {one} before {other}, {who[1]} delivered {other} before {one}"
            case "cycle":
                following = [*named[1:], named[0]]
                steps = zip(who, named, following, strict=True)
                return ", ".join(f"{subscriber} delivered {event} before {after}" for subscriber, event, after in steps)
            case "publisher_order":
                return f"{self.sender} published {one} before {other}, {who[0]} delivered {other} first"
            case "duplicate":
                return f"{who[0]} delivered {one} more than once"
            case "lost":
                return f"{who[0]} never delivered {one}"
            case "unexpected":
                return f"{who[0]} delivered {one}, which was not published to a region of its"
