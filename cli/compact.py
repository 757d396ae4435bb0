"""``gamecast compact``: put the small files of a recorded session together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import Progress

from cli.outfiles import writing
from cli.reporting import printable
from gamecast.recording.options import require_pyarrow


@click.command()
@click.argument("session", metavar="SESSION")
@click.argument("out", metavar="OUT_DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def compact(session: str, out: Path, *, as_json: bool) -> None:
    """Put the small files of a recorded session together. The result is a new session in OUT_DIR.

    Recorders finish their files every few seconds, so a night has many thousands, and every reader takes time for each.
    OUT_DIR gets the same rows in a few files for each table and hour. SESSION is a directory or a URL, and is only
    read: delete it when you have looked at the result. Unfinished and damaged files are copied as they are, so that an
    analysis still reports them. Compact a session when its servers have closed their connections.

    \b
    Example:
      gamecast compact night/session night-compact
      gamecast analyze night-compact

    Exit status: 0 if all was written, 2 for wrong input, 3 if SESSION cannot be reached or OUT_DIR cannot be written.
    """
    require_pyarrow()
    # Imported after that check: they need the extra.
    from analytics.session.compaction import compact_session
    from analytics.session.storage import stored

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar, writing(out):
        task = bar.add_task("compacting", total=None)
        done = compact_session(
            stored(session), out, on_progress=lambda files, of: bar.update(task, completed=files, total=of)
        )
    if as_json:
        click.echo(orjson.dumps(asdict(done), option=orjson.OPT_INDENT_2))
        return
    click.echo(f"{done.rows:,} rows of {done.files_before:,} files are now in {done.files_after:,}: {out}")
    if done.copied:
        click.echo(f"{done.copied:,} files that cannot be used were copied as they are.", err=True)
    for file, why in done.left_out.items():
        click.echo(f"left out: {printable(file)}: {why}", err=True)
