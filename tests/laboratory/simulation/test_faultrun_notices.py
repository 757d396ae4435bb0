"""Runs with faults notice deliberate bugs, and say how to replay what failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from laboratory.commands.simulate import simulate
from laboratory.simulation.faultrun import Outcome, Scenario, run_faults
from laboratory.simulation.shrinking import shrink
from sequencing.joins import Joins
from sequencing.ordering import Ordering
from sequencing.ready import Missing, Ready
from tests.patience import scaled

MUTATE = Path(__file__).resolve().parents[2] / "simulation" / "mutate.py"


def test_the_runs_have_faults_of_every_kind() -> None:
    outcomes = [run_faults(Scenario.of(seed)) for seed in range(240)]
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
    return next(outcome for seed in range(first, 400) if (outcome := run_faults(Scenario.of(seed))).violations)


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
