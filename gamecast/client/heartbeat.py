"""The heartbeat: the network learns that a connection lives, and the connection whether the network still knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adapters.backoff import Backoff
from adapters.leadership import TTL_MS
from adapters.network import Network
from gamecast.client.following import Following
from gamecast.client.watching import Health
from sequencing.doing import Doing
from sequencing.errors import NetworkRestarted, Superseded


class Heartbeat:
    """Beats from its making until `stop`."""

    def __init__(self, network: Network, following: Following, health: Health, doing: Callable[[], Doing]) -> None:
        """``following``: hears when the network has lost the connection's interest, or has another of its name.
        ``doing``: what the connection does, which each heartbeat reports.
        """
        self._network = network
        self._following = following
        self._health = health
        self._doing = doing
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="gamecast heartbeat")

    def stop(self) -> None:
        """End the task soon."""
        self._stop.set()

    async def beat(self, *, at_once: bool = True) -> None:
        """Beat once; raises `Superseded`, `NetworkRestarted`, and what the network raises. ``at_once``: see there."""
        if await self._network.beat(at_once=at_once, doing=self._doing().text()):
            self._following.tell_again()

    async def _run(self) -> None:
        backoff = Backoff()
        wait_s = usual_s = TTL_MS / 3000
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
            except TimeoutError:
                try:
                    await self.beat(at_once=False)
                    backoff.reset()
                    self._health.mark_up("heartbeat")
                    wait_s = usual_s
                except (Superseded, NetworkRestarted) as error:
                    self._following.fail(error)
                    return
                except Exception as error:  # noqa: BLE001 - without a heartbeat, the network removes the connection
                    self._health.mark_down("heartbeat", error)
                    wait_s = backoff.next_s()
