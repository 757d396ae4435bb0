"""Scenario scripts of the classic protocols: the participants, the steps, and the result.

As with the explorer's scripts, the head describes the world. After ``---`` there is one step in each line, and indented
below it the process's effects. After the last ``---`` there are the deliveries of each process, the kind of the
execution, and its violations. Only heads and steps are read, the rest is written again. So a script that is played
comes out as it went in, or something has changed.

::

    processes a b c          their order is a ring's and that of priorities
    group g a b c            without any: one group, all
    edge a b                 of a tree, for protocols that need one
    links overtake           links are FIFO otherwise
    processes crash          nobody crashes otherwise
    senders outside          groups are closed otherwise
    ---
    a publishes m to g       "to g" may be left out where there is one group
    b receives from a
    b receives number 2 from a
    b rings                  the first alarm that b has set
    c crashes                and what it has in transit is lost with it
    b suspects c
    the rest is received     what is in transit, first sent first; tokens are passed until all is delivered
    ---
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import groupby

from classic.executions.classes import classify
from classic.executions.guarantees import Violation, violations
from classic.executions.record import Record
from classic.protocols.process import (
    Addressed,
    Alarm,
    Deliver,
    Effect,
    Enter,
    Gap,
    Halt,
    Install,
    Message,
    Process,
    Scheduled,
    Send,
)
from classic.protocols.setup import Setup
from classic.stepping import Stepper
from sequencing.errors import InvalidInput, UsageError


@dataclass(frozen=True, slots=True)
class Played:
    """A script as it came out, and what happened in it."""

    text: str
    record: Record
    violations: tuple[Violation, ...]


def play(protocol: type[Process], script: str, *, file: str = "the script") -> Played:
    """Play a script; raises `InvalidInput`, naming file and line, at a line that cannot be."""
    lines = script.splitlines()
    if "---" not in lines:
        raise InvalidInput(f"{file}: has no line ---, after which the steps come")
    start = lines.index("---") + 1
    end = lines.index("---", start) if "---" in lines[start:] else len(lines)
    setup = _read_head(lines[: start - 1], file)
    stepper = Stepper(protocol, setup)
    told: list[str] = []
    for number, line in enumerate(lines[start:end], start=start + 1):
        if not line.strip() or line.startswith((" ", "#")):
            continue
        told.append(line)
        try:
            told.extend(f"  {what}" for what in _step(stepper, line))
        except UsageError as error:
            raise InvalidInput(f"{file}, line {number}: {error}") from error
    record = stepper.record
    found = tuple(violations(record, protocol.guarantees))
    text = "\n".join([*lines[:start], *told, "---", *_outcome(stepper, record, found)]) + "\n"
    return Played(text, record, found)


def _read_head(lines: Sequence[str], file: str) -> Setup:
    processes: tuple[str, ...] = ()
    groups: dict[str, list[str]] = {}
    tree: list[tuple[str, str]] = []
    overtake = outside = crash = False
    for number, line in enumerate(lines, start=1):
        match line.split():
            case []:
                pass
            case [word, *_] if word.startswith("#"):
                pass
            case ["processes", "crash"]:
                crash = True
            case ["processes", *names]:
                processes = tuple(names)
            case ["group", group, *members]:
                groups[group] = members
            case ["edge", one, other]:
                tree.append((one, other))
            case ["links", "overtake"]:
                overtake = True
            case ["senders", "outside"]:
                outside = True
            case _:
                raise InvalidInput(f"{file}, line {number}: nothing in a head reads {line.strip()!r}")
    if not processes:
        raise InvalidInput(f"{file}: the head names no processes")
    made = Setup.of(groups or {"all": processes}, processes)
    return Setup(processes, made.groups, tuple(tree), open_groups=outside, fifo_links=not overtake, crashes=crash)


def _step(stepper: Stepper, line: str) -> Iterator[str]:
    match line.split():
        case [process, "publishes", message]:
            yield from _told(process, stepper.publish(process, message_id=message))
        case [process, "publishes", message, "to", group]:
            yield from _told(process, stepper.publish(process, group=group, message_id=message))
        case [process, "receives", "from", source]:
            yield from _told(process, stepper.receive(process, source))
        case [process, "receives", "number", number, "from", source] if number.isdecimal() and int(number):
            yield from _told(process, stepper.receive(process, source, number=int(number)))
        case [process, "rings"]:
            yield from _told(process, stepper.ring(process))
        case [process, "crashes"]:
            stepper.crash(process)
        case [process, "suspects", other]:
            yield from _told(process, stepper.suspect(process, other))
        case ["the", "rest", "is", "received"]:
            while not _is_all_delivered(stepper) and (advanced := stepper.advance(alarms=True)):
                process, effects = advanced
                yield from _told(process, [effect for effect in effects if not isinstance(effect, Send | Alarm)])
        case _:
            raise UsageError(f"no step reads {line.strip()!r}")


def _is_all_delivered(stepper: Stepper) -> bool:
    """Whether no token needs to go round any further: all is delivered, and only what tokens do is left."""
    record = stepper.record
    delivered = {process: set(messages) for process, messages in record.deliveries().items()}
    due = all(
        message in delivered[process]
        for message, sent in record.messages.items()
        for process in sent.to
        if process in record.correct
    )
    return due and bool(stepper.alarms)


def _told(process: str, effects: Iterable[Effect]) -> Iterator[str]:
    """Yield the lines for effects; the same packet to several processes is one line."""

    def kind(effect: Effect) -> object:
        return effect.packet if isinstance(effect, Send) else id(effect)

    for _, same in groupby(effects, kind):
        effect, *others = same
        match effect:
            case Send(to, packet):
                all_to = ", ".join([to, *(other.to for other in others if isinstance(other, Send))])
                yield f"{process} sends {all_to}: {tell(packet)}"
            case Deliver(message):
                yield f"{process} delivers {message.id}"
            case Addressed(message, members):
                yield f"{message.id} is for {', '.join(members)}"
            case Scheduled(message):
                yield f"{process} sends {message.id} now"
            case Alarm(_, after_ms):
                yield f"{process} sets an alarm, in {after_ms:g} ms"
            case Gap():
                yield f"{process} is told of a gap"
            case Install(number, members):
                yield f"{process} installs view {number}: {', '.join(members)}"
            case Enter():
                yield f"{process} is a member"
            case Halt(reason):
                yield f"{process} halts: {reason}"


def tell(value: object) -> str:
    """Put a packet, or a part of one, into words: ``Revise(m, 7)``."""
    match value:
        case Message():
            return value.id
        case tuple() | list():
            return "[" + " ".join(map(tell, value)) + "]"
        case _ if is_dataclass(value) and not isinstance(value, type):
            return f"{type(value).__name__}({', '.join(tell(getattr(value, f.name)) for f in fields(value))})"
        case "":
            return "⊥"
        case _:
            return str(value)


def _outcome(stepper: Stepper, record: Record, found: Sequence[Violation]) -> Iterator[str]:
    for process in stepper.setup.processes:
        yield f"{process}: {' '.join(stepper.delivered(process)) or '(nothing)'}"
    if stepper.transit:
        yield f"in transit: {', '.join(f'{p.source} to {p.to}: {tell(p.packet)}' for p in stepper.transit)}"
    yield f"class: {classify(record).smallest}"
    for violation in found:
        yield f"wrong: {violation.guarantee}: {violation.text}"
