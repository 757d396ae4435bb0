"""Scenario scripts: a world, its events step by step, and the result, for people to read and run.

A script is text. Its head describes the world. After ``---`` there is one step in each line, and indented below it the
deliveries of subscribers in this step. After the last ``---`` there are all deliveries of each subscriber, and the
violations. Only heads and steps are read; `played` writes the rest again. So a script that is played comes out as it
went in, or something has changed.

::

    ordering overlap
    node n1
    path a n1
    subscriber s1 a b
    event x by p in a
    event y by q in b after x
    ---
    p says x
    p offers to n1
    s1 reads a
      s1 delivers x
    ---
    s1: x
    wrong: cycle: …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from laboratory.exploration.actors import Cast, LaneRule, Say
from laboratory.exploration.explorer import Label, State
from laboratory.exploration.worlds import World
from sequencing.errors import InvalidInput
from sequencing.joint import regions_in, set_name
from sequencing.plan import Atom, AtomId, Ordering, Plan


def played(script: str) -> str:
    """Play a script and write it again with its results; raises `InvalidInput` at a line that cannot be played."""
    head, _, rest = script.partition("---\n")
    steps = [line for line in rest.partition("---\n")[0].splitlines() if line and not line.startswith((" ", "#"))]
    world = World(read_cast(head), reduced=False)
    return head + _told(world, _follow(world, steps))


def written(about: str, cast: Cast, trace: Sequence[Label]) -> str:
    """Write a trace that a search found as a script. ``about``: what a reader should know first."""
    head = "".join(f"# {line}\n" for line in about.splitlines()) + "\n".join(_head(cast)) + "\n"
    return played(head + "---\n" + "\n".join(tell(label) for label in trace) + "\n---\n")


def tell(label: Label) -> str:
    """Put a move into words."""
    verb, *names = label
    match verb:
        case "comes again":
            return f"{names[0]} gets its request {names[1]} again"
        case "passes" | "passes in vain":
            loss = " and hears no answer" if verb.endswith("vain") else ""
            return f"{names[0]} passes {names[1]} to {names[2]}{loss}"
        case "offers" | "offers in vain":
            loss = " and hears no answer" if verb.endswith("vain") else ""
            return f"{names[0]} offers to {names[1]}{loss}"
    return " ".join([names[0], verb, *names[1:]])


def outcome_of(script: str) -> dict[str, list[str]]:
    """Return what a script says that each subscriber has delivered in all."""
    lines = script.rpartition("---\n")[2].splitlines()
    found = (line.partition(":") for line in lines if not line.startswith("wrong:"))
    return {name: events.split() for name, _, events in found}


def _follow(world: World, steps: Sequence[str]) -> Iterator[tuple[str, State]]:
    state = world.start()
    for step in steps:
        moves = {tell(label): after for label, after in world.moves(state)}
        if step not in moves:
            raise InvalidInput(
                f"nothing can do this now: {step!r}; what can happen is: {', '.join(moves) or 'nothing'}"
            )
        state = moves[step]
        yield step, state


def _told(world: World, steps: Iterator[tuple[str, State]]) -> str:
    lines = ["---"]
    before = world.delivered(world.start())
    state = world.start()
    for step, state in steps:
        lines.append(step)
        after = world.delivered(state)
        for name, events in after.items():
            lines += [f"  {name} delivers {event}" for event in events[len(before[name]) :]]
        before = after
    lines.append("---")
    lines += [f"{name}: {' '.join(events)}".rstrip() for name, events in before.items()]
    # Violations can be determined only at an end; before it, more events may arrive.
    lines += [f"wrong: {what}" for what in world.judge(state)] if not world.moves(state) else ["unfinished"]
    return "\n".join(lines) + "\n"


def read_cast(head: str) -> Cast:
    """Read a script's head; raises `InvalidInput`."""
    ordering: Ordering = "acyclic"
    nodes: list[str] = []
    paths: dict[str, tuple[str, ...]] = {}
    atoms: list[Atom] = []
    subscribers: dict[str, tuple[str, ...]] = {}
    says: list[Say] = []
    sets: list[str] = []
    joiner: tuple[str, str] | None = None
    causal = lanes = False
    without: LaneRule | None = None
    for line in head.splitlines():
        match line.split():
            case [] | ["#", *_]:
                continue
            case ["ordering", name]:
                ordering = next(known for known in get_args(Ordering) if known == name)
            case ["publishers", "wait"]:
                causal = True
            case ["lanes", *rest]:
                lanes = True
                without = next((known for known in get_args(LaneRule) if rest == ["without", known]), None)
            case ["node", name]:
                nodes.append(name)
            case ["path", region, *path]:
                paths[region] = tuple(path)
            case ["atom", number, "at", node, "orders", *regions]:
                atoms.append(Atom(AtomId(int(number)), tuple(regions), node))
            case ["subscriber", name, *regions]:
                subscribers[name] = tuple(regions)
            case ["together", *regions]:
                sets.append(set_name(regions))
            case ["event", event, "by", sender, "in", place, *after]:
                region, *also = place.split("+")
                says.append(Say(event, sender, region, tuple(after[1:]), also=tuple(also)))
            case ["start", event, "by", sender, "in", region, "of", atom]:
                says.append(Say(event, sender, region, kind="start", atom=int(atom)))
            case ["join", event, "by", sender, "in", region]:
                says.append(Say(event, sender, region, kind="join"))
                joiner = sender, region
            case _:
                raise InvalidInput(f"not a line of a scenario's head: {line!r}")
    plan = Plan(1, 1, ordering, dict.fromkeys(nodes, ""), paths, tuple(atoms), joint=frozenset(sets))
    beginning = frozenset(say.atom for say in says if say.kind == "start")
    return Cast(
        plan,
        subscribers,
        tuple(says),
        causal=causal,
        beginning=beginning,
        joiner=joiner,
        lanes=lanes,
        without=without,
    )


def _head(cast: Cast) -> Iterator[str]:
    plan = cast.plan
    yield f"ordering {plan.ordering}"
    if cast.causal:
        yield "publishers wait"
    if cast.lanes:
        yield f"lanes without {cast.without}" if cast.without else "lanes"
    yield from (f"node {name}" for name in plan.nodes)
    yield from (f"path {' '.join([region, *path])}" for region, path in plan.paths.items())
    yield from (f"atom {atom.id} at {atom.node} orders {' '.join(atom.regions)}" for atom in plan.atoms)
    yield from (f"together {' '.join(regions_in(name))}" for name in sorted(plan.joint))
    yield from (f"subscriber {' '.join([name, *regions])}" for name, regions in cast.regions_of.items())
    for say in cast.says:
        end: dict[Literal["event", "start", "join"], str] = {
            "event": f" after {' '.join(say.after)}" if say.after else "",
            "start": f" of {say.atom}",
            "join": "",
        }
        yield f"{say.kind} {say.event} by {say.sender} in {'+'.join(say.regions)}{end[say.kind]}"
