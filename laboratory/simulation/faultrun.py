"""One seeded simulation with faults: a small world, its traffic, its faults, and the verdict."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from random import Random

from laboratory.simulation.engine import Engine, Process, Weather
from laboratory.simulation.judging import Drawn, Run, epochs_at, misnumbered, unordered, violations
from laboratory.simulation.network import Network, events_in
from laboratory.simulation.server import Server
from sequencing.frames import CARRIES_EVENTS, parse_meta
from sequencing.plan import GIVEN_UP, Ordering
from sequencing.store import number_of

REST_MS = 20_000.0
ORDERINGS: tuple[Ordering, ...] = ("acyclic", "causal", "overlap")
COPIED = 0.5
"""The part of the scenarios whose nodes lose something, in which replicas take over."""

APART = 0.4
"""The part of the worlds without expected overlaps in which servers are of two halves."""
GIVES_UP = 0.3
"""The part of the other scenarios with several nodes in which nodes are given up."""

PROPOSES = 0.2
"""The part of the scenarios with several nodes in which an operator proposes other plans."""

ALONE = 0.3
"""The part of the scenarios, of those in which no node loses anything, that begin with one node."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario of a seed; each field can be made smaller to find what matters for a failure."""

    seed: int
    ordering: Ordering
    regions: int
    servers: int
    nodes: int
    managers: int
    relays: int
    busy_ms: float
    crashes: int
    pauses: int
    cuts: int
    scattered: bool
    """Whether plans have longer paths than they need."""
    losses: int
    """Crashes of nodes that lose their latest data; with any, no node is sure to keep everything."""
    restless: float
    """How often a server joins or leaves a region rather than publishes."""
    weather: Weather
    reach: int = 0
    """The regions lie on a line: overlaps of those so near to each other are expected, and servers walk along it."""
    forgettings: int = 0
    """How often a node forgets publishers."""
    alone_ms: float = 0.0
    """Until then, the first node is the only one of the network, whose plan lists no region."""
    is_copied: bool = False
    """Whether nodes that lose something have replicas that take over, and answer only when these have what they say."""
    give_up_ms: float = 0.0
    """After how long without an answer a node is given up, 0: never."""
    proposals: int = 0
    """How often an operator proposes another plan."""
    is_apart: bool = False
    """Whether half of the servers have the first regions, and the others the last ones: what moves in one half leaves
    the other as it is."""

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Draw a scenario."""
        random = Random(seed)
        bad = random.choice((0.0, 0.02, 0.1, 0.2))
        weather = Weather(
            latency_ms=random.choice((0.2, 1.0, 3.0)),
            jitter_ms=random.choice((0.0, 5.0, 20.0)),
            lost_request=bad * random.random(),
            lost_answer=bad * random.random(),
            late=bad * random.random(),
        )
        found = cls(
            seed=seed,
            ordering=ORDERINGS[seed % len(ORDERINGS)],
            regions=random.randint(2, 6),
            servers=random.randint(2, 5),
            nodes=random.choice((1, 2, 3, 4, 5)),
            managers=random.randint(1, 2),
            relays=random.randint(1, 2),
            busy_ms=random.choice((150.0, 300.0)),
            crashes=random.choice((0, 0, 2, 4)),
            pauses=random.choice((0, 0, 2)),
            cuts=random.choice((0, 0, 2)),
            scattered=random.random() < 0.8,
            losses=random.choice((0, 0, 1, 3)),
            restless=random.choice((0.1, 0.2, 0.5, 0.7)),
            weather=weather,
            reach=random.choice((0, 0, 1, 1, 2)),
            forgettings=random.choice((0, 0, 2, 6)),
        )
        # Drawn apart, so that older seeds are the worlds that they were.
        more = Random(f"alone {seed}")
        is_alone = more.random() < ALONE and not found.losses
        is_copied = found.losses > 0 and Random(f"copied {seed}").random() < COPIED
        proposing = Random(f"proposed {seed}")
        proposals = proposing.randint(1, 6) if found.nodes > 1 and proposing.random() < PROPOSES else 0
        found = replace(found, is_copied=is_copied, proposals=proposals)
        if found.reach == 0 and Random(f"apart {seed}").random() < APART:
            found = replace(found, is_apart=True, regions=max(4, found.regions), servers=max(4, found.servers))
        if is_alone:
            return replace(found, alone_ms=found.busy_ms * more.uniform(0.1, 1.1))
        giving_up = Random(f"giving up {seed}")
        if not is_copied and found.nodes > 1 and giving_up.random() < GIVES_UP:
            # Who gives up has waited before.
            return replace(found, give_up_ms=giving_up.uniform(1, 40), busy_ms=2 * found.busy_ms)
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a scenario: the violations, and how much happened."""

    scenario: Scenario
    violations: tuple[str, ...]
    steps: int
    published: int
    deliveries: int
    gaps: int
    epochs: int
    sweeps: int
    joins: int
    faults: int
    proposals: int
    """How often the network went over to a plan that was proposed."""


