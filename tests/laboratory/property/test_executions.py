"""Executions drawn at random: the characterisations of causal order are one, and the crown test is right."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from classic.executions.classes import (
    classify,
    co_violations,
    empty_interval_violations,
    fifo_violations,
    mo_violations,
)
from classic.executions.crowns import find_crown, message_graph, non_separated_extension
from classic.executions.guarantees import violations
from classic.executions.happened_before import HappenedBefore
from classic.executions.record import Event, Kind, Record, Sent
from classic.protocols.process import Guarantee

PROCESSES = "abcd"


@st.composite
def executions(draw: st.DrawFn, *, multicasts: bool = True) -> Record:
    """A record: at each step a process sends, or receives something that is under way to it."""
    events: list[Event] = []
    messages: dict[str, Sent] = {}
    under_way: list[tuple[str, str]] = []
    for number in range(draw(st.integers(1, 14))):
        if len(under_way) > 0 and draw(st.booleans()):
            message, process = under_way.pop(draw(st.integers(0, len(under_way) - 1)))
            events.append(Event(process, Kind.RECEIVE, message))
            continue
        sender = draw(st.sampled_from(PROCESSES))
        others = [process for process in PROCESSES if process != sender]
        to = draw(st.sets(st.sampled_from(others), min_size=1, max_size=3 if multicasts else 1))
        messages[f"m{number}"] = Sent(sender, ",".join(sorted(to)), frozenset(to))
        events.append(Event(sender, Kind.SEND, f"m{number}"))
        under_way.extend((f"m{number}", process) for process in sorted(to))
    for message, process in draw(st.permutations(under_way)):
        events.append(Event(process, Kind.RECEIVE, message))
    return Record(tuple(events), messages, processes=tuple(PROCESSES))


def none(found: Iterable[object]) -> bool:
    return next(iter(found), None) is None


@given(executions())
@settings(max_examples=60)
def test_the_three_characterisations_of_causal_order_are_one_class(record: Record) -> None:
    before = HappenedBefore(record)
    everything = range(len(before.events))
    interval_is_empty = all(
        not (before.holds(send, x) and before.holds(x, receive)) for send, receive in before.pairs() for x in everything
    )
    co, mo = none(co_violations(before)), none(mo_violations(before))
    assert co == mo == interval_is_empty == none(empty_interval_violations(before))
    assert co == none(violations(record, [Guarantee.CAUSAL])), "and the one that judges protocols"


@given(executions())
@settings(max_examples=60)
def test_an_execution_is_rsc_exactly_when_the_graph_of_its_messages_is_acyclic(record: Record) -> None:
    graph = message_graph(record)
    remaining = dict(graph)
    while free := [m for m in remaining if not any(m in after for after in remaining.values())]:
        for message in free:
            del remaining[message]
    crown, extension = find_crown(record), non_separated_extension(record)
    assert bool(crown) == bool(remaining)
    assert bool(crown) != bool(extension)
    assert all(later in graph[earlier] for earlier, later in pairwise((*crown, *crown[:1])))


@given(executions())
@settings(max_examples=60)
def test_a_non_separated_extension_extends_happened_before_and_keeps_messages_together(record: Record) -> None:
    extension = non_separated_extension(record)
    if not extension:
        return
    before = HappenedBefore(record)
    place = {event: i for i, event in enumerate(extension)}
    assert len(place) == len(before.events)
    for a in range(len(before.events)):
        for b in range(len(before.events)):
            if before.holds(a, b):
                assert place[before.events[a]] < place[before.events[b]]
    blocks = [event.message for event in extension if event.kind is Kind.SEND]
    assert [m for m, following in pairwise([*(e.message for e in extension), ""]) if m != following] == blocks


@given(executions(multicasts=False))
@settings(max_examples=60)
def test_the_classes_are_within_each_other(record: Record) -> None:
    classes = classify(record)
    if not classes.crown:
        assert classes.ei
    if classes.ei:
        assert none(fifo_violations(HappenedBefore(record)))
    else:
        assert classes.causal is not None
        one, other, graph = classes.causal.message, classes.causal.by, message_graph(record)
        assert other in graph[one], "exercise 6.4: what overtakes and what is overtaken are a crown of size 2"
        assert one in graph[other]
