"""``gamecast bench all``: measure every figure, and compare it with its goal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import orjson

from gamecast.errors import ProcessFailed
from laboratory.commands.bench_options import json_option, named, show, trace_option
from launcher.ending import BROKEN, DONE, INTERRUPTED

TRIALS = ("--runs", "1", "--events", "2000", "--seconds", "0.3")
_IN_WORLDS = ("--runs", "3", "--events", "40000")
_SIZES = {"ring": "8,32", "dense": "8", "trace": "8,30"}
PARTS: dict[str, tuple[str, ...]] = {
    **{
        f"{world}-{rate}": ("--world", world, "--sizes", _SIZES[world], "--rate", str(rate), *_IN_WORLDS)
        for world, rates in (("ring", (500, 1500)), ("dense", (500, 1500, 3000, 5000)), ("trace", (500, 3000)))
        for rate in rates
    },
    "hot": ("--world", "hot", "--sizes", "300,1000", "--rate", "10", "--events", "300", "--window", "20"),
    "knee": ("knee",),
    "gateway": ("gateway", "--clients", "1000", "--seconds", "20"),
    "paths": ("paths",),
    "recording": ("recording",),
    "joins": ("joins",),
    "memory": ("memory",),
    "embedding": ("embedding",),
}
QUICKLY: dict[str, tuple[str, ...]] = {
    "hot": (*TRIALS, "--against", "pubsub", "--sizes", "20"),
    "knee": ("--against", "pubsub", "--world", "ring", "--tick", "20", "--seconds", "0.2", "--p99-ms", "1"),
    "gateway": ("--clients", "10", "--seconds", "2"),
    "paths": (*TRIALS, "--longest", "2"),
    "recording": TRIALS,
    "joins": ("--regions", "60", "--servers", "6", "--turns", "1"),
    "memory": ("--regions", "60", "--subscribers", "6", "--events", "100"),
    "embedding": ("--runs", "1"),
}


def _parts(_context: click.Context, _option: click.Parameter, names: str) -> tuple[str, ...]:
    return named(names, "part", PARTS)


@click.command("all")
@click.option(
    "--parts", default=",".join(PARTS), show_default=True, callback=_parts, help="What to measure, one after the other."
)
@trace_option
@click.option("--quick", is_flag=True, help="Run for a minute, to see that all works: the figures mean nothing.")
@json_option
@click.pass_context
def bench_all(
    context: click.Context, *, parts: tuple[str, ...], trace: Path | None, quick: bool, as_json: bool
) -> None:
    """Measure everything, and print each figure beside its goal.

    Runs `gamecast bench` with all peers around a ring, in a dense world, in the world of a match, at several rates, and
    with one region that all have. Then it runs `knee`, `gateway`, `paths`, `recording`, `joins`, `memory` and
    `embedding`, each in its own process. All take some 90 minutes, on a machine that should have nothing else to do.
    --json also has the output of each command.

    Exit status: 0, or 1 if gamecast lost, repeated or reordered anything, 2 for wrong use, 3 if a part could not be
    measured. A goal that is not reached is only reported.
    """
    from laboratory.bench.goals import goals_of, report

    measured: dict[str, Any] = {}
    failed: list[str] = []
    is_broken = False
    for part in parts:
        click.echo(f"measuring: {part}", err=True)
        quickly = QUICKLY.get(part, TRIALS) if quick else ()
        played = ("--trace", str(trace)) if trace is not None and part.startswith("trace") else ()
        command = ("bench", *PARTS[part], *played, "--json", *quickly)
        run = subprocess.run([sys.executable, "-m", "gamecast", *command], stdout=subprocess.PIPE, check=False)
        if run.returncode == INTERRUPTED:
            raise KeyboardInterrupt
        if run.returncode not in (DONE, BROKEN) or not run.stdout:
            failed.append(f"`gamecast {' '.join(command)}` exited with status {run.returncode}, without figures")
            continue
        measured[part] = orjson.loads(run.stdout)
        is_broken |= run.returncode == BROKEN
    goals = goals_of(measured)
    document = {"goals": [goal.as_dict() for goal in goals], "parts": measured}
    show(document, lambda _: report(goals), as_json=as_json)
    if is_broken:
        context.exit(BROKEN)
    if failed:
        raise ProcessFailed("; ".join(failed))
