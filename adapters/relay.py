"""Running relays: connections, waits and tasks around `sequencing.relay`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from adapters.backoff import Backoff
from adapters.outage import Outage
from sequencing.errors import Unreachable
from sequencing.frames import LinkedFrame
from sequencing.node import TransferAnswer
from sequencing.pending import Judgement, Passing
from sequencing.plan import Plan
from sequencing.record import Record
from sequencing.relay import Relay, told

BLOCK_MS = 200
"""How long a read waits before it is repeated."""

UNDECIDED_MS = 5
"""The same while what became of frames that name keys is awaited from beyond this link."""

REFUSED_WAIT_S = 0.02
"""How long to wait for a node that cannot accept a frame yet, because its plan is being installed."""

LinkEnds = tuple[str, str]
"""(source, target), as `Plan.link_end` names them."""

logger = logging.getLogger("gamecast.relay")


class LinkSource(Protocol):
    """The node at the start of a link."""

    name: str

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> Sequence[LinkedFrame]:
        """Return frames of the link after a link sequence."""

    async def copied(self) -> None:
        """Return when as many replicas of the node as are wanted have all that was read; raises `Unreachable`."""

    async def acknowledge(self, target: str, accepted: int) -> None:
        """Remove accepted frames from the link."""

    @property
    def opened(self) -> int:
        """How often the connection was opened: each time, the node may have lost something."""

    async def sent(self, target: str) -> tuple[int, int]:
        """Return the last link sequence that was assigned, and the first that is still stored, 0 if there is none."""

    async def report_loss(self, lost: str) -> None:
        """Report to the leader that the node has lost something."""

    async def undecided(self) -> Mapping[str, Passing]:
        """See `Node.undecided`."""

    async def resolve(self, judgements: Mapping[str, Judgement | int]) -> None:
        """See `Node.resolve`."""

    async def close(self) -> None:
        """Close the connection."""


class LinkTarget(Protocol):
    """The node at the end of a link."""

    name: str

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Accept frames, each once and in order."""

    @property
    def opened(self) -> int:
        """See `LinkSource.opened`."""

    async def verdicts(self, source: str) -> Mapping[str, Judgement]:
        """See `Node.verdicts`."""

    async def settle(self, frames: Iterable[str]) -> None:
        """See `Node.settle`."""

    async def taken(self, source: str) -> int:
        """Return the last link sequence that was accepted."""

    async def report_loss(self, lost: str) -> None:
        """See `LinkSource.report_loss`."""

    async def close(self) -> None:
        """Close the connection."""


