"""The judges of joint events, states, ownership, presence and updates in chaos, each with a fault that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gamecast.event import Event, JointEvent, Presence, State
from laboratory.chaos.items import is_own, joint_name, noted, own_name
from laboratory.chaos.joints import joint_sets
from laboratory.chaos.judging import Judgement, judge_run
from laboratory.chaos.kept import Kept, read_kept, write_kept
from laboratory.chaos.notes import read_notes
from sequencing.frames import FrameKind, PublishedFrame, encode_binary_body, encode_json_body
from sequencing.keyed import Extras, Part

EPOCH = 1
SERVERS = "server-1", "server-2", "server-3"
Note = dict[str, Any]


class World:
    """The notes of servers, and the egress streams, of a network that does as it promises."""

    def __init__(self) -> None:
        self.notes: dict[str, list[Note]] = {server: [] for server in SERVERS}
        self.kept: list[Kept] = []
        self.follows: dict[str, list[str]] = {server: [] for server in SERVERS}
        self.watches: dict[str, list[str]] = {server: [] for server in SERVERS}
        self.last = dict.fromkeys("abc", 0)
        self.published = 0
        self.at = 0
        for server in SERVERS:
            self.note(server, "open", session=1)

    def note(self, server: str, did: str, **fields: Any) -> None:
        self.at += 1_000_000
        self.notes[server].append({"at": self.at, "did": did, **fields})

    def join(self, server: str, region: str, *, heads: Mapping[str, str] | None = None, here: object = None) -> None:
        """Follow a region; ``heads``, ``here``: those of its state, and who is present."""
        self.note(server, "ask", region=region, state=heads is not None)
        self.note(server, "joined", region=region)
        self.follows[server].append(region)
        if heads is not None:
            state: Note = {"as_of": {region: f"{EPOCH}-{self.last[region]}"}, "heads": {region: heads}}
            self.note(server, "state", **state, incomplete=[], present={} if here is None else {region: here})
        if here is not None:
            self.watches[server].append(region)

    def publish(self, server: str, *regions: str, **about: Any) -> str:
        """Publish an event of the game; return its name. ``about``: as in the note of it."""
        self.published += 1
        name = f"{server}/1/{self.published}"
        name = joint_name(regions, name) if len(regions) > 1 else name
        self.note(server, "publish", event=name, regions=list(regions), **about)
        numbers = self._accept(server, regions, name, about.get("key"), ())
        also = {region: number for region, number in numbers.items() if region != regions[0]}
        self.note(server, "receipt", event=name, epoch=EPOCH, sequence=numbers[regions[0]], also=also)
        return name

    def own(self, server: str, *regions: str, key: str, said: Any, incarnation: int = 1) -> str:
        """Publish an event of gamecast's own; return its position in the last of its regions."""
        numbers = {region: self.last[region] + 1 for region in regions}
        name = own_name([*numbers.items()], EPOCH)
        self._accept(server, regions, name, key, (said,), incarnation)
        return f"{EPOCH}-{numbers[regions[-1]]}"

    def _accept(
        self, server: str, regions: tuple[str, ...], name: str, key: str | None, said: tuple[Any, ...], number: int = 1
    ) -> dict[str, int]:
        numbers = {region: self.last[region] + 1 for region in regions}
        self.last |= numbers
        for region, last in numbers.items():
            keys = () if key is None else (key,)
            kind = FrameKind.EVENTS if len(regions) == 1 else FrameKind.JOINT
            self.kept.append(Kept("n1", region, EPOCH, last, kind, server, (name,), "", number, keys, said))
        for reader in SERVERS:
            if key is not None and key.startswith("@"):
                if regions[0] in self.watches[reader]:
                    where = {"region": regions[0], "epoch": EPOCH, "sequence": numbers[regions[0]]}
                    self.note(reader, "presence", **where, name=key[1:], here=said != (None,))
            elif parts := [(region, last) for region, last in numbers.items() if region in self.follows[reader]]:
                (region, last), *others = parts
                where = {"region": region, "epoch": EPOCH, "sequence": last, "also": dict(others)}
                self.note(reader, "deliver", event=name, sender=server, **where)
        return numbers

    def owned(self, server: str, call: str, region: str, token: str) -> None:
        self.note(server, "own", call=call, ended="began")
        self.note(server, "own", call=call, ended="done", region=region, entity="goblin", token=token)

    def update(self, server: str, region: str, number: int, sender: str, behind: str = "") -> None:
        where = {"region": region, "epoch": EPOCH, "sequence": self.last[region]}
        self.note(server, "update", **where, key="x", sender=sender, session=1, number=number, behind=behind)

    def find(self, server: str, did: str, place: int = 0) -> int:
        """Return where a server has a note of some kind."""
        return [n for n, note in enumerate(self.notes[server]) if note["did"] == did][place]

    def swap(self, server: str, one: int, other: int) -> None:
        notes = self.notes[server]
        notes[one], notes[other] = notes[other], notes[one]


