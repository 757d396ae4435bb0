"""What an exception that ends a process says of itself: a status, and one line."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest
import redis.exceptions

from launcher.ending import BUG, INFRASTRUCTURE, ended


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.TimeoutError("Timeout reading from 127.0.0.1:1"),
        redis.exceptions.ConnectionError("refused"),
        redis.exceptions.BusyLoadingError("loading"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_redis_server_that_does_not_answer_is_no_bug(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> NoReturn:
        raise error

    assert ended(work, name="gamecast") == INFRASTRUCTURE
    assert capsys.readouterr().err == f"gamecast: a Redis server does not answer: {error}\n"


def test_a_bug_is_told_once_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> NoReturn:
        raise redis.exceptions.ResponseError("unknown command")

    assert ended(lambda: sys.exit(ended(work, name="gamecast")), name="gamecast") == BUG
    told = capsys.readouterr().err
    assert told.count("Traceback") == 1
    assert told.endswith(
        "gamecast: this is a bug in gamecast, please report the traceback above: ResponseError: unknown command\n"
    )
