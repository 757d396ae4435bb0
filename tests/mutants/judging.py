"""Judge mutants within pytest: it collects the tests once, and each mutant runs them in a fork until one fails."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from sequencing.identity import KeptFor
from tests.mutants.operators import Mutant

ROOT = Path(__file__).resolve().parents[2]
CORE = str(ROOT / "sequencing")
BYTES_MAX = 6 << 30
SPARE_S = 1.0
"""A test may take four times its time on the core as it is, and so much more; of the processor's time."""

Name = tuple[str, str, str, str, int]


@dataclass
class Judge:
    """A pytest plugin that runs mutants in place of the tests; ``killers``: mutant → the test that noticed it."""

    mutants: Sequence[Mutant]
    jobs: int
    known: dict[Name, str]
    """What noticed a mutant in an earlier run: it is tried first."""
    save: Callable[[dict[Name, str]], None]
    """Called now and then, and at the end, with what was found: the test that noticed each mutant, or none."""
    killers: dict[Name, str] = field(default_factory=dict)
    survivors: list[Mutant] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _costs: dict[str, float] = field(default_factory=dict)
    _calling: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(file, function) → the tests that call it."""
    _kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(function or file, test) → how many mutants it noticed there."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each test once as the core is, then all mutants."""
        self._items = {item.nodeid: item for item in session.items}
        began_s = time.monotonic()
        for item in session.items:
            self._measure(item)
        say(f"{len(self._items)} tests pass in {sum(self._costs.values()):.0f} s ({time.monotonic() - began_s:.0f} s)")
        gc.collect()
        gc.freeze()
        self._judge_all()
        return True

    def _measure(self, item: pytest.Item) -> None:
        called: set[CodeType] = set()

        def note(frame: FrameType, event: str, argument: Any) -> None:
            called.add(frame.f_code)

        forget_what_is_kept()
        began_s = time.process_time()
        sys.settrace(note)
        reports = runtestprotocol(item, nextitem=None, log=False)
        sys.settrace(None)
        if any(report.failed for report in reports):
            raise pytest.UsageError(f"{item.nodeid} fails on the core as it is")
        self._costs[item.nodeid] = time.process_time() - began_s
        for code in called:
            if code.co_filename.startswith(CORE):
                file = str(Path(code.co_filename).relative_to(ROOT))
                self._calling[file, code.co_qualname.partition(".<locals>")[0]].add(item.nodeid)

    def _judge_all(self) -> None:
        waiting = list(reversed(self.mutants))
        running: dict[int, tuple[int, Mutant, list[str]]] = {}
        began_s = said_s = time.monotonic()
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                tests = self._tests(mutant)
                reading, pid = self._start(mutant, tests)
                running[reading] = pid, mutant, tests
            for reading in select.select(list(running), [], [])[0]:
                if told := os.read(reading, 65536):
                    tests = running[reading][2]
                    tests[:] = tests[told.count(b".") :]  # those that passed
                    continue
                pid, mutant, tests = running.pop(reading)
                os.close(reading)
                _, status = os.waitpid(pid, 0)
                self._note(mutant, tests, status)
            if time.monotonic() - said_s > 20:
                said_s = time.monotonic()
                done = len(self.killers) + len(self.survivors)
                say(f"{done} of {len(self.mutants)}, {len(self.survivors)} survive, {said_s - began_s:.0f} s")
                self.save(self.found())
        self.save(self.found())

    def found(self) -> dict[Name, str]:
        """Return what noticed each mutant, empty where nothing did."""
        return self.killers | {mutant.name: "" for mutant in self.survivors}

    def _note(self, mutant: Mutant, tests: list[str], status: int) -> None:
        if status == 0:
            self.survivors.append(mutant)
            return
        killer = tests[0]
        self.killers[mutant.name] = killer
        self._kills[f"{mutant.file} {mutant.function}", killer] += 1
        self._kills[mutant.file, killer] += 1

    def _tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that call what has changed, first those that are likely to notice soon."""
        classes = mutant.function.split(".")
        is_function = bool(mutant.function) and not classes[-1].lstrip("_")[0].isupper()
        tests = self._calling[mutant.file, mutant.function] if is_function else self._items
        here = f"{mutant.file} {mutant.function}"

        def promise(test: str) -> float:
            kills = 0.02 + self._kills[here, test] + 0.2 * self._kills[mutant.file, test]
            return -kills / (self._costs[test] + 0.01)

        first = self.known.get(mutant.name, "")
        return sorted(tests, key=lambda test: (test != first, promise(test)))

    def _start(self, mutant: Mutant, tests: Sequence[str]) -> tuple[int, int]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return reading, pid
        status = 1
        try:
            os.close(reading)
            status = self._run(mutant, tests, writing)
        except BaseException:  # noqa: BLE001 - whatever a mutant does to the tests is noticed
            status = 1
        os._exit(status)

    def _run(self, mutant: Mutant, tests: Sequence[str], writing: int) -> int:
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, SPARE_S)
        plant(mutant)
        for test in tests:
            signal.setitimer(signal.ITIMER_PROF, SPARE_S + 4 * self._costs[test])
            forget_what_is_kept()
            if any(report.failed for report in runtestprotocol(self._items[test], nextitem=None, log=False)):
                return 1
            os.write(writing, b".")
        return 0


def plant(mutant: Mutant) -> None:
    """Change the module of a mutant in this process, wherever it is in use already."""
    file = ROOT / mutant.file
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    changed: dict[str, Any] = {"__name__": module.__name__, "__file__": str(file)}
    before = {name: value for name, value in vars(module).items() if isinstance(value, int | str | bytes | tuple)}
    compiled = compile(mutant.applied(file.read_bytes()), str(file), "exec")
    with registered(changed, module.__name__):
        exec(compiled, changed)
    theirs = dict(functions_in(changed, module.__name__))
    for name, function in functions_in(vars(module), module.__name__):
        if name in theirs:
            function.__code__ = theirs[name].__code__
            function.__defaults__ = theirs[name].__defaults__
            function.__kwdefaults__ = theirs[name].__kwdefaults__
    for name, value in before.items():
        if not name.startswith("__") and changed[name] != value:
            for other in list(sys.modules.values()):
                if getattr(other, name, None) is value:
                    setattr(other, name, changed[name])


@contextlib.contextmanager
def registered(namespace: dict[str, Any], name: str) -> Iterator[None]:
    """Have dataclasses find the module of their annotations."""
    before = sys.modules[name]
    stand_in = type(sys)(name)
    stand_in.__dict__.update(namespace)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        sys.modules[name] = before


def functions_in(namespace: dict[str, Any], module: str) -> Iterator[tuple[str, FunctionType]]:
    """Yield all functions of a module, those of its classes too, by their qualified names."""
    for name, value in namespace.items():
        if isinstance(value, type):
            if value.__module__ == module:
                for member, inner in vars(value).items():
                    for number, function in enumerate(bare(inner)):
                        yield f"{name}.{member}.{number}", function
        else:
            for number, function in enumerate(bare(value)):
                if function.__module__ == module:
                    yield f"{name}.{number}", function


def bare(value: Any) -> Iterator[FunctionType]:
    """Yield what a decorator has wrapped."""
    match value:
        case FunctionType():
            yield value
            if (inner := getattr(value, "__wrapped__", None)) is not None:
                yield from bare(inner)
        case property():
            yield from bare(value.fget)
        case KeptFor():
            yield from bare(value._make)
        case staticmethod() | classmethod():
            yield from bare(value.__func__)
        case type():
            pass
        case _:
            for inner in (getattr(value, "__wrapped__", None), getattr(value, "func", None)):
                if isinstance(inner, FunctionType):
                    yield inner


def forget_what_is_kept() -> None:
    """Empty the caches of the core, so that each test does all that it depends on."""
    for forget in caches():
        forget()


_found: list[Callable[[], object]] = []


def caches() -> Sequence[Callable[[], object]]:
    """Return what empties each cache of the core."""
    if not _found:
        for name, module in list(sys.modules.items()):
            if name.startswith("sequencing."):
                for value in vars(module).values():
                    if isinstance(value, KeptFor):
                        _found.append(partial(setattr, value, "_kept", ()))
                    elif hasattr(value, "cache_clear"):
                        _found.append(value.cache_clear)
    return _found


def say(what: str) -> None:
    """Tell how far it is."""
    sys.__stderr__.write(f"mutants: {what}\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]
