"""The results of a run, for the terminal and as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from gamecast.recording.deliverylog import log_file_name, published_within, write_published
from gamecast.recording.deliverylogwriter import DeliveryLogWriter
from loadtest.conductor import Conductor
from loadtest.journal import Ledger


def write_judgement(conductor: Conductor) -> None:
    """Print the results of a run that is over, and write those files that its options ask for."""
    judgement = conductor.judgement
    assert judgement is not None
    if conductor.options.judgement:
        document = {**judgement.as_dict(), "run": conductor.figures()}
        Path(conductor.options.judgement).write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if conductor.options.logs:
        write_logs(conductor.ledger, Path(conductor.options.logs))
    sys.stdout.write("\n".join(tell(conductor)) + "\n")
    sys.stdout.flush()


def tell(conductor: Conductor) -> list[str]:
    """Return the results as lines of text."""
    judgement, options, figures = conductor.judgement, conductor.options, conductor.figures()
    assert judgement is not None
    verdict = judgement.verdict
    lines = [
        (
            f"{conductor.users} ({options.workload}, {options.shape}) published {judgement.published:,} events in "
            f"{conductor.played_s:.0f} s; {verdict.subscribers:,} sessions delivered {verdict.deliveries:,} in "
            f"{verdict.regions:,} regions."
        ),
        (
            f"lost {verdict.lost if verdict.lost is not None else 'not judged'}, twice {verdict.duplicated}, opposite "
            f"orders {verdict.inversions}, cycles {verdict.cycles}, out of their publisher's order "
            f"{verdict.publisher_order_violations}, unexpected {verdict.unexpected or 0}; judged {judgement.looks} "
            "times while it ran and once at its end"
        ),
    ]
    if received := figures.get("received_frames"):
        waited = figures.get("waited_frames", 0)
        lines.append(f"of {received:,} frames that the last sessions received, {waited:,} waited for others")
    if conductor.full:
        lines.append(f"it ended early, at {options.deliveries_max:,} deliveries: --deliveries-max raises the limit")
    if judgement.gaps:
        lines.append(f"{judgement.gaps:,} gaps announced missing events, the first: {conductor.ledger.gaps[0]}")
    if judgement.uncertain:
        lines.append(f"it is unknown whether {judgement.uncertain:,} events were published")
    if judgement.fine:
        lines.append("Every promise was kept.")
    elif conductor.stopped_in_order:
        lines.append("Its order was kept until it was stopped; losses were not judged, because events were in flight.")
    else:
        lines += ["NOT FINE:", *(f"  {violation}" for violation in judgement.violations())]
    return lines


def write_logs(ledger: Ledger, directory: Path) -> None:
    """Write the files for ``gamecast audit DIRECTORY``: a log for each session, and the published events."""
    directory.mkdir(parents=True, exist_ok=True)
    write_published(published_within(directory), ledger.placed.values())
    for sequence in ledger.sequences():
        with DeliveryLogWriter(directory / log_file_name(sequence.subscriber), sequence.subscriber) as log:
            for event, region, sender in zip(sequence.events, sequence.regions, sequence.senders, strict=True):
                log.write(event, region, sender)
            for stay in ledger.stays.values():
                if stay.subscriber == sequence.subscriber:
                    log.write_stay(stay)
