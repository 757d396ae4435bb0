"""The plan: an immutable, numbered assignment of regions to paths and of atoms to nodes.

The manager installs a plan, and publishers, relays and subscribers read it. ``(epoch, version)`` numbers it: a version
changes the network in place, an epoch restarts every number space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, Literal, NewType, get_args

import orjson

from sequencing.errors import PlanError, UsageError
from sequencing.everywhere import everywhere
from sequencing.identity import KeptFor
from sequencing.names import check_node_name, check_region

Ordering = Literal["acyclic", "overlap", "causal"]
"""``overlap`` orders double overlaps (Lumezanu 2006). ``acyclic`` orders all regions that a subscriber has together, so
that the union of all delivery orders has no cycle. ``causal`` has the same atoms, and publishers wait for their own
deliveries."""

AtomId = NewType("AtomId", int)


@dataclass(frozen=True, slots=True)
class Atom:
    """One sequence-number space: it orders the frames of two (or, for twins, more) regions for subscribers of them
    all."""

    id: AtomId
    regions: tuple[str, ...]
    node: str


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one node on the frames of one region: which atoms stamp it, and where it goes next (None = out).

    ``epoch``: the one in which the region's numbering began; ``next``: as `Plan.link_end` names it.
    """

    region: str
    epoch: int
    ingress: bool
    next: str | None
    atoms: tuple[AtomId, ...]


GIVEN_UP = "-"
"""Begins what plans name as the run of a node that was given up: no server is in it, so no process communicates with
the node. Behind it is the run in which the node was given up, if it is known."""


FEW = 4
"""A set so many times as small as another is looked through one by one: a difference of sets takes as long as the
larger one."""


