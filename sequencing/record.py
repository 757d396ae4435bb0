"""The data that managers and subscribers exchange: interests, and the record of the network's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import orjson

from sequencing.compact import compact
from sequencing.errors import PlanError, UsageError
from sequencing.identity import KeptFor, KeptWithin
from sequencing.names import check_region
from sequencing.plan import Plan

Members = Mapping[str, frozenset[str]]
Pair = tuple[str, str]
"""Two regions, sorted."""

MEMBERS_KEPT = 200_000
"""The regions of members whose JSON is kept: it is written with each record, and most members are as they were."""

WIRE = 3
"""The wire version of frames and plans. Before 2, nodes did not number frames: atoms ordered those of one node. Before
3, the plan of a network of one node listed its regions."""

ENDED_EPOCHS_KEPT = 256
"""For this many epochs, an ended stream is ended once more when its node is restarted: for clients still reading it."""


def pair_of(one: str, other: str) -> Pair:
    """Return two regions as a pair; raises `InvalidName`, and `UsageError` for a region with itself."""
    if one == other:
        raise UsageError(f"region {one!r} does not overlap with itself")
    left, right = sorted((check_region(one), check_region(other)))
    return left, right


@dataclass(frozen=True)
class Interest:
    """The regions that a subscriber wants: of two interests of a name, that of the later ``(incarnation, said)``
    counts.

    ``since``: region → the ``said`` from which on it is wanted without a break; ``floor``: the last epoch of which the
    subscriber had anything. History goes epoch by epoch, and so does each subscriber: no region is joined in an earlier
    one.
    """

    incarnation: int
    said: int
    since: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0

    def after(self, heard: Interest | None) -> frozenset[str]:
        """Return the regions that a plan which took ``heard`` into account did not know."""
        known = heard.said if heard is not None and heard.incarnation == self.incarnation else 0
        return frozenset(region for region, since in self.since.items() if since > known)

    def to_json(self) -> bytes:
        """Serialise; `from_document` reads it, parsed."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        # The same interest is written with each record for as long as it lasts.
        return compact(orjson.dumps([self.incarnation, self.said, dict(self.since), self.floor]))

    @classmethod
    def from_document(cls, document: Any) -> Interest:
        """Read the parsed result of `to_json`; raises `PlanError` if it is something else."""
        match document:
            case [int(incarnation), int(said), dict(since), int(floor)] if _are_whole(since.values()):
                return cls(incarnation, said, since, floor)
        raise PlanError(f"this is not a subscriber's interest: {str(document)[:80]}")


@dataclass(frozen=True, slots=True)
class OldEpoch:
    """An epoch of a region that is to end, or has ended, and its path."""

    region: str
    epoch: int
    path: tuple[str, ...]
    lost: frozenset[str]
    """The nodes of the path that were restarted since, so that data may be lost."""


