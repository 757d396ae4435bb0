"""Faults that a test injects into a network of its own process, to test its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from adapters.memory import world_of
from adapters.memoryworld import MemoryFaults, MemoryWorld
from sequencing.errors import UsageError


class Faults:
    """Injects faults into one ``memory://`` network; see `faults`."""

    def __init__(self, url: str) -> None:
        """Use `faults`."""
        self._url = url

    def gap(self, region: str, events: int = 1) -> None:
        """Make a gap now: subscribers of the region get a `Gap` of this many events, after everything published before.

        Raises `UsageError` if no client has subscribed or published to the region yet.
        """
        _check(events)
        self._inject(lambda known: known.gap(region, events), region=region)

    def lose(self, region: str, events: int = 1) -> None:
        """Lose the next events that are published to the region: publishers get receipts, subscribers a `Gap`.

        Events that are published together are lost together, so more of them may be lost. Raises `UsageError` if no
        client has subscribed or published to the region yet.
        """
        _check(events)
        self._inject(lambda known: known.lose(region, events), region=region)

    def disconnect(self, name: str) -> None:
        """Disconnect the client of a name: its status becomes ``disconnected``, and its calls fail or wait.

        It retries by itself, as over Redis, and gets what it missed after `reconnect`. Raises `UsageError` if no
        connection has the name.
        """
        self._inject(lambda known: known.disconnect(name), name=name)

    def reconnect(self, name: str) -> None:
        """Let the client of a name connect again: within a second its status becomes ``connected``."""
        self._inject(lambda known: known.reconnect(name))

    def expire(self, name: str) -> None:
        """Expire the session of a name, as if the network had not heard of its client for too long.

        Its calls and its iteration raise `SessionExpired`, and its status becomes ``failed``. A new connection of the
        name can continue with ``since``. Raises `UsageError` if no connection has the name.
        """
        self._inject(lambda known: known.expire(name), name=name)

    def _inject(
        self, fault: Callable[[MemoryFaults], None], *, region: str | None = None, name: str | None = None
    ) -> None:
        world = world_of(self._url)
        if world is None:
            raise UsageError(f"no connection to {self._url} is open: connect first, then inject faults")

        def inject() -> None:
            if name is not None:
                _require(name, world.store.connections, f"no connection to {self._url} has the name {name!r}")
            if region is not None:
                _require(region, _regions_of(world), f"no client has subscribed or published to {region!r} yet")
            fault(world.faults)

        try:
            is_in_its_loop = asyncio.get_running_loop() is world.loop
        except RuntimeError:
            is_in_its_loop = False
        if is_in_its_loop or not world.loop.is_running():
            inject()
        else:  # the loop of `gamecast.blocking` runs in a thread of its own
            asyncio.run_coroutine_threadsafe(_carry_out(inject), world.loop).result()


def faults(network: str) -> Faults:
    """Return a fault injector for a network of this process.

    ``network``: its URL, ``memory://NAME``, or its name. Raises `UsageError` for any other URL: faults of Redis cannot
    be simulated.

    >>> url = memory_url()
    >>> async with gamecast.connect(url, name="server") as client:
    ...     await client.subscribe("forest")
    ...     faults(url).gap("forest", events=3)
    ...     gap = await anext(client)
    """
    url = network if "://" in network else f"memory://{network}"
    if not url.startswith("memory://"):
        raise UsageError(f"faults are injected into memory:// networks, and {network!r} is none")
    return Faults(url)


async def _carry_out(inject: Callable[[], None]) -> None:
    inject()


def _check(events: int) -> None:
    if events < 1:
        raise UsageError(f"events={events}: a gap takes one event or more")


def _regions_of(world: MemoryWorld) -> Collection[str]:
    record = world.listed()
    return record.plan.paths.keys() if record is not None else ()


def _require(wanted: str, known: Collection[str], problem: str) -> None:
    if wanted not in known:
        raise UsageError(f"{problem}; known: {', '.join(sorted(known)) or 'none'}")
