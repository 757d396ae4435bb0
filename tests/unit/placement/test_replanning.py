"""A running network's better places: sound moves that are worth their cost, and none where all is well."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from gamecast.errors import UsageError
from placement.placing import EFFORTS
from placement.planner import make_plan
from placement.planning.nearer import Ground, NearerReplanning
from placement.replanning import MOVE_PRICE, Replanned, Replanning, replanned
from placement.topology import matrix
from sequencing.conditions import violations
from sequencing.joint import set_name
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan

NODES = ("n1", "n2", "n3", "n4")


def drifted(seed: int, *, components: int = 12) -> tuple[Plan, Membership, dict[str, float]]:
    """A network whose leader has planned one component after the other, in some order of the nodes; the busiest
    component has a hundred times the events of the quietest."""
    chance = random.Random(seed)
    members: dict[str, set[str]] = {}
    paths: dict[str, tuple[str, ...]] = {}
    atoms: list[Atom] = []
    rates: dict[str, float] = {}
    for number in range(components):
        regions = [f"{number}.{place}" for place in range(chance.randint(1, 5))]
        here = {f"{number} s{who}": set(chance.sample(regions, min(3, len(regions)))) for who in range(3)}
        members |= here
        made = make_plan(Membership.of(here, regions), dict.fromkeys(chance.sample(NODES, len(NODES)), ""))
        paths |= made.paths
        atoms += made.atoms
        rates |= dict.fromkeys(regions, 100 / (number + 1))
    numbered = tuple(replace(atom, id=AtomId(number)) for number, atom in enumerate(atoms, start=1))
    plan = Plan(7, 1, "acyclic", dict.fromkeys(NODES, ""), paths, numbered)
    return plan, Membership.of(members, paths), rates


def sound(found: Replanned, membership: Membership) -> bool:
    """Whether each move keeps C1–C3, and the network that comes of them orders what it has to."""
    return all(not violations(move) for move in found.moves) and "C4" not in violations(found.after, membership)


@pytest.mark.parametrize("seed", range(20))
def test_moves_are_sound_and_leave_the_busiest_node_no_busier_nor_the_paths_longer_than_that_is_worth(
    seed: int,
) -> None:
    plan, membership, rates = drifted(seed)
    network = Replanning(plan, membership, rates=rates)
    found = replanned(network)
    assert sound(found, membership)
    before, after = (network.objective.value(each.hops, each.peak) for each in found.standing)
    assert after <= before
    assert sum(found.standing[1].loads.values()) == pytest.approx(
        sum(rates[region] * len(path) for region, path in found.after.paths.items())
    )


def test_a_network_that_has_drifted_is_nearly_even_afterwards() -> None:
    better = 0
    for seed in range(10):
        plan, membership, rates = drifted(seed)
        before, after = replanned(Replanning(plan, membership, rates=rates)).standing
        better += after.peak < 0.9 * before.peak
        # The busiest component alone may be more than a share.
        busiest = max(sum(rates[region] for region in rates if region.startswith(f"{n}.")) for n in range(12))
        assert after.peak <= max(1.3 * sum(rates.values()) / len(NODES), 1.05 * busiest)
    assert better >= 5


def test_what_is_well_placed_stays_and_a_second_look_finds_nothing_more() -> None:
    plan, membership, rates = drifted(3)
    first = replanned(Replanning(plan, membership, rates=rates))
    assert first.moves
    again = replanned(Replanning(first.after, membership, rates=rates))
    assert again.moves == ()
    assert again.after.paths == first.after.paths


def test_nothing_moves_that_costs_more_than_it_brings() -> None:
    plan, membership, rates = drifted(3)
    network = Replanning(plan, membership, rates=rates)
    moved = [len(set(chain(*(move.paths for move in replanned(network, price=price).moves)))) for price in (0, 1, 1e6)]
    assert moved[0] >= len(set(chain(*(move.paths for move in replanned(network, price=MOVE_PRICE).moves)))) > 0
    assert moved[0] > moved[1] > moved[2] == 0


def test_components_move_whole_and_events_of_several_regions_still_have_a_lead() -> None:
    plan, membership, rates = drifted(5)
    together = set_name(["0.0", "1.0"])
    joint = Membership.of(membership.regions_of, plan.paths, frozenset({together}))
    made = make_plan(joint, dict.fromkeys(NODES, ""), rates=rates)
    # All on the node that is busiest anyway: whatever leaves it is better off.
    crowded = replace(made, paths=dict.fromkeys(made.paths, ("n1",)), atoms=(), joint=frozenset({together}))
    found = replanned(Replanning(crowded, joint, rates=rates))
    assert found.moves
    assert violations(found.after, joint).keys().isdisjoint({"C4", "C5"})
    moved = set(chain(*(move.paths for move in found.moves)))
    for number in range(12):
        part = {region for region in plan.paths if region.startswith(f"{number}.")}
        assert part <= moved or part.isdisjoint(moved) or not violations(found.after, joint)


def test_nodes_that_do_not_answer_get_nothing_and_a_capacity_comes_before_short_paths() -> None:
    plan, membership, rates = drifted(4)
    crowded = replace(plan, paths=dict.fromkeys(plan.paths, ("n1",)), atoms=())
    found = replanned(Replanning(crowded, membership, rates=rates, nodes=["n1", "n2"]))
    assert set(chain(*found.after.paths.values())) == {"n1", "n2"}
    capacity = 1.2 * sum(rates.values()) / len(NODES)
    limited = replanned(Replanning(crowded, membership, rates=rates, capacity=capacity))
    assert limited.standing[1].peak <= max(capacity, found.standing[1].peak)
    with pytest.raises(UsageError, match="capacity"):
        Replanning(plan, membership, capacity=-1)


def test_a_new_node_is_used_at_once_and_what_is_on_a_silent_one_stays() -> None:
    plan, membership, rates = drifted(6)
    found = replanned(Replanning(plan, membership, rates=rates, nodes=[*NODES, "n5"]))
    assert found.standing[1].loads["n5"] > 0
    assert found.moves[0].nodes["n5"] == found.after.nodes["n5"] == ""
    assert sound(found, membership)
    silent = replanned(Replanning(plan, membership, rates=rates, nodes=["n1", "n2", "n3"]))
    on_it = {region for region, path in plan.paths.items() if "n4" in path}
    assert on_it.isdisjoint(chain(*(move.paths for move in silent.moves)))
    assert silent.moves


HOSTS = ("london", "tokyo", "sydney")
DELAYS = np.array([[1.0, 110.0, 130.0], [110.0, 1.0, 55.0], [130.0, 55.0, 1.0]])


def placed(host_of: dict[str, str], capacity: float | None = None) -> tuple[NearerReplanning, Membership]:
    members = {"ann": {"a", "b"}, "abe": {"a", "b"}, "tom": {"t", "u"}, "tim": {"t", "u"}}
    membership = Membership.of(members)
    paths: dict[str, tuple[str, ...]] = {"a": ("n2",), "b": ("n2",), "t": ("n1",), "u": ("n1",)}
    plan = Plan(7, 1, "acyclic", dict.fromkeys(("n1", "n2"), ""), paths, ())
    ground = Ground(matrix(HOSTS, DELAYS), {"n1": "london", "n2": "tokyo"}, host_of)
    network = NearerReplanning(
        plan, membership, membership, ground, effort=EFFORTS["quick"], rates={}, nodes=("n1", "n2"), capacity=capacity
    )
    return network, membership


def test_regions_move_to_the_node_that_is_near_to_their_subscribers() -> None:
    network, membership = placed({"ann": "london", "abe": "london", "tom": "tokyo", "tim": "sydney"})
    found = replanned(network)
    assert found.after.paths == {"a": ("n1",), "b": ("n1",), "t": ("n2",), "u": ("n2",)}
    assert sound(found, membership)
    # To Tokyo and back, to London and on; then 1 and 1, and 1 and 55.
    assert network.total_ms(found.before) == pytest.approx((220 + 240) / 2)
    assert network.total_ms(found.after) == pytest.approx((2 + 56) / 2)


def test_a_capacity_comes_before_delay_and_hosts_have_to_be_known() -> None:
    near = {"ann": "london", "abe": "london", "tom": "london", "tim": "london"}
    network, _ = placed(near)
    assert set(replanned(network).after.paths.values()) == {("n1",)}
    limited, _ = placed(near, capacity=2.0)
    assert replanned(limited).standing[1].peak == 2
    with pytest.raises(UsageError, match="host"):
        placed({})[0].total_ms(network.plan)
    with pytest.raises(UsageError, match="node n2 has no host"):
        NearerReplanning(
            network.plan,
            Membership.of({}, "abtu"),
            Membership.of({}, "abtu"),
            Ground(matrix(HOSTS, DELAYS), {"n1": "london"}, {}),
            effort=EFFORTS["quick"],
            rates={},
            nodes=("n1", "n2"),
        )
