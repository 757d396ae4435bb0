"""The tap of a connection: it notes without waiting, drops beyond its limit, and counts what it dropped."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from gamecast.event import Gap
from gamecast.recording.tap import Receipts, Tap, cut
from sequencing.errors import PublishUncertain, Unreachable
from sequencing.frames import StampedFrame
from sequencing.resolved import Resolved


def tap(pending_rows_max: int = 100) -> Tap:
    return Tap(lambda plan: None, "s1", 3, pending_rows_max=pending_rows_max)


def frame(last: int, region: str = "forest") -> StampedFrame:
    return StampedFrame(region, 1, last, b"0 1 1 1 s2", b"", b"[5,[0,0],[1,2]]")


def deliver(one: Tap, last: int, events: int) -> None:
    one.delivered(frame(last), "s2", first=last - events + 1, sent_at_ns=[5] * events, at_ns=9)


def test_places_go_on_even_where_rows_were_dropped() -> None:
    one = tap(pending_rows_max=5)
    deliver(one, 3, 3)
    deliver(one, 6, 3)  # too many wait
    deliver(one, 8, 2)
    taken = one.take()
    assert [note[5] for note in taken.deliveries] == [0, 6]
    assert [note[6] for note in taken.deliveries] == [b"[5,[0,0"] * 2, "of a body, what tells when its events were sent"
    assert one.index == 8
    assert one.lost == {"deliveries": 3}
    deliver(one, 13, 5)  # there is room again
    assert len(one.take().deliveries) == 1
    assert one.lost == {"deliveries": 3}


def test_each_kind_of_note_counts_against_the_limit() -> None:
    one = tap(pending_rows_max=4)
    one.received([frame(1), frame(2)])
    one.asked({"forest"})
    one.announced(Gap("forest", 1, 2, 3, "why"))
    one.received([frame(3)])
    one.published(Resolved("forest", ["a"], 1, 1, sent_at_ns=[1], payloads=[b"x"]))
    one.asked({"river"})
    assert one.lost == {"receives": 1, "frames": 1, "publishes": 1, "stays": 1}
    assert one.take().rows == 4


def test_the_fate_of_a_publish_is_told_by_its_error() -> None:
    one = tap()
    common: dict[str, Any] = {"sent_at_ns": [7, 8], "payloads": [b"abc", b"d"]}
    one.published(Resolved("forest", ["a", "b"], 4, 10, **common))
    one.published(Resolved("forest", ["a", "b"], error=Unreachable(), **common))
    one.published(Resolved("forest", ["a", "b"], error=PublishUncertain(), **common))
    found = [note[1:7] for note in one.take().publishes]
    assert found == [
        (4, 10, [3, 1], pack("2q", 7, 8), "acknowledged", None),
        (None, None, [3, 1], pack("2q", 7, 8), "refused", "Unreachable"),
        (None, None, [3, 1], pack("2q", 7, 8), "unknown", "PublishUncertain"),
    ]


def test_a_stay_is_told_with_each_thing_that_becomes_known() -> None:
    one = tap()
    one.asked({"forest", "river"})
    deliver(one, 2, 2)
    one.joined({"forest": 6}, {"forest": (6, 4)})
    one.joined({"forest": 7}, {"forest": (7, 0)})  # it was told already
    one.left({"forest"})
    one.asked({"forest"}, {"forest": (6, 5)})
    one.close()
    rows = [row for table, row in one.take().single if table == "stays"]
    known = [
        (row["stay"], row["revision"], row["region"], row["from_index"], row["to_index"], row["epoch"]) for row in rows
    ]
    assert known == [
        (0, 0, "forest", 0, None, None),
        (1, 0, "river", 0, None, None),
        (0, 1, "forest", 0, None, 6),
        (0, 2, "forest", 0, 2, 6),
        (2, 0, "forest", 2, None, None),
        (2, 1, "forest", 2, 2, None),
        (1, 1, "river", 0, 2, None),
    ]
    assert all(row["incarnation"] == 3 for row in rows)
    begins = [(row["begin_epoch"], row["begin_sequence"]) for row in rows]
    assert begins == [(None, None)] * 2 + [(6, 4)] * 2 + [(None, None)] * 3
    sinces = [(row["since_epoch"], row["since_sequence"]) for row in rows]
    assert sinces == [(None, None)] * 4 + [(6, 5)] * 2 + [(None, None)]
    assert rows[2]["joined_at_ns"] is not None
    assert rows[3]["left_at_ns"] >= rows[2]["joined_at_ns"]


def test_when_a_frame_was_received_is_found_when_it_is_delivered_and_forgotten() -> None:
    receipts = Receipts()
    receipts.received([("forest", 1, 1), ("forest", 1, 2), ("forest", 2, 1)], [10, 20, 40])
    assert receipts.delivered([("river", 1, 1), ("forest", 1, 2)]) == [None, 20]
    assert receipts.delivered([("forest", 1, 2), ("forest", 1, 3), ("forest", 2, 1)]) == [None, None, 40]


def test_frames_that_are_never_delivered_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gamecast.recording.tap.LOOK_FRAMES", 10)
    monkeypatch.setattr("gamecast.recording.tap.RECEIVED_FRAMES_KEPT", 30)
    receipts = Receipts()
    for last in range(1, 1001, 2):  # every other one is a marker
        receipts.received([("forest", 1, last), ("forest", 1, last + 1), ("left", 1, last)], [last, last + 1, last])
        if last > 3:
            assert receipts.delivered([("forest", 1, last - 2)]) == [last - 2], "what waits is kept"
    assert len(receipts._at) < 100
    assert receipts.delivered([("left", 1, 999), ("left", 1, 1)]) == [999, None]


class Busy(list[str]):
    """Notes to which another thread adds one as soon as it can: behind every look at them."""

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        self.append("later")
        return found


def test_what_is_noted_while_the_thread_takes_is_taken_the_next_time() -> None:
    notes = Busy(["one", "two"])
    assert cut(notes) == ["one", "two"]
    assert list(notes) == ["later"]
