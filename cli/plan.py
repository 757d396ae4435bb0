"""`gamecast plan`: make, place and check a plan from a membership file, with figures, a document and a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import orjson
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from adapters.wording import counted
from cli.commands import Group
from cli.outfiles import writing
from cli.plan_running import Wanted, apply_reviewed, plan_running
from gamecast.errors import InvalidInput, PlanError, UsageError
from launcher.ending import BROKEN
from sequencing.names import check_node_name
from sequencing.plan import Ordering, Plan

if TYPE_CHECKING:
    from placement.planning.figures import PlanFigures
    from placement.planning.frontier import Frontier
    from placement.planning.places import Task
    from placement.planning.reading import MembershipFile
    from placement.topology import Topology
    from sequencing.membership import Membership

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


def _capacity(_: click.Context, __: click.Parameter, value: str | None) -> Capacity:
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


def _order(_: click.Context, __: click.Parameter, value: str | None) -> Order:
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


def _nodes(_: click.Context, __: click.Parameter, values: Sequence[str]) -> Nodes:
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


def _files(_: click.Context, __: click.Parameter, values: Sequence[Path]) -> tuple[Path, ...]:
    from placement.planning.picture import SUFFIXES, require_drawable

    for file in values:
        if (suffix := file.suffix.lower()) not in PLANS:
            if suffix not in SUFFIXES:
                raise click.BadParameter(f"{file}: the name must end in .json, or for a picture in .png, .svg or .pdf")
            require_drawable(file)
    return tuple(values)


_PATH = click.Path(path_type=Path)
_MEMBERSHIP = click.argument("membership")
_rates = click.option(
    "--rates",
    multiple=True,
    type=_PATH,
    metavar="FILE|SESSION",
    help="Events/s of regions, rows of region,rate, or as in a recorded session; repeatable.  [default: 1 each]",
)
_capacities = click.option(
    "--capacity",
    metavar="EVENTS_PER_S",
    callback=_capacity,
    help="Limit of events/s through a node, or 'receiver': as much as the busiest subscriber receives.",
)
_ordering = click.option(
    "--ordering",
    metavar="KIND[,OVERLAPS]",
    callback=_order,
    help="overlap: order the regions that at least two subscribers have in common. acyclic: also order all regions "
    "that one subscriber has at the same time, so that no cycle can arise. causal: acyclic, and a subscriber delivers "
    "an event after its publisher's earlier events in other regions. OVERLAPS: a file of region,neighbour, to order "
    "even if no subscriber has both now; or grid, all cells that touch, for regions named NAME:COLUMN:ROW.  "
    "[default: acyclic]",
)
_out = click.option(
    "--out",
    multiple=True,
    type=_PATH,
    metavar="FILE",
    callback=_files,
    help="Write the plan to FILE.json, or draw it to FILE.png, .svg or .pdf; repeatable.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


class Plans(Group):
    """The four commands; the former single one is named by what it is now."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments, unless they are those of the former command."""
        if args and args[0] == "--from":
            ctx.fail(f"`{ctx.command_path} --from URL` is now `{ctx.command_path} improve URL`")
        if args and args[0] == "--world":
            ctx.fail(f"`{ctx.command_path} --world SPEC` is now `{ctx.command_path} size {WORLD}SPEC`")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; without one of the four, say which is meant."""
        if args and args[0] not in self.commands:
            meant = "improve" if "--from" in args else "places" if "--topology" in args else "size"
            ctx.fail(f"{args[0]!r} is none of {', '.join(self.commands)}: do you mean `{ctx.command_path} {meant}`?")
        return super().resolve_command(ctx, args)


@click.group("plan", cls=Plans, no_args_is_help=True)
def plan() -> None:
    """Plan a sequencing network: how many nodes, where, is it sound, and what would be better.

    \b
    How many nodes?                gamecast plan size members.csv --capacity 2000
    How many, and where?           gamecast plan places members.csv latency.csv:rtt
    Is this plan sound?            gamecast plan check plan.json members.csv
    What is better elsewhere?      gamecast plan improve redis://10.0.0.1

    A plan says which regions must be ordered together, where, and what each node carries.

    MEMBERSHIP has a row for each subscription, CSV or JSON Lines, gzip-compressed or not; - is standard input.

    \b
        subscriber,region        {"subscriber": "ann", "region": "forest"}
        ann,forest               {"subscriber": "bob", "region": "river"}
        bob,river                {"subscriber": null, "region": "desert"}
        ,desert

    The CSV header is optional. With a header, columns may be in any order, beside other columns. A row without a
    subscriber says that the region exists. Repeated rows count once. Instead of a file, world:SPEC is a grid world of
    walking players: world:COLUMNSxROWS:servers=N,players=N, and gather=spread|flocks|event|boss, seed, speed, events,
    walked, handover if you like.

    TOPOLOGY is a latency matrix (CSV), GraphML, GML, or NAME_edges.csv. FILE:rtt has round-trip times, which are
    halved; FILE:weight=NAME has delays in this attribute or column (else latency_ms, or delay_ms in NAME_edges.csv).

    HOSTS says where subscribers stand, rows of subscriber,host; without it, on the host of their name.
    """


@plan.command("size")
@_MEMBERSHIP
@click.option(
    "--nodes",
    multiple=True,
    metavar="N|NAMES",
    callback=_nodes,
    help="Plan for so many nodes at most, n1, n2, …, or for these: fra,tok.  [default: as many as it takes]",
)
@_capacities
@_rates
@_ordering
@_out
@click.option("--skip-bad", is_flag=True, help="Count malformed rows instead of stopping at the first.")
@_json
@click.pass_context
def size(
    context: click.Context,
    membership: str,
    *,
    nodes: Nodes,
    capacity: Capacity,
    rates: Sequence[Path],
    ordering: Order,
    out: Sequence[Path],
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Say how many nodes a world needs, and plan them.

    MEMBERSHIP: see `gamecast plan`. Without --capacity, a node is taken to carry 5,000 events/s; with --nodes, the load
    is spread as far as it is worth longer paths.

    Exit status: 0 if the plan satisfies the conditions C1 to C4 and keeps --capacity, 1 if not, 2 for malformed or
    empty input.

    \b
    Example:
      gamecast plan size members.csv --rates rates.csv --capacity 2000 --out plan.json --out plan.png
    """
    from placement.planner import make_plan_and_report
    from placement.planning.picture import draw_plan
    from placement.planning.sizing import ASSUMED_CAPACITY, sized

    if nodes.hosts is not None:
        raise UsageError(f"--nodes {nodes.hosts}: hosts need a topology, see `gamecast plan places`")
    with _progress() as (show, advance):
        watch = Stopwatch(show)
        world = _read(membership, watch, advance, order=ordering, rates=rates, skip_bad=skip_bad)
        with watch.stage("plan", "planning"):
            if not nodes.is_given:
                limit = capacity or ASSUMED_CAPACITY
                found = sized(world.reckoned, ordering=world.ordering, rates=world.rates, capacity=limit)
                assumed = f"That a node carries {ASSUMED_CAPACITY:,.0f} events/s is assumed (--capacity)."
                made, choice = found.plan, found.report
                why = (found.why, *([assumed] if capacity is None else []), *found.report.why)
            else:
                made, choice = make_plan_and_report(
                    world.reckoned,
                    dict.fromkeys(nodes.called(), ""),
                    ordering=world.ordering,
                    rates=world.rates,
                    capacity=capacity,
                )
                why = choice.why
        why = (*why, *world.notes)
        chosen = {"arrangement": choice.arrangement, "optimal": choice.optimal, "why": why}
        is_limited = capacity is not None or not nodes.is_given
        shown = _Shown(world, made, watch, why, chosen, choice.overload if is_limited else 0.0)
        shown.write(out, {}, draw_plan)
    shown.tell(context, out, as_json=as_json)


