"""Work that is spread over processes, which end with the one that spreads it, without a word."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import InvalidStateError, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from typing import TypeVar
from unittest import mock

from laboratory.processes.children import interrupts_held
from laboratory.processes.worker import end_with_parent

LOOK_S = 0.5
"""Seconds between checks for a Ctrl-C: Python does not notice one that comes just before it waits."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def mapped(
    work: Callable[[Item], Result], items: Sequence[Item], *, jobs: int, chunk: int = 1, is_repeatable: bool = False
) -> Iterator[Result]:
    """Yield what ``work`` returns of each item, in order; ``chunk``: how many a process takes at a time.

    In this process where one is enough, unless it is to be ``is_repeatable``: then sets have the same order in every
    run, which takes other processes. Ctrl-C is for this process: the others do not see it, and are killed.
    """
    if not is_repeatable and (jobs == 1 or len(items) <= chunk):
        yield from map(work, items)
        return
    context = get_context("spawn") if is_repeatable else None
    hashes = {"PYTHONHASHSEED": "0"} if is_repeatable else {}
    with (
        mock.patch.dict(os.environ, hashes),
        ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent) as pool,
    ):
        try:
            with interrupts_held():
                parts = (items[at : at + chunk] for at in range(0, len(items), chunk))
                begun = deque(pool.submit(_all_of, work, part) for part in parts)
            while begun:
                results = begun.popleft()
                while not wait([results], timeout=LOOK_S).done:
                    pass
                yield from results.result()
        except BaseException:
            threading.excepthook = _leave_out_cancelled
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.kill()
            raise


def _leave_out_cancelled(told: threading.ExceptHookArgs) -> None:
    """Suppress the error of a pool's thread that would fail a cancelled task."""
    if not issubclass(told.exc_type, InvalidStateError):
        threading.__excepthook__(told)


def _all_of(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [work(item) for item in items]
