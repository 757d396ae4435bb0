"""A deadline that is used again and again does what `asyncio.timeout` does."""

from __future__ import annotations

import asyncio
import time

import pytest

from adapters.redis.deadline import Deadline, Overdue

FOREVER_S = 3600.0


def test_what_takes_too_long_is_broken_off_and_the_deadline_can_be_used_again() -> None:
    async def run() -> None:
        deadline = Deadline()
        for _ in range(3):
            with deadline.within(FOREVER_S):
                await asyncio.sleep(0)
            with pytest.raises(TimeoutError), deadline.within(0.001):
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(run())


def test_a_long_limit_that_was_kept_does_not_lengthen_a_short_one_nor_a_short_one_a_long_one() -> None:
    async def run() -> None:
        deadline = Deadline()
        with deadline.within(0.001):
            await asyncio.sleep(0)
        with deadline.within(FOREVER_S):
            for _ in range(3):
                await asyncio.sleep(0.002)  # the timer of the short limit fires meanwhile
        with pytest.raises(TimeoutError), deadline.within(0.001):
            await asyncio.Event().wait()

    asyncio.run(run())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait(deadline: Deadline) -> None:
        with deadline.within(FOREVER_S):
            await asyncio.Event().wait()

    async def run() -> None:
        deadline = Deadline()
        task = asyncio.create_task(wait(deadline))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadline.close()

    asyncio.run(run())


def test_errors_pass_and_nothing_is_left_to_fire_once_it_is_closed() -> None:
    async def run() -> None:
        deadline = Deadline()
        with pytest.raises(KeyError), deadline.within(0.001):
            raise KeyError
        deadline.close()
        await asyncio.sleep(0.003)

    asyncio.run(run())


def test_a_busy_event_loop_is_no_fault_of_the_other_side() -> None:
    async def answered_while_busy(deadline: Deadline) -> bool:
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: time.sleep(0.6))
        asyncio.get_running_loop().call_later(0.62, answer.set_result, True)
        with deadline.within(0.02):
            return bool(await answer)

    async def never_answered() -> None:
        is_over = asyncio.Event()
        limit = Overdue(0.02, is_over.set)
        asyncio.get_running_loop().call_soon(lambda: time.sleep(0.6))
        began = time.monotonic()
        limit.begin()
        await is_over.wait()
        assert time.monotonic() - began > 0.8
        limit.close()

    assert asyncio.run(answered_while_busy(Deadline()))
    asyncio.run(never_answered())
