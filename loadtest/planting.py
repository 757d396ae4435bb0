"""Violations on purpose: who checks a load test's judgement has one user report what it did not see."""

from __future__ import annotations

from loadtest.journal import Log

PLANT_AT = 40
"""Deliveries that a log has before something is planted in it: others have delivered these events by the end."""


def plant(kind: str, log: Log) -> bool:
    """Break the order of a log in this way; return whether there was the opportunity.

    An inversion is one of two regions' events, or else of one region's, which others have in the other order.
    """
    if log.place < PLANT_AT or len(log.events) < 4:
        return False
    match kind:
        case "inversion":
            for column in (log.events, log.regions, log.senders, log.positions):
                column[-1], column[-4] = column[-4], column[-1]
        case "loss":
            for column in (log.events, log.regions, log.senders, log.positions):
                del column[-2]
        case "duplicate":
            log.deliver(log.events[-2], log.regions[-2], log.senders[-2], log.positions[-2])
        case _:
            return False
    return True
