"""A bounded part of what ``./dev simulate`` and ``./dev mutate`` do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from laboratory.commands.simulate import simulate
from laboratory.simulation import server
from laboratory.simulation.engine import Weather
from laboratory.simulation.faultrun import Scenario, run_faults
from tests.simulation.mutations import MUTATIONS

SEEDS = 300
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_every_promise_holds_under_faults(first: int) -> None:
    for seed in range(first, first + 50):
        outcome = run_faults(Scenario.of(seed))
        assert outcome.violations == (), f"replay: gamecast lab simulate faults --seed {seed}"


@pytest.mark.parametrize("seed", [7100936, 8002683, 8009667])
def test_a_state_comes_in_its_place_beside_gaps_and_regions_without_an_order(seed: int) -> None:
    """Found by campaigns: a state of several regions came too early, because of a gap or an older epoch of one."""
    assert run_faults(Scenario.of(seed)).violations == ()


@pytest.mark.parametrize("seed", [203, 260])
def test_a_join_tells_where_it_began_also_if_an_epoch_began_before_its_marker_came(seed: int) -> None:
    """It told a position behind events that it had delivered."""
    assert run_faults(Scenario.of(seed)).violations == ()


@pytest.mark.parametrize("seed", [704042, 705394])
def test_no_two_plans_are_announced_with_one_number(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader's write that had no answer comes while it makes another plan from what was before."""
    monkeypatch.setattr(server, "JOINT", 0.4)
    monkeypatch.setattr(server, "KEYED", 0.5)
    assert run_faults(Scenario.of(seed)).violations == ()


def test_a_seed_has_one_outcome() -> None:
    assert run_faults(Scenario.of(7)) == run_faults(Scenario.of(7))


def test_what_held_is_said_with_figures() -> None:
    result = CliRunner().invoke(simulate, ["faults", "--seeds", "3", "--ordering", "causal", "--jobs", "1"])
    assert (result.exit_code, "every promise held" in result.stdout) == (0, True)


@pytest.mark.parametrize("changes", ["{", '{"wind": 3}', '{"weather": {"hail": 1}}'])
def test_a_scenario_that_is_none_is_wrong_use(changes: str) -> None:
    result = CliRunner().invoke(simulate, ["faults", "--seed", "1", "--scenario", changes])
    assert (result.exit_code, "--scenario" in result.stderr) == (2, True)


def test_a_calm_network_comes_to_rest_without_an_epoch_too_many() -> None:
    scenario = Scenario(1, "acyclic", 2, 2, 1, 1, 1, 100.0, 0, 0, 0, False, 0, 0.1, Weather(0.2, 0.0))
    outcome = run_faults(scenario)
    assert (outcome.violations, outcome.epochs <= 3) == ((), True)


def test_every_deliberate_bug_still_applies() -> None:
    for mutation in MUTATIONS:
        assert (ROOT / mutation.file).read_text().count(mutation.old) == 1, mutation.name
