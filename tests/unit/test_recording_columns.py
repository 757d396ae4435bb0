"""From notes to columns: what numpy and Arrow make of frames is what a loop over their events makes."""

from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from analytics.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, STAMPS, STAYS
from analytics.session import begin_session
from gamecast.recording import columns
from gamecast.recording.columns import NotedFrame, NotedStamp, ReceivedFrame
from gamecast.recording.event_rows import DeliveredFrame, DeliveryRows, PublishedFrame, PublishRows, sent_times
from gamecast.recording.options import Recording
from gamecast.recording.recorder import Recorder
from sequencing.frames import StampedFrame, encode_binary_body, encode_json_body

names = st.sampled_from(["forest", "river", "bad", "", "s1", "wörld"])
numbers = st.integers(0, 2**53)
times = st.integers(0, 2**62)
maybe = st.none() | st.integers(1, 2**62)
times_of_events = st.lists(times, min_size=1, max_size=5)


def times_of(sent_at_ns: list[int], *, binary: bool = False) -> bytes:
    """What a tap notes of a body."""
    encode = encode_binary_body if binary else encode_json_body
    body = encode(sent_at_ns, [b"7" for _ in sent_at_ns])
    return body[: body.index(b"]")]


def in_columns(frames: list[Any]) -> list[list[Any]]:
    return [list(column) for column in zip(*frames, strict=True)]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(names, numbers, names, names, numbers, times_of_events, st.booleans(), st.integers(0, 3), maybe)
    ),
    st.integers(1, 4),
)
def test_deliveries_number_each_event_of_each_frame(rows: list[tuple[Any, ...]], at_a_time: int) -> None:
    frames, expected = [], []
    for at, (who, number, region, publisher, place, sent, is_binary, known, received) in enumerate(rows):
        handed = sent[min(known, len(sent) - 1) :]  # the first ones the application had before
        noted = times_of(sent, binary=is_binary), received, at
        frames.append(DeliveredFrame(who, 7, region, publisher, 3, number, len(handed), place, *noted))
        expected += [
            {
                "subscriber": who,
                "incarnation": 7,
                "host": "vm",
                "index": place + turn,
                "region": region,
                "publisher": publisher,
                "epoch": 3,
                "sequence": number + turn,
                "event": None,
                "sent_at_ns": sent_at_ns,
                "received_at_ns": received,
                "delivered_at_ns": at,
            }
            for turn, sent_at_ns in enumerate(handed)
        ]
    gathered = DeliveryRows("vm")
    for _ in range(2 if frames else 0):  # once more, in the memory of before
        for start in range(0, len(frames), at_a_time):
            gathered.add(in_columns(frames[start : start + at_a_time]))
        assert gathered.rows == len(expected)
        table = gathered.take()
        assert table.to_pylist() == expected
        assert tuple(table.schema.names) == DELIVERIES.names
        assert gathered.rows == 0


@settings(deadline=None)
@given(st.lists(times_of_events, min_size=1, max_size=5))
def test_times_are_read_however_json_may_write_them(sent: list[list[int]]) -> None:
    written = [b"[ %d , %b" % (each[0], orjson.dumps([at - each[0] for at in each], option=orjson.OPT_INDENT_2)[:-1])
               for each in sent]  # fmt: skip
    found = sent_times(written, np.array(list(map(len, sent)), np.int64))
    assert found.tolist() == [at for each in sent for at in each]


@pytest.mark.parametrize(
    "times", [b"", b"[5", b"[5,[", b"[5,[1", b"[5,[1,x", b"[5,[99999999999999999999,1", b'[5,["1",2']
)
def test_times_that_are_none_are_refused_and_nothing_is_gathered(times: bytes) -> None:
    gathered = DeliveryRows("vm")
    good = DeliveredFrame("s1", 1, "forest", "s2", 1, 1, 2, 0, times_of([5, 6]), 7, 8)
    with pytest.raises(columns.UNREADABLE):
        gathered.add(in_columns([good, good._replace(times=times)]))
    gathered.add(in_columns([good]))
    assert gathered.take().num_rows == 2


