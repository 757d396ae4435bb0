"""The plan as a document for other programs, in which every atom is a pair of regions.

It is the plan's own form, so gamecast reads it back, and one thing is spelt out: regions with the same subscribers
share a number space, and so one of our atoms may order more than two regions. Other programs expect pairs. Hence each
pair that needs order is an atom of the document; ``counter`` names the number space that it shares with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import orjson

from sequencing.membership import Membership
from sequencing.overlaps import class_pairs_to_order, twin_classes
from sequencing.plan import Plan

PAIRS_MAX = 2_000_000
"""Some 300 MB of JSON. A world with more pairs has many regions that share everything, and few atoms all the same."""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """``text``: the JSON; ``pairs``: how many pairs need order; ``paired``: whether its atoms are those pairs."""

    text: bytes
    pairs: int
    paired: bool


def plan_document(plan: Plan, membership: Membership, host_of: Mapping[str, str] | None = None) -> PlanDocument:
    """Serialise a plan with its atoms as pairs, or as they are where there are more than `PAIRS_MAX` pairs.

    ``host_of``: nodes whose place on a topology is known, each with its ``host``.

    `sequencing.plan.Plan.from_json` reads it, as a plan in which each pair has a number space of its own.
    """
    required = _Required(plan, membership)
    paired = required.count <= PAIRS_MAX
    document: dict[str, Any] = orjson.loads(plan.to_json())
    for node, host in (host_of or {}).items():
        document["nodes"][node]["host"] = host
    if paired:
        document["atoms"] = [
            {"id": number, "regions": pair, "node": node, "counter": counter}
            for number, (pair, node, counter) in enumerate(_pairs(plan, required), start=1)
        ]
    else:
        document["atoms"] = [{**atom, "counter": atom["id"]} for atom in document["atoms"]]
    return PlanDocument(orjson.dumps(document, option=orjson.OPT_INDENT_2), required.count, paired)


def _pairs(plan: Plan, required: _Required) -> Iterator[tuple[tuple[str, str], str, int]]:
    """Yield each pair that needs order once, with its node and counter: the smallest atom that holds both regions."""
    seen: set[tuple[str, str]] = set()
    for atom in sorted(plan.atoms, key=lambda atom: len(atom.regions)):
        for one, other in combinations(sorted(atom.regions), 2):
            if (one, other) not in seen and required.has(one, other):
                seen.add((one, other))
                yield (one, other), atom.node, atom.id


class _Required:
    """The pairs that need order, by classes of twins."""

    def __init__(self, plan: Plan, membership: Membership) -> None:
        classes = twin_classes(membership)
        left, right = class_pairs_to_order(membership, classes, plan.ordering)
        sizes = np.array([len(member) for member in classes.members], np.int64)
        shared = classes.subscribers > 1
        self.count = int(np.sum(sizes[left] * sizes[right]) + np.sum(np.where(shared, sizes * (sizes - 1) // 2, 0)))
        self._pairs = set(zip(left.tolist(), right.tolist(), strict=True))
        self._shared = shared.tolist()
        self._class_of = {
            membership.regions[region]: c for c, member in enumerate(classes.members) for region in member.tolist()
        }

    def has(self, one: str, other: str) -> bool:
        """Whether the order of two regions matters."""
        a, b = self._class_of.get(one), self._class_of.get(other)
        if a is None or b is None:
            return False
        return self._shared[a] if a == b else (min(a, b), max(a, b)) in self._pairs
