"""`gamecast demo --roam`: servers follow their players, and nothing that a stay owes them is lost or out of order."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import demo.replay
import sequencing.subscriber
from demo.match.hosting import build_workload
from demo.match.skirmish import generate_skirmish
from gamecast.client.incoming import Incoming
from gamecast.event import Item
from sequencing.delivery import Delivery
from sequencing.ready import Missing, Ready
from sequencing.subscriber import Subscriber
from tests.commands import call, gamecast_command
from tests.patience import besides_waiting
from tests.shared_data import BLACK_GOLD, needs_shared_data

BROKEN = "lost", "duplicated", "unexpected", "inversions", "cycles", "publisher_order_violations"


def check_figures(report: dict[str, Any], nodes: int = 3) -> None:
    assert not any(report[key] for key in BROKEN), report
    assert not any(report["plain"][key] for key in ("lost", "duplicated", "unexpected")), report["plain"]
    assert (report["epochs"] > 0) == (nodes > 1), "what ends at one node has its order, whoever joins what"
    assert 0 <= report["joins_in_place"] <= report["joins"]
    assert 0 < report["join_ms"]["p50"] <= report["join_ms"]["p99"] <= report["join_ms"]["max"]
    for replayed in (report, report["plain"]):
        assert replayed["joins"] > 20
        assert replayed["leaves"] > 20
        assert replayed["deliveries"] > replayed["published"]


def test_servers_of_a_skirmish_follow_their_players() -> None:
    done = gamecast_command("demo", "--roam", "--nodes", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert besides_waiting(done.stderr) == ""
    report = json.loads(done.stdout)
    check_figures(report)
    workload = build_workload(generate_skirmish(1), roam=True)
    assert report["nodes"] == 3
    assert report["published"] == len(workload.publications)
    joins = sum(len(change.joins) for changes in workload.changes.values() for change in changes)
    assert report["joins"] + report["joins_cut_short"] < joins, "those before the replay began do not count"
    assert report["deliveries"] <= sum(build_workload(generate_skirmish(1)).expected_deliveries().values())


WINDOWS = [
    pytest.param(["--seed", "1", "--duration-s", "200"], id="skirmish 1"),
    pytest.param(["--seed", "2", "--duration-s", "200"], id="skirmish 2"),
    pytest.param([BLACK_GOLD, "--duration-s", "300"], id="recorded", marks=needs_shared_data),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_what_a_server_is_in_is_ordered_at_every_moment(window: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """That deliveries come in one order may be luck: here each step of each subscriber is looked at."""
    go_on = Subscriber._go_on
    looked_at, loose = 0, []

    def look(self: Subscriber) -> list[Ready | Missing]:
        nonlocal looked_at
        items = go_on(self)
        for pair, is_bound in bound_pairs(self).items():
            looked_at += 1
            if not is_bound:
                loose.append((self.name, pair))
        return items

    monkeypatch.setattr(Subscriber, "_go_on", look)
    done = call("demo", *window, "--roam", "--json")
    assert done.exit_code == 0, done.output
    assert looked_at > 1_000
    assert loose == []


def bound_pairs(subscriber: Subscriber) -> dict[tuple[str, str], bool]:
    """Return, of regions that are handed out in one epoch and have an atom or a node in common, whether one binds."""
    bound: dict[tuple[str, str], bool] = {}
    for number, epoch in subscriber._epochs.all.items():
        delivery = epoch.delivery
        atoms_of, streams = delivery._ordering._atoms_of, delivery._lanes._streams
        regions = {region for region in subscriber.joined if subscriber._regions.all[region].epoch == number}
        for atom in {atom.id: atom for region in regions for atom in atoms_of.get(region, ())}.values():
            binds = delivery.binds(atom) and delivery.regions >= set(atom.regions)
            for pair in combinations(sorted(regions.intersection(atom.regions)), 2):
                bound[pair] = bound.get(pair, False) or binds
        for one, other in combinations(sorted(regions), 2):
            if streams[one].lane == streams[other].lane:
                bound[one, other] = True
    return bound


@needs_shared_data
def test_servers_of_a_recorded_match_follow_their_players() -> None:
    done = gamecast_command("demo", BLACK_GOLD, "--roam", "--start-s", "600", "--duration-s", "300", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    check_figures(report)
    assert report["joins"] > 100


def test_the_story_tells_how_servers_roamed_and_the_logs_are_judged_by_stays(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = gamecast_command("demo", "--roam", "--moves", "--duration-s", "100", "--record", logs)
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    for words in ("followed their players", "new epochs", "A join took", "all servers saw one order"):
        assert words in told
    audited = gamecast_command("audit", logs, "--json")
    assert audited.returncode == 0, audited.stdout
    report = json.loads(audited.stdout)
    assert not any(report[key] for key in BROKEN)
    assert '"stay"' in (logs / "server-1.jsonl").read_text()
    # Without the stays, what servers did not hear of while they were elsewhere would count as lost.
    for log in logs.glob("*.jsonl"):
        log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"stay"' not in line))
    assert json.loads(gamecast_command("audit", logs, "--json").stdout)["lost"] > 0


def test_at_a_speed_servers_join_when_their_players_come() -> None:
    done = call("demo", "--roam", "--duration-s", "60", "--speed", "30", "--servers", "4", "--nodes", "2", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert not any(report[key] for key in BROKEN), report
    assert 1.5 < report["seconds"] < 20


def test_skipping_an_atoms_check_makes_demo_and_audit_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sequencing.subscriber, "Delivery", lambda epoch, regions, *_: Delivery(epoch, regions, ()))
    done = call("demo", "--roam", "--duration-s", "150", "--record", tmp_path / "logs", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.output)
    assert report["inversions"] > 0
    audited = call("audit", tmp_path / "logs", "--json")
    assert audited.exit_code == 1
    assert json.loads(audited.output)["inversions"] == report["inversions"]


def test_a_delivery_that_is_dropped_makes_demo_and_audit_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo.replay, "IDLE_S_MAX", 1.5)
    next_batch = Incoming.next_batch
    handed_out = 0

    async def next_batch_but_one(self: Incoming) -> list[Item] | None:
        nonlocal handed_out
        batch = await next_batch(self)
        handed_out += len(batch or ())
        if batch and handed_out > 1_000:
            handed_out = 0
            del batch[0]
        return batch

    monkeypatch.setattr(Incoming, "next_batch", next_batch_but_one)
    done = call("demo", "--roam", "--duration-s", "150", "--record", tmp_path / "logs", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.output)
    assert report["lost"] > 0
    assert report["first"]["kind"] == "lost"
    audited = call("audit", tmp_path / "logs", "--json")
    assert audited.exit_code == 1
    assert json.loads(audited.output)["lost"] == report["lost"]
