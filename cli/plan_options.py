"""What the options and arguments of `gamecast plan` say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import click

from sequencing.names import check_node_name
from sequencing.plan import Ordering

Capacity = float | Literal["receiver"] | None

CAPACITY_LEAST = 1e-9
NODES_DEFAULT = 3
FRONTIER_NODES_DEFAULT = 64
SECONDS_DEFAULT = 5.0
SECONDS_LEAST, SECONDS_MOST = 0.5, 600.0
EFFORT = "normal"
MADE_NOW = ""
"""What --apply has without a file."""
WORLD = "world:"
ORDERINGS = get_args(Ordering)
OBJECTIVES = "mean", "p95", "max", "stretch", "balance"
FILES = ".csv", ".txt", ".gz"
"""What names end in that are files although there is none of this name."""
PLANS = ".json", ""
"""What the names of files end in that get a plan; all others get a picture."""


@dataclass(frozen=True, slots=True)
class Order:
    """What --ordering says: None where it does not; ``overlaps``: a file, 'grid', or nothing."""

    ordering: Ordering | None
    overlaps: str | None


@dataclass(frozen=True, slots=True)
class Nodes:
    """What --nodes says: how many at most, or their names, and the file of the hosts that they may stand on."""

    count: int | None
    names: tuple[str, ...]
    hosts: Path | None

    def called(self) -> list[str]:
        """Return names for them."""
        return [*self.names] or [f"n{number}" for number in range(1, (self.count or NODES_DEFAULT) + 1)]

    @property
    def is_given(self) -> bool:
        """Whether their number is."""
        return self.count is not None or bool(self.names)


def capacity_of(_: click.Context, __: click.Parameter, value: str | None) -> Capacity:
    """Return what --capacity says: events/s, `receiver`, or None."""
    if value is None:
        return None
    if value == "receiver":
        return "receiver"
    try:
        events_per_s = float(value)
    except ValueError:
        events_per_s = 0.0
    if not CAPACITY_LEAST <= events_per_s < math.inf:
        raise click.BadParameter(f"{value!r} is neither a number of events/s above 0 nor 'receiver'")
    return events_per_s


def order_of(_: click.Context, __: click.Parameter, value: str | None) -> Order:
    """Return what --ordering says."""
    ordering: Ordering | None = None
    overlaps: str | None = None
    for each in value.split(",") if value else ():
        if each in ORDERINGS and ordering is None:
            ordering = each  # type: ignore[assignment] # it is one of them
        elif overlaps is None and (each == "grid" or Path(each).exists()):
            overlaps = each
        else:
            raise click.BadParameter(f"{each!r} is none of {', '.join(ORDERINGS)}, grid and a file, or a second one")
    return Order(ordering, overlaps)


def nodes_of(_: click.Context, __: click.Parameter, values: Sequence[str]) -> Nodes:
    """Return what all --nodes together say."""
    count: int | None = None
    names: list[str] = []
    hosts: Path | None = None
    for value in values:
        if value.lstrip("+-").isdecimal():
            count = int(value)
            if not 1 <= count <= 10_000:
                raise click.BadParameter(f"{value} is not a number of nodes from 1 to 10,000")
        elif Path(value).is_file() or "/" in value or value.endswith(FILES):
            if hosts is not None:
                raise click.BadParameter(f"{value}: the hosts are those of {hosts} already")
            hosts = Path(value)
        else:
            names += [check_node_name(name) for name in value.split(",")]
    if names and count is not None:
        raise click.BadParameter("give either how many nodes, or the name of each")
    if len(set(names)) != len(names):
        raise click.BadParameter(f"a node is named twice: {', '.join(names)}")
    return Nodes(count, tuple(names), hosts)


def files_of(_: click.Context, __: click.Parameter, values: Sequence[Path]) -> tuple[Path, ...]:
    """Return what --out names, if all of it can be written or drawn by its name."""
    from placement.planning.picture import SUFFIXES, require_drawable

    for file in values:
        if (suffix := file.suffix.lower()) not in PLANS:
            if suffix not in SUFFIXES:
                raise click.BadParameter(f"{file}: the name must end in .json, or for a picture in .png, .svg or .pdf")
            require_drawable(file)
    return tuple(values)


PATH = click.Path(path_type=Path)
MEMBERSHIP = click.argument("membership")
RATES = click.option(
    "--rates",
    multiple=True,
    type=PATH,
    metavar="FILE|SESSION",
    help="Events/s of regions, rows of region,rate, or as in a recorded session; repeatable.  [default: 1 each]",
)
CAPACITY = click.option(
    "--capacity",
    metavar="EVENTS_PER_S",
    callback=capacity_of,
    help="Limit of events/s through a node, or 'receiver': as much as the busiest subscriber receives.",
)
ORDERING = click.option(
    "--ordering",
    metavar="KIND[,OVERLAPS]",
    callback=order_of,
    help="overlap: order the regions that at least two subscribers have in common. acyclic: also order all regions "
    "that one subscriber has at the same time, so that no cycle can arise. causal: acyclic, and a subscriber delivers "
    "an event after its publisher's earlier events in other regions. OVERLAPS: a file of region,neighbour, to order "
    "even if no subscriber has both now; or grid, all cells that touch, for regions named NAME:COLUMN:ROW.  "
    "[default: acyclic]",
)
OUT = click.option(
    "--out",
    multiple=True,
    type=PATH,
    metavar="FILE",
    callback=files_of,
    help="Write the plan to FILE.json, or draw it to FILE.png, .svg or .pdf; repeatable.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def seconds_and_files(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[float, tuple[Path, ...]]:
    """Return for how long to measure, and the files with events/s."""
    seconds, files = SECONDS_DEFAULT, []
    for value in values:
        try:
            seconds = float(value.removesuffix("s"))
        except ValueError:
            files.append(Path(value))
            continue
        if not SECONDS_LEAST <= seconds <= SECONDS_MOST:
            raise click.BadParameter(f"{value!r} is not a time from {SECONDS_LEAST:g} to {SECONDS_MOST:g} s")
    return seconds, tuple(files)
