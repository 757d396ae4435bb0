"""`gamecast bench gateway`: a small soak through the command, and what becomes of promises that are broken."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("aiohttp")

from laboratory.bench import gateway_soak
from laboratory.bench.gateway_servers import gateway, running
from laboratory.commands.bench import bench
from sequencing.errors import ProcessFailed
from tests.patience import besides_waiting

SMALL = ["--clients", "6", "--seconds", "3", "--events-per-s", "20", "--churn", "0.2"]
PEERS = {"gamecast", "socketio"} if find_spec("socketio") is not None else {"gamecast"}


def run(*words: str) -> Result:
    return CliRunner().invoke(bench, ["gateway", *words], env={"COLUMNS": "80"})


def test_a_small_soak_keeps_all_promises_and_tells_of_both_peers() -> None:
    result = run("--json", *SMALL)
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    assert document["peers"].keys() == PEERS
    assert document["versions"].keys() >= {"gamecast", "aiohttp"}
    assert {name: document["plan"][name] for name in ("clients", "seconds", "regions")} == {
        "clients": 6,
        "seconds": 3.0,
        "regions": 3,
    }
    ours = document["peers"]["gamecast"]
    assert ours["is_quiet"] is True
    assert ours["published"] >= 20
    assert ours["deliveries"] >= ours["published"]
    assert ours["drops"] >= 2
    assert 0 < ours["p50_ms"] <= ours["p95_ms"] <= ours["p99_ms"]
    broken = ("lost", "duplicated", "out_of_place", "gaps", "inversions", "cycles", "unanswered", "refused")
    assert {kind: ours[kind] for kind in broken} == dict.fromkeys(broken, 0)
    for figures in document["peers"].values():
        assert figures.keys() == ours.keys()
        assert figures["seconds"] >= 3.0
        assert figures["server_cpu"] > 0


def measured(**changed: Any) -> dict[str, Any]:
    """Return the figures of a soak in which nothing went wrong, with some changed."""
    kept = ("lost", "duplicated", "out_of_place", "gaps", "refused", "unanswered", "inversions", "cycles")
    figures: dict[str, Any] = {"published": 10, "deliveries": 20, "drops": 1, **dict.fromkeys(kept, 0)}
    figures |= {"is_quiet": True, "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0, "memory": None}
    return figures | {"seconds": 3.0, "server_cpu": 0.1} | changed


@pytest.fixture
def soaked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command is told that was measured, without measuring it."""
    result: dict[str, Any] = {"plan": {}, "peers": {"gamecast": measured()}, "versions": {}}
    monkeypatch.setattr(gateway_soak, "soak", lambda plan: result)
    return result


@pytest.mark.parametrize("kind", ["lost", "duplicated", "out_of_place", "gaps", "inversions", "cycles", "unanswered"])
def test_a_broken_promise_is_named_and_ends_the_command_with_1(soaked: dict[str, Any], kind: str) -> None:
    assert run(*SMALL).exit_code == 0
    soaked["peers"]["gamecast"][kind] = 3
    for output in ([], ["--json"]):
        result = run(*SMALL, *output)
        assert result.exit_code == 1
        assert result.stderr == f"the gateway did not keep its promises: 3 {kind.replace('_', ' ')}\n"


def test_what_the_other_peer_loses_is_no_promise_of_ours(soaked: dict[str, Any]) -> None:
    soaked["peers"]["socketio"] = measured(lost=7, duplicated=1)
    result = run(*SMALL)
    assert result.exit_code == 0
    assert "7" in result.stdout
    assert besides_waiting(result.stderr) == ""


@pytest.mark.parametrize(("seconds", "change", "status"), [(60, 0.06, 1), (60, -0.06, 1), (60, 0.04, 0), (3, 0.5, 0)])
def test_memory_that_grows_over_a_minute_is_a_broken_promise(
    soaked: dict[str, Any], seconds: int, change: float, status: int
) -> None:
    soaked["peers"]["gamecast"]["memory"] = {"first_mb": 100.0, "last_mb": 100.0 * (1 + change), "change": change}
    result = run("--clients", "6", "--seconds", str(seconds))
    assert result.exit_code == status
    assert ("memory changed by" in result.stderr) == bool(status)


def test_a_table_for_a_person_has_a_column_for_each_peer(soaked: dict[str, Any]) -> None:
    soaked["peers"]["socketio"] = measured()
    result = run(*SMALL)
    assert "socketio" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_server_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laboratory.bench.gateway_servers.START_S_MAX", 0.0)
    with (
        pytest.raises(ProcessFailed, match="the process of gateway said nothing for 0 s"),
        running(gateway, "redis://127.0.0.1:1"),
    ):
        pytest.fail("it started")
