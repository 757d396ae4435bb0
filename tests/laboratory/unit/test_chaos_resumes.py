"""The judge of resumes and replays in chaos, each of its rules with a fault that it finds; and positions by notes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gamecast.event import Event
from laboratory.chaos.items import noted
from laboratory.chaos.judging import Judgement, judge_run
from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import read_notes
from laboratory.chaos.positions import last_standing
from sequencing.frames import FrameKind

Note = dict[str, Any]
RESUMES, REPLAYS, WITNESS = "server-1", "server-2", "server-3"
EVENTS = (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3), ("a", 4), ("b", 4))
"""In the order of everybody; then one of both regions."""
JOINT = "a+b.server-3/1/9"


def name_of(region: str, number: int) -> str:
    return f"server-3/1/{1 + EVENTS.index((region, number))}"


class World:
    """A witness follows two regions all the time. One server resumes them, another replays them."""

    def __init__(self) -> None:
        self.notes: dict[str, list[Note]] = {RESUMES: [], REPLAYS: [], WITNESS: []}
        self.kept: list[Kept] = []
        self.at = 0
        self._witness()
        self._resume()
        self._replay()

    def note(self, server: str, did: str, **fields: Any) -> None:
        self.at += 1_000_000
        self.notes[server].append({"at": self.at, "did": did, **fields})

    def give(self, server: str, region: str, number: int, *, replayed: bool = False) -> None:
        how = {"replayed": True} if replayed else {}
        where = {"region": region, "epoch": 1, "sequence": number}
        self.note(server, "deliver", event=name_of(region, number), sender=WITNESS, **where, **how)

    def give_joint(self, server: str, *, replayed: bool = False) -> None:
        how = {"replayed": True} if replayed else {}
        where = {"region": "a", "epoch": 1, "sequence": 5, "also": {"b": 5}}
        self.note(server, "deliver", event=JOINT, sender=WITNESS, **where, **how)

    def join(self, server: str) -> None:
        for region in "ab":
            self.note(server, "ask", region=region, state=False)
            self.note(server, "joined", region=region, begin="1-0")

    def ask(self, server: str, since: dict[str, str | int], **of: int) -> None:
        for region, position in since.items():
            self.note(server, "ask", region=region, since=position, **of)

    def _witness(self) -> None:
        self.note(WITNESS, "open", session=1)
        self.join(WITNESS)
        for region, number in EVENTS:
            event = name_of(region, number)
            self.note(WITNESS, "publish", event=event, region=region)
            self.kept.append(Kept("n1", region, 1, number, FrameKind.EVENTS, WITNESS, (event,), ""))
            self.note(WITNESS, "receipt", event=event, epoch=1, sequence=number)
            self.give(WITNESS, region, number)
        self.note(WITNESS, "publish", event=JOINT, regions=["a", "b"])
        self.kept += [Kept("n1", region, 1, 5, FrameKind.JOINT, WITNESS, (JOINT,), "") for region in "ab"]
        self.give_joint(WITNESS)
        self.note(WITNESS, "end")

    def _resume(self) -> None:
        self.note(RESUMES, "open", session=1)
        self.join(RESUMES)
        for region, number in EVENTS[:4]:
            self.give(RESUMES, region, number)
        self.note(RESUMES, "open", session=2)  # it was killed
        self.ask(RESUMES, {"a": "1-2", "b": "1-2"}, of=1)
        for region, number in EVENTS[4:6]:
            self.give(RESUMES, region, number, replayed=True)
        self.note(RESUMES, "joined", region="a")
        self.note(RESUMES, "joined", region="b")
        self.note(RESUMES, "caught_up", regions=["a", "b"])
        for region, number in EVENTS[6:]:
            self.give(RESUMES, region, number)
        self.give_joint(RESUMES)
        self.note(RESUMES, "end")

    def _replay(self) -> None:
        self.note(REPLAYS, "open", session=1)
        self.ask(REPLAYS, {"a": 0, "b": 0})
        self.note(REPLAYS, "refused", regions=["a", "b"], error="UnorderedHistory", says="")
        self.note(REPLAYS, "open", session=2)
        self.ask(REPLAYS, {"a": 0})
        self.note(REPLAYS, "joined", region="a")
        for region, number in EVENTS:
            if region == "a":
                self.give(REPLAYS, region, number, replayed=True)
        where = {"region": "a", "epoch": 1, "sequence": 5}
        self.note(REPLAYS, "deliver", event=JOINT, sender=WITNESS, **where, replayed=True)
        self.note(REPLAYS, "end")

    def find(self, server: str, event: str) -> int:
        """Return where a server has the last note of an event."""
        return max(
            n for n, note in enumerate(self.notes[server]) if note["did"] == "deliver" and note["event"] == event
        )

    def swap(self, server: str, one: str, other: str) -> None:
        notes, here, there = self.notes[server], self.find(server, one), self.find(server, other)
        notes[here], notes[there] = notes[there], notes[here]


def judged(world: World, directory: Path, *, lossy: range = range(0)) -> Judgement:
    files = {server: directory / server for server in world.notes}
    for server, file in files.items():
        file.write_bytes(b"".join(orjson.dumps(note) + b"\n" for note in world.notes[server]))
    return judge_run(read_notes(files), world.kept, lossy=lossy)


def test_resumes_and_replays_that_go_on_where_they_should_are_fine_and_counted(tmp_path: Path) -> None:
    judgement = judged(World(), tmp_path)
    assert judgement.violations == ()
    assert judgement.fine
    assert {name: count for name, count in judgement.sometimes.items() if "re" in name[:2]} == {
        "resumes": 1,
        "resumes_after_kill": 1,
        "refused_resumes": 0,
        "replays": 1,
        "refused_replays": 1,
        "replayed_events": 7,
    }


def test_a_session_that_was_closed_or_in_trouble_was_not_killed(tmp_path: Path) -> None:
    for did in ("close", "trouble"):
        world = World()
        notes = world.notes[RESUMES]
        place = max(n for n, note in enumerate(notes) if note["did"] == "open")
        ended = {"did": did, "call": "iterate", "error": "SessionExpired", "says": ""}
        notes.insert(place, {"at": notes[place]["at"], **ended})
        judgement = judged(world, tmp_path)
        assert judgement.violations == ()
        assert (judgement.sometimes["resumes"], judgement.sometimes["resumes_after_kill"]) == (1, 0)


def a_resume_with_a_hole_at_its_begin(world: World) -> None:
    del world.notes[RESUMES][world.find(RESUMES, name_of("a", 3))]


def a_resume_with_a_hole_between_history_and_live(world: World) -> None:
    del world.notes[RESUMES][world.find(RESUMES, name_of("b", 3))]


def a_resume_that_never_gets_the_last(world: World) -> None:
    del world.notes[RESUMES][world.find(RESUMES, JOINT)]


def a_resume_that_repeats(world: World) -> None:
    place = world.find(RESUMES, name_of("a", 3))
    again = world.notes[RESUMES][world.find(RESUMES, name_of("a", 2))]
    world.notes[RESUMES].insert(place, {**again, "replayed": True})


def a_resume_that_repeats_by_another_region(world: World) -> None:
    """An event of both regions had come by one of them, and both of its positions were given."""
    world.notes[RESUMES].clear()
    world.note(RESUMES, "open", session=1)
    world.join(RESUMES)
    for region, number in EVENTS:
        world.give(RESUMES, region, number)
    world.give_joint(RESUMES)
    world.note(RESUMES, "open", session=2)
    world.ask(RESUMES, {"a": "1-5", "b": "1-4"}, of=1)
    where = {"region": "b", "epoch": 1, "sequence": 5, "also": {}}
    world.note(RESUMES, "deliver", event=JOINT, sender=WITNESS, **where, replayed=True)
    world.note(RESUMES, "end")


def history_in_another_order(world: World) -> None:
    world.swap(RESUMES, name_of("a", 3), name_of("b", 3))


def a_resume_behind_what_others_saw_later(world: World) -> None:
    """What the old session had last, others had after the first that the new one is given."""
    world.swap(WITNESS, name_of("b", 2), name_of("a", 3))


def history_and_then_live_twice(world: World) -> None:
    place = world.find(RESUMES, name_of("b", 3))
    again = dict(world.notes[RESUMES][place])
    del again["replayed"]
    world.notes[RESUMES].insert(place + 1, again)


def a_replay_without_the_first(world: World) -> None:
    del world.notes[REPLAYS][world.find(REPLAYS, name_of("a", 1))]


def a_replay_with_a_hole(world: World) -> None:
    del world.notes[REPLAYS][world.find(REPLAYS, name_of("a", 2))]


def a_replay_of_what_was_never_accepted(world: World) -> None:
    world.notes[REPLAYS][world.find(REPLAYS, name_of("a", 2))]["event"] = "server-3/1/77"


def something_although_it_was_refused(world: World) -> None:
    notes = world.notes[REPLAYS]
    place = next(n for n, note in enumerate(notes) if note["did"] == "refused")
    notes.insert(place, notes[world.find(REPLAYS, name_of("a", 1))])


def positions_that_were_refused(world: World) -> None:
    notes = world.notes[RESUMES]
    place = max(n for n, note in enumerate(notes) if note["did"] == "ask") + 1
    refused = {"did": "refused", "regions": ["a", "b"], "error": "UnknownPosition", "says": ""}
    world.notes[RESUMES] = [*notes[:place], {"at": notes[place]["at"], **refused}]


def a_gap_in_history(world: World) -> None:
    place = world.find(RESUMES, name_of("a", 3))
    gap = {"did": "gap", "region": "a", "epoch": 1, "first": 3, "last": 3, "reason": ""}
    world.notes[RESUMES][place] = {"at": world.notes[RESUMES][place]["at"], **gap}


FAULTS: list[tuple[Callable[[World], None], str]] = [
    (a_resume_with_a_hole_at_its_begin, "resume: server-1#2 in a after (1, 2) got"),
    (a_resume_with_a_hole_between_history_and_live, "resume: server-1#2 in b after (1, 2) got"),
    (a_resume_that_never_gets_the_last, "resume: server-1#2 in a after (1, 2) never got"),
    (a_resume_that_repeats, "resume: server-1#2 in a after (1, 2) got"),
    (a_resume_that_repeats_by_another_region, "order: over sessions, "),
    (history_in_another_order, "order: over sessions, "),
    (a_resume_behind_what_others_saw_later, "order: over sessions, "),
    (history_and_then_live_twice, "replay: server-1#2 got"),
    (a_replay_without_the_first, "replay: server-2#2 in a after (0, 0) got"),
    (a_replay_with_a_hole, "replay: server-2#2 in a after (0, 0) got"),
    (a_replay_of_what_was_never_accepted, "integrity: "),
    (something_although_it_was_refused, "resume: server-2#1 got"),
    (positions_that_were_refused, "resume: server-1#2 was refused"),
    (a_gap_in_history, "integrity: server-1#2 got"),
]


@pytest.mark.parametrize(("breakage", "says"), FAULTS)
def test_what_breaks_a_promise_of_history_is_found(
    tmp_path: Path, breakage: Callable[[World], None], says: str
) -> None:
    world = World()
    breakage(world)
    judgement = judged(world, tmp_path)
    assert not judgement.fine
    assert any(violation.startswith(says) for violation in judgement.violations), judgement.violations


def test_where_nodes_may_lose_data_a_gap_stands_for_what_is_lost_and_not_for_what_is_there(tmp_path: Path) -> None:
    world = World()
    a_gap_in_history(world)
    [found] = judged(world, tmp_path, lossy=range(1, 2)).violations
    assert found.endswith("that it misses ['server-3/1/5'], which are there")
    world.kept = [frame for frame in world.kept if name_of("a", 3) not in frame.events]
    world.notes[WITNESS] = [note for note in world.notes[WITNESS] if note.get("event") != name_of("a", 3)]
    world.notes[REPLAYS].clear()
    assert judged(world, tmp_path, lossy=range(1, 2)).violations == ()


def test_history_may_come_late_against_what_is_live_beside_it(tmp_path: Path) -> None:
    world = World()
    world.notes[RESUMES].clear()
    world.note(RESUMES, "open", session=1)
    world.note(RESUMES, "ask", region="b", state=False)
    world.note(RESUMES, "joined", region="b", begin="1-0")
    world.ask(RESUMES, {"a": 0})
    for number in range(1, 5):
        world.give(RESUMES, "b", number)
    for number in range(1, 5):
        world.give(RESUMES, "a", number, replayed=True)
    world.give_joint(RESUMES, replayed=True)
    world.note(RESUMES, "end")
    assert judged(world, tmp_path).violations == ()


def test_what_follows_history_that_was_broken_off_is_late_too(tmp_path: Path) -> None:
    world = World()
    world.notes[RESUMES].clear()
    world.note(RESUMES, "open", session=1)
    world.ask(RESUMES, {"a": 0})
    world.note(RESUMES, "ask", region="b", state=False)
    world.note(RESUMES, "joined", region="b", begin="1-0")
    world.give(RESUMES, "b", 1)
    world.give(RESUMES, "b", 2)
    world.give(RESUMES, "a", 1, replayed=True)
    world.note(RESUMES, "open", session=2)
    world.ask(RESUMES, {"a": "1-1", "b": "1-2"}, of=1)
    for region, number in EVENTS[2:]:
        if (region, number) != ("b", 2):
            world.give(RESUMES, region, number, replayed=True)
    world.give_joint(RESUMES, replayed=True)
    world.note(RESUMES, "end")
    assert judged(world, tmp_path).violations == ()
    world.notes[RESUMES].insert(7, {"at": world.notes[RESUMES][7]["at"], "did": "caught_up", "regions": ["a"]})
    assert judged(world, tmp_path).violations != ()


def test_a_server_goes_on_after_what_its_last_session_had_of_each_region(tmp_path: Path) -> None:
    world, file = World(), tmp_path / "notes"
    server = RESUMES
    world.notes[server].clear()
    world.note(server, "open", session=1)
    world.note(server, "ask", region="z")
    world.note(server, "joined", region="z", begin="1-9")
    world.note(server, "open", session=2)
    for region in "abcde":
        world.note(server, "ask", region=region, presence=region == "c")
    world.note(server, "deliver", event="x", sender="", region="a", epoch=2, sequence=4, also={"b": 7})
    for region in "abcd":
        world.note(server, "joined", region=region, begin="2-3")
    world.note(server, "gap", region="b", epoch=2, first=8, last=9, reason="")
    world.note(server, "gap", region="a", epoch=2, first=5, last=0, reason="")
    world.note(server, "left", region="d")
    world.note(server, "ask", region="f", since="1-5", of=1)
    world.note(server, "ask", region="g", since=0)
    lines = b"".join(orjson.dumps(note) + b"\n" for note in world.notes[server])
    file.write_bytes(lines + b'{"at":1,"did":"deli\n')
    standing = last_standing(file)
    assert standing is not None
    assert (standing.session, standing.present) == (2, {"c"})
    assert standing.positions == {"a": "2-4", "b": "2-9", "c": "2-3", "f": "1-5"}
    assert last_standing(tmp_path / "notes") is not None


def test_a_server_without_an_earlier_session_goes_on_nowhere(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"\n")
    assert last_standing(tmp_path / "notes") is None


def test_history_is_noted() -> None:
    assert noted(Event("a", "ana", b"arrow", 1, 3, 0, 0, True))["replayed"] is True
    assert "replayed" not in noted(Event("a", "ana", b"arrow", 1, 3, 0, 0))
