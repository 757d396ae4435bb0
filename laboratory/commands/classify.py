"""`gamecast lab classify`: classify a recorded execution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from classic.executions.classes import Classes, Overtaken
from classic.executions.classes import classify as classes_of
from classic.executions.diagram import draw
from classic.executions.guarantees import Violation, violations
from classic.executions.record import Kind, Record
from classic.executions.timeliness import late, latencies
from classic.protocols.process import Guarantee
from cli.outfiles import writing
from gamecast.errors import InvalidInput
from laboratory.protocols.executionlog import read_execution
from launcher.ending import BROKEN

JUDGED: list[Guarantee] = [
    guarantee
    for guarantee in Guarantee
    if guarantee not in (Guarantee.GAPS, Guarantee.SYNCHRONOUS, Guarantee.VIEWS, Guarantee.VIEW_SYNCHRONY)
]
"""Properties that logs of sends and receives can show; the absence of a crown is reported with the classes."""
NAMED_MAX = 12


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="LOG...", type=click.Path(path_type=Path))
@click.option("--delta", "delta_ms", type=float, metavar="MS", help="Judge Δ-timeliness with this bound, too.")
@click.option(
    "--expect",
    multiple=True,
    metavar="WHAT",
    type=click.Choice(["rsc", "co", *(guarantee.value for guarantee in JUDGED)]),
    help="Exit with status 1 unless this holds; repeat it.",
)
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE", help="Draw a space–time diagram (SVG).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def classify(
    context: click.Context,
    files: Sequence[Path],
    *,
    delta_ms: float | None,
    expect: Sequence[str],
    picture: Path | None,
    as_json: bool,
) -> None:
    """Say what kind of execution logs hold: RSC, causal, FIFO.

    LOG is JSON Lines, gzip-compressed or not, one event a line, in the order of each process: {"process": "p1",
    "event": "send", "message": "m1", "to": ["p2"]} and {"process": "p2", "event": "receive", "message": "m1"}. A
    process that stops has the line {"process": "p3", "event": "crash"}. Times are optional: at_ms by a common clock,
    local_ms by the clock of the process.

    RSC means that the execution could have run on synchronous communication. Then a schedule that shows it is printed;
    otherwise a crown, a circle of messages that makes it impossible.

    Exit status: 0, or 1 if a property named by --expect does not hold, 2 for malformed or empty input.
    """
    record = read_execution(files)
    if not record.names:
        raise InvalidInput(f"no events in {', '.join(map(str, files))}: there is nothing to classify")
    classes = classes_of(record)
    found = list(violations(record, JUDGED))
    broken = {guarantee: next((v for v in found if v.guarantee is guarantee), None) for guarantee in JUDGED}
    report = _report(record, classes, broken, delta_ms)
    if picture is not None:
        drawn = draw(record, marked=_marked(classes, found), title=f"class {classes.smallest}")
        with writing(f"--picture {picture}"):
            picture.write_text(drawn, encoding="utf-8")
    if as_json:
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    else:
        _tell(report, classes)
    holds = {"rsc": not classes.crown, "co": classes.ei} | {g.value: broken[g] is None for g in JUDGED}
    if not all(holds[what] for what in expect):
        context.exit(BROKEN)


def _report(
    record: Record, classes: Classes, broken: dict[Guarantee, Violation | None], delta_ms: float | None
) -> dict[str, Any]:
    return {
        "processes": list(record.names),
        "crashed": sorted(record.faulty),
        "messages": len(record.messages),
        "receives": sum(1 for event in record.events if event.kind is Kind.RECEIVE),
        "class": classes.smallest,
        "fifo": _example(classes.fifo),
        "causal": _example(classes.causal),
        "characterisations": {"co": classes.co, "mo": classes.mo, "ei": classes.ei},
        "crown": list(classes.crown) or None,
        "extension": [f"{event.kind} {event.message} {event.process}" for event in classes.extension] or None,
        "guarantees": {g.value: violation.text if violation else None for g, violation in broken.items()},
        "timeliness": {
            name: _timeliness(record, local=local, delta_ms=delta_ms)
            for name, local in (("real_time", False), ("local", True))
        },
    }


def _example(overtaken: Overtaken | None) -> dict[str, str] | None:
    return {"message": overtaken.message, "by": overtaken.by, "at": overtaken.process} if overtaken else None


def _timeliness(record: Record, *, local: bool, delta_ms: float | None) -> dict[str, Any] | None:
    known = list(latencies(record, local=local))
    if not known:
        return None
    worst = max(known, key=lambda latency: latency.ms)
    said: dict[str, Any] = {"max_ms": worst.ms, "message": worst.message, "process": worst.process}
    if delta_ms is not None:
        for name, uniform in (("late", False), ("uniform_late", True)):
            said[name] = len(list(late(record, delta_ms, local=local, uniform=uniform)))
    return said


def _marked(classes: Classes, found: Sequence[Violation]) -> set[str]:
    """Return the messages that break something; in a causal execution, the crown that makes RSC impossible."""
    marked = {message for v in found for message in v.messages}
    for overtaken in (classes.fifo, classes.causal):
        if overtaken:
            marked |= {overtaken.message, overtaken.by}
    return marked or set(classes.crown)


def _tell(report: dict[str, Any], classes: Classes) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(
        f"{report['messages']:,} messages, {report['receives']:,} receives, {len(report['processes'])} processes"
        + (f", of which crashed: {', '.join(report['crashed'])}" if report["crashed"] else "")
    )
    console.print(f"class: {report['class']}   (RSC is within CO, within FIFO, within A)")
    for name, overtaken in (("FIFO", classes.fifo), ("CO", classes.causal)):
        if overtaken:
            console.print(f"not {name}: {overtaken.message} is overtaken by {overtaken.by} at {overtaken.process}")
    if classes.crown:
        console.print(f"not RSC: a crown of size {len(classes.crown)}: {_some(classes.crown)}")
    else:
        console.print(f"a schedule with every message at once: {_some(list(dict.fromkeys(_messages(classes))))}")
    for guarantee, text in report["guarantees"].items():
        console.print(f"{guarantee}: {'holds' if text is None else 'broken: ' + text}")
    for name, said in report["timeliness"].items():
        if said:
            late_ones = f"; {said['late']:,} later than Δ" if "late" in said else ""
            where = f"{said['message']} at {said['process']}"
            console.print(f"{name.replace('_', '-')} latency: at most {said['max_ms']:g} ms ({where}){late_ones}")


def _messages(classes: Classes) -> list[str]:
    return [event.message for event in classes.extension]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else "")
