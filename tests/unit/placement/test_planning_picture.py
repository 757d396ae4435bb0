"""Pictures and figures of plans: what is drawn for small plans, for large ones and for trees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from placement.planner import make_plan
from placement.planning import picture
from placement.planning.figures import PlanFigures
from placement.planning.grid import grid_world
from placement.planning.node_order import left_to_right
from placement.planning.picture import draw_plan
from sequencing.membership import Membership
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Atom, AtomId, Plan

pytest.importorskip("matplotlib")

TREE = {"forest": "n1 n4", "river": "n2 n4", "lake": "n2 n4 n5", "castle": "n3 n5", "desert": "n6"}
ATOMS = ("river lake", "n2"), ("forest river lake", "n4"), ("lake castle", "n5")


def plan(paths: Mapping[str, str], *atoms: tuple[str, str]) -> Plan:
    """Paths like ``n1 n2``, atoms like ``("a b", "n1")``."""
    nodes = sorted({"n1"}.union(*(path.split() for path in paths.values())))
    numbered = tuple(Atom(AtomId(i), tuple(a.split()), node) for i, (a, node) in enumerate(atoms, start=1))
    by_region = {region: tuple(path.split()) for region, path in paths.items()}
    return Plan(1, 1, "acyclic", dict.fromkeys(nodes, ""), by_region, numbered)


def figures(drawn: Plan, rates: Mapping[str, float] | None = None) -> PlanFigures:
    membership = Membership.of({"ann": ["river", "lake", "castle"], "bob": ["forest"], "cid": ["lake", "castle"]})
    return PlanFigures(drawn, membership, rates or {}, overlaps=2, violations={"C4": "made by hand"})


def svg(drawn: PlanFigures, directory: Path) -> str:
    file = directory / "plan.svg"
    draw_plan(drawn, file)
    return file.read_text()


def test_figures_of_a_plan() -> None:
    found = figures(plan(TREE, *ATOMS), {"lake": 3.0, "castle": 0.5})
    assert dict(found.load_of_node) == {"n1": 1, "n2": 4, "n3": 0.5, "n4": 5, "n5": 3.5, "n6": 1}
    assert dict(found.ingress_rate_of_node) == {"n1": 1, "n2": 4, "n3": 0.5, "n4": 0, "n5": 0, "n6": 1}
    assert found.busiest_receiver == 4.5
    assert found.components == 1
    assert found.as_dict()["path_nodes"] == {"mean": 2.0, "max": 3}
    assert found.as_dict()["conditions"] == {"C1": True, "C2": True, "C3": True, "C4": False}


@pytest.mark.parametrize(
    ("members", "components"),
    [
        ({}, 0),
        ({"s": "abc", "t": "d"}, 1),
        ({"s": "a", "t": "d"}, 0),
        ({"s": "ab", "t": "ab"}, 1),
        ({"s": "ab", "t": "bc", "u": "ca"}, 1),
        ({"s": "ab", "t": "ab", "u": "cd", "v": "cd"}, 2),
        ({"s": "abc", "t": "ab", "u": "bc"}, 1),
        ({"s": "abcd", "t": "ab", "u": "cd"}, 1),
    ],
)
@pytest.mark.parametrize("nodes", [1, 3])
def test_components_need_order_among_themselves_with_and_without_atoms(
    members: dict[str, str], components: int, nodes: int
) -> None:
    world = Membership.of(members)
    made = make_plan(world, {f"n{number}": "" for number in range(nodes)})
    assert PlanFigures(made, world, {}, 0, {}).components == components
    empty = Membership.of({}, world.regions)
    assert PlanFigures(made, empty, {}, 0, {}).components == 0
    assert PlanFigures(made, empty, {}, 0, {}, world).components == components


def test_nodes_stand_so_that_every_link_leads_to_the_right() -> None:
    order = left_to_right(plan(TREE | {"back": "n6 n1"}, *ATOMS))
    for here, there in plan(TREE | {"back": "n6 n1"}).links:
        assert order.index(here) < order.index(there)
    assert left_to_right(plan({"a": "n1 n2", "b": "n2 n1"})) == ("n1", "n2")


def test_nodes_that_are_linked_stand_next_to_each_other() -> None:
    assert left_to_right(plan({"a": "n1 n3", "b": "n2"})) == ("n1", "n3", "n2")


def test_a_small_plan_is_drawn_whole(tmp_path: Path) -> None:
    drawn = svg(figures(plan(TREE, *ATOMS)), tmp_path)
    for text in (*TREE, "n1", "n6", "5 regions, 2 overlaps, 3 atoms on 6 nodes"):
        assert text in drawn


def test_a_large_plan_is_drawn_in_summary(tmp_path: Path) -> None:
    world = grid_world(3_000, 300)
    made = make_plan(world, {f"n{number}": "" for number in range(1, 31)})
    drawn = svg(PlanFigures(made, world, {}, count_double_overlaps(world), {}), tmp_path)
    for text in ("300 regions, 3,000 subscribers", "Regions with the most atoms", "passes through"):
        assert text in drawn
    assert len(drawn) < 500_000


@pytest.mark.parametrize("paths", [{}, {"a": "n1"}, {"a": "n1", "b": "n2 n3"}, TREE])
@pytest.mark.parametrize("whole", [True, False])
def test_plans_of_every_shape_are_drawn(
    tmp_path: Path, paths: Mapping[str, str], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(picture, "WHOLE_REGIONS_MAX", 0)
    atoms = ATOMS if paths is TREE else ()
    assert "How events find their order" in svg(figures(plan(paths, *atoms)), tmp_path)


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    odd = {"$\\alpha$": "n1", "a_b^c": "n1", "<b>&": "n1", "森": "n1"}
    drawn = svg(figures(plan(odd)), tmp_path)
    assert "$\\alpha$" in drawn
    assert "&lt;b&gt;&amp;" in drawn


def test_the_same_plan_makes_the_same_file(tmp_path: Path) -> None:
    assert svg(figures(plan(TREE, *ATOMS)), tmp_path) == svg(figures(plan(TREE, *ATOMS)), tmp_path)
