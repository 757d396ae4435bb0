"""Joins and leaves, one after the other, leave the double overlaps that sparse algebra finds in the result."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sequencing.errors import InvalidName, UsageError
from sequencing.membership import Membership
from sequencing.overlap_index import OverlapIndex
from sequencing.overlaps import class_pairs_to_order, count_double_overlaps, twin_classes

Pairs = set[tuple[str, str]]

subscribers = st.sampled_from(["s1", "s2", "s3", "s4", "s5"])
regions = st.sampled_from("abcdef")
beginnings = st.dictionaries(subscribers, st.frozensets(regions))
changes = st.lists(st.tuples(st.booleans(), subscribers, regions), max_size=60)


def recomputed(membership: Membership) -> Pairs:
    """All double-overlapped pairs, from the classes of twins that sparse algebra finds."""
    classes = twin_classes(membership)
    names = [[membership.regions[region] for region in member] for member in classes.members]
    found = {pair for name, count in zip(names, classes.subscribers, strict=True) if count > 1 for pair in pairs(name)}
    for one, other in zip(*class_pairs_to_order(membership, classes, "overlap"), strict=True):
        found |= {(min(a, b), max(a, b)) for a in names[one] for b in names[other]}
    assert len(found) == count_double_overlaps(membership)
    return found


def pairs(names: list[str]) -> Pairs:
    return set(combinations(sorted(names), 2))


@given(beginnings, changes)
@settings(max_examples=300, deadline=None)
def test_after_any_changes_the_index_has_the_pairs_of_the_membership(
    beginning: dict[str, frozenset[str]], changes: list[tuple[bool, str, str]]
) -> None:
    index = OverlapIndex(Membership.of(beginning))
    members = {subscriber: set(joined) for subscriber, joined in beginning.items()}
    before = recomputed(Membership.of(members))
    assert set(index) == before
    for joins, subscriber, region in changes:
        mine = members.setdefault(subscriber, set())
        if joins:
            mine.add(region)
            changed = index.join(subscriber, region)
        elif region in mine:
            mine.remove(region)
            changed = index.leave(subscriber, region)
        else:
            with pytest.raises(UsageError, match="has not joined"):
                index.leave(subscriber, region)
            continue
        after = recomputed(Membership.of(members))
        assert set(changed) == (after - before if joins else before - after)
        assert len(changed) == len(set(changed))
        assert set(index) == after
        assert len(index) == len(after)
        assert index.regions_of(subscriber) == mine
        before = after


def test_an_index_begins_with_nobody() -> None:
    index = OverlapIndex()
    assert (len(index), list(index), index.regions_of("s1")) == (0, [], frozenset())
    assert index.join("s1", "b") == index.join("s1", "a") == index.join("s2", "a") == ()
    assert index.join("s2", "b") == (("a", "b"),)
    assert index.join("s2", "b") == ()
    assert index.leave("s1", "a") == (("a", "b"),)


def test_leaving_names_who_and_what() -> None:
    index = OverlapIndex(Membership.of({"s1": "a"}))
    for subscriber, region in (("s1", "b"), ("nobody", "a")):
        with pytest.raises(UsageError, match=f"'{subscriber}' cannot leave '{region}': it has not joined it"):
            index.leave(subscriber, region)


@pytest.mark.parametrize(("subscriber", "region"), [("", "a"), ("s1", ""), ("s1", "\n")])
def test_names_are_checked_and_a_refused_join_changes_nothing(subscriber: str, region: str) -> None:
    index = OverlapIndex(Membership.of({"s1": "b", "s2": "b"}))
    with pytest.raises(InvalidName):
        index.join(subscriber, region)
    assert index.regions_of("s1") == {"b"}
    assert list(index) == []
