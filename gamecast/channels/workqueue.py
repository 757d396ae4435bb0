"""A general channel: its messages wait in the network until one of the processes that receive takes each.

Each message is a key of the channel's region. A process that wants it deletes the key on the condition that it was last
set by this message. The ingress checks this, so one process succeeds, and the others get a `Conflict`. Processes that
join late begin with the state of the region, which has all messages that were not taken.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

from gamecast.event import Event, State
from gamecast.lasting import LastingClient
from sequencing.errors import Conflict, GamecastError, TooManyKeys


class QueueFull(Exception):
    """The channel has as many waiting messages as it may have."""


class WorkQueue:
    """A general channel, as one process sees it. It lives in the client's event loop."""

    def __init__(
        self,
        client: LastingClient,
        region: str,
        *,
        expiry_s: float,
        wanted: Callable[[], int],
        put: Callable[[bytes], object],
    ) -> None:
        """``wanted``: returns how many messages are waited for here; ``put``: takes one that was claimed."""
        self.region = region
        self._client = client
        self._expiry_ns = int(expiry_s * 1e9)
        self._wanted = wanted
        self._put = put
        self._messages: dict[str, Event] = {}
        """Key → the message, of those that are not known to be taken."""
        self._own: set[str] = set()
        """The keys of messages that were sent here and have not come back."""
        self._claiming: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None
        self.used_at = time.monotonic()

    async def join(self) -> None:
        """Return when the messages that wait are known."""
        self.used_at = time.monotonic()
        if self._joining is None or (self._joining.done() and not _succeeded(self._joining)):
            self._joining = asyncio.create_task(
                self._client.subscribe(self.region, state=True), name="gamecast channel"
            )
        await asyncio.shield(self._joining)

    async def send(self, data: bytes, capacity: int) -> None:
        """Add a message; raises `QueueFull`."""
        await self.join()
        await self.forget_expired()
        if len(self._messages) + len(self._own) >= capacity:
            raise QueueFull
        key = os.urandom(12).hex()
        self._own.add(key)
        try:
            await self._client.publish(self.region, data, key=key)
        except TooManyKeys as error:
            self._own.discard(key)
            raise QueueFull from error
        except BaseException:
            self._own.discard(key)
            raise

    def take_in(self, item: Event | State) -> None:
        """Note what the network delivers of the region."""
        if isinstance(item, State):
            self._messages = {event.key: event for event in item.values[self.region].values() if event.key is not None}
        elif item.key is not None:
            self._own.discard(item.key)
            if item.payload is None:
                self._messages.pop(item.key, None)
            else:
                self._messages[item.key] = item
        self.claim()

    def forget_own(self) -> None:
        """Wait no more for messages that were sent here: the network has lost them."""
        self._own.clear()

    def claim(self) -> None:
        """Claim messages as long as somebody waits for them here."""
        if self._messages and self._wanted() > 0 and (self._claiming is None or self._claiming.done()):
            self._claiming = asyncio.create_task(self._claim(), name="gamecast claim")

    async def _claim(self) -> None:
        while self._messages and self._wanted() > 0:
            key = next(iter(self._messages))
            event = self._messages.pop(key)
            try:
                await self._client.publish(self.region, None, key=key, only_if=event.position)
            except Conflict:
                continue  # another process has it
            except GamecastError:
                self._messages = {key: event, **self._messages}
                await asyncio.sleep(1)
            else:
                if not self._has_expired(event):
                    self._put(event.payload)

    async def forget_expired(self) -> None:
        """Delete messages that were not taken in time."""
        expired = []
        for key, event in self._messages.items():
            if not self._has_expired(event):
                break
            expired.append(key)
        for key in expired:
            await self._delete(key)

    async def clear(self) -> None:
        """Delete all messages."""
        for key in [*self._messages]:
            await self._delete(key)

    def is_idle(self) -> bool:
        """Return whether nothing would be missed without it."""
        return (
            not (self._messages or self._own or self._wanted())
            and time.monotonic() - self.used_at > self._expiry_ns / 1e9
        )

    async def close(self) -> None:
        """Stop claiming."""
        for task in (self._claiming, self._joining):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, GamecastError):
                    await task

    async def _delete(self, key: str) -> None:
        event = self._messages.pop(key, None)
        if event is not None:
            with suppress(Conflict):
                await self._client.publish(self.region, None, key=key, only_if=event.position)

    def _has_expired(self, event: Event) -> bool:
        return event.sent_at_ns + self._expiry_ns < time.time_ns()


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None
