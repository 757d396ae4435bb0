"""Accept connections, and count each of them from then on, also during the TLS handshake: by address and in all.

asyncio's own servers show a TLS connection to the application only after its handshake, so silent connections would not
count in any limit. When file descriptors run out, asyncio's servers log each attempt to accept.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gateway.frames import Frames
from gateway.settings import unmapped
from sequencing.errors import UsageError

logger = logging.getLogger("gamecast.gateway")

BACKLOG = 512
ACCEPTS_AT_ONCE = 64
"""How many connections are accepted before other work gets its turn."""
ACCEPT_RETRY_S = 0.1
"""How long the gateway waits when the system cannot give it another connection."""
LOG_EVERY_S = 1.0
DESCRIPTORS_RESERVED = 128
"""File descriptors that connections leave free for Redis, files and all else that the process opens."""
IPV6_PREFIX = 64
"""Bits of the smallest network that one customer gets: a customer with IPv6 has 2^64 addresses."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def descriptors_max() -> int | None:
    """Return how many file descriptors this process may have open, None if there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def connections_bound(connections_max: int, *, spare: int = 0) -> int:
    """Return how many connections fit below the limit of file descriptors; warn if these are fewer than wanted.

    ``spare``: connections that other listeners may have besides.
    """
    most = descriptors_max()
    if most is None:
        return connections_max
    room = most - min(DESCRIPTORS_RESERVED, most // 4) - spare
    if connections_max <= room:
        return connections_max
    bound = max(1, room)
    logger.warning(
        "connections-bounded connections_max=%d: the process may open %d files, so the gateway takes %d connections; "
        "raise the limit (`ulimit -n`, LimitNOFILE=) or lower connections_max",
        connections_max,
        most,
        bound,
    )
    return bound


class SeldomLog:
    """Logs at most one line a second for each subject, with its number of occurrences."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, what: str) -> None:
        """Log an occurrence now, or count it for the next line."""
        if what in self._counts:
            self._counts[what] += 1
            return
        self._counts[what] = 1
        self._write(what)

    def _write(self, what: str) -> None:
        count = self._counts.pop(what, 0)
        if count:
            self._counts[what] = 0
            logger.warning("%s count=%d", what, count)
            asyncio.get_running_loop().call_later(LOG_EVERY_S, self._write, what)


