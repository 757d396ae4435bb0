"""``gamecast record``: record a live network without joining it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson

from cli.daemons import Stop, run_until_stopped
from gamecast.client.networks import require_reachable
from gamecast.recording.options import Recording, RecordingStatistics, require_pyarrow
from gamecast.version import __version__
from launcher.ending import INFRASTRUCTURE


@click.command()
@click.argument("url")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory of the session: a new one, or one that other recorders write into.",
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after S seconds.")
@click.option(
    "--regions",
    default="**",
    show_default=True,
    metavar="PATTERN",
    help="Which regions: * stands for any characters but /, ** for any.",
)
@click.option(
    "--roll-s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds between finished files. If this process is killed, later rows are lost.",
)
@click.option(
    "--host",
    metavar="NAME",
    help="Name of this machine in the session: times are by its clock.  [default: its host name]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_context
def record(
    context: click.Context,
    url: str,
    *,
    out: Path,
    seconds: float | None,
    regions: str,
    roll_s: float,
    host: str | None,
    as_json: bool,
) -> None:
    """Record a live network into a session. A session has the frames, the time when each passed each node, the epochs,
    and the members.

    It only reads: it is not a subscriber, and changes no membership, plan or epoch. It cannot see what game servers
    receive and deliver. To record that too, connect them with `gamecast.connect(record=DIR)`; DIR may be the same
    session.

    A frame that passes a link before it can be read lacks a stamp there. Such frames are counted.

    \b
    Example:
      gamecast record redis://127.0.0.1 --out session --seconds 60
      gamecast analyze session

    Exit status: 0 after --seconds or SIGTERM, 130 if interrupted, 2 for wrong use, 3 if the network is unavailable, or
    if rows were lost, as on a full disk.
    """
    require_pyarrow()
    require_reachable(url)
    recording = Recording(out, roll_s=roll_s, host=host)

    async def record_and_tell(stop: Stop) -> bool:
        summary = await _record(url, recording, regions, seconds, stop, quiet=as_json)
        if as_json:
            click.echo(orjson.dumps(summary, option=orjson.OPT_INDENT_2))
        else:
            _tell(summary)
        return bool(summary["lost"])

    if run_until_stopped(record_and_tell, end_s_max=None):
        context.exit(INFRASTRUCTURE)


async def _record(
    url: str, recording: Recording, regions: str, seconds: float | None, stop: Stop, *, quiet: bool
) -> dict[str, Any]:
    from adapters.redis.control import RedisControl
    from gamecast.recording.outside import OutsideTap
    from gamecast.recording.recorder import open_recorder

    control = RedisControl(url)
    try:
        newest = await control.newest()  # fail before writing anything if the network is unavailable
    finally:
        await control.close()
    ordering = newest.plan.ordering if newest is not None else "acyclic"
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    recorder = await asyncio.to_thread(open_recorder, recording, version=__version__, ordering=ordering, url=url)
    tap = OutsideTap(recorder, url, regions=regions)
    try:
        await tap.start()
        if not quiet:
            click.echo(f"recording into {recording.directory}", err=True)
        while not stop.is_set() and tap.failure is None:
            try:
                async with asyncio.timeout(0.5):
                    await stop.wait()
            except TimeoutError:
                continue
    finally:
        await tap.close()
        await asyncio.to_thread(recorder.release)
    if tap.failure is not None:
        raise tap.failure
    return {
        "frames": tap.frames,
        "events": tap.events,
        "stamps": dict(sorted(tap.stamps.items())),
        "missed": tap.missed,
        **_written(recorder.statistics()),
    }


def _written(statistics: RecordingStatistics) -> dict[str, Any]:
    return {
        "session": str(statistics.directory),
        "id": statistics.session,
        "files": statistics.rolled_files,
        "rows": dict(statistics.rolled_rows),
        "lost": [
            {"table": table, "reason": reason, "rows": rows}
            for (table, reason), rows in sorted(statistics.lost_rows.items())
            if reason != "unread"
        ],
        "trouble": statistics.trouble,
    }


def _tell(summary: Mapping[str, Any]) -> None:
    seen = ", ".join(f"{count:,} at {node}" for node, count in summary["stamps"].items()) or "none"
    click.echo(f"{summary['frames']:,} frames of {summary['events']:,} events; frames at the nodes: {seen}.")
    if summary["missed"]:
        click.echo(f"{summary['missed']:,} frames left a link before they were read: they lack a stamp there.")
    click.echo(f"{sum(summary['rows'].values()):,} rows in {summary['files']} files: {summary['session']}")
    for lost in summary["lost"]:
        print(f"lost: {lost['rows']:,} rows of {lost['table']} ({lost['reason']})", file=sys.stderr)
    if summary["trouble"]:
        print(f"the disk: {summary['trouble']}", file=sys.stderr)
