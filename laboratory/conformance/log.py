"""What happened in one scenario, in order: what the kit did, what the client sent, and what its program reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from demo.patience import Deadline

GRACE_S = 0.2
"""How long a wait goes on after the client ended: reports may still be in flight."""
CHECK_S = 0.05
"""How often a wait looks at its deadline."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event or gap took its place in the world. ``places``: region → its position there."""

    places: dict[str, tuple[int, int]]
    sender: str | None = None
    content: Any = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The client opened a WebSocket."""

    connection: int
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The client sent a message: ``document`` is its JSON, or None for text that is no JSON, and binary messages."""

    connection: int
    document: Any
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Said:
    """The kit sent a message of the protocol."""

    connection: int
    document: dict[str, Any]
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Closed:
    """The kit closed a WebSocket; ``code`` is None if it reset the TCP connection."""

    connection: int
    code: int | None


@dataclass(frozen=True, slots=True)
class Left:
    """The client closed a WebSocket, with this code (1006: it closed the TCP connection)."""

    connection: int
    code: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The kit gave the client's program a command. ``refusal``: the code with which it must be refused.

    ``is_local``: the client must refuse it itself, and send nothing.
    """

    command: dict[str, Any]
    refusal: str | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """The client's program reported something; ``line`` is the text if it is no JSON object."""

    line: Any


@dataclass(frozen=True, slots=True)
class Missing:
    """The kit waited in vain. ``what``: a sentence."""

    what: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The client's program ended. ``errors``: the end of its standard error."""

    status: int
    errors: str = ""


Entry = Happened | Opened | Heard | Said | Closed | Left | Asked | Reported | Missing | Exited


class Missed(Exception):
    """A wait came to its end; the log has `Missing`."""


@dataclass(slots=True)
class Log:
    """The entries of one scenario, and waits for more of them."""

    timeout_s: float = 5.0
    entries: list[Entry] = field(default_factory=list)
    has_ended: bool = False
    """Whether the program ended."""
    _lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, entry: Entry) -> None:
        """Add an entry, and wake those that wait."""
        self.entries.append(entry)
        self.has_ended |= isinstance(entry, Exited)
        if isinstance(entry, Reported) and isinstance(entry.line, dict):
            for kind in entry.line:
                self._lines.setdefault(kind, []).append(entry.line)
        self._changed.set()

    def reported(self, kind: str) -> list[dict[str, Any]]:
        """Return the reported lines of a kind, such as ``event``. It is not a copy."""
        return self._lines.get(kind, [])

    async def holds(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds; return whether it does within the time."""
        deadline = Deadline(timeout_s)
        while not is_so():
            if deadline.passed:
                return False
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._changed.wait()
        return True

    @property
    def is_over(self) -> bool:
        """Whether the client ended, for good: nothing more is to be expected of it."""
        statuses = self.reported("status")
        return self.has_ended or bool(statuses and statuses[-1]["status"] == "closed")

    async def until(self, is_so: Callable[[], bool], what: str, timeout_s: float | None = None) -> None:
        """Wait until a condition holds. Raises `Missed` after the timeout. ``what``: says what did not happen."""
        await self.holds(lambda: is_so() or self.is_over, timeout_s or self.timeout_s)
        if not is_so() and not (self.is_over and await self.holds(is_so, GRACE_S)):
            self.add(Missing(what))
            raise Missed(what)

    @staticmethod
    def now() -> float:
        """Return the time of an entry, in seconds."""
        return time.monotonic()
