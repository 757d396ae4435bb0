"""The figures of a world: overlaps, atoms, stamps, loads of nodes, joins, and what planning takes.

Loads are also given in *cores*, by the costs that docs/performance.md has for Redis: a node is one thread, so a node
of more than 1 core is too much. A server publishes at each of its `TICKS_PER_S` ticks at most one frame in a region.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from laboratory.processes.worker import Worker
from placement.planner import make_plan_and_report
from placement.planning.worlds import FloatArray, IntArray, World, WorldSpec, joined, made, walked
from sequencing.errors import ProcessFailed
from sequencing.overlap_index import OverlapIndex
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Plan

FRAME_US = 22.0
"""Time of the ingress's script for a lone frame (docs/performance.md, "Keys, conditions …"); taken for each hop."""
PUSH_US = 14.0
"""CPU of Redis to push a lone frame to one connection: 14 ms for 1,000 (docs/performance.md, "All in one command")."""
EVENT_US = 0.7
"""CPU of a node for an event of a full frame (docs/performance.md, "Paths over several nodes")."""
TICKS_PER_S = 20.0
JOINS_ONE_PROCESS = 1_300.0
"""Joins/s that were measured with all servers in one process, which is then the bottleneck."""
JOIN_REDIS_MS, JOIN_MANAGER_MS = 0.24, 0.05
"""CPU of a join in the control Redis and in the manager; each is one thread."""
JOINS_REDIS, JOINS_MANAGER = 1_000 / JOIN_REDIS_MS, 1_000 / JOIN_MANAGER_MS
STAMPED_S = 3_600.0
"""Stamps are those of the network's first hour's end: numbers grow, and so do stamps."""
MOVES_MAX = 5_000
MIB = 1 << 20

Balance = Literal["events", "cost"]
"""What the planner takes for a region's load: its events/s, or the time that it takes of a node (`region_us`)."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """A plan of a world. ``busiest_*``: of the node that carries most of it, which may be another for each figure.

    ``used``: the nodes that have a path. ``atoms_per_path``, ``path_nodes``, ``stamp_bytes``: means over frames;
    ``stamp_bytes_max``: of any region.
    """

    nodes: int
    used: int
    seconds: float
    peak_mib: float
    atoms: int
    atoms_per_path: float
    path_nodes: float
    stamp_bytes: float
    stamp_bytes_max: int
    busiest_events_per_s: float
    busiest_cores: float


@dataclass(frozen=True, slots=True)
class WorldFigures:
    """A world and its plans. ``move_us``: CPU of a leave and a join in `OverlapIndex`; ``new_overlaps``: a join's.

    ``component``: the largest part of the regions that are ordered together; ``unfinished``: why plans are missing.
    """

    spec: WorldSpec
    subscriptions: int
    subscribers_max: int
    overlaps: int
    component: float
    events_per_s: float
    frames_per_s: float
    pushes_per_s: float
    hottest_cores: float
    joins_per_s: float
    move_us: float
    new_overlaps: float
    world_s: float
    overlaps_s: float
    peak_mib: float
    plans: tuple[PlanCost, ...] = ()
    unfinished: str = ""


def frames_per_s(world: World) -> FloatArray:
    """Return the frames/s of each cell: of a server whose players cause λ events in a tick, 1 − e^−λ a tick."""
    spec = world.spec
    pairs, players = np.unique(world.server * spec.cells + world.cell, return_counts=True)
    frames = TICKS_PER_S * -np.expm1(-players * spec.events / TICKS_PER_S)
    return np.bincount(pairs % spec.cells, weights=frames, minlength=spec.cells).astype(np.float64)


def region_us(world: World) -> FloatArray:
    """Return the µs a second that each cell takes of a node that is all of its path."""
    frames = frames_per_s(world)
    return frames * (FRAME_US + world.membership.incidence.sum(axis=0) * PUSH_US) + world.events_per_s * EVENT_US


def atom_pairs(plan: Plan, names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return each atom's regions: the places of atoms in the plan, and of regions in ``names``, a pair each."""
    place_of = {name: place for place, name in enumerate(names)}
    sizes = np.fromiter((len(atom.regions) for atom in plan.atoms), np.int64, len(plan.atoms))
    regions = chain.from_iterable(atom.regions for atom in plan.atoms)
    return np.repeat(np.arange(len(sizes)), sizes), np.fromiter(map(place_of.__getitem__, regions), np.int64)


