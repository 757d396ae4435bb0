"""The arena of the examples: the same events in the same order make the same world, in another order another."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("aiohttp", reason="the arena's page is served by aiohttp (the gateway extra)")

from examples.arena.board import LAG_MAX, Board
from examples.arena.bots import decide
from examples.arena.world import ARENAS, HEALTH, LOOT, REGIONS, Bot, Chest, Deed, World, near, region_of, state

ALL = frozenset(REGIONS)


def played(seed: int, *, rounds: int = 60) -> list[Deed]:
    """Return what bots did in a world of their own."""
    world, random = World(ALL), Random(seed)
    deeds = []
    for _ in range(rounds):
        for bot in world.bots():
            deeds.append(decide(world, bot, random))
            world.apply(deeds[-1])
    return deeds


def after(deeds: list[Deed], regions: frozenset[str] = ALL) -> dict[str, tuple[object, ...]]:
    world = World(regions)
    for deed in deeds:
        world.apply(deed)
    return {name: state(thing) for name, thing in world.things.items()}


def test_the_same_events_in_the_same_order_make_the_same_world() -> None:
    deeds = played(1)
    assert after(deeds) == after(deeds)
    assert any(deed["do"] == "grab" for deed in deeds)
    assert any(deed["do"] == "hit" for deed in deeds)


def test_a_server_of_some_regions_computes_their_arenas_as_one_of_all_regions_does() -> None:
    deeds = played(2)
    whole, part = after(deeds), after(deeds, frozenset(("meadow", "forest", "ruins")))
    assert part == {name: found for name, found in whole.items() if name.startswith(("copse", "gate"))}


def test_two_events_in_the_other_order_make_another_world() -> None:
    world = World(ALL)
    chest = world.things["copse-chest-1"]
    one, other = world.things["copse-bot-1"], world.things["copse-bot-2"]
    assert isinstance(chest, Chest)
    assert isinstance(one, Bot)
    assert isinstance(other, Bot)
    one.x, one.y = other.x, other.y = chest.x, chest.y
    deeds: list[Deed] = [{"do": "grab", "bot": bot.name, "what": chest.name} for bot in (one, other)]
    for deed in deeds:
        world.apply(deed)
    assert (one.loot, other.loot, chest.owner) == (LOOT, 0, one.name)
    assert after(played(3)) != after(list(reversed(played(3))))


def test_who_falls_leaves_half_its_loot_and_begins_again() -> None:
    world = World(ALL)
    one, other = world.things["ford-bot-1"], world.things["ford-bot-2"]
    assert isinstance(one, Bot)
    assert isinstance(other, Bot)
    other.loot = 30
    for _ in range(HEALTH):
        one.x, one.y = other.x, other.y
        world.apply({"do": "hit", "bot": one.name, "what": other.name})
    assert (one.loot, other.loot, other.falls, other.health) == (15, 15, 1, HEALTH)


def test_what_is_out_of_reach_stays_as_it_is_and_is_compared_nevertheless() -> None:
    world = World(ALL)
    bot, chest = world.things["dike-bot-1"], world.things["dike-chest-1"]
    bot.x = chest.x + 50
    touched = world.apply({"do": "grab", "bot": bot.name, "what": chest.name})
    assert touched == [bot, chest]
    assert isinstance(chest, Chest)
    assert chest.opened == 0


def test_bots_speak_in_both_regions_of_their_arena_and_in_no_other() -> None:
    world, random = World(ALL), Random(4)
    spoken: dict[str, set[str]] = {arena: set() for arena in ARENAS}
    for _ in range(100):
        for bot in world.bots():
            spoken[bot.arena].add(region_of(bot))
            world.apply(decide(world, bot, random))
    assert spoken == {arena: set(between) for arena, between in ARENAS.items()}


def test_bots_stay_near_their_arena() -> None:
    world = World(ALL)
    for deed in played(5, rounds=200):
        world.apply(deed)
    for bot in world.bots():
        assert any(near(bot, other) or abs(bot.x - other.x) < 40 for other in world.in_arena(bot.arena))
        assert 0 <= bot.x <= 120


def test_a_server_that_is_behind_does_not_count_as_different() -> None:
    board = Board({"chest": ["a", "b"]})
    for place in range(5):
        board.note("a", "chest", place)
    assert (board.compared, board.differing, board.behind) == (0, 0, 5)
    for place in range(5):
        board.note("b", "chest", place)
    assert (board.compared, board.differing, board.apart, board.behind) == (5, 0, set(), 0)


def test_states_that_differ_are_counted_and_named_until_they_are_the_same_again() -> None:
    board = Board({"chest": ["a", "b", "c"], "bot": ["a", "b"]})
    for server, found in (("a", 1), ("b", 1), ("c", 2)):
        board.note(server, "chest", found)
    assert (board.compared, board.differing, board.apart) == (1, 1, {"chest"})
    for server in "abc":
        board.note(server, "chest", 3)
    assert (board.compared, board.differing, board.apart) == (2, 1, set())


def test_what_only_one_server_has_is_kept_up_to_a_limit() -> None:
    board = Board({"chest": ["a", "b"]})
    for place in range(LAG_MAX + 10):
        board.note("a", "chest", place)
    assert board.behind == LAG_MAX