@plan.command("places")
@_MEMBERSHIP
@click.argument("topology")
@click.argument("hosts", required=False, type=_PATH)
@click.option(
    "--nodes",
    multiple=True,
    metavar="N|NAMES|FILE",
    callback=_nodes,
    help="At most so many nodes, n1, n2, …, or these: fra,tok; or a file of the hosts that they may stand on, rows of "
    "host, or of host,EVENTS_PER_S for what a node there may carry; repeatable.  [default: the best number, any host]",
)
@_capacities
@_rates
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default="mean",
    show_default=True,
    help="Minimise this delay from publisher to subscriber, or the mean stretch. balance: compare networks of up to 64 "
    "nodes, or --nodes, by delay and by the load of their busiest node, and take the one that we would.",
)
@click.option(
    "--never-worse-than-one-node",
    "never_worse",
    is_flag=True,
    help="Only networks whose mean, 95th percentile and worst stretch are no greater than those of one node at the "
    "best host; else the objective alone decides.",
)
@_ordering
@_out
@_json
@click.pass_context
def places(
    context: click.Context,
    membership: str,
    topology: str,
    hosts: Path | None,
    *,
    nodes: Nodes,
    capacity: Capacity,
    rates: Sequence[Path],
    objective: str,
    never_worse: bool,
    ordering: Order,
    out: Sequence[Path],
    as_json: bool,
) -> None:
    """Say how many nodes a world needs, and on which hosts of TOPOLOGY they stand.

    MEMBERSHIP, TOPOLOGY and HOSTS: see `gamecast plan`. Without --capacity there is no limit of load.

    Exit status: 0 if the plan satisfies the conditions C1 to C4 and keeps --capacity, 1 if not, 2 for malformed or
    empty input.

    \b
    Example:
      gamecast plan places members.csv latency.csv:rtt hosts.csv --capacity 2000 --out plan.json
    """
    from placement.placing import EFFORTS
    from placement.planning.frontier import draw_frontier, tell_frontier
    from placement.planning.frontier import frontier as compare
    from placement.planning.picture import draw_plan

    if objective == "balance" and nodes.names:
        raise UsageError("--objective balance names its nodes itself: give --nodes N instead of names")
    if objective == "balance" and never_worse:
        raise UsageError("--never-worse-than-one-node does not go with --objective balance")
    with _progress() as (show, advance):
        watch = Stopwatch(show)
        world = _read(membership, watch, advance, order=ordering, rates=rates)
        with watch.stage("topology", "reading the topology"):
            network = _topology(topology)
        compared: Frontier | None = None
        with watch.stage("plan", "placing"):
            task = world.task(network, hosts, capacity, objective=objective, nodes=nodes.hosts)
            if objective == "balance":
                most = nodes.count or FRONTIER_NODES_DEFAULT
                compared = compare(task, nodes_max=most, effort=EFFORTS[EFFORT], show=show)
                placed = compared.points[compared.chosen]
            else:
                wanted = nodes.called() if nodes.is_given else None
                placed = task.best(names=wanted, effort=EFFORTS[EFFORT], never_worse=never_worse, show=show)
        answer, *reasons = placed.why()
        why = (*((compared.why,) if compared is not None else ()), answer, *network.notes, *reasons, *world.notes)
        chosen: dict[str, Any] = {"arrangement": "placed", "optimal": False, "why": why, "placement": placed.as_dict()}
        if compared is not None:
            chosen["frontier"] = compared.as_dict()
        shown = _Shown(world, placed.plan, watch, why, chosen, placed.overload)

        def draw(figures: PlanFigures, picture: Path) -> None:
            draw_plan(figures, picture) if compared is None else draw_frontier(compared, picture)

        shown.write(out, placed.host_of, draw)
    if compared is not None and not as_json:
        tell_frontier(_console(), compared)
    shown.tell(context, out, as_json=as_json)


