"""Whether an execution could have run on instantaneous messages: the crown test, in linear time.

A crown is a circle of messages m₀, m₁, …, in which each one's send happens before the next one's receive. No schedule
can have all of them happen at once, so an execution is realizable with synchronous communication (RSC) if, and only if,
it has none.

The relation "m's send happens before m's receive of another" is large; its circles are found in a small graph. Draw an
arrow from one message to another where, on some process' line, an event of the first is followed immediately by an
event of the second. A circle of these arrows goes along messages in either direction and along lines from left to
right, which is what a crown is; and any crown unfolds into such steps. So the test is a topological sort over one arrow
an event (exercise 6.3). When it succeeds, its order is a schedule: every message with its send and its receives next to
each other, a non-separated linear extension.

A multicast counts as one message: at once means at once for all of its receivers.

Source: Kshemkalyani 2008, §6.2.1, Figure 6.6, Theorem 6.1, exercises 6.2–6.4 (Charron-Bost et al.).
"""

from __future__ import annotations

from collections import Counter, defaultdict

from classic.executions.happened_before import HappenedBefore
from classic.executions.record import Event, Record

SHORTENED_MESSAGES_MAX = 200
"""Longer crowns are shown as they were found: looking for short cuts takes the square of their length."""


def find_crown(record: Record) -> list[str]:
    """Return the messages of a crown, as few of one circle as are a crown; empty if the execution is RSC."""
    following = _steps(record)
    circle = _circle(following)
    return _shorten(circle, record) if 2 < len(circle) <= SHORTENED_MESSAGES_MAX else circle


def non_separated_extension(record: Record) -> list[Event]:
    """Return the events in an order that keeps each message's together; empty if there is a crown."""
    following = _steps(record)
    order = _sorted(following)
    if len(order) < len(following):
        return []
    events: dict[str, list[Event]] = {message: [] for message in order}
    for event in record.between_processes():
        events[event.message].append(event)
    return [event for message in order for event in events[message]]


def message_graph(record: Record) -> dict[str, set[str]]:
    """Return the whole relation of Figure 6.6: message → those whose receive its send happens before."""
    before = HappenedBefore(record)
    return {
        one: {
            other
            for other in before.messages
            if other != one and any(before.holds(before.send[one], receive) for receive in before.receives[other])
        }
        for one in before.messages
    }


def _steps(record: Record) -> dict[str, list[str]]:
    """Message → those with an event immediately behind one of its own, on some line."""
    following: dict[str, list[str]] = {}
    last: dict[str, str] = {}
    for event in record.between_processes():
        following.setdefault(event.message, [])
        previous = last.get(event.process, event.message)
        if previous != event.message:
            following[previous].append(event.message)
        last[event.process] = event.message
    return following


def _sorted(following: dict[str, list[str]]) -> list[str]:
    preceding = Counter(after for successors in following.values() for after in successors)
    order = [message for message in following if not preceding[message]]
    for message in order:
        for after in following[message]:
            preceding[after] -= 1
            if not preceding[after]:
                order.append(after)
    return order


def _circle(following: dict[str, list[str]]) -> list[str]:
    knot = following.keys() - set(_sorted(following))
    if not knot:
        return []
    before: dict[str, str] = {}
    for message in (m for m in following if m in knot):
        for after in following[message]:
            before.setdefault(after, message)
    line = [next(m for m in following if m in knot)]
    seen = {line[0]: 0}
    while True:
        message = before[line[-1]]
        if message in seen:
            return line[seen[message] :][::-1]
        seen[message] = len(line)
        line.append(message)


def _shorten(circle: list[str], record: Record) -> list[str]:
    """Take short cuts: where a message's send happens before the receive of one further on, leave out those between."""
    before = HappenedBefore(record)
    leads = defaultdict(set)
    for one in circle:
        for other in circle:
            if one != other and any(before.holds(before.send[one], r) for r in before.receives[other]):
                leads[one].add(other)
    best = circle
    for start in circle:
        # The shortest way round from here, breadth first.
        came_from = {start: ""}
        frontier = [start]
        for message in frontier:
            if start in leads[message]:
                line = [message]
                while came_from[line[-1]]:
                    line.append(came_from[line[-1]])
                best = min(best, line[::-1], key=len)
                break
            for other in sorted(leads[message]):
                if other not in came_from:
                    came_from[other] = message
                    frontier.append(other)
    return best
