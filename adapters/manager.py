"""The manager: a leader candidate of a network, independent of its carrier.

Any connection may run one; one of them leads. The next leader continues from the record.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from socket import gethostname
from typing import TYPE_CHECKING

from adapters.backoff import Backoff
from adapters.leadership import LEASE_MS, RESUME_S, Control, NodeOperator
from adapters.outage import Outage
from sequencing.errors import ExtraMissing, GamecastError, NotAllowed
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from adapters.leader import Leader

STAND_EVERY_MS = 1_000
"""How often a candidate tries to take the lease."""
FAILURES_MAX = 3
ASIDE_S = 5.0
"""How long a leader that keeps failing, for reasons of its own, leaves the lease to other candidates.

This is longer than a lease lasts and another candidate takes to try.
"""

REASON_MAX = 500
"""Characters of what is noted of a failure."""

logger = logging.getLogger("gamecast.manager")


def pid_in(token: str) -> int:
    """Return the process that has made a token."""
    return int(token.split(":")[-2])


def _token() -> str:
    return f"{gethostname()}:{os.getpid()}:{os.urandom(8).hex()}"


class Manager:
    """One leader candidate of a network."""

    def __init__(
        self,
        control: Control,
        make_operator: Callable[[], NodeOperator],
        ordering: Ordering,
        *,
        resume_s: float = RESUME_S,
        lacks: ExtraMissing | None = None,
    ) -> None:
        """``make_operator``: returns the access to the nodes, for the leader; ``ordering``: of a new network.

        ``resume_s``: how long a disconnected subscriber keeps its place; ``lacks``: what keeps this process from
        leading a network of several nodes.
        """
        self._lacks = lacks
        self._control = control
        self._resume_s = resume_s
        self._make_operator = make_operator
        self._ordering: Ordering = ordering
        self._token = _token()
        self._stop = asyncio.Event()
        self._leader: Leader | None = None
        self.leads = False
        """Whether this candidate led at its last check."""
        self.cannot_plan: Exception | None = None
        """The reason why it does not lead: its user may not, or the planner is not installed, or cannot be loaded."""

    async def run(self) -> None:
        """Run as a leader candidate until `stop`, and lead when elected; retry during network trouble."""
        backoff, failures, outage = Backoff(), 0, Outage(logger, "manager")
        try:
            while not self._stop.is_set():
                try:
                    await self._turn()
                    backoff.reset()
                    outage.over()
                    if failures:
                        failures = 0
                        await self._note("")
                except NotAllowed as error:
                    # In a secured network, users of game servers may publish and subscribe, but not lead.
                    logger.info("manager: this user may not lead: %s", error)
                    self.cannot_plan = error
                    await self._stop.wait()
                except ImportError as error:
                    logger.warning("manager: this process cannot lead, because the planner cannot be loaded: %r", error)
                    self.cannot_plan = error
                    await self._stand_aside(None)
                except Exception as error:  # noqa: BLE001 - a manager that ends leaves everybody who wants something waiting
                    if self._stop.is_set():
                        return
                    outage.failed(error)
                    failures += 1
                    await self._note(f"{type(error).__name__}: {error}"[:REASON_MAX])
                    if failures >= FAILURES_MAX and self.leads and not isinstance(error, GamecastError):
                        await self._stand_aside(ASIDE_S)
                    await backoff.wait()
        finally:
            with suppress(GamecastError):
                await self._control.resign(self._token)
            await self._close()

    async def _note(self, reason: str) -> None:
        """Tell why turns fail, for who looks at the network; empty as soon as one succeeds again."""
        with suppress(GamecastError):  # it cannot be written while the control store is away, either
            await self._control.failed(reason)

    async def _stand_aside(self, seconds: float | None) -> None:
        """Let other candidates lead, for good if None: a failure in this process may not occur in theirs."""
        self.leads = False
        with suppress(GamecastError):  # without it, the lease runs out
            await self._control.resign(self._token)
        await self._rest(seconds)

    async def _rest(self, seconds: float | None) -> None:
        """Wait between two turns for so many seconds, None: without end; `stop` breaks it off."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def stop(self) -> None:
        """Let `run` return, and release the lease; waits are broken off."""
        self._stop.set()
        await self._close()

    async def _turn(self) -> None:
        """Look once, and act on it as the leader; `run` repeats it. Who does not lead waits a little."""
        seen = await self._control.look(self._token, LEASE_MS)
        self.leads = seen is not None
        if seen is None:
            await self._rest(STAND_EVERY_MS / 1000)
            return
        if self._lacks is not None and len(seen.nodes) > 1:
            if self.cannot_plan is None:
                logger.info("manager: this process cannot lead: %s", self._lacks)
            self.cannot_plan = self._lacks
            await self._stand_aside(ASIDE_S)
            return
        await self._leading().turn(seen)

    def _leading(self) -> Leader:
        if self._leader is None:
            from adapters.leader import Leader  # most candidates never lead

            self._leader = Leader(
                self._control, self._make_operator(), self._ordering, self._token, self._stop, self._resume_s
            )
        return self._leader

    async def _close(self) -> None:
        # First what waits for requests: then the lease is released, while the leader closes the rest.
        await self._control.close()
        if self._leader is not None:
            await self._leader.close()
