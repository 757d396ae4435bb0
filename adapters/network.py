"""What a connection needs of a network, whatever carries it: the ports that the adapters implement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from sequencing.cut import ReadResult
from sequencing.errors import NoLeader
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.node import Answer
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

Position = tuple[int, int]
"""(epoch, region sequence) of the last event that a reader has seen of a region."""


class Hidden(NamedTuple):
    """Events of a region that a reader does not get, because it had others with their numbers; and why."""

    region: str
    epoch: int
    first: int
    last: int
    reason: str


class Lane(Protocol):
    """One publisher's way to one ingress node; one request at a time."""

    def follow(self, plan: Plan) -> None:
        """Speak to the node as a plan knows it, from the next request on."""

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Offer frames; raises `NetworkError` when it is unknown what became of them."""

    async def close(self) -> None:
        """Release the connection."""


class Reader(Protocol):
    """One subscriber's way to the egress streams of one node; one call at a time."""

    def follow(self, plan: Plan) -> None:
        """Speak to the node as a plan knows it, from the next call on."""

    async def interrupt(self) -> None:
        """Break off a `read` that waits (`NetworkError`, or nothing found); the next call is as good as any."""

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """Return frames after the given positions, at most ``frames_max`` a region, waiting up to ``block_ms``.

        None: what is there now, and nothing if that is nothing; so it is, too, when other streams are read than the
        last time, whose frames may wait for a look at all. A Redis that is idle looks every 100 ms only whether
        somebody has waited for long enough.
        """

    def hidden(self) -> Sequence[Hidden]:
        """Return, once, the places in which other events than the true ones are known now to have been read."""

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        """Return the newest frame of each stream, (region, epoch), None of an empty one.

        As of a moment that is no earlier than any of which something was read before.
        """

    async def close(self) -> None:
        """Release the connection; a read that waits on it is broken off (`NetworkError`, or nothing found)."""


class Network(Protocol):
    """A network as one connection sees it: the control plane, and ways to the nodes."""

    url: str
    """By which other connections join the same network."""

    async def open(self) -> None:
        """Reach the control plane; raises `NetworkError` or `OtherSideError`, with nothing half-done."""

    async def close(self) -> None:
        """Release everything, in reverse order of opening."""

    async def introduce(self, name: str) -> int:
        """Tell that this is a new connection of a name; return its incarnation, larger than all before.

        What follows speaks for this connection, and raises `Superseded` once a newer one of the name is there.
        """

    async def renew(self, after: int = 0) -> int:
        """Return a new incarnation for this connection's events; ``after``: above this one, too."""

    async def set_interest(self, interest: Interest, published: frozenset[str]) -> None:
        """Tell which regions this connection wants, and to which it publishes."""

    async def declare_overlaps(self, overlaps: frozenset[Pair]) -> None:
        """Declare overlaps that are expected, see `sequencing.expected`."""

    async def beat(self) -> bool:
        """Tell that the connection lives; return whether what it wants is to be told again, for it counted as gone."""

    async def leave(self) -> None:
        """Tell that the connection is gone."""

    async def announce_probe(self, name: str, text: bytes) -> None:
        """Tell where a recording server answers probes; it is forgotten when nobody tells anything for long."""

    async def withdraw_probe(self, name: str) -> None:
        """Take that back."""

    async def probe_addresses(self) -> Mapping[str, bytes]:
        """Return what was told, name → text."""

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """Return what was announced after a plan, in order, or the newest of all, waiting up to ``block_ms``."""

    async def stop_watching(self) -> None:
        """Break off a `news` that waits, for good."""

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """Return plans that say where some regions were, in the epochs that plans after epoch ``after`` ended.

        Oldest first, as far back as is known; the newest plan is the last. Of older plans, only a part may be there.
        """

    async def ending(self) -> frozenset[tuple[str, int]]:
        """Return the epochs that are being left now, (region, epoch) each; of all others everything has arrived."""

    async def no_leader_error(self) -> NoLeader | None:
        """Return what to tell whoever waits for a plan, None if somebody leads, or this connection may come to.

        Nobody leads for a moment when a leader dies, too.
        """

    async def latest_plan(self) -> Plan | None:
        """Return the newest plan that was announced."""

    def lane(self, node: str, plan: Plan) -> Lane:
        """Return a way for publishing at a node."""

    def reader(self, node: str, plan: Plan) -> Reader:
        """Return a way for reading at a node."""