def sound() -> World:
    """A world in which everything happens once."""
    world = World()
    world.join("server-1", "a")
    world.join("server-1", "b")
    world.join("server-2", "a")
    nothing: Note = {"key": "x", "only_if": {"a": None, "b": None}}
    world.publish("server-1", "a", "b", **nothing)
    trade: Note = {"key": "x", "only_if": {"a": "1-1", "b": "1-1"}}
    world.publish("server-2", "a", "b", **trade)
    world.note("server-3", "publish", event="a+b.server-3/1/0", regions=["a", "b"], **trade)
    refused: Note = {"region": "b", "position": "1-2", "uncertain": False}
    world.note("server-3", "fail", event="a+b.server-3/1/0", error="Conflict", **refused)
    world.join("server-3", "a", heads={"x": "1-2"})
    world.publish("server-1", "a")

    token = world.own("server-1", "a", key="owner:goblin", said={"owner": "server-1"})
    world.owned("server-1", "claim", "a", token)
    world.publish("server-1", "a", entity="goblin", token=token)
    world.note("server-1", "own", call="hand", ended="began")
    world.own("server-1", "a", "b", key="owner:goblin", said={"owner": "server-2", "from": "a", "to": "b"})
    world.note("server-1", "own", call="hand", ended="done")
    for call, ended in (("hand", "uncertain"), ("hand", "cancelled"), ("release", "uncertain")):
        world.note("server-1", "own", call=call, ended="began")
        world.note("server-1", "own", call=call, ended=ended)
    theirs = world.own("server-2", "b", key="owner:goblin", said={"owner": "server-2", "accepts": "claim"})
    world.owned("server-2", "accept", "b", theirs)
    world.publish("server-2", "b", entity="goblin", token=theirs)
    world.own("server-2", "b", key="owner:goblin", said=None)

    world.join("server-1", "c", heads={}, here=[])
    world.own("server-1", "c", key="@server-1", said={"incarnation": 1})
    world.join("server-2", "c", heads={}, here=["server-1"])
    world.own("server-2", "c", key="@server-2", said={"incarnation": 1})
    world.own("server-3", "c", key="@server-3", said={"incarnation": 1})
    last = world.publish("server-2", "c")
    world.own("server-3", "c", key="@server-3", said=None, incarnation=2)

    world.update("server-1", "c", 1, "server-2", last)
    world.update("server-1", "c", 2, "server-2", last)
    for server in SERVERS:
        here = [] if server == "server-3" else ["c"]
        world.note(server, "look", here=here, saw={region: ["server-1", "server-2"] for region in here})
        world.note(server, "end")
    return world


def judged(world: World, directory: Path, unrest: str = "", *, lossy: range = range(0)) -> Judgement:
    files = {server: directory / server for server in SERVERS}
    for server, file in files.items():
        file.write_bytes(b"".join(orjson.dumps(note) + b"\n" for note in world.notes[server]))
    write_kept(directory / "kept", world.kept)
    return judge_run(read_notes(files), read_kept(directory / "kept"), unrest, lossy=lossy)


