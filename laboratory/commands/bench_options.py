"""Options of a trial, and its progress, which the bench commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from laboratory.bench.peers.registry import BY_NAME_ONLY, OTHERS
from laboratory.bench.workload import ASYNCIO, FAN_OUT, UVLOOP
from launcher.ending import BROKEN

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def number(
    name: str, default: float, least: float, most: float | None, meaning: str, into: str | None = None
) -> _Decorator:
    """Return an option for a number from ``least`` to ``most``, whole if the default is. ``into``: its parameter."""
    whole = click.IntRange(int(least), None if most is None else int(most))
    kind = whole if isinstance(default, int) else click.FloatRange(least, most)
    names = (name,) if into is None else (name, into)
    return click.option(*names, default=default, show_default=True, type=kind, help=meaning)


_TRIAL_OPTIONS = (
    number("--runs", 3, 1, 100, "Runs to take medians of."),
    number("--events", 200_000, 1, 10_000_000, "Events at full speed, in each trial."),
    number("--seconds", 3.0, 0.1, 3_600, "Seconds of paced traffic in each trial, to measure delay.", "paced_s"),
    number("--rate", 1_000, 1, 100_000, "Events/s of the paced traffic.", "rate_per_s"),
    number("--window", 16_384, 1, 1_000_000, "Events in flight at full speed, at most.", "window_events"),
    click.option("--seed", default=1, show_default=True, help="Seed for the regions that events are published to."),
)


def _peers(_context: click.Context, _option: click.Parameter, names: str | None) -> tuple[str, ...]:
    if names is None:
        return tuple(name for name, peer in OTHERS.items() if peer.missing() is None and name not in BY_NAME_ONLY)
    chosen = named(names, "peer", OTHERS)
    for name in chosen:
        if (cure := OTHERS[name].missing()) is not None:
            raise click.BadParameter(f"{name} is not installed: {cure}")
    return chosen


against_option = click.option(
    "--against",
    metavar=",".join(OTHERS),
    callback=_peers,
    help="Peers to measure beside gamecast; bare is no peer, but what bounds it; of those with replicas, "
    "each event has three copies.  [default: all that are installed, without replicas]",
)


def _loop(_context: click.Context, _option: click.Parameter, loop: str) -> str:
    if loop == UVLOOP and find_spec(UVLOOP) is None:
        raise click.BadParameter("uvloop is not installed: pip install uvloop")
    return loop


loop_option = click.option(
    "--loop",
    type=click.Choice([ASYNCIO, UVLOOP]),
    default=ASYNCIO,
    show_default=True,
    callback=_loop,
    help="Event loop of all peers' clients.",
)
tick_option = click.option(
    "--tick",
    "tick_hz",
    type=click.IntRange(1, 1_000),
    metavar="HZ",
    help="Publish the paced events together, so many times a second, as servers that tick do.  [default: each when it "
    "is due]",
)

size_option = number("--size", 8, FAN_OUT, 1_000, "Subscribers, and regions.")
trace_option = click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="PREFIX",
    help="Prefix of the files of a recorded match; without it, a match is generated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def trial_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``runs``, and the fields of `laboratory.bench.workload.Phases` that have no default."""
    for option in reversed(_TRIAL_OPTIONS):
        command = option(command)
    return command


def named(text: str, what: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names in a list like ``a, b``, each once; raises `BadParameter` for one that is not ``known``."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise click.BadParameter(f"there is no {what} {name!r}: choose from {', '.join(known)}")
    return names


def show(result: Any, report: Callable[[Any], RenderableType], *, as_json: bool) -> None:
    """Print a result: as one JSON document, or what ``report`` makes of it."""
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))


@contextmanager
def status(text: str = "starting") -> Iterator[Callable[[str], None]]:
    """Show a line on a terminal only, meanwhile; yield a function that changes it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(text) as line:
        yield line.update


def exit_if_broken(context: click.Context, broken: Sequence[str], who: str = "gamecast") -> None:
    """Exit with 1 and name the broken promises, if what was measured broke one."""
    if broken:
        click.echo(f"{who} did not keep its promises: {'; '.join(broken)}", err=True)
        context.exit(BROKEN)


@contextmanager
def progress(trials: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function to call when a trial begins; it shows progress on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=trials)
        begun = 0

        def begin(peer: str, size: int, run: int) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=f"run {run + 1}: {peer}, {size} subscribers")
            begun += 1

        yield begin


def parse_sizes(_context: click.Context, _option: click.Parameter, numbers: str) -> tuple[int, ...]:
    try:
        sizes = tuple(dict.fromkeys(int(number) for number in numbers.split(",")))
    except ValueError:
        raise click.BadParameter(f"{numbers!r} is not a list of numbers like 8,32") from None
    if min(sizes) < 1:
        raise click.BadParameter("a world has at least one subscriber")
    return sizes
