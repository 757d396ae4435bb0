"""The demo's workload over a classic protocol: mailboxes in Redis, judged by what the protocol claims."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from adapters.embedded.server import EmbeddedServers
from classic.executions.guarantees import Violation, violations
from classic.executions.journal import Journal
from classic.executions.record import Record
from classic.protocols.catalogue import PROTOCOLS, find_protocol, require_fit
from classic.protocols.process import Deliver, Message
from classic.protocols.setup import Setup
from demo.match.hosting import Publication, Workload
from demo.outcome import figures_of, judged
from demo.plain import replay_plain
from demo.replay import BURST_EVENTS, Delivered, Pace, Progress, Replay, Silence, finish
from gamecast.event import Event
from laboratory.protocols.client import ProtocolClient
from sequencing.checkers import Verdict
from sequencing.membership import Membership
from sequencing.overlaps import count_double_overlaps

EVENTS_MAX = 1000
"""The slowest protocols take some milliseconds an event with eight servers, because all have to agree with all."""


def names_of_protocols() -> list[str]:
    """Return the names of the protocols that there are."""
    return list(PROTOCOLS)


def require_protocol(name: str) -> None:
    """Raise `UsageError` unless there is a protocol of this name."""
    find_protocol(name)


def bounded(workload: Workload) -> Workload:
    """Return a workload with so few events that every protocol can finish it."""
    return replace(workload, publications=workload.publications[:EVENTS_MAX])


def setup_of(workload: Workload, protocol: str) -> Setup:
    """Return the workload's regions as groups; raises `UsageError`, naming what would fit, where they do not."""
    members: dict[str, list[str]] = {region: [] for region in sorted(workload.regions)}
    for server in workload.servers:
        for region in workload.membership[server]:
            members[region].append(server)
    star = tuple((workload.servers[0], other) for other in workload.servers[1:])
    setup = replace(Setup.of(members, workload.servers), tree=star)
    require_fit(find_protocol(protocol), setup)
    return setup


async def replay_protocol(
    workload: Workload, protocol: str, url: str, *, speed: float, progress: Progress
) -> tuple[Replay, Record]:
    """Replay over the mailboxes of a server; messages that have not arrived after a silence count as lost."""
    setup = setup_of(workload, protocol)
    network = uuid4().hex
    journal = Journal(find_protocol(protocol), setup)
    deliveries: dict[str, list[Delivered]] = {name: [] for name in workload.servers}
    expected = workload.expected_deliveries()
    silence = Silence()

    async def receive(cast: ProtocolClient) -> None:
        seen = deliveries[cast.name]
        while len(seen) < expected[cast.name]:
            event = await anext(cast)
            if isinstance(event, Event):
                name: str = event.payload["id"]
                journal.carried_out(cast.name, Deliver(Message(name, event.sender, event.region)))
                seen.append(Delivered(name, event.region, event.sender, event.sent_at_ns, event.delivered_at_ns))
                silence.broken()
                progress(1)

    async def publish(cast: ProtocolClient, publications: Sequence[Publication]) -> None:
        for place, publication in enumerate(publications, start=1):
            ahead_s = pace.ahead_s(publication.t_s)
            if ahead_s or place % BURST_EVENTS == 0:
                await asyncio.sleep(ahead_s)
            journal.published(Message(str(publication.payload["id"]), cast.name, publication.region))
            await cast.publish(publication.region, publication.payload)

    async with AsyncExitStack() as stack:
        casts = [
            await stack.enter_async_context(
                ProtocolClient(
                    url,
                    name=server,
                    protocol=protocol,
                    processes=workload.servers,
                    groups=setup.groups,
                    tree=setup.tree,
                    network=network,
                )
            )
            for server in workload.servers
        ]
        pace = Pace(speed, workload.publications[0].t_s)
        begun_ns = time.monotonic_ns()
        await finish(
            [asyncio.create_task(publish(cast, workload.published_by(cast.name))) for cast in casts],
            [asyncio.create_task(receive(cast)) for cast in casts],
            silence,
        )
    seconds = max(1, silence.last_ns - begun_ns) / 1e9
    return Replay(len(workload.publications), deliveries, seconds), journal.record()


