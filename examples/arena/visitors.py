"""Visitors: the tokens with which they play, and what their figures do, checked: anything may come from a browser."""

from __future__ import annotations

from typing import Any

import orjson

from adapters.gateway.tokens import Keys, mint, new_key

from .world import ARENAS, REGIONS, STRIDE, Deed

TITLE_LENGTH_MAX = 16
COLOURS = 8
"""How many colours the page has for figures."""
EVENTS_PER_S = 30
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
    deed: Deed = {"do": str(payload.get("do")), "bot": f"{arena}/{sender}", "arena": arena}
    match payload:
        case {"do": "act" | "leave"}:
            return deed
        case {"do": "walk", "by": [int(x), int(y)]}:
            return {**deed, "by": [max(-STRIDE, min(STRIDE, way)) for way in (x, y)]}
        case {"do": "enter", "title": str(title), "colour": int(colour)}:
            return {**deed, "title": title.strip()[:TITLE_LENGTH_MAX] or "visitor", "colour": colour % COLOURS}
    return None
