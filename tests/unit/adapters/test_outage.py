"""What is logged of an outage: its begin, seldom that it lasts, and its end."""

from __future__ import annotations

import logging

import pytest

from adapters.outage import REPEAT_S, Outage


def test_an_outage_is_a_line_at_its_begin_one_now_and_then_and_one_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    outage = Outage(logging.getLogger("gamecast.test"), "manager", lambda: now)
    for _ in range(1000):
        outage.failed(ValueError("away"))
        now += 0.1
    outage.over()
    outage.over()
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "manager: ValueError('away')"
    assert len(said) == 2 + 100 // REPEAT_S
    assert said[1].startswith(f"manager: still failing after {REPEAT_S:.0f} s (")
    assert said[-1] == "manager: works again, after 100.0 s"


def test_a_failure_alone_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("gamecast.test"), "relay")
    outage.failed(ValueError("late"))
    outage.over()
    assert [record.getMessage() for record in caplog.records] == ["relay: ValueError('late')"]