async def run_protocol(
    workload: Workload, protocol: str, *, nodes: int, speed: float, begin: Callable[[str, int], Progress]
) -> ProtocolOutcome:
    """Replay over a protocol, and over plain Pub/Sub on ``nodes`` servers. ``begin``: as `laboratory.wan.run` has it.

    Raises `UsageError`.
    """
    setup_of(workload, protocol)  # Refuse an unfit workload before anything begins.
    part = bounded(workload)
    expected = sum(part.expected_deliveries().values())
    async with EmbeddedServers(nodes) as servers:
        bar = begin(protocol, expected)
        replayed, record = await replay_protocol(part, protocol, servers.urls[0], speed=speed, progress=bar)
        same = dict.fromkeys(part.servers, servers.urls)
        plain = await replay_plain(part, same, speed=speed, progress=begin("plain Pub/Sub", expected))
    return ProtocolOutcome(protocol, part, len(workload.publications), nodes, replayed, record, plain)


@dataclass(frozen=True)
class ProtocolOutcome:
    """A workload, of how many events it is a part, and what came of it with a protocol and with plain Pub/Sub."""

    protocol: str
    workload: Workload
    events: int
    nodes: int
    replayed: Replay
    record: Record
    plain: Replay

    @cached_property
    def broken(self) -> tuple[Violation, ...]:
        """The broken claims of the protocol."""
        return tuple(violations(self.record, find_protocol(self.protocol).guarantees))

    @cached_property
    def verdict(self) -> Verdict:
        """The result of the checkers of delivery orders, whether order was promised or not."""
        return judged(self.workload, self.replayed)

    @cached_property
    def plain_verdict(self) -> Verdict:
        """The same of Pub/Sub."""
        return judged(self.workload, self.plain)

    @property
    def fine(self) -> bool:
        """Whether the protocol kept what it claims."""
        return not self.broken

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        kind = find_protocol(self.protocol)
        count = Counter(violation.guarantee for violation in self.broken)
        return {
            "protocol": self.protocol,
            "source": kind.source,
            "guarantees": {guarantee.value: count[guarantee] for guarantee in sorted(kind.guarantees)},
            "regions": len(self.workload.regions),
            "subscribers": len(self.workload.servers),
            "overlaps": count_double_overlaps(Membership(self.workload.membership)),
            "nodes": self.nodes,
            "events": self.events,
            **figures_of(self.replayed, self.verdict),
            "plain": figures_of(self.plain, self.plain_verdict),
        }

    def tell(self, console: Console, source: str) -> None:
        """Print the story."""
        console.print(Group(*self._story(source)))

    def _story(self, source: str) -> Iterator[Any]:
        kind = find_protocol(self.protocol)
        of_all = f", the first of {self.events:,}," if self.events > self.replayed.published else ""
        yield Text(
            f"{source}: {len(self.workload.servers)} game servers replayed {self.replayed.published:,} events{of_all} "
            f"in {len(self.workload.regions):,} regions by {kind.title}, over mailboxes in one Redis server."
        )
        yield Text(f"It claims: {', '.join(sorted(kind.guarantees))}; by {kind.source}.")
        yield self._table()
        if self.broken:
            worst = self.broken[0]
            text = f"{self.protocol} broke its promise of {worst.guarantee}: {worst.text}."
            yield Panel(Text(text), style="bold red")
            return
        said = f"{self.protocol} kept everything that it claims."
        if self.verdict.inversions:
            said += (
                f" That is no total order: servers saw {self.verdict.inversions:,} pairs of events in opposite orders."
            )
        yield Panel(Text(said))

    def _table(self) -> Table:
        table = Table("", self.protocol, "plain Pub/Sub")
        for column in table.columns[1:]:
            column.justify = "right"
        mine, plain = self.verdict, self.plain_verdict
        speeds = (f"{replayed.delivery_count / replayed.seconds:,.0f}" for replayed in (self.replayed, self.plain))
        table.add_row("events delivered", f"{mine.deliveries:,}", f"{plain.deliveries:,}")
        table.add_row("events delivered a second", *speeds)
        table.add_row("lost", f"{mine.lost or 0:,}", f"{plain.lost or 0:,}")
        table.add_row("pairs of events in opposite orders", f"{mine.inversions:,}", f"{plain.inversions:,}")
        table.add_row("cycles in the union of all orders", f"{mine.cycles:,}", f"{plain.cycles:,}")
        for guarantee, count in Counter(violation.guarantee for violation in self.broken).items():
            table.add_row(f"[red]breaks {guarantee}[/red]", f"[red]{count:,}[/red]", "")
        return table
