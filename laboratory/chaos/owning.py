"""A server's entities: it claims them, publishes for them, hands them over and takes them back, through all faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from gamecast import Authority, Client
from gamecast.errors import Conflict, GamecastError
from gamecast.event import Event
from sequencing.names import OWNER

ENTITIES = "goblin", "wolf"
STALE_MAX = 5
NEVER_ACCEPTED = 0.1
KEYS_MOVED = 0.5
"""So many handovers into another region move the entity's own key."""
CANCELLED = 0.1
CANCELLED_S_MAX = 0.01
"""So many calls are cancelled after a part of this time: their first answer takes about as long."""

Note = Callable[[dict[str, object]], None]


class Entities:
    """The entities of one connection. ``sets``: the regions that they walk between."""

    def __init__(
        self,
        client: Client,
        random: Random,
        sets: Sequence[Sequence[str]],
        names: Sequence[str],
        known: dict[tuple[str, str], str | None],
        *,
        note: Note,
        publish: Callable[[Authority, str | None], Awaitable[None]],
    ) -> None:
        """``names``: of all servers; ``known``: region and entity → the position of its owner, as far as the server
        was told; ``publish``: publishes by an authority, with a key or without, and notes that."""
        self._client, self._random, self._sets, self._names = client, random, sets, names
        self._known, self._note, self._publish = known, note, publish
        self._held: list[Authority] = []
        self._stale: list[Authority] = []
        """What a paused process would go on to use."""
        self._handed: list[Authority] = []
        self.calls = 0
        """How many are under way."""

    async def step(self) -> None:
        """Do one thing."""
        random, choice = self._random, self._random.random()
        if self._stale and choice < 0.15:
            await self._publish(random.choice(self._stale), None)
        elif self._handed and choice < 0.25:
            mine = self._handed.pop(0)
            back = await self._call("take_back", mine.take_back())
            if back is not None:
                self._took("take_back", back, is_new=back is not mine)
        elif not self._held or choice < 0.35:
            region, entity = random.choice(random.choice(self._sets)), random.choice(ENTITIES)
            claim = self._client.authority(region, entity, after=self._known.get((region, entity)))
            if (claimed := await self._call("claim", claim)) is not None:
                self._took("claim", claimed)
        elif choice < 0.55:
            for _ in range(random.choice((1, 1, 3))):
                mine = random.choice(self._held)
                await self._publish(mine, mine.entity if random.random() < KEYS_MOVED else None)
        else:
            mine = self._held.pop(random.randrange(len(self._held)))
            self._stale = [*self._stale[-STALE_MAX:], mine]
            if choice < 0.9:
                await self._hand(mine)
            elif choice < 0.95:
                await self._call("release", mine.release())

    async def delivered(self, event: Event) -> None:
        """Take an event, or a value of a state, that says who owns an entity; accept what is handed to this server."""
        assert event.key is not None
        for region, position in event.positions.items():
            gone = event.payload is None
            self._known[region, event.key.removeprefix(OWNER)] = None if gone else position
        if not isinstance(event.payload, dict) or "to" not in event.payload or event.payload["owner"] != self._name:
            return
        if self._random.random() >= NEVER_ACCEPTED:
            mine = await self._call("accept", self._client.accept(event))
            if mine is not None:
                self._took("accept", mine)

    @property
    def _name(self) -> str:
        return self._client.name

    async def _hand(self, mine: Authority) -> None:
        regions = next(regions for regions in self._sets if mine.region in regions)
        to = self._random.choice((*regions, None))
        moves = to not in (None, mine.region) and self._random.random() < KEYS_MOVED
        keys = {mine.entity: {"moved": self._name}} if moves else {}
        self._handed.append(mine)
        owner = self._random.choice((self._name, *self._names))
        await self._call("hand", mine.hand_to(owner, to=to, state={"hp": 7}, keys=keys))

    async def _call(self, what: str, call: Awaitable[Any]) -> Any:
        """Await a call and note how it ended; None if it failed, and if it returns that."""
        self._note({"did": "own", "call": what, "ended": "began"})
        self.calls += 1
        is_cancelled = self._random.random() < CANCELLED
        try:
            async with asyncio.timeout(self._random.uniform(0, CANCELLED_S_MAX) if is_cancelled else None):
                found = await call
        except TimeoutError:
            self._note({"did": "own", "call": what, "ended": "cancelled"})
            return None
        except GamecastError as error:
            if isinstance(error, Conflict) and error.key.startswith(OWNER):
                self._known[error.region, error.key.removeprefix(OWNER)] = error.position
            ended = "refused" if error.definite else "uncertain"
            self._note({"did": "own", "call": what, "ended": ended, "error": type(error).__name__})
            return None
        finally:
            self.calls -= 1
        if not isinstance(found, Authority):
            self._note({"did": "own", "call": what, "ended": "done" if found is not None else "none"})
        return found

    def _took(self, what: str, mine: Authority, *, is_new: bool = True) -> None:
        where = {"region": mine.region, "entity": mine.entity, "token": mine.position} if is_new else {}
        self._note({"did": "own", "call": what, "ended": "done", **where})
        self._held.append(mine)
