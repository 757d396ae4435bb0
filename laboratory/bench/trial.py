"""One trial: one peer on fresh servers of its own, its publishers in one process and all its subscribers in another."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any

from laboratory.bench.board import Board
from laboratory.bench.cpu import PARTS
from laboratory.bench.peers.peer import Peer, Site
from laboratory.bench.publishing import PublishingReport, publish_phases
from laboratory.bench.receiving import ReceivingReport, receive_phases
from laboratory.bench.workload import UVLOOP, Phases, World
from laboratory.processes.worker import Worker, spawn
from sequencing.errors import ProcessFailed


@dataclass(frozen=True)
class Trial(ReceivingReport, PublishingReport):
    """`lost` and the like count over all phases; the CPU figures are cores in use during the fast phase.

    `paced_us`: part → microseconds of CPU that it spent on a paced event, for all who got it.
    """

    @property
    def cpu_us_per_delivery(self) -> dict[str, float]:
        """Microseconds of CPU that each part spends on a delivery, fast phase."""
        return {part: getattr(self, f"{part}_cpu_cores") / self.deliveries_per_s * 1e6 for part in PARTS}


def run_trial(peer: Peer, world: World, phases: Phases) -> Trial:
    """Blocks for the whole trial; raises `ProcessFailed` with what a process met, and as `Peer.site` does."""
    with peer.site(world) as site:
        board = Board(spawn)
        task = peer, site, world, phases, board
        with Worker(_receive, *task) as subscribers, Worker(_publish, *task) as publishers:
            _expect("ready", subscribers, publishers)
            publishers.say("go")
            published: PublishingReport = _expect("done", publishers, subscribers, lambda: board.delivered)
            board.request_stop()
            received: ReceivingReport = _expect("done", subscribers, publishers)
    paced_us = published.paced_us | received.paced_us
    return Trial(**{**vars(published), **vars(received), "paced_us": paced_us})


def _receive(peer: Peer, site: Site, world: World, phases: Phases, board: Board, pipe: Connection) -> ReceivingReport:
    with asyncio.Runner(loop_factory=_new_uvloop if phases.loop == UVLOOP else None) as runner:
        ready = partial(pipe.send, ("ready", None))
        return runner.run(receive_phases(peer, site.url, world, phases, board, ready))


def _publish(peer: Peer, site: Site, world: World, phases: Phases, board: Board, pipe: Connection) -> PublishingReport:
    pipe.recv()  # "go": the imports are done while the subscribers still subscribe
    with asyncio.Runner(loop_factory=_new_uvloop if phases.loop == UVLOOP else _new_exact_loop) as runner:
        return runner.run(publish_phases(peer, site, world, phases, board))


def _new_uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = import_module(UVLOOP).new_event_loop()
    return loop


def _new_exact_loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose timers are not rounded up to milliseconds, which would be most of a lone event's delay."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def _expect(word: str, worker: Worker, other: Worker, progress: Callable[[], int] = lambda: 0) -> Any:
    """Return the data that a worker sends with a word; raises `ProcessFailed` when either fails, or when nothing moves
    for long."""
    seen, seen_at = progress(), time.monotonic()
    while True:
        speakers = {each.pipe: each for each in (worker, other) if not each.is_done}
        heard = wait(list(speakers), timeout=1.0)
        for each in [each for pipe, each in speakers.items() if pipe in heard]:
            said, what = each.hear_word()
            if each is worker and said == word:
                return what
        if progress() != seen:
            seen, seen_at = progress(), time.monotonic()
        elif time.monotonic() - seen_at > _SILENCE_S_MAX:
            raise ProcessFailed(f"no event was delivered for {_SILENCE_S_MAX:g} s, and the bench was not done")


_SILENCE_S_MAX = 60.0
