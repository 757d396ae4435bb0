"""The arena of the examples: the same events in the same order make the same world, in another order another."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("aiohttp", reason="the arena's page is served by aiohttp (the gateway extra)")

from examples.arena.board import LAG_MAX, Board
from examples.arena.bots import decide
from examples.arena.visitors import SCORES_MAX, presence_deed, scores_of, visitor_deed
from examples.arena.world import (
    ARENAS,
    FIGURE_ROOM,
    FIGURES_MAX,
    HEALTH,
    HOARD,
    LOOT,
    REGIONS,
    SAFE,
    Bot,
    Chest,
    Deed,
    Figure,
    World,
    near,
    region_of,
    state,
)

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


def test_a_thing_that_comes_later_is_compared_by_the_servers_that_compute_it() -> None:
    board = Board({"chest": ["a", "b"]})
    for server, found in (("a", 1), ("b", 2)):
        board.add("figure", ["a", "b"])
        board.note(server, "figure", found)
    assert (board.things, board.compared, board.apart) == (2, 1, {"figure"})


def entered(world: World, name: str = "ann") -> Figure:
    [figure] = world.apply({"do": "enter", "bot": f"copse/{name}", "arena": "copse", "title": name, "colour": 1})
    assert isinstance(figure, Figure)
    return figure


def test_a_figure_stands_where_its_page_says_within_its_arena() -> None:
    world = World(ALL)
    figure = entered(world)
    begin = figure.x
    assert world.apply({"do": "stand", "bot": figure.name, "at": [begin + 3, -99]}) == [figure]
    assert (figure.x, figure.y) == (begin + 3, 40 - FIGURE_ROOM)


def test_who_takes_the_hoard_has_it_wherever_it_is_computed() -> None:
    world = World(ALL)
    figure = entered(world)
    assert world.apply({"do": "take", "bot": figure.name, "at": [figure.x, figure.y]}) == [figure]
    assert figure.loot == HOARD


def test_a_figure_opens_the_chest_in_reach_before_it_hits() -> None:
    world = World(ALL)
    figure, chest, bot = entered(world), world.things["copse-chest-1"], world.things["copse-bot-1"]
    assert isinstance(chest, Chest)
    assert isinstance(bot, Bot)
    bot.x, bot.y = chest.x, chest.y = figure.x + 1, figure.y
    assert world.apply(act(figure)) == [figure, chest]
    assert (chest.owner, figure.loot) == (figure.name, LOOT)
    chest.x, chest.y = 0, 0
    other = world.things["copse-chest-2"]
    other.x, other.y = 0, 0
    world.apply(act(figure))
    assert bot.health == HEALTH - 1


def test_one_more_figure_than_fit_replaces_the_one_that_did_nothing_for_the_longest() -> None:
    world = World(ALL)
    names = [f"v{number}" for number in range(FIGURES_MAX)]
    first, second, *_ = [entered(world, name) for name in names]
    world.apply(act(first))
    removed, new = world.apply({"do": "enter", "bot": "copse/late", "arena": "copse", "title": "late", "colour": 0})
    assert (removed, second.health, new.name) == (second, 0, "copse/late")
    assert first.name in world.things
    assert world.apply(act(second)) == []


def act(figure: Figure) -> Deed:
    return {"do": "act", "bot": figure.name, "at": [figure.x, figure.y]}


def test_a_figure_that_leaves_is_removed_and_comes_back_with_what_it_had() -> None:
    world = World(ALL)
    figure = entered(world)
    figure.loot = 30
    assert world.apply({"do": "leave", "bot": figure.name}) == [figure]
    assert (figure.health, figure.name in world.things) == (0, False)
    again = entered(world)
    assert (again.health, again.loot) == (HEALTH, 30)


def test_who_enters_cannot_be_hit_for_some_events_and_then_bots_hit_it_only_after_it_did_something() -> None:
    world, random = World(ALL), Random(6)
    figure, bot = entered(world), world.things["copse-bot-1"]
    assert isinstance(bot, Bot)
    hit: Deed = {"do": "hit", "bot": bot.name, "what": figure.name}

    def wants_to_hit() -> bool:
        bot.x, bot.y = figure.x, figure.y
        return hit in [decide(world, bot, random) for _ in range(100)]

    for name in [name for name in world.things if name.startswith("copse") and "chest" in name]:
        world.things[name].x = 0
    for _ in range(SAFE - 2):
        bot.x, bot.y = figure.x, figure.y
        assert world.apply(hit) == [bot, figure]
    assert (figure.health, state(figure)[-1], wants_to_hit()) == (HEALTH, True, False)
    assert world.apply({"do": "step", "bot": bot.name, "to": [bot.x, bot.y]}) == [bot, figure]
    assert (state(figure)[-1], wants_to_hit()) == (False, False)
    world.apply({"do": "stand", "bot": figure.name, "at": [figure.x, figure.y]})
    assert wants_to_hit()
    world.apply(hit)
    assert figure.health == HEALTH - 1


def test_who_has_entered_and_hits_can_be_hit() -> None:
    world = World(ALL)
    figure, bot = entered(world), world.things["copse-bot-1"]
    for thing in world.in_arena("copse"):
        if thing not in (figure, bot):
            thing.x = 0
    bot.x, bot.y = figure.x, figure.y
    assert world.apply(act(figure)) == [figure, bot]
    assert state(figure)[-1] is False


def test_a_server_of_other_regions_has_no_figure_of_an_arena_that_it_does_not_compute() -> None:
    world = World(frozenset(("ruins", "marsh")))
    assert world.apply({"do": "enter", "bot": "copse/ann", "arena": "copse", "title": "ann", "colour": 1}) == []


def test_visitors_move_only_figures_of_their_own() -> None:
    deed = visitor_deed("meadow", "~ann", {"do": "act", "arena": "copse", "bot": "copse/~ben", "at": [1, 2]})
    assert deed == {"do": "act", "arena": "copse", "bot": "copse/~ann", "at": [1, 2]}


def test_what_visitors_send_is_cut_to_size() -> None:
    said = {"arena": "copse", "nick": "x" * 99, "colour": -3}
    assert presence_deed("meadow", "~ann", said, is_here=True) == {
        "do": "enter",
        "arena": "copse",
        "bot": "copse/~ann",
        "title": "x" * 16,
        "colour": 5,
    }
    many = {"scores": {f"{number:02}" * 20: number for number in range(50)} | {"x": "y"}}
    assert scores_of(many) == {f"{number:02}" * 8: number for number in range(SCORES_MAX)}
    assert scores_of(None) == scores_of({"scores": [1]}) == {}


def test_a_shot_hits_the_nearest_also_in_the_other_region() -> None:
    world = World(ALL)
    figure, bot = entered(world), world.things["copse-bot-1"]
    assert isinstance(bot, Bot)
    for thing in world.in_arena("copse"):
        thing.x, thing.y = 60, 80
    figure.x, bot.x, figure.y, bot.y = 55, 66, 40, 40
    assert region_of(figure) != region_of(bot)
    assert world.apply({**act(figure), "do": "shoot"}) == [figure, bot]
    assert (bot.health, world.shots["copse"].hit, world.shots["copse"].end) == (HEALTH - 1, bot.name, (66, 40))
    bot.y = 80
    assert world.apply({**act(figure), "do": "shoot"}) == [figure]
    assert (world.shots["copse"].number, world.shots["copse"].hit) == (2, figure.name)


def test_figures_enter_and_leave_by_the_presence_of_their_arenas_home_region() -> None:
    said = {"arena": "copse", "nick": "Ann", "colour": 1}
    assert presence_deed("forest", "~ann", said, is_here=True) is None
    assert presence_deed("meadow", "~ann", {**said, "nick": 7}, is_here=True) is None
    gone = {"do": "leave", "arena": "copse", "bot": "copse/~ann"}
    assert presence_deed("meadow", "~ann", {}, is_here=False) == gone


@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"bytes",
        [],
        {},
        {"do": "act"},
        {"do": "act", "arena": []},
        {"do": "act", "arena": "gate"},
        {"do": "step", "arena": "copse", "to": [1, 1]},
        {"do": "act", "arena": "copse"},
        {"do": "stand", "arena": "copse", "at": [1]},
        {"do": "stand", "arena": "copse", "at": [0.5, 1]},
        {"do": "refill", "arena": "copse", "at": [1, 1]},
        {"do": "leave", "arena": "copse", "at": [1, 1]},
    ],
)
def test_what_no_page_sends_is_no_deed(payload: object) -> None:
    assert visitor_deed("meadow", "~ann", payload) is None


def test_the_picture_of_the_readme_loads_fast() -> None:
    picture = Path(__file__).parents[3] / "docs" / "arena.gif"
    assert picture.stat().st_size <= 400_000
