"""An event loop in a thread of its own, for connections whose users have no event loop, or several."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from sequencing.errors import UsageError


def _is_patched() -> bool:
    """Return whether gevent has put greenlets in the place of threads."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


WAS_PATCHED = _is_patched()
"""At import: locks that were made before gevent patches block the whole thread, with all of its greenlets."""


class SharedLoop:
    """One event loop in one thread for all connections of the process that need one, while there are any.

    One, because connections to a ``memory://`` network must live in one loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, for one user more. Raises `UsageError` if gevent patched after this was imported."""
        if _is_patched() is not WAS_PATCHED:
            raise UsageError(
                "gevent patched this process after gamecast was imported, so its greenlets would block each other for "
                "good: call gevent.monkey.patch_all(), or import locust, before importing gamecast"
            )
        with self._lock:
            if self._running is None:
                loop = asyncio.new_event_loop()
                self._running = loop, threading.Thread(target=loop.run_forever, name="gamecast", daemon=True)
                self._running[1].start()
            self._users += 1
            return self._running[0]

    def carries(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether this is the loop that runs: a fork has a copy that does not run."""
        return self._running is not None and self._running[0] is loop

    def forget(self) -> None:
        """Reset the state, in a fork."""
        self._lock, self._users, self._running = threading.Lock(), 0, None

    def is_here(self) -> bool:
        """Return whether this is the loop's own thread."""
        return self._running is not None and self._running[1] is threading.current_thread()

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not self.carries(loop):
                return
            self._users -= 1
            if not self._users and self._running is not None:
                (_, thread), self._running = self._running, None
                asyncio.run_coroutine_threadsafe(_cancel_rest(), loop).result()
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()


async def _cancel_rest() -> None:
    """Cancel the tasks that still run, as `asyncio.run` does when it ends: they may wait for a server that hangs."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


shared_loop = SharedLoop()
os.register_at_fork(after_in_child=shared_loop.forget)