@dataclass(frozen=True)
class Plan:
    """``nodes``: name → url (empty: the control Redis itself); ``paths``: region → its nodes, ingress first.

    ``epochs``: the regions whose numbering began in an earlier epoch than the plan's, because nothing in their
    component has changed since. ``runs``: for each node that may lose something when it restarts, the run of its server
    that is meant: a value that the server reports and that changes with each start. No process communicates with
    another run; what begins with `GIVEN_UP` is none. ``first_epoch``: the one that the network began with, which
    distinguishes it from all others, see `first_plan`. ``sole``: the node of a network that has one only, and lists no
    region: whatever is named is there.
    ``joint``: the sets of regions, by name, that events can be in at once (`sequencing.joint`).
    """

    epoch: int
    version: int
    ordering: Ordering
    nodes: Mapping[str, str]
    paths: Mapping[str, tuple[str, ...]]
    atoms: tuple[Atom, ...]
    epochs: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    first_epoch: int = 1
    sole: str = ""
    joint: frozenset[str] = frozenset()

    def epoch_of(self, region: str) -> int:
        """Return the epoch in which a region's numbering began."""
        return self.epochs.get(region, self.epoch)

    def without_place(self, regions: Iterable[str]) -> frozenset[str]:
        """Return those of some regions that have no path, and of sets that the plan does not have.

        A difference of sets would look at all paths.
        """
        return frozenset(region for region in regions if region not in self.paths and region not in self.joint)

    def begun_after(self, epoch: int, regions: AbstractSet[str]) -> set[str]:
        """Return those of some regions, all of which have a path, whose numbering began after an epoch."""
        if epoch >= self.epoch:
            return set()
        if FEW * len(regions) < len(self.epochs):
            return {region for region in regions if self.epoch_of(region) > epoch}
        begun = set(regions - self.epochs.keys())
        if epoch + 1 < self.epoch:
            begun.update(region for region in regions & self.epochs.keys() if self.epochs[region] > epoch)
        return begun

    def link_end(self, node: str) -> str:
        """Return a node's name in links. For a node that may lose data it differs in each run, so that no link goes on
        after a loss."""
        return f"{node}#{self.runs[node]}" if node in self.runs else node

    @cached_property
    def given_up(self) -> frozenset[str]:
        """The nodes that were given up: they did not answer for too long."""
        return frozenset(node for node, run in self.runs.items() if run.startswith(GIVEN_UP))

    @property
    def atoms_of(self) -> Mapping[str, tuple[Atom, ...]]:
        """Region → the atoms that stamp its frames: none for a region that is not in it."""
        return atoms_by_region(self.atoms)

    @cached_property
    def egresses(self) -> Mapping[str, str]:
        """Region → the node where its subscribers read it."""
        return _egresses(self.paths)

    def ends_of(self, regions: Iterable[str]) -> dict[str, str]:
        """Return region → the node where its subscribers read it, of some regions."""
        return {region: self.paths[region][-1] for region in regions}

    @cached_property
    def ingresses(self) -> frozenset[str]:
        """The nodes at which some path begins."""
        return frozenset({self.sole} if self.sole else (node for node, paths in self.begins.items() if paths))

    @cached_property
    def begins(self) -> Mapping[str, int]:
        """Node → how many paths begin there; not where one node has all."""
        return Counter(path[0] for path in self.paths.values())

    @cached_property
    def links(self) -> frozenset[tuple[str, str]]:
        """The (node, next node) pairs that some path uses."""
        return frozenset(pair for path in self.paths.values() for pair in pairwise(path))

    def steps(self, node: str, regions: Iterable[str] | None = None) -> Iterator[Step]:
        """Yield the step of each region whose path visits ``node``, or of those of some regions."""
        here: dict[int, tuple[AtomId, ...]] = {}
        for region in self.paths if regions is None else regions:
            if node in (path := self.paths[region]):
                place = path.index(node)
                following = self.link_end(path[place + 1]) if place + 1 < len(path) else None
                stamping = self.atoms_of[region]
                atoms = here.get(id(stamping))
                if atoms is None:
                    atoms = here[id(stamping)] = tuple(atom.id for atom in stamping if atom.node == node)
                yield Step(region, self.epoch_of(region), place == 0, following, atoms)

    @cached_property
    def visits(self) -> Mapping[str, int]:
        """Node → how many paths visit it."""
        return Counter(chain.from_iterable(self.paths.values()))

    def with_regions(
        self,
        regions: Iterable[str],
        nodes: Mapping[str, str] | None = None,
        homes: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> Plan:
        """Return the next version, with paths for regions without subscribers.

        Such a region overlaps with nothing, so it needs no atom, and any node serves. Of ``nodes``, name → url (all
        known nodes if None), it gets the one that the fewest paths visit, and begins in this epoch; but ``homes``:
        region → node and epoch, if it is to be there. In place: nothing that exists changes.
        """
        choice = self.nodes if nodes is None else nodes
        new, epochs = dict[str, tuple[str, ...]](), dict[str, int]()
        visits = Counter(self.visits)
        for region in map(check_region, regions):
            if region not in self.paths and region not in new:
                quietest = min(choice, key=lambda name: (visits[name], name))
                node, epoch = homes.get(region, (quietest, self.epoch))
                new[region] = (node,)
                visits[node] += 1
                if epoch != self.epoch:
                    epochs[region] = epoch
        widened = replace(
            self,
            version=self.version + 1,
            nodes={**self.nodes, **choice},
            paths={**self.paths, **new} if new else self.paths,
            epochs={**self.epochs, **epochs} if epochs else self.epochs,
        )
        if not self.sole:  # else it lists none
            widened.__dict__["visits"] = visits
            widened.keep_known(self, "links")  # a path of one node adds none
        return widened

    def with_sets(self, sets: frozenset[str]) -> Plan:
        """Return the plan, which has these sets of regions, too, by name."""
        if not sets:
            return self
        widened = replace(self, joint=self.joint | sets)
        widened.keep_known(self, "links", "visits", "begins", "egresses")
        return widened

    def only(self, regions: AbstractSet[str]) -> Plan:
        """Return the part of the plan that orders some regions: their paths and epochs, and the atoms between them."""
        paths = {region: path for region, path in self.paths.items() if region in regions}
        atoms = tuple(
            replace(atom, regions=tuple(region for region in atom.regions if region in regions))
            for atom in dict.fromkeys(chain.from_iterable(self.atoms_of[region] for region in paths))
        )
        used = _nodes_used(paths, atoms)
        return replace(
            self,
            nodes={name: url for name, url in self.nodes.items() if name in used},
            paths=paths,
            atoms=atoms,
            epochs={region: epoch for region, epoch in self.epochs.items() if region in regions},
            runs={name: run for name, run in self.runs.items() if name in used},
            joint=frozenset(),
        )

    def is_laid_out_as(self, other: Plan) -> bool:
        """Return whether regions, paths, epochs and atoms are the very same as of another plan; if in doubt, False."""
        same = self.paths is other.paths and self.atoms is other.atoms and self.epochs is other.epochs
        return same and self.epoch == other.epoch

    def to_json(self) -> bytes:
        """Serialise; `from_json` is the inverse."""
        return orjson.dumps(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """Return the plan as values for JSON; `from_document` is the inverse."""
        return {
            **self.head(),
            "regions": {
                region: {"path": list(path)} | ({"epoch": self.epochs[region]} if region in self.epochs else {})
                for region, path in self.paths.items()
            },
            "atoms": [{"id": atom.id, "regions": list(atom.regions), "node": atom.node} for atom in self.atoms],
            **({"joint": sorted(self.joint)} if self.joint else {}),
        }

    def head(self) -> dict[str, Any]:
        """Return the parts besides regions and atoms, as values for JSON."""
        return {
            "epoch": self.epoch,
            "version": self.version,
            "first_epoch": self.first_epoch,
            "ordering": self.ordering,
            "nodes": self.nodes_document(),
            **({"sole": self.sole} if self.sole else {}),
        }

    def nodes_document(self) -> dict[str, Any]:
        """Return the nodes and their runs, as values for JSON."""
        return {
            name: {"url": url} | ({"run": self.runs[name]} if name in self.runs else {})
            for name, url in self.nodes.items()
        }

    def keep_known(self, before: Plan, *names: str) -> None:
        """Take over what is known of a plan that is the same in this: cached properties, as far as they were asked
        for."""
        self.__dict__.update((name, before.__dict__[name]) for name in names if name in before.__dict__)

    @classmethod
    def from_json(cls, text: bytes | str) -> Plan:
        """Read a plan back, checking its shape; raises `PlanError` saying what is wrong."""
        try:
            return cls.from_document(orjson.loads(text))
        except ValueError as error:
            raise PlanError(f"this is not a gamecast plan: {error!r}") from error

    @classmethod
    def from_document(cls, document: Any) -> Plan:
        """Read parsed JSON, checking its shape; raises `PlanError` saying what is wrong."""
        try:
            return cls._of(document, _read_regions(document["regions"]), _read_atoms(document["atoms"]))
        except UsageError as error:
            raise PlanError(f"this is not a gamecast plan: {error}") from error
        except KeyError as error:
            raise PlanError(f"this is not a gamecast plan: it lacks {error}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"this is not a gamecast plan: a part of it has another form ({error})") from error

    @classmethod
    def _of(cls, head: Any, regions: _Regions, atoms: tuple[Atom, ...]) -> Plan:
        nodes, runs = read_nodes(head["nodes"])
        paths, epochs = regions
        if sole := text_of(head.get("sole", "")):
            if paths or sole not in nodes:
                raise ValueError(f"{sole!r} is not the only node, or regions are listed")
            paths = everywhere(sole)
        if unknown := _nodes_used(paths, atoms) - nodes.keys():
            raise ValueError(_naming_one(unknown, paths, atoms))
        ordering = checked_ordering(head["ordering"])
        epoch, version, first_epoch = (
            whole_of(head["epoch"]),
            whole_of(head["version"]),
            whole_of(head.get("first_epoch", 1)),
        )
        if any(begun > epoch for begun in epochs.values()):
            raise ValueError(f"a region's numbering begins after epoch {epoch}")
        joint = frozenset(map(text_of, head.get("joint", ())))
        return cls(epoch, version, ordering, nodes, paths, atoms, epochs, runs, first_epoch, sole, joint)


def first_plan(ordering: Ordering, nodes: Mapping[str, str], now_ms: int) -> Plan:
    """Return the plan that a network begins with, before any subscriber wants anything.

    ``now_ms``: milliseconds since 1970. Epochs are counted from there on, so that no two networks share one, unless one
    begins a thousand epochs a second: a position identifies its network.
    """
    return Plan(now_ms + 1, 0, ordering, dict(nodes), {}, (), first_epoch=now_ms)


def sole_plan(ordering: Ordering, node: str, url: str, now_ms: int) -> Plan:
    """Return the plan of a network of one node, for good: it lists no region. ``now_ms``: see `first_plan`."""
    first = first_plan(ordering, {node: url}, now_ms)
    return replace(first, epoch=now_ms, version=1, paths=everywhere(node), sole=node)


def read_nodes(document: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the nodes and their runs of `Plan.nodes_document`; raises what a wrong shape raises."""
    nodes = {check_node_name(name): text_of(entry.get("url", "")) for name, entry in document.items()}
    return nodes, {name: text_of(entry["run"]) for name, entry in document.items() if "run" in entry}


def checked_ordering(value: Any) -> Ordering:
    """Return an ordering; raises `ValueError` for anything else."""
    if value not in get_args(Ordering):
        raise ValueError(f"unknown ordering {value!r}")
    ordering: Ordering = value
    return ordering


_Regions = tuple[Mapping[str, tuple[str, ...]], Mapping[str, int]]
"""Paths, and the epochs that are not the plan's."""


def _read_regions(document: Any) -> _Regions:
    paths = {check_region(region): _texts(entry["path"]) for region, entry in document.items()}
    for region, path in paths.items():
        if not path:
            raise ValueError(f"the path of region {region!r} is empty")
    return paths, {region: whole_of(entry["epoch"]) for region, entry in document.items() if "epoch" in entry}


def _read_atoms(document: Any) -> tuple[Atom, ...]:
    names: dict[str, str] = {}  # each text once: atoms of twins name their regions over and over

    def regions_of(entry: Any) -> tuple[str, ...]:
        return tuple(names.setdefault(region, region) for region in _texts(entry["regions"]))

    atoms = tuple(Atom(AtomId(whole_of(entry["id"])), regions_of(entry), entry["node"]) for entry in document)
    if len({atom.id for atom in atoms}) != len(atoms):
        raise ValueError("two atoms have one id")
    return atoms


@KeptFor
def _nodes_used(paths: Mapping[str, tuple[str, ...]], atoms: tuple[Atom, ...]) -> frozenset[str]:
    for atom in atoms:
        if not paths.keys() >= set(atom.regions):
            raise ValueError(f"atom {atom.id} names an unknown region")
    return frozenset(chain(chain.from_iterable(paths.values()), (atom.node for atom in atoms)))


def _naming_one(nodes: AbstractSet[str], paths: Mapping[str, tuple[str, ...]], atoms: Iterable[Atom]) -> str:
    """Return which path or atom names one of these nodes."""
    regions = (f"the path of region {region!r}" for region, path in paths.items() if not nodes.isdisjoint(path))
    culprit = next(chain(regions, (f"atom {atom.id}" for atom in atoms if atom.node in nodes)))
    return f"{culprit} names an unknown node, one of {', '.join(sorted(nodes))}"


class _AtomsByRegion(dict[str, tuple[Atom, ...]]):
    def __missing__(self, region: str) -> tuple[Atom, ...]:
        return ()


@KeptFor
def atoms_by_region(atoms: tuple[Atom, ...]) -> Mapping[str, tuple[Atom, ...]]:
    """Return region → the atoms that stamp its frames, without the regions that have none.

    Regions with the same atoms share one tuple.
    """
    places_by_region: dict[str, list[int]] = {}
    for place, atom in enumerate(atoms):
        for region in atom.regions:
            places_by_region.setdefault(region, []).append(place)
    shared: dict[tuple[int, ...], tuple[Atom, ...]] = {}
    stamping = _AtomsByRegion()
    for region, places in places_by_region.items():
        key = tuple(places)
        if key not in shared:
            shared[key] = tuple(atoms[place] for place in places)
        stamping[region] = shared[key]
    return stamping


@KeptFor
def _egresses(paths: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    return {region: path[-1] for region, path in paths.items()}


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of names")
    return tuple(map(text_of, values))


def text_of(value: Any) -> str:
    """Return a text; raises `TypeError` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def whole_of(value: Any) -> int:
    """Return a whole number; raises `ValueError` for anything else."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value