def stamp_bytes(plan: Plan, names: Sequence[str], frames: FloatArray, seconds: float) -> IntArray:
    """Return the bytes of a frame's stamp for each region, after some seconds of so many frames/s.

    A stamp is written ``0,NUMBER`` and ``,ATOM,NUMBER`` for each atom passed (`sequencing.frames`).
    """
    atom, region = atom_pairs(plan, names)
    passed = np.bincount(atom, weights=frames[region], minlength=len(plan.atoms)) * seconds
    ids = np.fromiter((each.id for each in plan.atoms), np.int64, len(plan.atoms))
    of_atom = 2 + _digits(ids) + _digits(passed)
    number_of = {node: place for place, node in enumerate(plan.nodes)}
    egress = np.fromiter((number_of[plan.paths[name][-1]] for name in names), np.int64, len(names))
    ended = np.bincount(egress, weights=frames, minlength=len(number_of)) * seconds
    own: IntArray = 2 + _digits(ended)[egress]
    return own + np.bincount(region, weights=of_atom[atom], minlength=len(names)).astype(np.int64)


def plan_cost(world: World, plan: Plan, *, seconds: float = 0.0, peak_mib: float = 0.0) -> PlanCost:
    """Return the figures of a world's plan; ``seconds`` and ``peak_mib``: what making it took."""
    names, events, frames = world.membership.regions, world.events_per_s, frames_per_s(world)
    pushes = frames * world.membership.incidence.sum(axis=0)
    number_of = {node: place for place, node in enumerate(plan.nodes)}
    lengths = np.fromiter((len(plan.paths[name]) for name in names), np.int64, len(names))
    steps = np.fromiter((number_of[node] for name in names for node in plan.paths[name]), np.int64)
    ends = steps[np.cumsum(lengths) - 1]
    handled = np.bincount(steps, weights=np.repeat(events, lengths), minlength=len(number_of))
    busy_us = np.bincount(steps, weights=np.repeat(frames, lengths) * FRAME_US, minlength=len(number_of))
    busy_us += np.bincount(ends, weights=pushes * PUSH_US, minlength=len(number_of)) + handled * EVENT_US
    atoms = np.bincount(atom_pairs(plan, names)[1], minlength=len(names))
    stamps = stamp_bytes(plan, names, frames, STAMPED_S)
    live = frames > 0
    weights = frames / frames.sum() if live.any() else np.zeros(len(names))
    return PlanCost(
        nodes=len(plan.nodes),
        used=len(np.unique(steps)),
        seconds=seconds,
        peak_mib=peak_mib,
        atoms=len(plan.atoms),
        atoms_per_path=float(atoms @ weights),
        path_nodes=float(lengths @ weights),
        stamp_bytes=float(stamps @ weights),
        stamp_bytes_max=int(stamps[live].max(initial=0)),
        busiest_events_per_s=float(handled.max()),
        busiest_cores=float(busy_us.max() / 1e6),
    )


def world_figures(world: World, *, world_s: float = 0.0) -> WorldFigures:
    """Return a world's own figures, without plans. ``world_s``: seconds that making it took."""
    incidence = world.membership.incidence
    begun = time.perf_counter()
    overlaps = count_double_overlaps(world.membership)
    overlaps_s = time.perf_counter() - begun
    peak_mib = peak_bytes() / MIB
    frames, subscribers = frames_per_s(world), incidence.sum(axis=0)
    move_us, new_overlaps = _move_cost(world)
    return WorldFigures(
        spec=world.spec,
        subscriptions=int(incidence.nnz),
        subscribers_max=int(subscribers.max(initial=0)),
        overlaps=overlaps,
        component=_component(incidence),
        events_per_s=float(world.events_per_s.sum()),
        frames_per_s=float(frames.sum()),
        pushes_per_s=float(frames @ subscribers),
        hottest_cores=float(region_us(world).max() / 1e6),
        joins_per_s=world.joins_per_s,
        move_us=move_us,
        new_overlaps=new_overlaps,
        world_s=world_s,
        overlaps_s=overlaps_s,
        peak_mib=peak_mib,
    )


