"""What the dashboard makes of two looks at a network: rates, flows, lists, notes, and who is told what."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.redis.networkstate import ConnectionState, LinkState, NetworkState, NodeState, RegionState
from gateway.dashboard.delays import Delays
from gateway.dashboard.history import OLD_POINTS, RECENT_POINTS, History, Point
from gateway.dashboard.notes import happened
from gateway.dashboard.snapshot import ROWS_MAX, Snapshot, page
from sequencing.plan import Atom, AtomId, Plan
from tests.servers_seen import SERVER

PATHS = {"forest": ("n1", "n2"), "river": ("n2",), "castle": ("n1", "n2")}


def node(name: str, **fields: Any) -> NodeState:
    given: dict[str, Any] = {
        "server": replace(SERVER, run=f"run of {name}"), "installed": (1, 1), "accepted": 0, "read_at_s": 0.0
    }  # fmt: skip
    return NodeState(name, f"redis://{name}", f"redis://{name}", True, True, False, **(given | fields))


def silent(name: str, trouble: str = "nothing answers") -> NodeState:
    return node(name, server=None, trouble=trouble, accepted=None, read_at_s=None)


def region(
    name: str, drawn: int | None, last: int | None = None, epoch: int = 1, at_s: float | None = 0.0
) -> RegionState:
    return RegionState(name, PATHS[name], epoch, 10, 1, drawn if last is None else last, drawn, 100, at_s)


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


def later(state: NetworkState, seconds: float) -> NetworkState:
    """Return a state whose servers were read so much later."""
    read = tuple(
        each if each.read_at_s is None else replace(each, read_at_s=each.read_at_s + seconds) for each in state.nodes
    )
    drawn = tuple(
        each if each.drawn_at_s is None else replace(each, drawn_at_s=each.drawn_at_s + seconds)
        for each in state.regions
    )
    return replace(state, nodes=read, regions=drawn)


def snapshot(before: NetworkState, now: NetworkState, apart_s: float = 2.0, **fields: Any) -> Snapshot:
    return Snapshot(before, later(now, apart_s), apart_s, 1_000, 12.3, **fields)


def test_rates_are_what_ingresses_and_links_counted_between_the_looks() -> None:
    carried = (node("n1", links=(LinkState("n2", 7, "108-0", 127),)), node("n2", accepted=120))
    before = network(100, nodes=(node("n1", links=(LinkState("n2", 7, "1-0", 7),)), node("n2")))
    shown = snapshot(before, network(140, nodes=carried)).summary()
    assert shown["totals"]["events_per_s"] == 20 + 40
    assert {row["name"]: row["events_per_s"] for row in shown["nodes"]} == {"n1": 60, "n2": 60}
    link = {"from": "n1", "to": "n2", "regions": 2, "events_per_s": 60, "waiting_frames": 7}
    assert shown["links"] == [link | {"condition": None, "stuck_at": []}]
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


def test_one_look_alone_has_no_rates_and_raises_no_alert_about_what_moves() -> None:
    state = network(100, regions=(region("forest", 100, last=120), region("river", 10), region("castle", 200)))
    alone = Snapshot(state, state, 0.0, 1_000, 12.3)
    assert alone.alerts == []
    totals = alone.summary()["totals"]
    assert (totals["events_per_s"], totals["busy_regions"]) == (None, None)
    assert {row["events_per_s"] for row in [*alone.nodes, *alone.links, *alone.subscribers]} == {None}
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
    assert shown["subscribers_list"] == [
        {"name": "s1", "waiting": False, "held": False},
        {"name": "s2", "waiting": True, "held": False},
    ]
    assert snapshot(network(), network()).region("nowhere") is None


def test_who_is_gone_does_not_count_as_a_subscriber() -> None:
    now = network(140, connections=(connection("s1", "forest", alive=False),))
    shown = snapshot(network(100), now)
    assert shown.regions["forest"]["subscribers"] == 0
    gone = shown.subscriber("s1")
    assert gone is not None
    assert gone["regions_list"] == [{"name": "forest", "waiting": False, "condition": "stuck"}]
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


def test_names_are_sorted_as_people_count_and_what_is_stuck_comes_first() -> None:
    names = ("n10", "n2", "n1", "n12")
    given = [{"name": name, "condition": "stuck" if name == "n12" else None} for name in names]
    found = page(given, search="", order="name", descending=False, offset=0, limit=9)["rows"]
    assert [row["name"] for row in found] == ["n12", "n1", "n2", "n10"]


def test_rates_are_by_the_time_between_the_readings_of_each_server_however_long_the_looks_took() -> None:
    """A look of 5 s reads one server at its begin and another at its end."""
    regions = (region("forest", 100, at_s=0.1), region("river", 10, at_s=5.0), region("castle", 200, at_s=0.1))
    now = (region("forest", 140, at_s=2.1), region("river", 1_000, at_s=7.2), region("castle", 280, at_s=2.1))
    shown = Snapshot(network(regions=regions), network(regions=now), 7.0, 1_000, 5_000.0)
    assert shown.rates == pytest.approx({"forest": 20.0, "river": 450.0, "castle": 40.0})


def test_a_node_that_vanishes_has_no_rate_until_it_has_been_read_twice_again() -> None:
    there = network(100, regions=(region("forest", 100), region("river", 10), region("castle", 200)))
    unread = region("river", None, at_s=None)
    gone = network(
        140, nodes=(node("n1"), silent("n2")), regions=(region("forest", 140), unread, region("castle", 280))
    )
    back = network(180, regions=(region("forest", 180), region("river", 510), region("castle", 360)))
    again = network(220, regions=(region("forest", 220), region("river", 1_010), region("castle", 440)))
    states = [later(state, 2.0 * place) for place, state in enumerate((there, gone, back, again))]
    looks = [Snapshot(before, now, 2.0, 1_000, 12.3) for before, now in pairwise(states)]
    assert [look.rates.get("river") for look in looks] == [None, None, 250.0]
    assert [look.rates["forest"] for look in looks] == [20.0, 20.0, 20.0]
    rows = [{row["name"]: row["events_per_s"] for row in look.nodes} for look in looks]
    assert [row["n2"] for row in rows] == [None, None, 250.0]
    assert looks[0].subscriber("s1") is not None
    assert looks[0].subscribers[0]["events_per_s"] is None


def test_a_counter_that_has_fallen_has_no_rate() -> None:
    now = network(regions=(region("forest", 3), region("river", 30), region("castle", 200)))
    assert snapshot(network(100), now).rates == {"river": 10.0, "castle": 0.0}
    fallen = network(100, nodes=(node("n1", links=(LinkState("n2", 0, "", 3),)), node("n2")))
    before = network(100, nodes=(node("n1", links=(LinkState("n2", 0, "", 90),)), node("n2")))
    assert snapshot(before, fallen).links[0]["events_per_s"] is None


def incident() -> Snapshot:
    """Return a network whose node n2 hangs, with 132 frames waiting for it."""
    before = network(100, nodes=(node("n1", links=(LinkState("n2", 0, "", 40),)), node("n2")))
    waiting = node("n1", links=(LinkState("n2", 132, "41-0", 172),))
    regions = (replace(region("forest", 160), last=None), region("river", None, at_s=None),
               replace(region("castle", 320), last=None))  # fmt: skip
    now = network(nodes=(waiting, silent("n2", "it hangs")), regions=regions)
    return snapshot(before, now, answered_ms={"n1": 3_000, "n2": 1_000})


def test_what_is_unknown_in_an_incident_is_not_shown_as_nothing() -> None:
    shown = incident().summary()
    totals = shown["totals"]
    assert (totals["behind"], totals["nodes_silent"], totals["silent_since_ms"]) == (132, ["n2"], 1_000)
    assert totals["events_per_s"] == 30 + 60
    assert (totals["rates_unknown"], totals["behind_unknown"]) == (1, 3)
    hung = shown["nodes"][0]
    assert (hung["name"], hung["condition"], hung["since_ms"]) == ("n2", "stuck", 1_000)
    assert (hung["events_per_s"], hung["waiting_frames"]) == (None, None)
    [link] = shown["links"]
    assert (link["events_per_s"], link["waiting_frames"]) == (0.0, 132)
    assert (link["condition"], link["stuck_at"]) == ("stuck", ["n2"])


def test_regions_whose_path_has_a_dead_node_are_stuck_there_and_listed_first() -> None:
    shown = incident()
    assert {row["name"]: row["stuck_at"] for row in shown.regions.values()} == {name: ["n2"] for name in PATHS}
    one = network(nodes=(node("n1"), silent("n2")))
    free = replace(one, regions=(*one.regions, RegionState("alone", ("n1",), 1, 10, 1, 900, 900, 100, 0.0)))
    rows = page(snapshot(free, free).regions.values(), search="", order="events_per_s", descending=True, offset=0,
                limit=9)["rows"]  # fmt: skip
    assert [row["name"] for row in rows][-1] == "alone"
    assert rows[-1]["condition"] is None


def test_a_link_whose_first_frame_does_not_leave_stops_the_regions_on_it() -> None:
    stuck = network(nodes=(node("n1", links=(LinkState("n2", 7, "1-0", 7),)), node("n2")))
    shown = snapshot(stuck, stuck)
    assert shown.links[0]["stuck_at"] == ["n1 → n2"]
    assert shown.regions["forest"]["stuck_at"] == ["n1 → n2"]
    assert shown.regions["river"]["condition"] is None
    late = (region("forest", 100, last=90), region("river", 10), region("castle", 200))
    moving = (region("forest", 140, last=95), region("river", 10), region("castle", 280))
    free = (node("n1", links=()), node("n2"))
    behind = snapshot(network(regions=late, nodes=free), network(regions=moving, nodes=free))
    assert behind.regions["forest"]["condition"] == "behind"


def test_nothing_known_of_any_region_is_not_nothing_on_the_way() -> None:
    regions = tuple(RegionState(name, path, 1) for name, path in PATHS.items())
    totals = snapshot(network(), network(nodes=(silent("n1"), silent("n2")), regions=regions)).summary()["totals"]
    assert (totals["behind"], totals["events_per_s"], totals["silent_since_ms"]) == (None, None, None)


def test_the_history_is_an_hour_long_and_keeps_what_is_unknown() -> None:
    history = History()
    for turn in range(3_000):
        history.add(Point(turn * 2_000, None if turn == 2_990 else 10.0, turn % 5))
    shown = history.document()
    assert len(shown["at_ms"]) <= RECENT_POINTS + OLD_POINTS
    assert shown["at_ms"][-1] - shown["at_ms"][0] >= 3_600_000
    assert shown["events_per_s"].count(None) == 1
    assert set(shown["events_per_s"]) == {10.0, None}
    assert shown["behind"][0] == 4


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


def test_regions_that_a_node_has_forgotten_are_stuck_there() -> None:
    """Its Redis was emptied: it answers, and accepts no event of these regions."""
    emptied = network(100, nodes=(node("n1"), node("n2", lacking=frozenset({"river"}))))
    shown = snapshot(emptied, emptied)
    assert (shown.regions["river"]["condition"], shown.regions["river"]["stuck_at"]) == ("stuck", ["n2"])
    assert shown.regions["forest"]["condition"] is None
    assert {row["name"]: row["condition"] for row in shown.nodes} == {"n1": None, "n2": "stuck"}
    assert shown.summary()["totals"]["stuck_regions"] == 1


def test_events_on_the_way_to_an_egress_that_lost_its_data_are_unknown_and_not_all_that_there_ever_were() -> None:
    links = (LinkState("n2", 7, "90-0", 97),)
    nodes = (node("n1", links=links), node("n2", lacking=frozenset({"forest", "castle", "river"})))
    regions = (region("forest", 5_000, last=0), region("river", 0, last=0), region("castle", 3_000, last=0))
    emptied = network(nodes=nodes, regions=regions)
    shown = snapshot(emptied, emptied)
    assert [shown.regions[name]["behind"] for name in ("forest", "river", "castle")] == [None, None, None]
    assert (shown.summary()["totals"]["behind"], shown.summary()["totals"]["behind_unknown"]) == (7, 3)


def test_regions_of_a_plan_that_a_node_has_just_got_are_not_stuck() -> None:
    learning = network(100, nodes=(node("n1"), node("n2", lacking=frozenset({"river"}))))
    assert snapshot(learning, network(100)).regions["river"]["condition"] is None
    assert snapshot(network(100), learning).regions["river"]["condition"] is None


def test_a_clock_that_was_set_back_leaves_curves_whose_time_only_goes_forward() -> None:
    history, delays = History(), Delays()
    for begin_ms in (10_000_000, 6_400_000):
        for turn in range(RECENT_POINTS + 40):
            history.add(Point(begin_ms + turn * 2_000, 10.0, 0))
            delays.add(network(), begin_ms + turn * 2_000)
    for document in (history.document(), delays.document()):
        times = document["at_ms"]
        assert times == sorted(set(times))
        assert times[-1] == 6_400_000 + (RECENT_POINTS + 39) * 2_000
        assert len(times) > RECENT_POINTS
