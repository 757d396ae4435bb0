"""`gamecast gateway --trace`: what a process exports of a frame's path, as OpenTelemetry's variables say."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Socket, until_listening
from tests.patience import scaled

pytest.importorskip("opentelemetry.sdk.trace")

PROGRAM = [sys.executable, "-m", "gamecast", "gateway"]


@asynccontextmanager
async def tracing_gateway(redis_url: str, **environment: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run a gateway that traces; the context is its URL, and the process, which is to be ended within it."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        redis_url,
        *("--port", str(port), "--trace"),
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        await until_listening(process.stderr)
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """End a process, and return the spans that it printed."""
    process.terminate()
    output, errors = await asyncio.wait_for(process.communicate(), scaled(20))
    assert process.returncode == 0, errors.decode()
    return documents(output.decode())


def documents(text: str) -> list[dict[str, Any]]:
    """Read JSON documents that follow one another."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


async def test_each_step_of_an_events_path_is_exported_in_one_trace(redis_server: EmbeddedServer) -> None:
    async with tracing_gateway(redis_server.url, OTEL_TRACES_EXPORTER="console") as (url, process):
        async with Socket.open(url, name="bot") as socket:
            await socket.subscribe("forest")
            positions = [(await socket.publish("forest", number, id=number))["position"] for number in range(3)]
            await socket.take(3)
        spans = await ended(process)
    by_trace: dict[str, dict[str, dict[str, Any]]] = {}
    for span in spans:
        by_trace.setdefault(span["context"]["trace_id"], {})[span["name"]] = span
    assert len(by_trace) == 3, "a trace for each event"
    assert all(trace.keys() == {"gamecast publish", "gamecast deliver"} for trace in by_trace.values())
    told = sorted(trace["gamecast publish"]["attributes"]["gamecast.position"] for trace in by_trace.values())
    assert told == sorted(positions)
    for trace in by_trace.values():
        publish, deliver = trace["gamecast publish"], trace["gamecast deliver"]
        assert publish["parent_id"] == deliver["parent_id"] is not None
        assert deliver["attributes"]["gamecast.position"] == publish["attributes"]["gamecast.position"]
        assert deliver["attributes"]["gamecast.sender"] == "~bot"
        assert all(span["start_time"] <= span["end_time"] for span in trace.values())
        assert "payload" not in json.dumps(trace)


async def test_gateways_name_the_trace_of_an_event_alike(redis_server: EmbeddedServer) -> None:
    """One publishes, the other one delivers: neither knows of the other."""
    environment = {"OTEL_TRACES_EXPORTER": "console"}
    async with (
        tracing_gateway(redis_server.url, **environment) as (one, first),
        tracing_gateway(redis_server.url, **environment) as (other, second),
    ):
        async with Socket.open(one, name="talks") as talks, Socket.open(other, name="reads") as reads:
            await reads.subscribe("forest")
            await talks.publish("forest", 1)
            await reads.take(1)
        [published] = await ended(first)
        [delivered] = await ended(second)
    assert (published["name"], delivered["name"]) == ("gamecast publish", "gamecast deliver")
    assert published["context"]["trace_id"] == delivered["context"]["trace_id"]


async def test_nothing_is_exported_where_the_environment_says_so(redis_server: EmbeddedServer) -> None:
    async with tracing_gateway(redis_server.url, OTEL_TRACES_EXPORTER="none") as (url, process):
        async with Socket.open(url) as socket:
            await socket.publish("forest", 1)
        assert await ended(process) == []


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.local import extensions

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console,pigeons")
    with pytest.raises(gamecast.UsageError, match=r"'pigeons' is not installed.*console"):
        extensions("redis://127.0.0.1", trace=True)
