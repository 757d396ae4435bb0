"""Which workloads are compared on, and one row of figures for each protocol on each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.process import Process
from laboratory.comparison.atoms import Atoms
from laboratory.comparison.measure import measure
from laboratory.comparison.workload import Kind, Workload, draw_workload
from laboratory.processes.pool import mapped
from placement.topologies.reading import read_topology
from placement.topology import Topology
from sequencing.errors import UsageError

COMPARED: dict[str, type[Process]] = {"atoms": Atoms, **PROTOCOLS}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """The common part of all cases. ``file``: a topology, None for a drawn one; ``rtt``, ``weight``: how to read it."""

    kind: Kind
    group_size: int
    seconds: float
    seed: int
    file: Path | None = None
    rtt: bool = False
    weight: str | None = None

    def topology(self) -> Topology | None:
        """Read the file; raises an error for an invalid one."""
        return read_topology(self.file, rtt=self.rtt, weight=self.weight) if self.file is not None else None


@dataclass(frozen=True, slots=True)
class Case:
    """A case: the number of processes, of groups, and of events/s that each process publishes."""

    processes: int
    groups: int
    rate: float

    def __str__(self) -> str:
        plural = "s" if self.groups > 1 else ""
        return f"{self.processes} processes, {self.groups} group{plural}, {self.rate:g} events/s each"


def star(processes: Sequence[int], groups: Sequence[int], rates: Sequence[float]) -> list[Case]:
    """Return cases in which one number at a time differs from the first ones.

    One group and several are two worlds, for many protocols know one group only: the first number of groups above 1
    has its own growth beside that of one group.
    """
    bases = [number for number in groups if number == 1] + [number for number in groups if number > 1][:1]
    cases = [Case(processes[0], number, rates[0]) for number in groups]
    for base in bases:
        cases += (Case(size, base, rates[0]) for size in processes)
        cases += (Case(processes[0], base, rate) for rate in rates)
    return list(dict.fromkeys(cases))


def run(names: Sequence[str], cases: Sequence[Case], world: World, jobs: int) -> Iterator[Row]:
    """Return the rows of each case, protocol by protocol; a protocol that does not fit says why in its row."""
    work = [(name, case) for case in cases for name in names]
    measured = partial(_measure, world)
    return mapped(measured, work, jobs=jobs)


@lru_cache(maxsize=4)
def workload(world: World, case: Case) -> Workload:
    """Return a case's workload."""
    return draw_workload(
        processes=case.processes,
        groups=case.groups,
        group_size=world.group_size,
        rate=case.rate,
        seconds=world.seconds,
        seed=world.seed,
        kind=world.kind,
        topology=_topology(world),
    )


@lru_cache(maxsize=1)
def _topology(world: World) -> Topology | None:
    return world.topology()


def _measure(world: World, job: tuple[str, Case]) -> Row:
    name, case = job
    drawn = workload(world, case)
    row: Row = {"protocol": name, "processes": case.processes, "groups": case.groups, "rate": case.rate}
    row["overlaps"] = drawn.overlaps
    try:
        return row | measure(COMPARED[name], drawn).as_dict()
    except UsageError as error:
        return row | {"not_applicable": str(error)}
