"""Mailboxes: FIFO from each process to each other one, exactly once; in this process, or in Redis.

In Redis a mailbox is a stream. Its owner reads it from its last position, and trims what it has read. A sender numbers
its packets to each other process, and a script appends only the next number. So a batch whose answer is lost can be
sent again. All keys of a network have one hash tag.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from adapters.redis.connection import RedisConnection, Script
from sequencing.errors import NetworkError, OtherSideError

Packet = tuple[str, bytes]
"""When sending: the receiver and the data; when receiving: the sender and the data."""

PACKETS_MAX = 512
"""How many packets one read takes: enough to keep up, and few enough to deliver soon."""
RETRY_S = 0.1

APPEND = Script(
    b"""
    -- KEYS: the last numbers, then mailboxes. ARGV: the sender; then for each packet its mailbox's place, number, data.
    -- Returns how many are new.
    local new = 0
    for i = 2, #ARGV, 3 do
        local box, number = KEYS[tonumber(ARGV[i])], tonumber(ARGV[i + 1])
        local link = ARGV[1] .. ' ' .. box
        local last = tonumber(redis.call('HGET', KEYS[1], link) or '0')
        if number > last + 1 then
            return redis.error_reply('packet ' .. number .. ' of ' .. link .. ' comes after ' .. last)
        end
        if number == last + 1 then
            redis.call('XADD', box, '*', 's', ARGV[1], 'd', ARGV[i + 2])
            redis.call('HSET', KEYS[1], link, number)
            new = new + 1
        end
    end
    return new
    """,
    "append",
)


BEAT = Script(
    b"""
    -- KEYS: when each process was last here, in ms. ARGV: the process that is here now.
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('HSET', KEYS[1], ARGV[1], now)
    return {now, redis.call('HGETALL', KEYS[1])}
    """,
    "beat",
)


class Mailbox(Protocol):
    """The mailbox of one process, and its access to those of others."""

    async def send(self, packets: Sequence[Packet]) -> None:
        """Put packets into the receivers' mailboxes, in this order, each once; return when they are stored."""

    async def receive(self) -> list[Packet]:
        """Wait for packets, and return them in order."""

    async def beat(self) -> dict[str, float]:
        """Say that the owner is here; return how many seconds ago each process last said so. Raises `NetworkError`."""

    async def close(self) -> None:
        """Close all connections."""


class MemoryMailbox:
    """A mailbox in this process. Networks are distinguished by their names."""

    _boxes: dict[tuple[str, str], asyncio.Queue[Packet]] = defaultdict(asyncio.Queue)  # noqa: RUF012 — this process'
    _beats: dict[str, dict[str, float]] = defaultdict(dict)  # noqa: RUF012 — this process'

    def __init__(self, network: str, owner: str) -> None:
        self._network, self._owner = network, owner

    async def send(self, packets: Sequence[Packet]) -> None:
        """Put packets into the receivers' mailboxes."""
        for to, data in packets:
            self._boxes[self._network, to].put_nowait((self._owner, data))

    async def receive(self) -> list[Packet]:
        """Wait for packets."""
        box = self._boxes[self._network, self._owner]
        packets = [await box.get()]
        while not box.empty():
            packets.append(box.get_nowait())
        return packets

    async def beat(self) -> dict[str, float]:
        """See `Mailbox.beat`."""
        beats, now = self._beats[self._network], time.monotonic()
        beats[self._owner] = now
        return {name: now - at for name, at in beats.items()}

    async def close(self) -> None:
        """Drop unread packets."""
        self._boxes.pop((self._network, self._owner), None)


class RedisMailbox:
    """A mailbox in Redis. One task may send while another receives and one beats: each has its own connection."""

    def __init__(self, url: str, network: str, owner: str, *, block_ms: int = 1000) -> None:
        self._network, self._owner, self._block_ms = network, owner, block_ms
        self._writer, self._reader, self._beater = (RedisConnection(url) for _ in range(3))
        self._sent: dict[str, int] = defaultdict(int)
        self._last_read = b"0"

    async def send(self, packets: Sequence[Packet]) -> None:
        """Put packets into the receivers' mailboxes; retry while the server is unreachable.

        Raises `OtherSideError` if another process of this name has sent packets in this network: they would be taken
        for that one's.
        """
        keys = [self._key("numbers"), *dict.fromkeys(self._box(to) for to, _ in packets)]
        arguments: list[object] = [self._owner]
        for to, data in packets:
            self._sent[to] += 1
            arguments += [keys.index(self._box(to)) + 1, self._sent[to], data]
        is_repeated = False
        while True:
            try:
                new = int(await self._writer.run(APPEND, keys, *arguments))
            except NetworkError:
                is_repeated = True
                await asyncio.sleep(RETRY_S)
            else:
                if new < len(packets) and not is_repeated:
                    raise OtherSideError(
                        f"another process called {self._owner} has sent in the network {self._network!r}: a network is "
                        "used once, choose another name for this one"
                    )
                return

    async def receive(self) -> list[Packet]:
        """Wait for packets, even while the server is unreachable."""
        while True:
            try:
                command = ("XREAD", "COUNT", PACKETS_MAX, "BLOCK", self._block_ms)
                answer = await self._reader.call(*command, "STREAMS", self._box(self._owner), self._last_read)
                if not answer:
                    continue
                [[_, entries]] = answer.items() if isinstance(answer, dict) else answer
                self._last_read = entries[-1][0]
                packets = [(fields[1].decode(), fields[3]) for _, fields in entries]
                # All before the last packet read: trimmed packets have certainly arrived here.
                await self._reader.call("XTRIM", self._box(self._owner), "MINID", self._last_read)
            except NetworkError:
                await asyncio.sleep(RETRY_S)
            else:
                return packets

    async def beat(self) -> dict[str, float]:
        """See `Mailbox.beat`."""
        now, said = await self._beater.run(BEAT, [self._key("beats")], self._owner)
        pairs = said.items() if isinstance(said, dict) else zip(said[::2], said[1::2], strict=True)
        return {name.decode(): (int(now) - int(at)) / 1000 for name, at in pairs}

    async def close(self) -> None:
        """Close the connections; the mailbox stays, because others may still write to it."""
        for connection in (self._writer, self._reader, self._beater):
            await connection.close()

    def _box(self, process: str) -> str:
        return self._key(f"box:{process}")

    def _key(self, what: str) -> str:
        return f"{{classic:{self._network}}}:{what}"
