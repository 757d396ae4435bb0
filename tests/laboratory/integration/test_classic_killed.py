"""The classic protocols that go on after crashes, with operating-system processes that are killed as they publish."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from adapters.embedded.server import EmbeddedServer
from classic.executions.guarantees import violations
from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.setup import Assumption
from laboratory.protocols.executionlog import read_execution
from tests.laboratory.integration.classic_survivor import FIVE
from tests.patience import patience

KILLED = ("p1", "p3")
"""p1 is the first sequencer and the first leader; of five, a majority is left."""
QUIET_S = 1.5
SURVIVING = [name for name, protocol in PROTOCOLS.items() if Assumption.NO_CRASHES not in protocol.assumes]


@asynccontextmanager
async def players(url: str, protocol: str, folder: Path) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    network, root = uuid4().hex, Path(__file__).parents[3]
    started = {
        name: await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.laboratory.integration.classic_survivor"),
            *(url, network, protocol, name, str(folder / f"{name}.jsonl")),
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in FIVE
    }
    try:
        for player in started.values():
            assert player.stdout is not None
            assert await player.stdout.readline() == b"ready\n"
        yield started
    finally:
        for player in started.values():
            if player.returncode is None:
                player.kill()
                await player.wait()


def tell(player: asyncio.subprocess.Process, line: str) -> None:
    assert player.stdin is not None
    player.stdin.write(f"{line}\n".encode())


async def until_quiet(logs: list[Path]) -> None:
    """Return when no log has grown for some time."""
    before = [-1]
    for _ in range(100):
        now = [log.stat().st_size for log in logs]
        if now == before:
            return
        before = now
        await asyncio.sleep(QUIET_S)


@pytest.mark.parametrize("protocol", SURVIVING)
async def test_those_who_are_left_keep_what_the_protocol_declares(
    protocol: str, shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    async with patience(60), players(shared_redis.url, protocol, tmp_path) as started:
        await asyncio.sleep(0.5)
        for victim in KILLED:
            started[victim].kill()
            await started[victim].wait()
            await asyncio.sleep(0.1)
            if Assumption.CRASHES_REPORTED in PROTOCOLS[protocol].assumes:
                for name in FIVE:
                    if started[name].returncode is None:
                        tell(started[name], f"suspect {victim}")
                        await asyncio.sleep(0.05)  # not all at once
            await asyncio.sleep(0.3)
        left = [name for name in FIVE if name not in KILLED]
        for name in left:
            tell(started[name], "stop")
        logs = [tmp_path / f"{name}.jsonl" for name in FIVE]
        await until_quiet(logs)
        await asyncio.gather(*(started[name].communicate(b"") for name in left))
    for victim in KILLED:
        log = tmp_path / f"{victim}.jsonl"
        whole = log.read_bytes().rpartition(b"\n")[0] + b"\n"
        log.write_bytes(whole + b'{"process": "%s", "event": "crash"}\n' % victim.encode())
    record = read_execution(logs)
    assert {message.sender for message in record.messages.values()} == set(FIVE)
    assert record.faulty == set(KILLED)
    assert [violation.text for violation in violations(record, PROTOCOLS[protocol].guarantees)] == []
    last = [record.deliveries()[name][-1] for name in left]
    assert all(message.partition("-")[0] in left for message in last), "they went on without those who were killed"
