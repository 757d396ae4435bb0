"""What the demo found: both replays, judged by the same checkers, as figures and as a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gamecast.demo.hosting import Workload
from gamecast.demo.replay import Replay
from sequencing.checkers import DeliverySequence, History, PairOrder, Verdict, compare_pairs, judge
from sequencing.membership import Membership
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Plan

PAIRS_SHOWN = 6


@dataclass(frozen=True)
class Outcome:
    """A workload, the plan it ran on, and what came of it with gamecast and with plain Pub/Sub."""

    workload: Workload
    plan: Plan
    ours: Replay
    plain: Replay

    @cached_property
    def verdict(self) -> Verdict:
        """The judgement of gamecast's deliveries."""
        return self._judged(self.ours)

    @cached_property
    def plain_verdict(self) -> Verdict:
        """The judgement of Pub/Sub's deliveries."""
        return self._judged(self.plain)

    @cached_property
    def pairs(self) -> tuple[tuple[PairOrder, ...], tuple[PairOrder, ...]]:
        """Per pair of servers: gamecast's order and Pub/Sub's."""
        return compare_pairs(_history(self.ours)), compare_pairs(_history(self.plain))

    @cached_property
    def overlaps(self) -> int:
        """Pairs of regions with two or more servers in common."""
        return count_double_overlaps(Membership(self.workload.membership))

    @property
    def fine(self) -> bool:
        """Whether gamecast kept every promise."""
        return self.verdict.fine

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        path_nodes = [len(path) for path in self.plan.paths.values()]
        return {
            "regions": len(self.plan.paths),
            "subscribers": len(self.workload.servers),
            "overlaps": self.overlaps,
            "atoms": len(self.plan.atoms),
            "nodes": len(self.plan.nodes),
            "path_nodes": {"mean": sum(path_nodes) / len(path_nodes), "max": max(path_nodes)},
            "skipped_without_position": self.workload.skipped_without_position,
            **_figures(self.ours, self.verdict),
            "plain": _figures(self.plain, self.plain_verdict),
            "pairs": [
                {"subscribers": list(o.subscribers), "common": o.common, "inversions": o.inversions, "plain": p}
                for o, p in self._paired()
            ],
        }

    def tell(self, console: Console, source: str) -> None:
        """Print the story."""
        console.print(Group(*self._story(source)))

    def _story(self, source: str) -> Iterator[Any]:
        path_nodes = [len(path) for path in self.plan.paths.values()]
        nodes = len(self.plan.nodes)
        yield Text(
            f"{source}: {len(self.workload.servers)} game servers replayed {self.ours.published:,} events in "
            f"{len(self.plan.paths):,} regions through {_servers(nodes, 'sequencing node')}."
        )
        yield Text(
            f"{self.overlaps:,} pairs of regions are watched by two or more servers, which could disagree about them; "
            f"{len(self.plan.atoms):,} atoms put them in order, on paths of "
            f"{sum(path_nodes) / len(path_nodes):.1f} nodes on average, {max(path_nodes)} at most."
        )
        yield self._comparison()
        if any(count for _, count in self._paired()):
            yield self._servers_table()
        yield self._conclusion(nodes)

    def _comparison(self) -> Table:
        table = Table("", "gamecast", "plain Pub/Sub")
        for column in table.columns[1:]:
            column.justify = "right"
        ours, plain = self.verdict, self.plain_verdict
        table.add_row("events delivered", f"{ours.deliveries:,}", f"{plain.deliveries:,}")
        table.add_row("events delivered a second", *(f"{_per_second(r):,.0f}" for r in (self.ours, self.plain)))
        for row, mine, theirs in (
            ("lost", ours.lost, plain.lost),
            ("delivered twice", ours.duplicated, plain.duplicated),
            ("pairs of events in opposite orders", ours.inversions, plain.inversions),
            ("knots in the union of all orders", ours.cycles, plain.cycles),
            (
                "out of their publisher's order",
                ours.publisher_order_violations,
                plain.publisher_order_violations,
            ),
        ):
            table.add_row(row, *(Text(f"{n or 0:,}", style="red" if n else "green") for n in (mine, theirs)))
        return table

    def _servers_table(self) -> Table:
        paired = sorted(self._paired(), key=lambda pair: -pair[1])
        table = Table("servers", "events both saw", "gamecast", "plain Pub/Sub", title="In opposite orders, by servers")
        for column in table.columns[1:]:
            column.justify = "right"
        for order, plain in paired[:PAIRS_SHOWN]:
            counts = (Text(f"{n:,}", style="red" if n else "green") for n in (order.inversions, plain))
            table.add_row(" and ".join(order.subscribers), f"{order.common:,}", *counts)
        if len(paired) > PAIRS_SHOWN:
            table.caption = f"and {len(paired) - PAIRS_SHOWN} more pairs"
        return table

    def _conclusion(self, nodes: int) -> Panel:
        if self.verdict.first is not None:
            return Panel(Text(f"gamecast broke a promise: {self.verdict.first.describe()}."), style="bold red")
        said = "With gamecast all servers saw one order, and every event once."
        if self.plain_verdict.inversions:
            said += (
                f" With plain Pub/Sub over the same {_servers(nodes, 'Redis server')} they did not:"
                f" {self.plain_verdict.first.describe() if self.plain_verdict.first else ''}."
            )
        elif nodes == 1:
            said += (
                " So it is with plain Pub/Sub, because a single Redis server is one sequencer: what it lacks is"
                " durability, replay, loss made visible, and a second server. Try --nodes 3."
            )
        else:
            said += " Plain Pub/Sub happened to keep the order too this time: nothing makes it."
        return Panel(Text(said))

    def _paired(self) -> list[tuple[PairOrder, int]]:
        ours, plain = self.pairs
        inversions_of = {pair.subscribers: pair.inversions for pair in plain}
        return [(pair, inversions_of.get(pair.subscribers, 0)) for pair in ours]

    def _judged(self, replay: Replay) -> Verdict:
        return judge(
            _history(replay),
            published=self.workload.published(),
            membership=self.workload.membership,
            publication_order=self.workload.publication_order(),
        )


def _history(replay: Replay) -> History:
    return History.of(
        DeliverySequence(
            server,
            [delivered.event for delivered in seen],
            [delivered.region for delivered in seen],
            [delivered.sender for delivered in seen],
        )
        for server, seen in replay.deliveries.items()
    )


def _figures(replay: Replay, verdict: Verdict) -> Mapping[str, Any]:
    return {
        "published": replay.published,
        "deliveries": verdict.deliveries,
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "unexpected": verdict.unexpected,
        "inversions": verdict.inversions,
        "cycles": verdict.cycles,
        "publisher_order_violations": verdict.publisher_order_violations,
        "first": verdict.first.as_dict() if verdict.first is not None else None,
        "seconds": replay.seconds,
        "events_per_s": replay.published / replay.seconds,
        "deliveries_per_s": _per_second(replay),
    }


def _per_second(replay: Replay) -> float:
    return replay.delivery_count / replay.seconds


def _servers(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
