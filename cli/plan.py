"""`gamecast plan`: make, place and check a plan from a membership file, with figures, a document and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.commands import Group
from cli.plan_options import (
    CAPACITY,
    EFFORT,
    FRONTIER_NODES_DEFAULT,
    JSON,
    MADE_NOW,
    MEMBERSHIP,
    OBJECTIVES,
    ORDERING,
    OUT,
    PATH,
    RATES,
    WORLD,
    Capacity,
    Nodes,
    Order,
    nodes_of,
    seconds_and_files,
)
from cli.plan_running import Wanted, apply_reviewed, plan_running
from cli.plan_world import Shown, Stopwatch, console, plan_of, progress, rates_of, read_world, shown_name, topology_of
from gamecast.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from placement.planning.figures import PlanFigures
    from placement.planning.frontier import Frontier


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
@MEMBERSHIP
@click.option(
    "--nodes",
    multiple=True,
    metavar="N|NAMES",
    callback=nodes_of,
    help="Plan for so many nodes at most, n1, n2, …, or for these: fra,tok.  [default: as many as it takes]",
)
@CAPACITY
@RATES
@ORDERING
@OUT
@click.option("--skip-bad", is_flag=True, help="Count malformed rows instead of stopping at the first.")
@JSON
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
    with progress() as (show, advance):
        watch = Stopwatch(show)
        world = read_world(membership, watch, advance, order=ordering, rates=rates, skip_bad=skip_bad)
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
        overload = choice.overload if is_limited else 0.0
        shown = Shown(world, made, world.broken(made, watch), watch, why, chosen, overload)
        shown.write(out, {}, draw_plan)
    shown.tell(context, out, as_json=as_json)


@plan.command("places")
@MEMBERSHIP
@click.argument("topology")
@click.argument("hosts", required=False, type=PATH)
@click.option(
    "--nodes",
    multiple=True,
    metavar="N|NAMES|FILE",
    callback=nodes_of,
    help="At most so many nodes, n1, n2, …, or these: fra,tok; or a file of the hosts that they may stand on, rows of "
    "host, or of host,EVENTS_PER_S for what a node there may carry; repeatable.  [default: the best number, any host]",
)
@CAPACITY
@RATES
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
@ORDERING
@OUT
@JSON
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
    with progress() as (show, advance):
        watch = Stopwatch(show)
        world = read_world(membership, watch, advance, order=ordering, rates=rates)
        with watch.stage("topology", "reading the topology"):
            network = topology_of(topology)
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
        broken = world.broken(placed.plan, watch)
        shown = Shown(world, placed.plan, broken, watch, why, chosen, placed.overload)

        def draw(figures: PlanFigures, picture: Path) -> None:
            draw_plan(figures, picture) if compared is None else draw_frontier(compared, picture)

        shown.write(out, placed.host_of, draw)
    if compared is not None and not as_json:
        tell_frontier(console(), compared)
    shown.tell(context, out, as_json=as_json)


@plan.command("check")
@click.argument("file", metavar="PLAN", type=PATH)
@MEMBERSHIP
@click.argument("topology", required=False)
@click.argument("hosts", required=False, type=PATH)
@CAPACITY
@RATES
@ORDERING
@JSON
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

    with progress() as (show, advance):
        watch = Stopwatch(show)
        made, host_of = plan_of(file)
        order = Order(ordering.ordering or made.ordering, ordering.overlaps)
        world = read_world(membership, watch, advance, order=order, rates=rates)
        at_one_end = {atom.id for atom in made.atoms if len({made.egresses.get(each) for each in atom.regions}) == 1}
        atoms = tuple(atom for atom in made.atoms if atom.id not in at_one_end)
        made = replace(made, ordering=world.ordering, atoms=atoms)
        why: tuple[str, ...] = world.notes
        chosen: dict[str, Any] = {"why": why}
        if lacking := [region for region in world.asked.regions if region not in made.paths]:
            raise InvalidInput(f"{file}: region {lacking[0]!r} of {shown_name(membership)} is not in the plan")
        if topology is not None:
            with watch.stage("topology", "reading the topology"):
                network = topology_of(topology)
                task = world.task(network, hosts, capacity)
            placed = task.of_plan(made, host_of)
            why = (*network.notes, *placed.why()[1:], *world.notes)
            chosen = {"why": why, "placement": placed.as_dict()}
        broken = world.broken(made, watch)
        figures = world.figures(made, broken)
        busiest = max(figures.load_of_node.values(), default=0.0)
        limit = figures.busiest_receiver if capacity == "receiver" else capacity
        overload = busiest - limit if limit is not None and busiest > limit * (1 + TOLERANCE) else 0.0
        if overload:
            said = f"The busiest node carries {busiest:,.6g} events/s, more than the {limit:,.6g} that it may."
        elif broken:
            said = "Not sound: see below."
        else:
            said = "Sound, and no node carries more than it may." if limit is not None else "Sound."
        chosen["why"] = why = (said, *why)
        shown = Shown(world, made, broken, watch, why, chosen, overload)
    shown.tell(context, (), as_json=as_json)


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
    callback=seconds_and_files,
    help="Measure the regions' events/s for so long, or take those of rows of region,rate or of a recorded session; "
    "repeatable.  [default: 5s]",
)
@CAPACITY
@click.option(
    "--topology",
    metavar="FILE[:rtt]",
    help="Plan for the least delay, with --nodes: a TOPOLOGY, see `gamecast plan`.",
)
@click.option("--nodes", type=PATH, metavar="FILE", help="With --topology: where nodes stand, rows of node,host.")
@click.option(
    "--hosts",
    type=PATH,
    metavar="FILE",
    help="With --topology: where subscribers stand, rows of subscriber,host.  [default: the host of their name]",
)
@click.option("--out", type=PATH, metavar="FILE", help="Write the plan as JSON, for --apply FILE.")
@JSON
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
        with progress() as (show, _):
            apply_reviewed(context, url, Path(str(apply)), show)
        return
    ground = None
    if topology is not None:
        if nodes is None:
            raise UsageError("--topology needs --nodes FILE, rows of node,host")
        standing = read_hosts(hosts) if hosts is not None else {}
        ground = Ground(topology_of(topology), read_hosts(nodes, of="node"), standing)
    seconds, files = rates
    wanted = Wanted(url, seconds, apply is not None, rates_of(files), capacity, ground, EFFORT, out, as_json)
    with progress() as (show, _):
        plan_running(context, wanted, show)
