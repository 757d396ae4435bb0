"""`gamecast plan`: make a plan from a membership file, with figures, a document and a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click
import orjson
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from cli.outfiles import writing
from cli.plan_running import Wanted, apply_reviewed, plan_running
from gamecast.errors import InvalidInput
from launcher.ending import BROKEN
from sequencing.names import check_node_name
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from placement.placing import Objective
    from placement.planning.frontier import Frontier
    from placement.planning.reading import MembershipFile

NODES_DEFAULT = 3
FRONTIER_NODES_DEFAULT = 64
SECONDS_DEFAULT = 5.0
MADE_NOW = ""
"""What --apply has without a file."""
EFFORTS = "quick", "normal", "thorough"
"""`placement.placing.EFFORTS`, without importing scipy before it is needed."""


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


def _capacity(_: click.Context, __: click.Parameter, value: str | None) -> float | Literal["receiver"] | None:
    if value is None:
        return None
    if value == "receiver":
        return "receiver"
    try:
        events_per_s = float(value)
    except ValueError:
        events_per_s = 0.0
    if not 0 < events_per_s < math.inf:
        raise click.BadParameter(f"{value!r} is neither a number of events/s above 0 nor 'receiver'")
    return events_per_s


@click.command("plan")
@click.argument("membership", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--world",
    metavar="SPEC",
    help="Plan for a grid world of walking players instead of MEMBERSHIP: COLUMNSxROWS:servers=N,players=N, and "
    "gather=spread|flocks|event|boss, seed, speed, events, walked, handover if you like.",
)
@click.option(
    "--from",
    "url",
    metavar="URL",
    help="Plan better places for the regions of this running network, instead of MEMBERSHIP: see above.",
)
@click.option(
    "--apply",
    is_flag=False,
    flag_value=MADE_NOW,
    metavar="[FILE]",
    help="With --from: have the network go over to the plan, and measure it again; with FILE to the one that was "
    "reviewed, which --out wrote, or say what has changed since.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600.0),
    metavar="N",
    help="With --from: measure the regions' events/s for so long.  [default: 5]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 10_000),
    help="Plan for so many nodes at most: n1, n2, ….  [default: with --topology or --capacity the best number; else 3]",
)
@click.option("--node", "named", multiple=True, metavar="NAME", help="Plan for this node; repeatable.")
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    help="overlap: order the regions that at least two subscribers have in common. acyclic: also order all regions "
    "that one subscriber has at the same time, so that no cycle can arise. causal: acyclic, and a subscriber delivers "
    "an event after its publisher's earlier events in other regions.  [default: acyclic]",
)
@click.option(
    "--rates",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Events/s of regions, rows of region,rate.  [default: 1 each]",
)
@click.option(
    "--rates-from",
    type=click.Path(path_type=Path),
    metavar="SESSION",
    help="Events/s of regions in a recorded session. --rates overrides them.",
)
@click.option(
    "--overlaps",
    "overlaps_file",
    metavar="FILE|grid",
    help="Overlaps to order even if no subscriber has them now: rows of region,neighbour. 'grid': all cells that "
    "touch, for regions named NAME:COLUMN:ROW. With this option, overlaps of a single subscriber are ordered too.",
)
@click.option(
    "--capacity",
    metavar="EVENTS_PER_S",
    callback=_capacity,
    help="Limit of events/s through a node, or 'receiver': as much as the busiest subscriber receives.  [default: "
    "spread the load as far as it is worth longer paths; with --topology: no limit]",
)
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Choose hosts for the nodes too: a latency matrix (CSV), GraphML, GML, or NAME_edges.csv.",
)
@click.option("--rtt", is_flag=True, help="The topology has round-trip times: halve them.")
@click.option(
    "--weight",
    metavar="NAME",
    help="The attribute or column of links' delays.  [default: latency_ms, or delay_ms in NAME_edges.csv]",
)
@click.option(
    "--hosts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Hosts of the subscribers, rows of subscriber,host.  [default: the host of the subscriber's name]",
)
@click.option(
    "--node-hosts",
    "node_hosts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --topology: nodes stand on these hosts only, rows of host, or of host,EVENTS_PER_S for what a node "
    "there may carry; with --from, rows of node,host.  [default: any host]",
)
@click.option(
    "--objective",
    type=click.Choice(("mean", "p95", "max", "stretch")),
    default="mean",
    show_default=True,
    help="With --topology: minimise this delay from publisher to subscriber, or the mean stretch.",
)
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default="normal",
    show_default=True,
    help="With --topology: how long to search. For 32 regions that is about 0.3 s, 1 s or 20 s.",
)
@click.option(
    "--never-worse-than-one-node",
    "never_worse",
    is_flag=True,
    help="With --topology: only networks whose mean, 95th percentile and worst stretch are no greater than those of "
    "one node at the best host; else the objective alone decides.",
)
@click.option(
    "--frontier",
    is_flag=True,
    help="With --topology: compare networks from 1 node up to --nodes, by delay and by the load of their busiest node; "
    "plan the one that we would take, and say why. --picture draws the comparison.  [default of --nodes: 64]",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan as JSON.")
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE", help="Draw the plan: .png, .svg or .pdf.")
@click.option("--skip-bad", is_flag=True, help="Count malformed rows instead of stopping at the first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def plan(
    context: click.Context,
    membership: Path | None,
    *,
    world: str | None,
    url: str | None,
    apply: str | None,
    seconds: float | None,
    nodes: int | None,
    named: Sequence[str],
    ordering: Ordering | None,
    rates: Path | None,
    rates_from: Path | None,
    overlaps_file: str | None,
    capacity: float | Literal["receiver"] | None,
    topology: Path | None,
    rtt: bool,
    weight: str | None,
    hosts: Path | None,
    node_hosts: Path | None,
    objective: Objective,
    effort: str,
    never_worse: bool,
    frontier: bool,
    out: Path | None,
    picture: Path | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Plan a sequencing network from a membership file. The plan says which regions must be ordered together, where,
    and what each node carries.

    MEMBERSHIP has a row for each subscription, CSV or JSON Lines, gzip-compressed or not; - is standard input.

    \b
        subscriber,region        {"subscriber": "ann", "region": "forest"}
        ann,forest               {"subscriber": "bob", "region": "river"}
        bob,river                {"subscriber": null, "region": "desert"}
        ,desert

    The CSV header is optional. With a header, columns may be in any order, beside other columns. A row without a
    subscriber says that the region exists. Repeated rows count once.

    With --from URL, the members are those of a running network. Its leader plans one component at a time, without
    knowing which regions are busy. This measures that, and says which regions would be better off elsewhere: so that an
    event passes fewer nodes, and no node carries more than its share; with --topology and --node-hosts, so that events
    arrive sooner. It moves only what is worth a move. With --apply, the network goes over to it, while it runs; with
    --out FILE, and later --apply FILE, to what was reviewed.

    Exit status: 0 if the plan satisfies the conditions C1 to C4 and keeps --capacity, 1 if not, or if the leader
    refused a part of it, 2 for malformed or empty input, 3 if the network is unavailable.
    """
    from placement.placing import EFFORTS as PLACING_EFFORTS
    from placement.planner import make_plan_and_report
    from placement.planning.document import PAIRS_MAX, plan_document
    from placement.planning.figures import PlanFigures
    from placement.planning.frontier import draw_frontier, tell_frontier
    from placement.planning.frontier import frontier as compare
    from placement.planning.grid import grid_overlaps
    from placement.planning.nearer import Ground
    from placement.planning.picture import draw_plan, require_drawable
    from placement.planning.places import Task, read_hosts, read_node_hosts
    from placement.planning.reading import read_membership, read_overlaps, read_rates
    from placement.planning.sizing import sized
    from placement.planning.story import tell
    from placement.topologies.reading import read_topology
    from sequencing.conditions import violations
    from sequencing.expected import observers
    from sequencing.membership import Membership
    from sequencing.overlaps import count_double_overlaps

    names = _node_names(nodes, named)
    if sum(source is not None for source in (membership, world, url)) != 1:
        raise click.UsageError("give one of MEMBERSHIP, a file or - for standard input, --world SPEC and --from URL")
    about_hosts = rtt or frontier or never_worse or any(option is not None for option in (weight, hosts, node_hosts))
    if topology is None and about_hosts:
        raise click.UsageError(
            "--rtt, --weight, --hosts, --node-hosts, --never-worse-than-one-node and --frontier need --topology FILE"
        )
    if frontier and named:
        raise click.UsageError("--frontier names its nodes itself: give --nodes N instead of --node NAME")
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("nan is not a time", param_hint="--seconds")
    if url is None and (apply is not None or seconds is not None):
        raise click.UsageError("--apply and --seconds need --from URL")
    if picture is not None:
        require_drawable(picture)
    if url is not None:
        unfit = {
            "--nodes": nodes is not None,
            "--node": bool(named),
            "--ordering": ordering is not None,
            "--overlaps": overlaps_file is not None,
            "--objective": objective != "mean",
            "--frontier": frontier,
            "--picture": picture is not None,
            "--skip-bad": skip_bad,
        }
        if given := [option for option, is_given in unfit.items() if is_given]:
            raise click.UsageError(f"{given[0]} does not go with --from URL, which takes the network as it is")
        ground = None
        if topology is not None:
            if node_hosts is None:
                raise click.UsageError("--from URL with --topology needs --node-hosts FILE, rows of node,host")
            network = read_topology(topology, rtt=rtt, weight=weight)
            standing = read_hosts(hosts) if hosts is not None else {}
            ground = Ground(network, read_hosts(node_hosts, of="node"), standing)
        measured = _recorded_rates(rates_from) if rates_from is not None else {}
        measured |= read_rates(rates) if rates is not None else {}
        if apply not in (None, MADE_NOW):
            if out is not None or as_json or topology is not None:
                raise click.UsageError("--apply FILE carries a plan out as it is: it goes with --from URL alone")
            with _progress() as (show, _):
                apply_reviewed(context, url, Path(str(apply)), show)
            return
        is_applied = apply is not None
        wanted_of = Wanted(
            url, seconds or SECONDS_DEFAULT, is_applied, measured, capacity, ground, effort, out, as_json
        )
        with _progress() as (show, _):
            plan_running(context, wanted_of, show)
        return
    ordering = ordering or "acyclic"
    with _progress() as (show, advance):
        watch = Stopwatch(show)
        with watch.stage("reading", "reading"):
            rate_of: dict[str, float] = {}
            if membership is None:
                source, rate_of = _made(str(world))
            else:
                source = read_membership(membership, skip_bad=skip_bad, on_progress=advance)
                if not source.rows:
                    what = "all rows are malformed" if source.skipped.count else "there are no rows"
                    raise InvalidInput(f"{_shown(membership)}: {what}, so there is nothing to plan")
            rate_of |= _recorded_rates(rates_from) if rates_from is not None else {}
            rate_of |= read_rates(rates) if rates is not None else {}
            asked = reckoned = source.membership
            if overlaps_file is not None:
                pairs = grid_overlaps(asked.regions) if overlaps_file == "grid" else read_overlaps(Path(overlaps_file))
                asked = Membership(asked.regions_of, frozenset(asked.regions).union(*pairs))
                reckoned = Membership.of(observers(asked.regions_of, pairs, ordering), asked.regions)
        with watch.stage("overlaps", "counting overlaps"):
            overlaps = count_double_overlaps(source.membership)
        compared: Frontier | None = None
        if topology is None:
            with watch.stage("plan", "planning"):
                if capacity is not None and nodes is None and not named:
                    found = sized(reckoned, ordering=ordering, rates=rate_of, capacity=capacity)
                    made, choice, why = found.plan, found.report, (found.why, *found.report.why)
                else:
                    made, choice = make_plan_and_report(
                        reckoned, dict.fromkeys(names, ""), ordering=ordering, rates=rate_of, capacity=capacity
                    )
                    why = choice.why
            if not rate_of:
                why = (*why, "No rates were given: 1 event/s for each region is a guess (--rates, --rates-from).")
            host_of: Mapping[str, str] = {}
            overload = choice.overload if capacity is not None else 0.0
            chosen = {"arrangement": choice.arrangement, "optimal": choice.optimal, "why": why}
        else:
            with watch.stage("topology", "reading the topology"):
                network = read_topology(topology, rtt=rtt, weight=weight)
                standing = read_hosts(hosts) if hosts is not None else {}
            with watch.stage("plan", "placing"):
                task = Task.of(
                    reckoned,
                    network,
                    host_of=standing,
                    ordering=ordering,
                    objective=objective,
                    rates=rate_of,
                    capacity=capacity,
                    node_hosts=read_node_hosts(node_hosts) if node_hosts is not None else None,
                )
                if frontier:
                    compared = compare(
                        task, nodes_max=nodes or FRONTIER_NODES_DEFAULT, effort=PLACING_EFFORTS[effort], show=show
                    )
                    placed = compared.points[compared.chosen]
                else:
                    wanted = names if nodes is not None or named else None
                    placed = task.best(names=wanted, effort=PLACING_EFFORTS[effort], never_worse=never_worse, show=show)
            reasons = (compared.why,) if compared is not None else ()
            made, host_of, why = placed.plan, placed.host_of, (*network.notes, *reasons, *placed.why())
            overload = placed.overload
            chosen = {"arrangement": "placed", "optimal": False, "why": why, "placement": placed.as_dict()}
            if compared is not None:
                chosen["frontier"] = compared.as_dict()
        with watch.stage("conditions", "checking the conditions"):
            broken = violations(made, reckoned)
        figures = PlanFigures(made, asked, rate_of, overlaps, broken, reckoned)
        if out is not None:
            with watch.stage("out", f"writing {out}"):
                document = plan_document(made, reckoned, host_of)
                _write(out, document.text)
            if not document.paired:
                click.echo(
                    f"{out}: {document.pairs:,} pairs of regions need order, more than the {PAIRS_MAX:,} that are "
                    "listed singly: each atom lists all its regions instead",
                    err=True,
                )
        if picture is not None:
            with watch.stage("picture", f"drawing {picture}"):
                if compared is not None:
                    draw_frontier(compared, picture)
                else:
                    draw_plan(figures, picture)
    if as_json:
        report = {
            **figures.as_dict(),
            **chosen,
            "overload": overload,
            "violations": broken,
            "rows": source.rows,
            "duplicates": source.duplicates,
            "skipped": source.skipped.count,
            "first_skipped": source.skipped.first,
            "seconds": watch.seconds,
        }
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    else:
        written = [file for file in (out, picture) if file is not None]
        console = Console(highlight=False, markup=False, emoji=False)
        if compared is not None:
            tell_frontier(console, compared)
        tell(console, figures, source, why, watch.seconds, written)
    if broken or overload:
        context.exit(BROKEN)


def _made(text: str) -> tuple[MembershipFile, dict[str, float]]:
    """Return a world that is made, as if it had been read, and its events/s."""
    from placement.planning.reading import MembershipFile
    from placement.planning.rows import Skipped
    from placement.planning.worlds import made, parse_world

    world = made(parse_world(text))
    rows = int(world.membership.incidence.nnz)
    return MembershipFile(world.membership, rows, 0, Skipped()), dict(world.rates)


def _node_names(count: int | None, named: Sequence[str]) -> list[str]:
    if named and count is not None:
        raise click.UsageError("give either --nodes N or --node NAME for each, not both")
    if not named:
        return [f"n{number}" for number in range(1, (count or NODES_DEFAULT) + 1)]
    if len(set(named)) != len(named):
        raise click.UsageError(f"--node names a node twice: {', '.join(named)}")
    return [check_node_name(name) for name in named]


def _shown(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _recorded_rates(session: Path) -> dict[str, float]:
    from analytics.session.rates import read_session_rates

    return read_session_rates(session)


def _write(file: Path, text: bytes) -> None:
    with writing(f"--out {file}"):
        file.write_bytes(text)


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
