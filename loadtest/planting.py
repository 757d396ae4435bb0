"""Plant violations on purpose, to check a load test's judgement: one user then reports wrong deliveries."""

from __future__ import annotations

from loadtest.journal import Log

PLANT_AT = 40
"""Deliveries that a log must have before a violation is planted, so that others deliver the same events by the end."""


def plant(kind: str, log: Log) -> bool:
    """Plant a violation of this kind in a log. Return whether it was possible.

    An inversion swaps the last event with the one before it in its region, which others have in the opposite order.
    """
    if log.place < PLANT_AT or len(log.events) < 4:
        return False
    match kind:
        case "inversion":
            last = len(log.regions) - 1
            before = (place for place in range(last - 1, -1, -1) if log.regions[place] == log.regions[last])
            if (place := next(before, None)) is None:
                return False
            for column in (log.events, log.regions, log.senders, log.positions):
                column[last], column[place] = column[place], column[last]
        case "loss":
            for column in (log.events, log.regions, log.senders, log.positions):
                del column[-2]
        case "duplicate":
            log.deliver(log.events[-2], log.regions[-2], log.senders[-2], log.positions[-2])
        case _:
            return False
    return True
