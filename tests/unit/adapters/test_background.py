"""No background task ends unnoticed."""

from __future__ import annotations

import logging

import pytest

from adapters.background import keep_running


async def test_work_that_raises_is_logged_with_its_traceback_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[int] = []
    failures: list[Exception] = []

    async def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise KeyError("junk")

    with caplog.at_level(logging.ERROR, "gamecast"):
        await keep_running(work, name="gamecast work", on_failure=failures.append)
    assert (len(begun), len(failures)) == (3, 2)
    [said] = caplog.records
    assert (said.getMessage(), said.exc_info is not None) == ("gamecast work failed, and begins again", True)
