"""Exhaustive exploration: every order in which the machines of a small world can move.

A world is a few *actors*, each a real machine (`Node`, `Publisher`, `Delivery`, `Subscriber`, `Transition`) with a
record of it. An actor changes only by the *orders* that it is given, and the same orders always bring it to the
same state. So

- a state of the world is a tuple of small numbers: which of the local states that were met each actor is in;
- a local state is known by the orders that led to it. A machine is never copied: it is built again and given its orders
  again, once for each order that is new to a local state. Everything else is looked up;
- two local states that look the same in every attribute are one, however they came about.

The search goes breadth first and remembers each state, so a trace that it reports is a shortest one. A state from which
nothing can move is an *end*, and is judged: a deadlock is an end at which something is still held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from sequencing.plan import Plan
from sequencing.record import Record

State = tuple[int, ...]
"""The number of each actor's local state, and the faults that may still happen."""

Label = tuple[str, ...]
"""The move: a verb and its objects, as `laboratory.exploration.script.tell` puts into words."""

STATES_MAX = 2_000_000
"""A search that meets more states gives up: they would fill the memory before the patience."""

View_co = TypeVar("View_co", covariant=True)
Seen = TypeVar("Seen")


class Actor(Protocol[View_co]):
    """A machine that carries out its orders, and does nothing else."""

    def take(self, order: tuple[Any, ...]) -> Any:
        """Carry out an order, and return what others get to know of it: something hashable."""

    def key(self) -> Hashable:
        """Return all that future behaviour and the final judgement depend on."""

    def view(self) -> View_co:
        """Return what others may see of this actor now: something that does not change."""


class Part(Generic[Seen]):
    """One actor of a world, in all of the local states that were met."""

    def __init__(self, build: Callable[[], Actor[Seen]]) -> None:
        self.views: list[Seen] = []
        self._build = build
        self._histories: list[tuple[tuple[Any, ...], ...]] = []
        self._numbers: dict[Hashable, int] = {}
        self._moves: dict[tuple[int, tuple[Any, ...]], tuple[int, Any]] = {}
        self._note(build(), ())

    def order(self, state: int, order: tuple[Any, ...]) -> tuple[int, Any]:
        """Return the local state that an order leads to, and the answer to it."""
        move = state, order
        known = self._moves.get(move)
        if known is None:
            actor, history = self._build(), self._histories[state]
            for earlier in history:
                actor.take(earlier)
            answer = actor.take(order)
            known = self._moves[move] = self._note(actor, (*history, order)), answer
        return known

    def _note(self, actor: Actor[Seen], history: tuple[tuple[Any, ...], ...]) -> int:
        number = self._numbers.setdefault(actor.key(), len(self.views))
        if number == len(self.views):
            self.views.append(actor.view())
            self._histories.append(history)
        return number


class Explorable(Protocol):
    """A world that can be explored."""

    def start(self) -> State:
        """Return the state at which it begins."""

    def moves(self, state: State) -> Sequence[tuple[Label, State]]:
        """Return what can happen next; may leave out what can as well happen later without a difference at any end."""

    def judge(self, state: State) -> tuple[str, ...]:
        """Return the violations at an end, the gravest first."""


@dataclass(frozen=True, slots=True)
class Offender:
    """An end that breaks a promise, and one of the shortest ways to it."""

    what: tuple[str, ...]
    trace: tuple[Label, ...]
    state: State


@dataclass(slots=True)
class Exploration:
    """The result of a search. ``complete``: whether it was exhaustive; it can be made to stop early at an offender."""

    states: int = 0
    transitions: int = 0
    ends: int = 0
    seconds: float = 0.0
    complete: bool = False
    offenders: list[Offender] = field(default_factory=list)
    end_states: list[State] = field(default_factory=list)


def explore(world: Explorable, *, states_max: int = STATES_MAX) -> Exploration:
    """Go through all states of a world, breadth first, until an end was found that breaks a promise."""
    began = perf_counter()
    found = Exploration()
    start = world.start()
    came_from: dict[State, tuple[State, Label] | None] = {start: None}
    agenda = deque([start])
    while agenda and len(came_from) <= states_max and not found.offenders:
        state = agenda.popleft()
        moved = False
        for label, after in _moves(world, state, came_from):
            found.transitions += 1
            if after != state:
                moved = True
                if after not in came_from:
                    came_from[after] = state, label
                    agenda.append(after)
        if not moved:
            found.ends += 1
            found.end_states.append(state)
            if what := world.judge(state):
                found.offenders.append(Offender(what, _trace(came_from, state), state))
    found.states = len(came_from)
    found.complete = not agenda
    found.seconds = perf_counter() - began
    return found


def _moves(
    world: Explorable, state: State, came_from: dict[State, tuple[State, Label] | None]
) -> Sequence[tuple[Label, State]]:
    try:
        return world.moves(state)
    except Exception as error:
        error.add_note("A machine failed in a move after: " + ", ".join(map(" ".join, _trace(came_from, state))))
        raise


def _trace(came_from: dict[State, tuple[State, Label] | None], state: State) -> tuple[Label, ...]:
    labels: list[Label] = []
    while (step := came_from[state]) is not None:
        state, label = step
        labels.append(label)
    return tuple(reversed(labels))


ORDERED = frozenset({"_ready", "_streams", "_regions"})
"""Attributes of machines that are mappings whose order has an effect; the order of other mappings has none."""

BY_IDENTITY = frozenset({"_joint"})
"""Attributes that are mappings by identity, in an order that has no effect: only what they hold counts."""

SHORT_WAY = frozenset({"_tracks", "_turn"})
"""Attributes that decide only which of two ways is gone, which do the same: see `sequencing.settled`."""


def frozen(value: Any, ordered: bool = False) -> Hashable:
    """Return something hashable that is equal for machines which will behave alike."""
    if value is None or isinstance(value, (int, str, bytes, float)):
        return value
    if isinstance(value, dict):
        items = ((frozen(key), frozen(inner, ordered)) for key, inner in value.items())
        return tuple(items) if ordered else frozenset(items)
    if isinstance(value, (list, tuple, deque)):
        return tuple(frozen(inner, ordered) for inner in value)
    if isinstance(value, AbstractSet):
        return frozenset(frozen(inner) for inner in value)
    if isinstance(value, count):
        return repr(value)
    if isinstance(value, Plan):
        return value.to_json()
    if isinstance(value, Record):
        return repr(value)
    return type(value).__name__, *(
        frozenset(map(frozen, getattr(value, name).values()))
        if name in BY_IDENTITY
        else frozen(getattr(value, name), ordered or name in ORDERED)
        for name in _attributes(value)
        if name not in SHORT_WAY
    )


def _attributes(value: object) -> Iterator[str]:
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
    yield from getattr(value, "__dict__", ())
