"""Print docs/states.md: the diagrams of the core's state tables, in Mermaid's language."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum

from adapters.redis.listening import LIVES, Life
from adapters.redis.listening import Turn as ListeningTurn
from sequencing.outbox import FATES, Fate, Turn
from sequencing.regionlife import REGION_LIFE, RegionEvent, RegionState
from sequencing.states import Event, State
from sequencing.steps import STEPS, StepEvent, StepState

HEAD = """\
# States

Four parts are state tables, three of them in the core. The code refuses an event that its table does not have. This
page is generated from the tables: `./dev docs` builds it.
"""


def diagram(table: Mapping[tuple[State, Event], State], starts: tuple[State, ...]) -> Iterator[str]:
    """Yield the lines of a state diagram."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield from (f"    [*] --> {state.name}" for state in starts)
    yield from (f"    {state.name} --> {to.name}: {event.name}" for (state, event), to in table.items())
    yield "```"


def meanings(kind: type[StrEnum]) -> Iterator[str]:
    """Yield the rows of a table: each member, and its docstring, or its value where it has none."""
    source = inspect.getsource(sys.modules[kind.__module__])
    yield from ("| | |", "|---|---|")
    for member in kind:
        documented = re.search(
            rf'^    {member.name} = "{re.escape(member.value)}"\n    """(.+?)"""', source, re.MULTILINE | re.DOTALL
        )
        text = " ".join(documented[1].split()) if documented else f"{member.value[0].upper()}{member.value[1:]}."
        yield f"| `{member.name}` | {text} |"


def section(
    title: str,
    states: type[StrEnum],
    table: Mapping[tuple[State, Event], State],
    starts: tuple[State, ...],
    events: type[StrEnum],
) -> Iterator[str]:
    """Yield the lines of one table: what its states mean, a diagram, and what its events mean."""
    yield f"## {title} (`{states.__module__.replace('.', '/')}.py`)\n"
    yield from meanings(states)
    yield ""
    yield from diagram(table, starts)
    yield ""
    yield from meanings(events)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    starts = StepState.OPEN, StepState.WAITING, StepState.TRANSIT
    yield HEAD
    yield from section("The step of a region at a node", StepState, STEPS, starts, StepEvent)
    yield ""
    yield from section("The frame that a publisher has sent to a region", Fate, FATES, (Fate.NONE,), Turn)
    yield ""
    yield from section(
        "The life of a region at a subscriber", RegionState, REGION_LIFE, (RegionState.NONE,), RegionEvent
    )
    yield ""
    yield from section("The listening of a process at a node", Life, LIVES, (Life.OFF,), ListeningTurn)


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
