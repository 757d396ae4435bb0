"""How the tests run side by side, and how long each may take."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import pytest

from tests.patience import Deadline, cores, slowness

WAITING = ("integration", "acceptance")
"""Folders whose tests mostly wait: for Redis, for other processes, for the clock."""
WORKERS_A_CORE = 3


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker a core, and more where they wait; -n or PYTEST_XDIST_AUTO_NUM_WORKERS say otherwise."""
    waiting = any(folder in argument for argument in config.args for folder in WAITING)
    return cores() * (WORKERS_A_CORE if waiting else 1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture for longer than one test run in one worker: there is one Spark, and one of each."""
    for item in items:
        shared = getattr(item, "fixturenames", ())
        definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        if "spark" in shared:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif any(definitions[name][-1].scope == "module" for name in shared if name in definitions):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Have pytest-timeout's limit count what the machine had time for."""
    if settings.method != "signal":
        return None
    from pytest_timeout import timeout_sigalrm

    deadline = Deadline(settings.timeout)

    def look(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if (left_s := deadline.look()) > 0:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, left_s * slowness()))
        else:
            timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True
