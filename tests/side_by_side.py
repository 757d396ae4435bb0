"""Which tests go to which worker of pytest-xdist: those that share something dear together; to half of the workers the
long ones first, which mostly compute, and to the others the short ones, which mostly wait.

A worker collects the tests and so knows their fixtures; the scheduler, in the process that leads, knows only their
names. So the first worker leaves a file that says of each test which group it is in. (xdist's own groups travel in the
names, which pytest 9.2 no longer lets it change.)
"""

from __future__ import annotations

import json
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

GROUPS = "gamecast_groups"
WORKER = "gw"
FIRST_WORKER = f"{WORKER}0"
SPARK = "spark"
SECONDS = "gamecast/seconds"
"""In pytest's cache: how long each test took when it last ran."""
LONG = {
    **dict.fromkeys(("acceptance/test_operations", "integration/test_analytics_connect"), 60.0),
    **dict.fromkeys(("acceptance/test_analyze", "acceptance/test_demo_wan", "integration/test_analytics_demo"), 40.0),
    **dict.fromkeys((f"acceptance/test_{name}" for name in ("chaos", "demo", "demo_roaming")), 20.0),
    **dict.fromkeys((f"integration/test_{name}" for name in ("loadtest", "dashboard_page", "bench_all")), 20.0),
    **dict.fromkeys((f"integration/test_{name}" for name in ("bench_memory", "bench_embedding", "node_script")), 10.0),
    **dict.fromkeys((f"unit/test_{name}" for name in ("placing", "bench_arrangements", "simulate_paper_cli")), 5.0),
}
"""File of tests, below this folder → how long one of them takes, about; where nobody knows better. Others take 1 s."""


class Groups(LoadScopeScheduling):  # type: ignore[misc] # xdist comes without types
    """Hands out tests group by group, by how long each took the last time."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._took_s = _remembered(config)

    @cached_property
    def _group_of(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(groups_file(self.config).read_text(encoding="utf-8"))
        return found

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of.get(nodeid, nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix(WORKER))
        choose = min if number % 2 else max
        chosen = choose(self.workqueue, key=self._seconds)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _seconds(self, group: str) -> float:
        return sum(self._took_s.get(name) or _guess_s(name) for name in self.workqueue[group])


def _guess_s(name: str) -> float:
    return LONG.get(name.partition("::")[0].removeprefix("tests/").removesuffix(".py"), 1.0)


def group(item: pytest.Item) -> str | None:
    """Return what the tests have in common that should run in one worker with this one."""
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        return SPARK
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    if any(definitions[name][-1].scope == "module" for name in fixtures if name in definitions):
        return item.nodeid.partition("::")[0]
    return None


def groups_file(config: pytest.Config) -> Path:
    """Return where the first worker tells the groups, in the process that leads."""
    directory = config.stash.get(_DIRECTORY, None)
    if directory is None:
        directory = config.stash[_DIRECTORY] = tempfile.TemporaryDirectory(prefix="gamecast-tests-")
        config.add_cleanup(directory.cleanup)
    return Path(directory.name) / "groups.json"


def tell_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the first worker, write down the groups."""
    told: dict[str, Any] = getattr(config, "workerinput", {})
    if told.get("workerid") == FIRST_WORKER:
        groups = {item.nodeid: found for item in items if (found := group(item)) is not None}
        Path(told[GROUPS]).write_text(json.dumps(groups), encoding="utf-8")


def remember_seconds(config: pytest.Config, seconds: dict[str, float]) -> None:
    """Keep how long tests took, for the next run."""
    cache = getattr(config, "cache", None)  # -p no:cacheprovider
    if cache is not None and seconds:
        cache.set(SECONDS, _remembered(config) | seconds)


def _remembered(config: pytest.Config) -> dict[str, float]:
    cache = getattr(config, "cache", None)
    found: dict[str, float] = {} if cache is None else cache.get(SECONDS, {})
    return found


_DIRECTORY = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
