"""What an examination of a network read, and one of its findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adapters.redis.access import AccessState, LeftoverState, Refused
from adapters.redis.networkstate import NetworkState

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``subject``: the examined part; ``seen``: its state; ``advice``: what to do, empty if all is well."""

    level: Level
    subject: str
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The input of the judgement: two surveys, the same one twice if the first was fine, and the results of trials.

    ``apart_s``: the time between the surveys. Work in progress moves in that time; what does not move is stuck.
    ``accesses``: by where they were tried, ``control`` or a node's name. ``leftovers``: by the node's name.
    """

    first: NetworkState
    second: NetworkState
    apart_s: float
    accesses: Mapping[str, AccessState] = field(default_factory=dict)
    leftovers: Mapping[str, LeftoverState] = field(default_factory=dict)
    locked_out: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """By the name of a node, or ``control``: replicas that do not let this user in, and what they say."""
    refused: Mapping[str, Sequence[Refused]] = field(default_factory=dict)
    """By the name of a node, or ``control``: who was refused there lately."""
    at_ms: int = 0
    """When the second one was made, in ms since 1970; 0 if that is not to be judged by."""
