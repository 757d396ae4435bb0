"""Decoding frames: own events that others overtook."""

from __future__ import annotations

import time

from gamecast.client.decoding import EventDecoder
from gamecast.client.states import Contained, Standing
from gamecast.event import Event, Item, JointEvent
from sequencing.frames import Meta, StampedFrame, encode_json_body
from sequencing.keyed import Snapshot, Value
from sequencing.ready import Ready


def frame(publisher: str, region: str, last: int, *sent_at_ns: int) -> Ready:
    body = encode_json_body(list(sent_at_ns), [b"1"] * len(sent_at_ns))
    return Ready(StampedFrame(region, 1, last, b"", b"", body), Meta(0, len(sent_at_ns), publisher))


def copy(region: str, last: int, parts: dict[str, int]) -> Ready:
    """Return a region's copy of an event of several."""
    lines = "".join(f"\n{each}\n{number}\n1" for each, number in parts.items())
    meta, body = f"3 1 1 1 ana{lines}".encode(), encode_json_body([1], [b"1"])
    return Ready(StampedFrame(region, 1, last, meta, b"", body), Meta(3, 1, "ana"))


def test_what_the_state_of_one_region_has_comes_once_as_an_event_of_the_others() -> None:
    parts = {"river": 7, "forest": 3, "hill": 9}
    for has_forest in (True, False):
        decoder, batch = EventDecoder(None), list[Item]()
        mine = {"forest"} if has_forest else set[str]()
        decoder.decode(Contained(*copy("river", 7, parts)), batch, together=lambda region, _, mine=mine: region in mine)  # type: ignore[misc]
        assert [event.regions for event in batch if isinstance(event, JointEvent)] == [("forest",)] * has_forest
        assert [event.position for event in batch if isinstance(event, Event)] == ["1-3"] * has_forest
        assert not decoder.has_passed("river", (1, 7)), "the state is not told yet"
        decoder.decode(copy("forest", 3, parts), batch)
        assert len(batch) == 1, "once"
        assert decoder.delivered_events == 1
        assert decoder.has_passed("forest", (1, 3))


def test_the_last_event_of_a_region_that_began_with_its_state_is_where_that_is() -> None:
    """The last value may be older: an event without a key, or one that deletes a key, is no value."""
    decoder, batch = EventDecoder(None), list[Item]()
    decoder.keep_places()
    value = Value((1, 3), 1, False, "ana", b"1")
    decoder.decode(Standing({"forest": ((1, 5), Snapshot(5, 0, {"k": value}))}), batch)
    assert decoder.last_event("forest") == (1, 5)
    decoder.decode(frame("ana", "forest", 8, 1), batch)
    assert decoder.last_event("forest") == (1, 8)
    assert decoder.last_event("forest", (1, 8)) == (1, 5), "as long as that is not taken"


def test_what_is_before_a_marker_is_had_once_the_marker_is_reached() -> None:
    decoder, batch = EventDecoder(None), list[Item]()
    decoder.decode(frame("ana", "forest", 3, 1), batch)
    assert not decoder.has_passed("forest", (1, 4))
    decoder.reach({"forest": (1, 4)})
    assert decoder.has_passed("forest", (1, 4))
    assert not decoder.has_passed("forest", (1, 5))
    assert decoder.last_event("forest") == (1, 3)
    decoder.drop(["forest"])
    assert not decoder.has_passed("forest", (1, 1))


def test_own_events_behind_which_others_came_meanwhile_are_counted() -> None:
    decoder, batch = EventDecoder(None, "ana"), list[Item]()
    before = time.time_ns()
    decoder.decode(frame("ana", "forest", 1, before), batch)
    assert (decoder.own_events, decoder.overtaken_events) == (1, 0)
    published = time.time_ns()
    decoder.decode(frame("bo", "forest", 2, published), batch)
    decoder.decode(frame("ana", "river", 1, published), batch)
    assert decoder.overtaken_events == 0, "that was in another region"
    decoder.decode(frame("ana", "forest", 4, published, time.time_ns() + 10**9), batch)
    assert (decoder.own_events, decoder.overtaken_events) == (4, 1)
    decoder.decode(frame("ana", "forest", 5, published), batch, replayed=True)
    assert (decoder.own_events, len(batch)) == (4, 6), "history is no prediction"
