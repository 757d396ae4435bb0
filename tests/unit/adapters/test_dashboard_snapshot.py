"""What the dashboard makes of two looks at a network: rates, flows, lists, notes, and who is told what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.gateway.dashboard.notes import happened
from adapters.gateway.dashboard.snapshot import ROWS_MAX, Snapshot, page
from adapters.redis.networkstate import ConnectionState, LinkState, NetworkState, NodeState, RegionState
from adapters.redis.probe import ServerState
from sequencing.plan import Atom, AtomId, Plan

SERVER = ServerState(
    run="r1",
    pid=1,
    version="7.2.0",
    role="master",
    memory_bytes=1_000_000,
    memory_bytes_max=0,
    machine_bytes=10**10,
    memory_policy="noeviction",
    append_only=True,
    appendfsync="always",
    save="",
    clock_ahead_ms=0.0,
    round_trip_ms=0.5,
)
PATHS = {"forest": ("n1", "n2"), "river": ("n2",), "castle": ("n1", "n2")}


def node(name: str, **fields: Any) -> NodeState:
    given: dict[str, Any] = {"server": replace(SERVER, run=f"run of {name}"), "installed": (1, 1)}
    return NodeState(name, f"redis://{name}", f"redis://{name}", True, True, False, **(given | fields))


def region(name: str, drawn: int | None, last: int | None = None, epoch: int = 1) -> RegionState:
    return RegionState(name, PATHS[name], epoch, 10, 1, drawn if last is None else last, drawn, 100)


def connection(name: str, *regions: str, waiting: tuple[str, ...] = (), alive: bool = True) -> ConnectionState:
    return ConnectionState(name, 1, frozenset(regions), frozenset(waiting), 100 if alive else 20_000, alive)


def network(drawn: int = 100, **fields: Any) -> NetworkState:
    plan = Plan(
        1,
        1,
        "acyclic",
        {"n1": "", "n2": "redis://n2"},
        PATHS,
        (Atom(AtomId(1), ("forest", "castle"), "n1"), Atom(AtomId(2), ("forest", "river"), "n2")),
    )
    given: dict[str, Any] = {
        "where": "redis://n1",
        "control": SERVER,
        "plan": plan,
        "transition": None,
        "leader": "s1",
        "lease_ms": 3000,
        "nodes": (node("n1", links=(LinkState("n2", 7, "0-1"),)), node("n2")),
        "connections": (connection("s1", "forest", "river"), connection("s2", "forest", waiting=("forest",))),
        "unplaced": frozenset(),
        "regions": (region("forest", drawn), region("river", 10), region("castle", drawn * 2)),
    }
    return NetworkState(**(given | fields))


def snapshot(before: NetworkState, now: NetworkState, apart_s: float = 2.0) -> Snapshot:
    return Snapshot(before, now, apart_s, 1_000, 12.3)


def test_rates_are_what_ingresses_numbered_between_the_looks_and_flow_along_the_paths() -> None:
    shown = snapshot(network(100), network(140)).summary()
    assert shown["totals"]["events_per_s"] == 20 + 40
    assert {row["name"]: row["events_per_s"] for row in shown["nodes"]} == {"n1": 60, "n2": 60}
    assert shown["links"] == [{"from": "n1", "to": "n2", "regions": 2, "events_per_s": 60, "waiting_frames": 7}]
    assert shown["totals"]["busy_regions"] == 2
    assert [row["atoms"] for row in sorted(shown["nodes"], key=lambda row: row["name"])] == [1, 1]


def test_a_region_that_began_a_new_epoch_counts_from_its_beginning() -> None:
    now = network(140, regions=(region("forest", 6, epoch=2), region("river", 10), region("castle", 200)))
    assert snapshot(network(100), now).rates == {"forest": 3.0, "river": 0.0, "castle": 0.0}


def test_what_a_node_does_not_tell_is_no_rate_and_not_nothing() -> None:
    now = network(140, regions=(region("forest", None), region("river", 10), region("castle", 200)))
    shown = snapshot(network(100), now)
    assert "forest" not in shown.rates
    assert shown.regions["forest"]["behind"] is None


def test_one_look_alone_raises_no_alert_about_what_moves() -> None:
    state = network(100, regions=(region("forest", 100, last=120), region("river", 10), region("castle", 200)))
    assert snapshot(state, state, apart_s=0.0).alerts == []
    again = network(110, regions=(region("forest", 110, last=120), region("river", 10), region("castle", 220)))
    assert "regions" in [alert.subject for alert in snapshot(state, again).alerts]


def test_alerts_are_the_doctors_problems_first() -> None:
    lossy = node("n2", server=replace(SERVER, run="other", append_only=False))
    down = node("n1", server=None, trouble="nothing answers")
    now = network(140, nodes=(lossy, down))
    alerts = snapshot(network(100), now).alerts
    assert ("problem", "n1") in [(alert.level, alert.subject) for alert in alerts]
    levels = [alert.level for alert in alerts]
    assert levels == sorted(levels)
    assert set(levels) == {"problem", "warning"}


def test_a_region_is_shown_with_its_atoms_and_who_follows_it() -> None:
    shown = snapshot(network(100), network(140)).region("forest")
    assert shown is not None
    assert shown["atoms_list"] == [
        {"id": 1, "node": "n1", "with": ["castle"]},
        {"id": 2, "node": "n2", "with": ["river"]},
    ]
    assert shown["subscribers_list"] == [{"name": "s1", "waiting": False}, {"name": "s2", "waiting": True}]
    assert snapshot(network(), network()).region("nowhere") is None


def test_who_is_gone_does_not_count_as_a_subscriber() -> None:
    now = network(140, connections=(connection("s1", "forest", alive=False),))
    shown = snapshot(network(100), now)
    assert shown.regions["forest"]["subscribers"] == 0
    gone = shown.subscriber("s1")
    assert gone is not None
    assert gone["regions_list"] == [{"name": "forest", "waiting": False}]
    assert shown.subscriber("s9") is None


def rows(number: int) -> list[dict[str, Any]]:
    return [{"name": f"cell:{place:04}", "events_per_s": place % 7, "behind": None if place % 5 else place}
            for place in range(number)]  # fmt: skip


def test_a_page_of_a_list_is_searched_sorted_and_never_longer_than_its_limit() -> None:
    first = page(rows(3_000), search="", order="events_per_s", descending=True, offset=0, limit=10**6)
    assert (first["matching"], len(first["rows"])) == (3_000, ROWS_MAX)
    assert first["rows"][0] == {"name": "cell:0006", "events_per_s": 6, "behind": None}
    found = page(rows(3_000), search="CELL:29", order="name", descending=True, offset=98, limit=5)
    assert (found["matching"], [row["name"] for row in found["rows"]]) == (100, ["cell:2901", "cell:2900"])
    unknown_last = page(rows(6), search="", order="behind", descending=True, offset=0, limit=9)["rows"]
    assert [row["behind"] for row in unknown_last] == [5, 0, None, None, None, None]


def said(before: NetworkState, now: NetworkState) -> list[str]:
    return [note.text for note in happened(before, now, 1)]


def test_what_is_different_is_told_in_words() -> None:
    before = network()
    assert said(before, network(200)) == []
    assert said(before, network(nodes=(node("n1"), node("n2", server=None, trouble="gone fishing")))) == [
        "n2 does not answer: gone fishing"
    ]
    assert said(before, network(nodes=(node("n1"), node("n2", server=SERVER)))) == ["the server of n2 was restarted"]
    assert said(before, network(leader="")) == ["no leader is running"]
    come = (connection("s2", alive=False), connection("s3", "river"))
    assert said(before, network(connections=come)) == [
        "1 subscriber joined: s3",
        "1 subscriber left: s1",
        "1 subscriber disconnected without leaving: s2",
    ]


def test_epochs_and_versions_are_told_with_what_they_change() -> None:
    before = network()
    assert before.plan is not None
    paths = {**before.plan.paths, "cave": ("n1",), "river": ("n1", "n2")}
    grown = replace(before.plan, version=2, paths=paths, atoms=before.plan.atoms[:1])
    assert said(before, network(plan=grown)) == [
        "plan 1.2: 1 new region (cave); 1 path changed (river); 1 atom retired"
    ]
    turned = replace(before.plan, epoch=2, epochs={"river": 1, "castle": 1})
    assert said(before, network(plan=turned)) == [
        "epoch 2 begins for 1 region: forest",
        "plan 2.1: the same paths and atoms",
    ]
