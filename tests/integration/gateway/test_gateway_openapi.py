"""The HTTP part is as its description says, for requests that schemathesis draws from it; event streams never end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.embedded.server import EmbeddedServer
from gateway.descriptions import openapi
from tests.integration.gateway_clients import running_gateway

EXAMPLES = os.environ.get("GAMECAST_HTTP_EXAMPLES", "20")
"""How many requests are drawn for each operation."""

# A schema cannot say that a region name has no "*", or that a position exists: such requests are refused.
LEFT_OUT = "positive_data_acceptance"
UNBOUNDED: dict[str, Any] = dict.fromkeys(
    ("events_per_s", "burst_events", "requests_per_s", "burst_requests", "new_regions_per_s", "burst_new_regions"), 1e6
)


async def complaints(description: Path, url: str, examples: str) -> tuple[int | None, str]:
    command = Path(sys.executable).with_name("st")
    checks = "--checks", "all", "--exclude-checks", LEFT_OUT, "--continue-on-failure"
    draws = "--phases", "examples,coverage,fuzzing", "--max-examples", examples, "--seed", "1"
    process = await asyncio.create_subprocess_exec(
        *(command, "run", description, "--url", url, *checks, *draws, "--exclude-operation-id", "stream", "--no-color"),
        cwd=description.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode()


@pytest.mark.parametrize("is_wrong", [False, True], ids=["the description", "a wrong description"])
async def test_drawn_requests_are_answered_as_described(
    redis_server: EmbeddedServer, tmp_path: Path, is_wrong: bool
) -> None:
    described = json.loads(json.dumps(openapi()))
    if is_wrong:
        described["components"]["schemas"]["Receipt"]["required"].append("nothing")
    (tmp_path / "openapi.json").write_text(json.dumps(described), encoding="utf-8")
    async with running_gateway(redis_server.url, **UNBOUNDED) as running:
        examples = "1" if is_wrong else EXAMPLES
        status, said = await complaints(tmp_path / "openapi.json", running.url, examples)
    assert status == (1 if is_wrong else 0), said[-5_000:]
    assert ("'nothing' is a required property" in said or '"nothing" is a required property' in said) is is_wrong
