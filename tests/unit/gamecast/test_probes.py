"""Probes: what is answered and what is not, without a network."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

pytest.importorskip("pyarrow")

from gamecast.recording.options import Recording
from gamecast.recording.probes import _ANSWER, _ASK, _DATAGRAM, _MAGIC, ANSWERS_MAX, STALE_S, Prober


class Told:
    """The control store, as far as probes use it."""

    def __init__(self) -> None:
        self.withdrawn: list[str] = []

    async def withdraw_probe(self, name: str) -> None:
        self.withdrawn.append(name)


class Sent:
    def __init__(self) -> None:
        self.datagrams: list[tuple[bytes, Any]] = []

    def sendto(self, data: bytes, address: Any) -> None:
        self.datagrams.append((data, address))


class Rows:
    def __init__(self) -> None:
        self.rows: list[tuple[str, Any]] = []

    def add(self, table: str, row: Any) -> None:
        self.rows.append((table, row))


def announcement(port: int, token: bytes, **other: Any) -> bytes:
    return orjson.dumps({"clock": "far", "host": "10.0.0.2", "port": port, "beat": 1, "token": token.hex(), **other})


async def prober() -> tuple[Prober, Sent, Rows, Told]:
    told, rows, sent = Told(), Rows(), Sent()
    one = Prober(cast(Any, told), cast(Any, rows), Recording("x", host="near", probe_host="127.0.0.1"), "s1")
    one._transport = cast(Any, sent)
    await one._learn({"s1": announcement(1, b"s" * 16), "s2": announcement(2000, b"t" * 16)})
    return one, sent, rows, told


async def test_a_known_peer_with_our_token_gets_an_answer_as_long_as_its_question() -> None:
    one, sent, _, _ = await prober()
    question = _DATAGRAM.pack(_MAGIC, one._token, _ASK, 5, 0, 0)
    one.datagram_received(question, ("10.0.0.2", 2000))
    [(answer, address)] = sent.datagrams
    magic, token, kind, serial, reached, answered = _DATAGRAM.unpack(answer)
    assert (magic, token, kind, serial, address) == (_MAGIC, b"t" * 16, _ANSWER, 5, ("10.0.0.2", 2000))
    assert len(answer) == len(question)
    assert 0 < reached <= answered


async def test_strangers_wrong_tokens_and_odd_sizes_get_nothing() -> None:
    one, sent, rows, _ = await prober()
    good = _DATAGRAM.pack(_MAGIC, one._token, _ASK, 5, 0, 0)
    one.datagram_received(good, ("10.6.6.6", 2000))
    one.datagram_received(_DATAGRAM.pack(_MAGIC, b"w" * 16, _ASK, 5, 0, 0), ("10.0.0.2", 2000))
    one.datagram_received(_DATAGRAM.pack(b"xxxx", one._token, _ASK, 5, 0, 0), ("10.0.0.2", 2000))
    one.datagram_received(good[:-1], ("10.0.0.2", 2000))
    one.datagram_received(b"", ("10.0.0.2", 2000))
    one.datagram_received(_DATAGRAM.pack(_MAGIC, one._token, _ANSWER, 77, 1, 2), ("10.0.0.2", 2000))  # never asked
    assert sent.datagrams == []
    assert rows.rows == []


async def test_no_more_than_so_many_answers_a_second() -> None:
    one, sent, _, _ = await prober()
    question = _DATAGRAM.pack(_MAGIC, one._token, _ASK, 5, 0, 0)
    for _ in range(ANSWERS_MAX + 200):
        one.datagram_received(question, ("10.0.0.2", 2000))
    assert ANSWERS_MAX <= len(sent.datagrams) < ANSWERS_MAX + 200


async def test_an_answer_becomes_a_row_with_both_hosts_once() -> None:
    one, sent, rows, _ = await prober()
    (peer,) = one._peers
    one._send(peer)
    [(question, address)] = sent.datagrams
    serial = _DATAGRAM.unpack(question)[3]
    assert address == ("10.0.0.2", 2000)
    answer = _DATAGRAM.pack(_MAGIC, one._token, _ANSWER, serial, 111, 222)
    one.datagram_received(answer, address)
    one.datagram_received(answer, address)
    [(table, row)] = rows.rows
    assert table == "probes"
    assert (row["kind"], row["origin"], row["target"]) == ("direct", "s1", "s2")
    assert (row["origin_host"], row["target_host"]) == ("near", "far")
    assert (row["reached_at_ns"], row["answered_at_ns"]) == (111, 222)
    assert row["sent_at_ns"] <= row["returned_at_ns"]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", announcement(0, b"t" * 16), announcement(70000, b"t" * 16), announcement(5, b"short")],
)
async def test_an_announcement_that_no_gamecast_wrote_is_nobodys(text: bytes) -> None:
    one, _, _, _ = await prober()
    await one._learn({"odd": text})
    assert one._peers == []


async def test_who_says_the_same_for_long_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, _, told = await prober()
    now = 1000.0
    monkeypatch.setattr("gamecast.recording.probes.time.monotonic", lambda: now)
    await one._learn({"s2": announcement(2000, b"t" * 16, beat=2)})
    now += STALE_S - 1
    await one._learn({"s2": announcement(2000, b"t" * 16, beat=2)})
    assert [peer.name for peer in one._peers] == ["s2"]
    now += 2
    await one._learn({"s2": announcement(2000, b"t" * 16, beat=2)})
    assert one._peers == []
    assert told.withdrawn == ["s2"]
    await one._learn({"s2": announcement(2000, b"t" * 16, beat=3)})
    assert [peer.name for peer in one._peers] == ["s2"]
