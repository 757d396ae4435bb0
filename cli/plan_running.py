"""`gamecast plan improve`: better places for the regions of a running network, announced, applied and measured."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import orjson
from rich.console import Console
from rich.table import Table

from adapters.wording import named, natural
from cli.outfiles import writing
from cli.reporting import counted, printable
from gamecast.client.networks import require_reachable
from gamecast.errors import NoLeader, NotAllowed, OtherSideError, PlanError, UsageError
from launcher.ending import BROKEN

if TYPE_CHECKING:
    from adapters.redis.running import Running
    from placement.planning.nearer import Ground
    from placement.replanning import Replanned, Replanning, Standing
    from sequencing.plan import Plan

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user asked for. ``seconds``: how long events/s are measured; ``rates``: those that are given instead."""

    url: str
    seconds: float
    apply: bool
    rates: Mapping[str, float]
    capacity: float | Literal["receiver"] | None
    ground: Ground | None
    effort: str
    out: Path | None
    as_json: bool


@dataclass(slots=True)
class Found:
    """What was found.

    ``is_idle``: whether no event was published, so that all regions count the same; ``delays_ms``: the mean before and
    after, and as it is then, where hosts are known; ``done_s``: of each move that was made; ``refused``: why not all
    were; ``measured``: how the network stands after them, by the events/s before if there are none then.
    """

    running: Running
    better: Replanned
    is_idle: bool
    unmeasured: int
    """Of so many regions it is not known how many events they have."""
    foreign: list[str]
    """Regions with given rates that the network does not have."""
    capacity: float
    delays_ms: tuple[float, ...]
    done_s: list[float]
    refused: str = ""
    measured: Standing | None = None

    @property
    def exceeded_by(self) -> float:
        """By how many events/s the busiest node then exceeds the capacity."""
        return max(0.0, self.better.standing[1].peak - self.capacity)


def plan_running(context: click.Context, wanted: Wanted, show: Show) -> None:
    """Carry out ``gamecast plan improve``."""
    require_reachable(wanted.url)
    outcome = asyncio.run(_found(wanted, show))
    if wanted.out is not None:
        with writing(f"--out {wanted.out}"):
            wanted.out.write_bytes(_reviewable(outcome))
    if wanted.as_json:
        click.echo(orjson.dumps(_document(outcome), option=orjson.OPT_INDENT_2))
    else:
        _tell(Console(highlight=False, markup=False, emoji=False), outcome, wanted)
    if outcome.refused or outcome.exceeded_by:
        context.exit(BROKEN)


async def _found(wanted: Wanted, show: Show) -> Found:
    from adapters.redis.running import apply, look
    from placement.replanning import replanned

    show(f"measuring for {wanted.seconds:g} s")
    running = await look(wanted.url, seconds=wanted.seconds)
    rates, unmeasured = _rates(running, wanted)
    show("planning")
    network = _replanning(running, rates, wanted)
    better = await asyncio.to_thread(replanned, network)
    capacity = network.objective.capacity if wanted.capacity is not None else math.inf
    delays_ms = _delays_ms(network, better.before, better.after)
    foreign = sorted(wanted.rates.keys() - running.plan.paths.keys())
    outcome = Found(running, better, not any(rates.values()), unmeasured, foreign, capacity, delays_ms, [])
    if not wanted.apply or not better.moves:
        return outcome
    for number, move in enumerate(better.moves, start=1):
        show(f"transition {number} of {len(better.moves)}: {counted(len(move.paths), 'region')}")
        try:
            outcome.done_s.append(await apply(wanted.url, move))
        except (PlanError, OtherSideError) as error:
            if isinstance(error, (NoLeader, NotAllowed)):
                raise
            outcome.refused = str(error)
            break
    show(f"measuring for {wanted.seconds:g} s")
    now = await look(wanted.url, seconds=wanted.seconds)
    after = _replanning(now, _rates(now, wanted)[0] if any(now.rates.values()) else rates, wanted)
    outcome.measured = after.standing(now.plan)
    outcome.delays_ms += _delays_ms(after, now.plan)
    return outcome


