"""How far the planner's arrangements are from the optimum, over random small worlds.

The yardstick is `placement.exact`: the optimum of the planner's own objective over all plans that satisfy C1–C4, on
the same nodes and under the same capacity. For worlds as small as these the planner uses it, too. The measurement
is of the planner without it, as for larger worlds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any, Literal

from laboratory.bench.figures import percentile
from placement.candidates import candidates
from placement.exact import optimum
from placement.objective import objective_for, region_rates
from placement.planner import best_of
from placement.world import World
from sequencing.arrangement import meetings
from sequencing.membership import Membership

REGIONS_MAX = 8
NODES_MAX = 5
NEGLIGIBLE = 1e-6
SHAPES = ("grid", "ring", "star", "tree", "islands", "random", "views")

Capacity = float | Literal["receiver"] | None


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """A question for the planner. ``capacity``: as `make_plan` takes it."""

    shape: str
    membership: Membership
    rates: dict[str, float]
    nodes: int
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Measured:
    """One world: the values of the plan without and with the planner's own exhaustive search, and of the best plan."""

    world: SmallWorld
    arrangement: str
    unaided: float
    planned: float
    least: float

    @property
    def gap(self) -> float:
        """By which part of the optimum the unaided plan is worse; 0 where it is optimal."""
        return max(0.0, self.unaided / self.least - 1)

    @property
    def planned_gap(self) -> float:
        """The same for what `make_plan` makes."""
        return max(0.0, self.planned / self.least - 1)


def run(worlds: int = 200, seed: int = 1) -> dict[str, Any]:
    """Plan ``worlds`` random worlds, find their optima, and return the figures (gaps as parts of the optimum).

    Blocks for some 0.1 s a world. The same arguments give the same figures.
    """
    measured = [measure(world) for world in small_worlds(worlds, seed)]
    worst = max(measured, key=lambda one: one.gap)
    return {
        "worlds": worlds,
        "seed": seed,
        "regions_max": REGIONS_MAX,
        "nodes_max": NODES_MAX,
        "gap": _distribution([one.gap for one in measured]),
        "planned_gap": _distribution([one.planned_gap for one in measured]),
        "on_several_nodes": sum(one.least > 1 + NEGLIGIBLE for one in measured),
        "chosen": dict(Counter(one.arrangement.partition(",")[0].split()[0] for one in measured).most_common()),
        "worst": {
            "gap": worst.gap,
            "shape": worst.world.shape,
            "nodes": worst.world.nodes,
            "capacity": worst.world.capacity,
            "rates": worst.world.rates,
            "members": {s: sorted(regions) for s, regions in worst.world.membership.regions_of.items()},
        },
    }


def measure(world: SmallWorld) -> Measured:
    """Plan one world without and with the planner's own exhaustive search, and find its optimum."""
    rates = region_rates(world.membership, world.rates)
    objective = objective_for(world.membership, rates, world.nodes, world.capacity)
    question = World(meetings(world.membership, "acyclic"), rates, objective, world.nodes)
    unaided = best_of(list(candidates(question, exact=False)))
    planned = best_of(list(candidates(question)))
    known = min(unaided.value, planned.value)
    search = optimum(question.items, objective, world.nodes, known=known)
    least = known if search.best is None else search.best.value
    return Measured(world, unaided.name, unaided.value, planned.value, least)


def _distribution(gaps: Sequence[float]) -> dict[str, float]:
    ordered = sorted(gaps)
    return {
        "mean": sum(ordered) / len(ordered),
        "p90": percentile(ordered, 90),
        "p99": percentile(ordered, 99),
        "max": ordered[-1],
        "optimal": sum(gap < NEGLIGIBLE for gap in ordered),
    }


def small_worlds(count: int, seed: int) -> Iterator[SmallWorld]:
    """Yield random worlds of several shapes, with even and uneven rates, and tight, generous and no capacities."""
    random = Random(seed)
    for _ in range(count):
        shape = random.choice(SHAPES)
        regions = "abcdefgh"[: random.randint(3, REGIONS_MAX)]
        members = {f"s{number}": seen for number, seen in enumerate(_views(shape, regions, random))}
        members |= {f"t{name[1:]}": seen for name, seen in members.items() if random.random() < 0.8}
        membership = Membership.of(members, regions if not members or random.random() < 0.5 else "")
        rates = {region: _rate(random) for region in membership.regions}
        nodes = random.randint(2, NODES_MAX)
        yield SmallWorld(shape, membership, rates, nodes, _capacity(sum(rates.values()), nodes, random))


def _views(shape: str, regions: str, random: Random) -> list[str]:
    """Return the sets of regions that some subscriber has."""
    count = len(regions)
    if shape == "grid":
        pairs = [(at, at + 1) for at in range(count - 1) if at % 2 == 0] + [(at, at + 2) for at in range(count - 2)]
    elif shape == "ring":
        pairs = [(at, (at + 1) % count) for at in range(count)]
    elif shape == "star":
        pairs = [(0, at) for at in range(1, count)] + random.sample([*combinations(range(count), 2)], 2)
    elif shape == "tree":
        pairs = [(random.randrange(at), at) for at in range(1, count)]
    elif shape == "islands":
        pairs = [(a, b) for a, b in combinations(range(count), 2) if a % 3 == b % 3 and random.random() < 0.8]
    elif shape == "random":
        density = random.choice([0.2, 0.4, 0.6])
        pairs = [pair for pair in combinations(range(count), 2) if random.random() < density]
    else:
        width = random.randint(2, 4)
        return ["".join(random.sample(regions, min(width, count))) for _ in range(random.randint(2, 6))]
    return [regions[a] + regions[b] for a, b in pairs]


def _rate(random: Random) -> float:
    return random.choice([1.0, 1.0, 2.0, 5.0, round(random.uniform(0, 10), 2), round(random.paretovariate(1), 2)])


def _capacity(total: float, nodes: int, random: Random) -> Capacity:
    if (rule := random.random()) < 0.35:
        return None
    if rule < 0.6:
        return "receiver"
    return total * random.choice([1.05 / nodes, 1.3 / nodes, 0.5, 0.7])


def report(figures: Mapping[str, Any]) -> str:
    """Three lines of text."""
    worlds, seed = figures["worlds"], figures["seed"]
    heading = (
        f"{worlds} worlds of up to {REGIONS_MAX} regions on 2 to {NODES_MAX} nodes, seed {seed}: how much worse than "
        "the best plan there is"
    )
    lines = [heading]
    for key, what in (("gap", "lines and local search"), ("planned_gap", "with exhaustive search, as planned")):
        gap = figures[key]
        lines.append(
            f"  {what}: mean {gap['mean']:.2%}, p90 {gap['p90']:.2%}, p99 {gap['p99']:.2%}, max {gap['max']:.2%}; "
            f"{gap['optimal']} of {worlds} optimal"
        )
    return "\n".join(lines)
