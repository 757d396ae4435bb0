"""The plan as a document for other programs, in which every atom is a pair of regions.

It is the plan's own form, so gamecast reads it back, and one thing is spelt out. One of our atoms may order more than
two regions, because those with the same subscribers share a number space; and regions that end at one node need no
atom, because they share the node's own. Other programs expect pairs. Hence each pair that needs order is an atom of the
document; ``counter`` names the number space that it shares with others, 0 the node's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import orjson

from sequencing.frames import NODE
from sequencing.membership import Membership
from sequencing.overlaps import class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import Plan

PAIRS_MAX = 2_000_000
"""Some 300 MB of JSON. A world with more pairs has many regions that share everything, but few counters."""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """``text``: the JSON; ``pairs``: how many pairs need order; ``paired``: whether its atoms are those pairs."""

    text: bytes
    pairs: int
    paired: bool


def plan_document(plan: Plan, membership: Membership, host_of: Mapping[str, str] | None = None) -> PlanDocument:
    """Serialise a plan with its atoms as pairs, or by number spaces where there are more than `PAIRS_MAX` pairs.

    ``host_of``: nodes whose place on a topology is known, each with its ``host``.

    `sequencing.plan.Plan.from_json` reads it, as a plan in which each pair has a number space of its own.
    """
    required = _Required(plan, membership)
    paired = required.count <= PAIRS_MAX
    shared = sorted(_shared(plan, required), key=lambda shared: len(shared.regions))
    document: dict[str, Any] = orjson.loads(plan.to_json())
    for node, host in (host_of or {}).items():
        document["nodes"][node]["host"] = host
    listed = _pairs(shared, required) if paired else shared
    document["atoms"] = [{"id": number, **one._asdict()} for number, one in enumerate(listed, start=1)]
    return PlanDocument(orjson.dumps(document, option=orjson.OPT_INDENT_2), required.count, paired)


class _Shared(NamedTuple):
    """Regions that share a number space."""

    regions: tuple[str, ...]
    node: str
    counter: int


def _shared(plan: Plan, required: _Required) -> Iterator[_Shared]:
    """Yield what the plan's atoms order, and what needs order and has that of the node where it ends."""
    yield from (_Shared(atom.regions, atom.node, atom.id) for atom in plan.atoms)
    yield from (_Shared(regions, node, NODE) for node, regions in required.at_one_end(plan.egresses))


def _pairs(shared: Iterable[_Shared], required: _Required) -> Iterator[_Shared]:
    """Yield each pair that needs order once, as the first that holds both regions has it."""
    seen: set[tuple[str, str]] = set()
    for regions, node, counter in shared:
        for one, other in combinations(sorted(regions), 2):
            if (one, other) not in seen and required.has(one, other):
                seen.add((one, other))
                yield _Shared((one, other), node, counter)


class _Required:
    """The pairs that need order, by classes of twins."""

    def __init__(self, plan: Plan, membership: Membership) -> None:
        classes = twin_classes(membership)
        left, right = class_pairs_to_order(membership, classes, plan.ordering)
        shared = twins_to_order(classes, plan.ordering)
        sizes = np.array([len(member) for member in classes.members], np.int64)
        self.count = int(np.sum(sizes[left] * sizes[right]) + np.sum(sizes[shared] * (sizes[shared] - 1) // 2))
        self._pairs = set(zip(left.tolist(), right.tolist(), strict=True))
        self._shared = set(shared.tolist())
        self._members = [[membership.regions[region] for region in member.tolist()] for member in classes.members]
        self._class_of = {region: c for c, member in enumerate(self._members) for region in member}

    def has(self, one: str, other: str) -> bool:
        """Whether the order of two regions matters."""
        a, b = self._class_of.get(one), self._class_of.get(other)
        if a is None or b is None:
            return False
        return a in self._shared if a == b else (min(a, b), max(a, b)) in self._pairs

    def at_one_end(self, egresses: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield (node, regions) for each class, and each pair of classes, that needs order and has several there."""
        by_end: list[dict[str, tuple[str, ...]]] = [{} for _ in self._members]
        for ends, members in zip(by_end, self._members, strict=True):
            for region in members:
                ends[egresses[region]] = (*ends.get(egresses[region], ()), region)
        for twins in sorted(self._shared):
            yield from ((node, regions) for node, regions in by_end[twins].items() if len(regions) > 1)
        for a, b in sorted(self._pairs):
            yield from ((node, regions + by_end[b][node]) for node, regions in by_end[a].items() if node in by_end[b])
