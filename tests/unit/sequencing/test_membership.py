"""Memberships: from names, and from matrices of millions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from sequencing.errors import InvalidName, UsageError
from sequencing.membership import Membership


def matrix(*rows: list[int]) -> sparse.coo_array:
    return sparse.coo_array(np.array(rows))


def test_a_membership_of_an_incidence_is_that_of_its_names() -> None:
    ours = Membership.from_incidence(["s1", "s2", "s3"], ["a", "b", "c"], matrix([1, 1, 0], [0, 1, 0], [0, 0, 0]))
    assert ours == Membership.of({"s1": "ab", "s2": "b", "s3": ""}, known_regions="c")
    assert ours.regions_of == {"s1": {"a", "b"}, "s2": {"b"}, "s3": set()}
    assert (ours.subscribers, ours.regions) == (("s1", "s2", "s3"), ("a", "b", "c"))
    assert ours.incidence.toarray().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_names_in_any_order_are_sorted_with_their_rows_and_columns() -> None:
    ours = Membership.from_incidence(["t", "s"], ["b", "c", "a"], matrix([1, 0, 0], [0, 0, 1]))
    theirs = Membership.of({"s": "a", "t": "b"}, known_regions="c")
    assert ours == theirs
    assert (ours.subscribers, ours.regions) == (theirs.subscribers, theirs.regions)
    assert ours.incidence.toarray().tolist() == theirs.incidence.toarray().tolist() == [[1, 0, 0], [0, 1, 0]]


def test_repeated_and_weighted_entries_count_once_and_the_matrix_stays_as_it_was() -> None:
    given = sparse.coo_array((np.array([1, 1, 7, 0]), (np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0]))), shape=(2, 2))
    ours = Membership.from_incidence(["s", "t"], ["a", "b"], given)
    assert ours.incidence.toarray().tolist() == [[1, 1], [0, 0]]
    assert ours.incidence.nnz == 2
    assert given.data.tolist() == [1, 1, 7, 0]


def test_looking_up_nobody_is_a_key_error() -> None:
    ours = Membership.from_incidence(["s"], ["a"], matrix([1]))
    assert "t" not in ours.regions_of
    with pytest.raises(KeyError):
        ours.regions_of["t"]


@pytest.mark.parametrize(("subscribers", "regions"), [(["s"], ["a", "b"]), (["s", "t", "u"], ["a"])])
def test_names_must_fit_the_matrix(subscribers: list[str], regions: list[str]) -> None:
    with pytest.raises(UsageError, match="shape"):
        Membership.from_incidence(subscribers, regions, matrix([1], [1]))


@pytest.mark.parametrize(("subscribers", "regions"), [("st", "aa"), ("ss", "ab")])
def test_names_must_differ(subscribers: str, regions: str) -> None:
    with pytest.raises(UsageError, match="is there twice"):
        Membership.from_incidence(list(subscribers), list(regions), matrix([1, 1], [1, 1]))


@pytest.mark.parametrize("name", ["", " ", "\n", "x\0", "x" * 201, "é" * 101, 7, None])
def test_names_are_checked(name: str) -> None:
    for subscribers, regions in (["s", name], ["a", "b"]), (["s", "t"], [name, "b"]):
        with pytest.raises(InvalidName):
            Membership.from_incidence(subscribers, regions, matrix([1, 1], [1, 1]))


def test_long_names_that_are_fine_are_taken() -> None:
    names = ["x" * 200, "é" * 100]
    assert Membership.from_incidence(names, names, matrix([1, 0], [0, 1])).subscribers == ("x" * 200, "é" * 100)
