"""``gamecast lab simulate``: run the core's state machines in a simulated world."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import Any, TypeVar

import click
import orjson
from rich.console import Console

from cli.commands import Group
from laboratory.commands.progress import tracked
from laboratory.commands.protocols import protocols
from laboratory.commands.simulate_paper import paper
from laboratory.commands.simulate_placement import placement
from laboratory.commands.simulate_scale import scale
from laboratory.commands.simulate_trees import trees
from laboratory.commands.simulate_wan import wan
from laboratory.processes.pool import mapped
from laboratory.simulation.engine import Weather
from laboratory.simulation.faultrun import ORDERINGS, Outcome, Scenario, run_faults
from laboratory.simulation.sessions import run_sessions, worlds
from laboratory.simulation.shipped import ShippedWorld, run_shipped
from laboratory.simulation.shrinking import shrink
from launcher.ending import BROKEN

Seen = TypeVar("Seen")

FAILURES_SHOWN = 5
ENOUGH_WORLDS = 300
"""In so many worlds, all that may happen does."""
RARER = frozenset(("refused_resumes",))
"""What takes longer absences than worlds have."""
CHUNK = 20


@click.group(cls=Group)
def simulate() -> None:
    """Run the protocol's own state machines in a simulated world.

    There is no Redis and no socket. The simulation controls time, chance, the network and its faults. So a seed always
    gives the same run, and a failure can be replayed.
    """


@simulate.command("faults")
@click.option("--seeds", default=300, show_default=True, type=click.IntRange(1), help="How many worlds to run.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Run only this seed, to replay a failure.")
@click.option("--scenario", help="Changes to the seed's scenario, as JSON, as a failure prints them.")
@click.option("--ordering", type=click.Choice(ORDERINGS), help="Use only this ordering.  [default: all, in turn]")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def faults_command(
    seeds: int, first: int, seed: int | None, scenario: str | None, ordering: str | None, jobs: int, as_json: bool
) -> None:
    """Simulate faults in small networks, and check what their servers delivered.

    Each seed is a world. Its servers publish, join and leave. Nodes, relays and managers crash, pause and are cut off
    from each other. Nodes restart with an older state, or forget publishers. Calls are lost, late or executed twice.
    Then the faults end, and the network must become quiet. The checkers do not use stamps. They check order,
    acyclicity, causality, completeness and durability, and that gaps are announced exactly where events are missing.

    Exit status: 0, or 1 if a promise was broken, 2 for wrong use. For a broken promise it prints the smallest scenario
    that it found, with the command that replays it.
    """
    numbers = [seed] if seed is not None else list(range(first, first + seeds))
    scenarios = [_scenario(number, ordering, scenario) for number in numbers]
    began_s, began_cpu_s = time.monotonic(), os.times()
    outcomes = list(tracked(mapped(run_faults, scenarios, jobs=jobs, chunk=CHUNK), len(scenarios), "worlds run"))
    seconds = time.monotonic() - began_s
    after = os.times()
    cpu_s = sum(after[:4]) - sum(began_cpu_s[:4])
    failures = [shrink(outcome, run_faults) for outcome in [o for o in outcomes if o.violations][:FAILURES_SHOWN]]
    totals = {
        what: sum(getattr(outcome, what) for outcome in outcomes)
        for what in ("steps", "published", "deliveries", "gaps", "epochs", "sweeps", "joins", "faults")
    }
    summary = {
        "seeds": len(outcomes),
        "failed": sum(1 for outcome in outcomes if outcome.violations),
        "orderings": dict(Counter(outcome.scenario.ordering for outcome in outcomes)),
        **totals,
        "seconds": round(seconds, 2),
        "seeds_per_s_and_core": round(len(outcomes) / max(cpu_s, 1e-9), 1),
        "failures": [
            {"scenario": asdict(f.scenario), "violations": f.violations, "replay": _replay(f)} for f in failures
        ],
    }
    if as_json:
        click.echo(orjson.dumps(summary))
    else:
        _tell(summary)
    if summary["failed"]:
        click.get_current_context().exit(BROKEN)


@simulate.command("sessions")
@click.option(
    "--worlds", "count", default=100, show_default=True, type=click.IntRange(1), help="How many worlds to run."
)
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 16), help="Nodes in each world.")
@click.option("--causal", is_flag=True, help="Use causal order; publishers subscribe, too.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def sessions_command(count: int, first: int, nodes: int, causal: bool, jobs: int, as_json: bool) -> None:
    """Run sessions of every kind side by side, and check them together.

    This runs the library itself, not a simulation, over networks in memory. In each world, some servers are live, some
    replay all events, and some disconnect and resume from their positions. They join and leave regions meanwhile, under
    traffic. Their orders must not contradict each other, neither in pairs nor all together. No event may be delivered
    twice. A server that asked for all events must get all of them.

    On several nodes, the history of regions has no common order if no subscriber had them together. A replay of such
    regions is refused, and the server that asked for it ends.

    Exit status: 0, or 1 if a promise was broken, 2 for wrong use.
    """
    drawn = worlds(first, count, nodes=nodes, ordering="causal" if causal else "acyclic")
    seen = list(tracked(mapped(run_sessions, drawn, jobs=jobs, chunk=CHUNK), len(drawn), "worlds run"))
    failed = [each for each in seen if each.wrong]
    totals = {
        what: sum(getattr(each, what) for each in seen)
        for what in ("sessions", "published", "deliveries", "replays", "returns", "refusals")
    }
    shown = failed[:FAILURES_SHOWN]
    failures = [{"seed": each.world.seed, "violations": list(each.wrong)} for each in shown]
    if as_json:
        click.echo(orjson.dumps({"worlds": len(seen), "failed": len(failed), **totals, "failures": failures}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(
            f"{len(seen):,} worlds: {totals['sessions']:,} servers, {totals['replays']:,} replays, "
            f"{totals['returns']:,} returns, {totals['refusals']:,} of them refused, "
            f"{totals['published']:,} events published, "
            f"{totals['deliveries']:,} delivered"
        )
        console.print("[green]one order[/green]" if not failed else f"[red]{len(failed):,} broke a promise[/red]")
        for each in shown:
            console.print(f"  seed {each.world.seed}: {each.wrong[0]}", markup=False)
    if failed:
        click.get_current_context().exit(BROKEN)


@simulate.command("servers")
@click.option(
    "--worlds", "count", default=100, show_default=True, type=click.IntRange(1), help="How many worlds to run."
)
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Run only this seed, to replay a failure.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def servers_command(count: int, first: int, seed: int | None, jobs: int, as_json: bool) -> None:
    """Run whole game servers in virtual time, through bad weather, and judge all that they saw.

    This is the library as it ships: connections, leaders and relays with their timeouts and heartbeats, over a network
    in memory. Servers publish to one region or several, with keys and conditions; they take states, own entities and
    hand them over, are present, send updates, and resume. Processes are killed and stopped, nodes and the control store
    go down, ends are cut off, requests are lost or late. The game servers and the judges are those of `gamecast chaos`.
    A second of a world takes a few milliseconds, and a seed has always the same course.

    Exit status: 0, or 1 if a promise was broken, or if something that worlds should reach was never reached in 300
    worlds or more; 2 for wrong use.
    """
    numbers = [seed] if seed is not None else range(first, first + count)
    drawn = [ShippedWorld.of(number) for number in numbers]
    began_s = time.monotonic()
    seen = list(
        tracked(mapped(run_shipped, drawn, jobs=jobs, chunk=CHUNK, is_repeatable=True), len(drawn), "worlds run")
    )
    failed = [each for each in seen if each.violations]
    judged = [each.judgement for each in seen if each.judgement is not None]
    sometimes = sum((Counter(dict(each.sometimes)) for each in judged), Counter[str]())
    reached = {what: sometimes[what] for each in judged[:1] for what in each.sometimes}
    missed = [what for what, times in reached.items() if not times and what not in RARER]
    never = missed if len(seen) >= ENOUGH_WORLDS else []
    summary = {
        "worlds": len(seen),
        "failed": len(failed),
        "published": sum(each.published for each in judged),
        "delivered": sum(each.delivered for each in judged),
        "faults": dict(sorted(sum((Counter(dict(each.faults)) for each in seen), Counter[str]()).items())),
        "sometimes": reached,
        "never": never,
        "virtual_s": round(sum(each.virtual_s for each in seen)),
        "seconds": round(time.monotonic() - began_s, 1),
        "failures": [
            {"seed": each.world.seed, "violations": list(each.violations)} for each in failed[:FAILURES_SHOWN]
        ],
    }
    if as_json:
        click.echo(orjson.dumps(summary))
    else:
        _tell_servers(summary)
    if failed or never:
        click.get_current_context().exit(BROKEN)


def _tell_servers(summary: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{summary['worlds']:,} worlds, {summary['virtual_s']:,} s by their clocks, in {summary['seconds']:,} s: "
        f"{summary['published']:,} events published, {summary['delivered']:,} delivered"
    )
    for title, counts in (("faults", summary["faults"]), ("sometimes", summary["sometimes"])):
        told = ", ".join(f"{what.replace('_', ' ')} {times:,}" for what, times in counts.items())
        console.print(f"{title}: {told or 'none'}")
    for what in summary["never"]:
        console.print(f"[red]never reached: {what.replace('_', ' ')}[/red]")
    console.print("[green]no promise was broken[/green]" if not summary["failed"] else "[red]broken promises:[/red]")
    for failure in summary["failures"]:
        console.print(f"  seed {failure['seed']}: {failure['violations'][0]}", markup=False)
        console.print(f"    again: gamecast lab simulate servers --seed {failure['seed']}", markup=False)


simulate.add_command(paper)
simulate.add_command(placement)
simulate.add_command(protocols)
simulate.add_command(scale)
simulate.add_command(trees)
simulate.add_command(wan)


def _scenario(seed: int, ordering: str | None, changes: str | None) -> Scenario:
    scenario = Scenario.of(seed)
    if ordering is not None:
        scenario = replace(scenario, ordering=ordering)  # type: ignore[arg-type]
    if changes is not None:
        try:
            wanted: dict[str, Any] = orjson.loads(changes)
            if "weather" in wanted:
                wanted["weather"] = replace(Weather(), **wanted["weather"])
            scenario = replace(scenario, **wanted)
        except (ValueError, TypeError) as error:
            raise click.UsageError(f"--scenario does not describe a scenario: {error}") from error
    return scenario


def _replay(outcome: Outcome) -> str:
    """Return the command that replays a scenario, with its differences from the seed's own scenario."""
    drawn, shrunk = asdict(Scenario.of(outcome.scenario.seed)), asdict(outcome.scenario)
    changes = {name: value for name, value in shrunk.items() if value != drawn[name]}
    command = f"gamecast lab simulate faults --seed {outcome.scenario.seed}"
    return command + (f" --scenario '{orjson.dumps(changes).decode()}'" if changes else "")


def _tell(summary: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{summary['seeds']:,} worlds: {summary['published']:,} events published, {summary['deliveries']:,} delivered, "
        f"{summary['gaps']:,} gaps announced, "
        f"{summary['joins']:,} joins, {summary['epochs']:,} epochs, {summary['sweeps']:,} sweeps, "
        f"{summary['faults']:,} crashes, pauses and cuts; "
        f"{summary['seconds']:,} s, {summary['seeds_per_s_and_core']} worlds/s a core"
    )
    if not summary["failed"]:
        console.print("[green]every promise held[/green]")
        return
    console.print(f"[red]{summary['failed']:,} worlds broke a promise[/red]")
    for failure in summary["failures"]:
        console.print()
        for what in failure["violations"][:3]:
            console.print(f"  {what}", markup=False)
        console.print(f"  replay: {failure['replay']}", markup=False)
