"""The names that regions, connections and sequencing nodes may have.

Names become parts of Redis keys and of log lines, so a name that would make either ambiguous is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sequencing.errors import InvalidName

NAME_BYTES_MAX = 200
"""Long enough for any readable name; a name is carried by every frame."""

GUEST = "~"
"""Begins the names of a gateway's clients, so that none of them can have the name of a game server."""

PRESENT = "@"
"""Begins the keys of events that say who is present, before the name."""

OWNER = "owner:"
"""Begins the keys of events that say who owns an entity, before its name."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "'")
"""Begin the cells that spreadsheets compute, and those of `guarded_cell`."""

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_region(region: object) -> str:
    """Return ``region`` if it may name a region, else raise `InvalidName`."""
    checked = _check(region, "region")
    if "*" in checked:
        raise InvalidName(f"a region must not contain '*', which is reserved for patterns: {region!r}")
    return checked


class RegionPatterns:
    """Patterns of regions' names, such as ``arena/*``: one rule for handlers, recordings and tokens.

    ``*`` matches any characters but ``/``; ``**`` any characters; all else matches itself.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._matches = re.compile("|".join(map(_expression, self.patterns)) or r"(?!)", re.DOTALL).fullmatch

    def __contains__(self, region: str) -> bool:
        return self._matches(region) is not None

    def __repr__(self) -> str:
        return f"RegionPatterns({list(self.patterns)})"


def _expression(pattern: str) -> str:
    parts = re.split(r"(\*+)", pattern)
    return "".join(
        {"": "", "*": "[^/]*"}.get(part, ".*") if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )


def guarded_cell(name: str) -> str:
    """Return a name as the cell of a table: a spreadsheet must not take it for a formula. `plain_cell` undoes it."""
    return "'" + name if name.startswith(_FORMULAS) else name


def plain_cell(cell: str) -> str:
    """Return the name that `guarded_cell` made a cell of."""
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(_FORMULAS) else cell


def client_of(name: str) -> str | None:
    """Return the client of gateways that a connection is of, all of its sessions alike; None for a game server."""
    return name.split(GUEST, 2)[1] if name.startswith(GUEST) else None


def check_connection_name(name: object) -> str:
    """Return ``name`` if it may name a connection (a subscriber, a publisher), else raise `InvalidName`."""
    return _check(name, "connection name")


def check_own_name(name: object) -> str:
    """Return ``name`` if it may name a connection that is not a gateway's client, else raise `InvalidName`."""
    checked = check_connection_name(name)
    if checked.startswith(GUEST):
        raise InvalidName(f"names that begin with {GUEST!r} are those of a gateway's clients: {name!r}")
    return checked


def check_key(key: object) -> str:
    """Return ``key`` if events may name it, else raise `InvalidName`."""
    return _check(key, "key")


def check_event_key(key: object) -> str:
    """Return ``key`` if an application's events may set it, else raise `InvalidName`."""
    checked = check_key(key)
    if checked.startswith(PRESENT):
        raise InvalidName(f"keys that begin with {PRESENT!r} say who is present, and are gamecast's own: {key!r}")
    return checked


def check_guest_key(key: object) -> str:
    """Return ``key`` if events of a gateway's clients may set it, else raise `InvalidName`."""
    checked = check_event_key(key)
    if checked.startswith(OWNER):
        raise InvalidName(f"keys that begin with {OWNER!r} say which game server owns an entity: {key!r}")
    return checked


def check_node_name(name: object) -> str:
    """Return ``name`` if it may name a sequencing node (letters, digits and ``_.-``, at most 64), else raise."""
    if not isinstance(name, str) or not _NODE_NAME.fullmatch(name):
        raise InvalidName(f"a sequencing node is named by 1 to 64 letters, digits, '_', '.' or '-', not {name!r}")
    return name


def _check(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} is a string, not {type(name).__name__}: {name!r}")
    if not name or name.isspace():
        raise InvalidName(f"a {what} must not be empty: {name!r}")
    if not name.isprintable():
        raise InvalidName(f"a {what} must not contain control characters: {name!r}")
    name_bytes = len(name.encode())
    if name_bytes > NAME_BYTES_MAX:
        raise InvalidName(
            f"a {what} has at most {NAME_BYTES_MAX} bytes in UTF-8, this one has {name_bytes}: {name[:40]!r}…"
        )
    return name
