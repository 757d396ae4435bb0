"""Numbers and names in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED_MAX = 3


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts n2 before n10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name) if part)


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
