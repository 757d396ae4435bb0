"""What a connection needs of a network, whatever carries it: the ports that the adapters implement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.node import Answer
from sequencing.plan import Plan

Position = tuple[int, int]
"""(epoch, region sequence) of the last event that a reader has seen of a region."""


class Lane(Protocol):
    """One publisher's way to one ingress node; one request at a time."""

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Offer frames; raises `NetworkError` when it is unknown what became of them."""

    async def close(self) -> None:
        """Release the connection."""


class Reader(Protocol):
    """One subscriber's way to the egress streams of one node; one read at a time."""

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> list[StampedFrame]:
        """Return frames after the given positions, at most ``frames_max`` a region, waiting up to ``block_ms``."""

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

    async def renew(self) -> int:
        """Return a new incarnation for this connection."""

    async def subscribe(self, regions: Iterable[str]) -> int:
        """Record membership; return the epoch that it counts from. Raises `MembershipSettled`."""

    async def unsubscribe(self, regions: Iterable[str]) -> bool:
        """Take membership back; False (and nothing done) when it is settled."""

    async def subscribed(self) -> frozenset[str]:
        """Return the membership that is recorded for this connection."""

    async def beat(self) -> None:
        """Tell that the connection lives."""

    async def leave(self) -> None:
        """Tell that the connection is gone."""

    async def settle(self, regions: Iterable[str]) -> Plan:
        """Settle the membership for a publisher; return an installed plan that has paths for these regions."""

    async def plan_since(self, epoch: int, *, block_ms: int) -> Plan | None:
        """Return the newest plan of this epoch or a later one, waiting up to ``block_ms`` for it."""

    async def stop_watching(self) -> None:
        """Break off a `plan_since` that waits, for good."""

    async def latest_plan(self) -> Plan | None:
        """Return the newest plan, None before there is one."""

    def lane(self, node: str, plan: Plan) -> Lane:
        """Return a way to publish at a node of the plan."""

    def reader(self, node: str, plan: Plan) -> Reader:
        """Return a way to read the egress streams of a node of the plan."""
