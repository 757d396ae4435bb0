"""``gamecast doctor``: find what is wrong with a network, and what to do about it."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
import orjson
from rich.console import Console
from rich.text import Text

from adapters.redis.access import AccessState, LeftoverState, Refused, access, leftovers, locked_out, refused_lately
from adapters.redis.control import SOLE_NODE
from adapters.redis.examination import Examination, Finding, Level
from adapters.redis.findings import judge, under_way
from adapters.redis.networkstate import NetworkState, NodeState
from adapters.redis.survey import survey
from cli.reporting import counted, printable
from gamecast.client.networks import require_reachable
from gamecast.errors import GamecastError, UnsupportedServer
from launcher.ending import INFRASTRUCTURE

LOOK_AGAIN_S = 1.0
ANSWER_S_MAX = 2.0
"""A server that takes longer to say one thing hangs, for who waits for the doctor."""
LOOKS_MAX = 10
"""How often a network is read again if its plan changes meanwhile."""

_MARKS: Mapping[Level, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "problem": ("✗", "bold red"),
}


_LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def doctor(context: click.Context, url: str, *, as_json: bool) -> None:
    """Find what is wrong with a network, and say what to do. Nothing stays changed.

    Servers: version, eviction, memory, persistence, clock, permissions of the user. Control: a leader exists, wanted
    regions are granted, and changes of the plan finish. Nodes: reachable, with the published plan installed. Traffic:
    stalled links and regions, streams that grow without bounds. A second read, one second later, tells stalled from
    moving.

    Exit status: 0 if there is no problem (there may be warnings), 2 for wrong use, 3 if there is one, or the control
    Redis is unavailable.
    """
    findings = asyncio.run(findings_of(require_reachable(url)))
    problems = sum(finding.level == "problem" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    if as_json:
        report = {"findings": [asdict(finding) for finding in findings], "problems": problems, "warnings": warnings}
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    else:
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        verdict = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}"
        console.print(verdict)
        # What is wrong first; a reader may not scroll.
        for finding in sorted(findings, key=lambda each: -_LEVELS.index(each.level)):
            mark, style = _MARKS[finding.level]
            lines = _wrapped(f"{finding.subject}: {finding.seen}", "  ", "")
            console.print(Text(mark, style=style), Text(lines))
            if finding.advice:
                console.print(Text(_wrapped(finding.advice, "      ", "    → ")))
        console.print(verdict)
    if problems:
        context.exit(INFRASTRUCTURE)


def _wrapped(text: str, indent: str, first: str) -> str:
    """Return lines of at most 80 columns, with the mark before the first one; long words, such as URLs, stay whole."""
    room = 80 if first else 80 - len(indent)
    return textwrap.fill(
        printable(text), room, initial_indent=first, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


async def findings_of(url: str) -> list[Finding]:
    """Return the findings for the network of a control Redis."""
    try:
        first = await _look(url)
    except UnsupportedServer as error:
        return [Finding("problem", "control", str(error), "run Redis 6.2 or later there")]
    second = first
    if under_way(first):
        await asyncio.sleep(max(0.0, LOOK_AGAIN_S - first.waited_s))
        second = await _look(url, silent=[node for node in first.nodes if node.server is None])
    there = [node for node in second.nodes if node.server is not None]
    tried = await asyncio.gather(_tried(url, url, None), *(_tried(url, node.url, node.name) for node in there))
    accesses: dict[str, AccessState] = {}
    left: dict[str, LeftoverState] = {}
    out: dict[str, Sequence[tuple[str, str]]] = {}
    refused: dict[str, Sequence[Refused]] = {}
    for name, each in zip((SOLE_NODE, *(node.name for node in there)), tried, strict=True):
        if name not in accesses or each.may.refused is not None:
            accesses[name] = each.may
        if each.left is not None:
            left[name] = each.left
        # The control Redis is a node, too, of another name.
        if each.out and each.out not in out.values():
            out[name] = each.out
        if each.refused and each.refused not in refused.values():
            refused[name] = each.refused
    at_ms = time.time_ns() // 1_000_000
    return list(judge(Examination(first, second, LOOK_AGAIN_S, accesses, left, out, refused, at_ms)))


@dataclass(slots=True)
class _Tried:
    """What was tried at one server: what this user may do, who else may not, and what is left there."""

    may: AccessState
    left: LeftoverState | None = None
    out: tuple[tuple[str, str], ...] = ()
    refused: tuple[Refused, ...] = ()


async def _tried(control_url: str, url: str, node: str | None) -> _Tried:
    """Try a server; ``node``: as which node, None for the control Redis, without which nothing else is known."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            tried = _Tried(await access(url, node))
            tried.out = tuple([each async for each in locked_out(url)])
            tried.refused = await refused_lately(url)
            if node is not None:
                tried.left = await leftovers(control_url, url, node)
            return tried
    except TimeoutError:
        return _Tried(AccessState(None, f"it does not answer within {ANSWER_S_MAX:g} s"))
    except GamecastError as error:
        if node is None:
            raise
        return _Tried(AccessState(None, f"it disconnected: {error}"))


async def _look(url: str, *, silent: Collection[NodeState] = ()) -> NetworkState:
    """Return a read during which no newer plan was published, or else the last read."""
    looks = 0
    while (
        state := await survey(url, regions=True, answer_s_max=ANSWER_S_MAX, silent=silent)
    ).has_moved and looks < LOOKS_MAX:
        looks += 1
    return state