@plan.command("check")
@click.argument("file", metavar="PLAN", type=_PATH)
@_MEMBERSHIP
@click.argument("topology", required=False)
@click.argument("hosts", required=False, type=_PATH)
@_capacities
@_rates
@_ordering
@_json
@click.pass_context
def check(
    context: click.Context,
    file: Path,
    membership: str,
    topology: str | None,
    hosts: Path | None,
    *,
    capacity: Capacity,
    rates: Sequence[Path],
    ordering: Order,
    as_json: bool,
) -> None:
    """Say whether a plan is sound for a membership, and what each node carries.

    PLAN is what --out wrote, or another program; --ordering is by default the plan's own. With TOPOLOGY, and the hosts
    of nodes in PLAN, also its delays. MEMBERSHIP, TOPOLOGY and HOSTS: see `gamecast plan`.

    Exit status: 0 if the plan satisfies the conditions C1 to C4 and keeps --capacity, 1 if not, 2 for malformed or
    empty input.

    \b
    Example:
      gamecast plan check plan.json members.csv --rates rates.csv --capacity 2000
    """
    from placement.rooted import TOLERANCE
    from sequencing.conditions import violations

    with _progress() as (show, advance):
        watch = Stopwatch(show)
        made, host_of = _plan_of(file)
        order = Order(ordering.ordering or made.ordering, ordering.overlaps)
        world = _read(membership, watch, advance, order=order, rates=rates)
        at_one_end = {atom.id for atom in made.atoms if len({made.egresses.get(each) for each in atom.regions}) == 1}
        atoms = tuple(atom for atom in made.atoms if atom.id not in at_one_end)
        made = replace(made, ordering=world.ordering, atoms=atoms)
        why: tuple[str, ...] = world.notes
        chosen: dict[str, Any] = {"why": why}
        if lacking := [region for region in world.asked.regions if region not in made.paths]:
            raise InvalidInput(f"{file}: region {lacking[0]!r} of {_shown(membership)} is not in the plan")
        if topology is not None:
            with watch.stage("topology", "reading the topology"):
                network = _topology(topology)
                task = world.task(network, hosts, capacity)
            placed = task.of_plan(made, host_of)
            why = (*network.notes, *placed.why()[1:], *world.notes)
            chosen = {"why": why, "placement": placed.as_dict()}
        figures = world.figures(made, {})
        busiest = max(figures.load_of_node.values(), default=0.0)
        limit = figures.busiest_receiver if capacity == "receiver" else capacity
        overload = busiest - limit if limit is not None and busiest > limit * (1 + TOLERANCE) else 0.0
        if overload:
            said = f"The busiest node carries {busiest:,.6g} events/s, more than the {limit:,.6g} that it may."
            chosen["why"] = why = (said, *why)
        else:
            said = "Sound, and no node carries more than it may." if limit is not None else "Sound."
            broken = violations(made, world.reckoned)
            chosen["why"] = why = ("Not sound: see below." if broken else said, *why)
        shown = _Shown(world, made, watch, why, chosen, overload)
    shown.tell(context, (), as_json=as_json)


