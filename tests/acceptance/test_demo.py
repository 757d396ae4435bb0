"""`gamecast demo` and `gamecast audit`, as a new user calls them, and as they must fail when the order is broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import adapters.planning
import demo.replay
import gamecast
import sequencing.manager
import sequencing.subscriber
from cli.main import cli
from cli.running import status_of
from demo.match.hosting import build_workload
from demo.match.skirmish import generate_skirmish
from demo.match.trace import read_match
from launcher.ending import WRONG_USE
from placement.planner import make_plan
from sequencing.delivery import Delivery
from sequencing.plan import Plan
from tests.commands import call, gamecast_command
from tests.patience import besides_waiting
from tests.shared_data import BLACK_GOLD, needs_shared_data

KEYS = {
    *("regions", "subscribers", "overlaps", "atoms", "nodes", "published", "deliveries", "lost", "duplicated"),
    *("inversions", "cycles", "publisher_order_violations", "events_per_s", "deliveries_per_s", "plain"),
}
BROKEN = "lost", "duplicated", "inversions", "cycles", "publisher_order_violations"


@needs_shared_data
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_recorded_match_is_replayed_in_one_order_and_plain_pubsub_does_not(nodes: int) -> None:
    workload = build_workload(read_match(BLACK_GOLD))
    done = gamecast_command("demo", BLACK_GOLD, "--nodes", str(nodes), "--json")
    assert done.returncode == 0, done.stderr
    assert besides_waiting(done.stderr) == ""
    report = json.loads(done.stdout)
    assert report.keys() >= KEYS
    assert not any(report[key] for key in BROKEN), report
    assert report["nodes"] == nodes
    assert report["published"] == len(workload.publications) == 5884
    assert report["deliveries"] == sum(workload.expected_deliveries().values())
    assert (report["plain"]["inversions"] > 0) is (nodes > 1)


def test_a_generated_skirmish_tells_its_story_and_its_logs_are_judged(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = gamecast_command("demo", "--seed", "7", "--servers", "5", "--record", logs)
    assert done.returncode == 0, done.stderr
    for word in ("gamecast", "plain Pub/Sub", "regions", "atoms", "opposite orders", "all servers saw one order"):
        assert word in done.stdout
    assert sorted(file.name for file in logs.glob("*.jsonl")) == [f"server-{number}.jsonl" for number in range(1, 6)]
    audited = gamecast_command("audit", *logs.glob("*.jsonl"), "--json")
    assert audited.returncode == 0, audited.stdout
    report = json.loads(audited.stdout)
    expected = build_workload(generate_skirmish(7), servers=5).expected_deliveries()
    assert report["deliveries"] == sum(expected.values())
    assert (report["lost"], report["inversions"], report["cycles"], report["first"]) == (0, 0, 0, None)


def test_a_master_is_killed_in_the_middle_of_the_match_and_nothing_is_lost() -> None:
    done = gamecast_command("demo", "--replicas", "1", "--kill", "--nodes", "2", "--servers", "4", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert not any(report[key] for key in BROKEN), report
    killed = report["killed"]
    assert report["deliveries"] / 2 <= killed["after"] < report["deliveries"]
    assert 1 < killed["replaced_s"] <= killed["whole_s"]  # Sentinel waits for two seconds
    assert killed["slowest_s"] > 1
    assert killed["node"] in ("n1", "n2")


def test_moves_and_a_window_are_replayed_at_the_asked_speed() -> None:
    arguments = ("demo", "--moves", "--start-s", "100", "--duration-s", "20", "--speed", "20", "--nodes", "2", "--json")
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    workload = build_workload(generate_skirmish(1), start_s=100, duration_s=20, moves=True)
    assert report["deliveries"] == sum(workload.expected_deliveries().values())
    assert report["seconds"] > 0.8


def test_skipping_atoms_and_lanes_makes_demo_and_audit_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sequencing.subscriber, "Delivery", lambda epoch, regions, *_: Delivery(epoch, regions, ()))
    monkeypatch.setattr(Delivery, "join", partialmethod(_join_without_lanes, Delivery.join))
    done = call("demo", "--duration-s", "150", "--record", tmp_path / "logs", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.output)
    assert report["inversions"] > 0
    assert report["first"]["kind"] == "inversion"
    audited = call("audit", tmp_path / "logs", "--json")
    assert audited.exit_code == 1
    found = json.loads(audited.output)
    assert found["inversions"] == report["inversions"]
    assert len(found["first"]["events"]) == len(found["first"]["subscribers"]) == 2


def _join_without_lanes(
    self: Delivery, join: Callable[..., None], markers: Mapping[str, bytes], _lanes: object
) -> None:
    join(self, markers)


def test_a_reversed_path_is_not_installed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(adapters.planning, "make_plan", reversing(make_plan))
    monkeypatch.setattr(demo.replay, "SUBSCRIBE_S_MAX", 3.0)
    done = call("demo", "--json")
    assert isinstance(done.exception, gamecast.Unreachable)
    assert "C3" in caplog.text


def test_a_reversed_path_that_is_installed_makes_the_demo_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo.replay, "IDLE_S_MAX", 1.5)
    monkeypatch.setattr(demo.replay, "SUBSCRIBE_S_MAX", 3.0)
    monkeypatch.setattr(adapters.planning, "make_plan", reversing(make_plan))
    monkeypatch.setattr(sequencing.manager, "require_sound", lambda *_: None)
    done = call("demo", "--record", tmp_path / "logs", "--json")
    assert done.exit_code == 1, done.output
    if isinstance(done.exception, gamecast.Unreachable):
        return  # who joined last waits for ever already
    report = json.loads(done.output)
    assert report["lost"] + report["inversions"] > 0, "subscribers should wait for each other for ever, or disagree"
    audited = call("audit", tmp_path / "logs", "--json")
    assert audited.exit_code == 1
    assert json.loads(audited.output)["inversions"] == report["inversions"]


def reversing(planner: Callable[..., Plan]) -> Callable[..., Plan]:
    """Return a planner that turns the path of the busiest region with several nodes around."""
    events: Mapping[str, int] = _events_by_region()

    def make_reversed(*arguments: Any, **options: Any) -> Plan:
        plan = planner(*arguments, **options)
        busiest = max((r for r, path in plan.paths.items() if len(path) > 1), key=lambda region: events.get(region, 0))
        return replace(plan, paths={**plan.paths, busiest: plan.paths[busiest][::-1]})

    return make_reversed


def _events_by_region() -> dict[str, int]:
    counts: dict[str, int] = {}
    for publication in build_workload(generate_skirmish(1)).publications:
        counts[publication.region] = counts.get(publication.region, 0) + 1
    return counts


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("demo", "no/such/match"), "no/such/match"),
        (("demo", "--cell-m", "0"), "--cell-m"),
        (("demo", "--servers", "200"), "--servers"),
        (("demo", "--nodes", "0"), "--nodes"),
        (("demo", "--kill"), "--replicas"),
        (("demo", "--replicas", "1", "--roam"), "--roam"),
        (("demo", "--duration-s", "-1"), "--duration-s"),
        (("demo", "--start-s", "99999"), "--start-s"),
        (("demo", "--record", "/proc/nowhere"), "--record"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_use_ends_with_status_2_and_names_what_is_wrong(
    arguments: tuple[str, ...], names: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(cli, arguments) == WRONG_USE
    said, complained = capfd.readouterr()
    assert names in complained
    assert said == ""
    assert "Traceback" not in complained


def test_a_directory_with_other_servers_logs_is_not_recorded_into(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text("")
    done = gamecast_command("demo", "--record", tmp_path)
    assert done.returncode == 2
    assert "old.jsonl" in done.stderr


def test_options_have_twins_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMECAST_DEMO_NODES", "2")
    monkeypatch.setenv("GAMECAST_DEMO_DURATION_S", "60")
    done = call("demo", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["nodes"] == 2


@pytest.mark.parametrize("command", [(), ("demo",), ("audit",), ("bench",), ("node",)])
def test_help_teaches(command: tuple[str, ...]) -> None:
    done = call(*command, "--help")
    assert done.exit_code == 0
    assert len(done.output.splitlines()) > 8


def test_a_recorded_demo_writes_into_its_directory_only(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = gamecast_command("demo", "--servers", "3", "--duration-s", "10", "--record", logs)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == [logs]
    assert (logs / "published.ndjson").exists()
    judged = gamecast_command("audit", logs, "--json")
    assert json.loads(judged.stdout)["lost"] == 0, judged.stderr
