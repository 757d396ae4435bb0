"""How a match becomes servers, regions and publications."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from demo.match.cells import cells_in_view, region_of
from demo.match.hosting import Workload, build_workload
from demo.match.skirmish import generate_skirmish
from demo.match.trace import Match, MatchEvent, Player, Positions, read_match
from sequencing.checkers import DeliverySequence, judge
from sequencing.errors import UsageError
from tests.shared_data import BLACK_GOLD, needs_shared_data

Row = tuple[float, str, float, float, str, str]
"""Time, player, x, z, team, squad."""


def match_of(rows: Iterable[Row], events: Iterable[MatchEvent] = (), players: str = "p0 p1 p2 p3 p4 p5") -> Match:
    rows = list(rows)
    t_s, player, x_m, z_m, team, squad = zip(*rows, strict=True) if rows else [()] * 6
    return Match(
        name="match",
        players=tuple(Player(name, {}) for name in players.split()),
        positions=Positions(
            np.array(t_s, np.float64),
            list(player),
            np.array(x_m, np.float64),
            np.array(z_m, np.float64),
            {"team": list(team), "squad": list(squad)},
        ),
        events=tuple(events),
    )


def event(
    t_s: float,
    kind: str = "shot",
    *,
    actor: str = "",
    target: str = "",
    at: tuple[float, float] | None = (50, 50),
    detail: str = "",
    extra: Mapping[str, str] | None = None,
) -> MatchEvent:
    x_m, z_m = at if at is not None else (None, None)
    return MatchEvent(t_s, kind, actor, target, x_m, z_m, detail, extra or {})


def build(match: Match, **options: Any) -> Workload:
    return build_workload(match, **({"cell_m": 100, "radius_m": 10, "servers": 2} | options))


def hosts(workload: Workload) -> dict[str, str]:
    """Return the server of each actor."""
    return {str(p.payload["actor"]): p.server for p in workload.publications if "actor" in p.payload}


@pytest.mark.parametrize(
    ("point", "radius_m", "expected"),
    [
        ((50, 50), 0, {(0, 0)}),
        ((0, 0), 0, {(0, 0)}),
        ((50, 50), 49, {(0, 0)}),
        # The upper edge belongs to the next cell: reached exactly, it is touched; the lower neighbour is not.
        ((50, 50), 50, {(0, 0), (1, 0), (0, 1)}),
        ((50, 50), 50.5, {(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)}),
        ((90, 90), 15, {(0, 0), (1, 0), (0, 1), (1, 1)}),
        ((90, 90), 14, {(0, 0), (1, 0), (0, 1)}),
        ((-0.5, 150), 1, {(-1, 1), (0, 1)}),
        (
            (50, 50),
            151,
            {(x, z) for x in range(-2, 3) for z in range(-2, 3) if abs(x * z) < 2},
        ),
    ],
)
def test_a_view_touches_the_cells_that_have_a_point_in_it(
    point: tuple[float, float], radius_m: float, expected: set[tuple[int, int]]
) -> None:
    x_m, z_m = np.array([point[0]], np.float64), np.array([point[1]], np.float64)
    assert cells_in_view(x_m, z_m, cell_m=100, radius_m=radius_m) == expected


def test_views_of_several_points_are_those_of_each() -> None:
    seen = cells_in_view(np.array([50.0, 250.0, 50.0]), np.array([50.0, 50.0, 50.0]), cell_m=100, radius_m=1)
    assert seen == {(0, 0), (2, 0)}


def test_regions_have_readable_names_below_zero_too() -> None:
    assert region_of(-0.5, 250, cell_m=100) == "cell:-1:2"


def test_a_squad_is_hosted_by_one_server_and_squads_are_spread() -> None:
    squads = [
        ("p0", "1", "1"),
        ("p1", "2", "1"),
        ("p2", "1", "1"),
        ("p3", "1", "0"),
        ("p4", "2", "1"),
        ("p5", "1", "0"),
    ]
    match = match_of(
        [(0, name, 50, 50, team, squad) for name, team, squad in squads],
        [event(1, actor=name) for name, _, _ in squads],
    )
    # {p0, p2} to the first, {p1, p4} to the second, then p3 to the first of two with two players, p5 to the second.
    first, second = "server-1", "server-2"
    assert hosts(build(match)) == {"p0": first, "p2": first, "p1": second, "p4": second, "p3": first, "p5": second}


def test_the_first_squad_in_the_window_counts() -> None:
    rows = [(0, "p0", 50, 50, "1", "7"), (0, "p1", 50, 50, "1", "0"), (0, "p2", 50, 50, "1", "9")]
    later = [(5, "p1", 50, 50, "1", "9"), (6, "p1", 50, 50, "1", "7"), (6, "p0", 50, 50, "1", "9")]
    found = hosts(build(match_of([*rows, *later], [event(7, actor=f"p{n}") for n in range(3)])))
    assert found["p1"] == found["p2"] != found["p0"]
    found = hosts(build(match_of([*rows, *later], [event(7, actor=f"p{n}") for n in range(3)]), start_s=6.5))
    assert found["p0"] == found["p2"] != found["p1"]


def test_squads_are_halved_when_there_are_more_servers() -> None:
    match = match_of([(0, f"p{n}", 50, 50, "1", "1") for n in range(5)], [event(1, actor=f"p{n}") for n in range(5)])
    assert sorted(hosts(build(match, servers=5)).values()) == [f"server-{n}" for n in range(1, 6)]
    spread = hosts(build(match, servers=2))
    assert [name for name, server in spread.items() if server == "server-1"] == ["p0", "p1", "p2"]


def test_a_game_without_teams_and_squads_spreads_its_players() -> None:
    rows = match_of([(0, f"p{n}", 50, 50, "", "") for n in range(4)], [event(1, actor=f"p{n}") for n in range(4)])
    positions = Positions(rows.positions.t_s, rows.positions.player, rows.positions.x_m, rows.positions.z_m, {})
    match = Match("match", (), positions, rows.events)
    assert hosts(build(match)) == {"p0": "server-1", "p1": "server-2", "p2": "server-1", "p3": "server-2"}


def test_an_event_is_published_by_its_actors_server_else_its_targets_else_by_hash() -> None:
    match = match_of(
        [(0, "p0", 50, 50, "1", "0"), (0, "p1", 50, 50, "1", "0")],
        [
            event(1, "kill", actor="p1", target="p0"),
            event(1, "hurt", target="p1"),
            event(1, "vehicle_destroyed", actor="v9", target="p1"),
            event(1, "flag_owner", target="c1", at=(950, 50)),
        ],
    )
    workload = build(match)
    by_hash = f"server-{zlib.crc32(b'cell:9:0') % 2 + 1}"
    assert [publication.server for publication in workload.publications] == ["server-2"] * 3 + [by_hash]


def test_a_server_subscribes_to_what_its_players_see_and_to_what_it_publishes_to() -> None:
    match = match_of(
        [(0, "p0", 50, 50, "1", "0"), (1, "p0", 95, 50, "1", "0"), (0, "p1", 550, 550, "1", "0")],
        [event(1, actor="p1", at=(950, 950)), event(2, actor="p0")],
    )
    workload = build(match)
    assert workload.membership == {
        "server-1": frozenset({"cell:0:0", "cell:1:0"}),
        "server-2": frozenset({"cell:5:5", "cell:9:9"}),
    }
    assert workload.expected_deliveries() == {"server-1": 1, "server-2": 1}
    assert workload.regions == {"cell:0:0", "cell:1:0", "cell:5:5", "cell:9:9"}


def test_a_position_holds_into_the_window_unless_the_player_left() -> None:
    rows = [
        (0, "p0", 50, 50, "1", "0"),
        (1, "p0", 150, 50, "1", "0"),
        (1, "p1", 550, 50, "1", "0"),
        (9, "p2", 0, 0, "1", "0"),
    ]
    left = event(2, "leave", actor="p1", at=None)
    match = match_of(rows, [left, event(5, actor="p0", at=(150, 50))])
    workload = build(match, start_s=4, duration_s=3, servers=1)
    assert workload.membership == {"server-1": frozenset({"cell:1:0"})}
    assert workload.players == 1
    back = match_of(sorted([*rows, (3, "p1", 750, 50, "1", "0")]), [left, event(5, actor="p0", at=(150, 50))])
    assert "cell:7:0" in build(back, start_s=4, duration_s=3, servers=1).regions


def test_the_window_holds_its_start_and_not_its_end() -> None:
    match = match_of([(0, "p0", 50, 50, "1", "0")], [event(t, actor="p0") for t in (1, 2, 3, 4)])
    workload = build(match, start_s=2, duration_s=2, servers=1)
    assert [publication.t_s for publication in workload.publications] == [2, 3]


def test_moves_are_published_in_recorded_order_before_events_of_the_same_instant() -> None:
    match = match_of(
        [(1, "p0", 50, 50.5, "1", "3"), (2, "p0", 150, 50, "1", "3")], [event(1, actor="p0"), event(1.5, actor="p0")]
    )
    workload = build(match, servers=1, moves=True)
    assert [(p.t_s, p.payload["kind"]) for p in workload.publications] == [
        (1, "moved"),
        (1, "shot"),
        (1.5, "shot"),
        (2, "moved"),
    ]
    assert workload.publications[0].payload == {
        "id": "e000000",
        "t_s": 1.0,
        "kind": "moved",
        "actor": "p0",
        "x_m": 50,
        "z_m": 50.5,
        "team": "1",
        "squad": "3",
    }
    assert len(build(match, servers=1).publications) == 2


def test_payloads_omit_what_is_empty_and_keep_what_other_games_add() -> None:
    extra = {"id": "theirs", "mana": "5", "kind": "spell", "none": ""}
    match = match_of([(0, "p0", 50, 50, "1", "0")], [event(1, "shot", actor="p0", detail="bow", extra=extra)])
    (publication,) = build(match, servers=1).publications
    assert publication.event == "e000000"
    assert publication.payload == {
        "id": "e000000",
        "t_s": 1,
        "kind": "shot",
        "actor": "p0",
        "detail": "bow",
        "x_m": 50,
        "z_m": 50,
        "id_in_trace": "theirs",
        "kind_in_trace": "spell",
        "mana": "5",
    }


def test_events_without_a_place_are_counted_and_not_published() -> None:
    match = match_of([(0, "p0", 50, 50, "1", "0")], [event(1, actor="p0"), event(1, "chat", actor="p0", at=None)])
    workload = build(match, servers=1)
    assert len(workload.publications) == 1
    assert workload.skipped_without_position == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"cell_m": 0}, "--cell-m 0"),
        ({"cell_m": -5}, "--cell-m -5"),
        ({"cell_m": math.nan}, "--cell-m nan"),
        ({"radius_m": -1}, "--radius-m -1"),
        ({"radius_m": math.inf}, "--radius-m inf"),
        ({"servers": 0}, "--servers 0"),
        ({"servers": 7}, "--servers 7 is more than the 6 players"),
        ({"duration_s": 0}, "--duration-s 0"),
        ({"duration_s": -1}, "--duration-s -1"),
        ({"start_s": math.nan}, "--start-s nan"),
        ({"start_s": 100}, r"from --start-s 100 to its end: the events of match go from 1 to 3 s"),
        ({"start_s": 1.5, "duration_s": 1}, r"from --start-s 1.5 to 2.5 s"),
        ({"cell_m": 1, "radius_m": 100}, "make the cells larger"),
    ],
)
def test_options_out_of_range_are_named_with_their_cure(options: dict[str, float], complaint: str) -> None:
    match = match_of([(0, f"p{n}", 50, 50, "1", "0") for n in range(6)], [event(1, actor="p0"), event(3, actor="p0")])
    with pytest.raises(UsageError, match=complaint):
        build(match, **options)


def test_a_match_in_which_nothing_has_a_place_is_refused() -> None:
    with pytest.raises(UsageError, match="has no event with a position"):
        build(match_of([(0, "p0", 50, 50, "1", "0")], [event(1, at=None)]))


def test_what_the_workload_expects_is_what_the_checkers_expect() -> None:
    workload = build_workload(generate_skirmish(3, duration_s=120))
    sequences = []
    for server in workload.servers:
        mine = [p for p in workload.publications if p.region in workload.membership[server]]
        columns = ([p.event for p in mine], [p.region for p in mine], [p.server for p in mine])
        sequences.append(DeliverySequence(server, *columns))
    verdict = judge(
        sequences,
        published=workload.published(),
        membership=workload.membership,
        publication_order=workload.publication_order(),
    )
    assert verdict.fine
    assert verdict.publishers_unchecked == ()
    assert verdict.deliveries == sum(workload.expected_deliveries().values())
    assert sum(len(workload.published_by(server)) for server in workload.servers) == len(workload.publications)


@needs_shared_data
def test_the_whole_match_is_hosted_as_documented() -> None:
    workload = build_workload(read_match(BLACK_GOLD))
    assert len(workload.publications) == 5_884
    assert workload.skipped_without_position == 552
    assert workload.players == 139