def run_faults(scenario: Scenario) -> Outcome:
    """Run a scenario; the same one has always the same outcome."""
    random = Random(scenario.seed)
    engine = Engine(random, scenario.weather)
    regions = "abcdefgh"[: scenario.regions]
    names = [f"n{number}" for number in range(1, scenario.nodes + 1)]
    network = Network(
        engine,
        names,
        scenario.ordering,
        managers=scenario.managers,
        relays=scenario.relays,
        scattered=scenario.scattered,
        forgetful=scenario.losses > 0,
        expected=frozenset(
            (one, other) for one, other in combinations(regions, 2) if ord(other) - ord(one) <= scenario.reach
        ),
        alone_ms=scenario.alone_ms,
        is_copied=scenario.is_copied,
        give_up_ms=scenario.give_up_ms,
    )
    causal = scenario.ordering == "causal"
    servers = [
        Server(network, f"s{number}", part, causal=causal, restless=scenario.restless, reach=scenario.reach)
        for number, part in enumerate(_parts(regions, scenario))
    ]
    for server in servers:
        engine.launch(server.process)
    _schedule_faults(scenario, engine, network, servers)
    crashed: tuple[str, ...] = ()
    try:
        engine.run(scenario.busy_ms)
        _end_faults(engine, network, servers)
        engine.run(scenario.busy_ms + REST_MS, lambda: _at_rest(network, servers))
    except Exception as error:  # noqa: BLE001 - any error is a finding
        crashed = (f"crash: {error!r} in {traceback.extract_tb(error.__traceback__)[-1].name}",)
    drawn = _drawn(network)
    sessions = [session for server in servers for session in server.sessions]
    run = Run(
        sessions,
        drawn,
        _kept(network),
        {event: at for server in servers for event, at in server.published_ms.items()},
        _unrest(network, servers),
        causal,
        scenario.ordering != "overlap",
        _may_lose(network),
        network.keyed,
        _copied(network),
        epochs_at(network.given_up, (record.plan for record in network.store.announced)),
    )
    return Outcome(
        scenario,
        crashed or (*violations(run), *unordered(network.store.announced), *misnumbered(network.store.announced)),
        engine.steps,
        sum(map(len, drawn.values())),
        sum(len(session.deliveries) for session in sessions),
        sum(each.missing is not None for session in sessions for each in session.deliveries),
        network.record.plan.epoch,
        sum(any(record.leaving.values()) for record in network.store.announced),
        sum(len(session.joined) for session in sessions),
        scenario.crashes + scenario.pauses + scenario.cuts + scenario.losses + scenario.forgettings,
        sum(not answer for answer in network.store.answers.values()),
    )


def _parts(regions: str, scenario: Scenario) -> list[str]:
    """Return the regions that each server may have."""
    half = len(regions) // 2
    parts = (regions[:half], regions[half:]) if scenario.is_apart and half else (regions,)
    return [parts[number % len(parts)] for number in range(scenario.servers)]


def _schedule_faults(scenario: Scenario, engine: Engine, network: Network, servers: list[Server]) -> None:
    random = engine.random
    processes = [*network.processes, *(server.process for server in servers)]
    for _ in range(scenario.crashes):
        victim = random.choice(random.choice((processes, [server.process for server in servers])))
        at = random.random() * scenario.busy_ms
        engine.at(at, partial(network.crash, victim))
        back = at + random.random() ** 3 * 80
        engine.at(back, partial(_revive, engine, victim))
    for _ in range(scenario.losses):
        node, at = random.choice(sorted(network.nodes)), random.random() * scenario.busy_ms
        engine.at(max(0.0, at - random.random() ** 2 * 60), partial(network.will_forget, node, at))
        engine.at(at + random.random() ** 3 * 80, partial(_revive, engine, network.nodes[node]))
    for _ in range(scenario.pauses):
        victim, at = random.choice(processes), random.random() * scenario.busy_ms
        engine.at(at, partial(_pause, engine, victim))
    dice = Random(f"{scenario.seed} forgetting")
    for _ in range(scenario.forgettings):
        forget = partial(network.forget_publishers, dice.choice(sorted(network.nodes)), dice)
        engine.at(dice.random() * scenario.busy_ms, forget)
    asking = Random(f"{scenario.seed} proposals")
    for _ in range(scenario.proposals):
        late_ms = asking.random() ** 3 * 60
        engine.at(asking.random() * scenario.busy_ms, partial(network.propose, asking, late_ms))
    if scenario.give_up_ms:
        _schedule_absences(scenario, engine, network)
    for _ in range(scenario.cuts):
        one, other = random.sample(processes, 2)
        pair, at = frozenset((one.name, other.name)), random.random() * scenario.busy_ms
        engine.at(at, partial(engine.cut.add, pair))
        engine.at(at + random.random() * 150, partial(engine.cut.discard, pair))


