"""Packets as bytes: every packet of every protocol comes back as it went."""

from __future__ import annotations

import pytest

from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.fifo import Fifo
from classic.protocols.numbered import Data
from classic.protocols.process import Effect, Message, Send
from classic.protocols.wire import decode, encode, messages_in, metadata_bytes
from laboratory.protocols.run import Run
from laboratory.protocols.worlds import draw
from sequencing.errors import InvalidInput


class Listening(Run):
    """Keeps every packet that is sent."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(PROTOCOLS[name], draw(PROTOCOLS[name], seed))
        self.sent: list[object] = []

    def _carry_out(self, name: str, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.sent.append(effect.packet)
        super()._carry_out(name, effect)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_packet_comes_back_as_it_went(name: str) -> None:
    packets = set()
    for seed in range(6):
        run = Listening(name, seed)
        run.go()
        packets.update(run.sent)
    assert packets
    for packet in packets:
        assert decode(PROTOCOLS[name], encode(packet)) == packet


def test_metadata_is_what_is_there_beside_the_payload() -> None:
    light, heavy = (Data(Message("m", "a", "g", payload), 1) for payload in ("", "x" * 1000))
    assert metadata_bytes(light) == metadata_bytes(heavy) == len(encode(light))
    assert [message.id for message in messages_in(light)] == ["m"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'["Data"]', b'["Data",["m","a","g",""],"1"]', b'["Other",1]'])
def test_what_is_no_packet_of_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a packet of FIFO"):
        decode(Fifo, data)
