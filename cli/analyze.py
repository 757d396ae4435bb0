"""`gamecast analyze`: analyze recorded sessions and delivery logs in Spark. Also a script for spark-submit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from cli.outfiles import writing
from cli.promises import promises
from gamecast.errors import InvalidInput, UsageError
from launcher.ending import BROKEN, CANNOT_TELL
from sequencing.extras import needed_by

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis, MakeDirect
    from analytics.session.storage import Stored

WORST_SHOWN = 5
UNKNOWN_SHOWN = 8
NAMES_MAX = 3


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[N], spark://host:port, sc://host:port (Spark Connect), ….  [default: all cores here]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the report, pictures and tables go.  [default: SESSION-report beside it; none with --json, --follow]",
)
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--direct",
    type=click.Path(path_type=Path),
    metavar="MATRIX",
    help="The direct one-way delays between hosts, as CSV.  [default: the session's probes]",
)
@click.option("--rtt", is_flag=True, help="The matrix has round-trip times: halve them.")
@click.option(
    "--hosts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The host of each subscriber, rows of subscriber,host.  [default: the host of the subscriber's name]",
)
@click.option(
    "--causal", is_flag=True, help="Check causal order too.  [default: where the session's ordering is causal]"
)
@click.option(
    "--follow",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Follow one session while it is recorded. DIR keeps the progress, and a later run continues from it. Stop "
    "with Ctrl-C; it also ends when nothing was recorded for --idle.",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --follow: end when nothing was recorded for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def analyze(
    context: click.Context,
    sessions: Sequence[str],
    *,
    master: str | None,
    out: Path | None,
    no_report: bool,
    direct: Path | None,
    rtt: bool,
    hosts: Path | None,
    causal: bool,
    follow: Path | None,
    idle: float,
    as_json: bool,
) -> None:
    """Analyze recorded sessions: latency, order, load, placement. The report says how far subscribers are from each
    other, whether the order held, which node carries what, and what to move.

    SESSION is the directory of a recorded session, a delivery log (JSON Lines, gzip-compressed or not) as `gamecast
    audit` reads it, or a directory of logs: a path, or a URL (file, s3, s3a, gs, abfss, hdfs). Several are analyzed
    together. Unusable input is put aside and counted.
    The report is DIR/report.html, with pictures and CSV tables beside it. `gamecast plan size` reads
    DIR/membership.csv and DIR/rates.csv.

    A promise is broken where the records show it. They cannot show that all were kept where they have holes: where a
    recorder dropped rows, a server was killed or still runs, or files are missing or damaged. Then it cannot
    be told, and the reasons are given: complete the session's directory, or judge a session that has ended.

    Exit status: 0 if the promises were kept, 1 if one was broken, 2 for wrong use or if there is nothing to analyze,
    3 if Spark does not start or fails, 4 if it cannot be told. With --follow, Ctrl-C prints the figures and ends with
    1 or 130.
    """
    from analytics.jobs.progress import begin_progress
    from analytics.jobs.spark import BRIEF_BYTES_MAX, open_spark, spark_failures
    from analytics.session.finding import find
    from analytics.session.storage import stored

    with needed_by("the analysis"):
        places = [stored(name) for name in sessions]
    # Check this before Spark starts, which takes seconds.
    for place in (*places, *(stored(file) for file in (direct, hosts) if file is not None)):
        if not place.exists:
            raise InvalidInput(f"{place} does not exist")
    if no_report and out is not None:
        raise UsageError("--out says where the report goes, and --no-report that there is none")
    interrupted = False
    with _progress() as show, spark_failures():
        show("looking at the files")
        if follow is not None:
            if len(sessions) != 1:
                raise UsageError("--follow follows one session: name one directory")
            begin_progress(follow, sessions[0])
        found = find(sessions) if follow is None else None
        show("starting Spark")
        spark = open_spark(master, is_brief=follow is None and _bytes_of(places) < BRIEF_BYTES_MAX)
        from analytics.jobs.analysis import analyse
        from analytics.session.reading import read_sources

        ways = _direct(direct, hosts, rtt=rtt)
        if follow is not None:
            made, interrupted = _follow(spark, sessions[0], follow, ways, idle_s=idle, causal=causal or None, show=show)
        else:
            show("reading the files")
            sources = read_sources(spark, found or sessions)
            made = analyse(spark, sources, direct=ways, causal=causal or None, on_stage=show)
        is_asked = out is not None or not (no_report or as_json or follow is not None)
        report = _report(made, out or _beside(places[0]), is_default=out is None, show=show) if is_asked else None
    if as_json:
        click.echo(orjson.dumps(made.as_dict(), option=orjson.OPT_INDENT_2))
    else:
        _tell(made, report)
    if not made.audit.fine:
        context.exit(BROKEN)
    if interrupted:
        raise KeyboardInterrupt
    if made.audit.unknown:
        context.exit(CANNOT_TELL)


def _report(made: Analysis, place: Path, *, is_default: bool, show: Callable[[str], None]) -> Path | None:
    """Write the report; return where it is. A default place that cannot be written is no error."""
    from analytics.report.report import write_report

    show("writing the report")
    try:
        with writing(f"--out {place}"):
            write_report(place, made)
    except UsageError as error:
        if not is_default:
            raise
        click.echo(f"No report: {error}", err=True)
        return None
    return place


def _beside(source: Stored) -> Path:
    """Return where the report of a session goes: beside it, or here if it is elsewhere."""
    name = f"{source.last}-report"
    return Path(source.place).with_name(name) if source.is_local else Path(name)


def _bytes_of(places: Sequence[Stored]) -> int:
    """Return how large the files of sessions and logs are."""
    return sum(
        file.size
        for place in places
        for file in (place.listing(everywhere=True).content if place.is_folder else (place,))
    )


def _direct(matrix: Path | None, hosts: Path | None, *, rtt: bool) -> MakeDirect | None:
    """Return a function that makes the direct delays between the subscribers that the sessions have."""
    if matrix is None:
        if hosts is not None or rtt:
            raise UsageError("--hosts and --rtt describe a delay matrix: give --direct MATRIX too")
        return None
    from analytics.jobs.stretch import direct_from
    from placement.planning.places import read_hosts
    from placement.topologies.distances import read_distances

    distances = read_distances(matrix, rtt=rtt)
    host_of = dict(read_hosts(hosts)) if hosts is not None else {}

    def make(cells: Any) -> Any:
        made = direct_from(cells, distances.hosts, distances.one_way_ms, host_of)
        if made.isEmpty():
            known = ", ".join(distances.hosts[:NAMES_MAX])
            raise UsageError(
                f"{matrix}: no subscriber is on one of its hosts ({known}, …): name their hosts with --hosts FILE, "
                "rows of subscriber,host"
            )
        return made

    return make


def _follow(
    spark: Any,
    session: str,
    state: Path,
    direct: MakeDirect | None,
    *,
    idle_s: float,
    causal: bool | None,
    show: Callable[[str], None],
) -> tuple[Analysis, bool]:
    """Follow a session: show figures in the terminal's progress line, and print alarms to standard error at once.

    Returns the analysis, and whether it was interrupted.
    """
    import signal

    from analytics.jobs.streaming import Following, Update

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    def on_update(update: Update) -> None:
        stretch = f", stretch {update.stretch['p50']:.2f} in the median" if update.stretch is not None else ""
        show(f"{update.deliveries:,} deliveries by {update.subscribers:,} subscribers{stretch}")
        for alarm in update.alarms:
            click.echo(f"alarm: {alarm}", err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        show("waiting for records")
        following = Following(spark, session, state, direct, on_update)
        return following.run(until=lambda: stopped, idle_s=idle_s, causal=causal), stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(made: Analysis, out: Path | None) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(
        f"Analysed {made.deliveries:,} deliveries by {made.subscribers:,} subscribers in {made.regions:,} regions."
    )
    for turn in made.turns:
        console.print(Text(f"{turn.describe()}.", style="yellow"))
    if delays := made.delay_ms():
        console.print(
            f"Delay of others' events: at most {delays['p50']:.3g} ms in the median, {delays['p95']:.3g} at the 95th "
            f"percentile, {delays['p99']:.3g} at the 99th."
        )
    stretch = made.stretch()
    if stretch is None:
        console.print("Latency stretch: unknown, without direct delays: give --direct MATRIX, or record probes.")
    elif nearness := made.nearness():
        console.print(f"Latency stretch: {nearness}.")
    else:
        console.print(
            f"Latency stretch of {len(stretch['by_destination']):,} destinations: {stretch['p50']:.2f} in the median, "
            f"{stretch['p90']:.2f} at the 90th percentile, {stretch['max']:.2f} at most."
        )
        worst = sorted(stretch["by_destination"].items(), key=lambda each: -each[1])[:WORST_SHOWN]
        console.print("Farthest off: " + ", ".join(f"{name} {value:.2f}" for name, value in worst) + ".")
    order, losses = made.audit.order, made.audit.losses
    counts = order.inversions, order.cycles, made.audit.publisher_order_violations, made.audit.duplicated
    unknown = [each.name for each in made.audit.promises if each.verdict == "unknown"]
    table = promises(
        (*counts, losses.lost, losses.unexpected), unexpected="events that were not published", unknown=unknown
    )
    console.print(table)
    for each in made.advice[:WORST_SHOWN]:
        console.print(f"Advice: {each.do} {each.named}: {each.because}.")
    for entry in made.quarantine.entries:
        named = f" ({', '.join(entry.examples)})" if entry.examples else ""
        console.print(f"Put aside: {entry.count:,} × {entry.what}: {entry.reason}{named}")
    for note in made.notes:
        console.print(f"Note: {note}.")
    reasons = made.audit.unknown
    if made.audit.verdict == "unknown":
        console.print(
            Text("It cannot be told whether all promises were kept. None was seen broken, but:", style="yellow")
        )
    elif made.audit.fine:
        console.print(Text("The promises are kept.", style="bold green"))
    elif reasons:
        console.print(Text("Not recorded completely:", style="yellow"))
    for reason in reasons[:UNKNOWN_SHOWN]:
        console.print(f"- {reason}.")
    if len(reasons) > UNKNOWN_SHOWN:
        console.print(f"- and {len(reasons) - UNKNOWN_SHOWN:,} reasons more (--json has them).")
    if not made.audit.fine:
        console.print(Text("The promises are broken:", style="bold red"))
        for example in made.audit.examples:
            console.print(f"{str(example.as_dict()['kind']).replace('_', ' ')}: {example.describe()}.")
    if out is not None:
        console.print(f"The report is {out / 'report.html'}")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the stage, on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda doing: bar.update(task, description=doing)


if __name__ == "__main__":
    # spark-submit runs this file, with its own --master and --conf.
    from cli.running import run

    run(analyze)