class RelayTask:
    """Carries one link until stopped."""

    def __init__(self, source: LinkSource, target: LinkTarget, ends: LinkEnds) -> None:
        """``source`` and ``target`` are used by this relay alone; ``ends``: as the link knows them."""
        self._source = source
        self._target = target
        self._source_end, self._target_end = ends
        self._stopping = False
        self._relay = Relay()
        self._compared: tuple[int, int] | None = None
        """How often each connection had been opened when the two ends of the link were found to agree."""

    async def run(self) -> None:
        """Move frames until `stop`; retry during network trouble."""
        backoff, outage = Backoff(), Outage(logger, f"relay {self._source.name} → {self._target.name}")
        try:
            while not self._stopping:
                try:
                    await self._move()
                    backoff.reset()
                    outage.over()
                except Exception as error:  # noqa: BLE001 - a relay that ends stops every region behind its link
                    if self._stopping:
                        return
                    outage.failed(error)
                    await backoff.wait()
        finally:
            await self._target.close()
            await self._source.close()

    async def stop(self) -> None:
        """Let `run` return after the current transfer; a waiting read is broken off."""
        self._stopping = True
        await self._source.close()

    @property
    def frames_moved(self) -> int:
        """How many frames of this relay were accepted."""
        return self._relay.frames_moved

    async def _move(self) -> None:
        relay, target = self._relay, self._target_end
        block_ms = UNDECIDED_MS if relay.awaits_verdicts else BLOCK_MS
        read = await self._source.read_link(target, relay.after, frames_max=relay.frames_max, block_ms=block_ms)
        frames = relay.read(read)
        if self._compared != (self._source.opened, self._target.opened):
            await self._compare()
            relay.awaits_verdicts = True  # it may have been so before
        relay.awaits_verdicts |= any(linked.names_keys for linked in frames)
        if frames:
            await self._pass_on(frames)
        if relay.awaits_verdicts:
            await self._judge()

    async def _pass_on(self, frames: Sequence[LinkedFrame]) -> None:
        relay, target = self._relay, self._target_end
        await self._source.copied()  # else a new master may give their numbers to others, which would count as accepted
        accepted = relay.answered(await self._target.transfer(self._source_end, frames))
        if accepted is not None:
            await self._source.acknowledge(target, accepted)
            relay.trimmed(accepted)
        if relay.refused:
            logger.info("relay %s → %s: refused after %d", self._source.name, target, relay.after)
            await asyncio.sleep(REFUSED_WAIT_S)

    async def _judge(self) -> None:
        """Bring back what became of frames that named keys, and were undecided when they passed this link."""
        verdicts = await self._target.verdicts(self._source_end)
        known, awaits_more = told(verdicts, await self._source.undecided(), self._target_end)
        if known:
            await self._source.resolve(known)
        if verdicts:
            await self._target.settle(verdicts)
        self._relay.awaits_verdicts = awaits_more

    async def _compare(self) -> None:
        """Require that both ends have the whole link: even a node that is registered to keep all may lose something.

        The source must have sent everything that was taken, and must have nothing left of what this relay has trimmed;
        what the target lacks must still be stored. If the source has assigned numbers twice, its frames would be
        dropped as repeats. If the target lacks trimmed frames, it would wait for ever.
        """
        before = await self._target.taken(self._source_end)
        sent, first = await self._source.sent(self._target_end)
        after = await self._target.taken(self._source_end)
        link = f"the link from {self._source_end} to {self._target_end}"
        trimmed = self._relay.after
        if before > sent or 0 < first <= trimmed:
            lost = f"on {link} it assigned number {sent} last and has {first}, and {max(before, trimmed)} was taken"
            await self._source.report_loss(lost)
            raise Unreachable(
                f"node {self._source.name} has lost something: {lost}; the leader has not planned for that yet"
            )
        if (first or sent + 1) > after + 1:
            lost = f"on {link} it has taken up to {after}, and all up to {(first or sent + 1) - 1} was taken"
            await self._target.report_loss(lost)
            raise Unreachable(
                f"node {self._target.name} has lost something: {lost}; the leader has not planned for that yet"
            )
        self._compared = self._source.opened, self._target.opened


class Relays:
    """Relays for the links that leave certain nodes; they follow the plans as they change."""

    def __init__(
        self, open_relay: Callable[[str, str, Plan], RelayTask], sources: frozenset[str] | None = None
    ) -> None:
        """``sources``: the nodes whose links are carried, all if None."""
        self._open_relay = open_relay
        self._sources = sources
        self._first_epoch = 0
        """Of the network that is followed: another one has other links."""
        self._running: dict[LinkEnds, tuple[RelayTask, asyncio.Task[None]]] = {}
        self._ending: list[asyncio.Task[None]] = []

    def follow(self, record: Record) -> None:
        """Start relays for links that have none yet, also of ending plans; stop those of lost nodes."""
        plan = record.plan
        if plan.first_epoch != self._first_epoch:
            self._first_epoch = plan.first_epoch
            self._end([*self._running])
        links = {link for each in (*record.behind, plan) for link in each.links if link[0] in plan.nodes}
        for source, target in sorted(links):
            ends = plan.link_end(source), plan.link_end(target)
            if ends not in self._running and (self._sources is None or source in self._sources):
                relay = self._open_relay(source, target, plan)
                task = asyncio.create_task(relay.run(), name=f"gamecast relay {source} → {target}")
                self._running[ends] = relay, task
        live = {plan.link_end(node) for node in plan.nodes}
        self._end([ends for ends in self._running if not live.issuperset(ends)])

    def _end(self, links: Iterable[LinkEnds]) -> None:
        for ends in links:
            relay, task = self._running.pop(ends)
            self._ending += asyncio.create_task(relay.stop()), task

    async def stop(self) -> None:
        """Stop all relays and wait for them."""
        await asyncio.gather(*(relay.stop() for relay, _ in self._running.values()))
        await asyncio.gather(*(task for _, task in self._running.values()), *self._ending)
        self._running.clear()
