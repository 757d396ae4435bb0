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

from analytics.session.manifest import begin_session
from analytics.session.runs import events_of, spread_arrow
from analytics.session.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, STAMPS, STAYS
from gamecast.recording import columns
from gamecast.recording.columns import DeliveredFrame, NotedFrame, NotedStamp, ReceivedFrame, ResolvedFrame
from gamecast.recording.options import Recording
from gamecast.recording.recorder import Recorder
from gamecast.recording.sent_times import sent_times
from sequencing.errors import InvalidInput
from sequencing.frames import CARRIES_EVENTS, FrameKind, StampedFrame, encode_binary_body, encode_json_body, parse_meta

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
        st.tuples(names, numbers, names, names, numbers, times_of_events, st.booleans(), st.integers(0, 3), maybe),
        min_size=1,
    )
)
def test_deliveries_are_a_row_a_frame_that_tells_of_each_event(rows: list[tuple[Any, ...]]) -> None:
    frames, expected = [], []
    for at, (who, number, region, publisher, place, sent, is_binary, known, received) in enumerate(rows):
        handed = sent[min(known, len(sent) - 1) :]  # the first ones the application had before
        noted = times_of(sent, binary=is_binary), received, at, 1 if is_binary else None
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
                "replayed": 1 if is_binary else None,
            }
            for turn, sent_at_ns in enumerate(handed)
        ]
    table = columns.deliveries("vm", in_columns(frames))
    assert tuple(table.schema.names) == DELIVERIES.names
    assert table.num_rows == len(frames)
    assert events_of(table, DELIVERIES) == len(expected)
    assert spread_arrow(table, DELIVERIES).to_pylist() == expected


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
def test_times_that_are_none_are_refused(times: bytes) -> None:
    good = DeliveredFrame("s1", 1, "forest", "s2", 1, 1, 2, 0, times_of([5, 6]), 7, 8, None)
    with pytest.raises(columns.UNREADABLE):
        columns.deliveries("vm", in_columns([good, good._replace(times=times)]))


@settings(deadline=None)
@given(st.lists(st.tuples(names, st.booleans(), numbers, times_of_events, times), min_size=1))
def test_publishes_know_their_numbers_only_where_they_were_acknowledged(rows: list[tuple[Any, ...]]) -> None:
    frames = [
        ResolvedFrame(
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
    table = columns.publishes("vm", in_columns(frames))
    assert tuple(table.schema.names) == PUBLISHES.names
    assert table.num_rows == len(frames)
    table = spread_arrow(table, PUBLISHES)
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
        NotedFrame("forest", 1, 10, b"0 2 7 9 s1", b",".join(b"%d,%d" % pair for pair in stamp), 99, 5, None)
        for stamp in stamps
    ]
    table = columns.frames(in_columns(noted))
    assert tuple(table.schema.names) == FRAMES.names
    assert [row["stamps"] for row in table.to_pylist()] == [
        [{"atom": atom, "number": number} for atom, number in stamp] for stamp in stamps
    ]


PARTS = b"\nforest\n7\n1\nriver\n8\n1"
"""Of a frame of several regions."""


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.integers(1, 2**40), names), min_size=1))
def test_frames_are_those_of_events_and_know_what_their_metas_say(metas: list[tuple[FrameKind, int, str]]) -> None:
    noted = [
        NotedFrame(
            "forest",
            1,
            10,
            b"%d %d 7 9 %b%b" % (kind, events, publisher.encode(), PARTS * (kind == 3)),
            b"",
            99,
            5,
            None,
        )
        for kind, events, publisher in metas
    ]
    found = [(row["events"], row["publisher"]) for row in columns.frames(in_columns(noted)).to_pylist()]
    parsed = [parse_meta(frame.meta) for frame in noted]
    assert found == [(meta.events, meta.publisher) for meta in parsed if meta.kind in CARRIES_EVENTS]


@pytest.mark.parametrize("meta", [b"", b"0 2 7 9", b"0 0 7 9 s1", b"x 2 7 9 s1", b"0 x 7 9 s1", b"0 2 7 9 \xff"])
def test_what_is_no_meta_is_refused(meta: bytes) -> None:
    good = NotedFrame("forest", 1, 10, b"0 2 7 9 s1", b"1,2", 99, 5, None)
    with pytest.raises(InvalidInput):
        parse_meta(meta)
    with pytest.raises(columns.UNREADABLE):
        columns.frames(in_columns([good, good._replace(meta=meta)]))


@pytest.mark.parametrize("stamp", [b"1", b"1,2,3", b"x", b"1],[2", b'"a",2', b"[1],2", b"1,99999999999999999999"])
def test_what_is_no_stamp_is_refused(stamp: bytes) -> None:
    good = NotedFrame("forest", 1, 10, b"0 2 7 9 s1", b"1,2", 99, 5, None)
    with pytest.raises(columns.UNREADABLE):
        columns.frames(in_columns([good, good._replace(stamp=stamp)]))


def test_receives_stamps_and_single_rows_have_the_columns_of_their_tables() -> None:
    received = columns.receives("vm", in_columns([ReceivedFrame("s1", 1, "forest", 2, 3, 5, 4)]))
    assert received.to_pylist() == [
        dict(zip(RECEIVES.names, ("s1", 1, "vm", "forest", 2, 3, 4, 5), strict=True)),
    ]
    stamped = columns.stamps("vm", in_columns([NotedStamp("n1", "forest", 1, 2, 0, 2, 9, None, None, None)]))
    assert stamped.to_pylist() == [
        dict(zip(STAMPS.names, ("n1", "vm", "forest", 1, 2, 0, 2, 9, None, None, None), strict=True)),
    ]
    stay = columns.rows_of(STAYS, [{"subscriber": "s1", "region": "forest", "stay": 0, "revision": 0}])
    assert stay.to_pylist()[0]["joined_at_ns"] is None


def test_a_frame_whose_times_cannot_be_read_costs_no_other_one(tmp_path: Path) -> None:
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
