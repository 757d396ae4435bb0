"""Users of one's own: the marks of their events, the file that has them, and the findings that locust shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.journal import Journal, Ledger, Log
from loadtest.judging import GUARANTEE_OF, REPORTS, Judge, Judgement, findings
from loadtest.options import Options
from loadtest.ownusers import read_kinds
from loadtest.presence import Mark, mark_of, marked
from sequencing.checkers.stays import Stay
from sequencing.errors import UsageError

FILE = Path("mine.py")


def test_a_mark_stands_beside_the_user_s_own_fields() -> None:
    payload = marked({"type": "move"}, Mark("load-a-server-0/7", 5), run="load-a")
    assert payload["type"] == "move"
    assert mark_of(payload, run="load-a") == Mark("load-a-server-0/7", 5)


@pytest.mark.parametrize("payload", [None, "text", 3, [], {}, {"loadtest": True}, {"loadtest": {"id": "a/1"}}])
def test_an_event_of_others_has_no_mark(payload: object) -> None:
    assert mark_of(payload, run="load-a") is None


def test_an_event_of_another_run_has_no_mark_of_this_one() -> None:
    assert mark_of(marked({}, Mark("load-a-server-0/7", 5), run="load-a"), run="load-a-2") is None


def test_options_take_changes_before_they_are_checked() -> None:
    parsed = Options(network="redis://host", gateway="http://host")
    assert Options.of(parsed, servers=0, sockets=3).users == 3
    with pytest.raises(UsageError, match="needs users"):
        Options.of(parsed, servers=0)


def judged(*orders: list[str], late: bool = False) -> Judgement:
    """Judge subscribers of one region that delivered events in these orders."""
    journal = Journal("w0")
    for number in range(3):
        journal.published(f"s/{number}", "forest", "s", f"1-{number}", 1)
    for number, order in enumerate(orders):
        log: Log = journal.log(f"s{number}#0")
        journal.stay(Stay(log.subscriber, "forest", 0, None, 0, 0))
        for event in order:
            log.deliver(event, "forest", "s", f"1-{event[2:]}")
    ledger = Ledger()
    ledger.add(journal.take())
    if late:
        ledger.missing.append("worker w1 was lost")
    return Judge(ledger).conclude()


def kept(judgement: Judgement) -> dict[str, bool | None]:
    return {finding.guarantee: finding.kept for finding in findings(judgement)}


def test_each_guarantee_has_a_finding() -> None:
    all_kept = kept(judged(["s/0", "s/1", "s/2"], ["s/0", "s/1", "s/2"]))
    assert all_kept == dict.fromkeys({*GUARANTEE_OF.values(), REPORTS}, True)


@pytest.mark.parametrize(
    ("order", "broken"),
    [
        (["s/0", "s/2", "s/1"], {"order kept", "each publisher's order kept"}),
        (["s/0", "s/2"], {"nothing lost"}),
        (["s/0", "s/1", "s/1", "s/2"], {"nothing twice"}),
    ],
)
def test_a_violation_breaks_its_guarantee_and_no_other(order: list[str], broken: set[str]) -> None:
    found = kept(judged(["s/0", "s/1", "s/2"], order))
    assert {guarantee for guarantee, is_kept in found.items() if not is_kept} == broken


def test_a_missing_report_is_a_finding_with_its_reason() -> None:
    last = findings(judged(["s/0", "s/1", "s/2"], late=True))[-1]
    assert (last.guarantee, last.kept, last.counts) == (REPORTS, False, "worker w1 was lost")


def test_losses_that_were_not_judged_are_neither_kept_nor_broken() -> None:
    judgement = judged(["s/0", "s/1", "s/2"])
    unjudged = replace(judgement, verdict=replace(judgement.verdict, lost=None, unexpected=None))
    assert kept(unjudged)["nothing lost"] is kept(unjudged)["nothing unexpected"] is None


def test_a_file_s_users_are_read_from_among_what_it_prints() -> None:
    said = b'hello\ngamecast-users: {"kinds":{"Zone":"server"}}\n'
    assert read_kinds(said, b"", FILE) == {"Zone": "server"}


@pytest.mark.parametrize(
    ("stdout", "stderr", "message"),
    [
        (b"", b"Traceback\nboom\n", "importing mine.py ended the process: boom"),
        (b"", b"", "ended the process: without a message"),
        (b'gamecast-users: {"error":"ValueError: no map"}', b"", "cannot import mine.py: ValueError: no map"),
        (b'gamecast-users: {"kinds":{}}', b"", "mine.py has no users"),
    ],
)
def test_a_file_that_cannot_run_is_refused(stdout: bytes, stderr: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_kinds(stdout, stderr, FILE)


@pytest.mark.parametrize("payload", [[1, 2], "text", None])
def test_a_payload_without_fields_is_refused_with_the_cure(payload: object) -> None:
    with pytest.raises(UsageError, match=r"payload\(\) returned a .*: return a dict"):
        marked(payload, Mark("e", 1), run="r")
