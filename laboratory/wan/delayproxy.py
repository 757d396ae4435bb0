"""A TCP proxy that delays: each direction of each connection by its own time, and nothing else."""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from laboratory.processes.children import Guard
from laboratory.processes.forwarding import CHUNK_BYTES, Forwarder, ForwarderProcess, Link
from laboratory.wan.delayline import DelayLine


@dataclass(frozen=True, slots=True)
class Leg:
    """The way from one place to a server at another: one-way delays, and the server's port on this machine."""

    target_port: int
    there_ms: float
    back_ms: float


class DelayProxy(ForwarderProcess):
    """One process for all the legs of a network: label → leg. A port for each, see `ForwarderProcess.url`."""

    def __init__(self, legs: Mapping[str, Leg], log_file: Path, guard: Guard) -> None:
        """Starts nothing."""
        super().__init__("delay proxy", _serve, (dict(legs),), tuple(legs), log_file, guard)


def _serve(legs: Mapping[str, Leg], pipe: Connection) -> None:
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as runner:
        runner.run(_run(legs, pipe))


async def _run(legs: Mapping[str, Leg], pipe: Connection) -> None:
    await DelayForwarder(legs, pipe).run()


class DelayForwarder(Forwarder):
    """Carries bytes over delay lines. A connection opens as TCP's do, a round trip before its first byte leaves."""

    def __init__(self, legs: Mapping[str, Leg], pipe: Connection) -> None:
        super().__init__({label: leg.target_port for label, leg in legs.items()}, pipe)
        self._legs = legs

    async def carry(
        self, link: Link, *, back: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """See `Forwarder.carry`; bytes in flight when one side closes still arrive."""
        leg = self._legs[link.label]
        loop = asyncio.get_running_loop()
        there_s, back_s = leg.there_ms / 1000, leg.back_ms / 1000
        # The client is connected at once, by this machine's kernel; its data waits until it would be connected.
        line = DelayLine(back_s) if back else DelayLine(there_s, open_at_s=loop.time() + there_s + back_s)
        changed, taken = asyncio.Event(), asyncio.Event()

        async def fill() -> None:
            with suppress(OSError):  # a connection that is reset has an end, too
                while chunk := await reader.read(CHUNK_BYTES):
                    line.put(loop.time(), chunk)
                    changed.set()
                    while line.is_full:
                        taken.clear()
                        await taken.wait()
            line.put(loop.time(), b"")  # the end takes as long as all before it
            changed.set()

        filling = asyncio.create_task(fill())
        try:
            while True:
                due_s = line.due_s
                if due_s is None:
                    changed.clear()
                    await changed.wait()
                    continue
                if due_s > loop.time():
                    await _until(loop, due_s)
                arrived = line.take(loop.time())
                taken.set()
                writer.writelines(arrived)
                await writer.drain()
                if b"" in arrived:
                    return
        finally:
            filling.cancel()
            with suppress(asyncio.CancelledError):
                await filling


class PreciseSelector(selectors.DefaultSelector):
    """Waits to the microsecond: epoll's own timeout is in milliseconds, and selectors round it up.

    DefaultSelector's own descriptor can be waited on, wherever it has a ``fileno``.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], (), (), timeout)
            timeout = 0
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return ready


async def _until(loop: asyncio.AbstractEventLoop, time_s: float) -> None:
    reached = loop.create_future()
    handle = loop.call_at(time_s, reached.set_result, None)
    try:
        await reached
    finally:
        handle.cancel()