def test_a_world_that_does_as_it_promises_is_fine_and_tells_what_happened(tmp_path: Path) -> None:
    judgement = judged(sound(), tmp_path)
    assert judgement.violations == ()
    assert judgement.fine
    assert judgement.sometimes == {
        "joint_events": 2,
        "joint_conflicts": 1,
        "states": 3,
        "claims": 1,
        "handovers": 1,
        "handovers_accepted": 1,
        "handovers_cut": 1,
        "handovers_cancelled": 1,
        "other_calls_cut": 1,
        "owned_events": 2,
        "owned_events_refused": 0,
        "presences": 7,
        "leaves_of_others": 1,
        "looks": 2,
        "updates": 2,
        "resumes": 0,
        "resumes_after_kill": 0,
        "refused_resumes": 0,
        "replays": 0,
        "refused_replays": 0,
        "replayed_events": 0,
    }


def in_one_region_only(world: World) -> None:
    [event] = world.kept[1].events
    del world.kept[1]
    for notes in world.notes.values():
        for note in notes:
            if note.get("event") == event:
                note.get("also", {}).clear()


def given_by_each_region(world: World) -> None:
    notes = world.notes["server-1"]
    place = world.find("server-1", "deliver")
    [(region, sequence)] = notes[place].pop("also").items()
    notes.insert(place + 1, {**notes[place], "region": region, "sequence": sequence})


def in_another_order(world: World) -> None:
    world.swap("server-2", world.find("server-2", "deliver"), world.find("server-2", "deliver", 1))


def although_one_condition_failed(world: World) -> None:
    world.notes["server-2"][world.find("server-2", "publish")]["only_if"]["b"] = None


def accepted_and_refused(world: World) -> None:
    notes = world.notes["server-2"]
    place = world.find("server-2", "receipt")
    event = notes[place]["event"]
    notes[place] = {"at": notes[place]["at"], "did": "fail", "event": event, "error": "Refused", "uncertain": False}


def a_state_without_a_key(world: World) -> None:
    world.notes["server-3"][world.find("server-3", "state")]["heads"]["a"].clear()


def a_state_with_an_older_value(world: World) -> None:
    world.notes["server-3"][world.find("server-3", "state")]["heads"]["a"]["x"] = "1-1"


def a_state_and_what_it_has(world: World) -> None:
    place = world.find("server-3", "state")
    again = world.notes["server-2"][world.find("server-2", "deliver", 1)]
    world.notes["server-3"].insert(place + 1, {**again, "at": world.notes["server-3"][place]["at"]})


def a_state_and_a_hole(world: World) -> None:
    del world.notes["server-3"][world.find("server-3", "deliver")]


def an_event_that_is_in_no_stream(world: World) -> None:
    del world.kept[next(n for n, frame in enumerate(world.kept) if frame.said)]


def an_event_of_who_was_the_owner(world: World) -> None:
    world.publish("server-1", "a", entity="goblin", token="1-4")


def an_event_by_an_offer(world: World) -> None:
    world.notes["server-2"][world.find("server-2", "publish", 1)]["token"] = "1-3"


def an_event_while_another_owns(world: World) -> None:
    token = world.own("server-3", "a", key="owner:goblin", said={"owner": "server-3"})
    world.owned("server-3", "claim", "a", token)
    world.publish("server-2", "a", entity="goblin", token=token)


def two_that_were_given_it(world: World) -> None:
    world.owned("server-2", "accept", "b", "1-4")


def one_that_no_event_gave(world: World) -> None:
    world.owned("server-3", "claim", "a", "1-3")


def a_handover_of_what_another_owns(world: World) -> None:
    world.own("server-1", "b", key="owner:goblin", said={"owner": "server-2"})
    world.own("server-1", "b", key="owner:goblin", said={"owner": "server-3", "from": "b", "to": "b"})


def an_acceptance_twice(world: World) -> None:
    world.own("server-2", "b", key="owner:goblin", said={"owner": "server-2", "accepts": "claim"})


def an_arrival_that_was_not_told(world: World) -> None:
    del world.notes["server-1"][world.find("server-1", "presence", 1)]


def a_leave_that_was_not_told(world: World) -> None:
    del world.notes["server-1"][world.find("server-1", "presence", -1)]


def an_arrival_out_of_its_place(world: World) -> None:
    world.swap("server-1", world.find("server-1", "presence", 2), world.find("server-1", "deliver", -1))


