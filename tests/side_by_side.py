"""Which tests go to which worker of pytest-xdist: those that share something dear together, and the long ones first.

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
FIRST_WORKER = "gw0"
SECONDS = "gamecast/seconds"
"""In pytest's cache: how long each test took when it last ran."""


class Groups(LoadScopeScheduling):  # type: ignore[misc] # xdist comes without types
    """Hands out tests group by group, what took longest the last time first."""

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
        longest = max(
            self.workqueue, key=lambda group: sum(self._took_s.get(name, 0.0) for name in self.workqueue[group])
        )
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def group(item: pytest.Item) -> str | None:
    """Return what the tests have in common that should run in one worker with this one."""
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        return "spark"
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
