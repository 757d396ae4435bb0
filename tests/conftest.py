"""How the tests run side by side, and how long each may take."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.patience import Deadline, cores, slowness
from tests.side_by_side import GROUPS, SPARK, Groups, group, groups_file, tell_groups, write_durations

# How long drawing and testing take says how busy the machine is. With CI set, hypothesis sees to that itself.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if "CI" not in os.environ:
    settings.load_profile("patient")

pytest_plugins = ["tests.fixtures"]

WORKERS_A_CORE = 3
"""Most of them begin with tests that wait: see `tests.side_by_side`."""
YIELDING = 3
_LIMIT = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `tests.side_by_side` goes by."""
    parser.addoption("--write-durations", action="store_true", help="note long tests in tests/durations.json")


def pytest_xdist_auto_num_workers() -> int:
    """Some wait while others compute; -n or PYTEST_XDIST_AUTO_NUM_WORKERS say otherwise."""
    return cores() * WORKERS_A_CORE


def pytest_configure() -> None:
    """Let what tests start be interrupted, also where this was started with nohup or in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure_node(node: Any) -> None:
    """Tell a worker where to leave the groups of the tests."""
    node.workerinput[GROUPS] = str(groups_file(node.config))


@pytest.hookimpl(tryfirst=True)  # before xdist tells that this worker has collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave them there."""
    tell_groups(session.config, session.items)


@pytest.hookimpl(tryfirst=True)  # xdist makes its own otherwise
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    """Hand out tests by these groups, unless another way than the default is asked for."""
    return Groups(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let Spark, whose tests follow each other in one worker, have the processors when it wants them."""
    if hasattr(item.config, "workerinput") and group(item) != SPARK and os.nice(0) == 0:
        os.nice(YIELDING)


_seconds: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long each test takes, set-up and all."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + round(report.duration, 2)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep it for those who run the tests next."""
    if session.config.getoption("--write-durations") and not hasattr(session.config, "workerinput"):
        write_durations(_seconds)


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Have pytest-timeout's limit count what the machine had time for."""
    if settings.method != "signal":
        return None
    from pytest_timeout import timeout_sigalrm

    item.stash[_LIMIT] = settings
    deadline = Deadline(settings.timeout)

    def look(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if (left_s := deadline.look()) > 0:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, left_s * slowness()))
        else:
            _tell_tasks()
            signal.setitimer(signal.ITIMER_REAL, settings.timeout)  # clearing up may hang as well
            timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limit what clears up after a test that has failed, too: pytest-timeout lets go of its limit when one fails."""
    if _LIMIT in item.stash and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        pytest_timeout_set_timer(item, item.stash[_LIMIT])
    return (yield)


def _tell_tasks() -> None:
    """Print where the tasks of the event loop are: all that the stack says of them is that the loop waits."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # none runs
        return
    for task in tasks:
        task.print_stack(file=sys.stderr)