def a_roster_with_somebody_else(world: World) -> None:
    world.notes["server-2"][world.find("server-2", "state")]["present"]["c"].append("server-3")


def an_event_after_the_leave(world: World) -> None:
    world.publish("server-3", "c")


def who_saw_somebody_else(world: World) -> None:
    world.notes["server-2"][world.find("server-2", "look")]["saw"]["c"] = ["server-1", "server-2", "server-3"]


def who_did_not_see_somebody(world: World) -> None:
    world.notes["server-2"][world.find("server-2", "look")]["saw"]["c"] = ["server-2"]


def an_update_before_what_its_sender_had_seen(world: World) -> None:
    notes = world.notes["server-1"]
    update = world.find("server-1", "update")
    notes[update]["behind"] = ""
    notes.insert(world.find("server-1", "presence", -1), notes.pop(update))


def an_update_before_what_its_sender_had_published(world: World) -> None:
    notes = world.notes["server-1"]
    update = world.find("server-1", "update")
    notes[update]["sequence"] = 1
    notes.insert(world.find("server-1", "deliver", -1), notes.pop(update))


def an_update_after_a_newer_one(world: World) -> None:
    world.swap("server-1", world.find("server-1", "update"), world.find("server-1", "update", 1))


@pytest.mark.parametrize(
    ("breakage", "says"),
    [
        (in_one_region_only, "joint: "),
        (given_by_each_region, "order: "),
        (in_another_order, "order: "),
        (although_one_condition_failed, "conditions: the history of key x of b is not linearizable"),
        (accepted_and_refused, "conditions: server-2#1 was told that"),
        (a_state_without_a_key, "state: server-3#1 was given {} of a"),
        (a_state_with_an_older_value, "state: server-3#1 was given"),
        (a_state_and_what_it_has, "state: server-3#1 got an event of a after the state at (1, 2), which has it"),
        (a_state_and_a_hole, "state: server-3#1 got"),
        (an_event_that_is_in_no_stream, "integrity: server-1#1 delivered a.!1-4 of a, which is in no stream"),
        (an_event_of_who_was_the_owner, "ownership: server-1/1/"),
        (an_event_by_an_offer, "ownership: server-2/1/"),
        (an_event_while_another_owns, "ownership: server-2/1/"),
        (two_that_were_given_it, "ownership: Owned(region='b'"),
        (one_that_no_event_gave, "ownership: server-3#1 was given"),
        (a_handover_of_what_another_owns, "ownership: b.!1-8 of server-1 hands over"),
        (an_acceptance_twice, "ownership: b.!1-7 of server-2 accepts"),
        (an_arrival_that_was_not_told, "presence: server-1#1 was told"),
        (a_leave_that_was_not_told, "presence: server-1#1 was told []"),
        (an_arrival_out_of_its_place, "presence: server-1#1 got"),
        (a_roster_with_somebody_else, "presence: server-2#1 was told that"),
        (an_event_after_the_leave, "presence: server-3/1/"),
        (who_saw_somebody_else, "presence: server-2 saw"),
        (who_did_not_see_somebody, "presence: server-2 saw"),
        (an_update_before_what_its_sender_had_seen, "updates: server-1#1 got"),
        (an_update_before_what_its_sender_had_published, "updates: server-1#1 got"),
        (an_update_after_a_newer_one, "updates: server-1#1 got"),
    ],
)
def test_what_breaks_a_promise_is_found(tmp_path: Path, breakage: Callable[[World], None], says: str) -> None:
    world = sound()
    breakage(world)
    judgement = judged(world, tmp_path)
    assert not judgement.fine
    assert any(violation.startswith(says) for violation in judgement.violations), judgement.violations


@pytest.mark.parametrize(
    "breakage",
    [in_one_region_only, a_state_with_an_older_value, an_event_of_who_was_the_owner, who_saw_somebody_else],
)
def test_where_nodes_may_lose_data_that_may_be(tmp_path: Path, breakage: Callable[[World], None]) -> None:
    world = sound()
    breakage(world)
    found = judged(world, tmp_path, lossy=range(EPOCH, EPOCH + 1)).violations
    assert not any(violation.startswith(("joint", "state", "ownership", "presence")) for violation in found), found


