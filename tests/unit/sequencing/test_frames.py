"""How frames are written down: what is written reads back, what is not a frame is `InvalidInput`."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from sequencing.errors import InvalidInput
from sequencing.frames import (
    FrameKind,
    PublishedFrame,
    decode_body,
    encode_binary_body,
    encode_json_body,
    node_number,
    parse_meta,
    parse_stamp,
)

NOW_NS = 1_700_000_000_000_000_000


def test_json_payloads_come_back_with_their_times() -> None:
    payloads = [None, 0, -1.5, "", 'quotes " and\nlines', [], {"deep": [{"er": "é"}]}, [1, [2, 3]]]
    sent_at_ns = [NOW_NS, NOW_NS, *range(NOW_NS + 5, NOW_NS - 1, -1)]
    body = encode_json_body(sent_at_ns, [orjson.dumps(payload) for payload in payloads])
    assert decode_body(body) == (sent_at_ns, payloads)


def test_bytes_payloads_come_back_whatever_they_contain() -> None:
    payloads = [b"", b"\n", b"\x00", b"[0,[0],[1]]", bytes(range(256)), b""]
    sent_at_ns = [NOW_NS - number for number in range(len(payloads))]
    assert decode_body(encode_binary_body(sent_at_ns, payloads)) == (sent_at_ns, payloads)


@pytest.mark.parametrize("encode", [encode_json_body, encode_binary_body])
def test_a_body_without_events_cannot_be_written(encode: Callable[[list[int], list[bytes]], bytes]) -> None:
    with pytest.raises(IndexError):
        encode([], [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no body",
        b"[0,[0],[1]",
        b"[0,[0],[1]]]",
        b"{}",
        b"null",
        b"17",
        b"[0,[0]]",
        b"[0,[0],[1],2]",
        b"[null,[0],[1]]",
        b'["0",[0],[1]]',
        b'[0,["0"],[1]]',
        b"[0,0,[1]]",
        b"[0,[0],[\xff]]",
        b"\x00",
        b"\x00\n",
        b"\x00[0,[0]]\nx",
        b"\x00[0,[0],[1.0]]\nx",
        b'\x00[0,[0],["1"]]\nx',
        b"\x00[0,[0],7]\nx",
        b"\x00[0,[0],[1]x\n",
    ],
)
def test_a_body_that_no_publisher_wrote_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="not the body of a frame"):
        decode_body(body)


def test_the_meta_carries_what_delivery_needs_even_with_blanks_in_the_name() -> None:
    frame = PublishedFrame("forest", 3, "server with blanks é", 4, 10, 2, b"", FrameKind.JOIN)
    assert frame.meta == "1 2 4 10 server with blanks é".encode()
    assert parse_meta(frame.meta) == (FrameKind.JOIN, 2, "server with blanks é")


@pytest.mark.parametrize("meta", [b"", b"0 1 1 1", b"x 1 1 1 s", b"0 one 1 1 s", b"0 1 1 1 \xff", b"0,1,1,1,s"])
def test_what_is_not_a_meta_is_refused(meta: bytes) -> None:
    with pytest.raises(InvalidInput, match="not the meta of a frame"):
        parse_meta(meta)


def test_a_stamp_is_pairs_in_a_flat_list() -> None:
    assert parse_stamp(b"") == []
    assert parse_stamp(b"7,1,9007199254740993,12") == [7, 1, 9007199254740993, 12]


@pytest.mark.parametrize(("stamp", "number"), [(b"0,7", 7), (b"0,-7,3,1", -7), (b"3,1", 0), (b"", 0)])
def test_a_node_number_is_the_first_of_a_stamp(stamp: bytes, number: int) -> None:
    assert node_number(stamp) == number


@pytest.mark.parametrize("stamp", [b"0,", b"0,x", b"0,-x", b"0,,1", b"garbage"])
def test_what_no_node_wrote_has_no_number(stamp: bytes) -> None:
    assert node_number(stamp) == 0


@pytest.mark.parametrize("stamp", [b"1,", b",1", b"1 2", b"x,1", b"1,2],[3,4", b"\x00", b"1,0x2"])
def test_what_is_not_a_stamp_is_refused(stamp: bytes) -> None:
    with pytest.raises(InvalidInput, match="not the stamp of a frame"):
        parse_stamp(stamp)


@pytest.mark.parametrize(
    "body",
    [
        b"\0[0,[0],[5]]\nab",
        b"\0[0,[0],[1]]\nab",
        b"\0[0,[0,0],[3,-1]]\nab",
        b'[0,[0],{"a":1}]',
        b'[0,[0],"x"]',
        b'["a",["b"],[1]]',
        b"[0,[0,1],[1]]",
    ],
)
def test_a_body_whose_parts_do_not_fit_together_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_body(body)
