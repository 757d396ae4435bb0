"""The cost of numbering frames: bytes beside their events, by atoms and nodes, and the server's time for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import orjson

from adapters.embedded.server import EmbeddedServers
from adapters.redis.connection import RedisConnection, parse_info
from adapters.redis.node import RedisNode
from laboratory.bench.workload import payload_of
from placement.planner import make_plan
from sequencing.errors import ProcessFailed
from sequencing.frames import PublishedFrame, StampedFrame, encode_json_body
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan

ATOMS = (0, 1, 2, 4, 8, 16)
FRAMES = 1_000
"""Of each region; numbers grow with them, and so do stamps."""

FRAMES_AT_ONCE = 50

CALLS = """
local step, row = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[2])
redis.call('PUBLISH', KEYS[5], '')
local numbers = redis.call('HMGET', KEYS[3], ARGV[1], '0')
redis.call('XADD', KEYS[4], '1-' .. ARGV[3], 'm', '0 1 1 1 publisher-0', 's', '0,1', 'b', ARGV[4])
redis.call('PUBLISH', KEYS[4], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3], '0', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return { 'ok 1 1' }
"""
"""The calls of a step for a lone frame."""

_KEYS = "calls:steps", "calls:publishers", "calls:counters", "calls:stream", "calls:"

NEIGHBOURS = (0, 10, 60)
LONE_FRAMES = 3_000


@dataclass(frozen=True, slots=True)
class StampCost:
    """Bytes of a frame, means over `FRAMES` frames with an event each.

    ``stamp_bytes``: as subscribers read it; ``frame_bytes``: with all that is not the events; ``link_bytes``: the same
    on the last link of its path, 0 where there is none; ``event_bytes``: of the events.
    """

    nodes: int
    atoms: int
    stamp_bytes: float
    frame_bytes: float
    link_bytes: float
    event_bytes: float


async def measure_stamps(lengths: Sequence[int], atoms: Sequence[int] = ATOMS, frames: int = FRAMES) -> list[StampCost]:
    """Send frames along paths of such lengths by hand, on redis-servers of their own; some seconds."""
    async with EmbeddedServers(max(lengths)) as servers:
        plan = _plan(servers.urls, lengths, atoms)
        nodes = [RedisNode(name, url, plan) for name, url in plan.nodes.items()]
        try:
            for node in nodes:
                await node.install(plan, retention_events=frames)
            return [await _measure(nodes[:length], count, frames, plan.epoch) for length in lengths for count in atoms]
        finally:
            for node in nodes:
                await node.close()


async def measure_script(
    neighbours: Sequence[int] = NEIGHBOURS, frames: int = LONE_FRAMES
) -> dict[str, dict[str, float]]:
    """Publish frames alone in a region on one node whose subscribers have other regions, too; takes some seconds.

    Returns number of others → ``script_us``, the script's time by Redis's own count, ``calls_us``, that of a script
    that makes the same calls and computes nothing, and ``stamp_bytes``, means.
    """
    found: dict[str, dict[str, float]] = {}
    for count in neighbours:
        regions = ["hub", *(f"other-{number}" for number in range(count))]
        plan = make_plan(Membership.of({name: frozenset(regions) for name in ("s1", "s2")}), {"n1": ""})
        async with EmbeddedServers(1) as servers:
            node = RedisNode("n1", servers.urls[0], plan)
            server = RedisConnection(servers.urls[0])
            try:
                await node.install(plan, retention_events=frames)
                body = encode_json_body([0], [orjson.dumps(payload_of(0))])
                for number in range(1, frames + 1):
                    await node.publish([PublishedFrame("hub", plan.epoch, "publisher-0", 1, number, 1, body)])
                script_us = await _evalsha_us(server)
                received, _ = await node.read({"hub": (plan.epoch, 0)}, frames_max=frames, block_ms=None)
                sha = await server.call("SCRIPT", "LOAD", CALLS)
                await server.call("CONFIG", "RESETSTAT")
                for number in range(1, frames + 1):
                    await server.call("EVALSHA", sha, 5, *_KEYS, "1 hub", "hub\npublisher-0", number, body)
                calls_us = await _evalsha_us(server)
            finally:
                await node.close()
                await server.close()
        stamps = fmean(len(frame.stamp) for frame in received)
        found[str(count)] = {"script_us": script_us, "calls_us": calls_us, "stamp_bytes": stamps}
    return found


async def _evalsha_us(server: RedisConnection) -> float:
    told = parse_info(await server.call("INFO", "commandstats"))["cmdstat_evalsha"]
    return float(dict(figure.split("=") for figure in told.split(","))["usec_per_call"])


def _plan(urls: Sequence[str], lengths: Sequence[int], atoms: Sequence[int]) -> Plan:
    """Every hub is a region with some atoms, spread over the nodes of its path, one with each of its spokes."""
    names = [f"n{number}" for number in range(1, len(urls) + 1)]
    paths: dict[str, tuple[str, ...]] = {}
    planned: list[Atom] = []
    for length in lengths:
        for count in atoms:
            paths[_hub(length, count)] = tuple(names[:length])
            for number in range(count):
                spoke = f"{_hub(length, count)}-{number}"
                paths[spoke] = tuple(names[:length])
                atom = AtomId(len(planned) + 100)  # of three digits, as in a network that has run for a while
                planned.append(Atom(atom, (_hub(length, count), spoke), names[number % length]))
    return Plan(1, 1, "acyclic", dict(zip(names, urls, strict=True)), paths, tuple(planned))


def _hub(length: int, atoms: int) -> str:
    return f"hub-{length}-{atoms:02d}"


async def _measure(path: Sequence[RedisNode], atoms: int, frames: int, epoch: int) -> StampCost:
    region = _hub(len(path), atoms)
    body = encode_json_body([0], [orjson.dumps(payload_of(0))])
    link_sizes: list[int] = []
    for first in range(1, frames + 1, FRAMES_AT_ONCE):
        numbers = range(first, min(first + FRAMES_AT_ONCE, frames + 1))
        await path[0].publish([PublishedFrame(region, epoch, "publisher-0", 1, number, 1, body) for number in numbers])
        for source, target in pairwise(path):
            linked = await source.read_link(target.name, 0, frames_max=FRAMES_AT_ONCE, block_ms=1)
            if target is path[-1]:
                link_sizes += [_size(link.frame) + len(region) for link in linked]
            answer = await target.transfer(source.name, linked)
            await source.acknowledge(target.name, answer.accepted)
    received, _ = await path[-1].read({region: (epoch, 0)}, frames_max=frames, block_ms=1)
    if len(received) != frames:
        raise ProcessFailed(f"{len(received)} of {frames} frames came to the end of the path of {region}")
    return StampCost(
        nodes=len(path),
        atoms=atoms,
        stamp_bytes=fmean(len(frame.stamp) for frame in received),
        frame_bytes=fmean(map(_size, received)),
        link_bytes=fmean(link_sizes) if link_sizes else 0.0,
        event_bytes=fmean(len(frame.body) for frame in received),
    )


def _size(frame: StampedFrame) -> int:
    """Return how many bytes of a frame are not its events: its number, meta and stamp."""
    return len(f"{frame.epoch}-{frame.last}") + len(frame.meta) + len(frame.stamp)
