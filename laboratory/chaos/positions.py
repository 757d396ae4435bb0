"""Where the last session of a server was, by the server's own notes: what a game server keeps beside its world.

A process that was killed has lost its memory. So its positions are read back, as it would read them from its storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gamecast.positions import parse_position
from placement.textlines import read_lines
from sequencing.keyed import Position


@dataclass(slots=True)
class Standing:
    """Where a session was: its number, its regions with presence, and region → what came last, of all regions that it
    had joined and not left."""

    session: int
    present: set[str] = field(default_factory=set)
    positions: dict[str, str] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)

    def note(self, note: Mapping[str, Any]) -> None:
        """Take the next note of the session."""
        match note["did"]:
            case "ask":
                region, since = note["region"], note.get("since")
                self._leave([region])
                if note.get("presence"):
                    self.present.add(region)
                if since is not None:  # even if it has not returned: this is where the region is
                    self._joined.add(region)
                    self._pass(region, str(since))
            case "joined":
                self._joined.add(note["region"])
                self._pass(note["region"], note.get("begin"))
            case "left":
                self._leave([note["region"]])
            case "refused":
                self._leave(note["regions"])
            case "deliver":
                for region, sequence in {note["region"]: note["sequence"], **note.get("also", {})}.items():
                    self._pass(region, f"{note['epoch']}-{sequence}")
            case "presence":
                self._pass(note["region"], f"{note['epoch']}-{note['sequence']}")
            case "gap" if note["last"]:
                self._pass(note["region"], f"{note['epoch']}-{note['last']}")
            case "state":
                for region, position in note["as_of"].items():
                    self._pass(region, position)

    def _pass(self, region: str, position: str | None) -> None:
        at = parse_position(position)
        if position is not None and at is not None and at > self._at(region):
            self.positions[region] = position

    def _at(self, region: str) -> Position:
        return parse_position(self.positions.get(region)) or (-1, 0)

    def _leave(self, regions: list[str]) -> None:
        self._joined.difference_update(regions)
        self.present.difference_update(regions)
        for region in regions:
            self.positions.pop(region, None)

    def end(self) -> None:
        """Forget what was asked for and not joined."""
        self.present &= self._joined
        self.positions = {region: at for region, at in self.positions.items() if region in self._joined}


def last_standing(file: Path) -> Standing | None:
    """Return where the last session was of which a server's notes tell, None if there was none."""
    last: Standing | None = None
    for _, line in read_lines(file):
        try:
            note = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # a process was killed in the middle of it
        if note["did"] == "open":
            last = Standing(note["session"])
        elif last is not None:
            last.note(note)
    if last is not None:
        last.end()
    return last
