"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_MAX = 3


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: ``1 event``, ``2,000 events``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def named(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are: ``a, b, c and 4 more``."""
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else "")


def installed_plan(number: tuple[int, int] | None) -> str:
    """Return epoch and version as people read them: ``1.2``, none, or ? if they are unknown."""
    if number is None:
        return "?"
    return f"{number[0]}.{number[1]}" if any(number) else "none"
