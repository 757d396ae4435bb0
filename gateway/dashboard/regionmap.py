"""The regions of a network as columns, for the map: names and paths once, figures at each look.

It is computed when a viewer asks for it, once a look for all viewers.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from adapters.wording import natural
from gateway.dashboard.snapshot import Row, Snapshot

REGIONS_MAX = 20_000
"""A map has at most so many regions; it says how many it lacks, and how many of these are stuck."""

GZIP_LEVEL = 5
"""Higher levels take twice the time to save a few per cent."""

OK, BEHIND, STUCK, UNKNOWN, HELD = "01234"
"""The state of a region, as one digit each in ``states``."""

STATES = {None: OK, "behind": BEHIND, "stuck": STUCK, "held": HELD}


@dataclass(frozen=True, slots=True)
class Layout:
    """What seldom changes: the regions on the map in natural order, and their paths. ``key``: of what it was made."""

    key: tuple[tuple[str, tuple[str, ...]], ...]
    names: tuple[str, ...]
    version: str
    text: bytes


@dataclass(frozen=True, slots=True)
class _Figures:
    snapshot: Snapshot
    version: str
    text: bytes
    zipped: bytes


class RegionMap:
    """Encodes the map of the newest snapshot, and keeps it until there is a newer one."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._figures: _Figures | None = None

    async def zipped(self, snapshot: Snapshot, known: str) -> bytes:
        """Return the map as gzipped JSON, without the layout if its version is the ``known`` one."""
        figures = self._figures
        if figures is None or figures.snapshot is not snapshot:
            figures = self._figures = self._encode(snapshot)
        assert self._layout is not None
        if known == figures.version:
            return figures.zipped
        whole = b'{"layout":%b,%b' % (self._layout.text, figures.text[1:])
        return await asyncio.to_thread(gzip.compress, whole, GZIP_LEVEL)  # it may be megabytes of names

    def _encode(self, snapshot: Snapshot) -> _Figures:
        key = tuple((region.name, region.path) for region in snapshot.now.regions)
        layout = self._layout
        if layout is None or layout.key != key:
            layout = self._layout = _laid_out(key)
        text = orjson.dumps({"version": layout.version, "at_ms": snapshot.at_ms} | columns(snapshot, layout.names))
        return _Figures(snapshot, layout.version, text, gzip.compress(text, GZIP_LEVEL))


def _laid_out(key: tuple[tuple[str, tuple[str, ...]], ...]) -> Layout:
    shown = sorted(key, key=lambda each: natural(each[0]))[:REGIONS_MAX]
    paths = list(dict.fromkeys(path for _, path in shown))
    place = {path: number for number, path in enumerate(paths)}
    names = tuple(name for name, _ in shown)
    text = orjson.dumps({"names": names, "paths": paths, "path": [place[path] for _, path in shown]})
    return Layout(key, names, hashlib.sha256(text).hexdigest()[:16], text)


def columns(snapshot: Snapshot, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the figures of the named regions, each as one column in their order. Unknown is None."""
    rows = snapshot.regions
    shown = [rows[name] for name in names]
    states = "".join(map(_state, shown))
    places: dict[tuple[str, ...], int] = {(): 0}
    at = (
        [places.setdefault(tuple(row["stuck_at"]), len(places)) for row in shown]
        if STUCK in states or HELD in states
        else []
    )
    more = len(rows) - len(names)
    stuck = sum(row["condition"] == "stuck" for row in rows.values()) if more else 0
    return {
        "events_per_s": [row["events_per_s"] for row in shown],
        "behind": [row["behind"] for row in shown],
        "states": states,
        "stuck_at": at,
        "places": list(places),
        "more": more,
        "more_stuck": stuck - states.count(STUCK) if more else 0,
    }


def _state(row: Row) -> str:
    if row["condition"] is None and (row["events_per_s"] is None or row["behind"] is None):
        return UNKNOWN
    return STATES[row["condition"]]
