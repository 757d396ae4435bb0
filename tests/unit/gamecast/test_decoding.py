"""Decoding frames: own events that others overtook."""

from __future__ import annotations

import time

from gamecast.client.decoding import EventDecoder
from gamecast.event import Event, Gap
from sequencing.frames import Meta, StampedFrame, encode_json_body
from sequencing.ready import Ready


def frame(publisher: str, region: str, last: int, *sent_at_ns: int) -> Ready:
    body = encode_json_body(list(sent_at_ns), [b"1"] * len(sent_at_ns))
    return Ready(StampedFrame(region, 1, last, b"", b"", body), Meta(0, len(sent_at_ns), publisher))


def test_own_events_behind_which_others_came_meanwhile_are_counted() -> None:
    decoder, batch = EventDecoder(None, "ana"), list[Event | Gap]()
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
