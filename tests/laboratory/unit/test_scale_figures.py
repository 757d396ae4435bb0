"""The figures of a world are those that a count by hand, and the nodes' own state machines, come to."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from laboratory.scale.figures import (
    EVENT_US,
    FRAME_US,
    PUSH_US,
    TICKS_PER_S,
    frames_per_s,
    measured,
    plan_cost,
    region_us,
    stamp_bytes,
    world_figures,
)
from placement.planner import make_plan
from placement.planning.worlds import World, WorldSpec, made
from sequencing.frames import PublishedFrame, encode_json_body
from sequencing.node import Node
from sequencing.plan import Plan

SPEC = WorldSpec(5, 4, 6, 90, "flocks", seed=2, speed=0.6)
NODES = {"n1": "", "n2": "", "n3": ""}


@pytest.fixture(scope="module")
def world() -> World:
    return made(SPEC)


@pytest.fixture(scope="module")
def plan(world: World) -> Plan:
    # A capacity forces the paths apart, so that there are atoms and links.
    made_plan = make_plan(world.membership, NODES, rates=world.rates, capacity=50.0)
    assert made_plan.atoms
    assert max(map(len, made_plan.paths.values())) > 1
    return made_plan


def frames_by_hand(world: World) -> dict[str, float]:
    players: dict[tuple[str, int], int] = {}
    for east, south, server in zip(world.east, world.south, world.server, strict=True):
        key = f"world:{int(east)}:{int(south)}", int(server)
        players[key] = players.get(key, 0) + 1
    frames = dict.fromkeys(world.membership.regions, 0.0)
    for (region, _), count in players.items():
        frames[region] += TICKS_PER_S * (1 - math.exp(-count / TICKS_PER_S))
    return frames


def subscribers_by_hand(world: World, region: str) -> int:
    return sum(region in regions for regions in world.membership.regions_of.values())


def test_the_world_s_figures_are_those_of_a_count(world: World) -> None:
    found, regions_of = world_figures(world), world.membership.regions_of
    pairs = combinations(world.membership.regions, 2)
    assert found.overlaps == sum(sum({a, b} <= mine for mine in regions_of.values()) >= 2 for a, b in pairs)
    assert found.subscriptions == sum(map(len, regions_of.values()))
    assert found.subscribers_max == max(subscribers_by_hand(world, region) for region in world.membership.regions)
    assert found.events_per_s == 90
    frames = frames_by_hand(world)
    assert found.frames_per_s == pytest.approx(sum(frames.values()))
    assert found.pushes_per_s == pytest.approx(sum(frames[r] * subscribers_by_hand(world, r) for r in frames))
    assert found.joins_per_s == world.joins_per_s > 0
    assert found.move_us > 0


def test_a_plan_s_figures_are_those_of_a_count(world: World, plan: Plan) -> None:
    found, frames, rates = plan_cost(world, plan), frames_by_hand(world), world.rates
    events, us = dict.fromkeys(NODES, 0.0), dict.fromkeys(NODES, 0.0)
    for region, path in plan.paths.items():
        for node in path:
            events[node] += rates[region]
            us[node] += frames[region] * FRAME_US + rates[region] * EVENT_US
        us[path[-1]] += frames[region] * subscribers_by_hand(world, region) * PUSH_US
    assert found.busiest_events_per_s == max(events.values())
    assert found.busiest_cores == pytest.approx(max(us.values()) / 1e6)
    total = sum(frames.values())
    passed = {region: sum(region in atom.regions for atom in plan.atoms) for region in frames}
    assert found.atoms == len(plan.atoms)
    assert found.atoms_per_path == pytest.approx(sum(frames[r] * passed[r] for r in frames) / total)
    assert found.path_nodes == pytest.approx(sum(frames[r] * len(plan.paths[r]) for r in frames) / total)


def test_one_node_carries_all_regions(world: World) -> None:
    alone = plan_cost(world, make_plan(world.membership, {"n1": ""}, rates=world.rates))
    assert (alone.atoms, alone.busiest_events_per_s, alone.used) == (0, 90, 1)
    assert alone.busiest_cores == pytest.approx(region_us(world).sum() / 1e6)


def test_stamps_have_the_bytes_that_the_nodes_write(world: World, plan: Plan) -> None:
    """Each region gets so many frames, and one region the last of all: its last stamp has all the totals."""
    frames, names = 12, plan.paths
    foreseen = stamp_bytes(plan, world.membership.regions, np.ones(len(names)), frames)
    for place, last in enumerate(world.membership.regions):
        nodes = {name: Node(name) for name in plan.nodes}
        for name, node in nodes.items():
            node.install(plan.epoch, plan.version, plan.steps(name))
        for region in [*(name for name in names if name != last), last]:
            for number in range(1, frames + 1):
                body = encode_json_body([0], [b"1"])
                nodes[plan.paths[region][0]].publish([PublishedFrame(region, plan.epoch, "p", 1, number, 1, body)])
                for source, target in zip(plan.paths[region], plan.paths[region][1:], strict=False):
                    answer = nodes[target].transfer(source, nodes[source].links[target])
                    nodes[source].acknowledge(target, answer.accepted)
        stamped = nodes[plan.paths[last][-1]].egress[plan.epoch, last]
        assert len(stamped) == frames
        assert len(stamped[-1].stamp) == foreseen[place]


def test_a_world_is_measured_in_a_process_of_its_own(world: World) -> None:
    stages: list[str] = []
    found = measured(SPEC, (1, 3), timeout_s=60, on_stage=stages.append)
    assert found is not None
    assert (found.overlaps, found.unfinished) == (world_figures(world).overlaps, "")
    assert [plan.nodes for plan in found.plans] == [1, 3]
    assert found.plans[0].peak_mib > 1
    assert stages[0] == "making the world"


def test_a_world_that_takes_too_long_is_given_up() -> None:
    assert measured(WorldSpec(250, 400, 10_000, 1_000_000), (1,), timeout_s=0.1) is None


def test_frames_are_at_most_one_a_tick_of_a_server() -> None:
    crowd = made(WorldSpec(1, 1, 4, 4_000, events=50.0))
    assert frames_per_s(crowd)[0] == pytest.approx(4 * TICKS_PER_S)
