"""The report of a run that was kept, broken, or cannot be told: its verdict, figures, and what it keeps secret."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from loadtest.course import SPANS_MAX, Course, bucket_of, percentiles_ms
from loadtest.options import shown_command
from loadtest.page import render, verdict_of
from tests.unit.loadtest.test_loadtest_conductor import NS, Play


def played(*, order: tuple[int, ...] = (0, 1, 2), seconds: int = 10, workers: int = 1) -> Play:
    """A run to its end, in which the second subscriber delivers in this order."""
    play = Play(seconds=seconds, workers=workers, gateway="https://user:secret@host")
    while play.second() is not None:
        if play.now_s < seconds:
            play.deliver(order)
            for _ in range(2 * len(order)):
                play.journal.took(2 + play.now_s, round(play.now_s * NS))
    return play


def headline(page: str) -> tuple[str, str, str]:
    """Return the colour, the verdict and the reason of a page."""
    found = re.search(r'<header class="(\w+)">.*<h1>(.*)</h1><p>(.*?)</p>', page, re.DOTALL)
    assert found is not None
    return found[1], found[2], found[3]


def cards(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))


def test_a_run_that_kept_every_guarantee_says_so_first() -> None:
    page = render(played().conductor, locust="locust.html")
    assert headline(page) == (
        "kept", "Kept", "All 54 deliveries came once and in one order, and none is missing."
    )  # fmt: skip
    shown = cards(page)
    assert (shown["Events published"], shown["Delivered"], shown["Lost"], shown["Repeated"]) == ("27", "54", "0", "0")
    assert shown["Delay p50"].startswith("≤ 7.")
    assert "Who or what broke" not in page
    assert "What went wrong" not in page
    assert 'href="locust.html"' in page
    assert page.count('role="img"') == 2


def test_a_run_with_an_inversion_is_broken_and_names_who_saw_it() -> None:
    conductor = played(order=(0, 2, 1)).conductor
    page = render(conductor)
    colour, verdict, reason = headline(page)
    assert (colour, verdict) == ("broken", "Broken")
    assert "s0#0 delivered" in reason
    assert "s1#0 delivered" in reason
    assert int(cards(page)["Inversions"]) > 0
    assert "Who or what broke" in page
    assert page.count("violation seen") == 2, "each chart has the moment"
    assert "Locust" not in page, "no link to a page that is not there"


def test_a_run_without_the_reports_of_a_worker_cannot_be_told() -> None:
    conductor = played(workers=2).conductor
    page = render(conductor)
    colour, verdict, reason = headline(page)
    assert (colour, verdict) == ("unknown", "Cannot be told")
    assert "1 of 2 processes did not send their last chunk" in reason
    assert "What went wrong" in page


def test_a_run_that_was_stopped_cannot_be_told_since_losses_were_not_judged() -> None:
    play = Play()
    for _ in range(3):
        play.second()
        play.deliver(range(5))
    play.conductor.interrupt()
    assert verdict_of(play.conductor)[0] == "unknown"
    assert cards(render(play.conductor))["Lost"] == "not judged"


def test_failed_requests_are_named_beside_a_verdict_of_kept() -> None:
    play = played()
    play.conductor.ledger.failures["publish", "socket", "no <room>"] += 3
    page = render(play.conductor)
    assert headline(page)[2].endswith("but 3 requests failed.")
    assert "no &lt;room&gt;" in page


def test_errors_and_delays_reach_the_page_by_the_reports_of_the_users() -> None:
    play = Play()
    play.journal.failed("join", "embedded", "timed out")
    play.journal.took(5.0, 7 * NS)
    play.second()
    ledger = play.conductor.ledger
    assert ledger.failures == {("join", "embedded", "timed out"): 1}
    assert percentiles_ms(ledger.course.delays())["p99"] == pytest.approx(5, rel=0.02)


def test_the_page_has_no_password_and_no_token() -> None:
    assert "secret" not in render(played().conductor)
    command = ["--network", "redis://u:secret@host", "--gateway=https://g", "--token", "secret", "--token=secret"]
    said = shown_command("gamecast loadtest", [*command, "--seconds", "5"])
    assert said == (
        "gamecast loadtest --network 'redis://u:***@host' --gateway=https://g --token '***' '--token=***' --seconds 5"
    )


def test_a_long_run_has_longer_spans_and_loses_no_count() -> None:
    course = Course()
    for second in range(10 * SPANS_MAX):
        course.published(1_000_000 + second)
        course.delivered(1_000_000 + second, {bucket_of(2.0): 3})
    spans = list(course.in_order())
    assert len(spans) <= SPANS_MAX
    assert course.span_s == 16
    assert sum(span.published for _, span in spans) == 10 * SPANS_MAX
    assert course.delays().total() == 30 * SPANS_MAX


def test_percentiles_are_upper_bounds_within_two_percent() -> None:
    delays_ms = [0.2 * number for number in range(1, 1001)]
    found = percentiles_ms(Counter(map(bucket_of, delays_ms)))
    for name, exact in {"p50": 100.0, "p95": 190.0, "p99": 198.0}.items():
        assert exact <= found[name] <= exact * 1.021
    assert percentiles_ms({}) == {}
