"""Load shapes: the number of users, their publishing rate and their churn over the course of a run.

Shapes are pure functions of the run's progress, from 0 to 1. `loadtest.locustfile` makes locust follow them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CALM_CHURN_PER_S = 0.002
STORM_CHURN_PER_S = 0.25
"""In a churn storm a user reconnects, or leaves a region and rejoins it, every 4 s; in calm, every 500 s."""
CROWD_SHARE = 0.5
"""Share of users that come with the crowd."""
NIGHT = 0.15
"""Lowest load of a day, as a share of its peak."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The present load: the share of all users that run (0 … 1], a factor for each user's publishing rate, and the
    probability that a user reconnects or leaves a region within a second."""

    users: float = 1.0
    rate: float = 1.0
    churn_per_s: float = CALM_CHURN_PER_S


Shape = Callable[[float], Moment]


def steady(_progress: float) -> Moment:
    """All users from the start, at one rate."""
    return Moment()


def ramp(progress: float) -> Moment:
    """From a tenth of the users to all of them, in ten steps."""
    return Moment(users=min(1.0, (math.floor(progress * 10) + 1) / 10))


def crowd(progress: float) -> Moment:
    """Half of the users. A third into the run, the other half joins one region at once. At two thirds, half leave."""
    return Moment(users=1.0 if 1 / 3 <= progress < 2 / 3 else 1 - CROWD_SHARE)


def churn(progress: float) -> Moment:
    """All users. In the middle half of the run, each reconnects or leaves a region every few seconds."""
    stormy = 0.25 <= progress < 0.75
    return Moment(churn_per_s=STORM_CHURN_PER_S if stormy else CALM_CHURN_PER_S)


def day(progress: float) -> Moment:
    """One day: from night over the evening's peak, at two thirds of the run, back to night, in 24 steps."""
    hour = math.floor(min(progress, 0.999) * 24) / 24
    load = NIGHT + (1 - NIGHT) * (0.5 - 0.5 * math.cos(2 * math.pi * _bent(hour)))
    # The load is the product of users and rate, so each of them follows its square root.
    return Moment(users=max(NIGHT, math.sqrt(load)), rate=math.sqrt(load))


SHAPES: Mapping[str, Shape] = {"steady": steady, "ramp": ramp, "crowd": crowd, "churn": churn, "day": day}


def is_of_crowd(slot: int, users: int, *, shape: str) -> bool:
    """Return whether the user of this slot comes with the crowd: in the shape ``crowd``, the later slots do."""
    return shape == "crowd" and slot >= math.ceil(users * (1 - CROWD_SHARE))


def _bent(hour: float) -> float:
    """Map the time of a day whose peak is at two thirds to one whose peak is at noon."""
    return hour * 0.75 if hour <= 2 / 3 else 0.5 + (hour - 2 / 3) * 1.5