@dataclass(frozen=True, slots=True)
class Record:
    """The stored state of a network, from which the next leader continues.

    ``members``: subscriber → the regions that the plan counts for it; ``heard``: the interests that it knew;
    ``behind``: the plans that are still in use during a transition, the oldest first; ``abandoned``: those that were
    given up before they were announced; ``next_atom``: ids are never used again; ``ended``: node → the streams,
    (region, epoch) each, that have ended there, of the nodes that may lose them; ``expected``: overlaps that are
    ordered whether a subscriber has them or not; ``leaving``: subscriber → regions from which it is removed in this
    transition, see `sequencing.expected`.
    """

    plan: Plan
    members: Members = field(default_factory=dict)
    heard: Mapping[str, Interest] = field(default_factory=dict)
    behind: tuple[Plan, ...] = ()
    abandoned: tuple[Plan, ...] = ()
    next_atom: int = 1
    ended: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    expected: frozenset[Pair] = frozenset()
    leaving: Members = field(default_factory=dict)

    def old_epochs(self) -> tuple[OldEpoch, ...]:
        """Return the epochs that the transition ends, each region's in order."""
        return _old_epochs(self.plan, self.behind)

    def ending(self) -> frozenset[tuple[str, int]]:
        """Return `old_epochs` as (region, epoch) each."""
        return frozenset((old.region, old.epoch) for old in self.old_epochs())

    def left_plans(self) -> tuple[Plan, ...]:
        """Return the parts of the plans behind that readers of history need: the regions whose epochs the transition
        ends.

        Each plan has the atoms between these regions, too; oldest first.
        """
        ending: set[tuple[str, int]] = set(self.ending())
        if not ending:
            return ()
        found: list[Plan] = []
        for plan in self.behind:
            regions = {region for region in plan.paths if (region, plan.epoch_of(region)) in ending}
            ending.difference_update((region, plan.epoch_of(region)) for region in regions)
            if regions:
                found.append(plan.only(regions))
        return tuple(found)

    def settled(self) -> Record:
        """Return the record as it is when the transition has finished."""
        ended = dict(self.ended)
        for old in self.old_epochs():
            egress = old.path[-1]
            if egress in self.plan.runs:
                ended[egress] = (*ended.get(egress, ()), (old.region, old.epoch))
        recent = self.plan.epoch - ENDED_EPOCHS_KEPT
        ended = {node: tuple(each for each in streams if each[1] > recent) for node, streams in ended.items()}
        return replace(self, behind=(), abandoned=(), ended=ended, leaving={})

    def news(self) -> Record:
        """Return the part that clients need, without what only matters to managers."""
        behind = self.behind if self.old_epochs() else ()
        return replace(self, behind=behind, abandoned=(), expected=frozenset(), leaving={})

    def to_json(self) -> bytes:
        """Serialise, as lines of JSON; `from_json` is the inverse."""
        return b"\n".join(self.to_lines())

    def to_lines(self) -> list[bytes]:
        """Serialise; `from_lines` is the inverse.

        The first line has what is needed for `plan_of`, the second the interests and members. Behind them are the
        regions and the atoms of the plans, and the expected overlaps, one line each. They rarely change: a line is the
        very same object until they do. The first two lines say which lines belong to which plan.
        """
        lines: dict[bytes, int] = {}

        def told(plan: Plan) -> dict[str, Any]:
            regions, atoms = (lines.setdefault(part, len(lines)) for part in (plan.regions_json(), plan.atoms_json()))
            return {**plan.head(), "regions": regions, "atoms": atoms}

        head = {
            "plan": told(self.plan),
            "behind": [told(plan) for plan in self.behind],
            "abandoned": [told(plan) for plan in self.abandoned],
            "next_atom": self.next_atom,
        }
        people = {
            "members": {name: orjson.Fragment(_regions_json(regions)) for name, regions in self.members.items()},
            "heard": {name: orjson.Fragment(interest.to_json()) for name, interest in self.heard.items()},
            "ended": self.ended,
            "expected": lines.setdefault(_pairs_json(self.expected), len(lines)),
            "leaving": {name: sorted(regions) for name, regions in self.leaving.items()},
        }
        # Version 1 had the head alone, and finds no plan in these lines.
        return [orjson.dumps([WIRE, head]), orjson.dumps(people), *lines]

    @classmethod
    def from_json(cls, text: bytes) -> Record:
        """Read a record back; raises `PlanError` saying what is wrong."""
        return cls.from_lines(text.split(b"\n"))

    @classmethod
    def from_lines(cls, text: Sequence[bytes]) -> Record:
        """Read a record back; raises `PlanError` saying what is wrong."""
        with _reading():
            first, second, *lines = text
            head, people = _head(first), orjson.loads(second)
            return cls(
                _plan(head["plan"], lines),
                {name: frozenset(regions) for name, regions in people["members"].items()},
                {name: Interest.from_document(interest) for name, interest in people["heard"].items()},
                tuple(_plan(plan, lines) for plan in head["behind"]),
                tuple(_plan(plan, lines) for plan in head["abandoned"]),
                int(head["next_atom"]),
                {node: tuple((str(r), int(e)) for r, e in streams) for node, streams in people["ended"].items()},
                _parse_pairs(lines[people["expected"]]),
                {name: frozenset(regions) for name, regions in people["leaving"].items()},
            )

    @staticmethod
    def plan_of(text: Sequence[bytes]) -> Plan:
        """Read only the plan from the result of `to_lines`, at a small part of the cost; raises `PlanError`."""
        with _reading():
            first, _, *lines = text
            return _plan(_head(first)["plan"], lines)


def _are_whole(numbers: Iterable[Any]) -> bool:
    return all(type(number) is int for number in numbers)


def _head(line: bytes) -> Any:
    document = orjson.loads(line)
    wire, head = document if isinstance(document, list) else (1, document)
    if wire != WIRE:
        raise PlanError(
            f"this network's wire is of version {wire}, and this gamecast speaks version {WIRE}: take one gamecast for "
            "all of a network, or begin a new one under another URL"
        )
    return head


def _plan(head: Any, lines: Sequence[bytes]) -> Plan:
    return Plan.from_parts(head, lines[head["regions"]], lines[head["atoms"]])


@KeptFor
def _old_epochs(following: Plan, behind: tuple[Plan, ...]) -> tuple[OldEpoch, ...]:
    if all(following.epoch == plan.epoch for plan in behind):
        return ()  # no region moves within an epoch
    found: list[OldEpoch] = []
    begun = {(region, following.epoch_of(region)) for region in following.paths}
    for plan in behind:
        lost = frozenset(node for node in plan.nodes if plan.runs.get(node) != following.runs.get(node))
        for region, path in plan.paths.items():
            key = region, plan.epoch_of(region)
            if key not in begun:
                begun.add(key)
                found.append(OldEpoch(*key, path, lost.intersection(path)))
    return tuple(found)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"this is not the record of a gamecast network: {error!r}") from error


@partial(KeptWithin, MEMBERS_KEPT)
def _regions_json(regions: frozenset[str]) -> bytes:
    return compact(orjson.dumps(sorted(regions)))


@KeptFor
def _pairs_json(pairs: frozenset[Pair]) -> bytes:
    return orjson.dumps(sorted(pairs))


@lru_cache(maxsize=2)
def _parse_pairs(text: bytes) -> frozenset[Pair]:
    return frozenset((str(one), str(other)) for one, other in orjson.loads(text))
