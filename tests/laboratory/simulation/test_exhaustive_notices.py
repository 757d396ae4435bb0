"""The search through small worlds notices what is broken on purpose, and leaves nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from laboratory.exploration.actors import Cast, Say
from laboratory.exploration.counterexamples import (
    RING,
    SEARCHES,
    causes_by_overlaps,
    half_a_look,
    ring_by_overlaps,
    two_counters,
    without_c3,
)
from laboratory.exploration.explorer import explore
from laboratory.exploration.worlds import World
from laboratory.exploration.worlds_changing import ChangingWorld
from laboratory.exploration.worlds_enumerated import one_each, sound_plans
from laboratory.exploration.worlds_surveyed import CHANGES
from placement.planner import make_plan
from sequencing import overlaps, transition
from sequencing.conditions import violations
from sequencing.delivery import Delivery
from sequencing.expected import links_to_sweep
from sequencing.frames import StampedFrame
from sequencing.joins import Joins
from sequencing.membership import Membership
from sequencing.ready import Missing, Ready
from sequencing.regionlife import Check
from sequencing.subscriber import Subscriber
from tests.simulation.test_exhaustive import SCENARIOS


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
            self._checks.add(Check.JOINED, (frame.region,))
            out += self._epochs.all[frame.epoch].delivery.receive([frame], whole)
            self._look_at(frame.epoch)
        return self._handed_out(out + self._go_on())

    monkeypatch.setattr(Subscriber, "receive", receive_at_once)
    found = explore(ChangingWorld(dict(CHANGES)["an epoch, one publisher"]))
    assert [what.partition(":")[0] for what in found.offenders[0].what] == ["order"]


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


def test_an_epoch_mends_what_an_atom_in_place_breaks() -> None:
    found = explore(ChangingWorld(dict(CHANGES)["s3 closes a ring, two nodes"]))
    assert found.offenders == []
    assert found.complete
