"""The life of a region: it moves as the table says from which `docs/states.md` is drawn, and the subscriber by it."""

from __future__ import annotations

from collections import Counter

import pytest

import sequencing.subscriber
from sequencing.regionlife import REGION_LIFE, Check, Checks, Life, Lives, RegionEvent, RegionState
from sequencing.states import IllegalTransition
from tests.simulation.test_joining_worlds import World

WAYS: dict[RegionState, tuple[RegionEvent, ...]] = {
    RegionState.NONE: (),
    RegionState.LACKING: (RegionEvent.GRANT,),
    RegionState.SURPLUS: (RegionEvent.FOLLOW,),
    RegionState.SILENT: (RegionEvent.FOLLOW, RegionEvent.GRANT),
    RegionState.JOINING: (RegionEvent.GRANT, RegionEvent.FOLLOW),
    RegionState.JOINED: (RegionEvent.GRANT, RegionEvent.FOLLOW, RegionEvent.JOIN),
}


def lives_at(state: RegionState) -> Lives:
    lives = Lives()
    for event in WAYS[state]:
        lives.move("a", event)
    return lives


def indexed(lives: Lives) -> dict[str, RegionState]:
    return {region: state for state in RegionState for region in lives.all_in(state)}


@pytest.mark.parametrize("state", RegionState)
@pytest.mark.parametrize("event", RegionEvent)
def test_a_region_moves_as_its_table_says_and_the_rest_is_refused(state: RegionState, event: RegionEvent) -> None:
    lives, to = lives_at(state), REGION_LIFE.get((state, event))
    assert lives.state("a") is state
    if to is None:
        with pytest.raises(IllegalTransition, match=f"RegionState: {state.name} does not allow {event.name}"):
            lives.move("a", event)
    else:
        lives.move("a", event)
    now = state if to is None else to
    assert lives.state("a") is now
    assert indexed(lives) == ({} if now is RegionState.NONE else {"a": now})
    assert lives.all.keys() == indexed(lives).keys()
    assert lives.joined == ({"a"} if now is RegionState.JOINED else set())


def test_what_is_silent_is_delivered_behind_one_place_until_it_is_released() -> None:
    lives = lives_at(RegionState.SILENT)
    life = lives.all["a"]
    assert (life.is_silent_at(1, 1), life.is_silent_at(9, 9)) == (True, True)
    lives.end_silence("a", 2, 5)
    places = ((1, 9), (2, 4), (2, 5), (2, 6), (3, 1))
    assert [life.is_silent_at(*place) for place in places] == [True, True, True, False, False]
    assert [life.is_silent_at(epoch, 0) for epoch in (1, 2)] == [True, False], "its end is unknown"
    lives.move("a", RegionEvent.RELEASE)
    assert lives.all["a"] == Life(RegionState.SURPLUS)


def test_what_was_wanted_all_along_is_never_silent() -> None:
    life = lives_at(RegionState.JOINING).all["a"]
    assert not life.is_silent_at(1, 1)


def test_what_is_to_be_checked_is_returned_once_and_in_order() -> None:
    checks = Checks()
    checks.add(Check.ENDED, "ba")
    checks.add(Check.JOINED, "c")
    checks.add(Check.ENDED, "a")
    assert (checks.is_due(Check.ENDED), checks.is_due(Check.SEVERED)) == (True, False)
    assert [checks.take(check) for check in (Check.ENDED, Check.ENDED, Check.JOINED)] == [["a", "b"], [], ["c"]]


def test_the_states_of_a_subscriber_are_what_it_is_granted_and_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = Counter[RegionState]()

    class Watched(Lives):
        def move(self, region: str, event: RegionEvent) -> None:
            super().move(region, event)
            reached[self.state(region)] += 1

    monkeypatch.setattr(sequencing.subscriber, "Lives", Watched)
    for seed in range(6):
        world = World(seed, leaving=0.04)
        me = world.subscriber
        for _ in range(300):
            world._step()
            granted, followed, states = me._grants.mine.keys(), me._regions.all.keys(), indexed(me._lives)
            assert states.keys() == granted | followed
            assert me._lives.all_in(RegionState.LACKING) == granted - followed
            assert me._lives.all_in(RegionState.SURPLUS) == followed - granted
            assert {region: life.state for region, life in me._lives.all.items()} == states
    assert reached.keys() == set(RegionState), reached
