"""The ogre: it walks from region to region, and one server at a time moves it.

Each keeper is a small server of its own, beside the game server of its city. It moves the ogre while it has the
authority for it, and hands it over where the ogre walks into another region. When the presence of the owner ends,
another keeper that watches the region takes the ogre over, ``after`` the position that made that one the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gamecast

from .world import REGIONS

OGRE = "ogre"
ROUTE = ("meadow", "forest", "ruins", "forest")
"""The ogre's way, again and again. Regions that it walks between enter the network at one node: see `BOWS`."""
STEPS, STEP_S = 20, 0.1
"""How many steps a region takes it, and how long each."""


class Keeper:
    """A server that moves the ogre while it owns it."""

    def __init__(self, name: str, connect: Callable[[], gamecast.Client], regions: frozenset[str]) -> None:
        self.name = name
        self.refused = 0
        """Moves that were not accepted, because another had the ogre by then."""
        self._connect = connect
        self._regions = regions
        self._client = connect()
        self._mine: gamecast.Authority | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.owner: dict[str, str] = {}
        """Region → who owns the ogre there, as of the events that this keeper has had."""
        self._claims: dict[str, str] = {}
        self._leg = 0
        self._step = 0
        self.seen: dict[str, Any] | None = None
        """Where the ogre is, and who moved it there last."""

    @property
    def runs(self) -> bool:
        """Whether it is connected."""
        return bool(self._tasks)

    @property
    def owns(self) -> bool:
        """Whether it may move the ogre, as far as it knows."""
        return self._mine is not None and self._mine.is_held

    async def start(self) -> None:
        """Connect, watch, and move the ogre whenever it is this keeper's."""
        self._client = self._connect()
        self.owner, self._claims = {}, {}
        await self._client.open()
        await self._client.subscribe(*self._regions, presence={"keeper": True})
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._walk())]

    async def stop(self) -> None:
        """Disconnect, without a handover; harmless when it does not run."""
        tasks, self._tasks, self._mine = self._tasks, [], None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def create(self) -> None:
        """Bring the ogre into the world, in the first region of its way."""
        self._mine = await self._client.authority(ROUTE[0], OGRE)

    async def _watch(self) -> None:
        async for item in self._client:
            if isinstance(item, gamecast.Presence):
                if not item.is_here and self.owner.get(item.region) == item.name:
                    await self._take_over(item.region)
            elif isinstance(item, gamecast.State):
                for region, values in item.values.items():
                    if found := values.get(f"owner:{OGRE}"):
                        self._note(region, found)
                        owner = self.owner.get(region)
                        if owner is not None and owner not in item.present.get(region, {}):
                            await self._take_over(region)
            elif isinstance(item, gamecast.Event):
                await self._hear(item)

    async def _hear(self, event: gamecast.Event) -> None:
        if event.sender.startswith("~"):
            return  # a visitor's: anything may come from a browser
        if event.key == f"owner:{OGRE}":
            for region in event.regions:
                self._note(region, event)
            if accepted := await self._client.accept(event):
                self._mine, self._leg, self._step = accepted, int(accepted.state["leg"]), 0
            for region in self._regions.intersection(event.regions):  # whom it was handed to may have left
                if self.owner.get(region, self.name) not in {*self._client.present(region), self.name}:
                    await self._take_over(region)
        elif isinstance(event.payload, dict) and event.payload.get("do") == OGRE:
            self.seen = {**event.payload, "by": event.sender, "region": event.region}
            if not self.owns:
                self._leg, self._step = int(event.payload["leg"]), int(event.payload["step"])

    def _note(self, region: str, event: gamecast.Event) -> None:
        self.owner.pop(region, None)
        if event.payload is not None and event.payload.get("to", region) == region:  # otherwise it has left
            self.owner[region] = str(event.payload["owner"])
            self._claims[region] = event.positions.get(region, event.position)

    async def _take_over(self, region: str) -> None:
        with suppress(gamecast.Conflict):  # another was first
            self._mine = await self._client.authority(region, OGRE, after=self._claims[region])

    async def _walk(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            mine = self._mine
            if mine is None or not mine.is_held:
                continue
            begin, end = REGIONS[mine.region], REGIONS[ROUTE[(self._leg + 1) % len(ROUTE)]]
            at = [a + (b - a) * self._step // STEPS for a, b in zip(begin, end, strict=True)]
            try:
                if self._step < STEPS:
                    await mine.publish({"do": OGRE, "at": at, "leg": self._leg, "step": self._step})
                    self._step += 1
                else:
                    leg = (self._leg + 1) % len(ROUTE)
                    keepers = [who for who, info in self._client.present(ROUTE[leg]).items() if "keeper" in info]
                    others = [who for who in keepers if who != self.name]
                    await mine.hand_to(min(others, default=self.name), to=ROUTE[leg], state={"leg": leg})
            except gamecast.Conflict:
                self.refused += 1
            except gamecast.GamecastError:
                pass  # its node is down: it tries again
