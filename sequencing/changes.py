"""Compare a record with what is asked for: is there anything to decide? This is checked very often.

`sequencing.manager` makes the decisions. It takes libraries that other processes need not load: the leader of a settled
network, and every client that does not lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

from sequencing.joint import wished
from sequencing.plan import GIVEN_UP, Plan
from sequencing.record import Interest, Members, Pair, Record


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that have to be decided.

    ``joining``: subscriber → regions that it wants, and that the record does not have yet; ``missing``: regions without
    a path; ``lost``: nodes that were restarted or given up, or are back; ``declared``: regions of overlaps that the
    record does not have; ``expected``: all declared overlaps; ``runs``: node → the current run of its server;
    ``joint``: the sets, by name, that events are to be in and that the plan does not have.
    """

    joining: Members
    missing: frozenset[str]
    lost: frozenset[str]
    declared: frozenset[str]
    expected: frozenset[Pair]
    runs: Mapping[str, str]
    joint: frozenset[str] = frozenset()


def changes_asked(
    record: Record,
    interests: Mapping[str, Interest],
    published: Iterable[str],
    *,
    runs: Mapping[str, str] | None = None,
    expected: Iterable[Pair] = (),
) -> Changes | None:
    """Return the changes to decide, None if there are none. Arguments as those of `sequencing.manager.next_record`.

    While the record is in transition, return only what lost nodes require.
    """
    named = _named_now(record.plan, runs or {})
    lost = frozenset(node for node, run in named.items() if record.plan.runs.get(node) != run)
    if record.behind and not lost:
        return None
    joining = {name: interest.after(record.heard.get(name)) for name, interest in interests.items()}
    joining = {name: regions for name, regions in joining.items() if regions}
    new_pairs = frozenset(expected) - record.expected if expected is not record.expected else frozenset[Pair]()
    pairs = record.expected | new_pairs if new_pairs else record.expected
    declared = frozenset(chain.from_iterable(new_pairs))
    regions, sets = wished(published)
    missing = record.plan.without_place(declared.union(regions, *joining.values()))
    joint = sets_to_order(record.plan, sets)
    if not joining and not missing and not lost and not declared and not joint:
        return None
    return Changes(joining, missing, lost, declared, pairs, named, joint)


def are_usable(plan: Plan, nodes: Mapping[str, str], runs: Mapping[str, str]) -> dict[str, str]:
    """Return the nodes for new regions, name → url: those that answer, and all that are not given up if none does.

    ``runs``: node → the current run of its server, of those that answer. A node that was given up is out for as long
    as its server is in that run.
    """
    out = {node for node in plan.given_up if plan.runs[node] in (GIVEN_UP, GIVEN_UP + runs.get(node, ""))}
    there = {name: url for name, url in nodes.items() if name in runs and name not in out}
    return there or {name: url for name, url in nodes.items() if name not in plan.given_up} or dict(nodes)


def given_up(
    record: Record,
    nodes: Mapping[str, str],
    runs: Mapping[str, str],
    too_long: AbstractSet[str],
    last: Mapping[str, str],
) -> dict[str, str]:
    """Return the nodes to give up, with what a plan names their runs: those with regions that have been silent for
    longer than they may be, if others can serve the regions.

    ``runs``: node → the current run of its server, of those that answer; ``last``: of all, as a leader last saw them.
    """
    silent = too_long - record.plan.given_up
    if not silent or not are_usable(record.plan, nodes, runs).keys() - silent:
        return {}
    used = {node for plan in (*record.behind, record.plan) for node in plan.visits}
    return {node: GIVEN_UP + (record.plan.runs.get(node) or last.get(node, "")) for node in silent & used}


def _named_now(plan: Plan, runs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the runs that the next plan names. ``runs``: node → the current run of its server, or what names it given
    up.

    A node that was given up is back in another run only: else those who have not heard of it would go on there.
    """
    named = {**plan.runs, **runs}
    for node in plan.given_up & runs.keys():
        run, was_in = runs[node], plan.runs[node].removeprefix(GIVEN_UP)
        if run == was_in or not was_in:
            named[node] = GIVEN_UP + run.removeprefix(GIVEN_UP)
    return named


def sets_to_order(plan: Plan, sets: Iterable[str]) -> frozenset[str]:
    """Return those of some sets that a plan does not have and may get: not where only double overlaps are ordered."""
    return plan.without_place(sets) if plan.ordering != "overlap" else frozenset()
