"""What leading takes of a network, whatever carries it: the ports that the adapters implement, and the lease."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

if TYPE_CHECKING:  # a candidate performs none
    from sequencing.transition import Task

LEASE_MS = 2_000
"""A leader that has not been heard of for so long is no leader any more; see also `adapters.redis.lease`."""

LOOK_EVERY_MS = 500
"""A leader looks around, and prolongs its lease, as often as this, or sooner when it is asked for something."""

RESUME_S = 60.0
"""For so long who has gone is counted: who comes back within it finds the order of its regions kept."""

CROWD = 20
"""Of so many, whoever wants something is likely not to be alone."""


class Seen(NamedTuple):
    """What a leader decides by.

    ``record``: None in a network that is new; ``announced``: the (epoch, version) that everybody may know of;
    ``asked``: where `Control.asked` goes on; ``nodes``: name → url, of which those in ``may_lose`` may come back from a
    restart with an older state.
    """

    record: Record | None
    interests: Mapping[str, Interest]
    published: frozenset[str]
    announced: tuple[int, int]
    asked: str
    nodes: Mapping[str, str]
    may_lose: frozenset[str] = frozenset()
    expected: int = 0
    """How many overlaps are declared."""
    taken: bool = False
    """Whether the lease was taken just now: somebody else may have led since whoever looks did."""
    doubted: Mapping[str, str] = {}
    """Node → the run of its server in which it was found to have lost something, whatever it is registered as."""

    def is_crowded(self) -> bool:
        """Return whether somebody of many wants something that is likely to concern all of them: on one node, never."""
        record = self.record
        if record is None or record.behind or self.expected or len(self.interests) < CROWD or len(self.nodes) == 1:
            return False
        return any(interest.after(record.heard.get(name)) for name, interest in self.interests.items())

    def is_announced(self, plan: Plan) -> bool:
        """Return whether everybody may know of a plan."""
        return (plan.epoch, plan.version) <= self.announced


class Control(Protocol):
    """The control store, as a manager uses it."""

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """Take the lease or prolong it, and return what a leader decides by; None while somebody else leads."""

    async def expected(self) -> frozenset[Pair]:
        """Return the overlaps that are declared; none is ever taken back."""

    async def keep(self, token: str, lease_ms: int) -> bool:
        """Prolong the lease; False when somebody else leads, or did since it ran out."""

    async def save(self, token: str, record: Record) -> bool:
        """Keep a record; False when the lease is lost."""

    async def announce(self, token: str, record: Record) -> bool:
        """Tell everybody of a plan that all nodes know, once; False when the lease is lost."""

    async def settle(self, token: str, record: Record) -> bool:
        """Keep what a record comes to for whose plan nodes have nothing to do, and tell everybody of it, at once."""

    async def incarnations(self) -> tuple[int, frozenset[str]]:
        """Return the last incarnation that was given, and the names of all connections that there are, at one time."""

    async def resign(self, token: str) -> None:
        """Give the lease back."""

    async def asked(self, after: str, *, block_ms: int) -> None:
        """Wait until somebody wants something new, or for ``block_ms``."""

    async def close(self) -> None:
        """Release the connection."""


class NodeOperator(Protocol):
    """The nodes, as a manager reaches them."""

    emptied: frozenset[str]
    """The nodes of the last `runs` of which there is nothing: they know no plan, or somebody has emptied them."""

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """Return the runs that the servers of some nodes, name → url, are in: of those that can be reached."""

    async def perform(self, task: Task, plan: Plan) -> Any:
        """Do a task at its node, if that is in the run that the plan means, else return False."""

    async def forget_publishers(self, plan: Plan, upto: int, living: AbstractSet[str]) -> None:
        """Have each node that can be reached forget publishers of incarnations up to one, but for some names.

        See `sequencing.node.Node.forget_publishers`.
        """

    async def close(self) -> None:
        """Release the connections."""
