"""What a connection reports of itself with its heartbeats, for those who watch the network."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_MAX, DIGITS_MAX = 100, 15


@dataclass(frozen=True, slots=True)
class Doing:
    """``delivered``: events, since it began; ``held``: frames that wait for others; ``queued``: events that wait for
    the program. ``at_ms``: when it was reported, by the control Redis's clock."""

    delivered: int
    held: int
    queued: int
    at_ms: int = 0

    def text(self) -> str:
        """Return what a heartbeat carries: the control Redis adds the time."""
        return f"{self.delivered} {self.held} {self.queued}"

    @classmethod
    def read(cls, text: bytes) -> Doing | None:
        """Return what was reported, None if it is nothing of that kind."""
        fields = text.split(b" ") if len(text) <= TEXT_MAX else []
        if len(fields) != 4 or not all(field.isdigit() and len(field) <= DIGITS_MAX for field in fields):
            return None
        return cls(*map(int, fields))
