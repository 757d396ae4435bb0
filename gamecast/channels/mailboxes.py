"""The messages that have come for the channels of this process, and their receivers, of any thread and event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


@dataclass(slots=True)
class _Mailbox:
    messages: deque[tuple[float, bytes]] = field(default_factory=deque)
    """When each expires, and what it is."""
    waiters: deque[Waiter] = field(default_factory=deque)


class Mailboxes:
    """One queue for each channel.

    A message is taken by the receiver itself, in one step with its return. So a receiver that is cancelled takes no
    message with it.
    """

    def __init__(
        self, expiry_s: float, capacity_of: Callable[[str], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expiry_s = expiry_s
        self._capacity_of = capacity_of
        self._clock = clock
        self._lock = threading.Lock()
        self._boxes: dict[str, _Mailbox] = {}

    def put(self, channel: str, message: bytes) -> bool:
        """Add a message; returns False, and adds nothing, if the channel is at its capacity."""
        with self._lock:
            box = self._boxes.setdefault(channel, _Mailbox())
            self._expire(box)
            if len(box.messages) >= self._capacity_of(channel):
                return False
            box.messages.append((self._clock() + self._expiry_s, message))
            _wake_one(box)
            return True

    def take(self, channel: str) -> bytes | None:
        """Take the first message of a channel, if there is one and no receiver that waits for it."""
        with self._lock:
            box = self._boxes.get(channel)
            if box is None or box.waiters:
                return None
            self._expire(box)
            message = box.messages.popleft()[1] if box.messages else None
            self._tidy(channel, box)
            return message

    async def get(self, channel: str, on_wait: Callable[[], None] | None = None) -> bytes:
        """Take the first message of a channel, and wait for one. ``on_wait`` is called whenever it begins to wait."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                box = self._boxes.setdefault(channel, _Mailbox())
                self._expire(box)
                if box.messages:
                    _, message = box.messages.popleft()
                    self._tidy(channel, box)
                    return message
                waiter = loop, loop.create_future()
                box.waiters.append(waiter)
            try:
                if on_wait is not None:
                    on_wait()
                await waiter[1]
            except BaseException:
                with self._lock:
                    if waiter in box.waiters:
                        box.waiters.remove(waiter)
                    elif box.messages:  # it was woken for one that another receiver can have
                        _wake_one(box)
                    self._tidy(channel, box)
                raise

    def count(self, channel: str) -> int:
        """Return how many messages of a channel wait to be taken."""
        with self._lock:
            box = self._boxes.get(channel)
            if box is None:
                return 0
            self._expire(box)
            return len(box.messages)

    def wanted(self, channel: str) -> int:
        """Return how many receivers of a channel wait for a message that has not come."""
        with self._lock:
            box = self._boxes.get(channel)
            return len(box.waiters) if box is not None else 0

    def sweep(self) -> None:
        """Forget messages that have expired, and channels that have nothing left."""
        with self._lock:
            for channel, box in [*self._boxes.items()]:
                self._expire(box)
                self._tidy(channel, box)

    def clear(self) -> None:
        """Forget all messages; receivers go on waiting."""
        with self._lock:
            for channel, box in [*self._boxes.items()]:
                box.messages.clear()
                self._tidy(channel, box)

    def _expire(self, box: _Mailbox) -> None:
        now = self._clock()
        while box.messages and box.messages[0][0] <= now:
            box.messages.popleft()

    def _tidy(self, channel: str, box: _Mailbox) -> None:
        if not box.messages and not box.waiters and self._boxes.get(channel) is box:
            del self._boxes[channel]


def _wake_one(box: _Mailbox) -> None:
    while box.waiters:
        loop, future = box.waiters.popleft()
        try:
            loop.call_soon_threadsafe(_wake, future)
        except RuntimeError:  # its event loop has been closed
            continue
        return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
