"""What an analysis left out, and why: files, lines, subscribers and times that would distort the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXAMPLES_MAX = 3


@dataclass(slots=True)
class Entry:
    """One reason, how often it occurred, and a few examples."""

    what: str
    """The kind of thing: file, line, row, session, subscriber, clock."""
    reason: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    lacks: bool = False
    """Whether the session may lack what was left out."""


class Quarantine:
    """Counts everything that is left out, so that nothing is left out silently."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}

    def add(self, what: str, reason: str, *, count: int = 1, examples: Iterable[str] = (), lacks: bool = False) -> None:
        """Count ``count`` more of them; ``lacks``: see `Entry`."""
        if count <= 0:
            return
        entry = self._entries.setdefault((what, reason), Entry(what, reason, lacks=lacks))
        entry.count += count
        entry.examples += list(examples)[: EXAMPLES_MAX - len(entry.examples)]

    @property
    def total(self) -> int:
        """The sum of all counts, each in its own unit."""
        return sum(entry.count for entry in self._entries.values())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The reasons, most frequent first."""
        return tuple(sorted(self._entries.values(), key=lambda entry: (-entry.count, entry.what, entry.reason)))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the entries as JSON values."""
        return [
            {"what": each.what, "reason": each.reason, "count": each.count, "examples": each.examples}
            for each in self.entries
        ]
