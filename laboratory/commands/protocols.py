"""``gamecast lab simulate protocols``: check the declared guarantees of the classic protocols in adversarial worlds."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from classic.protocols.catalogue import PROTOCOLS, find_protocol
from classic.protocols.process import Guarantee
from laboratory.commands.progress import tracked
from laboratory.processes.pool import mapped
from laboratory.protocols.run import judge_protocol, nearest_wrong_claim, refute
from launcher.ending import BROKEN

CHUNK = 100
REFUTED_WITHIN_SEEDS = 200


@click.command("protocols")
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(1), help="Worlds for each protocol.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Run only this seed, to replay a failure.")
@click.option(
    "--protocol", "names", multiple=True, type=click.Choice(list(PROTOCOLS)), help="Run only this one; repeatable."
)
@click.option(
    "--claim",
    type=click.Choice([guarantee.value for guarantee in Guarantee]),
    help="Check this guarantee, even if the protocol does not declare it.",
)
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def protocols(
    seeds: int, first: int, seed: int | None, names: tuple[str, ...], claim: str | None, jobs: int, as_json: bool
) -> None:
    """Check the declared guarantees of the classic ordering protocols.

    Each seed is a world that is as bad as a protocol's declared assumptions allow: slow and overtaking packets, groups
    that overlap, senders from outside, crashes in the middle of a multicast. Processes join, leave and come back. Each
    declared guarantee has its own checker. Then each protocol is checked for the next guarantee that it does not
    declare. 200 seeds must refute it: a check that never fails proves nothing.

    Exit status: 0, or 1 if a declared guarantee was broken or an undeclared one was not refuted, 2 for wrong use.
    """
    numbers = [seed] if seed is not None else list(range(first, first + seeds))
    chosen = list(names) or list(PROTOCOLS)
    chunks = [(name, numbers[at : at + CHUNK]) for name in chosen for at in range(0, len(numbers), CHUNK)]
    began_s = time.monotonic()
    reports = {name: _empty(name, claim) for name in chosen}
    for name, part in tracked(
        mapped(partial(_judge_chunk, claim=claim), chunks, jobs=jobs), len(chunks), "batches of worlds checked"
    ):
        for key, value in part.items():
            reports[name][key] += value
    if claim is None and seed is None:
        for name in chosen:
            reports[name]["refuted"] = _refutation(name)
    failed = sum(_is_failure(report) for report in reports.values())
    summary = {"seeds": len(numbers), "seconds": round(time.monotonic() - began_s, 1), "failed": failed}
    if as_json:
        click.echo(orjson.dumps({**summary, "protocols": reports}))
    else:
        _tell(summary, reports)
    if failed:
        click.get_current_context().exit(BROKEN)


Part = dict[str, Any]


def _empty(name: str, claim: str | None) -> dict[str, Any]:
    protocol = find_protocol(name)
    return {
        "guarantees": [claim] if claim else sorted(protocol.guarantees),
        "assumes": sorted(protocol.assumes),
        **_nothing(),
    }


def _nothing() -> Part:
    return {"messages": 0, "deliveries": 0, "packets": 0, "crashes": 0, "violations": []}


def _is_failure(report: dict[str, Any]) -> bool:
    refuted = report.get("refuted")
    return bool(report["violations"]) or (refuted is not None and refuted["seed"] is None)


def _judge_chunk(chunk: tuple[str, list[int]], *, claim: str | None) -> tuple[str, Part]:
    name, numbers = chunk
    protocol = find_protocol(name)
    part = _nothing()
    for number in numbers:
        outcome = judge_protocol(protocol, number, guarantees=[Guarantee(claim)] if claim else None)
        part["messages"] += len(outcome.record.messages)
        part["deliveries"] += sum(map(len, outcome.record.deliveries().values()))
        part["packets"] += outcome.packets
        part["crashes"] += len(outcome.record.faulty)
        if outcome.violations:
            worst = outcome.violations[0]
            replay = f"gamecast lab simulate protocols --protocol {name} --seed {number}"
            replay += f" --claim '{claim}'" if claim else ""
            violation = {"seed": number, "guarantee": worst.guarantee, "what": worst.text, "replay": replay}
            part["violations"].append(violation)
    return name, part


def _refutation(name: str) -> dict[str, Any] | None:
    protocol = find_protocol(name)
    claim = nearest_wrong_claim(protocol)
    if claim is None:
        return None
    number, found = next(refute(protocol, claim, seeds=REFUTED_WITHIN_SEEDS), (None, None))
    return {"claim": claim, "seed": number, "what": found.text if found else None}


def _tell(summary: dict[str, Any], reports: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("protocol", "messages", "packets", "crashed", "broken", "refuted")
    table.columns[0].no_wrap = table.columns[5].no_wrap = True
    for column in table.columns[1:5]:
        column.justify = "right"
    for name, report in reports.items():
        counts = [f"{report[key]:,}" for key in ("messages", "packets", "crashes")]
        broken = len(report["violations"])
        table.add_row(name, *counts, f"[red]{broken}[/red]" if broken else "[green]0[/green]", _refuted(report))
    console.print(table)
    console.print(f"{summary['seeds']:,} worlds for each of {len(reports)} protocols, {summary['seconds']:,} s")
    for name, report in reports.items():
        for violation in report["violations"][:3]:
            console.print(f"{name}: {violation['guarantee']}: {violation['what']}", markup=False)
            console.print(f"  replay: {violation['replay']}", markup=False)
    if not summary["failed"]:
        console.print("[green]every declared guarantee held[/green]")


def _refuted(report: dict[str, Any]) -> str:
    refuted = report.get("refuted")
    if refuted is None:
        return ""
    return f"{refuted['claim']}: " + ("[red]no[/red]" if refuted["seed"] is None else f"seed {refuted['seed']}")
