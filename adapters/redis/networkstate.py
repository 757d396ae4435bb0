"""What was read of a network, its nodes, regions and connections."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from adapters.redis.control import SOLE_NODE
from adapters.redis.probe import ServerState
from sequencing.doing import Doing
from sequencing.plan import Plan


@dataclass(frozen=True, slots=True)
class LinkState:
    """Waiting frames on the link to ``target``; ``head`` is the id of the first one, empty if there is none.

    ``sent``: how many frames the node has ever put on it, None if that cannot be read.
    """

    target: str
    frames: int
    head: str
    sent: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """One sequencing node, its ``url`` (``where``: without the password), and what is installed there.

    ``server`` is None if it cannot be reached, or refuses to answer: ``trouble`` says why. ``installed``: epoch and
    version of the newest plan on the node, (0, 0) for none. It and ``steps`` are None if they cannot be read.
    ``lacking``: regions of the published plan that visit the node, and that it does not know. ``registered`` and
    ``planned``: whether it is in the registry, and in the plan. ``may_lose``: whether it is registered as a node
    that may restart with an older state. ``unread``: what could not be read although the server answers.
    """

    name: str
    url: str = field(repr=False)
    where: str
    registered: bool
    planned: bool
    may_lose: bool
    server: ServerState | None = None
    trouble: str | None = None
    installed: tuple[int, int] | None = None
    retention_events: int = 0
    steps: int | None = 0
    lacking: frozenset[str] = frozenset()
    links: tuple[LinkState, ...] = ()
    unread: tuple[str, ...] = ()
    has_lost: bool = False
    """Whether it was found to have lost acknowledged events, although it is registered to keep all."""
    retired: bool = False
    """Whether it was taken out of the network for good; regions may still be there."""
    is_carried: bool | None = None
    """Whether somebody carries the links that leave it (`gamecast node`); None: no link does, or it is unknown."""
    accepted: int | None = None
    """How many frames it has accepted from other nodes, None if that cannot be read."""
    read_at_s: float | None = None
    """When its links and counters were read, by the monotonic clock of the reader; None if they were not."""


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """One connection that is registered in the control Redis.

    ``incarnation``: its number, 0 if it cannot be read. ``wanted``: the regions that it wants; ``waiting``: those that
    the published plan does not grant yet. ``heard_ms_ago`` is None if the connection never reported; ``alive``: whether
    that is recent enough.
    """

    name: str
    incarnation: int
    wanted: frozenset[str]
    waiting: frozenset[str]
    heard_ms_ago: int | None
    alive: bool
    doing: Doing | None = None
    """What it reported with its last heartbeat, None if it never did."""
    asks: frozenset[tuple[str, int]] = frozenset()
    """The waiting regions, and by which request: a region that is left and wanted again is another request."""


@dataclass(frozen=True, slots=True)
class TransitionState:
    """The transition to the next plan, ``epoch`` and ``version``.

    How many ``plans_behind`` and how many ``old_epochs`` of regions must still end. ``published``: whether that plan is
    published, because all nodes know it.
    """

    epoch: int
    version: int
    plans_behind: int
    old_epochs: int
    published: bool


@dataclass(frozen=True, slots=True)
class RegionState:
    """One region of the plan.

    Its egress stream has ``frames``; the oldest ends in number ``first`` and the newest in ``last``. ``drawn`` is the
    last number that its ingress assigned, read at ``drawn_at_s`` by the monotonic clock of the reader. None if the
    node cannot be asked. ``stream_bytes``: only for some long streams.
    """

    name: str
    path: tuple[str, ...]
    epoch: int
    frames: int | None = None
    first: int | None = None
    last: int | None = None
    drawn: int | None = None
    stream_bytes: int | None = None
    drawn_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class NetworkState:
    """A network as seen from outside. ``plan``: the newest published plan.

    ``transition``: the leader's current work, None if there is none. ``leader``: the leader's token, empty if there is
    no leader. ``lease_ms``: when its lease ends, -1 for never, None without a lease. Both are None if they cannot be
    read. ``unplaced``: regions for which events wait, and for which the plan has no path. ``has_moved``: whether a
    newer plan was published during the survey, so that nodes may know more than ``plan``. ``waited_s``: for how long
    the survey only waited for nodes that did not answer.
    """

    where: str
    control: ServerState
    plan: Plan | None
    transition: TransitionState | None
    leader: str | None
    lease_ms: int | None
    nodes: tuple[NodeState, ...]
    connections: tuple[ConnectionState, ...]
    unplaced: frozenset[str]
    regions: tuple[RegionState, ...] = ()
    unread: tuple[str, ...] = ()
    has_moved: bool = False
    waited_s: float = 0.0
    connections_unread: bool = False
    """Whether it cannot be read which connections are there: ``connections`` lacks some then."""
    trouble: str = ""
    """Why a leader candidate failed in the last `TROUBLE_MS` of `adapters.redis.leadercontrol`."""

    @property
    def servers(self) -> Sequence[tuple[Sequence[str], ServerState]]:
        """Each server that answers, with the names of what it hosts: ``control``, nodes, or both."""
        servers: dict[str, tuple[list[str], ServerState]] = {self.control.run: ([SOLE_NODE], self.control)}
        for node in self.nodes:
            if node.server is not None:
                names, _ = servers.setdefault(node.server.run, ([], node.server))
                names += [node.name] if node.name not in names else []
        return tuple(servers.values())


def without_egress(network: NetworkState) -> AbstractSet[str]:
    """Return the regions that their last node does not know, so that the end of their stream says nothing.

    The node's server has lost its data, or has not got the plan yet.
    """
    lacking = {node.name: node.lacking for node in network.nodes if node.lacking}
    if not lacking:
        return frozenset()
    return {region.name for region in network.regions if region.name in lacking.get(region.path[-1], ())}
