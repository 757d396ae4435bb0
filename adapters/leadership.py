"""What a leader needs of a network, independent of its carrier: the ports for the adapters, and the lease."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from sequencing.errands import Seen
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

if TYPE_CHECKING:  # a candidate performs none
    from sequencing.sole import BeginAny, BeginNoMore
    from sequencing.transition import Task

LEASE_MS = 2_000
"""A leader that has not renewed its lease for this long has lost it; see also `adapters.redis.lease`."""

LOOK_EVERY_MS = 500
"""How often a leader reads the control store and renews its lease; a request makes it do so sooner."""

TTL_MS = 10_000
"""A connection that has not reported for this long counts as disconnected."""

BLIND_MS = 5_000
"""If no leader checked the connections for longer than this, the control store or all managers were away.

Then no connection is declared disconnected.
"""

RESUME_S = 60.0
"""How long a disconnected subscriber keeps its place: if it reconnects in time, it resumes in the same order."""


class Control(Protocol):
    """The control store, as a manager uses it."""

    async def look(self, token: str, lease_ms: int, *, begins: bool = True) -> Seen | None:
        """Take or renew the lease, and return what a leader decides by; None while another candidate leads.

        ``begins``: whether a turn begins, whose writes follow from what is seen. In a turn, what was written meanwhile
        is seen as well, but has all further writes refused: they would follow from an older record. Even a write of
        this candidate's own can be such a one, if it came late and had no answer.
        """

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
        """Note for operators why this candidate fails, and remove what cannot be used; empty: it works again."""

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
    installed: Mapping[str, tuple[int, int, int]]
    """The newest plan that each of the other nodes of the last `runs` knows, see `sequencing.errands.Runs`."""

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
