"""Lumezanu 2006 (Lumezanu et al., *Decentralized Message Ordering*), claim by claim: what holds, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, count, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.paper.curves import by_groups, by_occupancy
from laboratory.paper.experiment import Experiment, run
from laboratory.placing.baselines import sequencing_nodes
from laboratory.simulation.lines import plan_along
from placement.objective import busiest_receiver
from placement.placing import Effort
from placement.planner import make_plan
from placement.workloads import Workload, zipf_groups
from sequencing.conditions import violations
from sequencing.delivery import Delivery
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.membership import Membership
from sequencing.node import Node, Verdict
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Atom, AtomId, Ordering, Plan
from sequencing.ready import Ready

FIGURE_1 = {"G0": "ABC", "G1": "BC", "G2": "ABD", "G3": "BCD", "G4": "BD"}


def members_of(groups: Mapping[str, str]) -> Membership:
    """The paper lists the members of each group; a membership lists the groups of each member."""
    subscribers = sorted(set("".join(groups.values())))
    return Membership.of({s: [group for group, members in groups.items() if s in members] for s in subscribers})


def papers_plan(membership: Membership, ordering: Ordering = "overlap") -> Plan:
    """All on one node, with an atom for each pair all the same, as in the paper; our planner takes the node's order."""
    return plan_along(
        ["Q0"], membership, ordering, epoch=1, first_atom=1, place=lambda _: 0, keeps_needless=lambda: True
    )


def overlaps(groups: Mapping[str, str], ordering: Ordering = "overlap") -> set[str]:
    """The pairs of groups that have atoms, like ``G0 G1``."""
    plan = papers_plan(members_of(groups), ordering)
    return {" ".join(pair) for atom in plan.atoms for pair in combinations(sorted(atom.regions), 2)}


