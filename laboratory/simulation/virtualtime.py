"""An event loop whose clock stands still while anything runs, and jumps ahead when nothing does.

So the product itself, with its timeouts and heartbeats, runs as fast as the machine can, and a world has the same
course each time: nothing in it waits for the machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import time
from asyncio import Task
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from random import Random
from typing import Any
from unittest import mock
from weakref import WeakSet

EPOCH_S = 1_700_000_000.0
"""What the clock on the wall shows at the beginning."""

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="")
"""The simulated process that a task belongs to, with all that it starts."""


class Standstill(RuntimeError):
    """Nothing runs, and nothing is to happen at any time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. ``thinking_s``: returns how long work in a thread takes."""

    def __init__(self, thinking_s: Callable[[], float]) -> None:
        self.now_s = 0.0
        self._thinking_s = thinking_s
        self._of: dict[str, WeakSet[Task[Any]]] = {}
        super().__init__(_Clockwork(self))
        self.set_task_factory(self._start)  # type: ignore[arg-type] # it is called like this up to Python 3.13

    def time(self) -> float:
        """Return the time of this world, in seconds."""
        return self.now_s

    def run_in_executor(  # type: ignore[override] # without the types of arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do the work at once, and hand out what it comes to later."""
        done: asyncio.Future[Any] = self.create_future()
        self.call_later(self._thinking_s(), _work, done, func, args)
        return done

    def kill(self, whose: str) -> None:
        """Cancel all tasks of a simulated process."""
        for task in sorted(self._of.pop(whose, ()), key=lambda task: task.get_name()):
            task.cancel()

    def _start(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> Task[Any]:
        task = Task(coroutine, loop=loop, context=context)
        if whose := (context.get(WHOSE, "") if context is not None else WHOSE.get()):
            self._of.setdefault(whose, WeakSet()).add(task)
        return task


class _Clockwork(selectors.BaseSelector):
    """Waits by setting the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._real = loop, selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """See `selectors.BaseSelector`."""
        return self._real.get_map()

    def close(self) -> None:
        """See `selectors.BaseSelector`."""
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Set the clock to when something happens."""
        if timeout is None:
            raise Standstill("nothing runs, and nothing is to happen")
        self._loop.now_s += max(0.0, timeout)
        return []


@contextmanager
def virtual_time(seed: int, thinking_s: Callable[[], float]) -> Iterator[VirtualLoop]:
    """Have clocks and dice of this process be those of a world, for as long as its loop is used here."""
    loop, dice = VirtualLoop(thinking_s), Random(f"dice {seed}")
    patches: dict[str, Any] = {
        "monotonic": loop.time,
        "monotonic_ns": lambda: int(loop.now_s * 1e9),
        "time": lambda: EPOCH_S + loop.now_s,
        "time_ns": lambda: int((EPOCH_S + loop.now_s) * 1e9),
    }
    state = random.getstate()
    random.seed(seed)
    try:
        with mock.patch.multiple(time, **patches), mock.patch.object(os, "urandom", dice.randbytes):
            yield loop
    finally:
        random.setstate(state)
        loop.close()


def _work(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if done.done():
        return
    try:
        done.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - it is handed to the one who waits
        done.set_exception(error)
