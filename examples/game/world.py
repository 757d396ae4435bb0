"""The world: three regions in a row, and what is in them, as of one place in the order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gamecast

REGIONS = ("meadow", "forest", "river")
WIDTH = 10
"""Steps through a region: the meadow has 0 to 9, the forest 10 to 19."""


def region_at(x: int) -> str:
    return REGIONS[x // WIDTH]


def near(home: str) -> tuple[str, ...]:
    """Return a region and its neighbours, which its server watches. Other regions than these three are islands."""
    if home not in REGIONS:
        return (home,)
    here = REGIONS.index(home)
    return REGIONS[max(0, here - 1) : here + 2]


@dataclass(slots=True)
class World:
    """What the items say so far. Servers that have applied the same items know the same."""

    things: dict[str, dict[str, gamecast.Event]] = field(default_factory=dict)
    """Region → key → the last event that set it."""
    players: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Region → name → what the player says of itself."""

    def apply(self, item: gamecast.Item) -> str | None:
        """Apply the next item, and return what there is to say about it."""
        match item:
            case gamecast.State():
                self.things.update({region: dict(values) for region, values in item.values.items()})
                self.players.update({region: dict(here) for region, here in item.present.items()})
            case gamecast.Presence():
                item.fold(self.players[item.region])
                return f"{item.info['nick']} {'arrives' if item.is_here else 'leaves'}"
            case gamecast.Event():
                return self._apply_event(item)
            case gamecast.Gap():
                return f"missed something in the {item.region}"
        return None

    def _apply_event(self, event: gamecast.Event) -> str | None:
        for region in event.regions:
            if event.key is not None and event.payload is None:
                self.things[region].pop(event.key, None)
            elif event.key is not None:
                self.things[region][event.key] = event
        match event.payload:
            case {"takes": thing}:
                return f"{event.sender} takes the {thing}"
            case {"shoots_into": region}:
                hits = "goblin" in self.things[region]  # where the goblin was, at this place in the order
                return f"{event.sender} shoots into the {region}: {'hit' if hits else 'missed'}"
            case {"x": x} if event.key == "goblin":
                return f"the goblin is in the {region_at(x)}"
            case str(words):
                return f"{event.region}: {words}"
        return None
