"""Which tests go to which worker of pytest-xdist, and when.

Some workers begin with tests that compute, the others with tests that mostly wait; each takes what takes longest first,
by `tests/durations.json`. Tests that share something dear run in one worker: Spark, or a fixture of their module. Short
tests of a file travel together, so that handing them out costs little.

A worker collects the tests and so knows their fixtures; the scheduler, in the process that leads, knows only their
names. So the first worker leaves a file that says of each test which group it is in. (xdist's own groups travel in the
names, which pytest 9.2 no longer lets it change.)
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from demo.patience import cores

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]
DURATIONS = Path(__file__).with_name("durations.json")
"""How long tests took, in seconds, by their names: those of `LONG_S` and more.

``./dev test --all --write-durations`` writes it.
"""
LONG_S = 1.0
SHORT_S = {"integration": 0.3, "acceptance": 0.3}
"""Folder of tests that mostly wait, for Redis, for other processes, for the clock → how long a short one takes."""
COMPUTING_S = 0.05
TOGETHER = 16
"""How many short tests of a file are handed out at once."""
GROUPS = "gamecast_groups"
WORKER = "gw"
FIRST_WORKER = f"{WORKER}0"
SPARK = "spark"


class Groups(LoadScopeScheduling):  # type: ignore[misc] # xdist comes without types
    """Hands out tests group by group, the longest first; those that compute to one of the workers for two cores.

    So there is something to compute to the end, while the others wait.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._durations_s = read_durations()

    @cached_property
    def _group_of(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(groups_file(self.config).read_text(encoding="utf-8"))
        return found

    @cached_property
    def _queues(self) -> dict[bool, list[str]]:
        """Whether they wait → groups, the longest last."""
        ordered = sorted(self.workqueue, key=self._seconds)
        return {waits: [group for group in ordered if self._waits(group) is waits] for waits in (False, True)}

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of.get(nodeid, nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        waiting = int(node.gateway.id.removeprefix(WORKER)) >= max(1, cores() // 2)
        chosen = self._longest(waiting) or self._longest(not waiting) or next(iter(self.workqueue))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _longest(self, waiting: bool) -> str | None:
        queue = self._queues[waiting]
        while queue:
            if (group := queue.pop()) in self.workqueue:
                return group
        return None

    def _waits(self, group: str) -> bool:
        return _layer(next(iter(self.workqueue[group]))) in SHORT_S

    def _seconds(self, group: str) -> float:
        return sum(
            self._durations_s.get(name) or SHORT_S.get(_layer(name), COMPUTING_S) for name in self.workqueue[group]
        )


def _layer(name: str) -> str:
    return name.removeprefix("tests/").removeprefix("laboratory/").partition("/")[0]


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
        Path(told[GROUPS]).write_text(json.dumps(_grouped(items)), encoding="utf-8")


def _grouped(items: list[pytest.Item]) -> dict[str, str]:
    durations_s, seen = read_durations(), Counter[str]()
    groups = dict[str, str]()
    for item in items:
        if (found := group(item)) is not None:
            groups[item.nodeid] = found
        elif item.nodeid not in durations_s:
            file = item.nodeid.partition("::")[0]
            groups[item.nodeid] = f"{file} {seen[file] // TOGETHER}"
            seen[file] += 1
    return groups


def read_durations() -> dict[str, float]:
    """Return how long the long tests took, in seconds, by their names."""
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
    return found


def write_durations(seconds: dict[str, float]) -> None:
    """Put what tests took into the file. What did not run keeps what stands there, if it still exists."""
    known = {name: took for name, took in read_durations().items() if exists(name)} | seconds
    long = {name: took for name, took in sorted(known.items()) if took >= LONG_S}
    DURATIONS.write_text(json.dumps(long, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def exists(name: str) -> bool:
    """Whether there is a test function of this name, whatever its parameters; for ``file::test_``, one at all."""
    file, _, function = name.partition("::")
    definition = "def test_" if function == "test_" else f"def {function.partition('[')[0]}("
    return (ROOT / file).is_file() and definition in (ROOT / file).read_text(encoding="utf-8")


_DIRECTORY = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
