"""Visitors: the tokens with which they play, and what their figures do, checked: anything may come from a browser."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.tokens import Keys, mint, new_key

from .world import ARENA_OF_HOME, ARENAS, REGIONS, Deed

TITLE_LENGTH_MAX = 16
COLOURS = 8
"""How many colours the page has for figures."""
EVENTS_PER_S = 30
UPDATES_PER_S = 60
SCORES_MAX = 8
"""Players whose scores an arena keeps."""
LIFETIME_S = 86_400.0


class Door:
    """Admits visitors: a key of this run, and tokens that are signed with it."""

    def __init__(self) -> None:
        self._keys = Keys.from_json(orjson.dumps({"keys": [new_key("HS256")]}))
        self.error: str | None = None

    def keys(self) -> Keys:
        """Return the keys by which a gateway knows its visitors."""
        return self._keys

    def token(self, visitor: str) -> str:
        """Return a token that lets a visitor hear and act in all regions; raises `UsageError` for an invalid name."""
        regions = [*REGIONS]
        signer = self._keys.signer()
        return mint(signer, subject=visitor, read=regions, write=regions, lifetime_s=LIFETIME_S, rate=EVENTS_PER_S)


def visitor_deed(region: str, sender: str, payload: Any) -> Deed | None:
    """Return what a visitor's figure does, or None for what no page of this arena sends.

    The figure is named by its arena and its sender, which the gateway vouches for: no visitor moves another's.
    """
    if not isinstance(payload, dict):
        return None
    arena = payload.get("arena")
    if not isinstance(arena, str) or region not in ARENAS.get(arena, ()):
        return None
    match payload:
        case {"do": "stand" | "act" | "take" | "shoot" as do, "at": [int(x), int(y)]}:
            return {"do": do, "bot": f"{arena}/{sender}", "arena": arena, "at": [x, y]}
    return None


def presence_deed(region: str, name: str, info: Any, *, is_here: bool) -> Deed | None:
    """Return how a visitor's figure enters or leaves its arena, or None if this region is not the arena's home."""
    arena = ARENA_OF_HOME[region]
    deed: Deed = {"do": "enter" if is_here else "leave", "bot": f"{arena}/{name}", "arena": arena}
    if not is_here:
        return deed
    match info:
        case {"arena": str(wanted), "nick": str(nick), "colour": int(colour)} if wanted == arena:
            return {**deed, "title": nick.strip()[:TITLE_LENGTH_MAX] or "visitor", "colour": colour % COLOURS}
    return None


def hoard_key(arena: str) -> str:
    """Return the key of an arena's hoard, in its home region."""
    return f"{arena}/hoard"


def nick_of(payload: Any) -> str:
    """Return who has taken the hoard, as an event about it says."""
    nick = payload.get("nick") if isinstance(payload, dict) else None
    return nick[:TITLE_LENGTH_MAX] if isinstance(nick, str) else "somebody"


def scores_of(payload: Any) -> dict[str, int]:
    """Return how often who has taken the hoard, as an event about it says."""
    scores = payload.get("scores") if isinstance(payload, dict) else None
    found = scores.items() if isinstance(scores, dict) else ()
    kept = [(nick[:TITLE_LENGTH_MAX], count) for nick, count in found if isinstance(count, int)]
    return dict(kept[:SCORES_MAX])