def _seconds_and_files(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[float, tuple[Path, ...]]:
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


@plan.command("improve")
@click.argument("url")
@click.option(
    "--apply",
    is_flag=False,
    flag_value=MADE_NOW,
    metavar="[FILE]",
    help="Have the network go over to the plan, and measure it again; with FILE to the one that was reviewed, which "
    "--out wrote, or say what has changed since.",
)
@click.option(
    "--rates",
    multiple=True,
    metavar="SECONDS|FILE|SESSION",
    callback=_seconds_and_files,
    help="Measure the regions' events/s for so long, or take those of rows of region,rate or of a recorded session; "
    "repeatable.  [default: 5s]",
)
@_capacities
@click.option(
    "--topology",
    metavar="FILE[:rtt]",
    help="Plan for the least delay, with --nodes: a TOPOLOGY, see `gamecast plan`.",
)
@click.option("--nodes", type=_PATH, metavar="FILE", help="With --topology: where nodes stand, rows of node,host.")
@click.option(
    "--hosts",
    type=_PATH,
    metavar="FILE",
    help="With --topology: where subscribers stand, rows of subscriber,host.  [default: the host of their name]",
)
@click.option("--out", type=_PATH, metavar="FILE", help="Write the plan as JSON, for --apply FILE.")
@_json
@click.pass_context
def improve(
    context: click.Context,
    url: str,
    *,
    apply: str | None,
    rates: tuple[float, tuple[Path, ...]],
    capacity: Capacity,
    topology: str | None,
    nodes: Path | None,
    hosts: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say which regions of a running network would be better off elsewhere, and move them on request.

    The network's leader plans one component at a time, without knowing which regions are busy. This measures that, and
    finds places where an event passes fewer nodes, and no node carries more than its share; with --topology, where
    events arrive sooner. It moves only what is worth a move.

    Exit status: 0, 1 if the plan exceeds --capacity or the leader refused a part of it, 2 for wrong use, 3 if the
    network is unavailable.

    \b
    Example:
      gamecast plan improve redis://10.0.0.1 --out plan.json      # says what would move, and what that brings
      gamecast plan improve redis://10.0.0.1 --apply plan.json    # does it
    """
    from placement.planning.nearer import Ground
    from placement.planning.places import read_hosts

    if topology is None and (nodes is not None or hosts is not None):
        raise UsageError("--nodes and --hosts need --topology FILE")
    if apply not in (None, MADE_NOW):
        if out is not None or as_json or topology is not None:
            raise UsageError("--apply FILE carries a plan out as it is: it goes with URL alone")
        with _progress() as (show, _):
            apply_reviewed(context, url, Path(str(apply)), show)
        return
    ground = None
    if topology is not None:
        if nodes is None:
            raise UsageError("--topology needs --nodes FILE, rows of node,host")
        standing = read_hosts(hosts) if hosts is not None else {}
        ground = Ground(_topology(topology), read_hosts(nodes, of="node"), standing)
    seconds, files = rates
    wanted = Wanted(url, seconds, apply is not None, _rates_of(files), capacity, ground, EFFORT, out, as_json)
    with _progress() as (show, _):
        plan_running(context, wanted, show)


@dataclass(frozen=True)
class _World:
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

    def figures(self, made: Plan, broken: Mapping[str, str]) -> PlanFigures:
        """Return the figures of a plan for this world."""
        from placement.planning.figures import PlanFigures

        return PlanFigures(made, self.asked, self.rates, self.overlaps, broken, self.reckoned)


def _read(
    membership: str,
    watch: Stopwatch,
    advance: Callable[[int], None] | None,
    *,
    order: Order,
    rates: Sequence[Path],
    skip_bad: bool = False,
) -> _World:
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
                raise InvalidInput(f"{_shown(membership)}: {what}, so there is nothing to plan")
        rate_of |= _rates_of(rates)
        notes = tuple(_about_rates(rate_of, source.membership.regions))
        if not any(rate_of.get(region, 1.0) for region in source.membership.regions):
            rate_of = {}
        asked = reckoned = source.membership
        if order.overlaps is not None:
            pairs = grid_overlaps(asked.regions) if order.overlaps == "grid" else read_overlaps(Path(order.overlaps))
            asked = Membership(asked.regions_of, frozenset(asked.regions).union(*pairs))
            reckoned = Membership.of(observers(asked.regions_of, pairs, ordering), asked.regions)
    with watch.stage("overlaps", "counting overlaps"):
        overlaps = count_double_overlaps(source.membership)
    return _World(source, asked, reckoned, rate_of, ordering, overlaps, notes)


def _about_rates(rates: Mapping[str, float], regions: Sequence[str]) -> Iterator[str]:
    known = set(rates).intersection(regions)
    if not known:
        yield "No rates were given: 1 event/s for each region is a guess (--rates)."
    elif not any(rates.get(region, 1.0) for region in regions):
        yield "All rates are 0, so each region counts as 1 event/s."
    elif len(known) < len(regions):
        yield f"{len(regions) - len(known):,} of {len(regions):,} regions have no rate: 1 event/s each is a guess."
    if strange := sorted(set(rates).difference(regions)):
        left = counted(len(strange), "region")
        yield f"The rates of {left} that the membership lacks are left out, such as that of {strange[0]!r}."


class _Shown:
    """A plan whose conditions are checked: its files, its account, its status."""

    def __init__(
        self,
        world: _World,
        made: Plan,
        watch: Stopwatch,
        why: Sequence[str],
        chosen: Mapping[str, Any],
        overload: float,
    ) -> None:
        from sequencing.conditions import violations

        self._world, self._watch, self._why, self._chosen, self._overload = world, watch, why, chosen, overload
        with watch.stage("conditions", "checking the conditions"):
            self._broken = violations(made, world.reckoned)
        self._figures = world.figures(made, self._broken)

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
            tell(_console(), self._figures, source, self._why, self._watch.seconds, written)
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


def _topology(text: str) -> Topology:
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


def _plan_of(file: Path) -> tuple[Plan, dict[str, str]]:
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


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file


def _rates_of(files: Sequence[Path]) -> dict[str, float]:
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


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[int], None] | None]]:
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
