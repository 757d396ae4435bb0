"""`gamecast lab step`: run a classic protocol, message by message."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.text import Text

from classic.executions.classes import classify
from classic.executions.diagram import draw
from classic.protocols.catalogue import PROTOCOLS, find_protocol
from cli.outfiles import writing
from laboratory.protocols.script import Played, play
from launcher.ending import BROKEN
from placement.textlines import foreign_encoding
from sequencing.errors import InvalidInput


@click.command("step")
@click.argument("protocol", type=click.Choice(list(PROTOCOLS)), metavar="PROTOCOL")
@click.argument("scenario", type=click.Path(path_type=Path), metavar="SCENARIO")
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE", help="Draw a space–time diagram (SVG).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def step(context: click.Context, protocol: str, scenario: Path, *, picture: Path | None, as_json: bool) -> None:
    """Replay a scenario script, message by message. A protocol of the catalogue receives the messages.

    A script names the processes and groups. After a line --- it has the steps: "a publishes m", "b receives from a", "c
    suspects a", "the rest is received". The output shows each step and the actions of each process. At the end come
    each process's deliveries, the class of the execution, and the guarantees that the protocol broke. You can run the
    same script under different protocols.

    Exit status: 0, or 1 if the protocol broke one of its guarantees, 2 for a script that cannot be played.
    """
    try:
        script = scenario.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{scenario}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{scenario}: {foreign_encoding(error.object)}") from error
    chosen = find_protocol(protocol)
    played = play(chosen, script, file=str(scenario))
    if picture is not None:
        marked = {message for violation in played.violations for message in violation.messages}
        with writing(f"--picture {picture}"):
            picture.write_text(draw(played.record, marked=marked, title=chosen.title), encoding="utf-8")
    if as_json:
        report = {
            "protocol": protocol,
            "source": chosen.source,
            "guarantees": sorted(chosen.guarantees),
            "assumes": sorted(chosen.assumes),
            "deliveries": played.record.deliveries(),
            "class": classify(played.record).smallest,
            "violations": [{"guarantee": v.guarantee, "what": v.text} for v in played.violations],
        }
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    else:
        _tell(chosen.title, chosen.source, played)
    if played.violations:
        context.exit(BROKEN)


def _tell(title: str, source: str, played: Played) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text(f"{title} ({source})", style="bold"))
    for line in played.text.splitlines():
        style = "red" if line.startswith("wrong:") else "green" if " delivers " in line else ""
        console.print(Text(line, style=style))
