"""A client manager for python-socketio, with one order across rooms; see docs/drop-ins.md.

A room is a region, and so are the clients of a namespace and each single client. A server process subscribes to the
regions of the rooms that its clients are in. What a process emits comes back to itself, in its place in the order, and
only then goes to its own clients.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from gamecast.client.configuration import configured
from gamecast.event import Event, Gap, Item
from gamecast.lasting import UNKNOWN, LastingClient
from sequencing.errors import GamecastError, InvalidName, UsageError
from sequencing.extras import needed_by
from sequencing.names import check_region

with needed_by("gamecast.socketio"):
    from socketio.async_pubsub_manager import AsyncPubSubManager

__all__ = ["GamecastManager"]

logger = logging.getLogger("gamecast.socketio")

PUBLISH_TIMEOUT_S = 60.0
"""How long an emit waits for a Redis that is away: a restart takes less."""
OWN_DELIVERED_S_MAX = 2.0
"""How long a change of who is in a room waits until what was emitted to it before has been delivered here."""
REOPEN_S = 1.0


@dataclass(slots=True)
class _Room:
    """A room of a namespace, as this process follows it."""

    namespace: str
    room: Any
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """How many calls have or want the lock."""
    is_joined: bool = False


class GamecastManager(AsyncPubSubManager):  # type: ignore[misc]  # python-socketio has no types
    """The client manager of `socketio.AsyncServer`: events of several rooms come to all servers in one order.

    ``url``: the network, as `gamecast.connect` takes it. ``channel``: begins the names of its regions; the same in all
    servers. ``lost_event``: an event for the clients of a room of which events may be lost, because Redis came back
    without its data, say. ``write_only``, ``logger`` and ``json``: as of `socketio.AsyncRedisManager`. Further options
    are those of `gamecast.connect`.
    """

    name = "gamecast"

    def __init__(
        self,
        url: str | None = None,
        channel: str = "socketio",
        write_only: bool = False,
        logger: Any = None,
        json: Any = None,
        *,
        lost_event: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(channel=channel, write_only=write_only, logger=logger, json=json)
        self._connection = url, {"publish_timeout_s": PUBLISH_TIMEOUT_S} | options
        configured(url, **options)  # refuses wrong options at once
        self.lost_event = lost_event
        self._client: LastingClient | None = None
        self._opening = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        self._followed: dict[str, _Room] = {}
        self._own: dict[str, str] = {}
        """Region that is followed → the position of the last event that this process has published there."""

    def set_server(self, server: Any) -> None:
        """Work for this server. Raises `UsageError` for a `socketio.Server`, which does not await what it calls."""
        if not server.is_asyncio_based():
            raise UsageError(
                "GamecastManager is for socketio.AsyncServer: the calls of a socketio.Server would do nothing"
            )
        super().set_server(server)

    async def can_disconnect(self, sid: str, namespace: str) -> Any:
        """Return whether a client is of this server; if not, ask the server that it is of to disconnect it."""
        if self._is_here(sid, namespace):
            for room in self._rooms_of(sid, namespace):
                await self._own_delivered(self._region(namespace, room))
        return await super().can_disconnect(sid, namespace)

    async def pre_connect(self, eio_sid: str, namespace: str) -> Any:
        """Register a client; it gets everything that is emitted to it or its namespace when this returns."""
        sid = await super().pre_connect(eio_sid, namespace)
        if sid is not None:
            await self._settle(namespace, None)
            await self._settle(namespace, sid)
        return sid

    async def disconnect(self, sid: str, namespace: str, **kwargs: Any) -> Any:
        """Remove a client from all its rooms."""
        rooms = self._rooms_of(sid, namespace)
        result = await super().disconnect(sid, namespace, **kwargs)
        for room in rooms:
            await self._settle(namespace, room)
        return result

    async def enter_room(self, sid: str, namespace: str, room: Any, eio_sid: str | None = None) -> None:
        """Add a client of any server to a room."""
        if not self._is_here(sid, namespace):
            await super().enter_room(sid, namespace, room, eio_sid=eio_sid)
            return
        async with self._following(namespace, room):
            await self._own_delivered(self._region(namespace, room))
            if self._is_here(sid, namespace):  # it has not left meanwhile
                await super().enter_room(sid, namespace, room, eio_sid=eio_sid)

    async def leave_room(self, sid: str, namespace: str, room: Any) -> None:
        """Remove a client of any server from a room."""
        if self._is_here(sid, namespace):
            await self._own_delivered(self._region(namespace, room))
        await super().leave_room(sid, namespace, room)
        await self._settle(namespace, room)

    async def open(self) -> None:
        """Connect now. Otherwise the first client or emit does, which takes longer then."""
        await self._opened()

    async def close(self) -> None:
        """Disconnect from the network; an emit connects again."""
        client, self._client = self._client, None
        draining, self._draining = self._draining, None
        if draining is not None:
            draining.cancel()
        for room in self._followed.values():
            room.is_joined = False
        if client is not None:
            await client.close()

    async def _publish(self, data: dict[str, Any]) -> None:
        region = self._region_for(data)
        client = await self._opened()
        receipt = await client.publish(region, self.json.dumps(data).encode())
        if (room := self._followed.get(region)) is not None and room.is_joined:
            self._own[region] = receipt.position

    async def _handle_emit(self, message: dict[str, Any]) -> None:
        if message.get("host_id") != self.host_id:  # our own comes back, in its place in the order
            await super()._handle_emit(message)

    async def _handle_close_room(self, message: dict[str, Any]) -> None:
        if message.get("host_id") != self.host_id:
            await self._close_room(message)

    async def _close_room(self, message: dict[str, Any]) -> None:
        await super()._handle_close_room(message)
        await self._settle(message.get("namespace") or "/", message.get("room"))

    async def _handle_enter_room(self, message: dict[str, Any]) -> None:
        # Unlike `enter_room`, this cannot wait for what comes next.
        if self._is_here(message["sid"], message["namespace"]):
            async with self._following(message["namespace"], message["room"]):
                await super()._handle_enter_room(message)

    async def _handle_leave_room(self, message: dict[str, Any]) -> None:
        await super()._handle_leave_room(message)
        await self._settle(message["namespace"], message["room"])

    async def _thread(self) -> None:
        """Deliver what comes from the network, for as long as the server runs."""
        try:
            while True:
                try:
                    client = await self._opened()
                except GamecastError as error:
                    logger.warning("cannot connect, trying again: %s", error)
                    await asyncio.sleep(REOPEN_S)
                    continue
                async for item in client.items():
                    await self._deliver(item)
                if client is not self._client:
                    return
        finally:
            await self.close()

    async def _deliver(self, item: Item) -> None:
        if not isinstance(item, Event | Gap):
            return
        try:
            if isinstance(item, Gap):
                await self._note_lost(item)
                return
            message = self.json.loads(item.payload)
            method, is_own = message["method"], message.get("host_id") == self.host_id
            if method == "emit":
                await super()._handle_emit(message)
            elif method == "close_room":
                await self._close_room(message)
            elif method == "callback":  # may wait for what comes next
                self.server.start_background_task(self._handle_callback, message)
            elif is_own:
                return
            elif method == "disconnect":
                self.server.start_background_task(self._handle_disconnect, message)
            elif method == "enter_room":
                await self._handle_enter_room(message)
            elif method == "leave_room":
                await self._handle_leave_room(message)
        except Exception:  # one message that cannot be handled must not stop the others
            logger.exception("a message of %s cannot be handled", item.region)

    async def _note_lost(self, gap: Gap) -> None:
        if gap.epoch != UNKNOWN:
            logger.warning("messages of %s are lost: %s", gap.region, gap.reason)
        self._own.pop(gap.region, None)
        entry = self._followed.get(gap.region)
        if entry is not None and self.lost_event is not None:
            await super()._handle_emit(
                {
                    "event": self.lost_event,
                    "data": {"room": entry.room, "reason": gap.reason},
                    "namespace": entry.namespace,
                    "room": entry.room,
                }
            )

    async def _opened(self) -> LastingClient:
        async with self._opening:
            if self._client is None:
                url, options = self._connection
                client = LastingClient(url, **options)
                try:
                    await client.open()
                    if not self.write_only:
                        await client.subscribe(self._host_region(self.host_id))
                except BaseException:
                    await client.close()
                    raise
                self._client = client
                if self.write_only:
                    self._draining = asyncio.create_task(_drain(client), name="gamecast socketio")
            return self._client

    @asynccontextmanager
    async def _following(self, namespace: str, room: Any) -> AsyncIterator[None]:
        """Follow a room's region in this context, and afterwards if a client of this server is in the room."""
        region = self._region(namespace, room)
        entry = self._followed.setdefault(region, _Room(namespace, room))
        entry.users += 1
        try:
            async with entry.lock:
                if not entry.is_joined:
                    await (await self._opened()).subscribe(region)
                    entry.is_joined = True
                yield
        finally:
            entry.users -= 1
            await self._leave_if_empty(namespace, room, region, entry)

    async def _settle(self, namespace: str, room: Any) -> None:
        """Follow a room's region if a client of this server is in the room, and not otherwise."""
        if self._has_clients(namespace, room):
            async with self._following(namespace, room):
                pass
        else:
            region = self._region(namespace, room)
            if (entry := self._followed.get(region)) is not None:
                await self._leave_if_empty(namespace, room, region, entry)

    async def _leave_if_empty(self, namespace: str, room: Any, region: str, entry: _Room) -> None:
        if entry.users or self._has_clients(namespace, room) or self._followed.get(region) is not entry:
            return
        entry.users += 1
        try:
            async with entry.lock:
                if entry.users == 1 and not self._has_clients(namespace, room):
                    self._own.pop(region, None)
                    if entry.is_joined and self._client is not None:
                        entry.is_joined = False
                        with suppress(GamecastError):
                            await self._client.unsubscribe(region)
        finally:
            entry.users -= 1
            if not entry.users and not entry.is_joined:
                self._followed.pop(region, None)

    async def _own_delivered(self, region: str) -> None:
        """Return when the clients of this server have been sent what this process has emitted to a room."""
        position = self._own.get(region)
        if position is not None and self._client is not None:
            with suppress(GamecastError, TimeoutError):
                async with asyncio.timeout(OWN_DELIVERED_S_MAX):
                    await self._client.caught_up(region, position)

    def _region_for(self, message: dict[str, Any]) -> str:
        """Return where a message goes: only to the servers that it concerns, and in one order with what they get."""
        method, namespace = message["method"], message.get("namespace") or "/"
        if method == "callback":
            return self._host_region(message["host_id"])
        if method in {"emit", "close_room"}:
            room = message.get("room")
            # Several rooms at once: each server has the region of the namespace, and sends to each client once.
            return self._region(namespace, None if isinstance(room, list | tuple) else room)
        return self._region(namespace, message["sid"])

    def _region(self, namespace: str, room: Any) -> str:
        return self._named("all", namespace) if room is None else self._named("room", namespace, _text_of(room))

    def _host_region(self, host_id: str) -> str:
        return self._named("host", host_id)

    def _named(self, *parts: str) -> str:
        # Escaped, so that different parts never make one name.
        name = ":".join((self.channel, *(part.replace("%", "%25").replace(":", "%3A") for part in parts)))
        try:
            return check_region(name)
        except InvalidName:  # rooms may have longer names than regions, and any characters
            return f"{self.channel}:{parts[0]}:sha256:{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"

    def _is_here(self, sid: str, namespace: str) -> bool:
        return bool(self.is_connected(sid, namespace) or self.is_pre_connected(sid, namespace))

    def _has_clients(self, namespace: str, room: Any) -> bool:
        return bool(self.rooms.get(namespace, {}).get(room))

    def _rooms_of(self, sid: str, namespace: str) -> list[Any]:
        return [room for room, clients in self.rooms.get(namespace, {}).items() if sid in clients]


async def _drain(client: LastingClient) -> None:
    """Notice the ends of the sessions of a client that only publishes."""
    async for _ in client.items():
        pass


def _text_of(room: Any) -> str:
    """Return a text that is another one for each room: 5 and "5" are two, 5 and 5.0 are one, as in a dictionary."""
    if isinstance(room, str):
        return room if not room.startswith("=") else f"=={room}"
    if isinstance(room, bool | int | float) and room == room // 1:
        room = int(room)
    return f"={room!r}"
