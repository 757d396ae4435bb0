"""Small worlds in every interleaving: all promises hold at every end, and the search itself is to be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.explore import explore as explore_command
from laboratory.exploration.actors import Cast, Say
from laboratory.exploration.counterexamples import (
    RING,
    SEARCHES,
    SENDERS,
    causes_by_overlaps,
    half_a_look,
    ring_by_overlaps,
    two_counters,
    without_c3,
)
from laboratory.exploration.explorer import STATES_MAX, explore
from laboratory.exploration.script import outcome_of, played, read_cast
from laboratory.exploration.worlds import World
from laboratory.exploration.worlds_changing import ChangingWorld
from laboratory.exploration.worlds_enumerated import memberships, one_each, planned, sound_plans, together
from laboratory.exploration.worlds_surveyed import CHANGES, Bounds, survey
from placement.planner import make_plan
from sequencing import overlaps, transition
from sequencing.conditions import violations
from sequencing.delivery import Delivery
from sequencing.errors import InvalidInput
from sequencing.expected import links_to_sweep
from sequencing.frames import StampedFrame
from sequencing.joins import Joins
from sequencing.membership import Membership
from sequencing.ready import Missing, Ready
from sequencing.subscriber import Subscriber

SCENARIOS = Path(__file__).parent.parent / "scenarios"

QUICK = {
    "planned": Bounds(every=4),
    "batched": Bounds(every=5),
    "plans": Bounds(nodes=2, every=30),
    "faults": Bounds(every=5),
    "chains": Bounds(every=250),
    "joint": Bounds(nodes=2, every=4),
}
"""Each so manieth world; `gamecast lab explore` goes through all of them."""

QUICK_CHANGES = (
    "s3 joins what s1 and s2 share: in place",
    "s2 leaves and comes back",
    "s2 joins with an epoch and leaves",
    "an epoch, and another manager",
    "x walks from a to c, and what came before waits on a link",
    "x walks from a to c, and what came before waits on two links, one behind the other",
    "x walks from a to c, and y alone has c and d",
    "an event of a and b, for which both begin an epoch",
    "x walks from a to c, and another copy of what came before waits on a link",
    "x walks from a to c, and another copy of what came before waits on two links, one behind the other",
)


@pytest.mark.parametrize("family", QUICK)
def test_every_interleaving_keeps_every_promise(family: str) -> None:
    found = survey(family, QUICK[family])
    assert found.first is None
    assert (found.violations, found.unfinished) == (0, 0)
    assert found.worlds >= 10
    assert found.ends >= found.worlds


@pytest.mark.parametrize("title", QUICK_CHANGES)
def test_every_interleaving_of_a_change_keeps_every_promise(title: str) -> None:
    found = explore(ChangingWorld(dict(CHANGES)[title]))
    assert found.offenders == []
    assert found.complete
    assert found.states > 400


@pytest.mark.parametrize("what", ["what came before", "another copy of what came before"])
@pytest.mark.parametrize(("waits_on", "rounds"), [("a link", 0), ("two links, one behind the other", 1)])
def test_the_search_notices_a_walk_with_a_round_of_its_sweep_less(
    what: str, waits_on: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transition, "links_to_sweep", lambda *of: (links_to_sweep(*of)[0], rounds))
    [offender, *_] = explore(
        ChangingWorld(dict(CHANGES)[f"x walks from a to c, and {what} waits on {waits_on}"])
    ).offenders
    assert offender.what[0].startswith(("acyclicity", "order"))


def test_the_search_notices_a_walk_past_a_pair_that_a_single_subscriber_orders_as_it_likes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlaps, "_observers_min", lambda _: 2)
    assert explore(ChangingWorld(dict(CHANGES)["x walks from a to c, and y alone has c and d"])).offenders


def test_the_search_notices_a_join_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Joins, "blocks", lambda *_: False)
    assert explore(ChangingWorld(dict(CHANGES)["s2 leaves and comes back"])).offenders


@pytest.mark.parametrize("title", ["s2 joins what s1 has: in place", "s3 joins in place and leaves"])
def test_the_search_notices_a_join_that_does_not_find_its_place_in_the_lane(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ChangingWorld(dict(CHANGES)[title])
    assert explore(world).offenders == []
    monkeypatch.setattr(Delivery, "found_end", lambda *_, **__: None)
    [offender, *_] = explore(ChangingWorld(dict(CHANGES)[title])).offenders
    assert offender.what[0].startswith("order")


def test_the_search_notices_a_subscriber_that_does_not_wait_for_the_end_of_an_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def receive_at_once(
        self: Subscriber, frames: Iterable[StampedFrame], whole: Mapping[str, int]
    ) -> list[Ready | Missing]:
        out: list[Ready | Missing] = []
        for frame in frames:
            state = self._regions.all[frame.region]
            state.after, state.awaited = frame.last, None
            self._ripe.add(frame.region)
            out += self._epochs.all[frame.epoch].delivery.receive([frame], whole)
            self._look_at(frame.epoch)
        return self._handed_out(out + self._go_on())

    monkeypatch.setattr(Subscriber, "receive", receive_at_once)
    found = explore(ChangingWorld(dict(CHANGES)["an epoch, one publisher"]))
    assert [what.partition(":")[0] for what in found.offenders[0].what] == ["order"]


def test_memberships_are_counted_once_up_to_renaming() -> None:
    # Matrices of 0 and 1 without an empty row or column, up to permutations of rows and columns: OEIS A054976.
    assert [len(list(memberships(size, size))) for size in (1, 2, 3)] == [1, 3, 17]


def test_all_sound_plans_are_sound_and_different() -> None:
    plans = [plan for nodes in (1, 2) for plan in sound_plans(RING, "acyclic", nodes)]
    assert len({plan.to_json() for plan in plans}) == len(plans) > 30
    assert all(violations(plan, Membership.of(RING)) == {} for plan in plans)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(
    "members", [RING, {"s1": ("a", "b", "c"), "s2": ("a", "b", "c")}, {"s1": ("a", "b"), "s2": ("a", "b")}]
)
def test_what_the_search_leaves_out_makes_no_difference_at_any_end(
    nodes: int, members: dict[str, tuple[str, ...]]
) -> None:
    for plan in [make_plan(Membership.of(members), {f"n{i}": "" for i in range(nodes)})]:
        client = Cast(plan, members, one_each(members), lanes=True)
        batching = tuple(Say(say.event, "p", say.region) for say in client.says)
        for each in (client, replace(client, says=batching)):
            ends = []
            for reduced in (True, False):
                world = World(each, reduced=reduced)
                found = explore(world)
                assert found.complete
                ends.append({tuple(sorted(world.delivered(state).items())) for state in found.end_states})
            assert ends[0] == ends[1]


def test_a_search_that_may_not_meet_all_states_says_so() -> None:
    [plan] = planned(RING, "acyclic", 1)
    found = explore(World(Cast(plan, RING, one_each(RING))), states_max=10)
    assert not found.complete
    assert STATES_MAX > 10


# The counterexamples.


@pytest.mark.parametrize("name", SEARCHES)
def test_a_scenario_comes_out_as_it_is_written(name: str) -> None:
    script = (SCENARIOS / f"{name}.txt").read_text(encoding="utf-8")
    assert played(script) == script
    assert "\nwrong: " in script


@pytest.mark.parametrize(
    "search",
    [
        *(without_c3, causes_by_overlaps, ring_by_overlaps, half_a_look, two_counters),
        *(SEARCHES[name] for name in SEARCHES if name.startswith("joint-")),
    ],
)
def test_the_search_finds_the_counterexample_by_itself(search: object) -> None:
    assert callable(search)
    found = search()
    assert found.script == (SCENARIOS / f"{found.name}.txt").read_text(encoding="utf-8")


def test_copies_that_pass_each_link_as_one_have_one_place() -> None:
    script = (SCENARIOS / "joint-apart-on-links.txt").read_text(encoding="utf-8")
    apart = read_cast(script.partition("---\n")[0])
    for plan in together(sound_plans(apart.regions_of, "acyclic", 2), "ab"):
        found = explore(World(replace(apart, plan=plan, without=None)))
        assert (found.offenders, found.complete) == ([], True)


def test_without_c3_two_nodes_are_enough_for_a_deadlock() -> None:
    script = (SCENARIOS / "without-c3.txt").read_text(encoding="utf-8")
    client = read_cast(script.partition("---\n")[0])
    assert violations(client.plan, Membership.of(client.regions_of)).keys() == {"C3"}
    assert outcome_of(script) == {"s1": [], "s2": []}


ANSWERED = Say("m1", "P", "G1"), Say("m2", "P", "G2"), Say("m3", "Q", "G3", ("m2",))
"""P says m2 right after m1: whether it goes out before P has delivered m1 is up to the publisher."""


def test_the_causal_additions_mend_what_order_by_overlaps_breaks() -> None:
    for plan in planned(SENDERS, "causal", 3):
        found = explore(World(Cast(plan, SENDERS, ANSWERED, causal=True, lanes=True)))
        assert found.offenders == []
        assert found.complete


def test_atoms_alone_are_not_causal_when_publishers_do_not_wait() -> None:
    explored = [explore(World(Cast(plan, SENDERS, ANSWERED))) for plan in sound_plans(SENDERS, "causal", 2)]
    wrong = {what.partition(":")[0] for found in explored for offender in found.offenders for what in offender.what}
    assert wrong == {"causality"}


def test_acyclic_ordering_mends_the_ring() -> None:
    for plan in planned(RING, "acyclic", 3):
        found = explore(World(Cast(plan, RING, one_each(RING, 2), lanes=True)))
        assert found.offenders == []
        assert found.complete


def test_an_epoch_mends_what_an_atom_in_place_breaks() -> None:
    found = explore(ChangingWorld(dict(CHANGES)["s3 closes a ring, two nodes"]))
    assert found.offenders == []
    assert found.complete


def test_a_step_that_nothing_can_do_is_named() -> None:
    script = (SCENARIOS / "ring.txt").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match="nothing can do this now: 's1 reads a'"):
        played(script.replace("px says x\n", "s1 reads a\n", 1))


# The command.


def test_the_command_tells_what_it_explored() -> None:
    result = CliRunner().invoke(explore_command, ["planned", "--every", "20", "--json"])
    assert result.exit_code == 0, result.output
    assert '"violations": 0' in result.stdout


def test_the_command_fails_on_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, bounds: Bounds) -> object:
        found = survey("planned", Bounds(every=60))
        found.violations, found.first = 1, ("a world", ("cycle: …",), (("reads", "s1", "a"),))
        return found

    monkeypatch.setattr("cli.explore.survey", broken)
    result = CliRunner().invoke(explore_command, ["planned"])
    assert result.exit_code == 1
    assert "s1 reads a" in result.output