def measured(
    spec: WorldSpec,
    nodes: Iterable[int],
    *,
    balance: Balance = "events",
    timeout_s: float,
    on_stage: Callable[[str], None] = lambda _: None,
) -> WorldFigures | None:
    """Measure a world and its plans in a process of its own, which is killed after ``timeout_s``.

    Then returns the plans made until then, None without the world's own figures; `WorldFigures.unfinished` says why.
    Calls ``on_stage`` with each stage before it begins. Blocks.
    """
    deadline = time.monotonic() + timeout_s
    figures: WorldFigures | None = None
    plans: list[PlanCost] = []
    stage, why = "starting", ""
    with Worker(_measure, spec, tuple(nodes), balance) as worker:
        while not worker.is_done:
            if not worker.pipe.poll(max(0.0, deadline - time.monotonic())):
                why = f"stopped after {timeout_s:g} s, while {stage}"
                break
            try:
                message = worker.hear()
            except ProcessFailed:
                why = f"the process ended while {stage}, perhaps for want of memory"
                break
            if isinstance(message, WorldFigures):
                figures = message
            elif isinstance(message, PlanCost):
                plans.append(message)
            elif message is not None:
                stage = message
                on_stage(stage)
    if figures is None:
        return None
    return WorldFigures(**{**_fields_of(figures), "plans": tuple(plans), "unfinished": why})


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    with suppress(OSError, ValueError, IndexError):
        # Where there is a /proc, because rusage has what the process was before it became this program.
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


def _measure(spec: WorldSpec, nodes: Sequence[int], balance: Balance, pipe: Connection) -> None:
    for message in _messages(spec, nodes, balance):
        pipe.send(("next", message))


def _messages(spec: WorldSpec, nodes: Sequence[int], balance: Balance) -> Iterator[WorldFigures | PlanCost | str]:
    yield "making the world"
    begun = time.perf_counter()
    world = made(spec)
    _ = world.membership
    world_s = time.perf_counter() - begun
    yield "counting overlaps and joins"
    yield world_figures(world, world_s=world_s)
    rates = world.rates
    if balance == "cost":
        rates = dict(zip(world.region_names, region_us(world).tolist(), strict=True))
    for count in nodes:
        yield f"planning for {count} nodes"
        begun = time.perf_counter()
        plan, _ = make_plan_and_report(
            world.membership, {f"n{number}": "" for number in range(1, count + 1)}, rates=rates
        )
        seconds = time.perf_counter() - begun
        yield plan_cost(world, plan, seconds=seconds, peak_mib=peak_bytes() / MIB)


def _fields_of(found: WorldFigures) -> Mapping[str, Any]:
    return {name: getattr(found, name) for name in WorldFigures.__slots__}


def _digits(numbers: npt.NDArray[Any]) -> IntArray:
    """Return the decimal digits of each number; a number below 1 counts as 1, the first that is drawn."""
    digits: IntArray = np.floor(np.log10(np.maximum(numbers, 1)) + 1e-12).astype(np.int64) + 1
    return digits


def _component(incidence: sparse.csr_array) -> float:
    """Return the part of the regions that is in the largest component: regions tied by common subscribers."""
    servers, cells = incidence.shape
    server, cell = incidence.nonzero()
    size = servers + cells
    tied = sparse.csr_array((np.ones(len(server), np.int8), (server, servers + cell)), shape=(size, size))
    label = csgraph.connected_components(tied, directed=False)[1][servers:]
    return float(np.bincount(label).max() / cells)


def _move_cost(world: World) -> tuple[float, float]:
    """Carry out up to `MOVES_MAX` of the next second's joins and leaves; return µs a pair, and new overlaps a join."""
    after = walked(world, 1.0)
    joins, leaves = world.named(joined(world, after))[:MOVES_MAX], world.named(joined(after, world))[:MOVES_MAX]
    if not joins or not leaves:
        return 0.0, 0.0
    index = OverlapIndex(world.membership)
    begun = time.perf_counter()
    new = sum(len(index.join(*one)) for one in joins)
    between = time.perf_counter()
    for one in leaves:
        index.leave(*one)
    ended = time.perf_counter()
    join_us, leave_us = (between - begun) * 1e6 / len(joins), (ended - between) * 1e6 / len(leaves)
    return join_us + leave_us, new / len(joins)
