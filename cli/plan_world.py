"""The worlds that `gamecast plan` reads, and the account that it gives of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from adapters.wording import counted
from cli.outfiles import writing
from cli.plan_options import PLANS, WORLD, Capacity, Order
from gamecast.errors import InvalidInput, PlanError, UsageError
from launcher.ending import BROKEN
from sequencing.plan import Ordering, Plan

if TYPE_CHECKING:
    from placement.planning.figures import PlanFigures
    from placement.planning.places import Task
    from placement.planning.reading import MembershipFile
    from placement.topology import Topology
    from sequencing.membership import Membership


class Stopwatch:
    """Seconds by stage; a stage ends when the next one begins."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._show = show

    @contextmanager
    def stage(self, name: str, doing: str) -> Iterator[None]:
        """Time the body of the context, and show its stage on the terminal."""
        self._show(doing)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun


@dataclass(frozen=True)
class World:
    """A world that is read: ``asked`` with the regions of expected overlaps, ``reckoned`` with who observes them."""

    source: MembershipFile
    asked: Membership
    reckoned: Membership
    rates: Mapping[str, float]
    ordering: Ordering
    overlaps: int
    notes: tuple[str, ...] = ()
    """What a person should know of the rates."""

    def task(
        self,
        network: Topology,
        hosts: Path | None,
        capacity: Capacity,
        *,
        objective: str = "mean",
        nodes: Path | None = None,
    ) -> Task:
        """Return what is to be placed."""
        from placement.planning.places import Task, read_hosts, read_node_hosts

        return Task.of(
            self.reckoned,
            network,
            host_of=read_hosts(hosts) if hosts is not None else {},
            ordering=self.ordering,
            objective="mean" if objective == "balance" else objective,  # type: ignore[arg-type] # it is one of them
            rates=self.rates,
            capacity=capacity,
            node_hosts=read_node_hosts(nodes) if nodes is not None else None,
        )

    def broken(self, made: Plan, watch: Stopwatch) -> Mapping[str, str]:
        """Return the conditions that a plan violates, each with what violates it."""
        from sequencing.conditions import violations

        with watch.stage("conditions", "checking the conditions"):
            return violations(made, self.reckoned)

    def figures(self, made: Plan, broken: Mapping[str, str]) -> PlanFigures:
        """Return the figures of a plan for this world."""
        from placement.planning.figures import PlanFigures

        return PlanFigures(made, self.asked, self.rates, self.overlaps, broken, self.reckoned)


def read_world(
    membership: str,
    watch: Stopwatch,
    advance: Callable[[int], None] | None,
    *,
    order: Order,
    rates: Sequence[Path],
    skip_bad: bool = False,
) -> World:
    """Read MEMBERSHIP, what its regions publish, and which overlaps are expected."""
    from placement.planning.grid import grid_overlaps
    from placement.planning.reading import read_membership, read_overlaps
    from sequencing.expected import observers
    from sequencing.membership import Membership
    from sequencing.overlaps import count_double_overlaps

    ordering = order.ordering or "acyclic"
    with watch.stage("reading", "reading"):
        rate_of: dict[str, float] = {}
        if membership.startswith(WORLD):
            source, rate_of = _made(membership.removeprefix(WORLD))
        else:
            source = read_membership(Path(membership), skip_bad=skip_bad, on_progress=advance)
            if not source.rows:
                what = "all rows are malformed" if source.skipped.count else "there are no rows"
                raise InvalidInput(f"{shown_name(membership)}: {what}, so there is nothing to plan")
        rate_of |= rates_of(rates)
        is_silent = not any(rate_of.get(region, 1.0) for region in source.membership.regions)
        notes = tuple(_about_rates(rate_of, source.membership.regions, is_silent=is_silent))
        rate_of = {} if is_silent else rate_of
        asked = reckoned = source.membership
        if order.overlaps is not None:
            pairs = grid_overlaps(asked.regions) if order.overlaps == "grid" else read_overlaps(Path(order.overlaps))
            asked = Membership(asked.regions_of, frozenset(asked.regions).union(*pairs))
            reckoned = Membership.of(observers(asked.regions_of, pairs, ordering), asked.regions)
    with watch.stage("overlaps", "counting overlaps"):
        overlaps = count_double_overlaps(source.membership)
    return World(source, asked, reckoned, rate_of, ordering, overlaps, notes)


def _about_rates(rates: Mapping[str, float], regions: Sequence[str], *, is_silent: bool) -> Iterator[str]:
    known = set(rates).intersection(regions)
    if not known:
        yield "No rates were given: 1 event/s for each region is a guess (--rates)."
    elif is_silent:
        yield "All rates are 0, so each region counts as 1 event/s."
    elif len(known) < len(regions):
        yield f"{len(regions) - len(known):,} of {len(regions):,} regions have no rate: 1 event/s each is a guess."
    if strange := sorted(set(rates).difference(regions)):
        left = counted(len(strange), "region")
        yield f"The rates of {left} that the membership lacks are left out, such as that of {strange[0]!r}."


