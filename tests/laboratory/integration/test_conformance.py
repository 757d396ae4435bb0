"""The conformance kit with the JavaScript client, with a client in Python, and with planted bugs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.main import cli
from cli.running import status_of
from gateway.application import CLIENT
from laboratory.conformance.catalogue import SCENARIOS
from laboratory.conformance.playing import play
from launcher.ending import BROKEN, DONE, INFRASTRUCTURE, WRONG_USE
from tests.integration.gateway.test_gateway_javascript import node
from tests.laboratory.integration.conformance_mutations import MUTATIONS, Mutation
from tests.patience import slowness

ROOT = Path(__file__).parents[3]
ADAPTER = ROOT / "clients" / "javascript" / "conformance.mjs"
EXAMPLE = Path(__file__).parent / "conformance_client.py"
SOURCE = CLIENT / "gamecast.js"
MUTANT_TIMEOUT_S = 3.0
"""In seconds of this machine: most mutants do not do what is waited for, and there are many."""
SILENT_TIMEOUT_S = 4.0
"""The client needs up to three to give a silent server up."""


def test_the_javascript_client_passes(capfd: pytest.CaptureFixture[str]) -> None:
    status = status_of(cli, ["gateway-conformance", "--json", "--", *node(), str(ADAPTER)])
    document = json.loads(capfd.readouterr().out)
    assert [each for each in document["scenarios"] if each["outcome"] != "passed"] == []
    assert (status, document["passed"]) == (DONE, len(SCENARIOS))


def test_a_small_client_in_python_passes(capfd: pytest.CaptureFixture[str]) -> None:
    status = status_of(cli, ["gateway-conformance", "--json", "--", sys.executable, str(EXAMPLE)])
    document = json.loads(capfd.readouterr().out)
    assert [each for each in document["scenarios"] if each["outcome"] != "passed"] == []
    assert status == DONE


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_a_planted_bug_is_found(mutation: Mutation, tmp_path: Path) -> None:
    text = SOURCE.read_text()
    assert text.count(mutation.old) == 1
    mutant = tmp_path / "gamecast.mjs"
    mutant.write_text(text.replace(mutation.old, mutation.new))
    command = [*node(), str(ADAPTER), str(mutant)]
    timeout_s = SILENT_TIMEOUT_S if mutation.scenario == "silence" else MUTANT_TIMEOUT_S
    outcome = await play(SCENARIOS[mutation.scenario], command, timeout_s=timeout_s / slowness())
    assert outcome.violations


def test_a_scenario_that_fails_is_1_and_says_why(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mutation = next(each for each in MUTATIONS if each.scenario == "order")
    mutant = tmp_path / "gamecast.mjs"
    mutant.write_text(SOURCE.read_text().replace(mutation.old, mutation.new))
    command = [*node(), str(ADAPTER), str(mutant)]
    assert status_of(cli, ["gateway-conformance", "--only", "order", "--", *command]) == BROKEN
    told = capfd.readouterr().out
    assert "order: the client reports the event" in told
    assert "0 passed, 1 failed, 0 skipped" in told


def test_a_client_without_a_call_is_skipped(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(
        EXAMPLE.read_text().replace(
            '        if command["do"] == "close":',
            '        if command.get("state"):\n            report(unsupported=command["id"])\n            continue\n'
            '        if command["do"] == "close":',
        )
    )
    assert (
        status_of(cli, ["gateway-conformance", "--only", "state", "--json", "--", sys.executable, str(client)]) == DONE
    )
    assert json.loads(capfd.readouterr().out)["skipped"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--list"], DONE, ""),
        ([], WRONG_USE, "name the client's program"),
        (["--only", "nothing", "--", "true"], WRONG_USE, "there is no scenario 'nothing'"),
        (["--only", "order", "--", "/no/such/client"], INFRASTRUCTURE, "cannot start the client '/no/such/client'"),
        (["--only", "order", "--", sys.executable, "-c", "raise SystemExit('no')"], INFRASTRUCTURE, "it said: no"),
    ],
)
def test_statuses(arguments: list[str], status: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(cli, ["gateway-conformance", *arguments]) == status
    out, complained = capfd.readouterr()
    assert said in complained
    assert (len(out.splitlines()) == len(SCENARIOS)) == (arguments == ["--list"])


def test_the_page_names_each_scenario_s_rules_and_the_command() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert "gamecast gateway-conformance" in page
    for line in ("ready", "event", "gap", "state", "receipt", "refused", "status", "error", "done", "unsupported"):
        assert f'{{"{line}":' in page, line
