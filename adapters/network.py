"""What a connection needs of a network, independent of its carrier: the ports for the adapters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from adapters.places import Position
from sequencing.cut import ReadResult
from sequencing.errors import GamecastError, NoLeader
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.keyed import Snapshot
from sequencing.node import Answer
from sequencing.plan import Plan
from sequencing.record import Pair, Record, Request

if TYPE_CHECKING:
    from adapters.presence import Presence
    from sequencing.updates import Bundle


class Hidden(NamedTuple):
    """Events of a region that a reader misses, because it got forged ones with their numbers; and the reason."""

    region: str
    epoch: int
    first: int
    last: int
    reason: str


Answered = Callable[[Sequence[Answer], Exception | None], None]
"""Takes the answers to frames, or why there are none."""


class Found(Protocol):
    """Takes what is read without the task that reads."""

    def has_room(self) -> bool:
        """Return whether it takes anything now."""

    def take(self, result: ReadResult) -> bool:
        """Take what was read; return whether there is room for more: if not, the `read` that waits is to return."""

    def take_next(self, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        """Take one frame, if there is room and it is one that the session has predicted; else `take` is to take it.

        ``whole``: as in `ReadResult`.
        """


class Sender(Protocol):
    """A connection's publishing at one node."""

    limit_s: float
    """For how long it waits for answers."""

    def take(self) -> Sequence[PublishedFrame]:
        """Return the frames of its next request; none if there are none, or if `Lane.publish` is to bring them."""

    def answered(self, answers: Sequence[Answer], error: Exception | None) -> None:
        """Take the answers to what was taken, or why there are none: then its outcome is unknown."""

    def must_publish(self) -> None:
        """Hear that nothing is taken here: `Lane.publish` is to bring it."""


class Lane(Protocol):
    """One publisher's access to one ingress node; one request at a time."""

    def follow(self, plan: Plan) -> None:
        """From the next request on, talk to the node in the run that a plan names."""

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Offer frames; raises `NetworkError` if their outcome is unknown."""

    def offer(self) -> None:
        """Have the `Sender` asked for frames, with others in this round of the event loop, and these published."""

    def may_send(self) -> bool:
        """Return whether `send` can be called: nothing hinders it, and nothing else could go together with it."""

    def send(self, frame: PublishedFrame) -> None:
        """Publish one frame now, without a task; the `Sender` is told the answer."""

    async def close(self) -> None:
        """Close the connection."""


class Streams(Protocol):
    """One task's access to the egress streams of one node; one call at a time."""

    def follow(self, plan: Plan) -> None:
        """From the next call on, talk to the node in the run that a plan names."""

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """Return frames after the given positions, at most ``frames_max`` per region, waiting up to ``block_ms``.

        None returns what is there now, without waiting. It also returns at once if the streams differ from those of the
        last call, because their frames may wait for a read of all streams. An idle Redis checks only every 100 ms
        whether a blocked command has timed out. Of `Places`, a call costs what has changed in them since the last one.
        """

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        """Return the newest frame of each stream, (region, epoch), None for an empty one.

        The result is no older than anything that was read before.
        """

    async def close(self) -> None:
        """Close the connection; a waiting read is broken off (`NetworkError`, or an empty result)."""


class Reader(Streams, Protocol):
    """One subscriber's access to the egress streams of one node."""

    async def interrupt(self) -> None:
        """Break off a waiting `read` (`NetworkError`, or an empty result); the next call works as usual."""

    def tell(self, receiver: Found | None) -> None:
        """Hand what comes while a `read` waits to somebody at once, if it can be, and not to the `read`."""

    def hidden(self) -> Sequence[Hidden]:
        """Return, once, the known places where this reader got forged events instead of the true ones."""

    async def snapshots(self, regions: Sequence[tuple[str, int]]) -> dict[str, Snapshot] | None:
        """Return the keys of regions that enter here, (region, epoch) each, as of one moment; None unless all do."""


