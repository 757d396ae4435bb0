"""A bounded part of what ``./dev simulate`` and ``./dev mutate`` do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from cli.simulate import simulate
from laboratory.simulation.engine import Weather
from laboratory.simulation.faultrun import Outcome, Scenario, run_faults
from laboratory.simulation.shrinking import shrink
from sequencing.joins import Joins
from sequencing.ordering import Ordering
from sequencing.ready import Missing, Ready
from tests.patience import scaled
from tests.simulation.mutations import MUTATIONS

SEEDS = 300
MUTATE = Path(__file__).with_name("mutate.py")
ROOT = MUTATE.parents[2]


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_every_promise_holds_under_faults(first: int) -> None:
    for seed in range(first, first + 50):
        outcome = run_faults(Scenario.of(seed))
        assert outcome.violations == (), f"replay: gamecast lab simulate faults --seed {seed}"


@pytest.mark.parametrize("seed", [7100936, 8002683, 8009667])
def test_a_state_comes_in_its_place_beside_gaps_and_regions_without_an_order(seed: int) -> None:
    """Found by campaigns: a state of several regions came too early, because of a gap or an older epoch of one."""
    assert run_faults(Scenario.of(seed)).violations == ()


def test_a_seed_has_one_outcome() -> None:
    assert run_faults(Scenario.of(7)) == run_faults(Scenario.of(7))


def test_the_runs_have_faults_of_every_kind() -> None:
    outcomes = [run_faults(Scenario.of(seed)) for seed in range(150)]
    for what in ("published", "deliveries", "epochs", "joins", "faults"):
        assert sum(getattr(outcome, what) for outcome in outcomes) >= 60, what
    for what in ("gaps", "sweeps"):
        assert sum(getattr(outcome, what) for outcome in outcomes) >= 10, what


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery hands everything out as it comes."""
    monkeypatch.setattr(Joins, "blocks", lambda *_: False)
    drain = Ordering._drain

    def careless(self: Ordering, work: list[Any], out: list[Ready | Missing]) -> None:
        self._next = dict.fromkeys(self._next, 1 << 60)
        drain(self, work, out)

    monkeypatch.setattr(Ordering, "_drain", careless)


def first_failure(first: int = 0) -> Outcome:
    return next(outcome for seed in range(first, 50) if (outcome := run_faults(Scenario.of(seed))).violations)


def test_what_fails_is_made_smaller_and_still_fails_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    outcome = first_failure(1)  # nothing smaller fails in the way of the one before
    smaller = shrink(outcome, run_faults, runs_max=60)
    assert smaller.violations[0].partition(":")[0] == outcome.violations[0].partition(":")[0]
    assert run_faults(smaller.scenario).violations == smaller.violations
    assert size(smaller.scenario) <= size(outcome.scenario)
    assert smaller.scenario != outcome.scenario


def size(scenario: Scenario) -> float:
    """How much there is in a scenario."""
    parts = scenario.regions, scenario.servers, scenario.nodes, scenario.managers, scenario.relays
    return (
        sum(parts)
        + scenario.crashes
        + scenario.pauses
        + scenario.cuts
        + scenario.losses
        + scenario.forgettings
        + scenario.busy_ms
    )


def test_a_failure_is_printed_with_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    seed = first_failure().scenario.seed
    result = CliRunner().invoke(simulate, ["faults", "--seed", str(seed), "--json"])
    assert result.exit_code == 1
    [failure] = orjson.loads(result.stdout)["failures"]
    _, _, options = failure["replay"].partition("gamecast lab simulate faults ")
    number, _, changes = options.removeprefix("--seed ").partition(" --scenario ")
    arguments = ["faults", "--seed", number, *(["--scenario", changes.strip("'")] if changes else []), "--json"]
    again = CliRunner().invoke(simulate, arguments)
    assert again.exit_code == 1
    assert orjson.loads(again.stdout)["failures"][0]["violations"] == failure["violations"]


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


@pytest.mark.parametrize(
    ("word", "seeds"),
    [
        *(("first atom", 400), ("not woken", 120), ("without a TICK", 120), ("enough", 120)),
        *(("causal wait is left", 120), ("parts of a joint event", 120), ("what is in a state comes again", 120)),
    ],
)
def test_deliberate_bugs_are_noticed(word: str, seeds: int) -> None:
    command = [sys.executable, str(MUTATE), "--only", word, "--seeds", str(seeds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=scaled(300), check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
