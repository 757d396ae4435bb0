"""Load shapes: how many users there are, how fast they publish and how often they come and go, as a run goes on.

Pure functions of the run's progress, 0 at its start and 1 at its end; `loadtest.locustfile` has locust follow them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CALM_CHURN_PER_S = 0.002
STORM_CHURN_PER_S = 0.25
"""In a churn storm a user reconnects, or leaves a region and comes back, every 4 s; in calm, every 500 s."""
CROWD_SHARE = 0.5
"""Of all users, those who come with the crowd."""
NIGHT = 0.15
"""What is left of a day's load at its lowest."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is asked for now: the share of all users that are there (0 … 1], a factor for the rate at which each
    publishes, and how likely each is to come or go within a second."""

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
    """Half of the users; a third into the run the other half comes to one region at once. At two thirds as many go."""
    return Moment(users=1.0 if 1 / 3 <= progress < 2 / 3 else 1 - CROWD_SHARE)


def churn(progress: float) -> Moment:
    """All users; in the middle half of the run each comes and goes every few seconds."""
    stormy = 0.25 <= progress < 0.75
    return Moment(churn_per_s=STORM_CHURN_PER_S if stormy else CALM_CHURN_PER_S)


def day(progress: float) -> Moment:
    """A day in a run: from night over the evening's peak, at two thirds, back to night; in 24 steps, as hours."""
    hour = math.floor(min(progress, 0.999) * 24) / 24
    load = NIGHT + (1 - NIGHT) * (0.5 - 0.5 * math.cos(2 * math.pi * _bent(hour)))
    # Users come and go half as much as the load does: the rest is that those who are there do more.
    return Moment(users=max(NIGHT, math.sqrt(load)), rate=math.sqrt(load))


SHAPES: Mapping[str, Shape] = {"steady": steady, "ramp": ramp, "crowd": crowd, "churn": churn, "day": day}


def is_of_crowd(slot: int, users: int, *, shape: str) -> bool:
    """Return whether the user of this slot comes with the crowd: in that shape, the later ones."""
    return shape == "crowd" and slot >= math.ceil(users * (1 - CROWD_SHARE))


def _bent(hour: float) -> float:
    """Take a day whose peak is at two thirds to one whose peak is at noon."""
    return hour * 0.75 if hour <= 2 / 3 else 0.5 + (hour - 2 / 3) * 1.5
