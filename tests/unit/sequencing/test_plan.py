"""The plan as a document, as steps for its nodes, and as the next version of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from sequencing.errors import InvalidName, PlanError
from sequencing.plan import Atom, AtomId, Plan, Step

PLAN = Plan(
    epoch=2,
    version=3,
    ordering="overlap",
    nodes={"n1": "redis://one", "n2": "", "n3": "redis://three"},
    paths={"a": ("n1", "n2"), "b": ("n1", "n2", "n3"), "c": ("n3",)},
    atoms=(Atom(AtomId(4), ("a", "b"), "n1"), Atom(AtomId(5), ("b", "a"), "n2"), Atom(AtomId(6), ("b", "c"), "n3")),
)


def test_a_plan_comes_back_from_its_json() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(PLAN.to_json().decode()) == PLAN
    assert list(Plan.from_json(PLAN.to_json()).nodes) == ["n1", "n2", "n3"]


Document = dict[str, Any]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda document: document.pop("epoch"), "'epoch'"),
        (lambda document: document.pop("nodes"), "'nodes'"),
        (lambda document: document.pop("atoms"), "'atoms'"),
        (lambda document: document["regions"]["a"].pop("path"), "'path'"),
        (lambda document: document["atoms"][0].pop("id"), "'id'"),
        (lambda document: document.update(epoch="soon"), "soon"),
        (lambda document: document.update(ordering="causal-ish"), "unknown ordering 'causal-ish'"),
        (lambda document: document.update(nodes=["n1"]), "no attribute 'items'"),
        (lambda document: document.update(atoms=7), "not iterable"),
        (lambda document: document["regions"].update(a={"path": []}), "region 'a' is empty"),
        (lambda document: document["regions"].update(a={"path": ["n1", "n9"]}), "region 'a'.*unknown node.*n9"),
        (lambda document: document["regions"].update(a={"path": [["n1"]]}), "is not a text"),
        (lambda document: document["nodes"].pop("n3"), "unknown node"),
        (lambda document: document["atoms"][1].update(node="n9"), "atom 5 names an unknown node"),
        (lambda document: document["atoms"][2].update(regions=["b", "x"]), "atom 6 names an unknown region"),
        (lambda document: document["atoms"][0].update(id=None), "None is not a whole number"),
        (lambda document: document["atoms"][0].update(id=document["atoms"][1]["id"]), "two atoms have one id"),
        (lambda document: document["regions"].update(a={"path": "n1"}), "'n1' is not a list"),
        (lambda document: document["regions"].update({"": {"path": ["n1"]}}), "must not be empty"),
        (lambda document: document.update(epoch=1.5), "1.5 is not a whole number"),
    ],
)
def test_a_malformed_plan_is_refused_and_the_message_names_what_is_wrong(
    spoil: Callable[[Document], object], complaint: str
) -> None:
    document = orjson.loads(PLAN.to_json())
    spoil(document)
    with pytest.raises(PlanError, match=f"not a gamecast plan: .*{complaint}"):
        Plan.from_json(orjson.dumps(document))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"plan"', b"\xff", "é"])
def test_what_is_not_even_a_json_object_is_refused(text: bytes | str) -> None:
    with pytest.raises(PlanError, match="not a gamecast plan"):
        Plan.from_json(text)


def test_a_node_gets_a_step_for_each_region_that_passes_and_only_its_own_atoms() -> None:
    assert list(PLAN.steps("n1")) == [Step("a", 2, True, "n2", (AtomId(4),)), Step("b", 2, True, "n2", (AtomId(4),))]
    assert list(PLAN.steps("n2")) == [Step("a", 2, False, None, (AtomId(5),)), Step("b", 2, False, "n3", (AtomId(5),))]
    assert list(PLAN.steps("n3")) == [Step("b", 2, False, None, (AtomId(6),)), Step("c", 2, True, None, (AtomId(6),))]
    assert PLAN.links == {("n1", "n2"), ("n2", "n3")}


def test_regions_without_subscribers_join_in_place_on_the_quietest_nodes() -> None:
    # Two paths visit each node, so the names decide first; then the counts do.
    grown = PLAN.with_regions(["new", "a", "newer", "newest", "last"])
    assert (grown.epoch, grown.version) == (2, 4)
    assert {region: path for region, path in grown.paths.items() if region not in PLAN.paths} == {
        "new": ("n1",),
        "newer": ("n2",),
        "newest": ("n3",),
        "last": ("n1",),
    }
    assert {region: grown.paths[region] for region in PLAN.paths} == PLAN.paths
    assert (grown.atoms, grown.nodes, grown.ordering) == (PLAN.atoms, PLAN.nodes, PLAN.ordering)
    assert grown.atoms_of["new"] == ()
    assert "new" not in PLAN.paths


def test_a_region_that_may_not_be_named_so_does_not_join() -> None:
    with pytest.raises(InvalidName):
        PLAN.with_regions(["fine", ""])
