"""The outcome of the demo: both replays, judged by the same checkers, as figures and as a story."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.killing import Killed, told_of
from demo.match.hosting import Workload
from demo.match.roaming import most_overlaps
from demo.replay import Replay, Travels
from sequencing.checkers import DeliverySequence, History, PairOrder, Verdict, compare_pairs, judge
from sequencing.checkers.stays import judge_stays
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
    killed: Killed | None = None
    """The master that was killed during the replay of gamecast."""

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
        """Pairs of regions with two or more servers in common; of servers that roam, the most at one time."""
        if self.workload.roams:
            return most_overlaps(self.workload.changes)
        return count_double_overlaps(Membership(self.workload.membership))

    @property
    def replayed(self) -> Replay:
        """The replay that is recorded."""
        return self.ours

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
            **figures_of(self.ours, self.verdict),
            **({"killed": self.killed.as_dict()} if self.killed is not None else {}),
            "plain": figures_of(self.plain, self.plain_verdict),
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
        at_most, at_last = ("Up to ", "at the end, ") if self.workload.roams else ("", "")
        yield Text(
            f"{at_most}{self.overlaps:,} pairs of regions are watched by two or more servers, which could disagree "
            f"about them; {at_last}{len(self.plan.atoms):,} atoms put them in order, on paths of "
            f"{sum(path_nodes) / len(path_nodes):.1f} nodes on average, {max(path_nodes)} at most."
        )
        if self.ours.travels is not None:
            yield Text(_told(self.ours.travels, self.workload))
        if self.killed is not None:
            yield Text(told_of(self.killed))
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
            ("cycles in the union of all orders", ours.cycles, plain.cycles),
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
        if replay.travels is None:
            return judged(self.workload, replay)
        return judge_stays(
            _sequences(replay),
            replay.travels.stays,
            replay.travels.placed,
            publication_order=self.workload.publication_order(),
        )


def judged(workload: Workload, replay: Replay) -> Verdict:
    """Return the checkers' verdict on a replay in which no server roamed."""
    return judge(
        _history(replay),
        published=workload.published(),
        membership=workload.membership,
        publication_order=workload.publication_order(),
    )


def _history(replay: Replay) -> History:
    return History.of(_sequences(replay))


def _sequences(replay: Replay) -> list[DeliverySequence]:
    return [
        DeliverySequence(
            server,
            [delivered.event for delivered in seen],
            [delivered.region for delivered in seen],
            [delivered.sender for delivered in seen],
        )
        for server, seen in replay.deliveries.items()
    ]


def figures_of(replay: Replay, verdict: Verdict) -> Mapping[str, Any]:
    """Return what a replay came to, for ``--json``."""
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
        **(_roaming(replay.travels) if replay.travels is not None else {}),
    }


def _roaming(travels: Travels) -> Mapping[str, Any]:
    join_ms = travels.join_ms
    values: dict[str, Any] = {
        "joins": len(join_ms),
        "leaves": travels.leaves,
        "joins_cut_short": travels.cut_short,
        "join_ms": {"p50": _quantile(join_ms, 0.5), "p99": _quantile(join_ms, 0.99), "max": _quantile(join_ms, 1.0)},
    }
    if travels.epochs is not None:
        values |= {"epochs": travels.epochs, "joins_in_place": travels.in_place}
    return values


def _quantile(ascending: Sequence[float], part: float) -> float | None:
    """Return the smallest of the numbers that so great a part of them does not exceed; None without any."""
    return ascending[max(0, math.ceil(part * len(ascending)) - 1)] if ascending else None


def _per_second(replay: Replay) -> float:
    return replay.delivery_count / replay.seconds


def _servers(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _told(travels: Travels, workload: Workload) -> str:
    """Return the sentences about servers that roamed."""
    joins, in_place, epochs = len(travels.join_ms), travels.in_place or 0, travels.epochs or 0
    told = (
        f"The servers followed their players: a server is in the regions that its players see, and leaves one "
        f"{workload.linger_s:g} s after the last of them. While the match ran they joined {joins:,} times and left "
        f"{travels.leaves:,} times; {in_place:,} of the joins went in place, {epochs:,} new epochs brought the others."
    )
    if workload.expected:
        told += f" Beforehand, {len(workload.expected):,} overlaps of neighbouring regions were declared."
    if travels.cut_short:
        told += f" {travels.cut_short:,} more were given up, because the players had gone on before the server was in."
    if joins:
        p50, p99, worst = (_quantile(travels.join_ms, part) for part in (0.5, 0.99, 1.0))
        told += f" A join took {p50:.0f} ms in the median, {p99:.0f} ms at the 99th percentile, {worst:.0f} ms at most."
    return told
