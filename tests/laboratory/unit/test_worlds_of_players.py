"""Worlds of walking players: seeded, seen by their servers, and with joins that a count by hand finds, too."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gamecast.errors import UsageError
from placement.planning.grid import VIEW_CELLS, grid_overlaps
from placement.planning.worlds import (
    BOSS_SHARE,
    EVENT_CELLS,
    EVENT_SHARE,
    STEP_S,
    WALK_STEPS,
    Gather,
    Handover,
    World,
    WorldSpec,
    joined,
    made,
    parse_world,
    walked,
)

SMALL = WorldSpec(9, 12, 7, 160, "flocks", seed=3, speed=0.4)
WAYS = ("spread", "flocks", "event", "boss")


def seen_by_hand(world: World) -> set[tuple[int, int, int]]:
    """Return (server, column, row) for each cell that a player's circle touches, by the distance to each cell."""
    seen = set()
    for east, south, server in zip(world.east, world.south, world.server, strict=True):
        for column in range(world.spec.columns):
            for row in range(world.spec.rows):
                near_east = min(max(east, column), column + 1)
                near_south = min(max(south, row), row + 1)
                if math.dist((east, south), (near_east, near_south)) <= VIEW_CELLS:
                    seen.add((int(server), column, row))
    return seen


def subscribed(world: World) -> set[tuple[int, int, int]]:
    return {
        (int(server.split(":")[1]), *map(int, region.split(":")[1:]))  # type: ignore[misc]
        for server, regions in world.membership.regions_of.items()
        for region in regions
    }


@pytest.mark.parametrize("gather", WAYS)
def test_the_same_seed_makes_the_same_world(gather: Gather) -> None:
    spec = replace(SMALL, gather=gather)
    assert made(spec).membership == made(spec).membership
    assert np.array_equal(made(spec).east, made(spec).east)
    assert made(spec).membership != made(replace(spec, seed=4)).membership


@pytest.mark.parametrize("gather", WAYS)
@pytest.mark.parametrize("handover", ["never", "place"])
def test_servers_have_exactly_the_cells_that_their_players_see(gather: Gather, handover: Handover) -> None:
    world = made(replace(SMALL, gather=gather, handover=handover, walked_s=20))
    assert subscribed(world) == seen_by_hand(world)
    assert {(s, int(e), int(n)) for s, e, n in zip(world.server, world.east, world.south, strict=True)} <= subscribed(
        world
    )


@pytest.mark.parametrize("gather", WAYS)
@pytest.mark.parametrize("handover", ["never", "place"])
def test_joins_are_what_a_walk_adds_to_the_cells_seen(gather: Gather, handover: Handover) -> None:
    world = made(replace(SMALL, gather=gather, handover=handover))
    expected, before = 0, world
    for _ in range(WALK_STEPS):
        after = walked(before, STEP_S)
        added = seen_by_hand(after) - seen_by_hand(before)
        names = {(f"server:{s}", f"world:{x}:{y:02}") for s, x, y in added}
        assert set(world.named(joined(before, after))) == names
        expected += len(added)
        before = after
    assert expected > 0
    assert world.joins_per_s == expected / (WALK_STEPS * STEP_S)


def test_players_that_stand_still_cause_no_joins() -> None:
    assert made(replace(SMALL, speed=0.0)).joins_per_s == 0


def test_a_walk_goes_as_far_as_the_speed_says_and_stays_within_the_world() -> None:
    world = made(SMALL)
    later = walked(world, 2.0)
    inside = (abs(later.heading - world.heading) < 1e-12) & (later.east < 8.9) & (later.south < 11.9)
    way = np.hypot(later.east - world.east, later.south - world.south)[inside]
    assert inside.sum() > 50
    assert way == pytest.approx(0.8)
    far = walked(world, 1_000.0)
    assert far.east.min() >= 0
    assert far.east.max() < 9
    assert far.south.min() >= 0
    assert far.south.max() < 12


