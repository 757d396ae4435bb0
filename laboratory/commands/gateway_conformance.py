"""``gamecast gateway-conformance``: judge a client of the gateway, in any language."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gamecast.errors import UsageError
from launcher.ending import BROKEN
from sequencing.extras import require

if TYPE_CHECKING:
    from laboratory.conformance.playing import Outcome, Scenarios


@click.command("gateway-conformance")
@click.argument("command", nargs=-1, metavar="-- CLIENT COMMAND...", type=click.UNPROCESSED)
@click.option("--list", "is_list", is_flag=True, help="Print the scenarios, and start nothing.")
@click.option("--only", multiple=True, metavar="SCENARIO", help="Play this scenario only; repeat it for more.")
@click.option("--jobs", default=4, show_default=True, type=click.IntRange(1, 64), help="Scenarios played at a time.")
@click.option(
    "--timeout-s",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="How long to wait for each thing that the client must do, on an idle machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def gateway_conformance(
    context: click.Context,
    command: Sequence[str],
    *,
    is_list: bool,
    only: Sequence[str],
    jobs: int,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Judge a client of the gateway, in any language.

    The judgement says whether the client loses, repeats or reorders anything, and whether it keeps to the protocol.
    The command plays a gateway on this machine that does all that a gateway may do. It answers late, drops connections,
    refuses, sends gaps and junk, and closes with every code. Each scenario starts the client's program once.

    You write that program, around your client, in about 50 lines. It connects to GAMECAST_URL, with the token
    GAMECAST_TOKEN and the name GAMECAST_NAME. It reads commands from standard input and writes what the client reports
    to standard output, in lines of JSON:

    \b
      {"ready": "my client 1.0"}
      {"do": "subscribe", "id": 1, "regions": ["forest"]}    →  {"done": 1}
                                                                {"event": {"region": "forest", "position": …}}
      {"do": "publish", "id": 2, "region": "forest", "payload": 1}
                                                             →  {"receipt": 2, "position": "3-121"}
      {"do": "close", "id": 3}                               →  the program ends

    docs/conformance.md describes all lines, and clients/javascript/conformance.mjs is an example. For a call that your
    client does not have, answer {"unsupported": ID}: the scenario is skipped.

    Exit status: 0 if all scenarios passed or were skipped, 1 if one failed, 2 for wrong use, 3 if the client's program
    cannot be started.

    \b
    Examples:
      gamecast gateway-conformance -- node clients/javascript/conformance.mjs
      gamecast gateway-conformance --only drops --only retry -- python my_client.py
    """
    require("gateway", "the conformance kit")
    from laboratory.conformance.catalogue import SCENARIOS
    from laboratory.conformance.playing import Scenarios, play_all

    if unknown := [name for name in only if name not in SCENARIOS]:
        raise UsageError(f"there is no scenario {unknown[0]!r}: --list prints their names")
    scenarios = Scenarios({name: scenario for name, scenario in SCENARIOS.items() if not only or name in only})
    if is_list:
        _list(scenarios, as_json=as_json)
        return
    if not command:
        raise UsageError("name the client's program: gamecast gateway-conformance -- CLIENT COMMAND…")
    progress = Console(stderr=True)

    def tell(outcome: Outcome) -> None:
        if progress.is_terminal:
            progress.print(f"{outcome.as_dict()['outcome']}: {outcome.name}", style="dim", markup=False)

    outcomes = asyncio.run(play_all(scenarios, command, jobs=jobs, timeout_s=timeout_s, on_outcome=tell))
    if as_json:
        click.echo(orjson.dumps(_document(outcomes), option=orjson.OPT_INDENT_2))
    else:
        _print(outcomes)
    if any(outcome.violations for outcome in outcomes):
        context.exit(BROKEN)


def _list(scenarios: Scenarios, *, as_json: bool) -> None:
    if as_json:
        listed = [{"name": name, "title": scenario.title} for name, scenario in scenarios.items()]
        click.echo(orjson.dumps({"scenarios": listed}, option=orjson.OPT_INDENT_2))
        return
    width = max(map(len, scenarios))
    for name, scenario in scenarios.items():
        click.echo(f"{name:<{width}}  {scenario.title}")


def _document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {**_counts(outcomes), "scenarios": [outcome.as_dict() for outcome in outcomes]}


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    skipped, failed = sum(each.skipped for each in outcomes), sum(bool(each.violations) for each in outcomes)
    return {"passed": len(outcomes) - skipped - failed, "failed": failed, "skipped": skipped}


def _print(outcomes: Sequence[Outcome]) -> None:
    console = Console(highlight=False, emoji=False)
    table = Table("scenario", "", "s")
    table.columns[2].justify = "right"
    for outcome in outcomes:
        styles = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
        word = str(outcome.as_dict()["outcome"])
        table.add_row(Text(outcome.name), Text(word, style=styles[word]), f"{outcome.seconds:.1f}")
    console.print(table)
    for outcome in outcomes:
        if outcome.violations:
            console.print(Text(f"{outcome.name}: {outcome.title}", style="bold red"), soft_wrap=True)
        for violation in outcome.violations:
            console.print(Text(f"  {violation.rule}: {violation.text}"), soft_wrap=True)
    counts = _counts(outcomes)
    console.print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