@settings(deadline=None)
@given(st.lists(st.tuples(names, st.booleans(), numbers, times_of_events, times), min_size=1))
def test_publishes_know_their_numbers_only_where_they_were_acknowledged(rows: list[tuple[Any, ...]]) -> None:
    frames = [
        PublishedFrame(
            "s1",
            region,
            2 if good else None,
            first if good else None,
            [len(str(at)) for at in sent],
            pack(f"{len(sent)}q", *sent),
            "acknowledged" if good else "refused",
            None if good else "Unreachable",
            answered,
        )
        for region, good, first, sent, answered in rows
    ]
    gathered = PublishRows("vm")
    gathered.add(frames[:1])
    if frames[1:]:
        gathered.add(frames[1:])
    table = gathered.take()
    assert tuple(table.schema.names) == PUBLISHES.names
    found = [
        tuple(row[name] for name in ("region", "epoch", "sequence", "published_at_ns", "acknowledged_at_ns", "error"))
        for row in table.to_pylist()
    ]
    assert found == [
        (region, 2, first + turn, at, answered, None) if good else (region, None, None, at, None, "Unreachable")
        for region, good, first, sent, answered in rows
        for turn, at in enumerate(sent)
    ]
    assert [row["bytes"] for row in table.to_pylist()] == [len(str(at)) for row in rows for at in row[3]]


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(numbers, numbers), max_size=4), min_size=1))
def test_frames_have_their_stamps_as_pairs(stamps: list[list[tuple[int, int]]]) -> None:
    noted = [
        NotedFrame("forest", 1, 10, 2, "s1", b",".join(b"%d,%d" % pair for pair in stamp), 99, 5, None)
        for stamp in stamps
    ]
    table = columns.frames(noted)
    assert tuple(table.schema.names) == FRAMES.names
    assert [row["stamps"] for row in table.to_pylist()] == [
        [{"atom": atom, "number": number} for atom, number in stamp] for stamp in stamps
    ]


@pytest.mark.parametrize("stamp", [b"1", b"1,2,3", b"x", b"1],[2", b'"a",2', b"[1],2", b"1,99999999999999999999"])
def test_what_is_no_stamp_is_refused(stamp: bytes) -> None:
    good = NotedFrame("forest", 1, 10, 2, "s1", b"1,2", 99, 5, None)
    with pytest.raises(columns.UNREADABLE):
        columns.frames([good, good._replace(stamp=stamp)])


def test_receives_stamps_and_single_rows_have_the_columns_of_their_tables() -> None:
    received = columns.receives("vm", in_columns([ReceivedFrame("s1", 1, "forest", 2, 3, 5, 4)]))
    assert received.to_pylist() == [
        dict(zip(RECEIVES.names, ("s1", 1, "vm", "forest", 2, 3, 4, 5), strict=True)),
    ]
    stamped = columns.stamps("vm", [NotedStamp("n1", "forest", 1, 2, 0, 2, 9, None, None, None)])
    assert stamped.to_pylist() == [
        dict(zip(STAMPS.names, ("n1", "vm", "forest", 1, 2, 0, 2, 9, None, None, None), strict=True)),
    ]
    stay = columns.rows_of(STAYS, [{"subscriber": "s1", "region": "forest", "stay": 0, "revision": 0}])
    assert stay.to_pylist()[0]["joined_at_ns"] is None


def test_a_delivery_whose_times_cannot_be_read_costs_no_other_one(tmp_path: Path) -> None:
    session = begin_session(tmp_path, version="1", ordering="causal", url="memory://x")
    recorder = Recorder(Recording(tmp_path), session)
    tap = recorder.tap("s1", 1)
    for last, body in ((2, b"[5,[0,1],[1,2]]"), (4, b'[5,["x",1],[1,2]]'), (6, b"[9,[0,1],[1,2]]")):
        frame = StampedFrame("forest", 1, last, b"0 2 1 1 s2", b"", body)
        tap.delivered(frame, "s2", first=last - 1, sent_at_ns=[0, 0], at_ns=7)
    recorder._empty()
    recorder._roll()
    found = recorder.statistics()
    assert found.rolled_rows["deliveries"] == 4
    assert found.lost_rows == {("deliveries", "unread"): 2}
