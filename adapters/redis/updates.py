"""Updates through Redis: channels of the nodes, for what may be lost. See `sequencing.updates`.

A region's updates are published at the node where its events end, on a channel of its own. They have connections of
their own: Redis cuts off listeners that are too slow, and ordered events must not be cut off with them. A connection
that breaks is opened again. What its sender has no answer for is then sent again: who has it already does not take it
twice. What is sent while a listener's is broken is lost to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import hiredis
from redis import exceptions

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.network import UpdateUser
from adapters.redis.places import connection_to, places_of
from adapters.redis.wire import Wire
from adapters.urls import own_options, redacted
from sequencing.errors import GamecastError, InvalidInput
from sequencing.keyspace import NodeKeys
from sequencing.plan import Plan
from sequencing.updates import decode

_log = logging.getLogger("gamecast")

IN_FLIGHT_MAX = 64
"""Messages at one node without an answer; beyond it, newer updates take the place of those that are not sent."""
IN_FLIGHT_BYTES_MAX = 4 * 1024 * 1024
"""The same in bytes."""
KEEP_S = 1.0
"""A sender that sends nothing for so long asks for an answer: servers (`timeout`) and proxies cut off who is idle, and
what is sent next would be late, or lost."""
PING_S = 5.0
"""How often a listener asks whether its server is there; without an answer by the next time, it connects again."""


class UpdateHub:
    """The updates of one process, or of one connection, at all nodes."""

    def __init__(self, way_to: Callable[[str], str]) -> None:
        """``way_to``: returns the URL by which a node's server is reached, of the one in a plan."""
        self._way_to = way_to
        self._urls: dict[str, str] = {}
        self._senders: dict[str, _Sender] = {}
        self._listeners: dict[str, _Listener] = {}
        self._users: dict[tuple[str, str], dict[HubPort, None]] = {}
        """(node, region) → the ports that listen."""
        self._ports: dict[HubPort, None] = {}

    def port(self, user: UpdateUser) -> HubPort:
        """Return the access of one connection."""
        port = HubPort(self, user)
        self._ports[port] = None
        return port

    def follow(self, plan: Plan) -> None:
        """See `UpdatePort.follow`."""
        self._urls = {**self._urls, **plan.nodes} if plan.nodes != self._urls else self._urls

    def sender(self, node: str) -> _Sender:
        """Return the way to publish at a node."""
        sender = self._senders.get(node)
        if sender is None:
            sender = self._senders[node] = _Sender(node, self._url_of(node), self._has_room)
        return sender

    def listen(self, port: HubPort, node: str, region: str, *, on: bool) -> None:
        """See `UpdatePort.listen`."""
        users = self._users.setdefault((node, region), {})
        if on:
            users[port] = None
            if len(users) == 1:
                listener = self._listeners.get(node)
                if listener is None:
                    listener = self._listeners[node] = _Listener(node, self._url_of(node), self._take)
                listener.listen(region, on=True)
            return
        users.pop(port, None)
        if not users:
            del self._users[node, region]
            if node in self._listeners:
                self._listeners[node].listen(region, on=False)

    def leave(self, port: HubPort) -> None:
        """Forget a port that listens to nothing any more."""
        self._ports.pop(port, None)

    async def close(self) -> None:
        """End all connections, also if there is no time left to wait for their ends."""
        ends = [*self._senders.values(), *self._listeners.values()]
        self._senders, self._listeners = {}, {}
        for each in ends:
            each.stop()
        await asyncio.gather(*(each.close() for each in ends))

    def _url_of(self, node: str) -> str:
        return self._way_to(self._urls.get(node, ""))

    def _has_room(self) -> None:
        for port in list(self._ports):
            port.user.on_room()

    def _take(self, node: str, region: str, message: bytes) -> None:
        users = self._users.get((node, region))
        if not users:
            return
        try:
            bundle = decode(message)
        except InvalidInput:  # a stranger's, or of a later version
            return
        for port in list(users):
            port.user.take_updates(region, bundle)


class HubPort:
    """One connection's access. Implements `adapters.network.UpdatePort`."""

    def __init__(self, hub: UpdateHub, user: UpdateUser) -> None:
        """Use `UpdateHub.port`."""
        self._hub, self.user = hub, user
        self._listened: set[tuple[str, str]] = set()

    def follow(self, plan: Plan) -> None:
        """See `UpdatePort.follow`."""
        self._hub.follow(plan)

    def has_room(self, node: str) -> bool:
        """See `UpdatePort.has_room`."""
        return self._hub.sender(node).has_room

    def send(self, node: str, region: str, message: bytes) -> None:
        """See `UpdatePort.send`."""
        self._hub.sender(node).send(region, message)

    def listen(self, node: str, region: str, *, on: bool) -> None:
        """See `UpdatePort.listen`."""
        if on is ((node, region) in self._listened):
            return
        (self._listened.add if on else self._listened.remove)((node, region))
        self._hub.listen(self, node, region, on=on)

    async def close(self) -> None:
        """See `UpdatePort.close`."""
        for node, region in self._listened:
            self._hub.listen(self, node, region, on=False)
        self._listened.clear()
        self._hub.leave(self)


