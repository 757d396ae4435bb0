"""News that a process reads together say the same as one after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from adapters.redis.announced import Entry, Told, Viewpoint, announcement, people_between, read_entry, together
from sequencing.joint import set_name
from sequencing.plan import Plan
from sequencing.record import Interest, Record

FIRST = Plan(3, 1, "acyclic", {"n1": "", "n2": "redis://two"}, {"old": ("n1",)}, ())
NAMES = "abc"


def told_by(entries: list[Entry], plan: Plan) -> list[Told]:
    found = []
    for entry in entries:
        found.append(entry.told_after(plan))
        plan = found[-1].plan
    return found


def entries_of(*records: Record) -> list[Entry]:
    """Return the entries that announce each of some records after the one before."""
    return [read_entry(announcement(before, after, "").news) for before, after in pairwise(records)]


def granting(before: Record, name: str, *regions: str, incarnation: int = 1) -> Record:
    """Return the record in which somebody has joined regions in place."""
    plan = before.plan.with_regions(regions)
    heard = Interest(incarnation, plan.version, {})
    known = before.members.get(name, frozenset()) if name in before.heard else frozenset[str]()
    if name in before.heard and before.heard[name].incarnation != incarnation:
        known = frozenset()
    members = {**before.members, name: known | set(regions)}
    return replace(before, plan=plan, members=members, heard={**before.heard, name: heard})


def born_with_grant(records: list[Record], name: str) -> set[str]:
    return {
        region for record in records for region in (record.born or frozenset()) & record.members.get(name, frozenset())
    }


@pytest.mark.parametrize("seed", range(30))
def test_what_was_granted_meanwhile_is_told_together(seed: int) -> None:
    draw = random.Random(seed)
    records = [Record(FIRST)]
    for number in range(draw.randrange(2, 12)):
        before, kind = records[-1], draw.random()
        if kind < 0.75:
            regions = draw.sample([*before.plan.paths, f"new-{number}"], draw.randrange(1, 3))
            records.append(granting(before, draw.choice(NAMES), *regions, incarnation=draw.randrange(1, 3)))
        elif kind < 0.9 and before.members:
            name = draw.choice(sorted(before.members))
            members = {each: regions for each, regions in before.members.items() if each != name}
            heard = {each: known for each, known in before.heard.items() if each != name}
            plan = replace(before.plan, version=before.plan.version + 1)
            records.append(replace(before, plan=plan, members=members, heard=heard))
        elif kind < 0.95 and len(before.plan.paths) > 1:
            sets = before.plan.joint | {set_name(draw.sample([*before.plan.paths], 2))}
            records.append(replace(before, plan=replace(before.plan, version=before.plan.version + 1, joint=sets)))
        else:
            epochs = {region: before.plan.epoch_of(region) for region in before.plan.paths}
            records.append(replace(before, plan=replace(before.plan, epoch=before.plan.epoch + 1, epochs=epochs)))
    entries = entries_of(*records)
    apart, joined = told_by(entries, FIRST), told_by(list(together(entries)), FIRST)
    assert len(joined) <= len(apart)
    assert joined[-1].plan == apart[-1].plan
    for name in NAMES:
        views = [Viewpoint(), Viewpoint()]
        for view in views:
            view.belong_to(name, 1)
        one, other = ([view.record(told) for told in all_] for view, all_ in zip(views, (apart, joined), strict=True))
        assert one[-1].members == other[-1].members
        assert one[-1].heard == other[-1].heard
        # A region counts as born with its grant only if it was granted with its first place.
        assert born_with_grant(other, name) <= born_with_grant(one, name)


def test_who_joins_a_region_that_another_has_begun_is_told_apart() -> None:
    first = Record(FIRST)
    begun = granting(first, "a", "new")
    joined = granting(begun, "b", "new")
    entries = entries_of(first, begun, joined)
    assert list(together(entries)) == entries
    view = Viewpoint()
    view.belong_to("b", 1)
    [_, record] = [view.record(told) for told in told_by(entries, FIRST)]
    assert record.members == {"b": frozenset({"new"})}
    assert record.born == frozenset()


def test_what_was_left_and_then_joined_elsewhere_is_both_told() -> None:
    first = granting(Record(FIRST), "a", "old", "other")
    left = replace(
        first,
        plan=replace(first.plan, version=first.plan.version + 1),
        members={"a": frozenset({"old"})},
        heard={"a": Interest(1, first.plan.version + 1)},
    )
    joined = granting(left, "a", "new")
    [entry] = together(entries_of(first, left, joined))
    told = entry.told_after(first.plan)
    view = Viewpoint()
    view.belong_to("a", 1)
    view.record(Told(first.plan, people=people_between(None, first)))
    assert view.record(told).members == {"a": frozenset({"old", "new"})}


def test_what_is_no_growth_is_told_apart() -> None:
    first = Record(FIRST)
    grown = [first]
    for number in range(3):
        grown.append(granting(grown[-1], "a", f"before-{number}"))
    moved = replace(grown[-1], plan=replace(grown[-1].plan, epoch=4, epochs={"old": 3, "before-0": 3}))
    after = [granting(moved, "a", "after-0")]
    after.append(granting(after[-1], "b", "after-1"))
    told = told_by(list(together(entries_of(*grown, moved, *after))), FIRST)
    assert [(each.plan.epoch, each.plan.version, each.is_growth) for each in told] == [
        (3, 4, True),
        (4, 4, False),
        (4, 6, True),
    ]
