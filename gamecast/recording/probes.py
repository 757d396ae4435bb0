"""Probes between recording servers: how long the direct connection takes, and how far their clocks are apart.

Each server that records with a `Recording.probe_host` answers UDP at that address, and asks every other one from time
to time. Their addresses are in a hash of the control store, with an entry for each server, which it renews every
`ANNOUNCE_S`. An entry that stays the same for `STALE_S` belongs to no running server. No clocks are compared for that.

A datagram is answered only if it carries the token of the announcement, which is known to every reader of the control
store. The answer is as long as the question and goes back to its source, and there are at most `ANSWERS_MAX` answers a
second. So a game server cannot be used to flood another host.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from adapters.network import Network
from gamecast.recording.options import Recording
from gamecast.recording.recorder import Recorder
from sequencing.errors import GamecastError, UsageError

ANNOUNCE_S = 5.0
STALE_S = 4 * ANNOUNCE_S
PEERS_A_ROUND = 64
"""The most peers in one round; more take turns."""

ANSWERS_MAX = 1_000
PENDING_MAX = 1_024
"""The most probes without an answer; beyond it, the oldest count as lost."""

_DATAGRAM = struct.Struct("!4s16sBQqq")
_MAGIC = b"gcp1"
_ASK, _ANSWER = 0, 1


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server that answers probes, as it announced itself."""

    name: str
    clock: str
    address: tuple[str, int]
    token: bytes


class Prober(asyncio.DatagramProtocol):
    """Probes for one connection, from `start` to `close`."""

    def __init__(self, network: Network, recorder: Recorder, recording: Recording, name: str) -> None:
        """``recording``: with a ``probe_host``. Opens nothing yet."""
        self.answered = 0
        """Probes of others that were answered."""
        self.returned = 0
        """Own probes that were answered."""
        self._network = network
        self._recorder = recorder
        self._recording = recording
        self._name = name
        self._token = secrets.token_bytes(16)
        self._transport: asyncio.DatagramTransport | None = None
        self._peers: list[Peer] = []
        self._said: dict[str, tuple[bytes, float]] = {}
        self._pending: dict[int, tuple[Peer, int]] = {}
        self._recent: deque[float] = deque(maxlen=ANSWERS_MAX)
        self._serial = 0
        self._beat = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the address and begin; raises `UsageError` if it cannot be opened."""
        address = self._recording.probe_host or "", self._recording.probe_port
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=address)
        except OSError as error:
            raise UsageError(f"probe_host {address[0]!r}, port {address[1]}: {error.strerror or error}") from error
        self._tasks = [
            asyncio.create_task(self._announce(), name="gamecast probe announcements"),
            asyncio.create_task(self._ask(), name="gamecast probes"),
        ]

    async def close(self) -> None:
        """Stop, and withdraw the announcement if the network is available."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._transport is not None:
            self._transport.close()
            with suppress(GamecastError):
                await self._network.withdraw_probe(self._name)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a question, or take an answer; anything else is ignored."""
        at_ns = time.time_ns()
        if len(data) != _DATAGRAM.size:
            return
        magic, token, kind, serial, reached, _ = _DATAGRAM.unpack(data)
        if magic != _MAGIC or not secrets.compare_digest(token, self._token):
            return
        if kind == _ASK:
            self._answer(serial, at_ns, addr)
        elif kind == _ANSWER and serial in self._pending:
            _, _, _, _, reached, answered = _DATAGRAM.unpack(data)
            peer, sent = self._pending.pop(serial)
            self._note(peer, sent, reached, answered, at_ns)

    def error_received(self, exc: Exception) -> None:
        """Ignore the error: a peer that has ended refuses the probe, which simply does not return."""

    def _answer(self, serial: int, at_ns: int, addr: Any) -> None:
        now = time.monotonic()
        if len(self._recent) == ANSWERS_MAX and now - self._recent[0] < 1:
            return
        self._recent.append(now)
        asker = next((peer for peer in self._peers if peer.address == addr[:2]), None)
        if asker is not None and self._transport is not None:
            answer = _DATAGRAM.pack(_MAGIC, asker.token, _ANSWER, serial, at_ns, time.time_ns())
            self._transport.sendto(answer, addr)
            self.answered += 1

    def _note(self, peer: Peer, sent: int, reached: int, answered: int, returned: int) -> None:
        """Record a probe when its answer has come back."""
        self.returned += 1
        row = {
            "kind": "direct",
            "origin": self._name,
            "target": peer.name,
            "origin_host": self._recording.clock,
            "target_host": peer.clock,
            "sent_at_ns": sent,
            "reached_at_ns": reached,
            "answered_at_ns": answered,
            "returned_at_ns": returned,
        }
        self._recorder.add("probes", row)

    async def _announce(self) -> None:
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        while True:
            self._beat += 1
            entry = {"clock": self._recording.clock, "host": host, "port": port, "beat": self._beat}
            text = orjson.dumps({**entry, "token": self._token.hex()})
            with suppress(GamecastError):  # the next time, then
                await self._network.announce_probe(self._name, text)
                await self._learn(await self._network.probe_addresses())
            await asyncio.sleep(ANNOUNCE_S if len(self._said) > 1 else 1.0)

    async def _learn(self, told: Mapping[str, bytes]) -> None:
        now = time.monotonic()
        said = {name: (text, now) for name, text in told.items()}
        for name, (text, since) in self._said.items():
            if name in said and said[name][0] == text:
                said[name] = text, since
        self._said = said
        fresh = {name: text for name, (text, since) in said.items() if now - since < STALE_S}
        for name in said.keys() - fresh.keys():
            await self._network.withdraw_probe(name)
        peers = (_peer(name, text) for name, text in fresh.items() if name != self._name)
        self._peers = [peer for peer in peers if peer is not None]

    async def _ask(self) -> None:
        asked = 0
        while True:
            peers = self._peers
            some = [peers[(asked + place) % len(peers)] for place in range(min(len(peers), PEERS_A_ROUND))]
            asked += len(some)
            for peer in some:
                # Spread over the round: a burst would distort the measurement.
                await asyncio.sleep(self._recording.probe_s / len(some))
                self._send(peer)
            if not some:
                await asyncio.sleep(min(self._recording.probe_s, 1.0))

    def _send(self, peer: Peer) -> None:
        assert self._transport is not None
        self._serial += 1
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        sent = time.time_ns()
        self._pending[self._serial] = peer, sent
        self._transport.sendto(_DATAGRAM.pack(_MAGIC, peer.token, _ASK, self._serial, 0, 0), peer.address)


def _peer(name: str, text: bytes) -> Peer | None:
    """Read an announcement; None if gamecast did not write it."""
    try:
        fields = orjson.loads(text)
        token = bytes.fromhex(fields["token"])
        host, port, clock = fields["host"], fields["port"], fields["clock"]
    except (ValueError, KeyError, TypeError):
        return None
    is_ours = len(token) == 16 and isinstance(host, str) and isinstance(clock, str) and type(port) is int
    return Peer(name, clock, (host, port), token) if is_ours and 0 < port < 65_536 else None
