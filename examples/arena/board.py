"""Compares the worlds of game servers while they play: the same thing, after as many events about it, in all of them.

Servers are not equally far at any moment of the clock. But the hundredth event about a bot is its hundredth event
everywhere, and after it the bot must be the same everywhere: so nothing that is only late counts as different.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

LAG_MAX = 2_000
"""States of one thing that one server has and another has not, e.g. because it lost an event: the oldest go first."""


class Board:
    """Notes states, and counts those that differ.

    ``compared``: states that all servers of a thing have reached; ``differing``: those of them that were not the same
    everywhere; ``apart``: the things that were not, when they were last compared.
    """

    def __init__(self, computed_by: Mapping[str, Iterable[str]]) -> None:
        """``computed_by``: thing → the game servers that compute it."""
        self._reached = {thing: {server: deque[Any]() for server in servers} for thing, servers in computed_by.items()}
        self.compared = 0
        self.differing = 0
        self.apart: set[str] = set()

    def add(self, thing: str, servers: Iterable[str]) -> None:
        """Compare one more thing, from now on, unless it is compared already."""
        if thing not in self._reached:
            self._reached[thing] = {server: deque[Any]() for server in servers}

    def note(self, server: str, thing: str, state: Any) -> None:
        """Note what a thing is in a server's world after one more event about it."""
        reached = self._reached[thing]
        mine = reached[server]
        mine.append(state)
        if len(mine) > LAG_MAX:
            mine.popleft()
        while all(reached.values()):
            first, *others = (states.popleft() for states in reached.values())
            self.compared += 1
            if all(other == first for other in others):
                self.apart.discard(thing)
            else:
                self.differing += 1
                self.apart.add(thing)

    @property
    def things(self) -> int:
        """How many things are compared."""
        return len(self._reached)

    @property
    def behind(self) -> int:
        """How many states wait for the other servers of the thing."""
        return sum(len(states) for reached in self._reached.values() for states in reached.values())
