"""Worlds of players that walk over a grid of regions, and the servers that run them.

*Regions* are square cells, called ``world:COLUMN:ROW``. A *player* sees the cells that a circle of `VIEW_CELLS` around
it touches, 2.5 on average. A *server* runs an equal share of the players and has the regions that its players see.

*Which players*: the servers share out the players by place, along a Hilbert curve, so a server's players are
neighbours. With ``handover`` ``never``, a player stays at its server from then on, wherever it walks; with ``place``, a
server keeps its part of the curve, and takes over the players that walk into it. With ``walked_s`` the world is taken
so many seconds after the sharing out: without handovers, the longer, the more the servers' regions mix.

The same spec makes the same world.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt
from scipy import sparse

from placement.planning.grid import VIEW_CELLS
from sequencing.errors import UsageError
from sequencing.membership import Membership

Gather = Literal["spread", "flocks", "event", "boss"]
"""``spread``: anywhere. ``flocks``: in flocks of `FLOCK` that walk together. ``event``: `EVENT_SHARE` of the players
within `EVENT_CELLS` of the centre, the others anywhere. ``boss``: `BOSS_SHARE` of the players within `BOSS_CELLS` of
the centre, the others in flocks."""

Handover = Literal["never", "place"]

FLOCK = 50
FLOCK_CELLS = 0.5
"""Standard deviation of a flock's players around its centre, in cells."""
EVENT_SHARE, EVENT_CELLS = 0.2, 4.0
BOSS_SHARE, BOSS_CELLS = 0.05, 0.5
HILBERT_BITS = 16
"""The curve's grid is much finer than the cells of any world here, so that a crowded cell is divided, too."""
SIDE_MAX = 1 << 12
PLAYERS_MAX = 20_000_000
STEP_S = 1.0
"""Seconds of a step of walking."""
WALK_STEPS = 5
"""Steps over which joins/s are averaged."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What to make a world of. ``speed``: cells/s of a player; ``events``: events/s that a player causes.

    ``walked_s``: seconds of walking since the players were shared out. Raises `UsageError`.
    """

    columns: int
    rows: int
    servers: int
    players: int
    gather: Gather = "spread"
    seed: int = 1
    speed: float = 0.1
    events: float = 1.0
    walked_s: float = 0.0
    handover: Handover = "never"

    def __post_init__(self) -> None:
        for name in ("columns", "rows"):
            if not 1 <= getattr(self, name) <= SIDE_MAX:
                raise UsageError(f"a world has 1 to {SIDE_MAX:,} {name}, not {getattr(self, name):,}")
        if self.players > PLAYERS_MAX:
            raise UsageError(f"a world has at most {PLAYERS_MAX:,} players, not {self.players:,}")
        if not 1 <= self.servers <= self.players:
            counts = f"{self.servers:,} servers and {self.players:,} players"
            raise UsageError(f"a world has at least one server, and a player for each server, not {counts}")
        if self.gather not in get_args(Gather):
            raise UsageError(f"players gather as {', '.join(get_args(Gather))}, not as {self.gather!r}")
        if self.handover not in get_args(Handover):
            raise UsageError(f"handover is {' or '.join(get_args(Handover))}, not {self.handover!r}")
        if self.seed < 0:
            raise UsageError(f"a seed is 0 or more, not {self.seed}")
        if not 0 <= self.speed <= 1:
            raise UsageError(f"players walk 0 to 1 cells/s, not {self.speed:g}")
        for name in ("events", "walked_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise UsageError(f"{_KEY_OF.get(name, name)} is 0 or more, not {getattr(self, name):g}")

    @property
    def cells(self) -> int:
        """The number of regions."""
        return self.columns * self.rows


_SPEC = re.compile(r"(\d+)x(\d+):(.+)")
_KEY_OF = {"walked_s": "walked"}
_LIKE = "write it like 100x100:servers=1000,players=100000,gather=flocks,seed=1"


def parse_world(text: str) -> WorldSpec:
    """Read ``COLUMNSxROWS:servers=N,players=N[,gather=…][,seed=…][,speed=…][,events=…][,walked=…]
    [,handover=…]``.

    Raises `UsageError`, which says what is wrong.
    """
    if not (parts := _SPEC.fullmatch(text)):
        raise UsageError(f"{text!r} is not a world: {_LIKE}")
    kind_of = {_KEY_OF.get(each.name, each.name): (each.name, str(each.type)) for each in fields(WorldSpec)}
    del kind_of["columns"], kind_of["rows"]
    given: dict[str, int | float | str] = {}
    for pair in parts[3].split(","):
        key, _, value = pair.partition("=")
        if key not in kind_of:
            raise UsageError(f"world {text!r}: {key!r} is none of {', '.join(kind_of)}")
        name, kind = kind_of[key]
        if name in given:
            raise UsageError(f"world {text!r}: {key} is given twice")
        try:
            given[name] = {"int": int, "float": float}.get(kind, str)(value)
        except ValueError:
            what = "a whole number" if kind == "int" else "a number"
            raise UsageError(f"world {text!r}: {key} is {what}, not {value!r}") from None
    if missing := [key for key in ("servers", "players") if key not in given]:
        raise UsageError(f"world {text!r}: {' and '.join(missing)} must be given: {_LIKE}")
    return WorldSpec(int(parts[1]), int(parts[2]), **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class World:
    """A world at one moment. Arrays have an entry for each player: place in cells, heading in radians, server."""

    spec: WorldSpec
    east: FloatArray
    south: FloatArray
    heading: FloatArray
    server: IntArray
    shares: IntArray
    """Where each server's part of the curve begins."""

    @cached_property
    def cell(self) -> IntArray:
        """The number of the cell that each player is in: columns come one after the other."""
        return self.east.astype(np.int64) * self.spec.rows + self.south.astype(np.int64)

    @cached_property
    def subscriptions(self) -> IntArray:
        """The subscriptions, sorted: server × cells + cell."""
        spec = self.spec
        column, row = self.east.astype(np.int64), self.south.astype(np.int64)
        away_east, away_south = self.east - column, self.south - row
        gap_east = {-1: away_east, 0: 0 * away_east, 1: 1 - away_east}
        gap_south = {-1: away_south, 0: 0 * away_south, 1: 1 - away_south}
        seen = []
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                sees = gap_east[dx] ** 2 + gap_south[dy] ** 2 <= VIEW_CELLS**2
                sees &= (column + dx >= 0) & (column + dx < spec.columns) & (row + dy >= 0) & (row + dy < spec.rows)
                who = np.flatnonzero(sees)
                seen.append(self.server[who] * spec.cells + self.cell[who] + dx * spec.rows + dy)
        return np.unique(np.concatenate(seen))

    @cached_property
    def membership(self) -> Membership:
        """Servers ``server:N`` and their regions; regions that no player sees are known, too."""
        spec = self.spec
        server, cell = np.divmod(self.subscriptions, spec.cells)
        ones = np.ones(len(server), np.int32)
        incidence = sparse.csr_array((ones, (server, cell)), shape=(spec.servers, spec.cells))
        return Membership.from_incidence(self.server_names, self.region_names, incidence)

    @cached_property
    def server_names(self) -> list[str]:
        """The servers' names, sorted."""
        digits = len(str(self.spec.servers - 1))
        return [f"server:{number:0{digits}}" for number in range(self.spec.servers)]

    @cached_property
    def region_names(self) -> list[str]:
        """The cells' names, sorted, which is by number."""
        spec = self.spec
        wide, high = len(str(spec.columns - 1)), len(str(spec.rows - 1))
        return [f"world:{x:0{wide}}:{y:0{high}}" for x in range(spec.columns) for y in range(spec.rows)]

    @cached_property
    def events_per_s(self) -> FloatArray:
        """Events/s of each cell: a player publishes in the cell that it is in."""
        return np.bincount(self.cell, minlength=self.spec.cells).astype(np.float64) * self.spec.events

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Region → events/s, as the planner takes it."""
        return dict(zip(self.region_names, self.events_per_s.tolist(), strict=True))

    @cached_property
    def joins_per_s(self) -> float:
        """Joins/s of all servers together, over the next `WALK_STEPS` steps; as many leaves come with them."""
        before, joins = self, 0
        for _ in range(WALK_STEPS):
            after = walked(before, STEP_S)
            joins += len(joined(before, after))
            before = after
        return joins / (WALK_STEPS * STEP_S)

    def named(self, subscriptions: IntArray) -> list[tuple[str, str]]:
        """Return the server and the region of each of some `subscriptions`."""
        server, cell = np.divmod(subscriptions, self.spec.cells)
        return [
            (self.server_names[s], self.region_names[c]) for s, c in zip(server.tolist(), cell.tolist(), strict=True)
        ]


def made(spec: WorldSpec) -> World:
    """Make the world of a spec; a million players take a few seconds."""
    random = np.random.default_rng(spec.seed)
    east, south, heading = _gathered(spec, random)
    east, south, heading = _within(spec, east, south, heading)
    curve = _along_hilbert(spec, east, south)
    rank = np.argsort(curve, kind="stable")
    share = np.arange(spec.players) * spec.servers // spec.players
    shares = curve[rank][np.searchsorted(share, np.arange(spec.servers))]
    server = np.empty(spec.players, np.int64)
    server[rank] = share
    return walked(World(spec, east, south, heading, server, shares), spec.walked_s)


def walked(world: World, seconds: float) -> World:
    """Return the world after all players have walked straight on; at an edge they turn back into it."""
    way = world.spec.speed * seconds
    east, south = world.east + way * np.cos(world.heading), world.south + way * np.sin(world.heading)
    east, south, heading = _within(world.spec, east, south, world.heading)
    server = world.server
    if world.spec.handover == "place":
        curve = _along_hilbert(world.spec, east, south)
        server = np.maximum(np.searchsorted(world.shares, curve, side="right") - 1, 0)
    return World(world.spec, east, south, heading, server, world.shares)


def joined(before: World, after: World) -> IntArray:
    """Return the subscriptions that one moment has and the one before it does not: the joins between them."""
    return cast("IntArray", np.setdiff1d(after.subscriptions, before.subscriptions, assume_unique=True))


def _gathered(spec: WorldSpec, random: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return where the players stand and where they go; some stand beyond the edges."""
    count = spec.players
    east, south = random.random(count) * spec.columns, random.random(count) * spec.rows
    heading = random.random(count) * 2 * np.pi
    if spec.gather in ("flocks", "boss"):
        leader = np.arange(count) // FLOCK * FLOCK
        east = east[leader] + random.normal(0, FLOCK_CELLS, count)
        south = south[leader] + random.normal(0, FLOCK_CELLS, count)
        heading = heading[leader]
    crowds: Mapping[str, tuple[float, float]] = {"event": (EVENT_SHARE, EVENT_CELLS), "boss": (BOSS_SHARE, BOSS_CELLS)}
    share, radius = crowds.get(spec.gather, (0.0, 0.0))
    crowd = round(count * share)
    away, angle = radius * np.sqrt(random.random(crowd)), random.random(crowd) * 2 * np.pi
    east[:crowd] = (spec.columns // 2) + 0.5 + away * np.cos(angle)
    south[:crowd] = (spec.rows // 2) + 0.5 + away * np.sin(angle)
    heading[:crowd] = random.random(crowd) * 2 * np.pi
    return east, south, heading


def _within(
    spec: WorldSpec, east: FloatArray, south: FloatArray, heading: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Reflect at the edges those who are beyond them."""
    east, turned_east = _folded(east, spec.columns)
    south, turned_south = _folded(south, spec.rows)
    heading = np.where(turned_east, np.pi - heading, heading)
    return east, south, np.where(turned_south, -heading, heading)


def _folded(at: FloatArray, width: int) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    lap = np.mod(at, 2 * width)
    turned = lap >= width
    return np.clip(np.where(turned, 2 * width - lap, lap), 0, np.nextafter(width, 0)), turned


def _along_hilbert(spec: WorldSpec, east: FloatArray, south: FloatArray) -> IntArray:
    """Return each player's place on a Hilbert curve over the world (Hilbert 1891), on which neighbours are near."""
    side_max = 1 << HILBERT_BITS
    scale = side_max / max(spec.columns, spec.rows)
    x, y = (east * scale).astype(np.int64), (south * scale).astype(np.int64)
    place = np.zeros(len(x), np.int64)
    for bit in reversed(range(HILBERT_BITS)):
        side = 1 << bit
        right, low = (x & side) > 0, (y & side) > 0
        place += side * side * ((3 * right) ^ low)
        flipped = right & ~low
        x, y = np.where(flipped, side_max - 1 - x, x), np.where(flipped, side_max - 1 - y, y)
        x, y = np.where(low, x, y), np.where(low, y, x)
    return place