class _Connected:
    """A connection to one node's server that is opened again whenever it breaks."""

    def __init__(self, node: str, url: str, what: str) -> None:
        self._node, self._url, self._what = node, url, what
        self._keys = NodeKeys(node)
        self._wire: Wire | None = None
        self._broken = asyncio.Event()
        self._is_logged = False
        self._task = keep_running(self._run, name=f"gamecast updates {what} {node}")

    def stop(self) -> None:
        """End soon."""
        self._task.cancel()

    async def close(self) -> None:
        """End."""
        self.stop()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            connection: Any = None
            try:
                connection = await self._connected()
                self._broken.clear()
                self._opened(connection)
                backoff.reset()
                self._is_logged = False
                await self._serve()
            except (exceptions.RedisError, OSError, TimeoutError, GamecastError, ValueError) as error:
                if not self._is_logged:
                    self._is_logged = True
                    where = redacted(self._url)
                    _log.warning("updates are not %s at node %s, %s: %s", self._what, self._node, where, error)
            finally:
                if self._wire is not None:
                    self._wire.let_go()
                    self._wire = None
                if connection is not None:
                    await connection.disconnect(nowait=True)
            await backoff.wait()

    async def _connected(self) -> Any:
        url, _ = own_options(self._url)
        places = places_of(url, self._node)
        connection = connection_to(url if places is None else await places.look())
        await connection.connect()
        return connection

    def _opened(self, connection: Any) -> None:
        raise NotImplementedError

    async def _serve(self) -> None:
        await self._broken.wait()


class _Sender(_Connected):
    """Publishes at one node."""

    def __init__(self, node: str, url: str, on_room: Callable[[], None]) -> None:
        self._on_room = on_room
        self._unanswered: deque[tuple[str, bytes]] = deque()
        """Region and message, in the order in which they were sent."""
        self._bytes = 0
        self._is_used = self._is_heard = self._is_asked = False
        super().__init__(node, url, "sent")

    @property
    def has_room(self) -> bool:
        """Whether a message can be sent now."""
        is_full = len(self._unanswered) >= IN_FLIGHT_MAX or self._bytes >= IN_FLIGHT_BYTES_MAX
        return self._wire is not None and not is_full

    def send(self, region: str, message: bytes) -> None:
        """Publish a message."""
        if self._wire is not None:
            self._unanswered.append((region, message))
            self._bytes += len(message)
            self._publish(self._wire, region, message)

    def _publish(self, wire: Wire, region: str, message: bytes) -> None:
        self._is_used = True
        words: tuple[Any, ...] = (b"PUBLISH", self._keys.updates(region), message)
        wire.send([hiredis.pack_command(words)], 1, self._answered)

    def _opened(self, connection: Any) -> None:
        self._wire = wire = Wire(connection)
        self._is_asked = False
        for region, message in [*self._unanswered]:
            self._publish(wire, region, message)
        self._on_room()

    def _answered(self, replies: list[Any], error: Exception | None) -> None:
        if error is not None:
            self._broken.set()  # what keeps it from connecting again is logged there
            return
        self._is_heard, had_room = True, self.has_room
        self._bytes -= len(self._unanswered.popleft()[1])
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if refused is not None and not self._is_logged:
            self._is_logged = True
            _log.warning("updates are refused at node %s: %s", self._node, refused)
        if not had_room:
            self._on_room()

    async def _serve(self) -> None:
        silent_s = 0.0
        while not self._broken.is_set():
            self._is_used = self._is_heard = False
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEP_S):
                    await self._broken.wait()
            is_awaited = self._is_asked or bool(self._unanswered)
            silent_s = silent_s + KEEP_S if is_awaited and not self._is_heard else 0.0
            if silent_s >= PING_S:
                raise TimeoutError(f"the server has not answered for {PING_S:g} s")
            if not is_awaited and not self._is_used and self._wire is not None:
                self._is_asked = True
                self._wire.send([hiredis.pack_command((b"PING",))], 1, self._pinged)

    def _pinged(self, _: list[Any], error: Exception | None) -> None:
        self._is_asked, self._is_heard = False, True
        if error is not None:
            self._broken.set()


class _Listener(_Connected):
    """Listens to regions at one node. Implements `adapters.redis.wire.Pushed`."""

    def __init__(self, node: str, url: str, take: Callable[[str, str, bytes], None]) -> None:
        """``take``: called with the node, the region and what was sent."""
        self._take = take
        self._regions: dict[bytes, str] = {}
        """Channel → region."""
        self._is_there = True
        super().__init__(node, url, "received")

    def listen(self, region: str, *, on: bool) -> None:
        """Begin or end to listen to a region."""
        channel = self._keys.updates(region).encode()
        if on:
            self._regions[channel] = region
        else:
            self._regions.pop(channel, None)
        self._write(b"SUBSCRIBE" if on else b"UNSUBSCRIBE", [channel])

    def _write(self, command: bytes, channels: Iterable[bytes]) -> None:
        if self._wire is not None and (named := tuple(channels)):
            words: tuple[Any, ...] = (command, *named)
            self._wire.write([hiredis.pack_command(words)])

    def _opened(self, connection: Any) -> None:
        self._wire = Wire(connection, self)
        self._write(b"SUBSCRIBE", self._regions)

    async def _serve(self) -> None:
        while not self._broken.is_set():
            self._is_there = False
            if self._wire is not None:
                self._wire.write([hiredis.pack_command((b"PING",))])
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    await self._broken.wait()
            if not self._is_there and not self._broken.is_set():
                raise TimeoutError(f"the server has not answered for {PING_S:g} s")

    def take(self, message: Any) -> None:
        """See `Pushed.take`."""
        self._is_there = True
        if isinstance(message, list) and message[0] == b"message":
            region = self._regions.get(message[1])
            if region is not None:
                self._take(self._node, region, message[2])
        elif isinstance(message, Exception) and not self._is_logged:
            self._is_logged = True
            _log.warning("updates cannot be received at node %s: %s", self._node, message)

    def all_taken(self) -> None:
        """See `Pushed.all_taken`."""

    def lost(self, error: Exception) -> None:
        """See `Pushed.lost`."""
        self._broken.set()
