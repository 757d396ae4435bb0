"""The plan: an immutable, numbered assignment of regions to paths and of atoms to nodes.

A plan is what the manager installs and what publishers, relays and subscribers read. ``(epoch, version)`` numbers it:
a version changes the network in place, an epoch begins every number space anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal, NewType, get_args

import orjson

from sequencing.errors import PlanError, UsageError
from sequencing.names import check_node_name, check_region

Ordering = Literal["acyclic", "overlap", "causal"]
"""``overlap`` orders double overlaps (seed 002); ``acyclic`` also the rings of single ones, so that the union of all
delivery orders has no cycle; ``causal`` has the same atoms, and publishers wait for their own deliveries."""

AtomId = NewType("AtomId", int)


@dataclass(frozen=True, slots=True)
class Atom:
    """One sequence-number space: it orders the frames of two (or, for twins, more) regions for who has them all."""

    id: AtomId
    regions: tuple[str, ...]
    node: str


@dataclass(frozen=True, slots=True)
class Step:
    """What one node does with the frames of one region: which atoms stamp it, and where it goes next (None = out).

    ``epoch``: in which the region's numbering began; ``next``: as `Plan.link_end` names it.
    """

    region: str
    epoch: int
    ingress: bool
    next: str | None
    atoms: tuple[AtomId, ...]


@dataclass(frozen=True)
class Plan:
    """``nodes``: name → url (empty: the control Redis itself); ``paths``: region → its nodes, ingress first.

    ``epochs``: the regions whose numbering began in an earlier epoch than the plan's, because nothing in their
    component has changed since. ``runs``: of each node that may lose something when it restarts, the run (of its
    server) that is meant: what the server says of itself that changes with each start. Nobody speaks to another one.
    """

    epoch: int
    version: int
    ordering: Ordering
    nodes: Mapping[str, str]
    paths: Mapping[str, tuple[str, ...]]
    atoms: tuple[Atom, ...]
    epochs: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)

    def epoch_of(self, region: str) -> int:
        """Return the epoch in which a region's numbering began."""
        return self.epochs.get(region, self.epoch)

    def link_end(self, node: str) -> str:
        """Return what links know a node by: another name with each run, so that none goes on where it may have lost."""
        return f"{node}#{self.runs[node]}" if node in self.runs else node

    @cached_property
    def atoms_of(self) -> Mapping[str, tuple[Atom, ...]]:
        """Region → the atoms that stamp its frames."""
        found: dict[str, list[Atom]] = {region: [] for region in self.paths}
        for atom in self.atoms:
            for region in atom.regions:
                found[region].append(atom)
        return {region: tuple(atoms) for region, atoms in found.items()}

    @cached_property
    def links(self) -> frozenset[tuple[str, str]]:
        """The (node, next node) pairs that some path uses."""
        return frozenset(pair for path in self.paths.values() for pair in pairwise(path))

    def steps(self, node: str) -> Iterator[Step]:
        """Yield the step of each region whose path visits ``node``."""
        for region, path in self.paths.items():
            if node in path:
                place = path.index(node)
                following = self.link_end(path[place + 1]) if place + 1 < len(path) else None
                atoms = tuple(atom.id for atom in self.atoms_of[region] if atom.node == node)
                yield Step(region, self.epoch_of(region), place == 0, following, atoms)

    def with_regions(self, regions: Iterable[str], nodes: Mapping[str, str] | None = None) -> Plan:
        """Return the next version, with paths for regions that nobody subscribes to.

        Such a region overlaps with nothing, so it needs no atom and any node serves: of ``nodes``, name → url (all that
        are known when None), the one that the fewest paths visit. In place: nothing that exists changes.
        """
        choice = self.nodes if nodes is None else nodes
        visits = Counter(chain.from_iterable(self.paths.values()))
        paths = dict(self.paths)
        for region in map(check_region, regions):
            if region not in paths:
                quietest = min(choice, key=lambda name: (visits[name], name))
                paths[region] = (quietest,)
                visits[quietest] += 1
        return replace(self, version=self.version + 1, nodes={**self.nodes, **choice}, paths=paths)

    def to_json(self) -> bytes:
        """Serialise; `from_json` is the inverse."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        # A record is written several times for each join, with the same plans.
        return orjson.dumps(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """Return what JSON can hold; `from_document` is the inverse."""
        return {
            "epoch": self.epoch,
            "version": self.version,
            "ordering": self.ordering,
            "nodes": {
                name: {"url": url} | ({"run": self.runs[name]} if name in self.runs else {})
                for name, url in self.nodes.items()
            },
            "regions": {
                region: {"path": list(path)} | ({"epoch": self.epochs[region]} if region in self.epochs else {})
                for region, path in self.paths.items()
            },
            "atoms": [{"id": a.id, "regions": list(a.regions), "node": a.node} for a in self.atoms],
        }

    @classmethod
    def from_json(cls, text: bytes | str) -> Plan:
        """Read a plan back, checking its shape; raises `PlanError` saying what is wrong."""
        try:
            return cls.from_document(orjson.loads(text))
        except ValueError as error:
            raise PlanError(f"this is not a gamecast plan: {error!r}") from error

    @classmethod
    def from_document(cls, document: Any) -> Plan:
        """Read what `to_document` returned, checking its shape; raises `PlanError` saying what is wrong."""
        try:
            return cls._checked(document)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise PlanError(f"this is not a gamecast plan: {error!r}") from error

    @classmethod
    def _checked(cls, document: Any) -> Plan:
        nodes = {check_node_name(name): _text(entry.get("url", "")) for name, entry in document["nodes"].items()}
        paths = {check_region(region): _texts(entry["path"]) for region, entry in document["regions"].items()}
        atoms = tuple(
            Atom(AtomId(_whole(entry["id"])), _texts(entry["regions"]), entry["node"]) for entry in document["atoms"]
        )
        if len({atom.id for atom in atoms}) != len(atoms):
            raise ValueError("two atoms have one id")
        for region, path in paths.items():
            if not path or not nodes.keys() >= set(path):
                raise ValueError(f"the path of region {region!r} is empty or names an unknown node: {path}")
        for atom in atoms:
            if atom.node not in nodes or not paths.keys() >= set(atom.regions):
                raise ValueError(f"atom {atom.id} names an unknown node or region")
        if document["ordering"] not in get_args(Ordering):
            raise ValueError(f"unknown ordering {document['ordering']!r}")
        epoch, version = _whole(document["epoch"]), _whole(document["version"])
        epochs = {region: _whole(entry["epoch"]) for region, entry in document["regions"].items() if "epoch" in entry}
        if any(begun > epoch for begun in epochs.values()):
            raise ValueError(f"a region's numbering begins after epoch {epoch}")
        runs = {name: _text(entry["run"]) for name, entry in document["nodes"].items() if "run" in entry}
        return cls(epoch, version, document["ordering"], nodes, paths, atoms, epochs, runs)


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of names")
    return tuple(map(_text, values))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value
