"""Whole game servers in virtual time: every promise is kept, the same seed has the same course, and what is broken is
noticed."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from laboratory.commands.simulate import simulate
from laboratory.simulation.shipped import ShippedWorld, run_shipped

WORLDS = 40


@pytest.mark.parametrize("seed", range(WORLDS))
def test_game_servers_keep_their_promises_in_bad_weather(seed: int) -> None:
    assert run_shipped(ShippedWorld.of(seed)).violations == ()


def test_a_seed_has_always_the_same_course() -> None:
    assert run_shipped(ShippedWorld.of(7)) == run_shipped(ShippedWorld.of(7))


def test_the_worlds_reach_what_happens_only_sometimes() -> None:
    seen = [run_shipped(ShippedWorld.of(seed)) for seed in range(12)]
    for what in ("joint_events", "states", "handovers_accepted", "owned_events", "presences", "updates"):
        assert any(each.judgement is not None and each.judgement.sometimes[what] for each in seen), what
    assert any(each.faults for each in seen)


def test_an_event_that_comes_by_two_regions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sequencing.had.Had.has", lambda *_, **__: False)
    wrong = [violation for seed in range(12) for violation in run_shipped(ShippedWorld.of(seed)).violations]
    assert wrong


def test_the_command_tells_what_it_saw() -> None:
    result = CliRunner().invoke(simulate, ["servers", "--worlds", "3", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    assert (told["worlds"], told["failed"], told["failures"], told["never"]) == (3, 0, [], [])
    assert told["virtual_s"] > told["seconds"]
