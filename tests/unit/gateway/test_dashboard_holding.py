"""Who waits for a stuck region, although its own regions are well."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.redis.networkstate import ConnectionState, LinkState, NetworkState, RegionState, TransitionState
from gateway.dashboard.holding import Arrived, held
from gateway.dashboard.rates import delivered_rates
from gateway.dashboard.snapshot import Snapshot, page
from gateway.dashboard.trouble import Trouble, region_troubles
from sequencing.doing import Doing
from sequencing.plan import Atom, AtomId, Plan
from tests.servers_seen import SERVER
from tests.unit.gateway.test_dashboard_snapshot import node, silent

PATHS = {"a": ("n1",), "b": ("n1", "n2"), "c": ("n1",), "d": ("n1",)}
ATOMS = (
    Atom(AtomId(1), ("a", "b"), "n1"),
    Atom(AtomId(2), ("a", "c"), "n1"),
    Atom(AtomId(3), ("c", "d"), "n1"),
)


def region(name: str, drawn: int | None, last: int | None) -> RegionState:
    return RegionState(name, PATHS[name], 1, 10, 1, last, drawn, 100, 0.0)


def follows(name: str, regions: str, *, waiting: str = "", alive: bool = True) -> ConnectionState:
    return ConnectionState(name, 1, frozenset(regions), frozenset(waiting), 100, alive)


CONNECTIONS = (
    follows("both", "ab"),
    follows("chain", "abcd"),
    follows("apart", "acd"),
    follows("only", "b"),
    follows("not yet", "ab", waiting="b"),
    follows("gone", "ab", alive=False),
)


def network(drawn: dict[str, int | None], last: dict[str, int | None], *, n2_answers: bool = False) -> NetworkState:
    plan = Plan(1, 1, "acyclic", {"n1": "", "n2": "redis://n2"}, PATHS, ATOMS)
    return NetworkState(
        "redis://n1",
        SERVER,
        plan,
        None,
        "host-a:12:00ff",
        3000,
        (node("n1"), node("n2") if n2_answers else silent("n2")),
        CONNECTIONS,
        frozenset(),
        tuple(region(name, drawn[name], last[name]) for name in PATHS),
    )


WELL = network(dict.fromkeys("abcd", 10), dict.fromkeys("abcd", 10), n2_answers=True)
BEGUN = Arrived().after(WELL, frozenset())
AT_N2 = {"b": Trouble("stuck", ("n2",))}


def test_a_subscriber_holds_what_shares_an_atom_with_missing_numbers_and_what_follows_from_that() -> None:
    drawn: dict[str, int | None] = {"a": 14, "b": 13, "c": 12, "d": 10}
    now = network(drawn, {"a": 14, "b": None, "c": 12, "d": 10})
    found = held(now, AT_N2, BEGUN)
    assert found.subscribers == {
        "both": (frozenset("a"), ("b",)),
        "chain": (frozenset("acd"), ("b",)),
    }
    assert found.regions == {"a": (2, ("b",)), "c": (1, ("b",)), "d": (1, ("b",))}


def test_a_region_in_which_nothing_happens_passes_nothing_on() -> None:
    drawn: dict[str, int | None] = {"a": 10, "b": 13, "c": 12, "d": 10}
    now = network(drawn, {"a": 10, "b": None, "c": 12, "d": 10})
    assert held(now, AT_N2, BEGUN).subscribers["chain"] == (frozenset("a"), ("b",))


@pytest.mark.parametrize("drawn", [10, None])
def test_a_stuck_region_without_numbers_on_their_way_holds_nobody(drawn: int | None) -> None:
    now = network({"a": 14, "b": drawn, "c": 12, "d": 10}, {"a": 14, "b": None, "c": 12, "d": 10})
    assert held(now, AT_N2, BEGUN).subscribers == {}


def test_what_arrived_is_remembered_over_looks_at_which_the_egress_is_silent() -> None:
    one = network({"a": 12, "b": 11, "c": 10, "d": 10}, {"a": 12, "b": None, "c": 10, "d": 10})
    two = network({"a": 12, "b": 11, "c": 10, "d": 10}, {"a": 12, "b": None, "c": 10, "d": 10})
    arrived = BEGUN.after(one, {"b"})
    assert held(two, AT_N2, arrived).regions == {"a": (2, ("b",)), "c": (1, ("b",))}
    again = replace(two, regions=(*two.regions[:1], region("b", 11, 11), *two.regions[2:]))
    deaf = replace(two, regions=(*two.regions[:1], region("b", None, None), *two.regions[2:]))
    later = arrived.after(two, {"b"})
    assert held(deaf, AT_N2, later).regions == held(two, AT_N2, arrived).regions, "its ingress is silent, too"
    assert held(deaf, AT_N2, later.after(deaf, {"b"})).regions == held(two, AT_N2, arrived).regions
    assert held(again, {}, arrived.after(again, frozenset())).regions == {}


def test_another_epoch_owes_nothing_of_the_former_one() -> None:
    now = network({"a": 12, "b": 11, "c": 10, "d": 10}, {"a": 12, "b": None, "c": 10, "d": 10})
    began = replace(now, regions=tuple(replace(each, epoch=2) for each in now.regions))
    assert held(began, AT_N2, BEGUN).regions == {}


def test_frames_that_are_stuck_before_an_atoms_node_have_no_number_of_it() -> None:
    now = network({"a": 14, "b": 13, "c": 12, "d": 10}, {"a": 14, "b": None, "c": 12, "d": 10})
    assert now.plan is not None
    paths = {**PATHS, "b": ("n0", "n1", "n2")}
    regions = tuple(replace(each, path=paths[each.name]) for each in now.regions)
    longer = replace(now, plan=replace(now.plan, paths=paths, nodes={"n0": "", "n1": "", "n2": ""}), regions=regions)
    for at, is_held in (("n2", True), ("n1 → n2", True), ("n1", False), ("n0 → n1", False), ("n0", False)):
        found = held(longer, {"b": Trouble("stuck", (at,))}, BEGUN)
        assert bool(found.subscribers) is is_held, at


def test_who_begins_to_look_in_an_incident_goes_by_what_waits_on_links() -> None:
    now = network({"a": 14, "b": 13, "c": 12, "d": 10}, {"a": 14, "b": None, "c": 12, "d": 10})
    assert held(now, AT_N2, Arrived()).regions == {}
    waiting = replace(now, nodes=(node("n1", links=(LinkState("n2", 3, "1-0"),)), silent("n2")))
    assert held(waiting, AT_N2, Arrived()).subscribers["both"] == (frozenset("a"), ("b",))


def test_a_search_that_takes_too_long_says_how_many_it_has_not_looked_at() -> None:
    now = network({"a": 14, "b": 13, "c": 12, "d": 10}, {"a": 14, "b": None, "c": 12, "d": 10})
    times = iter([0.0, 0.1, 9.0, 9.0])
    found = held(now, AT_N2, BEGUN, lambda: next(times))
    assert (set(found.subscribers), found.unexamined) == ({"both"}, 2)


def test_what_began_with_a_plan_is_stuck_while_the_end_of_old_epochs_is() -> None:
    now = network({"a": 14, "b": 13, "c": 12, "d": 10}, {"a": 14, "b": 13, "c": 12, "d": 10})
    assert now.plan is not None
    around = replace(now.plan, epoch=2, paths={**PATHS, "b": ("n1",)}, epochs={"c": 1, "d": 1})
    ending = TransitionState(2, 1, plans_behind=1, old_epochs=3, published=True)
    regions = tuple(
        replace(each, path=around.paths[each.name], epoch=around.epoch_of(each.name)) for each in now.regions
    )
    seen = replace(now, plan=around, transition=ending, regions=regions)
    stuck = {name: trouble.at for name, trouble in region_troubles(seen, replace(seen), {})}
    assert stuck == {"a": ("n2",), "b": ("n2",)}
    moving = replace(seen, transition=replace(ending, old_epochs=2))
    assert dict(region_troubles(seen, moving, {})) == {}, "they are ending"
    answered = replace(seen, nodes=(node("n1"), node("n2")))
    assert dict(region_troubles(seen, answered, {})) == {}


def test_a_rate_of_deliveries_is_of_the_last_two_reports_and_of_one_connection() -> None:
    def reporting(*doing: Doing | None, heard_ms: int = 100) -> NetworkState:
        connections = [
            replace(each, doing=what, heard_ms_ago=heard_ms) for each, what in zip(CONNECTIONS, doing, strict=False)
        ]
        return replace(WELL, connections=tuple(connections))

    then = reporting(Doing(100, 0, 0, 10_000), Doing(50, 0, 0, 10_000), None)
    now = reporting(Doing(160, 0, 0, 13_000), Doing(7, 0, 0, 13_000), Doing(1, 0, 0, 13_000))
    rates = delivered_rates({}, then, now)
    assert rates == {("both", 1): 20.0}, "a counter that fell has no rate"
    assert delivered_rates(rates, now, reporting(now.connections[0].doing)) == rates
    assert delivered_rates(rates, now, reporting(now.connections[0].doing, heard_ms=9_000)) == {}


def shown(doing: Doing | None = None) -> Snapshot:
    now = network({"a": 14, "b": 13, "c": 12, "d": 10}, {"a": 14, "b": None, "c": 12, "d": 10})
    reporting = tuple(replace(each, doing=doing if each.name == "both" else None) for each in now.connections)
    return Snapshot(WELL, replace(now, connections=reporting), 2.0, 1_000, 12.3, arrived=BEGUN)


def test_lists_and_totals_say_who_is_held_and_why() -> None:
    snapshot = shown()
    row = snapshot.regions["a"]
    assert (row["condition"], row["held_for"], row["held_by"], row["stuck_at"]) == ("held", 2, ["b"], ["n2"])
    assert snapshot.regions["b"]["condition"] == "stuck"
    of = {each["name"]: each for each in snapshot.subscribers}
    chain = of["chain"]
    assert (chain["condition"], chain["held_regions"], chain["held_by"], chain["stuck_at"]) == (
        "held",
        3,
        ["b"],
        ["n2"],
    )
    assert (of["only"]["condition"], of["apart"]["condition"], of["gone"]["condition"]) == ("stuck", None, None)
    totals = snapshot.summary()["totals"]
    assert (totals["stuck_regions"], totals["held_regions"], totals["held_subscribers"]) == (1, 3, 2)
    assert snapshot.summary()["leader"]["where"] == "host-a, process 12"
    listed = page(snapshot.subscribers, search="", order="name", descending=False, offset=0, limit=9)["rows"]
    assert [each["condition"] for each in listed] == ["stuck", "stuck", "held", "held", None, None]
    one = snapshot.subscriber("chain")
    assert one is not None
    assert {each["name"]: each["condition"] for each in one["regions_list"]} == {
        "a": "held",
        "b": "stuck",
        "c": "held",
        "d": "held",
    }
    region = snapshot.region("a")
    assert region is not None
    assert {each["name"]: each["held"] for each in region["subscribers_list"]} == {
        "both": True,
        "chain": True,
        "apart": False,
        "not yet": False,
    }


def test_game_servers_that_are_held_or_report_much_are_behind() -> None:
    rows = {row["name"]: row for row in shown(Doing(700, 40, 90, 5)).lagging(())}
    assert rows.keys() == {"both", "chain"}
    assert (rows["both"]["behind"], rows["both"]["inbox"], rows["both"]["held"]) == (130, 90, 40)
    assert (rows["chain"]["behind"], rows["chain"]["inbox"]) == (None, None), "it has not reported: unknown"
    assert rows["chain"]["held_regions"] == 3


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"1 2 3 4", Doing(1, 2, 3, 4)),
        (b"1 2 3", None),
        (b"", None),
        (b"1 -2 3 4", None),
        (b"a b c d", None),
        (b"\xff 1 2 3", None),
        (b"9" * 16 + b" 1 2 3", None),
        (b"9" * 5_000 + b" 0 0 1", None),
        (b"1 2 3 " + b"0" * 200, None),
    ],
)
def test_a_report_that_is_none_of_ours_says_nothing(text: bytes, read: Doing | None) -> None:
    assert Doing.read(text) == read