def _reviewable(outcome: Found) -> bytes:
    """Return the plan, with how to go over to it, and what it was made for."""
    document = outcome.better.after.to_document() | {
        "moves": [move.to_document() for move in outcome.better.moves],
        "before": {region: list(path) for region, path in outcome.running.plan.paths.items()},
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def apply_reviewed(context: click.Context, url: str, file: Path, show: Show) -> None:
    """Carry out ``gamecast plan improve --apply FILE``."""
    from sequencing.plan import Plan

    require_reachable(url)
    try:
        document = orjson.loads(file.read_bytes())
        moves = [Plan.from_document(move) for move in document["moves"]]
        before = {str(region): tuple(map(str, path)) for region, path in document["before"].items()}
    except OSError as error:
        raise UsageError(f"cannot read the plan: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, PlanError) as error:
        raise UsageError(f"{file} is not a plan that `gamecast plan improve URL --out` wrote: {error!r}") from error
    done_s, refused = asyncio.run(_apply_all(url, moves, before, show))
    if refused:
        click.echo(f"{len(done_s)} of {counted(len(moves), 'transition')} made; not applied: {refused}", err=True)
        context.exit(BROKEN)
    took = ", ".join(f"{seconds:.2f} s" for seconds in done_s)
    click.echo(f"Applied, in {took}." if done_s else "The plan has no move: the network stays as it is.")


async def _apply_all(
    url: str, moves: Sequence[Plan], before: Mapping[str, tuple[str, ...]], show: Show
) -> tuple[list[float], str]:
    """Go over to each move; return how long each took, and why not all were made."""
    from adapters.redis.running import apply, look

    running = await look(url, seconds=0.0)
    if changed := _changed_since(running, moves, before):
        return [], f"since the plan was made, {changed}. Make it again: gamecast plan improve URL --out FILE"
    done_s: list[float] = []
    for number, move in enumerate(moves, start=1):
        show(f"transition {number} of {len(moves)}: {counted(len(move.paths), 'region')}")
        try:
            done_s.append(await apply(url, move))
        except (PlanError, OtherSideError) as error:
            if isinstance(error, (NoLeader, NotAllowed)):
                raise
            return done_s, str(error)
    return done_s, ""


def _changed_since(running: Running, moves: Sequence[Plan], before: Mapping[str, tuple[str, ...]]) -> str:
    """Return what has changed of what is to move, as part of a sentence; empty if nothing has."""
    now, changes = running.plan, []
    moving = {region for move in moves for region in move.paths}
    if any(move.first_epoch != now.first_epoch for move in moves):
        return "another network has begun"
    if gone := sorted(moving - now.paths.keys(), key=natural):
        changes.append(f"{named(gone)} went")
    if elsewhere := sorted((each for each in moving - set(gone) if now.paths[each] != before.get(each)), key=natural):
        changes.append(f"{named(elsewhere)} moved")
    used = {node for move in moves for path in move.paths.values() for node in path}
    if lacking := sorted(used.difference(running.nodes), key=natural):
        changes.append(f"{named(lacking)} does not answer, or is not registered any more")
    return "; ".join(changes)


def _rates(running: Running, wanted: Wanted) -> tuple[dict[str, float], int]:
    """Return the events/s of all regions, those that are given before those that were measured; the mean of these where
    neither is there, and of how many regions that is so."""
    known = {**running.rates, **{region: rate for region, rate in wanted.rates.items() if region in running.plan.paths}}
    mean = sum(known.values()) / len(known) if known else 0.0
    return {region: known.get(region, mean) for region in running.plan.paths}, len(running.plan.paths) - len(known)


def _delays_ms(network: Replanning, *plans: Plan) -> tuple[float, ...]:
    from placement.planning.nearer import NearerReplanning

    return tuple(map(network.total_ms, plans)) if isinstance(network, NearerReplanning) else ()


def _replanning(running: Running, rates: Mapping[str, float], wanted: Wanted) -> Replanning:
    from placement.replanning import Replanning

    if wanted.ground is None:
        return Replanning(
            running.plan,
            running.membership,
            rates=rates,
            nodes=running.nodes,
            there=running.unregistered,
            capacity=wanted.capacity,
        )
    from placement.placing import EFFORTS
    from placement.planning.nearer import NearerReplanning

    return NearerReplanning(
        running.plan,
        running.membership,
        running.subscribers,
        wanted.ground,
        effort=EFFORTS[wanted.effort],
        rates=rates,
        nodes=running.nodes,
        there=running.unregistered,
        capacity=wanted.capacity,
    )


def _document(outcome: Found) -> dict[str, Any]:
    before, after = outcome.better.standing
    delays: list[dict[str, float]] = [{"mean_ms": ms} for ms in outcome.delays_ms] or [{}, {}, {}]
    return {
        "epoch": outcome.running.plan.epoch,
        "ordering": outcome.running.plan.ordering,
        "regions": len(outcome.running.plan.paths),
        "events_per_s": sum(outcome.better.rates.values()),
        "silent": list(outcome.running.silent),
        "is_idle": outcome.is_idle,
        "unmeasured": outcome.unmeasured,
        "foreign_rates": outcome.foreign,
        "before": _standing(before) | delays[0],
        "after": _standing(after) | delays[1],
        "capacity": outcome.capacity if outcome.capacity < math.inf else None,
        "overload": outcome.exceeded_by,
        "moves": [
            {
                "regions": {region: list(path) for region, path in sorted(move.paths.items())},
                "seconds": outcome.done_s[number] if number < len(outcome.done_s) else None,
            }
            for number, move in enumerate(outcome.better.moves)
        ],
        "refused": outcome.refused or None,
        "measured": _standing(outcome.measured) | delays[2] if outcome.measured is not None else None,
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {"path_nodes": standing.hops, "busiest": standing.peak, "of_nodes": dict(standing.loads)}


def _tell(console: Console, outcome: Found, wanted: Wanted) -> None:
    for line in _lines(outcome):
        console.print(line, soft_wrap=True)
    moves, done = outcome.better.moves, len(outcome.done_s)
    if not moves:
        groups = "Regions that are ordered against each other move together, and these are all in one group. "
        one = groups if outcome.better.parts == 1 else ""
        console.print(f"{one}No move is worth its cost: the network stays as it is.", soft_wrap=True)
    elif not wanted.apply:
        later = f" Later: --apply {wanted.out}." if wanted.out is not None else ""
        console.print(
            f"Nothing has changed. With --apply, the network goes over to it.{later}", style="bold", soft_wrap=True
        )
    elif outcome.refused:
        console.print(
            f"{done} of {counted(len(moves), 'transition')} made; not the next one: {outcome.refused}. Run the command "
            "again for a plan of the network as it is now.",
            style="bold red",
            soft_wrap=True,
        )
    else:
        took = ", ".join(f"{seconds:.2f} s" for seconds in outcome.done_s)
        console.print(f"Applied, in {took}.", style="bold", soft_wrap=True)
    if outcome.exceeded_by:
        console.print(
            f"The busiest node carries {outcome.exceeded_by:,.6g} events/s more than the capacity "
            f"({outcome.capacity:,.6g}): no plan that keeps it was found.",
            style="bold red",
            soft_wrap=True,
        )


def _lines(outcome: Found) -> Iterator[Any]:
    running, better = outcome.running, outcome.better
    plan = running.plan
    busy = f"with {sum(better.rates.values()):,.6g} events/s"
    if outcome.is_idle:
        busy = "without an event while it was measured, so all regions count the same"
    regions = counted(len(plan.paths), "region")
    nodes = counted(len({*running.nodes, *plan.visits}), "node")
    yield f"{regions} on {nodes}, ordered {plan.ordering!r}, {busy}."
    if outcome.unmeasured and not outcome.is_idle:
        yield (
            f"The events of {counted(outcome.unmeasured, 'region')} could not be counted (each look found a new epoch, "
            "or a node was silent): they get the mean of the others. Measure for longer, with --rates 30s."
        )
    if outcome.foreign:
        yield (
            f"Rates of {counted(len(outcome.foreign), 'region')} that the network does not have are left out, such as "
            f"that of {printable(outcome.foreign[0])!r}."
        )
    if running.silent:
        yield f"Not used, because they do not answer: {', '.join(map(printable, running.silent))}."
    yield _table(outcome)
    changed = {region for move in better.moves for region, path in move.paths.items() if plan.paths[region] != path}
    if better.moves:
        yield (
            f"{counted(len(changed), 'region')} would move, in {counted(len(better.moves), 'transition')}."
            if not outcome.done_s
            else f"{counted(len(changed), 'region')} to move, in {counted(len(better.moves), 'transition')}."
        )


def _table(outcome: Found) -> Table:
    before, after = outcome.better.standing
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    columns: Sequence[Standing | None] = (before, after, outcome.measured)
    for name, standing in zip(("now", "planned", "after"), columns, strict=True):
        if standing is not None:
            table.add_column(name, justify="right")

    def row(name: str, cell: Callable[[Standing], str]) -> None:
        table.add_row(name, *(cell(standing) for standing in columns if standing is not None))

    row("nodes that an event passes", lambda standing: f"{standing.hops:.3f}")
    if outcome.delays_ms:
        table.add_row("mean delay, ms", *(f"{ms:,.1f}" for ms in outcome.delays_ms))
    row("busiest node, events/s", lambda standing: f"{standing.peak:,.1f}")
    for node in sorted(after.loads, key=natural):
        cells = (f"{standing.loads.get(node, 0.0):,.1f}" for standing in columns if standing is not None)
        table.add_row(f"  {printable(node)}", *cells)
    return table