def _schedule_absences(scenario: Scenario, engine: Engine, network: Network) -> None:
    """Have nodes be silent for so long that they are given up: dead, stopped, or cut off from all managers."""
    dice = Random(f"{scenario.seed} absences")
    for _ in range(dice.randint(1, 3)):
        node, at = network.nodes[dice.choice(sorted(network.nodes))], dice.random() * scenario.busy_ms
        for_ms = scenario.give_up_ms + 60 + dice.random() * 200
        match dice.choice(("dead", "stopped", "cut off")):
            case "dead":
                engine.at(at, partial(network.crash, node))
                engine.at(at + for_ms, partial(_revive, engine, node))
            case "stopped":
                engine.at(at, partial(_pause, engine, node, for_ms))
            case _:
                for manager in network.managers:
                    pair = frozenset((node.name, manager.name))
                    engine.at(at, partial(engine.cut.add, pair))
                    engine.at(at + for_ms, partial(engine.cut.discard, pair))


def _revive(engine: Engine, victim: Process) -> None:
    if not victim.alive:
        engine.launch(victim)


def _pause(engine: Engine, victim: Process, for_ms: float | None = None) -> None:
    victim.paused_until = engine.now + (20 + engine.random.random() * 200 if for_ms is None else for_ms)


def _end_faults(engine: Engine, network: Network, servers: list[Server]) -> None:
    engine.cut.clear()
    engine.weather = Weather(0.2, 0.5)
    for process in [*network.processes, *(server.process for server in servers)]:
        process.paused_until = 0.0
        _revive(engine, process)
    for server in servers:
        server.busy = server.roaming = False


def _at_rest(network: Network, servers: list[Server]) -> bool:
    return not _unrest(network, servers)


def _unrest(network: Network, servers: list[Server]) -> str:
    """Return what is still in flight, an empty text when all is at rest."""
    store = network.store
    for server in servers:
        life = server.life
        if not server.settled:
            return (
                f"{life.diary.name}: {life.session.buffered.events} unpublished, "
                f"{life.session.held_frames} held, wants {sorted(life.session.wanted)}, "
                f"joined {sorted(life.session.joined)}"
            )
        if life.plan is None or store.news(number_of(life.plan)):
            return f"{life.diary.name} has not seen all plans"
        for region, read in life.session.reads().items():
            stream = network.machines[read.node].egress.get((read.epoch, region), [])
            if stream and stream[-1].last > (read.after or 0):
                return f"{life.diary.name} has not read all of {region}"
    if network.record.behind:
        return f"a transition to epoch {network.record.plan.epoch} is under way"
    there = network.machines.keys() - network.record.plan.given_up
    if any(link for name in there for link in network.machines[name].links.values()):
        return "frames are on their way"
    lives = {name: str(node.life) for name, node in network.nodes.items()}
    if any(run.removeprefix(GIVEN_UP) != lives[node] for node, run in network.record.plan.runs.items()):
        return "a restarted node is not back in the plan"
    return ""


def _drawn(network: Network) -> dict[str, list[Drawn]]:
    found: dict[str, list[Drawn]] = {}
    for (region, epoch), frames in sorted(network.drawn.items()):
        for last, events in sorted(frames.items()):  # what is decided on its way is noted late
            first = last - len(events) + 1
            found.setdefault(region, []).extend(Drawn(epoch, n, event) for n, event in enumerate(events, first))
    return found


def _kept(network: Network) -> set[tuple[str, str]]:
    streams = (stream for machine in network.machines.values() for stream in machine.egress.values())
    frames = (frame for stream in streams for frame in stream if parse_meta(frame.meta).kind in CARRIES_EVENTS)
    return {(frame.region, event) for frame in frames for event in events_in(frame.body)}


def _may_lose(network: Network) -> dict[tuple[str, int], bool]:
    plans = [record.plan for record in network.store.announced]
    return {
        (region, plan.epoch_of(region)): not network.forgot.isdisjoint((path[0], path[-1]))
        for plan in plans
        for region, path in plan.paths.items()
        if not network.forgot.isdisjoint(path)
    }


def _copied(network: Network) -> set[tuple[str, int]]:
    """Return the epochs, (region, epoch) each, of which nothing acknowledged is lost: whole paths that are copied.

    A longer path may be given up because something else is missing; then what is between its nodes is dropped.
    """
    if not network.is_copied:
        return set()
    plans = [record.plan for record in network.store.announced]
    return {(region, plan.epoch_of(region)) for plan in plans for region, path in plan.paths.items() if len(path) == 1}
