"""The difference between two plans, as a document for JSON: its size follows what differs, not the network.

A region's path never changes within its epoch, and an atom never changes at all. So of two plans only those regions
differ that have begun in between or are in one of the two, and only those atoms that are in one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sequencing.errors import PlanError, UsageError
from sequencing.everywhere import everywhere
from sequencing.identity import KeptFor
from sequencing.joint import regions_in
from sequencing.names import check_region
from sequencing.plan import Atom, AtomId, Ordering, Plan, checked_ordering, read_nodes, text_of, whole_of

_NO_ORDERING: Ordering = "acyclic"
NOTHING = Plan(0, 0, _NO_ORDERING, {}, {}, ())
"""The plan before the first one."""


def change_between(before: Plan, after: Plan) -> dict[str, Any]:
    """Return what `changed` makes of one plan the other; either may be the older one."""
    document: dict[str, Any] = {"epoch": after.epoch, "version": after.version}
    if after.nodes != before.nodes or after.runs != before.runs:
        document["nodes"] = after.nodes_document()
    if after.ordering != before.ordering:
        document["ordering"] = after.ordering
    if after.first_epoch != before.first_epoch:
        document["first_epoch"] = after.first_epoch
    if after.sole != before.sole:
        document["sole"] = after.sole
    regions = {
        region: [after.epoch_of(region), *after.paths[region]] if region in after.paths else None
        for region in sorted(regions_between(before, after))
    }
    if regions:
        document["regions"] = regions
    if after.joint is not before.joint:
        document |= {key: sorted(sets) for key, sets in _sets_between(before, after).items() if sets}
    if after.atoms is not before.atoms:
        old, new = ({atom.id: atom for atom in plan.atoms} for plan in (before, after))
        if fresh := new.keys() - old.keys():
            place = {region: number for number, region in enumerate(regions)}
            document["atoms"] = [
                [atom.id, atom.node, [place.get(region, region) for region in atom.regions]]
                for atom in map(new.__getitem__, sorted(fresh))
            ]
        if gone := old.keys() - new.keys():
            document["gone"] = sorted(gone)
    return document


def _sets_between(before: Plan, after: Plan) -> dict[str, frozenset[str]]:
    return {"joint": after.joint - before.joint, "apart": before.joint - after.joint}


def regions_between(before: Plan, after: Plan) -> set[str]:
    """Return the regions that have another place or epoch in one of two plans, or are in one of them only."""
    return set() if before.is_laid_out_as(after) else set(_regions_between(before, after))


def note_growth(before: Plan, after: Plan, regions: Iterable[str]) -> None:
    """Note that nothing distinguishes two plans but these regions, for `regions_between`."""
    _regions_between.keep((before, after), frozenset(regions))


@KeptFor
def _regions_between(before: Plan, after: Plan) -> frozenset[str]:
    old = before.paths.keys() if not before.sole else frozenset[str]()
    new = after.paths.keys() if not after.sole else frozenset[str]()
    older, newer = (before, after) if before.epoch <= after.epoch else (after, before)
    return frozenset(old ^ new) | newer.begun_after(older.epoch, old & new)


def changed(before: Plan, document: Any) -> Plan:
    """Return the plan that a change, from `change_between`, makes of a plan; raises `PlanError` saying what is wrong.

    What does not change is shared: paths, epochs and atoms are then the very same objects.
    """
    try:
        return _changed(before, document)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise PlanError(f"this is not the change of a gamecast plan: {error!r}") from error


def _changed(before: Plan, document: Mapping[str, Any]) -> Plan:
    epoch, version = whole_of(document["epoch"]), whole_of(document["version"])
    after = replace(
        before,
        epoch=epoch,
        version=version,
        ordering=checked_ordering(document.get("ordering", before.ordering)),
        first_epoch=whole_of(document.get("first_epoch", before.first_epoch)),
    )
    if "nodes" in document:
        nodes, runs = read_nodes(document["nodes"])
        after = replace(after, nodes=nodes, runs=runs)
    if "sole" in document:
        sole = text_of(document["sole"])
        if sole and sole not in after.nodes:
            raise ValueError(f"{sole!r} is not a node of the network")
        after = replace(after, sole=sole, paths=everywhere(sole) if sole else {}, epochs={})
        before = after if not sole else before
    if after.sole:
        return after
    regions = document.get("regions", {})
    if regions or epoch != before.epoch:
        paths, epochs = _regions(before, epoch, regions)
        visited = set[str]().union(*(paths[region] for region in regions.keys() & paths.keys()))
        if unknown := visited - after.nodes.keys():
            raise ValueError(f"a path visits {min(unknown)!r}, which is not a node of the network")
        after = replace(after, paths=paths if regions else before.paths, epochs=epochs)
    if document.keys() & {"joint", "apart"}:
        sets = frozenset(map(text_of, document.get("joint", ())))
        if not all(region in after.paths for name in sets for region in regions_in(name)):
            raise ValueError("a set names a region without a path")
        after = replace(after, joint=(before.joint - frozenset(document.get("apart", ()))) | sets)
    if document.keys() & {"atoms", "gone"}:
        fresh = _fresh_atoms(document, list(regions))
        if not all(after.paths.keys() >= set(atom.regions) and atom.node in after.nodes for atom in fresh):
            raise ValueError("an atom names a region without a path, or an unknown node")
        gone = set(document.get("gone", ()))
        kept = before.atoms if not gone else tuple(atom for atom in before.atoms if atom.id not in gone)
        after = replace(after, atoms=(*kept, *fresh))
    if all(len(plan.paths.get(region, ())) <= 1 for plan in (before, after) for region in regions):
        after.keep_known(before, "links")  # as nearly always
    if not before.sole and "begins" in before.__dict__:
        begins = Counter(before.begins)
        begins.subtract(before.paths[region][0] for region in regions if region in before.paths)
        begins.update(after.paths[region][0] for region in regions if region in after.paths)
        after.__dict__["begins"] = begins
    return after


def _regions(before: Plan, epoch: int, regions: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    paths, epochs = dict(before.paths), dict(before.epochs)
    if epoch != before.epoch:
        epochs |= dict.fromkeys(before.paths.keys() - before.epochs.keys(), before.epoch)
    if epoch < before.epoch:
        epochs = {region: begun for region, begun in epochs.items() if begun != epoch}
    for region, entry in regions.items():
        if entry is None:
            paths.pop(region, None)
            epochs.pop(region, None)
            continue
        begun, *path = entry
        if not path or not all(isinstance(node, str) for node in path):
            raise ValueError(f"the path of region {region!r} is {path}")
        paths[check_region(region)] = tuple(path)
        if whole_of(begun) == epoch:
            epochs.pop(region, None)
        elif begun > epoch:
            raise ValueError(f"the numbering of region {region!r} begins after epoch {epoch}")
        else:
            epochs[region] = begun
    return paths, epochs


def _fresh_atoms(document: Mapping[str, Any], regions: list[str]) -> tuple[Atom, ...]:
    return tuple(
        Atom(AtomId(whole_of(number)), tuple(_names(members, regions)), text_of(node))
        for number, node, members in document.get("atoms", ())
    )


def _names(members: Iterable[Any], regions: list[str]) -> Iterable[str]:
    for member in members:
        yield regions[member] if isinstance(member, int) else text_of(member)