class UpdatePort(Protocol):
    """One connection's access to the updates of all nodes: see `sequencing.updates`. Nothing waits here, or fails."""

    def follow(self, plan: Plan) -> None:
        """Find the nodes where a plan says."""

    def has_room(self, node: str) -> bool:
        """Return whether a node takes messages now; if not, `on_room` is called when it does."""

    def send(self, node: str, region: str, message: bytes) -> None:
        """Send a message to those who listen to a region at a node."""

    def listen(self, node: str, region: str, *, on: bool) -> None:
        """Begin or end to take what is sent to a region at a node."""

    async def close(self) -> None:
        """End."""


class UpdateUser(Protocol):
    """Whom an `UpdatePort` serves."""

    def take_updates(self, region: str, bundle: Bundle) -> None:
        """Take what was sent to a region."""

    def on_room(self) -> None:
        """Hear that a node takes messages again."""


class Forgotten(GamecastError):
    """The network has forgotten what this connection wanted: it is to tell all of it."""

    retriable = True


class Network(Protocol):
    """A network as one connection sees it: the control plane, and access to the nodes."""

    @property
    def url(self) -> str:
        """The URL with which other connections join the same network."""

    async def open(self) -> None:
        """Connect to the control plane.

        Raises `NetworkError` or `OtherSideError`, and then leaves nothing half-open.
        """

    async def close(self) -> None:
        """Release everything, in reverse order of opening."""

    async def introduce(self, name: str) -> int:
        """Register a new connection of a name; return its incarnation, larger than all before.

        Later calls speak for this connection, and raise `Superseded` when a newer one of the name exists.
        """

    async def renew(self, after: int = 0) -> int:
        """Return a new incarnation for this connection's events, also larger than ``after``."""

    async def join(self, request: Request) -> bool:
        """Store what this connection wants; return whether it is granted at once. If not, a plan grants it.

        Raises `Forgotten`.
        """

    async def place(self, regions: frozenset[str]) -> None:
        """Have the next plan give some regions a place, because this connection publishes to them."""

    async def declare_overlaps(self, overlaps: frozenset[Pair]) -> None:
        """Declare expected overlaps, see `sequencing.expected`."""

    async def beat(self, *, at_once: bool = True, doing: str = "") -> bool:
        """Report that the connection lives; return whether it must store its interest again, because it had expired.

        ``at_once``: else it may be a little later, together with other connections. ``doing``: what dashboards show of
        it, see `sequencing.doing.Doing`.
        """

    async def leave(self) -> None:
        """Report that the connection ends."""

    async def announce_probe(self, name: str, text: bytes) -> None:
        """Register the address at which a recording server answers probes; it expires unless it is registered again."""

    async def withdraw_probe(self, name: str) -> None:
        """Remove that address."""

    async def probe_addresses(self) -> Mapping[str, bytes]:
        """Return the registered addresses, name → text."""

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """Return the records announced after a plan, in order, or the newest of all, waiting up to ``block_ms``."""

    async def stop_watching(self) -> None:
        """Break off a waiting `news`, for good."""

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """Return plans that say where some regions were, in the epochs that plans after epoch ``after`` ended.

        Oldest first, as far back as is known; the newest plan is the last. Older plans may be incomplete.
        """

    async def ending(self) -> frozenset[tuple[str, int]]:
        """Return the epochs that are ending, (region, epoch) each; all events of other ended epochs have arrived."""

    async def no_leader_error(self) -> NoLeader | None:
        """Return the error for a caller that waits for a plan. None if there is a leader, or this connection can lead.

        There is also no leader for a moment after a leader dies.
        """

    async def latest_plan(self) -> Plan | None:
        """Return the newest announced plan."""

    async def listed(self) -> Record | None:
        """Return the newest announced record with all regions and members, also where plans list none."""

    def lane(self, node: str, plan: Plan, sender: Sender | None = None) -> Lane:
        """Return an access for publishing at a node; ``sender``: for `Lane.offer`."""

    def reader(self, node: str, plan: Plan) -> Reader:
        """Return an access for reading at a node."""

    def presence(self) -> Presence:
        """Return an access to the register of who is present."""

    def updates(self, user: UpdateUser) -> UpdatePort:
        """Return an access for updates."""