@lru_cache(maxsize=8192)
def counted_as(address: str) -> str:
    """Return the key under which an address is counted.

    An IPv4-mapped address counts as IPv4, any other IPv6 address as its /64.
    """
    try:
        known = unmapped(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return address
    return str(known) if known.version == 4 else str(ipaddress.ip_network((known, IPV6_PREFIX), strict=False))


@dataclass(slots=True)
class Addresses:
    """Counts the connections, or requests in progress, of each address; see `counted_as`."""

    most: int
    """The limit of one address."""
    _counts: dict[str, int] = field(default_factory=dict)

    def enter(self, address: str) -> bool:
        """Count one more; return False, and count nothing, if its address has reached its limit."""
        address = counted_as(address)
        count = self._counts.get(address, 0)
        if count >= self.most:
            return False
        self._counts[address] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Count one less."""
        address = counted_as(address)
        count = self._counts[address] - 1
        if count:
            self._counts[address] = count
        else:
            del self._counts[address]

    def of(self, address: str) -> int:
        """Return how many an address has."""
        return self._counts.get(counted_as(address), 0)


class Turns:
    """Limits how many may do something at a time, in all and from one address; the others wait."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._all, self._most_of_one = asyncio.Semaphore(most), most_of_one
        self._of: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of an address; None waits for the limit of all only."""
        if not address:
            async with self._all:
                yield
            return
        of_one, users = self._of.setdefault(address, (asyncio.Semaphore(self._most_of_one), set()))
        users.add(user := object())
        try:
            async with of_one, self._all:
                yield
        finally:
            users.discard(user)
            if not users:
                del self._of[address]


class Admission:
    """Decides which connections are accepted; all listeners of a gateway share one."""

    def __init__(
        self,
        connections_max: int,
        addresses: Addresses,
        is_proxy: Callable[[str], bool],
        on_refused: Callable[[], None] = lambda: None,
        *,
        handshakes: Turns,
    ) -> None:
        """``is_proxy``: whether an address may have many connections, because it is a proxy's.

        ``on_refused``: counts refusals.
        """
        self.connections = 0
        self.log = SeldomLog()
        self._connections_max, self._addresses = connections_max, addresses
        self._is_proxy, self._on_refused, self._handshakes = is_proxy, on_refused, handshakes

    def enter(self, address: str, *, spare: int) -> Callable[[], None] | None:
        """Count a connection; return a function that ends this, None if it is refused.

        ``spare``: places beyond the limit.
        """
        if self.connections >= self._connections_max + spare:
            self._refuse("connections-refused reason=connections_max")
            return None
        counted = self._counted(address)
        if counted and not self._addresses.enter(counted):
            self._refuse("connections-refused reason=connections_per_address_max")
            return None
        self.connections += 1
        is_in = True

        def leave() -> None:
            nonlocal is_in
            if is_in:
                is_in = False
                self.connections -= 1
                if counted:
                    self._addresses.leave(counted)

        return leave

    def handshake(self, address: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn to negotiate TLS, and keep it while the context is open."""
        return self._handshakes.turn(self._counted(address))

    def _counted(self, address: str) -> str:
        return "" if self._is_proxy(address) else counted_as(address)

    def _refuse(self, why: str) -> None:
        self.log.note(why)
        self._on_refused()


class Listener:
    """Accepts the connections of one address, and gives each accepted connection a protocol."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        admission: Admission,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        handshake_timeout_s: float,
        spare: int = 0,
    ) -> None:
        """``tls``: called for each connection; ``spare``: see `Admission.enter`."""
        self.sockets: list[socket.socket] = []
        self._protocol, self._admission, self._spare = protocol, admission, spare
        self._tls, self._handshake_timeout_s = tls, handshake_timeout_s
        self._accepting: list[asyncio.Task[None]] = []
        self._beginning: set[asyncio.Task[None]] = set()
        """Connections whose TLS handshake is in progress, or that are about to be served."""

    async def listen(self, host: str, port: int) -> None:
        """Listen at each address of a host; raises `OSError`."""
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in addresses):
                listener = socket.create_server(address, family=family, backlog=BACKLOG)
                listener.setblocking(False)
                self.sockets.append(listener)
        except OSError:
            self.close()
            raise
        if not self.sockets:
            raise UsageError(f"the host {host!r} has no address: check its name")
        self._accepting = [
            asyncio.create_task(self._accept(listener), name="gamecast gateway accepting") for listener in self.sockets
        ]

    def close(self) -> None:
        """Accept no more connections, and cancel the handshakes in progress."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        for listener in self.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        """Wait until all tasks have ended."""
        await asyncio.gather(*self._accepting, *self._beginning, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._admission.log.note(f"accept-failed reason={errno.errorcode[error.errno or 0]}")
                    await asyncio.sleep(ACCEPT_RETRY_S)
                continue  # any other error: the client disconnected before it was accepted
            self._take(connection, peer)
            accepted += 1
            if accepted % ACCEPTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # `sock_accept` does not yield while connections are waiting

    def _take(self, connection: socket.socket, peer: Any) -> None:
        address = str(peer[0])
        leave = self._admission.enter(address, spare=self._spare)
        if leave is None:
            connection.close()
            return
        served = Counted(self._protocol(), leave)
        task = asyncio.create_task(self._begin(connection, served, address), name="gamecast gateway connection")
        self._beginning.add(task)

        def begun(task: asyncio.Task[None]) -> None:
            self._beginning.discard(task)
            if not served.is_connected:
                connection.close()
                leave()

        task.add_done_callback(begun)

    async def _begin(self, connection: socket.socket, served: Counted, address: str) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the handshake failed or timed out (`TimeoutError`), or the client disconnected
            if self._tls() is None:
                await loop.connect_accepted_socket(lambda: served, connection)
                return
            async with asyncio.timeout(self._handshake_timeout_s):
                await _until_readable(connection)
                async with self._admission.handshake(address):
                    await loop.connect_accepted_socket(
                        lambda: served,
                        connection,
                        ssl=self._tls(),
                        ssl_handshake_timeout=self._handshake_timeout_s,
                        ssl_shutdown_timeout=self._handshake_timeout_s,
                    )


async def _until_readable(connection: socket.socket) -> None:
    """Wait for the first byte: asyncio gives each TLS connection 300 kB of buffers, which silent ones do not need."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(connection, readable.set)
    except NotImplementedError:  # the loop of Windows
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)


class Counted(asyncio.Protocol):
    """Passes everything to the protocol of a connection, and counts its end, and a WebSocket's frames."""

    __slots__ = ("_leave", "_served", "_transport", "frames", "is_connected")

    def __init__(self, served: asyncio.Protocol, leave: Callable[[], None]) -> None:
        self._served, self._leave = served, leave
        self.is_connected = False
        self.frames: Frames | None = None
        """Of a WebSocket, from its upgrade on."""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_connected, self._transport = True, transport
        self._served.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._transport = self.frames = None
        self._served.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.frames is None or self.frames.take(data):
            self._served.data_received(data)
        elif not self.frames.is_known and isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._served.eof_received()

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()
