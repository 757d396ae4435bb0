"""What a load test's users report, and the judgement of it while it runs and at its end."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.journal import NS, Journal, Ledger, Log, event_id
from loadtest.judging import Judge
from sequencing.checkers.stays import Stay
from sequencing.errors import InvalidInput

REGIONS = ("forest", "river")
LATE_S = 10.0


class Run:
    """Two workers with a subscriber each, both in both regions, and events that all deliver at once."""

    def __init__(self) -> None:
        self.journals = [Journal("w0"), Journal("w1")]
        self.logs: list[Log] = []
        for number, journal in enumerate(self.journals):
            self.logs.append(journal.log(f"s{number}#0"))
            for region in REGIONS:
                journal.stay(Stay(f"s{number}#0", region, 0, None, 0, 1))
        self.ledger = Ledger()
        self.judge = Judge(self.ledger, late_s=LATE_S)
        self.count = 0

    def publish(self, at_s: float) -> tuple[str, str, str, str]:
        event, region = event_id("s0", self.count), REGIONS[self.count % 2]
        self.count += 1
        position = f"1-{self.count}"
        self.journals[0].published(event, region, "s0", position, round(at_s * NS))
        return event, region, "s0", position

    def events(self, count: int, *, at_s: float = 1.0) -> list[tuple[str, str, str, str]]:
        return [self.publish(at_s) for _ in range(count)]

    def deliver(self) -> None:
        for journal in self.journals:
            self.ledger.add(journal.take())

    def look(self, now_s: float) -> list[str]:
        self.deliver()
        return [offence.kind for offence in self.judge.look(round(now_s * NS))]


def test_a_run_in_order_is_fine_while_it_runs_and_at_its_end() -> None:
    run = Run()
    for second in range(1, 40):
        for delivery in run.events(10, at_s=second):
            for log in run.logs:
                log.deliver(*delivery)
        assert run.look(second + 0.5) == []
    judgement = run.judge.conclude()
    assert judgement.fine
    assert judgement.as_dict()["deliveries"] == 39 * 10 * 2
    assert judgement.published == 390
    assert judgement.looks == 39


def test_an_inversion_between_two_workers_is_seen_at_the_next_look_and_at_the_end() -> None:
    run = Run()
    first, second = run.events(2)
    for log, order in zip(run.logs, ((first, second), (second, first)), strict=True):
        for delivery in order:
            log.deliver(*delivery)
    assert "inversion" in run.look(1.5)
    judgement = run.judge.conclude()
    assert judgement.verdict.inversions == 1
    assert not judgement.fine
    assert "before" in judgement.violations()[0]


def test_an_inversion_whose_halves_come_in_successive_chunks_is_seen() -> None:
    run = Run()
    first, second = run.events(2)
    run.logs[0].deliver(*first)
    run.logs[1].deliver(*second)
    assert run.look(1.5) == []
    run.logs[0].deliver(*second)
    run.logs[1].deliver(*first)
    assert "inversion" in run.look(2.5)


def test_what_is_delivered_twice_is_seen() -> None:
    run = Run()
    (delivery,) = run.events(1)
    for log in run.logs:
        log.deliver(*delivery)
    run.logs[1].deliver(*delivery)
    assert "duplicate" in run.look(1.5)
    assert run.judge.conclude().verdict.duplicated == 1


def test_a_loss_is_seen_once_it_is_late_and_not_before() -> None:
    run = Run()
    for number, delivery in enumerate(run.events(10)):
        run.logs[0].deliver(*delivery)
        if number != 4:
            run.logs[1].deliver(*delivery)
    assert run.look(2) == []
    assert run.look(1 + LATE_S - 1) == []
    assert run.look(1 + LATE_S + 1) == ["lost"]
    judgement = run.judge.conclude()
    assert judgement.verdict.lost == 1
    assert not judgement.fine


def test_what_comes_late_but_in_time_is_not_lost() -> None:
    run = Run()
    deliveries = run.events(10)
    for delivery in deliveries:
        run.logs[0].deliver(*delivery)
    assert run.look(2) == []
    for delivery in deliveries:
        run.logs[1].deliver(*delivery)
    assert run.look(9) == []
    assert run.look(12) == []
    assert run.look(30) == []
    assert run.judge.conclude().fine


def test_losses_are_told_in_a_later_part_of_a_long_run_too() -> None:
    run = Run()
    found: list[str] = []
    for second in range(1, 60):
        for delivery in run.events(5, at_s=second):
            run.logs[0].deliver(*delivery)
            if second != 40:
                run.logs[1].deliver(*delivery)
        kinds = run.look(second + 0.5)
        if kinds:
            found += [f"{second}: {kind}" for kind in kinds]
    assert found == [f"{40 + round(LATE_S)}: lost"]


def test_who_left_is_owed_nothing_of_what_came_later() -> None:
    run = Run()
    for delivery in run.events(4, at_s=1):
        for log in run.logs:
            log.deliver(*delivery)
    for region in REGIONS:
        run.journals[1].stay(Stay("s1#0", region, 0, 4, 0, 1))
    for delivery in run.events(4, at_s=2):
        run.logs[0].deliver(*delivery)
    assert run.look(3) == []
    assert run.look(20) == []
    assert run.judge.conclude().fine


def test_an_event_of_uncertain_fate_counts_as_published_once_it_is_delivered() -> None:
    run = Run()
    run.journals[0].uncertain("s0/99", "forest", "s0", NS)
    run.journals[0].uncertain("s0/100", "forest", "s0", NS)
    run.logs[0].deliver("s0/99", "forest", "s0", "1-1")
    run.deliver()
    judgement = run.judge.conclude()
    assert judgement.uncertain == 1
    assert judgement.verdict.lost == 1, "the other subscriber must have it, too"


def test_the_publishers_order_is_that_of_its_numbers_and_not_of_its_receipts() -> None:
    run = Run()
    run.journals[0].published("s0/10", "forest", "s0", "1-2", 2 * NS)
    run.journals[0].published("s0/9", "forest", "s0", "1-1", 1 * NS)
    for log in run.logs:
        log.deliver("s0/10", "forest", "s0", "1-2")
        log.deliver("s0/9", "forest", "s0", "1-1")
    run.deliver()
    assert run.judge.conclude().verdict.publisher_order_violations == 2


def test_a_chunk_that_did_not_come_makes_the_judgement_incomplete() -> None:
    run = Run()
    (first, second, third) = run.events(3)
    for log in run.logs:
        log.deliver(*first)
    run.deliver()
    for log in run.logs:
        log.deliver(*second)
    run.journals[1].take()
    for log in run.logs:
        log.deliver(*third)
    run.deliver()
    judgement = run.judge.conclude()
    assert not judgement.fine
    assert any("w1" in missing for missing in judgement.incomplete)
    assert any("s1#0" in missing for missing in judgement.incomplete)


@pytest.mark.parametrize("data", [b"", b"nothing", b"x\x9c"])
def test_a_message_that_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        Ledger().add(data)


def test_a_log_that_has_ended_is_handed_over_to_its_last_line_once() -> None:
    journal = Journal("w0")
    log = journal.log("s0#0")
    log.deliver("s0/1", "forest", "s0", "1-1")
    log.ended = True
    ledger = Ledger()
    ledger.add(journal.take())
    ledger.add(journal.take())
    assert ledger.deliveries == 1
    assert ledger.missing == []


def test_figures_are_those_of_the_last_chunk() -> None:
    journal, ledger = Journal("w0"), Ledger()
    ledger.add(journal.take(outstanding=3))
    ledger.add(journal.take(outstanding=0))
    figures: Any = ledger.figures
    assert figures == {"w0": {"outstanding": 0}}