class Network:
    """The nodes of a plan, moved by hand."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.publishers = count()
        self.nodes = {name: Node(name) for name in plan.nodes}
        for node in self.nodes.values():
            node.install(plan.epoch, plan.version, plan.steps(node.name))

    def publish(self, region: str) -> None:
        frame = PublishedFrame(region, 1, f"publisher {next(self.publishers)}", 1, 1, 1, b"")
        [answer] = self.nodes[self.plan.paths[region][0]].publish([frame])
        assert answer.verdict is Verdict.OK

    def move(self, source: str, target: str) -> None:
        answer = self.nodes[target].transfer(source, self.nodes[source].links.get(target, []))
        self.nodes[source].acknowledge(target, answer.accepted)

    def out(self, region: str) -> list[StampedFrame]:
        return self.nodes[self.plan.paths[region][-1]].egress.get((self.plan.epoch, region), [])


def delivered(delivery: Delivery, *frames: StampedFrame) -> str:
    return "".join(item.frame.region for item in delivery.receive(frames) if isinstance(item, Ready))


# What holds.


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("G0", set()),
        ("G0 G1", {"G0 G1"}),
        ("G0 G1 G2", {"G0 G1", "G0 G2"}),
        ("G0 G1 G2 G3", {"G0 G1", "G0 G2", "G0 G3", "G1 G3", "G2 G3"}),
        ("G0 G1 G2 G3 G4", {"G0 G1", "G0 G2", "G0 G3", "G1 G3", "G2 G3", "G2 G4", "G3 G4"}),
        ("G1 G2 G3 G4", {"G1 G3", "G2 G3", "G2 G4", "G3 G4"}),
    ],
)
def test_figure_1_the_groups_overlap_as_drawn(groups: str, expected: set[str]) -> None:
    present = {group: FIGURE_1[group] for group in groups.split()}
    assert overlaps(present) == expected
    assert count_double_overlaps(members_of(present)) == len(expected)
    assert violations(make_plan(members_of(present), {"Q0": "", "Q1": "", "Q2": ""}), members_of(present)) == {}


def test_section_1_atoms_order_the_groups_with_two_members_in_common_and_no_others() -> None:
    single = {"G0": "AB", "G1": "BC", "G2": "CA"}
    assert overlaps(single) == set()
    assert overlaps(single | {"G3": "AB"}) == {"G0 G3"}
    # The departure: G0–G1–G2 is a ring, whose order three members could tell together though no two of them can.
    assert overlaps(single, "acyclic") == {"G0 G1", "G0 G2", "G1 G2"}


worlds = st.dictionaries(
    st.sampled_from(["G0", "G1", "G2", "G3", "G4", "G5"]), st.sets(st.sampled_from("ABCDE"), min_size=1), min_size=1
).map(lambda groups: {group: "".join(sorted(members)) for group, members in groups.items()})


@given(worlds)
@settings(max_examples=100, deadline=None)
def test_section_1_every_atom_orders_what_some_two_receivers_have_to_receive_anyway(groups: dict[str, str]) -> None:
    for atom in papers_plan(members_of(groups)).atoms:
        assert len(set.intersection(*(set(groups[region]) for region in atom.regions))) >= 2


@given(worlds, st.sampled_from(["acyclic", "overlap"]))
@settings(max_examples=100, deadline=None)
def test_section_4_4_paths_and_stamps_are_bounded_by_the_number_of_groups(
    groups: dict[str, str], ordering: Ordering
) -> None:
    plan = make_plan(members_of(groups), {f"Q{number}": "" for number in range(16)}, ordering=ordering)
    for region, path in plan.paths.items():
        assert len(path) <= len(groups)
        assert len(plan.atoms_of[region]) <= len(groups) - 1


def test_section_3_1_a_group_without_double_overlaps_is_forwarded_at_once_and_unstamped() -> None:
    network = Network(make_plan(members_of({"G0": "ABC", "G1": "CDE"}), {"Q0": "", "Q1": ""}, ordering="overlap"))
    network.publish("G0")
    assert [frame.stamp for frame in network.out("G0")] == [b"0,1"], "its node's own number, which costs nothing"


def test_section_3_1_destinations_decide_at_once_in_every_order_of_arrival() -> None:
    network = Network(papers_plan(Membership.of({"s": "abc", "t": "ab", "u": "bc"})))
    for region in "bcab":
        network.publish(region)
    arriving = [*network.out("a"), *network.out("b"), *network.out("c")]
    for arrival in permutations(arriving):
        if [frame.last for frame in arrival if frame.region == "b"] != [1, 2]:
            continue
        delivery = Delivery(1, "abc", network.plan.atoms)
        order = ""
        for received, frame in enumerate(arrival, start=1):
            order += delivered(delivery, frame)
            # a and c are not ordered against each other; whatever can be delivered is, and the rest is held.
            assert order in ("", "b", "bc", "ba", "bca", "bac", "bcab", "bacb")
            assert len(order) + delivery.held_frames == received
        assert len(order) == 4


def test_section_3_2_who_is_not_in_the_overlap_needs_only_the_numbers_of_its_group() -> None:
    network = Network(papers_plan(members_of({"G0": "ABC", "G1": "BC"})))
    for region in ("G1", "G1", "G0", "G1", "G0"):
        network.publish(region)
    assert [frame.stamp for frame in network.out("G0")] == [b"0,3,1,3", b"0,5,1,5"]
    only_g0, both = (Delivery(1, regions, network.plan.atoms) for regions in (["G0"], ["G0", "G1"]))
    assert delivered(only_g0, *network.out("G0")) == "G0G0"
    assert delivered(both, *network.out("G0")) == ""
    assert delivered(both, *network.out("G1")) == "G1G1G0G1G0"


def test_section_3_3_nodes_of_the_papers_heuristic_order_no_more_than_the_busiest_receiver_receives() -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        work = Workload.of(np.arange(128), zipf_groups(128, 32, random))
        for pairs in sequencing_nodes(work.members, random.permutation(32)):
            ordered = sorted({group for pair in pairs for group in pair})
            # A witness: somebody is in all of them.
            assert work.members[:, ordered].all(axis=1).any()


def test_section_4_2_stretch_stays_below_the_papers_and_near_the_lower_bound() -> None:
    experiment = Experiment(nodes=1_000, groups=(8, 64), effort=Effort(kicks=1))
    for few_or_many, limit in zip(run(experiment, seed=2), (2.5, 2.5), strict=True):
        ours, bound = few_or_many.schemes["ours"], few_or_many.schemes["lower_bound"]
        assert np.nanmax(ours.stretch) <= limit
        assert np.nanmedian(ours.stretch) <= 1.10 * np.nanmedian(bound.stretch)
        assert np.nanmax(ours.stretch) <= 1.15 * np.nanmax(bound.stretch)
        assert ours.ordered is not None
        assert ours.ordered <= 1 + 1e-9
        for worse in ("paper", "random"):
            assert np.nanmedian(few_or_many.schemes[worse].stretch) > np.nanmedian(ours.stretch)


def test_section_4_3_sequencing_nodes_grow_more_slowly_beyond_twenty_groups() -> None:
    curve = by_groups(range(3), subscribers=128, largest=1.0)
    nodes = dict(zip(curve.at, curve.mean.tolist(), strict=True))
    assert (nodes[64] - nodes[20]) / 44 < 0.6 * nodes[20] / 20
    assert nodes[1] == 0


def test_section_4_4_nodes_peak_near_an_occupancy_of_0_15_and_one_is_left_above_0_9() -> None:
    curve = by_occupancy(range(3), subscribers=128)
    assert 0.1 <= curve.peak <= 0.2
    nodes = dict(zip(curve.at, curve.mean.tolist(), strict=True))
    assert nodes[0.0] == 0
    assert nodes[0.92] == nodes[0.95] == nodes[1.0] == 1
    falling = [nodes[at] for at in (0.2, 0.3, 0.4, 0.6, 0.8, 0.92)]
    assert falling == sorted(falling, reverse=True)
    assert curve.overlaps[:, -1].tolist() == [32 * 31 // 2] * 3


# Where gamecast departs.


def test_section_3_3_no_network_keeps_what_passes_its_nodes_below_the_busiest_receiver() -> None:
    """Groups that all overlap pairwise meet on one node (Helly), and together they may have more than any receiver."""
    groups = {"G0": "ABCDEF", "G1": "ABGHIJ", "G2": "CDGHKL"}
    work = members_of(groups)
    assert overlaps(groups) == {"G0 G1", "G0 G2", "G1 G2"}
    assert busiest_receiver(work, np.full(3, 6.0)) == 12
    for nodes in range(1, 6):
        plan = make_plan(work, {f"Q{number}": "" for number in range(nodes)}, ordering="overlap", capacity="receiver")
        passing = [sum(6.0 for path in plan.paths.values() if node in path) for node in plan.nodes]
        assert max(passing) == 18


def chain(b: str) -> Plan:
    """Regions a, b and c, all pairwise overlapped, on the nodes ab – ac – bc, with a given path of b."""
    atoms = tuple(Atom(AtomId(number), tuple(pair), pair) for number, pair in enumerate(("ab", "ac", "bc"), start=1))
    paths = {"a": ("ab", "ac"), "b": tuple(b.split()), "c": ("ac", "bc")}
    return Plan(1, 1, "overlap", {"ab": "", "ac": "", "bc": ""}, paths, atoms)


ALL_THREE = Membership.of({"s": "abc", "t": "abc"})


def test_section_3_2_c1_and_c2_alone_allow_a_deadlock_which_c3_rules_out() -> None:
    reversed_b = chain("bc ac ab")
    assert violations(reversed_b, ALL_THREE).keys() == {"C3"}
    network = Network(reversed_b)
    # Every link is first in, first out, and every atom sees a legal order: ab (a,b), bc (b,c), ac (c,a).
    for region in "abc":
        network.publish(region)
    for source, target in (("ac", "bc"), ("ab", "ac"), ("bc", "ac"), ("ac", "ab")):
        network.move(source, target)
    assert {region: [frame.stamp for frame in network.out(region)] for region in "abc"} == {
        "a": [b"0,1,1,1,2,2"],
        "b": [b"0,1,3,1,1,2"],
        "c": [b"0,1,2,1,3,2"],
    }
    frames = [frame for region in "abc" for frame in network.out(region)]
    for arrival in permutations(frames):
        delivery = Delivery(1, "abc", reversed_b.atoms)
        assert delivered(delivery, *arrival) == ""
        assert delivery.held_frames == 3


def test_section_3_2_with_c3_the_same_publications_come_through() -> None:
    forward = chain("ab ac bc")
    assert violations(forward, ALL_THREE) == {}
    for moves in permutations([("ab", "ac"), ("ac", "bc"), ("ab", "ac"), ("ac", "bc")]):
        network = Network(forward)
        for region in "abc":
            network.publish(region)
        for source, target in (*moves, ("ab", "ac"), ("ac", "bc")):
            network.move(source, target)
        frames = [frame for region in "abc" for frame in network.out(region)]
        orders = {delivered(Delivery(1, "abc", forward.atoms), *arrival) for arrival in permutations(frames)}
        assert len(orders) == 1
        assert len(orders.pop()) == 3


def test_section_1_senders_that_subscribe_do_not_make_overlaps_causal() -> None:
    """P answers m1 (to G1) with m2 (to G2), Q answers m2 with m3 (to G3); R has G1 and G3, and G3's frame is faster."""
    ring = members_of({"G1": "PR", "G2": "PQ", "G3": "QR"})
    orderings: tuple[Ordering, ...] = "overlap", "acyclic"
    by_ordering = {}
    for ordering in orderings:
        network = Network(papers_plan(ring, ordering))
        r = Delivery(1, ["G1", "G3"], network.plan.atoms)
        for sender, cause, effect in (("P", "", "G1"), ("P", "G1", "G2"), ("Q", "G2", "G3")):
            mine = ring.regions_of[sender]
            frames = [frame for region in mine for frame in network.out(region)]
            assert delivered(Delivery(1, mine, network.plan.atoms), *frames) == cause
            network.publish(effect)
        by_ordering[ordering] = delivered(r, *network.out("G3")), delivered(r, *network.out("G1"))
    assert by_ordering == {"overlap": ("G3", "G1"), "acyclic": ("", "G1G3")}
