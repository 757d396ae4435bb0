"""``gamecast convert``: convert recorded sessions to delivery logs, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import orjson

from cli.reporting import printable
from gamecast.recording.options import require_pyarrow
from gamecast.version import __version__
from launcher.ending import WRONG_USE
from sequencing.errors import InvalidInput, UsageError
from sequencing.extras import require


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT_DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--to", "form", required=True, type=click.Choice(["log", "session"]), help="What to make.")
@click.option(
    "--field",
    "said",
    multiple=True,
    metavar="FIELD=PLACE",
    help="SOURCE are another program's logs (CSV, JSON Lines, Parquet). FIELD is subscriber, event, region or sender, "
    "which are needed, index (else lines are counted), sent_at or delivered_at. PLACE is a column, a path (msg.id), "
    "@file for the file's name, or =TEXT.",
)
@click.option(
    "--published",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --to session or --field: the published events, as `gamecast audit` reads them, or as --field says.  "
    "[default: DIR/published.ndjson, if all logs are in DIR]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_context
def convert(
    context: click.Context,
    sources: Sequence[Path],
    out: Path,
    *,
    form: str,
    said: Sequence[str],
    published: Path | None,
    as_json: bool,
) -> None:
    """Convert between recorded sessions and delivery logs. Other programs' logs become either, with --field.

    With --to log, SOURCE is one session. OUT_DIR gets a log for each subscriber, for `gamecast audit OUT_DIR`.
    OUT_DIR/published.ndjson gets the published events, if they were recorded. With --to session, SOURCE are logs or
    directories of logs. OUT_DIR must be new or empty. Input and output are streamed: memory does not grow with them.

    \b
    Example:
      gamecast convert session logs --to log
      gamecast convert logs session-again --to session
      gamecast convert nats.jsonl logs --to log --field subscriber=consumer --field event=msg.id \\
        --field region=subject --field sender=msg.from --field delivered_at=time

    Exit status: 0 if all was converted, 2 for wrong input, or if unreadable files of the session were left out.
    """
    if form == "session":
        for extra in ("planner", "recording"):
            require(extra, "--to session", told="planner,recording")
    require_pyarrow()
    # Imported after that check: they need the extras.
    from gamecast.recording.conversion import foreign_to_logs, logs_to_session, session_to_logs
    from gamecast.recording.deliverylog import find_delivery_logs, find_published, published_within, read_records

    if said:
        from gamecast.recording.foreign import Fields, find_logs

        fields, logs = Fields.of(said), find_logs(sources)
        if form == "log":
            done = foreign_to_logs(logs, out, published=published, fields=fields)
        else:
            done = logs_to_session(logs, out, published=published, version=__version__, fields=fields)
    elif form == "log":
        if published is not None:
            raise UsageError("--published is for --to session: a session has its published events")
        if len(sources) != 1:
            raise UsageError(f"--to log converts one session at a time, not {len(sources)}: name one")
        if sources[0].is_file():
            raise InvalidInput(f"{sources[0]} is a file, and a recorded session is a directory")
        done = session_to_logs(sources[0], out)
    else:
        left_out: dict[str, str] = {}
        logs = find_delivery_logs(sources, left_out=left_out)
        published = published or find_published(logs, left_out=left_out)
        if all(next(read_records(log), None) is None for log in logs):
            raise InvalidInput(f"no lines in {', '.join(map(str, logs))}: there is nothing to convert")
        done = logs_to_session(logs, out, published=published, version=__version__)
        done.quarantined.update(left_out)
    if as_json:
        click.echo(orjson.dumps(asdict(done), option=orjson.OPT_INDENT_2))
    else:
        click.echo(
            f"{done.deliveries:,} deliveries, {done.stays:,} stays and {done.published:,} published events "
            f"in {done.files:,} files: {out}"
        )
        if form == "log" and done.published:
            click.echo(f"The published events are in {published_within(out)}.")
        for what, rows in done.left_out.items():
            click.echo(f"{rows:,} {what} have no place in a log.")
        for what, rows in done.dropped.items():
            click.echo(
                f"the recorder dropped {rows:,} rows of {what}: the logs lack them, and `gamecast audit` cannot tell",
                err=True,
            )
        for file, why in done.quarantined.items():
            click.echo(f"left out: {printable(file)}: {why}", err=True)
    if done.quarantined:
        context.exit(WRONG_USE)
