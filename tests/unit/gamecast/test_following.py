"""A connection tells what it wants whenever the network may not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from gamecast.client.following import Following
from gamecast.client.watching import Health
from sequencing.record import Interest

WISH = Interest(1, 1, {"a": 1})


class Ends:
    """What a `Following` speaks to: a network that answers when it is told to, and both halves of a connection."""

    on_interest: Callable[[], None]
    on_unplaced: Callable[[], None]

    def __init__(self) -> None:
        self.told = 0
        self.answer = asyncio.Event()
        self.asked = asyncio.Event()

    async def set_interest(self, *_: object) -> None:
        self.told += 1
        self.asked.set()
        await self.answer.wait()

    async def news(self, *_: object, **__: object) -> list[Any]:
        await asyncio.sleep(0.01)
        return []

    async def stop_watching(self) -> None: ...

    def interest(self) -> Interest:
        return WISH

    def unplaced(self) -> frozenset[str]:
        return frozenset()


async def test_what_is_forgotten_while_it_is_being_told_is_told_again() -> None:
    ends = Ends()
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await ends.asked.wait()
    following.tell_again()
    ends.answer.set()
    await asyncio.sleep(0.1)
    assert ends.told == 2
    await following.close()
