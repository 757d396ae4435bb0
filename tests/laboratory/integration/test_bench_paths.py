"""Paths of several nodes in the bench: events really take them, and the command says what they cost."""

from __future__ import annotations

import asyncio
from statistics import fmean

import orjson
import pytest
from click.testing import CliRunner

import gamecast
from adapters.redis.control import RedisControl
from laboratory.bench.peers.path import PathPeer, membership_of, plan_through_all
from laboratory.bench.stamps import measure_stamps
from laboratory.bench.workload import ring
from laboratory.commands.bench import bench
from sequencing.plan import Plan
from tests.patience import besides_waiting, patience

SMALL = ["--size", "4", "--runs", "1", "--events", "400", "--seconds", "0.2", "--rate", "500"]


def test_in_a_plan_through_all_nodes_each_region_visits_them_all() -> None:
    plan = plan_through_all(membership_of(ring(8)), {"n1": "", "n2": "redis://2", "n3": "redis://3"})
    assert set(plan.paths.values()) == {("n1", "n2", "n3")}
    assert len(plan.paths) == 8
    assert plan.atoms == ()


def test_events_take_the_planned_path_and_joins_change_nothing_of_it() -> None:
    grid = ring(4)

    async def deliver_one(url: str) -> tuple[object, Plan]:
        async with gamecast.connect(url, name=grid.subscribers[0]) as client, patience(20):
            await client.subscribe(*(grid.regions[at] for at in grid.members[0]))
            await client.publish(grid.regions[0], "it came")
            event = await anext(aiter(client))
            control = RedisControl(url)
            newest = await control.newest()
            await control.close()
            assert newest is not None
            assert isinstance(event, gamecast.Event)
            return event.payload, newest.plan

    with PathPeer("2 nodes", 2).site(grid) as site:
        assert len(site.servers) == 2
        assert len(site.relays) == 1
        payload, plan = asyncio.run(deliver_one(site.url))
    assert payload == "it came"
    assert plan.epoch == 2
    assert set(plan.paths.values()) == {("n1", "n2")}


async def test_a_stamp_grows_with_the_atoms_and_not_with_the_nodes() -> None:
    costs = await measure_stamps((1, 2), atoms=(0, 2, 4), frames=60)
    sizes = {(cost.nodes, cost.atoms): cost.stamp_bytes for cost in costs}
    of_node = [fmean(len(f"0,{number}") for number in range(first, first + 60)) for first in (1, 61, 121)]
    assert sizes[1, 0] == sizes[2, 0] == pytest.approx(of_node[0])
    # "107,9" is 5 bytes, from the tenth frame on 6, and a comma before each.
    of_two_atoms = 2 * (9 * 6 + 51 * 7) / 60
    assert sizes[1, 2] == sizes[2, 2] == pytest.approx(of_node[1] + of_two_atoms)
    assert sizes[1, 4] == pytest.approx(of_node[2] + 2 * of_two_atoms)
    assert all((cost.link_bytes > 0) == (cost.nodes == 2) for cost in costs)
    assert all(cost.frame_bytes > cost.stamp_bytes for cost in costs)


def test_the_command_prints_paths_hops_and_stamps_with_ratios_to_one_node() -> None:
    result = CliRunner().invoke(bench, ["paths", "--longest", "2", "--json", *SMALL])
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    assert set(document["paths"]) == {"1", "2"}
    one, two = document["paths"]["1"], document["paths"]["2"]
    assert one["lost"] == two["lost"] == two["duplicated"] == two["pairs_out_of_order"] == 0
    assert document["ratios"]["deliveries_per_s"]["2"] == pytest.approx(
        two["deliveries_per_s"] / one["deliveries_per_s"]
    )
    assert document["per_hop"]["2"]["p50_ms"] == pytest.approx(two["p50_ms"] - one["p50_ms"])
    assert document["per_hop"]["1"] == {}
    assert {(cost["nodes"], cost["atoms"]) for cost in document["stamps"]} >= {(1, 0), (2, 16)}
    assert document["script"].keys() == {"0", "10", "60"}
    assert len({cost["stamp_bytes"] for cost in document["script"].values()}) == 1
    assert besides_waiting(result.stderr) == ""


def test_the_command_prints_tables_for_a_person() -> None:
    result = CliRunner().invoke(bench, ["paths", "--longest", "1", *SMALL], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "atoms passed" in result.stdout
    assert "1 node" in result.stdout
    assert "a hop adds" not in result.stdout
    assert "regions beside it" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"), [(["--longest", "0"], "--longest"), (["--size", "2"], "--size"), (["--runs", "x"], "x")]
)
def test_wrong_use_is_said_before_anything_is_started(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["paths", *arguments])
    assert result.exit_code == 2
    assert complaint in result.stderr
