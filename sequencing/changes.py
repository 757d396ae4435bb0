"""What a record lacks of what is asked for: whether there is anything to decide, which is looked at again and again.

What follows from it is decided in `sequencing.manager`, which takes libraries that a leader of a settled network, and
whoever does not lead, need not load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from sequencing.record import Interest, Members, Pair, Record


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be decided.

    ``joining``: subscriber → regions that it wants, and that the record did not hear of; ``missing``: regions without a
    path; ``lost``: nodes that have begun anew; ``declared``: regions of overlaps that the record does not know;
    ``expected``: all overlaps that are declared; ``runs``: node → the run that its server is in.
    """

    joining: Members
    missing: frozenset[str]
    lost: frozenset[str]
    declared: frozenset[str]
    expected: frozenset[Pair]
    runs: Mapping[str, str]


def changes_asked(
    record: Record,
    interests: Mapping[str, Interest],
    published: Iterable[str],
    *,
    runs: Mapping[str, str] | None = None,
    expected: Iterable[Pair] = (),
) -> Changes | None:
    """Return what is to be decided, None if nothing is. Arguments as those of `sequencing.manager.next_record`.

    While the record is in transition, only what nodes have lost is.
    """
    found = {**record.plan.runs, **(runs or {})}
    lost = frozenset(node for node, run in found.items() if record.plan.runs.get(node) != run)
    if record.behind and not lost:
        return None
    joining = {name: interest.after(record.heard.get(name)) for name, interest in interests.items()}
    joining = {name: regions for name, regions in joining.items() if regions}
    new_pairs = frozenset(expected) - record.expected if expected is not record.expected else frozenset[Pair]()
    pairs = record.expected | new_pairs if new_pairs else record.expected
    declared = frozenset(chain.from_iterable(new_pairs))
    missing = declared.union(published, *joining.values()) - record.plan.paths.keys()
    if not joining and not missing and not lost and not declared:
        return None
    return Changes(joining, missing, lost, declared, pairs, found)
