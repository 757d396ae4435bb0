"""A sequencing node that lives in Redis: the script, and the streams around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.network import Position
from adapters.redis_connection import RedisConnection, Script
from sequencing.errors import PlanError
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.node import Answer, LinkedFrame, NodeKeys, TransferAnswer, TransferVerdict, encode_step
from sequencing.plan import Plan

STEP = Script.beside(__file__, "step.lua")
INSTALL = Script.beside(__file__, "install.lua")

INSTALL_STEPS_MAX = 1000
"""How many regions one script call installs: Redis blocks while it runs."""


class RedisNode:
    """One task's connection to one node."""

    def __init__(self, name: str, url: str) -> None:
        """``url``: of the Redis server that hosts the node. Does not connect yet."""
        self.name = name
        self._keys = NodeKeys(name)
        self._connection = RedisConnection(url)
        self._egress_keys: dict[str, bytes] = {}
        self._region_of: dict[bytes, str] = {}
        self._step_keys = (self._keys.node, self._keys.steps, self._keys.counters, self._keys.publishers)

    async def ping(self) -> None:
        """Reach the server; raises `NetworkError` or `OtherSideError`."""
        await self._connection.call("PING")

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Run the step for published frames."""
        arguments: list[Any] = ["publish"]
        for frame in frames:
            arguments += (frame.region, frame.epoch, frame.publisher, frame.incarnation)
            arguments += (frame.first, frame.count, int(frame.kind), frame.body)
        answers = await self._connection.run(STEP, self._step_keys, *arguments)
        return [Answer.decode(answer) for answer in answers]

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Run the step for frames that come over the link from ``source``."""
        arguments: list[Any] = ["transfer", source]
        for sequence, frame in ((linked.sequence, linked.frame) for linked in frames):
            arguments += (sequence, frame.region, frame.epoch, frame.last, frame.meta, frame.stamp, frame.body)
        verdict, accepted = await self._connection.run(STEP, self._step_keys, *arguments)
        return TransferAnswer(TransferVerdict(verdict.decode()), int(accepted))

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> list[StampedFrame]:
        """Read egress streams; see `Reader.read`."""
        if after.keys() != self._egress_keys.keys():
            self._egress_keys = {region: self._keys.egress(region).encode() for region in after}
            self._region_of = {key: region for region, key in self._egress_keys.items()}
        ids = [b"%d-%d" % after[region] for region in self._egress_keys]
        reply = await self._connection.call(
            *("XREAD", "COUNT", frames_max, "BLOCK", block_ms, "STREAMS"), *self._region_of, *ids
        )
        frames: list[StampedFrame] = []
        for key, entries in reply or ():
            region = self._region_of[key]
            for entry_id, fields in entries:
                epoch, _, last = entry_id.partition(b"-")
                # An entry that no node wrote becomes a frame that cannot be read.
                _, meta, _, stamp, _, body = fields if len(fields) == 6 else (b"",) * 6
                frames.append(StampedFrame(region, int(epoch), int(last), meta, stamp, body))
        return frames

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> list[LinkedFrame]:
        """Read the link towards ``target`` after a link sequence, waiting up to ``block_ms``."""
        key = self._keys.link(target)
        reply = await self._connection.call(
            "XREAD", "COUNT", frames_max, "BLOCK", block_ms, "STREAMS", key, f"{after}-{2**64 - 1}"
        )
        return [
            LinkedFrame(
                int(entry_id.partition(b"-")[0]),
                StampedFrame(region.decode(), int(epoch), int(last), meta, stamp, body),
            )
            for _, entries in reply or ()
            for entry_id, (_, region, _, epoch, _, last, _, meta, _, stamp, _, body) in entries
        ]

    async def acknowledge(self, target: str, accepted: int) -> None:
        """Trim from the link what its target has accepted."""
        await self._connection.call("XTRIM", self._keys.link(target), "MINID", "=", f"{accepted + 1}-0")

    async def install(self, plan: Plan, retention_events: int) -> None:
        """Install this node's steps of a plan; raises `PlanError` when a later plan is installed already."""
        steps = [
            (step.region, encode_step("I" if step.ingress else "T", step.next, step.atoms))
            for step in plan.steps(self.name)
        ]
        keys = (self._keys.node, self._keys.steps, self._keys.counters)
        for start in range(0, max(len(steps), 1), INSTALL_STEPS_MAX):
            chunk = [field for step in steps[start : start + INSTALL_STEPS_MAX] for field in step]
            installed = await self._connection.run(INSTALL, keys, plan.epoch, plan.version, retention_events, *chunk)
            if not installed:
                raise PlanError(f"node {self.name!r} has a plan later than {plan.epoch}.{plan.version} installed")

    async def close(self) -> None:
        """Release the connection."""
        await self._connection.close()
