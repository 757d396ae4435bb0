"""From notes to columns: what numpy and Arrow make of frames is what a loop over their events makes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from analytics.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, STAMPS, STAYS
from gamecast.recording import columns
from gamecast.recording.columns import DeliveredFrame, NotedFrame, NotedStamp, PublishedFrame, ReceivedFrame

names = st.sampled_from(["forest", "river", "bad", "", "s1", "wörld"])
numbers = st.integers(0, 2**53)
times = st.integers(0, 2**62)
maybe = st.none() | st.integers(1, 2**62)
times_of_events = st.lists(times, min_size=1, max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(names, numbers, names, names, numbers, times_of_events, maybe, times)))
def test_deliveries_number_each_event_of_each_frame(rows: list[tuple[Any, ...]]) -> None:
    frames = [
        DeliveredFrame(who, 7, region, publisher, 3, number, len(sent), place, sent, received, at)
        for who, number, region, publisher, place, sent, received, at in rows
    ]
    expected = [
        {
            "subscriber": frame.subscriber,
            "incarnation": 7,
            "host": "vm",
            "index": frame.place + turn,
            "region": frame.region,
            "publisher": frame.publisher,
            "epoch": 3,
            "sequence": frame.first + turn,
            "event": None,
            "sent_at_ns": sent,
            "received_at_ns": frame.received_at_ns,
            "delivered_at_ns": frame.delivered_at_ns,
        }
        for frame in frames
        for turn, sent in enumerate(frame.sent_at_ns)
    ]
    if frames:
        table = columns.deliveries("vm", frames)
        assert table.to_pylist() == expected
        assert tuple(table.schema.names) == DELIVERIES.names


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
            sent,
            "acknowledged" if good else "refused",
            None if good else "Unreachable",
            answered,
        )
        for region, good, first, sent, answered in rows
    ]
    table = columns.publishes("vm", frames)
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
    with pytest.raises(columns.NOT_STAMPS):
        columns.frames([good, good._replace(stamp=stamp)])


def test_receives_stamps_and_single_rows_have_the_columns_of_their_tables() -> None:
    received = columns.receives("vm", [ReceivedFrame("s1", 1, "forest", 2, 3, 4, 5)])
    assert received.to_pylist() == [
        dict(zip(RECEIVES.names, ("s1", 1, "vm", "forest", 2, 3, 4, 5), strict=True)),
    ]
    stamped = columns.stamps("vm", [NotedStamp("n1", "forest", 1, 2, 0, 2, 9, None, None, None)])
    assert stamped.to_pylist() == [
        dict(zip(STAMPS.names, ("n1", "vm", "forest", 1, 2, 0, 2, 9, None, None, None), strict=True)),
    ]
    stay = columns.rows_of(STAYS, [{"subscriber": "s1", "region": "forest", "stay": 0, "revision": 0}])
    assert stay.to_pylist()[0]["joined_at_ns"] is None
