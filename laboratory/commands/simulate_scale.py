"""``gamecast lab simulate scale``: plan worlds of up to a million walking players, and reckon what they ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import orjson

from cli.outfiles import writing
from laboratory.commands.tables import table_of, wide_console

if TYPE_CHECKING:
    from laboratory.scale.figures import Balance, PlanCost, WorldFigures
    from placement.planning.worlds import WorldSpec

GATHER = "spread", "flocks", "event", "boss"
"""`placement.planning.worlds.Gather`, without importing scipy before it is needed."""
HANDOVER = "never", "place"
SIDES_MAX = 4
"""A world that is more than so many times as long as wide is no longer a world but a road."""
WORLDS = (
    "regions, servers, players",
    "subscriptions",
    "overlaps",
    "servers of a region, most",
    "pushes/s",
    "hottest region, cores",
    "joins/s",
    "of a control Redis",
    "overlaps a join",
    "a move, µs",
    "made in, s",
)
PLANS = (
    "regions, servers, players",
    "nodes",
    "atoms",
    "atoms a path",
    "stamp, bytes",
    "longest",
    "nodes a path",
    "busiest, events/s",
    "busiest, cores",
    "planned in, s",
    "peak, MiB",
)
Number = TypeVar("Number", int, float)


class Listed(click.ParamType):  # type: ignore[type-arg]
    """A comma-separated list of numbers, or of the words of a choice."""

    name = "list"

    def __init__(self, kind: type[int | float] | tuple[str, ...], *, least: float = 0.0) -> None:
        self._kind = kind
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | float | str, ...]:
        """Return the list; fails with the part that is wrong."""
        if isinstance(value, tuple):
            return value
        return tuple(self._part(part.strip(), param, ctx) for part in str(value).split(","))

    def _part(self, part: str, param: click.Parameter | None, ctx: click.Context | None) -> int | float | str:
        if isinstance(self._kind, tuple):
            return part if part in self._kind else self.fail(f"{part!r} is none of {', '.join(self._kind)}", param, ctx)
        try:
            number = self._kind(part)
        except ValueError:
            number = self._kind(-1)
        if not self._least <= number < math.inf:
            what = "whole number" if self._kind is int else "number"
            self.fail(f"{part!r} is no {what} of at least {self._least:g}", param, ctx)
        return number


@click.command("scale")
@click.option(
    "--cells", type=Listed(int, least=1), default="1000,10000,100000", show_default=True, help="Regions of each world."
)
@click.option(
    "--servers", type=Listed(int, least=1), default="100,1000,10000", show_default=True, help="Servers of each world."
)
@click.option(
    "--players", type=Listed(int, least=1), default="10000,100000,1000000", show_default=True, help="Players of each."
)
@click.option(
    "--gather", type=Listed(GATHER), default=",".join(GATHER), show_default=True, help="How the players gather."
)
@click.option(
    "--walked",
    type=Listed(float),
    default="0",
    show_default=True,
    help="Seconds of walking since the players were assigned to servers by place.",
)
@click.option(
    "--handover",
    type=Listed(HANDOVER),
    default="never",
    show_default=True,
    help="never: a player stays at its server. place: the server of the place takes it over.",
)
@click.option(
    "--speed", type=Listed(float), default="0.1", show_default=True, help="Cells/s that a player walks, of each world."
)
@click.option("--events", type=click.FloatRange(0), default=1.0, show_default=True, help="Events/s of a player.")
@click.option(
    "--nodes", type=Listed(int, least=1), default="1,2,4,8,16,32,64", show_default=True, help="Plan for these numbers."
)
@click.option(
    "--balance",
    type=click.Choice(("events", "cost")),
    default="events",
    show_default=True,
    help="What the planner takes for a region's load: its events/s, or the time that it takes of a node.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The seed of the worlds.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds a world."
)
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the figures here, as PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def scale(
    *,
    cells: tuple[int, ...],
    servers: tuple[int, ...],
    players: tuple[int, ...],
    gather: tuple[str, ...],
    walked: tuple[float, ...],
    handover: tuple[str, ...],
    speed: tuple[float, ...],
    events: float,
    nodes: tuple[int, ...],
    balance: Balance,
    seed: int,
    timeout_s: float,
    plots: Path | None,
    as_json: bool,
) -> None:
    """Plan grid worlds of up to a million walking players, and compare what they ask for with what a network has.

    Lists are comma-separated. Those of --cells, --servers, --players and --speed go together: the first world has the
    first of each, and so on; a list of one is for all worlds. Each world is made for each of --gather, --handover
    and --walked.

    \b
    spread   players anywhere
    flocks   flocks of 50 that walk together
    event    a fifth of the players within 4 cells of the centre
    boss     a twentieth of the players around one cell, the others in flocks

    Each world has a process of its own, and one world is made after the other. Progress goes to standard error. The
    defaults take some two minutes.

    Exit status: 0, or 1 if a world was not finished within --timeout, 2 for wrong use.
    """
    from laboratory.scale.figures import measured

    if plots is not None:
        from laboratory.drawing import require_matplotlib

        require_matplotlib()
    specs = list(_specs(cells, servers, players, gather, walked, handover, speed, events, seed))
    found: list[WorldFigures] = []
    for number, spec in enumerate(specs, start=1):
        what = f"{number}/{len(specs)} {_name_of(spec)}"

        def show(stage: str, what: str = what) -> None:
            click.echo(f"{what}: {stage}", err=True)

        one = measured(spec, nodes, balance=balance, timeout_s=timeout_s, on_stage=show)
        if one is None:
            show(f"not even its overlaps were counted within {timeout_s:g} s, or the memory that there is")
            continue
        found.append(one)
        show(one.unfinished or f"{one.overlaps:,} overlaps, {one.joins_per_s:,.0f} joins/s")
    if plots is not None and found:
        from laboratory.scale.drawing import draw

        with writing(plots):
            plots.mkdir(parents=True, exist_ok=True)
        draw(found, plots)
    if as_json:
        click.echo(orjson.dumps({"seed": seed, "worlds": [asdict(one) for one in found]}))
    else:
        _tell(found)
    if len(found) < len(specs) or any(one.unfinished for one in found):
        click.get_current_context().exit(1)


def _specs(
    cells: Sequence[int],
    servers: Sequence[int],
    players: Sequence[int],
    gather: Sequence[str],
    walked: Sequence[float],
    handover: Sequence[str],
    speed: Sequence[float],
    events: float,
    seed: int,
) -> Iterator[WorldSpec]:
    from placement.planning.worlds import WorldSpec

    longest = max(map(len, (cells, servers, players, speed)))
    sizes = zip(
        _for_each(cells, longest, "--cells"),
        _for_each(servers, longest, "--servers"),
        _for_each(players, longest, "--players"),
        _for_each(speed, longest, "--speed"),
        strict=True,
    )
    for of_cells, of_servers, of_players, of_speed in sizes:
        columns, rows = _sides(of_cells)
        for way, hand, seconds in product(gather, handover, walked):
            yield WorldSpec(
                columns,
                rows,
                of_servers,
                of_players,
                way,  # type: ignore[arg-type]
                seed=seed,
                speed=of_speed,
                events=events,
                walked_s=seconds,
                handover=hand,  # type: ignore[arg-type]
            )


def _for_each(values: Sequence[Number], count: int, option: str) -> Sequence[Number]:
    if len(values) not in (1, count):
        raise click.UsageError(f"{option} has {len(values)} numbers, another option {count}: give 1 or as many")
    return values if len(values) == count else list(values) * count


def _sides(cells: int) -> tuple[int, int]:
    columns = next(columns for columns in range(math.isqrt(cells), 0, -1) if cells % columns == 0)
    if cells > SIDES_MAX * columns**2:
        square = math.isqrt(cells) ** 2
        raise click.UsageError(f"--cells {cells} are no rectangle like a world's: take {square}, for instance")
    return columns, cells // columns


def _name_of(spec: WorldSpec) -> str:
    name = f"{spec.cells:,}, {spec.servers:,}, {spec.players:,}, {spec.gather}"
    if spec.handover != "never":
        name += ", handed over"
    return f"{name}, walked {spec.walked_s:g} s" if spec.walked_s else name


def _world_row(one: WorldFigures) -> tuple[str, ...]:
    from laboratory.scale.figures import JOINS_REDIS

    return (
        _name_of(one.spec),
        f"{one.subscriptions:,}",
        f"{one.overlaps:,}",
        f"{one.subscribers_max:,}",
        f"{one.pushes_per_s:,.0f}",
        f"{one.hottest_cores:.2f}",
        f"{one.joins_per_s:,.0f}",
        f"{one.joins_per_s / JOINS_REDIS:.2f}",
        f"{one.new_overlaps:.1f}",
        f"{one.move_us:.0f}",
        f"{one.world_s:.2f}",
    )


def _plan_row(one: WorldFigures, plan: PlanCost) -> tuple[str, ...]:
    return (
        _name_of(one.spec),
        f"{plan.nodes:,}",
        f"{plan.atoms:,}",
        f"{plan.atoms_per_path:.1f}",
        f"{plan.stamp_bytes:.0f}",
        f"{plan.stamp_bytes_max:,}",
        f"{plan.path_nodes:.2f}",
        f"{plan.busiest_events_per_s:,.0f}",
        f"{plan.busiest_cores:.2f}",
        f"{plan.seconds:.2f}",
        f"{plan.peak_mib:,.0f}",
    )


def _tell(found: Sequence[WorldFigures]) -> None:
    console = wide_console()
    console.print(table_of("Worlds", WORLDS, [_world_row(one) for one in found]))
    console.print(table_of("Plans", PLANS, [_plan_row(one, plan) for one in found for plan in one.plans]))
    console.print("cores: of a node's Redis, which is one thread, by the costs of docs/performance.md")
    console.print("of a control Redis: joins/s as a part of what one can carry")
    console.print("stamp: at the end of the first hour, mean over frames and longest")