def test_servers_share_out_the_players_equally_and_by_place() -> None:
    world = made(WorldSpec(32, 32, 64, 6_400))
    assert set(np.bincount(world.server)) == {100}
    # A server has a sixty-fourth of the world, 16 cells: its players' circles reach few cells more.
    assert world.membership.incidence.sum(axis=1).max() < 60


def test_players_stay_at_their_server_or_are_handed_over_by_place() -> None:
    spec = WorldSpec(32, 32, 64, 6_400, walked_s=120)
    mixed, handed = made(spec), made(replace(spec, handover="place"))
    assert np.array_equal(mixed.server, made(replace(spec, walked_s=0)).server)
    assert len(mixed.subscriptions) > 3 * len(handed.subscriptions)


def test_events_come_from_the_cells_that_the_players_are_in() -> None:
    world = made(replace(SMALL, events=2.0))
    counted: dict[str, float] = dict.fromkeys(world.membership.regions, 0.0)
    for east, south in zip(world.east, world.south, strict=True):
        counted[f"world:{int(east)}:{int(south):02}"] += 2.0
    assert world.rates == counted


def test_crowds_are_where_they_gather() -> None:
    event = made(WorldSpec(60, 60, 10, 10_000, "event"))
    centre = np.hypot(event.east - 30.5, event.south - 30.5) <= EVENT_CELLS
    assert centre.sum() >= EVENT_SHARE * 10_000
    boss = made(WorldSpec(60, 60, 10, 10_000, "boss"))
    assert boss.events_per_s.max() >= BOSS_SHARE * 10_000


def test_cells_are_named_like_a_grid() -> None:
    regions = made(SMALL).membership.regions
    assert len(regions) == 108
    assert len(grid_overlaps(regions)) == 8 * 12 + 9 * 11 + 2 * 8 * 11


def test_a_world_is_read_from_its_text() -> None:
    read = parse_world(
        "100x50:servers=10,players=1000,gather=flocks,seed=7,speed=0.2,events=3,walked=60,handover=place"
    )
    assert read == WorldSpec(100, 50, 10, 1000, "flocks", 7, 0.2, 3.0, 60.0, "place")
    assert parse_world("3x4:players=5,servers=2") == WorldSpec(3, 4, 2, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a world: write it like 100x100:servers=1000"),
        ("100:servers=1,players=2", "is not a world"),
        ("3x4:servers=1", "players must be given"),
        ("3x4:gather=boss", "servers and players must be given"),
        ("3x4:servers=1,players=2,monsters=3", "'monsters' is none of servers, players, gather"),
        ("3x4:servers=one,players=2", "servers is a whole number, not 'one'"),
        ("3x4:servers=1,players=2,speed=fast", "speed is a number, not 'fast'"),
        ("3x4:servers=1,players=2,players=3", "players is given twice"),
        ("3x4:servers=1,players=2,gather=herds", "gather as spread, flocks, event, boss, not as 'herds'"),
        ("3x4:servers=1,players=2,handover=now", "handover is never or place, not 'now'"),
        ("3x4:servers=3,players=2", "a player for each server, not 3 servers and 2 players"),
        ("3x4:servers=0,players=2", "at least one server"),
        ("0x4:servers=1,players=2", "columns, not 0"),
        ("3x9999:servers=1,players=2", "rows, not 9,999"),
        ("3x4:servers=1,players=2,speed=1.5", "0 to 1 cells/s, not 1.5"),
        ("3x4:servers=1,players=2,speed=nan", "0 to 1 cells/s, not nan"),
        ("3x4:servers=1,players=2,events=-1", "events is 0 or more, not -1"),
        ("3x4:servers=1,players=2,walked=inf", "walked is 0 or more, not inf"),
        ("3x4:servers=1,players=2,seed=-1", "a seed is 0 or more, not -1"),
    ],
)
def test_a_bad_world_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_world(text)
    assert said in str(refused.value)
