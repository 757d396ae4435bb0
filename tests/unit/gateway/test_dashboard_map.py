"""The columns of the dashboard's map, and its curves of nodes and links."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.redis.networkstate import LinkState, NetworkState, NodeState
from gateway.dashboard import delays as module
from gateway.dashboard import regionmap
from gateway.dashboard.delays import Delays
from gateway.dashboard.history import BUCKET_MS, OLD_POINTS, RECENT_POINTS
from gateway.dashboard.regionmap import RegionMap, columns
from tests.servers_seen import SERVER
from tests.unit.gateway.test_dashboard_snapshot import later, network, node, region, silent, snapshot

NAMES = ("castle", "forest", "river")
ARROW = "n1 → n2"


async def unzipped(made: RegionMap, shown: Any, known: str = "") -> Any:
    return json.loads(gzip.decompress(await made.zipped(shown, known)))


async def test_names_and_paths_are_sent_again_only_when_they_changed() -> None:
    made = RegionMap()
    first = await unzipped(made, snapshot(network(100), network(140)))
    assert first["layout"] == {"names": list(NAMES), "paths": [["n1", "n2"], ["n2"]], "path": [0, 0, 1]}
    assert first["events_per_s"] == [40, 20, 0]
    second = await unzipped(made, snapshot(network(140), network(150)), first["version"])
    assert "layout" not in second
    assert second["version"] == first["version"]
    fewer = network(150, regions=network(150).regions[:2])
    third = await unzipped(made, snapshot(network(140), fewer), first["version"])
    assert third["layout"]["names"] == ["forest", "river"]


async def test_a_look_is_encoded_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0

    def counting(*args: Any) -> Any:
        nonlocal encoded
        encoded += 1
        return columns(*args)

    monkeypatch.setattr(regionmap, "columns", counting)
    made, shown = RegionMap(), snapshot(network(100), network(140))
    for known in ("", "", "another version"):
        await made.zipped(shown, known)
    assert encoded == 1


def test_what_is_stuck_behind_or_unknown_has_its_own_state_and_no_invented_figure() -> None:
    state = network(
        nodes=(node("n1"), silent("n2")),
        regions=(replace(region("forest", 140), last=None), region("river", None, 10, at_s=None), region("castle", 9)),
    )
    found = columns(snapshot(network(100), state), NAMES)
    assert found["states"] == "222"
    assert [found["places"][place] for place in found["stuck_at"]] == [("n2",)] * 3
    assert found["behind"] == [0, None, None]
    unread = network(
        nodes=(node("n1"), node("n2")),
        regions=(region("forest", 140), region("river", None, 10, at_s=None), region("castle", 280)),
    )
    found = columns(snapshot(network(100, nodes=unread.nodes), unread), NAMES)
    assert (found["states"], found["stuck_at"]) == ("003", [])
    assert found["events_per_s"][2] is None


async def test_a_map_with_too_many_regions_says_how_many_it_lacks_and_how_many_of_them_are_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regionmap, "REGIONS_MAX", 1)
    state = network(nodes=(node("n1"), silent("n2")))
    found = await unzipped(RegionMap(), snapshot(network(), state))
    assert found["layout"]["names"] == ["castle"]
    assert (found["more"], found["more_stuck"]) == (2, 2)


def linked(sent: int | None, frames: int, *, round_trip_ms: float | None = 0.5) -> NetworkState:
    """Return a network whose one link was given ``sent`` frames, of which the last ones wait."""
    first = node("n1", links=(LinkState("n2", frames, "x", sent),), server=replace(SERVER, round_trip_ms=round_trip_ms))
    return network(nodes=(first, node("n2")))


def waits(looks: list[tuple[float, NetworkState]]) -> list[float | None]:
    curves = Delays()
    for at_s, state in looks:
        curves.add(later(state, at_s), round(at_s * 1000))
    shown = curves.document()["waits"]
    [curve] = [curve for name, curve in zip(shown["names"], shown["ms"], strict=True) if name == ARROW]
    return list(curve)


def test_the_first_waiting_frame_is_as_old_as_the_first_look_that_counted_it() -> None:
    looks = [(0.0, linked(10, 0)), (2.0, linked(15, 5)), (4.0, linked(25, 12)), (6.0, linked(25, 12))]
    # Frame 11 waits since 2 s; frame 14 waited at 4 s, and was counted at 2 s; it still waits at 6 s.
    assert waits(looks) == [0, 0, 2000, 4000]


def test_a_link_whose_source_is_silent_or_hides_its_counters_has_a_gap_and_not_zero() -> None:
    hung = network(nodes=(silent("n1"), node("n2")))
    hidden = network(nodes=(node("n1", accepted=None), node("n2")))
    looks = [(0.0, linked(10, 2)), (2.0, hung), (4.0, hidden), (6.0, linked(10, 2)), (8.0, linked(None, 2))]
    assert waits(looks) == [0, None, None, 6000, None]


def test_a_counter_that_fell_begins_again() -> None:
    assert waits([(0.0, linked(50, 9)), (2.0, linked(5, 3)), (4.0, linked(5, 3))]) == [0, 0, 2000]


def test_the_ages_of_a_long_jam_stay_lower_bounds_when_counts_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTS_KEPT", 10)
    looks = [(float(at), linked(10 + at, 1 + at)) for at in range(60)]
    found = waits(looks)
    assert found[-1] == 59_000  # the first frame of all still waits, and its look is kept


def test_a_node_that_does_not_answer_or_a_look_that_fails_is_a_gap() -> None:
    curves = Delays()
    curves.add(linked(1, 0, round_trip_ms=1.234), 0)
    curves.missed(2_000)
    curves.add(network(nodes=(silent("n1"), node("n2"))), 4_000)
    shown = curves.document()
    assert shown["at_ms"] == [0, 2_000, 4_000]
    assert dict(zip(shown["answers"]["names"], shown["answers"]["ms"], strict=True)) == {
        "n1": [1.23, None, None], "n2": [0.5, None, 0.5]
    }  # fmt: skip
    assert shown["answers"]["names"] == ["n1", "n2"], "what is unknown comes first"


def test_old_points_are_the_largest_of_10_s_and_at_most_an_hour() -> None:
    curves = Delays()
    number = RECENT_POINTS + 5 * (OLD_POINTS + 10)
    for look in range(number):
        curves.add(linked(1, 0, round_trip_ms=float(look)), look * BUCKET_MS // 5)
    shown = curves.document()
    assert len(shown["at_ms"]) == RECENT_POINTS + OLD_POINTS
    answers = shown["answers"]["ms"][shown["answers"]["names"].index("n1")]
    assert answers[OLD_POINTS - 1] == number - RECENT_POINTS - 1


def test_curves_are_bounded_and_those_with_the_largest_figures_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODES_SHOWN", 2)
    nodes = tuple(node(f"n{n}", server=replace(SERVER, round_trip_ms=float(n))) for n in range(5))
    curves = Delays()
    curves.add(network(nodes=nodes), 0)
    shown = curves.document()["answers"]
    assert (shown["of"], shown["names"]) == (5, ["n4", "n3"])


async def test_a_map_of_10_000_regions_costs_little() -> None:
    """Not a benchmark: a bound that only an algorithm of the wrong order breaks."""
    names = [f"cell:{n % 100}:{n // 100}" for n in range(10_000)]
    one = region("forest", 500)
    before = network(regions=tuple(replace(one, name=name) for name in names))
    made, known, took_s, zipped = RegionMap(), "", 0.0, b""
    for turn in range(3):
        moved = tuple(replace(one, name=name, drawn=500 + n * turn % 97) for n, name in enumerate(names))
        shown = snapshot(before, replace(before, regions=moved))
        assert len(shown.regions) == 10_000  # the summary makes them, with or without a map
        began_s = time.process_time()
        zipped = await made.zipped(shown, known)
        took_s = time.process_time() - began_s
        known = json.loads(gzip.decompress(zipped))["version"]
    assert took_s < 0.5
    assert len(zipped) < 60_000


def test_nodes_without_a_server_are_not_asked_for_their_links() -> None:
    bare = NodeState("n3", "redis://n3", "redis://n3", True, True, False, trouble="nothing answers")
    curves = Delays()
    curves.add(network(nodes=(node("n1"), node("n2"), bare)), 0)
    assert curves.document()["answers"]["names"][0] == "n3"
