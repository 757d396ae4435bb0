"""What a leader needs of a network, independent of its carrier: the ports for the adapters, and the lease."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

if TYPE_CHECKING:  # a candidate performs none
    from sequencing.sole import BeginAny, BeginNoMore
    from sequencing.transition import Task

LEASE_MS = 2_000
"""A leader that has not renewed its lease for this long has lost it; see also `adapters.redis.lease`."""

LOOK_EVERY_MS = 500
"""How often a leader reads the control store and renews its lease; a request makes it do so sooner."""

RESUME_S = 60.0
"""How long a disconnected subscriber keeps its place: if it reconnects in time, it resumes in the same order."""

CROWD = 20
"""Among this many subscribers, several are likely to change their interests at the same time."""


class Seen(NamedTuple):
    """What a leader decides by.

    ``record``: None in a new network; ``announced``: the newest (epoch, version) that clients may know; ``asked``: the
    position at which `Control.asked` continues; ``nodes``: name → url. A node in ``may_lose`` may have an older state
    after a restart.
    """

    record: Record | None
    interests: Mapping[str, Interest]
    published: frozenset[str]
    announced: tuple[int, int]
    asked: str
    nodes: Mapping[str, str]
    may_lose: frozenset[str] = frozenset()
    expected: int = 0
    """The number of declared overlaps."""
    taken: bool = False
    """Whether the lease was taken just now: another candidate may have led in the meantime."""
    doubted: Mapping[str, str] = {}
    """Node → the run of its server in which it was found to have lost something, however it is registered."""

    touched: frozenset[str] | None = None
    """The names that have asked for something, or gone, since the last look; None: any may have."""
    is_sole: bool = False
    """Whether the control store grants joins by itself, because one node has all regions."""
    connections: int = 0
    proposed: str = ""
    """The id of a plan that an operator proposes, and that has no answer yet."""

    def is_crowded(self, asking: Collection[str]) -> bool:
        """Return whether many subscribers are there and a new interest is likely to affect all of them.

        ``asking``: who has one. Never on one node.
        """
        record = self.record
        if record is None or record.behind or self.expected or len(self.interests) < CROWD or len(self.nodes) == 1:
            return False
        return bool(asking)

    def is_announced(self, plan: Plan) -> bool:
        """Return whether clients may know a plan."""
        return (plan.epoch, plan.version) <= self.announced


class Control(Protocol):
    """The control store, as a manager uses it."""

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """Take or renew the lease, and return what a leader decides by; None while another candidate leads."""

    async def expected(self) -> frozenset[Pair]:
        """Return the declared overlaps; declarations are permanent."""

    async def keep(self, token: str, lease_ms: int) -> bool:
        """Renew the lease; False if another candidate leads, or led since it expired."""

    async def save(self, token: str, record: Record) -> bool:
        """Save a record; False if the lease is lost."""

    async def announce(self, token: str, record: Record) -> bool:
        """Announce a plan that all nodes know, once; False if the lease is lost."""

    async def grant(self, token: str, record: Record) -> bool:
        """Save and announce, in one step, a record whose transition goes on; False if the lease is lost."""

    async def settle(self, token: str, record: Record) -> bool:
        """Save and announce, in one step, a record for whose plan the nodes have nothing to do."""

    async def found(self, token: str, record: Record) -> bool:
        """Announce a plan that lists no region, and grant joins in place from now on; False if the lease is lost."""

    async def begin_to_plan(self, token: str) -> Mapping[str, Interest] | None:
        """From now on, grant no join without a plan; return what each connection wants, None without the lease."""

    async def proposal(self) -> tuple[str, Plan] | None:
        """Return the plan that is proposed, and its id; None if there is none. Raises `PlanError` if it is none."""

    async def answer(self, token: str, proposal: str, answer: str) -> bool:
        """Answer a proposal, by its id, if it is still the one; False if the lease is lost."""

    async def runs_seen(self) -> Mapping[str, str]:
        """Return the last run of each node that was noted."""

    async def note_runs(self, token: str, runs: Mapping[str, str]) -> bool:
        """Keep the runs of some nodes for the next leader; False if the lease is lost."""

    async def incarnations(self) -> tuple[int, frozenset[str]]:
        """Return the last incarnation and the names of all open connections, both of the same moment."""

    async def failed(self, reason: str) -> None:
        """Note for operators why this candidate fails, and remove what nobody can use; empty: it works again."""

    async def resign(self, token: str) -> None:
        """Release the lease."""

    async def asked(self, after: str, *, block_ms: int) -> None:
        """Wait for a new request, up to ``block_ms``."""

    async def close(self) -> None:
        """Close the connection."""


class NodeOperator(Protocol):
    """The nodes, as a manager accesses them."""

    emptied: frozenset[str]
    """The empty nodes of the last `runs`: they know no plan, or somebody deleted their keys."""

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """Return the runs of the servers of some nodes, name → url; unreachable nodes are left out."""

    async def perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        """Carry out a task at its node, if the node is in the run that the plan names; otherwise return False."""

    async def forget_publishers(self, plan: Plan, upto: int, living: AbstractSet[str]) -> None:
        """Have each reachable node remove publishers of incarnations up to ``upto``, except the living names.

        See `sequencing.node.Node.forget_publishers`.
        """

    async def close(self) -> None:
        """Close the connections."""
