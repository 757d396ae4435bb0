"""The memory of the system's parts: frames that wait, frames that are kept, regions, subscribers."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from redis import Redis
from rich.console import Group
from rich.table import Table

from adapters.embedded.server import EmbeddedServer
from adapters.redis.node import RedisNode
from laboratory.bench.campaign import versions
from laboratory.bench.crowd import World, measure_crowd
from laboratory.bench.table import table_of
from laboratory.bench.workload import payload_of
from sequencing.delivery import Delivery
from sequencing.frames import PublishedFrame, StampedFrame, encode_json_body
from sequencing.keyspace import NodeKeys
from sequencing.plan import Atom, AtomId, Plan

EVENTS_A_FRAME = (1, 16)
FRAMES = 2_000
REGION, OTHER = "forest", "river"
MIB = 1 << 20
ATOM = Atom(AtomId(101), (REGION, OTHER), "n1")


@dataclass(frozen=True, slots=True)
class FrameMemory:
    """Bytes of a frame with ``events`` events, means over `FRAMES`.

    ``body_bytes``: the events as they travel; ``held_bytes``: in a subscriber where it waits for others;
    ``kept_bytes``: in Redis, in an egress stream; ``plain_bytes``: in Redis, the same events in a plain stream, an
    entry each.
    """

    events: int
    body_bytes: int
    held_bytes: float
    kept_bytes: float
    plain_bytes: float


def measure_memory(world: World, *, events: int, seed: int) -> dict[str, Any]:
    """Return what ``gamecast bench memory --json`` prints. Blocks and raises as `measure_crowd` does."""
    frames = asyncio.run(measure_frames())
    return {
        "frames": [asdict(frame) for frame in frames],
        "crowd": measure_crowd(world, events=events, seed=seed),
        "versions": versions(),
    }


async def measure_frames(frames: int = FRAMES) -> list[FrameMemory]:
    """Hold frames in this process, and keep them in a redis-server of its own; some seconds."""
    plan = Plan(1, 1, "acyclic", {"n1": ""}, {REGION: ("n1",), OTHER: ("n1",)}, (ATOM,))
    measured = []
    for events in EVENTS_A_FRAME:
        body = encode_json_body([0] * events, [orjson.dumps(payload_of(event)) for event in range(events)])
        async with EmbeddedServer() as server:
            node = RedisNode("n1", server.url, plan)
            try:
                await node.install(plan, retention_events=frames * events)
                for first in range(frames):
                    frame = PublishedFrame(REGION, 1, "publisher-0", 1, first * events + 1, events, body)
                    await node.publish([frame])
                stamped, _ = await node.read({REGION: (1, 0)}, frames_max=frames, block_ms=1)
            finally:
                await node.close()
            kept, plain = await asyncio.to_thread(_stream_bytes, server.url, frames * events)
        measured.append(FrameMemory(events, len(body), held_bytes(stamped), kept / frames, plain / frames))
    return measured


def held_bytes(stamped: Sequence[StampedFrame]) -> float:
    """Return the bytes of each frame in a subscriber that cannot deliver it, because one of the other region is
    missing."""
    delivery = Delivery(1, (REGION, OTHER), (ATOM,))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        # Read as from a socket: separate byte strings, and numbers one above the awaited one.
        delivery.receive(
            [
                StampedFrame(REGION, 1, frame.last, _own(frame.meta), b"%d,%d" % (ATOM.id, number), _own(frame.body))
                for number, frame in enumerate(stamped, start=2)
            ]
        )
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    if delivery.held_frames != len(stamped):
        raise RuntimeError(f"{delivery.held_frames} of {len(stamped)} frames are held")
    return grown / len(stamped)


def _own(text: bytes) -> bytes:
    return bytes(bytearray(text))


def _stream_bytes(url: str, events: int) -> tuple[int, int]:
    """Return the bytes of the egress stream, and of a plain one with ``events`` entries."""
    with Redis.from_url(url) as redis:
        for start in range(0, events, 100):
            pipeline = redis.pipeline(transaction=False)
            for event in range(start, min(start + 100, events)):
                pipeline.xadd("plain", {"e": orjson.dumps(payload_of(event))})
            pipeline.execute()
        egress, plain = (redis.memory_usage(key, samples=0) for key in (NodeKeys("n1").egress(1, REGION), "plain"))
        return egress, plain


def report(result: Mapping[str, Any]) -> Group:
    """Tables of 80 columns, and what the columns mean."""
    crowd = result["crowd"]
    flow = (
        f"{crowd['regions']:,} regions on one node, {crowd['subscribers']:,} subscribers with "
        f"{crowd['subscriptions']:,} subscriptions;\n{crowd['atoms']:,} atoms, epoch {crowd['epochs']}, "
        f"{crowd['connections']:,} connections. {crowd['events']:,} events, {crowd['deliveries']:,} deliveries\n"
        f"in {crowd['seconds']:.1f} s: {crowd['lost']} lost, {crowd['duplicated']} duplicated, "
        f"{crowd['inversions']} inversions, {crowd['cycles']} cycles."
    )
    note = (
        "x: in multiples of plain Redis: of a stream with an entry for each event, of a\n"
        "Pub/Sub connection for each subscriber. Their processes: what remains in use; in\n"
        "brackets, with what the C library keeps although it is free. Redis keys: when all\n"
        "have joined, before the events; what the regions take is not in a subscriber's."
    )
    return Group(table_of("\nframe of", _FRAME_HEADINGS, _frame_rows(result)), *_crowd_tables(crowd), flow, note)


_FRAME_HEADINGS = ("events,\nbytes", "held by a\nsubscriber", "kept in\nRedis", "plain\nstream", "\nx")


def _frame_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for frame in result["frames"]:
        yield (
            f"{frame['events']} event{'s' if frame['events'] > 1 else ''}",
            f"{frame['body_bytes']:,}",
            f"{frame['held_bytes']:,.0f}",
            f"{frame['kept_bytes']:,.0f}",
            f"{frame['plain_bytes']:,.0f}",
            f"{frame['kept_bytes'] / frame['plain_bytes']:.2f}",
        )


def _crowd_tables(crowd: Mapping[str, Any]) -> Iterator[Table]:
    stages = {"connect": crowd["opened"], "join, all at once": crowd["joined"], "plain Pub/Sub": crowd["plain"]}
    rows = (
        (
            name,
            f"{stage['seconds']:.1f}",
            f"{stage['process_bytes'] / MIB:,.1f} ({stage['resident_bytes'] / MIB:,.1f})",
            f"{stage['redis_bytes'] / MIB:,.1f}",
        )
        for name, stage in stages.items()
    )
    yield table_of("\nall subscribers", ("\ns", "their processes\nMiB", "Redis\nMiB"), rows)
    each, plain, ratio = crowd["a_subscriber"], crowd["a_plain_subscriber"], crowd["ratios"]
    rows_of_one = (
        (
            what,
            f"{each[key] / 1024:,.1f}",
            f"{plain[key] / 1024:,.1f}",
            f"{ratio[key]:.1f}" if key in ratio else "",
        )
        for what, key in (("in its process", "process_bytes"), ("in Redis", "redis_bytes"))
    )
    yield table_of("\na subscriber", ("\nKiB", "plain\nKiB", "\nx"), rows_of_one)
    keys = ((name, f"{size / 1024:,.0f}") for name, size in crowd["redis_bytes_by_key"].items())
    yield table_of("\nRedis keys", ["\nKiB"], (*keys, ("a region, bytes", f"{crowd['a_region']['redis_bytes']:,.0f}")))
