"""Advice for the network's layout: regions to merge, to split, and to move, with the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from analytics.jobs.moves import Move

ALIKE = 0.9
"""If two regions share this part of their subscribers, they cost an atom and are worth merging."""
HOT = 4.0
"""A region with this many times the events of the median one is worth splitting, if its node is overloaded or busy."""
LISTED_MAX = 5
NAMED_MAX = 6


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice; ``gain`` sorts the advice of one kind, in the unit that ``because`` names."""

    do: Literal["merge", "split", "move"]
    regions: tuple[str, ...]
    because: str
    gain: float

    @property
    def named(self) -> str:
        """The region names, only the first of many."""
        shown = ", ".join(self.regions[:NAMED_MAX])
        return shown if len(self.regions) <= NAMED_MAX else f"{shown} and {len(self.regions) - NAMED_MAX} more"

    def as_dict(self) -> dict[str, object]:
        """Return the advice as JSON values."""
        return {"do": self.do, "regions": list(self.regions), "because": self.because, "gain": self.gain}


def advise(
    subscribers_of: Mapping[str, frozenset[str]],
    events_per_s: Mapping[str, float],
    worth_moving: Sequence[Move],
    *,
    overloaded: Mapping[str, float],
    plan: Mapping[str, Sequence[str]],
) -> tuple[Advice, ...]:
    """Return advice, most useful first of each kind; ``worth_moving``: as of `analytics.jobs.moves.moves`.

    ``overloaded``: nodes that carry more than the busiest subscriber receives, and how many times as much.
    """
    return (
        *_merge(subscribers_of, events_per_s)[:LISTED_MAX],
        *_split(subscribers_of, events_per_s, overloaded, plan)[:LISTED_MAX],
        *(Advice("move", (each.region,), str(each), each.gain_ms) for each in worth_moving[:LISTED_MAX]),
    )


def _merge(subscribers_of: Mapping[str, frozenset[str]], rate: Mapping[str, float]) -> list[Advice]:
    advice = []
    by_audience: dict[frozenset[str], list[str]] = {}
    for region, audience in sorted(subscribers_of.items()):
        by_audience.setdefault(audience, []).append(region)
    for audience, regions in by_audience.items():
        if len(regions) > 1 and len(audience) > 1:
            pairs = len(regions) * (len(regions) - 1) // 2
            ordered = f"{pairs} pair{'s' * (pairs != 1)} to order"
            shared = f"the same {len(audience)} subscribers have them"
            because = f"{shared}: one region saves {ordered}, and costs no subscriber an event"
            advice.append(Advice("merge", tuple(regions), because, float(pairs)))
    audiences = sorted(by_audience, key=sorted)
    for one, other in combinations(audiences if len(audiences) <= 1000 else [], 2):
        both, either = len(one & other), len(one | other)
        if both > 1 and both / either >= ALIKE:
            regions = [by_audience[one][0], by_audience[other][0]]
            extra = sum(rate.get(region, 0.0) * len((one | other) - subscribers_of[region]) for region in regions)
            because = (
                f"{both} of {either} subscribers have both: one region saves an overlap, for {extra:.0f} more "
                "unwanted deliveries a second"
            )
            advice.append(Advice("merge", tuple(regions), because, 1.0))
    return sorted(advice, key=lambda each: (-each.gain, each.regions))


def _split(
    subscribers_of: Mapping[str, frozenset[str]],
    rate: Mapping[str, float],
    overloaded: Mapping[str, float],
    plan: Mapping[str, Sequence[str]],
) -> list[Advice]:
    ordered = sorted(rate.values())
    median = ordered[len(ordered) // 2] if ordered else 0.0
    advice = []
    for region, events in rate.items():
        hot = [node for node in plan.get(region, ()) if node in overloaded]
        if not median or events < HOT * median or (plan and not hot):
            continue
        audience = len(subscribers_of.get(region, ()))
        because = f"{events:.0f} events/s, {events / median:.1f} times the median region's, to {audience} subscribers"
        if hot:
            because += (
                f"; its node {hot[0]} carries {overloaded[hot[0]]:.1f} times what the busiest subscriber receives"
            )
        advice.append(Advice("split", (region,), because, events * audience))
    return sorted(advice, key=lambda each: (-each.gain, each.regions))