class Shown:
    """A plan whose conditions are checked: its files, its account, its status."""

    def __init__(
        self,
        world: World,
        made: Plan,
        broken: Mapping[str, str],
        watch: Stopwatch,
        why: Sequence[str],
        chosen: Mapping[str, Any],
        overload: float,
    ) -> None:
        """``broken``: see `World.broken`; ``why``: sentences for a person, the answer first; ``chosen``: more for JSON;
        ``overload``: by how many events/s the busiest node exceeds the capacity."""
        self._world, self._watch, self._why, self._chosen = world, watch, why, chosen
        self._broken, self._overload = broken, overload
        self._figures = world.figures(made, broken)

    def write(
        self, files: Sequence[Path], host_of: Mapping[str, str], draw: Callable[[PlanFigures, Path], None]
    ) -> None:
        """Write the plan, and draw it."""
        from placement.planning.document import PAIRS_MAX, plan_document

        for file in files:
            if file.suffix.lower() not in PLANS:
                with self._watch.stage("picture", f"drawing {file}"):
                    draw(self._figures, file)
                continue
            with self._watch.stage("out", f"writing {file}"):
                document = plan_document(self._figures.plan, self._world.reckoned, host_of)
                with writing(f"--out {file}"):
                    file.write_bytes(document.text)
            if not document.paired:
                click.echo(
                    f"{file}: {document.pairs:,} pairs of regions need order, more than the {PAIRS_MAX:,} that are "
                    "listed singly: each atom lists all its regions instead",
                    err=True,
                )

    def tell(self, context: click.Context, written: Sequence[Path], *, as_json: bool) -> None:
        """Print the account, and end with a status of 1 where the plan does not keep what it should."""
        from placement.planning.story import tell

        source = self._world.source
        if as_json:
            report = {
                **self._figures.as_dict(),
                **self._chosen,
                "overload": self._overload,
                "violations": self._broken,
                "rows": source.rows,
                "duplicates": source.duplicates,
                "skipped": source.skipped.count,
                "first_skipped": source.skipped.first,
                "seconds": self._watch.seconds,
            }
            click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
        else:
            tell(console(), self._figures, source, self._why, self._watch.seconds, written)
        if self._broken or self._overload:
            context.exit(BROKEN)


def _made(text: str) -> tuple[MembershipFile, dict[str, float]]:
    """Return a world that is made, as if it had been read, and its events/s."""
    from placement.planning.reading import MembershipFile
    from placement.planning.rows import Skipped
    from placement.planning.worlds import made, parse_world

    world = made(parse_world(text))
    rows = int(world.membership.incidence.nnz)
    return MembershipFile(world.membership, rows, 0, Skipped()), dict(world.rates)


def topology_of(text: str) -> Topology:
    """Read FILE, FILE:rtt, FILE:weight=NAME or both; a file of just this name comes first."""
    from placement.topologies.reading import read_topology

    file, rtt, weight = text, False, None
    while file and not Path(file).exists():
        name, colon, option = file.rpartition(":")
        if option == "rtt":
            rtt = True
        elif option.startswith("weight=") and option != "weight=":
            weight = option.removeprefix("weight=")
        elif colon and Path(name).exists():
            raise UsageError(f"{text}: {option!r} is neither rtt nor weight=NAME")
        else:
            break
        file = name
    if not Path(file).is_file():
        raise UsageError(f"{text}: there is no such file")
    return read_topology(Path(file), rtt=rtt, weight=weight)


def plan_of(file: Path) -> tuple[Plan, dict[str, str]]:
    """Read a plan, and the hosts of its nodes that have one."""
    try:
        document = orjson.loads(file.read_bytes())
        made = Plan.from_document(document)
        host_of = {node: entry["host"] for node, entry in document["nodes"].items() if "host" in entry}
        if wrong := [node for node, host in host_of.items() if not isinstance(host, str)]:
            raise PlanError(f"the host of node {wrong[0]} is no name")
    except OSError as error:
        raise UsageError(f"cannot read the plan: {error}") from error
    except (ValueError, TypeError, AttributeError, KeyError, PlanError) as error:
        raise InvalidInput(f"{file}: {error}") from error
    return made, host_of


def shown_name(file: str) -> str:
    """Return what messages call a membership."""
    return "standard input" if file == "-" else file


def rates_of(files: Sequence[Path]) -> dict[str, float]:
    """Return the events/s of files and recorded sessions; a later one counts before those before it."""
    from placement.planning.reading import read_rates

    found: dict[str, float] = {}
    for file in files:
        if file.is_dir():
            from analytics.session.rates import read_session_rates

            found |= read_session_rates(file)
        else:
            found |= read_rates(file)
    return found


def console() -> Console:
    """Return what accounts are printed on."""
    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def progress() -> Iterator[tuple[Callable[[str], None], Callable[[int], None] | None]]:
    """Yield functions that show the stage and the number of rows, on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield (lambda _: None), None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None, rows="")
        read = 0

        def advance(rows: int) -> None:
            nonlocal read
            read += rows
            bar.update(task, rows=f"{read:,} rows")

        yield (lambda doing: bar.update(task, description=doing)), advance