def test_a_network_that_is_not_at_rest_is_not_judged_by_who_is_there(tmp_path: Path) -> None:
    world = sound()
    who_saw_somebody_else(world)
    a_leave_that_was_not_told(world)
    found = judged(world, tmp_path, "server-1 hangs").violations
    assert found == ("liveness: not at rest in time: server-1 hangs",)


def test_who_leaves_after_the_last_look_need_not_be_seen(tmp_path: Path) -> None:
    world = sound()
    leave = {"region": "c", "epoch": EPOCH, "sequence": world.last["c"] + 1, "name": "server-1", "here": False}
    world.notes["server-2"].insert(-1, {"at": world.at, "did": "presence", **leave})
    assert judged(world, tmp_path).violations == ()


def test_an_update_may_precede_an_event_whose_fate_its_sender_did_not_know(tmp_path: Path) -> None:
    world = sound()
    an_update_before_what_its_sender_had_published(world)
    notes = world.notes["server-2"]
    place = world.find("server-2", "receipt", -1)
    event = notes[place]["event"]
    lost = {"did": "fail", "error": "PublishUncertain", "uncertain": True}
    notes[place] = {"at": notes[place]["at"], "event": event, **lost}
    assert judged(world, tmp_path).violations == ()


def test_events_have_one_name_in_notes_and_in_streams() -> None:
    parts = ("a", 7), ("b", 3)
    arrow = JointEvent("b", "ana", b"a+b.arrow   ", EPOCH, 3, 0, 0, False, None, parts[1:], parts)
    given = JointEvent("b", "ana", {"to": "b"}, EPOCH, 3, 0, 0, False, "owner:goblin", parts, parts)
    assert noted(arrow)["event"] == "a+b.arrow"
    assert "also" not in noted(arrow)
    assert (noted(given)["event"], noted(given)["also"]) == ("a+b.!1-7", {"a": 7})
    frame = PublishedFrame("a", EPOCH, "ana", 4, 1, 1, b"", FrameKind.JOINT, Extras(also=(Part("b", 1),)))
    meta = frame.joint_meta([7, 3])
    for body, name in (
        (encode_binary_body([0], [b"a+b.arrow   "]), "a+b.arrow"),
        (encode_json_body([0], [b'{"to":"b"}'], ["owner:goblin"]), "a+b.!1-7"),
    ):
        for region, last in parts:
            kept = Kept.of("n1", region, EPOCH, b"1-%d" % last, [b"m", meta, b"s", b"", b"b", body])
            assert (kept.events, kept.publisher, kept.incarnation) == ((name,), "ana", 4)
            assert [(each.key, each.said) for each in kept.keyed()] == [
                ("owner:goblin", {"to": "b"}) for _ in kept.said
            ]
    assert is_own("a+b.!1-7")
    assert not is_own("a+b.arrow")
    assert not is_own("server-1/1/1")


def test_states_and_presence_are_noted_as_they_are_read(tmp_path: Path) -> None:
    value = Event("a", "ana", 1, EPOCH, 4, 0, 0, True, "x")
    state = noted(State({"a": {"x": value}}, {"a": "1-5"}, frozenset("a"), {"a": {"bo": {}}}))
    came = noted(Presence(Event("a", "cy", {}, EPOCH, 6, 0, 0), "cy", {}, is_here=True, before=None))
    world = World()
    world.note("server-1", **state)  # type: ignore[arg-type]
    world.note("server-1", **came)  # type: ignore[arg-type]
    (tmp_path / "notes").write_bytes(b"".join(orjson.dumps(note) + b"\n" for note in world.notes["server-1"]))
    [life] = read_notes({"server-1": tmp_path / "notes"}).lives
    assert [tuple(each) for each in life.session.states] == [(0, "a", (1, 5), {"x": (1, 4)}, True)]
    assert [tuple(each) for each in life.rosters] == [(0, "a", (1, 5), frozenset({"bo"}), True)]
    assert [tuple(each) for each in life.arrivals] == [(0, "a", (1, 6), "cy", True)]


def test_most_regions_are_in_no_set() -> None:
    assert joint_sets("abcdefghij") == (("a", "b"), ("d", "e"), ("g", "h"))
