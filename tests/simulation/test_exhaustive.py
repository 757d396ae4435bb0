"""Small worlds in every interleaving: all promises hold at every end, and the search itself is to be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from laboratory.commands.explore import explore as explore_command
from laboratory.exploration.actors import Cast, Say
from laboratory.exploration.counterexamples import (
    RING,
    SEARCHES,
    SENDERS,
)
from laboratory.exploration.explorer import STATES_MAX, explore
from laboratory.exploration.script import outcome_of, played, read_cast
from laboratory.exploration.worlds import World
from laboratory.exploration.worlds_changing import ChangingWorld
from laboratory.exploration.worlds_enumerated import memberships, one_each, planned, sound_plans, together
from laboratory.exploration.worlds_surveyed import CHANGES, Bounds, survey
from sequencing.conditions import violations
from sequencing.errors import InvalidInput
from sequencing.membership import Membership

SCENARIOS = Path(__file__).parent.parent / "scenarios"

QUICK = {
    "planned": Bounds(every=4),
    "batched": Bounds(every=5),
    "plans": Bounds(nodes=2, every=30),
    "faults": Bounds(every=5),
    "chains": Bounds(every=250),
    "joint": Bounds(nodes=2, every=4),
    "borders": Bounds(subscribers=2, every=130),
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
    "events of a and b, which begin at two nodes",
    "an event of a and b, which begin at two nodes in an epoch that ends",
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


def test_memberships_are_counted_once_up_to_renaming() -> None:
    # Matrices of 0 and 1 without an empty row or column, up to permutations of rows and columns: OEIS A054976.
    assert [len(list(memberships(size, size))) for size in (1, 2, 3)] == [1, 3, 17]


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

    monkeypatch.setattr("laboratory.commands.explore.survey", broken)
    result = CliRunner().invoke(explore_command, ["planned"])
    assert result.exit_code == 1
    assert "s1 reads a" in result.output
