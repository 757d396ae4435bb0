"""Where servers go: the schedule that a match makes, and what a server owes that comes and goes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cli.audit import audit
from demo.match.cells import Cell, cells_in_view, cells_of_views
from demo.match.hosting import Publication, Workload, build_workload
from demo.match.roaming import (
    Change,
    View,
    agenda,
    changes_of,
    most_overlaps,
    regions_ever,
    settled,
)
from demo.match.skirmish import generate_skirmish
from demo.match.trace import Match, MatchEvent, Player, Positions
from gamecast.recording.deliverylog import read_delivery_logs, read_published, write_published
from gamecast.recording.deliverylogwriter import DeliveryLogWriter
from sequencing.checkers import DeliverySequence, Published
from sequencing.checkers.stays import Placed, Stay, judge_stays
from sequencing.errors import InvalidInput

A, B, C = (0, 0), (1, 0), (2, 0)
NAME = {A: "cell:0:0", B: "cell:1:0", C: "cell:2:0"}


def view(t_s: float, *cells: Cell) -> View:
    return t_s, frozenset(cells)


def change(t_s: float, joins: Sequence[Cell] = (), leaves: Sequence[Cell] = ()) -> Change:
    return Change(t_s, frozenset(NAME[cell] for cell in joins), frozenset(NAME[cell] for cell in leaves))


def regions_at(changes: Sequence[Change], t_s: float) -> set[str]:
    regions: set[str] = set()
    for each in changes:
        if each.t_s <= t_s:
            assert not each.joins & regions, "joined twice"
            assert each.leaves <= regions, "left without being in"
            regions = (regions - each.leaves) | each.joins
    return regions


def test_a_server_joins_what_its_player_sees_and_leaves_a_moment_later() -> None:
    walk = [view(1, A), view(20, A, B), view(30, B)]
    assert changes_of([walk], end_s=100) == (change(1, [A]), change(20, [B]), change(40, leaves=[A]))


def test_who_walks_along_an_edge_does_not_make_a_server_come_and_go() -> None:
    walk = [view(t_s, A, B) if t_s % 10 < 5 else view(t_s, A) for t_s in range(1, 60)]
    assert changes_of([walk], end_s=60) == (change(1, [A, B]),)
    assert len(changes_of([walk], end_s=60, linger_s=0)) > 10


def test_a_region_is_left_when_no_player_sees_it_any_more() -> None:
    one, other = [view(0, A), view(10, B)], [view(5, A), view(50, B)]
    assert changes_of([one, other], end_s=1000) == (change(0, [A]), change(10, [B]), change(60, leaves=[A]))


def test_who_leaves_the_game_sees_nothing_and_may_come_back() -> None:
    player = [view(0, A), view(10), view(40, A, B), view(45)]
    assert changes_of([player], end_s=1000) == (
        change(0, [A]),
        change(20, leaves=[A]),
        change(40, [A, B]),
        change(55, leaves=[A, B]),
    )


def test_leaving_and_joining_at_one_moment_is_one_change() -> None:
    assert changes_of([[view(0, A), view(10, B), view(20, C)]], end_s=100, linger_s=10) == (
        change(0, [A]),
        change(10, [B]),
        change(20, [C], [A]),
        change(30, leaves=[B]),
    )


def test_nothing_is_done_at_the_end_or_after_it() -> None:
    assert changes_of([[view(0, A), view(10, B), view(20, C)]], end_s=20, linger_s=10) == (
        change(0, [A]),
        change(10, [B]),
    )


def test_of_two_views_at_one_time_the_last_counts() -> None:
    assert changes_of([[view(0, A), view(0, B)]], end_s=100) == (change(0, [B]),)


walks = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.frozensets(st.sampled_from([A, B, C]))), max_size=8).map(
        lambda views: sorted(views, key=lambda each: each[0])
    ),
    max_size=4,
)


@given(walks, st.integers(0, 12), st.integers(1, 45))
def test_a_server_is_where_somebody_looks_or_has_looked_a_moment_ago(
    players: list[list[View]], linger_s: int, end_s: int
) -> None:
    changes = changes_of(players, end_s=end_s, linger_s=linger_s)
    assert [each.t_s for each in changes] == sorted({each.t_s for each in changes})
    assert all(each.joins or each.leaves for each in changes)
    assert all(each.joins.isdisjoint(each.leaves) for each in changes)
    for now_s in range(end_s):
        seen = {
            NAME[cell]
            for views in players
            for t_s in range(max(0, now_s - linger_s), now_s + 1)
            for cell in dict([view for view in views if view[0] <= t_s][-1:]).get(_last_s(views, t_s), frozenset())
        }
        assert regions_at(changes, now_s) == seen


def _last_s(views: Sequence[View], t_s: float) -> float:
    return max((view[0] for view in views if view[0] <= t_s), default=-1)


@given(walks, walks)
def test_overlaps_are_those_of_the_fullest_moment(one: list[list[View]], other: list[list[View]]) -> None:
    changes = {"s1": changes_of(one, end_s=45), "s2": changes_of(other, end_s=45)}
    common = (len(regions_at(changes["s1"], t_s) & regions_at(changes["s2"], t_s)) for t_s in range(45))
    assert most_overlaps(changes) == max(math.comb(regions, 2) for regions in common)


def test_servers_settle_where_players_are_seen_first_of_all() -> None:
    changes = {"s1": (change(5, [A]), change(9, [B])), "s2": (change(7, [A]),), "s3": ()}
    assert settled(changes) == {"s1": {NAME[A]}, "s2": frozenset(), "s3": frozenset()}
    assert [(server, each.t_s) for server, each in agenda(changes)] == [("s2", 7), ("s1", 9)]
    assert regions_ever(changes["s1"]) == {NAME[A], NAME[B]}
    assert settled({"s1": ()}) == {"s1": frozenset()}


def test_views_of_points_are_those_of_each_alone() -> None:
    chance = np.random.default_rng(1)
    x_m, z_m = chance.uniform(-500, 500, 60), chance.uniform(-500, 500, 60)
    alone = [
        cells_in_view(x_m[place : place + 1], z_m[place : place + 1], cell_m=100, radius_m=120) for place in range(60)
    ]
    assert cells_of_views(x_m, z_m, cell_m=100, radius_m=120) == alone


def match_of(rows: Sequence[tuple[float, str, float, float]], events: Sequence[MatchEvent]) -> Match:
    t_s, player, x_m, z_m = zip(*rows, strict=True)
    return Match(
        "match",
        tuple(Player(name, {}) for name in dict.fromkeys(player)),
        Positions(np.array(t_s, np.float64), list(player), np.array(x_m, np.float64), np.array(z_m, np.float64), {}),
        tuple(events),
    )


def happens(
    t_s: float, actor: str = "", *, at: tuple[float, float] | None = (50, 50), kind: str = "shot"
) -> MatchEvent:
    x_m, z_m = at if at is not None else (None, None)
    return MatchEvent(t_s, kind, actor, "", x_m, z_m, "", {})


def test_a_match_makes_a_schedule() -> None:
    match = match_of(
        [(0, "p0", 50, 50), (0, "p1", 250, 50), (20, "p0", 150, 50), (40, "p1", 50, 50)],
        [
            happens(0),
            happens(25, "p1", at=(950, 50)),
            happens(30, "p0", at=None, kind="leave"),
            happens(50, "p1"),
        ],
    )
    workload = build_workload(match, cell_m=100, radius_m=10, servers=2, roam=True)
    assert workload.changes == {
        "server-1": (change(0, [A]), change(20, [B]), change(30, leaves=[A]), change(40, leaves=[B])),
        "server-2": (change(0, [C]), change(40, [A]), change(50, leaves=[C])),
    }
    assert workload.membership == {"server-1": {NAME[A], NAME[B]}, "server-2": {NAME[A], NAME[C]}}
    # Nobody subscribes to a region because of publishing there.
    assert {publication.region for publication in workload.publications} == {NAME[A], "cell:9:0"}
    assert workload.expected_deliveries() == {"server-1": 1, "server-2": 1}
    assert [step.t_s if isinstance(step, Publication) else step[0] for step in workload.steps()] == [
        0,
        "server-1",  # at 20
        25,
        "server-1",  # at 30
        "server-1",  # at 40
        "server-2",
        "server-2",  # at 50, before the publication of that time
        50,
    ]


def test_a_window_begins_with_the_positions_that_hold() -> None:
    rows = [(0, "p0", 50, 50), (0, "p1", 250, 50), (30, "p0", 150, 50)]
    events = [happens(10, "p1", at=None, kind="leave"), happens(21), happens(40)]
    workload = build_workload(
        match_of(rows, events), cell_m=100, radius_m=10, servers=1, start_s=20, duration_s=100, roam=True
    )
    assert workload.changes == {"server-1": (change(20, [A]), change(30, [B]), change(40, leaves=[A]))}


@pytest.mark.parametrize("seed", range(3))
def test_the_servers_of_a_skirmish_roam(seed: int) -> None:
    match = generate_skirmish(seed)
    workload, staying = build_workload(match, roam=True), build_workload(match)
    assert workload.publications == staying.publications
    for server in workload.servers:
        assert workload.membership[server] <= staying.membership[server]
    joins = sum(len(each.joins) for changes in workload.changes.values() for each in changes)
    assert joins > 100
    expected = workload.expected_deliveries()
    assert expected == _expected(workload)
    assert sum(expected.values()) < sum(staying.expected_deliveries().values())


def _expected(workload: Workload) -> dict[str, int]:
    """Count once more what servers would deliver that join at once: those that are settled hear of what was before."""
    first_s = min(changes[0].t_s for changes in workload.changes.values())
    return {
        server: sum(
            publication.region in regions_at(changes, max(publication.t_s, first_s))
            for publication in workload.publications
        )
        for server, changes in workload.changes.items()
    }


# What a server owes. Events are like a3: the third of region a, published at 3; b's are published at 10 and on.


def placed(events: str) -> list[Placed]:
    return [Placed(name, name[0], (1, int(name[1:])), int(name[1:]) * 10) for name in events.split()]


def seen(subscriber: str, events: str) -> DeliverySequence:
    names = events.split()
    return DeliverySequence(subscriber, names, [name[0] for name in names], ["ann"] * len(names))


def found(stays: Sequence[Stay], delivered: Mapping[str, str], published: str = "a1 a2 a3 a4 a5 b1") -> tuple[int, int]:
    sequences = [seen(subscriber, events) for subscriber, events in delivered.items()]
    verdict = judge_stays(sequences, stays, placed(published))
    assert verdict.lost is not None
    assert verdict.unexpected is not None
    assert verdict.fine is (verdict.lost + verdict.unexpected == 0)
    return verdict.lost, verdict.unexpected


@pytest.mark.parametrize(
    ("delivered", "end", "joined_at_ns", "expected"),
    [
        ("a3 a4 a5", None, 25, (0, 0)),
        ("a2 a3 a4 a5", None, 25, (0, 0)),  # more than is owed
        ("a4 a5", None, 25, (1, 0)),  # a3 was published after the join
        ("a3 a5", None, 25, (1, 0)),  # a hole
        ("a1 a3 a4 a5", None, 25, (1, 0)),  # a hole before the join, which is owed no less
        ("a3 a4", None, 25, (1, 0)),  # the end is missing, and it never left
        ("a3 a4", 2, 25, (0, 0)),  # it left
        ("", 0, 25, (0, 0)),
        ("", None, 25, (3, 0)),
        ("", None, 55, (0, 0)),
        ("a4", 1, 25, (1, 0)),  # what it left with does not excuse what was before
        ("a3", 1, None, (0, 0)),  # it left before it was in
        ("a3 a5", 2, None, (1, 0)),
        ("a3 a4 a5 b1", None, 25, (0, 1)),  # it was never in b
        ("a3 a4 a5 a9", None, 25, (0, 1)),  # nobody published that
        ("a3 a4", 1, 25, (0, 1)),  # one came after it had left
    ],
)
def test_a_stay_owes_what_was_published_in_it_without_a_hole(
    delivered: str, end: int | None, joined_at_ns: int | None, expected: tuple[int, int]
) -> None:
    assert found([Stay("s1", "a", 0, end, 0, joined_at_ns)], {"s1": delivered}) == expected


def test_each_stay_is_judged_by_itself() -> None:
    stays = [Stay("s1", "a", 0, 2, 0, 5), Stay("s1", "a", 2, None, 35, 45)]
    assert found(stays, {"s1": "a1 a2 a5"}) == (0, 0)
    assert found(stays, {"s1": "a1 a2 a4 a5"}) == (0, 0)
    assert found([Stay("s1", "a", 0, None, 0, 5)], {"s1": "a1 a2 a5"}) == (2, 0)


def test_a_server_that_delivered_nothing_at_all_owes_too() -> None:
    assert found([Stay("s2", "a", 0, None, 0, 35)], {"s1": "a1 a2 a3 a4 a5"}) == (2, 0)


def test_who_does_not_roam_owes_everything_of_its_regions() -> None:
    stays = [Stay("s1", "a", 0, None, 0, 35)]
    assert found(stays, {"s1": "a4 a5", "s2": "a1 a2 a3 a4 a5"}) == (0, 0)
    assert found(stays, {"s1": "a4 a5", "s2": "a1 a2 a4 a5"}) == (1, 0)


def test_order_and_repetitions_are_judged_over_all() -> None:
    stays = [Stay("s1", "a", 0, None, 0, 35), Stay("s1", "b", 0, None, 0, 5), Stay("s2", "a", 0, None, 0, 45)]
    verdict = judge_stays([seen("s1", "a4 b1 a5"), seen("s2", "a5 a5")], stays, placed("a4 a5 b1"))
    assert (verdict.lost, verdict.duplicated, verdict.inversions) == (0, 1, 0)
    stays = [Stay(server, region, 0, None, 0, 5) for server in ("s1", "s2") for region in "ab"]
    verdict = judge_stays([seen("s1", "a1 b1"), seen("s2", "b1 a1")], stays, placed("a1 b1"))
    assert (verdict.lost, verdict.inversions) == (0, 1)
    assert verdict.first is not None
    assert verdict.first.kind == "inversion"


def test_events_without_a_position_cannot_be_judged_where_somebody_roams() -> None:
    with pytest.raises(InvalidInput, match=r"a1.*no position"):
        judge_stays([seen("s1", "a1")], [Stay("s1", "a", 0)], [Published("a1", "a")])


@given(st.data())
def test_an_unbroken_part_is_never_a_loss_and_a_broken_one_always_is(data: st.DataObject) -> None:
    names = [f"a{number}" for number in range(1, data.draw(st.integers(3, 12)) + 1)]
    first = data.draw(st.integers(0, len(names) - 3))
    last = data.draw(st.integers(first + 2, len(names) - 1))
    joined_at_ns = data.draw(st.integers((first + 1) * 10 - 10, (last + 1) * 10))
    ours = names[first : last + 1]
    left = None if last == len(names) - 1 else len(ours)
    everything = " ".join(names)
    stay = [Stay("s1", "a", 0, left, 0, joined_at_ns)]
    assert found(stay, {"s1": " ".join(ours)}, everything) == (0, 0)
    dropped = data.draw(st.sampled_from(ours[1:-1]))
    stay = [Stay("s1", "a", 0, left and left - 1, 0, joined_at_ns)]
    assert found(stay, {"s1": " ".join(name for name in ours if name != dropped)}, everything) == (1, 0)


# Logs of servers that roam.


def test_stays_and_positions_are_read_as_they_were_written(tmp_path: Path) -> None:
    stays = [Stay("s1", "a", 0, 2, 3, 5), Stay("s1", "b", 1), Stay("s1", "a", 2, None, 7, None)]
    with DeliveryLogWriter(tmp_path / "s1.jsonl", "s1") as log:
        for event in ("a1", "a2", "b1"):
            log.write(event, event[0], "ann")
        for stay in stays:
            log.write_stay(stay)
    assert list(read_delivery_logs([tmp_path / "s1.jsonl"]).stays) == stays
    published = [*placed("a1 b1"), Published("c1", "c")]
    write_published(tmp_path / "published", published)
    assert read_published(tmp_path / "published") == published


def test_places_are_counted_where_indices_are_missing(tmp_path: Path) -> None:
    lines = [
        {"subscriber": "s1", "index": index, "event": f"a{index}", "region": "a", "sender": "p"} for index in (3, 7)
    ]
    (tmp_path / "log").write_text(
        "\n".join(map(json.dumps, [*lines, {"subscriber": "s1", "stay": "a", "from": 4, "to": 8}]))
    )
    assert read_delivery_logs([tmp_path / "log"]).stays == (Stay("s1", "a", 1, 2),)


def test_a_delivery_with_a_field_of_that_name_is_a_delivery(tmp_path: Path) -> None:
    line = {"subscriber": "s1", "index": 0, "event": "a1", "region": "a", "sender": "p", "stay": 5}
    (tmp_path / "log").write_text(json.dumps(line))
    logs = read_delivery_logs([tmp_path / "log"])
    assert (len(logs.sequences), logs.stays) == (1, ())


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"from": -1}, "'from' must be"),
        ({"from": "1"}, "'from' must be"),
        ({"from": 4, "to": 3}, "'to' must be"),
        ({"joined_at_ns": "now"}, "'joined_at_ns' must be"),
        ({"stay": ""}, "'stay' must be"),
    ],
)
def test_a_malformed_stay_is_named(tmp_path: Path, fields: Mapping[str, object], wrong: str) -> None:
    (tmp_path / "log").write_text(json.dumps({"subscriber": "s1", "stay": "a", "from": 0} | dict(fields)))
    with pytest.raises(InvalidInput, match=f"line 1: {wrong}"):
        read_delivery_logs([tmp_path / "log"])


@pytest.mark.parametrize(
    "fields", [{"position": "3", "published_at_ns": 1}, {"position": "1-1"}, {"published_at_ns": 1}, {"position": 5}]
)
def test_a_malformed_position_is_named(tmp_path: Path, fields: Mapping[str, object]) -> None:
    (tmp_path / "log").write_text(json.dumps({"event": "a1", "region": "a"} | dict(fields)))
    with pytest.raises(InvalidInput, match=r"line 1: '(position|published_at_ns)' must be"):
        read_published(tmp_path / "log")


@pytest.mark.parametrize(("delivered", "status", "lost"), [("a3 a4 a5", 0, 0), ("a3 a5", 1, 1)])
def test_audit_judges_stays(tmp_path: Path, delivered: str, status: int, lost: int) -> None:
    for subscriber, events in (("s1", "a1 a2 a3 a4 a5"), ("s2", delivered)):
        with DeliveryLogWriter(tmp_path / f"{subscriber}.jsonl", subscriber) as log:
            for event in events.split():
                log.write(event, "a", "ann")
            if subscriber == "s2":
                log.write_stay(Stay("s2", "a", 0, None, 0, 25))
    write_published(tmp_path / "published", placed("a1 a2 a3 a4 a5"))
    logs = [str(file) for file in tmp_path.glob("*.jsonl")]
    result = CliRunner().invoke(audit, [*logs, "--published", str(tmp_path / "published"), "--json"])
    assert result.exit_code == status, result.output
    assert json.loads(result.output)["lost"] == lost
    assert CliRunner().invoke(audit, logs).exit_code == 0, "without what was published, losses are not known"
