"""`gamecast audit`: judge any delivery log against the promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import Progress as ProgressBar
from rich.progress import SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from cli.promises import NAMES, promises
from cli.reporting import printable
from gamecast.recording.deliverylog import (
    DeliveryLogs,
    Progress,
    find_delivery_logs,
    find_published,
    read_delivery_logs,
    read_published,
)
from launcher.ending import BROKEN, CANNOT_TELL
from sequencing.checkers import History, PairOrder, Published, Verdict, compare_pairs, judge
from sequencing.checkers.stays import judge_stays

NAMED_MAX = 3


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--published",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The published events, JSON Lines with event and region, to find losses too.  [default: DIR/published.ndjson, "
    "as the demo writes it, if all logs are in DIR]",
)
@click.option("--pairs", is_flag=True, help="Compare every two subscribers as well.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def audit(context: click.Context, files: Sequence[Path], *, published: Path | None, pairs: bool, as_json: bool) -> None:
    """Judge delivery logs: one order, nothing lost or repeated?

    FILE is JSON Lines, gzip-compressed or not, one delivery a line: {"subscriber": "s1", "index": 0, "event": "any
    unique id", "region": "forest", "sender": "s2"}. A directory means all *.jsonl and *.jsonl.gz files in it.

    A region's subscribers are those that delivered any of its events. A server that joins and leaves has lines like
    {"subscriber": "s1", "stay": "forest", "from": 3, "to": 40, "joined_at_ns": 1700…}: the first index in the region
    and the first index after it. The server then owes all events between the first and the last that it delivered. It
    also owes those published after it had joined, up to the last that it delivered before it left. Deliveries with
    "replayed" came from history: their order says nothing. To check what a stay owes, FILE of --published needs the
    fields position ("epoch-sequence") and published_at_ns. Each publisher's own order is checked if every delivery of
    it has sent_at_ns.

    Where indices are missing between the lines, nothing counts as lost: it was perhaps delivered. The same holds after
    the last line of a server whose stay is "open", because it was killed. Then it cannot be told ("unknown").

    Exit status: 0 if the promises are kept, 1 if one is broken, 2 if the input is malformed or empty, 4 if it cannot be
    told.
    """
    left_out: dict[str, str] = {}
    log_files = find_delivery_logs(files, left_out=left_out)
    published = published or find_published(log_files, left_out=left_out)
    for name, reason in left_out.items():
        click.echo(f"left out: {printable(name)}: {reason}", err=True)
    with _progress() as on_progress:
        logs = read_delivery_logs(log_files, on_progress=on_progress)
        expected = read_published(published, on_progress=on_progress) if published is not None else None
    history = History.of(logs.live)
    verdict = replace(judge(history), deliveries=sum(len(each.events) for each in logs.sequences))
    unrecorded: dict[str, set[str]] = {}
    if expected is not None:
        unrecorded = _unrecorded(logs, expected)
        verdict = _with_losses(verdict, logs, expected, unrecorded)
    unknown = (*_unknown(logs, unrecorded if expected else {}), *_not_read(left_out))
    compared = compare_pairs(history) if pairs else None
    if as_json:
        report = {**verdict.as_dict(), "files": len(log_files), "index_gaps": logs.index_gaps, "fine": verdict.fine}
        report["left_out"] = left_out
        report["verdict"] = "broken" if not verdict.fine else "unknown" if unknown else "kept"
        report["unknown"] = list(unknown)
        if compared is not None:
            report["pairs"] = [
                {"subscribers": pair.subscribers, "common": pair.common, "inversions": pair.inversions}
                for pair in compared
            ]
        click.echo(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    else:
        _tell(verdict, log_files, unknown, compared)
    if not verdict.fine:
        context.exit(BROKEN)
    if unknown:
        context.exit(CANNOT_TELL)


def _with_losses(
    verdict: Verdict, logs: DeliveryLogs, expected: Sequence[Published], unrecorded: Mapping[str, AbstractSet[str]]
) -> Verdict:
    """Add what was lost, and what was not published, of the subscribers whose logs lack nothing.

    What is missing in the others was perhaps delivered.
    """
    whole = [each for each in logs.sequences if each.subscriber not in logs.partial]
    stays = [stay for stay in logs.stays if stay.subscriber not in logs.partial]
    if logs.stays:
        of_whole = judge_stays(whole, stays, expected, unrecorded=frozenset().union(*unrecorded.values()))
    else:
        of_whole = judge(whole, published=expected)
    examples = [each for each in of_whole.examples if each.kind in ("lost", "unexpected")]
    return replace(verdict, lost=of_whole.lost, unexpected=of_whole.unexpected, examples=(*verdict.examples, *examples))


def _unrecorded(logs: DeliveryLogs, expected: Sequence[Published]) -> dict[str, set[str]]:
    """Return sender → events, if any, that it may have published without a record of it.

    So are those of a server that was killed, whose last rows are missing, and those of a sender that recorded nothing
    at all: a gateway, or a server without ``record``. Only servers with stays record what they publish.
    """
    if not logs.stays:
        return {}
    published = {each.event for each in expected}
    delivered: dict[str, set[str]] = {}
    for sequence in logs.sequences:
        for event, sender in zip(sequence.events, sequence.senders, strict=True):
            delivered.setdefault(sender, set()).add(event)
    recording = {sequence.subscriber for sequence in logs.sequences} | {stay.subscriber for stay in logs.stays}
    return {
        sender: left
        for sender, events in delivered.items()
        if (sender in logs.unended or (sender not in recording and events.isdisjoint(published)))
        and (left := events - published)
    }


def _unknown(logs: DeliveryLogs, unrecorded: Mapping[str, AbstractSet[str]]) -> Iterator[str]:
    """Yield why it cannot be told whether the promises were kept."""
    if logs.index_gaps:
        indices = _count(logs.index_gaps, "index", "indices")
        yield f"{indices} missing between the lines: the logs are incomplete, those of {_few(sorted(logs.partial))}"
    if logs.unended:
        yield f"the recording has no end, because a server was killed or still ran: {_few(sorted(logs.unended))}"
    if logs.returned:
        yield f"history was asked for, and only `gamecast analyze` judges that: {_few(sorted(logs.returned))}"
    if unrecorded:
        count = _count(sum(map(len, unrecorded.values())), "event")
        yield f"{count} of senders whose publishing was not recorded, or not to its end: {_few(sorted(unrecorded))}"


def _not_read(left_out: Mapping[str, str]) -> Iterator[str]:
    if left_out:
        names = [printable(name) for name in left_out]
        yield f"{_count(len(names), 'file')} left out, because only regular files are read: {_few(names)}"


def _few(names: Sequence[object]) -> str:
    """Return the first names, and that there are more."""
    return ", ".join(map(str, names[:NAMED_MAX])) + (", …" if len(names) > NAMED_MAX else "")


def _tell(verdict: Verdict, files: Sequence[Path], unknown: Sequence[str], pairs: Sequence[PairOrder] | None) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(
        f"Judged {_count(verdict.deliveries, 'delivery', 'deliveries')} by {_count(verdict.subscribers, 'subscriber')} "
        f"in {_count(verdict.regions, 'region')}, from {_count(len(files), 'file')}: {_few(files)}"
    )
    counts = verdict.inversions, verdict.cycles, verdict.publisher_order_violations, verdict.duplicated
    lost = verdict.lost, verdict.unexpected
    console.print(
        promises((*counts, *lost), unexpected="events that were not published there", unknown=NAMES if unknown else ())
    )
    if pairs is not None:
        console.print(_pairs(pairs))
    for note in _notes(verdict):
        console.print(f"Note: {note}")
    for reason in unknown:
        console.print(f"Note: {reason}.")
    if verdict.first is None and unknown:
        console.print(Text("It cannot be told whether all promises were kept. None was seen broken.", style="yellow"))
        return
    if verdict.first is None:
        console.print(Text("The promises are kept, as far as these logs can tell.", style="bold green"))
        return
    console.print(Text("The promises are broken. The first violation:", style="bold red"))
    for example in verdict.examples:
        console.print(f"{example.kind.replace('_', ' ')}: {example.describe()}.")


def _pairs(pairs: Sequence[PairOrder]) -> Table:
    table = Table("subscribers", "events in common", "in opposite orders")
    for column in table.columns[1:]:
        column.justify = "right"
    for pair in pairs:
        shown = Text(f"{pair.inversions:,}", style="red" if pair.inversions else "green")
        table.add_row(Text(" and ".join(pair.subscribers)), f"{pair.common:,}", shown)
    return table


def _notes(verdict: Verdict) -> Iterator[str]:
    if verdict.lost is None:
        yield "deliveries alone do not show losses: give --published FILE."
    unchecked = verdict.publishers_unchecked
    if unchecked:
        whose = f"the order of {len(unchecked)} of {_count(verdict.publishers, 'publisher')}"
        yield f"{whose} could not be checked without sent_at_ns: {_few(unchecked)}."


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Yield a counter of lines on the terminal, if standard error is one."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines read"))
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda lines: bar.advance(task, lines)
