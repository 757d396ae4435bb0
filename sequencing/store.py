"""The control store without IO: what connections say, and what leaders write.

The twin of ``control.lua`` and ``leading.lua``: each call here is one there, done all at once, and has its answer.
``memory://`` and the simulation run it. What the scripts do for the sake of Redis has no counterpart: clocks that jump,
requests in parts, keys of a wrong type, and what wakes whom.

A connection is known by the incarnation that it was introduced with, and is gone when it was not heard of for a while.
What it wanted is forgotten then. If its name is still free when it is heard of again, it is back, and is to tell all
that it wants. A leader is fenced by its token, and by how often the state was written, as it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from math import inf
from typing import NamedTuple

from sequencing.errands import Seen
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record, Request

CHANGES_MAX = 20_000
"""A leader that is further behind reads what all want."""

GONE_MAX = 10_000
"""So many names that are gone may come back."""


class Heard(StrEnum):
    """The answers to a connection; the values are those of ``control.lua``."""

    OK = "ok"
    PLAN = "plan"
    """A plan is to grant it."""
    BACK = "back"
    """It is to tell all that it wants."""
    SUPERSEDED = "superseded"
    """A newer connection has its name."""


class Fence(NamedTuple):
    """What a leader writes with: its token, and how often the state was written when it looked."""

    token: str
    number: int


class Known(NamedTuple):
    """What a candidate knows of the store, by its last look: how often the state was written, how many changes were
    noted, and how often the lease was taken."""

    number: int = -1
    noted: int = 0
    term: int = -1


class ControlStore:
    """The control store of one network. Times are in ms, of a clock that does not jump."""

    def __init__(self, nodes: Mapping[str, str], *, ttl_ms: float = inf, blind_ms: float = inf) -> None:
        """``nodes``: name → url, of those that are registered; none is sure to lose anything.

        ``ttl_ms``: who was not heard of for so long is gone; ``blind_ms``: unless no leader has looked for
        longer than that.
        """
        self.nodes = dict(nodes)
        self.lossy: set[str] = set()
        """Nodes whose server may have an older state after a restart."""
        self.record: Record | None = None
        """From which leaders go on."""
        self.announced: list[Record] = []
        self.interests: dict[str, Interest] = {}
        self.published: set[str] = set()
        """Regions that events are to be published to, and that had no place."""
        self.expected: frozenset[Pair] = frozenset()
        self.is_sole = False
        """Whether joins are granted in place, because one node has all regions."""
        self.connections: dict[str, int] = {}
        """Name → the connection that speaks for it."""
        self.incarnation = 0
        """The last one that was given; the next one is left for others."""
        self.runs: dict[str, str] = {}
        """The run of each node that may be given up, as it was noted last."""
        self.proposed: tuple[str, Plan] | None = None
        """What an operator proposes, by its id, and no leader has answered."""
        self.answers: dict[str, str] = {}
        """Proposal → its answer, empty if the network goes over to it."""
        self.doubted: dict[str, str] = {}
        """Node → the run of its server in which somebody found that it has lost something."""
        self._ttl_ms, self._blind_ms = ttl_ms, blind_ms
        self._alive: dict[str, float] = {}
        """Name → until when its connection counts as there; the order is that of the times, as all live equally long
        from when they were heard of."""
        self._gone: dict[str, int] = {}
        """Name → its last connection, not heard of for too long."""
        self._leader, self._led, self._lease_until = "", "", -inf
        self._term = 0
        """How often the lease was taken by another candidate than the last one."""
        self._number = 0
        """How often the state was written."""
        self._asked = self._noted = 0
        self._changes: deque[str] = deque(maxlen=CHANGES_MAX)
        """The names that the last changes concern, empty for a region's place."""
        self._looked: float | None = None

    # What connections do: control.lua.

    def introduce(self, name: str, now: float) -> int:
        """Give a new connection of a name its incarnation, larger than all before."""
        self.connections[name] = connection = self.next_incarnation()
        self._gone.pop(name, None)
        self._lives(name, now)
        if self.is_sole:
            self.interests.pop(name, None)
        if connection == 2:  # the first one of all: the leader begins the network
            self._asked += 1
        return connection

    def renew(self, name: str, connection: int, after: int = 0) -> int | None:
        """Return a new incarnation for a connection's events, after another one; None: it is superseded."""
        return self.next_incarnation(after) if self.speaks(name, connection) else None

    def beat(self, name: str, connection: int, said: int, now: float) -> Heard:
        """Note that a connection lives; ``said``: up to which it has told what it wants, as far as it knows."""
        if not self.speaks(name, connection):
            return Heard.SUPERSEDED
        self._is_here(name, connection, now)
        self._lives(name, now)
        known = self.interests.get(name)
        is_known = known is not None and known.incarnation == connection and known.said >= said
        return Heard.OK if is_known else Heard.BACK

    def join(self, name: str, request: Request, now: float) -> Heard:
        """Note what a connection wants; of one that is here, it is granted at once where that takes no plan."""
        if not self.speaks(name, request.incarnation):
            return Heard.SUPERSEDED
        self._is_here(name, request.incarnation, now)
        known = self.interests.get(name)
        begins = known is None or known.incarnation != request.incarnation
        if begins and not request.whole and request.said != 1:  # what is said first is all
            return Heard.BACK
        if begins or (known is not None and request.said >= known.said):  # else it was held up on its way
            before = None if begins else known
            if (interest := request.after(before)) is not None:
                self.interests[name] = interest
            if not self.is_sole:
                self._note(name)
        return Heard.OK if self.is_sole else Heard.PLAN

    def place(self, name: str, connection: int, regions: Iterable[str], now: float) -> Heard:
        """Note the regions that events are to be published to."""
        if not self.speaks(name, connection):
            return Heard.SUPERSEDED
        self._is_here(name, connection, now)
        fresh = self._without_place(regions) - self.published
        if fresh:
            self.published |= fresh
            self._note("")
        return Heard.OK

    def leave(self, name: str, connection: int) -> None:
        """Note that a connection ends."""
        if not self.speaks(name, connection):
            return
        for known in (self.connections, self._alive, self._gone, self.interests):
            known.pop(name, None)
        if not self.is_sole:
            self._note(name)

    def expect(self, overlaps: Iterable[Pair]) -> None:
        """Declare overlaps; they stay."""
        expected = self.expected.union(overlaps)
        self._asked += expected != self.expected
        self.expected = expected

    def doubt(self, node: str, run: str) -> None:
        """Note that a node has lost something in a run of its server."""
        if self.doubted.get(node) != run:
            self.doubted[node] = run
            self._asked += 1

    def next_incarnation(self, after: int = 0) -> int:
        """Return a new incarnation, larger than all before and than another one."""
        drawn = self.incarnation + 2
        self.incarnation = drawn if drawn > after else after + 2
        return self.incarnation

    def speaks(self, name: str, connection: int) -> bool:
        """Whether a connection speaks for a name: it is known, or was, and no other has been since."""
        return self.connections.get(name, self._gone.get(name)) == connection

    def news(self, after: tuple[int, int] | None) -> list[Record]:
        """Return what was announced after an (epoch, version), in order; None: the newest of all, if there is any."""
        if after is None:
            return self.announced[-1:]
        at = len(self.announced)
        while at and number_of(self.announced[at - 1].plan) > after:
            at -= 1
        return self.announced[at:]

    # What leaders do: leading.lua.

    @property
    def asked(self) -> str:
        """Changes whenever something was asked for that leaders are to see."""
        return f"{self._asked} {self._noted}"

    @property
    def known(self) -> Known:
        """What is known after a look now."""
        return Known(self._number, self._noted, self._term)

    def register(self, node: str, url: str, *, may_lose: bool = False) -> str:
        """Register a node; return the empty text, or where it is registered already: that cannot change."""
        at = self.nodes.setdefault(node, url)
        if at != url:
            return at
        (self.lossy.add if may_lose else self.lossy.discard)(node)
        self._asked += 1
        return ""

    def look(self, token: str, lease_ms: float, now: float, known: Known) -> Seen | None:
        """Take or renew the lease, and return what a leader decides by; None while another candidate leads.

        What others wrote since it looked, a candidate reads again: then any name may have asked for something. Of an
        interest that was heard, nothing is kept but its number.
        """
        if self._leader_now(now) not in ("", token):
            return None
        self._hold(token, lease_ms, now)
        is_taken = known.term != self._term
        self._forget_absent(now)
        behind = self._noted - known.noted
        touched: frozenset[str] | None = None
        if not is_taken and known.number == self._number and 0 <= behind <= len(self._changes):
            touched = frozenset(islice(reversed(self._changes), behind)) - {""}
        elif self.record is not None:
            heard = {name: replace(each, since={}) for name, each in self.record.heard.items()}
            self.record = replace(self.record, heard=heard)
        plan = self.announced[-1].plan if self.announced else None
        sought = self.published
        if self.record is not None and not self.record.plan.sole:
            sought = self.published = {*self.record.plan.without_place(self.published)}
        return Seen(
            self.record,
            dict(self.interests),
            frozenset(sought),
            number_of(plan) if plan is not None else (0, 0),
            self.asked,
            dict(self.nodes),
            frozenset(self.lossy),
            len(self.expected),
            is_taken,
            {node: run for node, run in self.doubted.items() if node in self.nodes},
            touched,
            self.is_sole,
            len(self.connections),
            self.proposed[0] if self.proposed is not None else "",
        )

    def keep(self, token: str, lease_ms: float, now: float) -> bool:
        """Renew the lease; False if another candidate leads, or led since it ran out."""
        if (self._leader_now(now) or self._led) != token:
            return False
        self._hold(token, lease_ms, now)
        return True

    def save(self, fence: Fence, record: Record, now: float) -> bool:
        """Keep a record. As all that is written: False without the lease, or where it was written meanwhile."""
        return self._write(fence, now) and self._saved(record)

    def announce(self, fence: Fence, record: Record, now: float) -> bool:
        """Announce a plan that all nodes know, once, and keep it."""
        if self.announced and number_of(record.plan) <= number_of(self.announced[-1].plan):
            return self._leader_now(now) == fence.token
        return self._write(fence, now) and self._saved(record) and self._told(record)

    def grant(self, fence: Fence, record: Record, now: float) -> bool:
        """Keep and announce a record whose transition goes on."""
        return self._write(fence, now) and self._saved(record) and self._told(record)

    def settle(self, fence: Fence, record: Record, now: float) -> bool:
        """Announce a record for whose plan the nodes have nothing to do, and keep it as it is then."""
        return self._write(fence, now) and self._saved(record.settled()) and self._told(record)

    def found(self, fence: Fence, record: Record, now: float) -> bool:
        """Announce a plan that lists no region, and grant joins in place from now on."""
        if not self.grant(fence, record, now):
            return False
        self.is_sole = True
        self.doubted.clear()  # what was lost was of a network before
        return True

    def begin_to_plan(self, fence: Fence, now: float) -> dict[str, Interest] | None:
        """Grant nothing in place from now on; return what is wanted, None if it cannot be written."""
        if not self._write(fence, now):
            return None
        self.is_sole = False
        return dict(self.interests)

    def note_runs(self, fence: Fence, runs: Mapping[str, str], now: float) -> bool:
        """Keep the runs of some nodes for the next leader."""
        if not self._write(fence, now):
            return False
        self.runs |= runs
        return True

    def propose(self, proposal: str, plan: Plan, now: float) -> str:
        """Propose a plan, under an id: ``ok``, ``busy`` while another one has no answer, ``none`` without a leader."""
        if not self._leader_now(now):
            return "none"
        if self.proposed is not None:
            return "busy"
        self.proposed = proposal, plan
        self._asked += 1
        return "ok"

    def answer(self, token: str, proposal: str, answer: str, now: float) -> bool:
        """Answer a proposal, if it is still the one."""
        if self._leader_now(now) != token:
            return False
        if self.proposed is not None and self.proposed[0] == proposal:
            self.proposed = None
            self.answers[proposal] = answer
        return True

    def resign(self, token: str) -> None:
        """Give the lease up."""
        if self._leader == token:
            self._leader = ""

    def expire(self, name: str) -> None:
        """Have the connection of a name count as gone at once."""
        if (connection := self.connections.pop(name, None)) is None:
            return
        self._gone[name] = connection
        self._alive.pop(name, None)
        self.interests.pop(name, None)
        self._note(name)
        if len(self._gone) > GONE_MAX:
            del self._gone[min(self._gone, key=lambda each: self._gone[each])]

    def _is_here(self, name: str, connection: int, now: float) -> None:
        if name not in self.connections:
            self.connections[name] = connection
            self._gone.pop(name, None)
            self._lives(name, now)

    def _lives(self, name: str, now: float) -> None:
        self._alive.pop(name, None)
        self._alive[name] = now + self._ttl_ms

    def _note(self, name: str) -> None:
        """Have the leader look again, for a connection has asked for something or gone; "" where it concerns none."""
        self._noted += 1
        self._changes.append(name)

    def _without_place(self, regions: Iterable[str]) -> frozenset[str]:
        plan = self.announced[-1].plan if self.announced else None
        return plan.without_place(regions) if plan is not None and not plan.sole else frozenset(regions)

    def _leader_now(self, now: float) -> str:
        return self._leader if now < self._lease_until else ""

    def _hold(self, token: str, lease_ms: float, now: float) -> None:
        self._term += self._led != token
        self._leader = self._led = token
        self._lease_until = now + lease_ms

    def _forget_absent(self, now: float) -> None:
        missed_ms = now - (now if self._looked is None else self._looked)
        self._looked = now
        if missed_ms > self._blind_ms:  # nor could connections be heard
            self._alive = {name: until + missed_ms for name, until in self._alive.items()}
        while self._alive and self._alive[first := next(iter(self._alive))] <= now:
            self.expire(first)

    def _write(self, fence: Fence, now: float) -> bool:
        if self._leader_now(now) != fence.token or fence.number != self._number:
            return False
        self._number += 1
        return True

    def _saved(self, record: Record) -> bool:
        self.record = record
        return True

    def _told(self, record: Record) -> bool:
        self.announced.append(record)
        return True


def number_of(plan: Plan) -> tuple[int, int]:
    """Return what plans are ordered by."""
    return plan.epoch, plan.version
