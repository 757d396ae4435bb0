"""What `/metrics` says of a network while surveys fail, and while nodes are silent."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.redis.networkstate import LinkState, NetworkState, RegionState
from adapters.redis.refusals import REFUSALS
from gamecast.holding import HOLD_BOUNDS_MS
from gateway import networkmetrics as module
from gateway.metrics import OTHER, REGIONS_MAX
from gateway.networkmetrics import NetworkMetrics
from sequencing.errors import Unreachable
from tests.servers_seen import SERVER
from tests.unit.gateway.test_dashboard_snapshot import network, node, region, silent

SURVEYED = ("gamecast_node_up", "gamecast_link_frames", "gamecast_plan_regions", "gamecast_region_events")


class Looks:
    """Surveys as they come, and the metrics that follow from each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        none_held = [0] * (len(HOLD_BOUNDS_MS) + 1)
        connections = SimpleNamespace(statistics=list, hold_counts=lambda: none_held, named_statistics=list)
        gateway: Any = SimpleNamespace(connections=connections, places=list)
        self._metrics = NetworkMetrics("redis://made-up", gateway)
        self._next: NetworkState | Exception = network()
        monkeypatch.setattr(module, "SURVEY_EVERY_S", 0.0)
        monkeypatch.setattr(module, "survey", self._survey)

    async def _survey(self, url: str, **options: Any) -> NetworkState:
        if isinstance(self._next, Exception):
            raise self._next
        return self._next

    async def after(self, found: NetworkState | Exception) -> dict[str, dict[str, float]]:
        """Return metric → labels → value after this survey."""
        self._next = found
        await self._metrics.look()
        return {
            family.name: {",".join(each.labels.values()): each.value for each in family.samples}
            for family in self._metrics.collect()
        }


@pytest.mark.parametrize("error", [Unreachable("it hangs"), TimeoutError(), OverflowError("inf")])
async def test_a_network_that_cannot_be_surveyed_has_no_figures_of_an_earlier_survey(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    looks = Looks(monkeypatch)
    there = await looks.after(network())
    assert there["gamecast_control_up"] == {"": 1}
    assert there.keys() >= set(SURVEYED)
    gone = await looks.after(error)
    assert gone["gamecast_control_up"] == {"": 0}
    assert not gone.keys() & set(SURVEYED)
    assert "gamecast_gateway_held_frames" in gone
    assert (await looks.after(network())).keys() >= set(SURVEYED)


async def test_a_link_is_labelled_with_its_two_nodes_whatever_its_lanes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = (LinkState("n2#" + "a" * 40, 3, "1-0"), LinkState("n2#" + "b" * 40, 4, "9-0"), LinkState("n3", 0, ""))
    found = await Looks(monkeypatch).after(network(nodes=(node("n1", links=lanes), node("n2"))))
    assert found["gamecast_link_frames"] == {"n1,n2": 7, "n1,n3": 0}


async def test_a_region_whose_egress_lost_its_data_has_no_lag_and_not_all_that_was_ever_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emptied = (node("n1"), node("n2", lacking=frozenset({"forest"})))
    state = network(nodes=emptied, regions=(region("forest", 5_000, last=0), region("river", 10)))
    assert (await Looks(monkeypatch).after(state))["gamecast_region_lag_events"] == {"river": 0}


async def test_whether_somebody_leads_is_said_unless_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    for leader, value in (("s1", {"": 1}), ("", {"": 0}), (None, {})):
        assert (await looks.after(network(leader=leader)))["gamecast_leader"] == value
    assert (await looks.after(network()))["gamecast_connections"] == {"": 2}
    assert (await looks.after(network(connections_unread=True)))["gamecast_connections"] == {}


async def test_a_redis_that_refuses_writes_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    full = node("n1", server=replace(SERVER, refuses=("memory", "disk")))
    looks = Looks(monkeypatch)
    state = network(nodes=(full, node("n2"), silent("n3")), control=replace(SERVER, refuses=("replicas",)))
    refused = (await looks.after(state))["gamecast_writes_refused"]
    assert {labels for labels, value in refused.items() if value} == {"n1,memory", "n1,disk", "control,replicas"}
    assert len(refused) == 3 * len(REFUSALS), "n3 does not answer"
    sole = network(nodes=(node("control", server=replace(SERVER, refuses=("disk",))),))
    refused = (await looks.after(sole))["gamecast_writes_refused"]
    assert (len(refused), refused["control,disk"]) == (len(REFUSALS), 1)


async def test_the_memory_of_a_node_has_a_limit_its_own_or_that_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (
        node("n1", server=replace(SERVER, memory_bytes_max=2_000)),
        node("n2", server=replace(SERVER, memory_bytes_max=0, machine_bytes=9_000)),
        node("n3", server=replace(SERVER, memory_bytes=None, memory_bytes_max=None, machine_bytes=0)),
    )
    found = await Looks(monkeypatch).after(network(nodes=nodes))
    assert found["gamecast_node_memory_max_bytes"] == {"n1": 2_000, "n2": 9_000}
    assert found["gamecast_node_memory_bytes"].keys() == {"n1", "n2"}, "what is not reported is not 0"


async def test_the_counter_of_all_other_regions_never_falls_when_a_node_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prometheus takes a counter that falls for a restart, and counts all of it once more."""
    looks = Looks(monkeypatch)

    def numbered(name: str, drawn: int | None) -> RegionState:
        return RegionState(name, ("n1",), 1, 10, 1, drawn, drawn)

    named = [numbered(f"a{number:03}", 1) for number in range(REGIONS_MAX)]
    rest = [numbered("x", 1_000), numbered("y", 500)]

    async def other(*regions: Any) -> float:
        found = await looks.after(network(regions=(*named, *regions)))
        return found["gamecast_region_events"][OTHER]

    assert await other(*rest) == 1_500
    assert await other(rest[0], numbered("y", None)) == 1_500
    assert await other(numbered("x", 1_010), numbered("y", 520)) == 1_530
    assert await other(numbered("x", 4), numbered("y", 520)) == 1_534, "its server has lost data"
    assert await other(replace(numbered("x", 3), epoch=2), numbered("y", 520)) == 1_537, "a new epoch counts from 0"
    assert await other(replace(numbered("x", 3), epoch=2)) == 1_537, "a region that is gone has counted"
