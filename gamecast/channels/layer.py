"""`GamecastChannelLayer`: the channel layer that Django's settings name."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from typing import Any, TypeVar

import msgpack
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from gamecast.channels.hub import Hub, new_process, owner_of
from gamecast.channels.mailboxes import Mailboxes
from gamecast.client.closing import CLOSE_S_MAX
from gamecast.lasting import LastingClient
from gamecast.loopthread import shared_loop

Result = TypeVar("Result")

TOKEN_BYTES = 8


logger = logging.getLogger("gamecast.channels")


class GamecastChannelLayer(BaseChannelLayer):  # type: ignore[misc]  # Channels has no types
    """A channel layer in which all consumers of some groups get the messages of these groups in one order.

    ``CHANNEL_LAYERS = {"default": {"BACKEND": "gamecast.channels.GamecastChannelLayer", "CONFIG": {"url": …}}}``

    ``url``: the network, as `gamecast.connect` takes it. ``prefix``: begins the names of its regions. ``expiry``: the
    seconds after which a message that was not received is dropped. ``group_expiry``: the seconds after which a channel
    leaves a group. ``lost``: the type of a message that the channels of a group get if some of its messages may be
    lost, because Redis came back without its data, say. ``capacity``: how many messages of a channel may wait, and
    ``channel_capacity`` the same for the channels whose names match a pattern. Further options are those of
    `gamecast.connect`.

    It may be used from any thread and event loop: the process has one client, in a thread of its own.
    """

    extensions = ("groups", "flush")

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = "asgi",
        expiry: float = 60,
        group_expiry: float = 86_400,
        capacity: int = 100,
        channel_capacity: Mapping[Any, int] | None = None,
        lost: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(expiry, capacity, self.compile_capacities(dict(channel_capacity or {})))
        self.prefix = prefix
        self.group_expiry = group_expiry
        self.lost = lost
        self._connection: tuple[str | None, dict[str, Any]] = url, options
        LastingClient(url, **options)  # refuses wrong options at once
        self._lock = threading.Lock()
        self._hub: tuple[int, asyncio.AbstractEventLoop, Hub] | None = None
        """The process, the event loop and the client; None before it is first used, and after `close_connections`."""
        self._local: tuple[int, str, Mailboxes] | None = None
        """The process, its name in the network, and what has come for its channels."""

    async def new_channel(self, prefix: str = "specific") -> str:
        """Return the name of a new channel of this process, to which every process can send when this returns."""
        await self._call(_nothing)
        channel = f"{prefix}.{self._working()[1].process}!{os.urandom(TOKEN_BYTES).hex()}"
        self.require_valid_channel_name(channel)
        return channel

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send a message to one channel. Raises `ChannelFull` if that is at its capacity.

        A channel of another process is not asked: beyond its capacity, that process drops the message.
        """
        self._check(channel)
        data = self._encoded(message)
        if not await self._call(lambda hub: hub.send(channel, data)):
            raise ChannelFull(channel)

    async def receive(self, channel: str) -> dict[str, Any]:
        """Return the next message of a channel; waits for it. If several wait, one of them gets it."""
        self._check(channel)
        loop, hub = self._working()
        owner = owner_of(channel)
        if owner is not None and owner != hub.process:
            raise TypeError(f"channel {channel!r} is of another process, which alone can receive its messages")
        while True:
            data = hub.mailboxes.take(channel)
            if data is None and owner is None:
                await self._call(lambda hub: hub.join_queue(channel))
                data = await hub.mailboxes.get(channel, lambda: _soon(loop, hub.claim, channel))
            elif data is None:
                if not hub.is_open:  # after `close_connections`, there is no client
                    await self._call(_nothing)
                data = await hub.mailboxes.get(channel)
            if (message := self._read(channel, data)) is not None:
                return message

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group: it gets all that is sent to the group once this has returned."""
        self.require_valid_group_name(group)
        self._check(channel)
        await self._call(lambda hub: hub.add(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group; harmless if it is not in it."""
        self.require_valid_group_name(group)
        self._check(channel)
        await self._call(lambda hub: hub.discard(group, channel))

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send a message to all channels of a group; those at their capacity do not get it."""
        self.require_valid_group_name(group)
        data = self._encoded(message)
        await self._call(lambda hub: hub.send_to_group(group, data))

    async def flush(self) -> None:
        """Forget the groups and messages of this process, and the messages of the general channels that it uses."""
        await self._call(lambda hub: hub.flush())

    def serialize(self, message: dict[str, Any]) -> bytes:
        """Return a message as bytes: MessagePack. A subclass may encrypt it, say; all processes do the same then."""
        data: bytes = msgpack.packb(message)
        return data

    def deserialize(self, message: bytes) -> dict[str, Any]:
        """Return the message that `serialize` was given."""
        unpacked: dict[str, Any] = msgpack.unpackb(message, strict_map_key=False)
        return unpacked

    def _lost_message(self, group: str, reason: str) -> bytes:
        return self.serialize({"type": self.lost, "group": group, "reason": reason})

    def _read(self, channel: str, data: Any) -> dict[str, Any] | None:
        """Return a message, or None for what another program has published in our regions."""
        try:
            message = self.deserialize(data)
        except Exception as error:  # noqa: BLE001 - whatever a codec raises on foreign bytes
            logger.warning("a message to %s cannot be read: %s", channel, error)
            return None
        if isinstance(message, dict):
            return message
        logger.warning("a message to %s is a %s, not a dict", channel, type(message).__name__)
        return None

    async def close_connections(self) -> None:
        """Close the client of this process; the next call opens another one, without groups."""
        if (left := self._leave()) is not None:
            loop, hub = left
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(hub.close(), loop))
            await asyncio.to_thread(shared_loop.leave, loop)

    async def close(self) -> None:
        """As `close_connections`."""
        await self.close_connections()

    def _check(self, channel: str) -> None:
        self.require_valid_channel_name(channel)
        if "!" in channel and owner_of(channel) is None:
            raise TypeError(f"channel {channel!r} is of no process: new_channel() makes channels of this one")

    def _encoded(self, message: dict[str, Any]) -> bytes:
        if not isinstance(message, dict):
            raise TypeError(f"a message is a dict, not {type(message).__name__}")
        return self.serialize(message)

    async def _call(self, call: Callable[[Hub], Coroutine[Any, Any, Result]]) -> Result:
        loop, hub = self._working()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(hub.perform(lambda: call(hub)), loop))

    def _working(self) -> tuple[asyncio.AbstractEventLoop, Hub]:
        with self._lock:
            if self._hub is None or self._hub[0] != os.getpid():  # what a fork has of it does not run
                url, options = self._connection
                if self._local is None or self._local[0] != os.getpid():
                    self._local = os.getpid(), new_process(), Mailboxes(self.expiry, self.get_capacity)
                hub = Hub(
                    LastingClient(url, **options),
                    *self._local[1:],
                    prefix=self.prefix,
                    expiry_s=self.expiry,
                    group_expiry_s=self.group_expiry,
                    capacity_of=self.get_capacity,
                    lost=self._lost_message if self.lost is not None else None,
                )
                self._hub = os.getpid(), shared_loop.enter(), hub
                atexit.register(self._at_exit)
            return self._hub[1:]

    def _leave(self) -> tuple[asyncio.AbstractEventLoop, Hub] | None:
        with self._lock:
            atexit.unregister(self._at_exit)
            if self._hub is None or self._hub[0] != os.getpid():
                return None
            (_, loop, hub), self._hub = self._hub, None
            return loop, hub

    def _at_exit(self) -> None:
        if (left := self._leave()) is not None:
            loop, hub = left
            with suppress(TooLate):
                asyncio.run_coroutine_threadsafe(hub.close(), loop).result(CLOSE_S_MAX + 1)


async def _nothing(_: Hub) -> None:
    """Do nothing, when the client is open."""


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[str], None], channel: str) -> None:
    with suppress(RuntimeError):  # the client was closed meanwhile
        loop.call_soon_threadsafe(call, channel)
