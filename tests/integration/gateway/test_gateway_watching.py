"""Metrics, traces and the Grafana dashboard."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.embedded.server import EmbeddedServer
from gateway.local import extensions
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience, scaled

GRAFANA = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"


async def metrics_of(url: str) -> dict[str, dict[str, float]]:
    """Return metric → labels → value."""
    async with aiohttp.ClientSession() as client, client.get(url + "/metrics") as response:
        text = await response.text()
    return {
        sample.name: {
            ",".join(sorted(each.labels.values())): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.name == sample.name
        }
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_tell_of_the_gateway_and_of_the_network_behind_it(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with running_gateway(url, extensions=tuple(extensions(url))) as running, Socket.open(running.url) as socket:
        await socket.subscribe("forest", "river")
        for number in range(3):
            await socket.publish("forest", number, id=number)
        await socket.publish("a/../b", 1, id=9)
        await socket.take(3)
        found = await metrics_of(running.url)
        assert found["gamecast_gateway_sessions"] == {"": 1}
        assert found["gamecast_gateway_published_events_total"] == {"forest": 3}
        assert found["gamecast_gateway_sent_events_total"] == {"": 3}
        assert found["gamecast_gateway_refusals_total"] == {"invalid-region": 1}
        assert found["gamecast_gateway_delivery_seconds_count"] == {"forest": 3}
        assert found["gamecast_node_up"] == {"control": 1}
        assert found["gamecast_plan_regions"][""] >= 2
        assert found["gamecast_region_lag_events"] == {"forest": 0, "river": 0}
        assert found["gamecast_gateway_held_frames"] == {"": 0}
        assert found["gamecast_control_up"] == {"": 1}
        held = found["gamecast_gateway_hold_seconds_bucket"]
        assert held["+Inf"] >= held["0.0"] >= 3
        assert (await metrics_of(running.url))["gamecast_gateway_hold_seconds_bucket"] == held


async def hold_counts_of(url: str) -> list[float]:
    """Return how many frames were held, up to each bound, as `/metrics` says it."""
    return list((await metrics_of(url))["gamecast_gateway_hold_seconds_bucket"].values())


async def test_what_a_session_held_is_still_counted_when_it_has_ended_before_anybody_looked(
    redis_server: EmbeddedServer,
) -> None:
    url = redis_server.url
    async with running_gateway(url, extensions=tuple(extensions(url))) as running:
        async with Socket.open(running.url) as socket:
            await socket.subscribe("forest", "river")
            for number in range(5):
                await socket.publish("forest", number, id=number)
            await socket.take(5)
            seen = list(accumulate(running.gateway.connections.hold_counts()))
            assert seen[-1] >= 5
        await running.is_noted("session-closed")
        await running.gateway.connections.finish()
        found = await hold_counts_of(running.url)
        assert all(now >= then for now, then in zip(found, seen, strict=True))
        assert found[-1] < 2 * seen[-1], "counted twice"
        async with Socket.open(running.url) as socket:
            await socket.subscribe("forest")
            await socket.publish("forest", 5, id=5)
            await socket.take(1)
            assert (await hold_counts_of(running.url))[-1] > found[-1], "the next session counts on top"


async def test_what_is_held_for_a_client_that_dropped_is_counted_while_its_place_is_kept_and_after(
    redis_server: EmbeddedServer,
) -> None:
    url = redis_server.url
    async with (
        running_gateway(url, extensions=tuple(extensions(url)), keep_s=scaled(1.0)) as running,
        Socket.open(running.url, name="drops") as drops,
        Socket.open(running.url, name="talks") as talks,
    ):
        await drops.subscribe("forest")
        drops.drop()
        await running.is_noted("session-closed", name="~drops")
        before = (await hold_counts_of(running.url))[-1]
        for number in range(5):
            await talks.publish("forest", number, id=number)
        async with patience(10):
            while (found := await metrics_of(running.url))["gamecast_gateway_inbox_events"][""] < 5:
                assert found["gamecast_gateway_kept_sessions"] == {"": 1}, "nobody looked in time"
            kept = await hold_counts_of(running.url)
            assert kept[-1] >= before + 5
            while (found := await metrics_of(running.url))["gamecast_gateway_kept_sessions"][""]:
                assert found["gamecast_gateway_sessions"] == {"": 1}
                await asyncio.sleep(0.05)
        assert found["gamecast_gateway_inbox_events"] == {"": 0}, "its connection is open still"
        now = await hold_counts_of(running.url)
        assert all(count >= then for count, then in zip(now, kept, strict=True))


async def test_grafana_asks_for_metrics_that_there_are(redis_server: EmbeddedServer) -> None:
    dashboard = json.loads(GRAFANA.read_bytes())
    asked = {target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())}
    names = {name for text in asked for name in re.findall(r"gamecast_\w+", text)}
    assert len(names) >= 12
    url = redis_server.url
    async with running_gateway(url, extensions=tuple(extensions(url))) as running, Socket.open(running.url) as socket:
        await socket.subscribe("forest")
        await socket.publish("forest", 1)
        await socket.publish("a//b", 1, id=2)
        await socket.take(1)
        await metrics_of(running.url)
        there = set(await metrics_of(running.url))
    there |= {"gamecast_link_frames", "gamecast_gateway_lag_events"}  # one node has no links, and no reader is behind
    assert names <= there


@pytest.fixture
def traced() -> Iterator[tuple[Any, Any]]:
    """A `Tracing`, and where its spans end."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processing = pytest.importorskip("opentelemetry.sdk.trace.export")
    from gateway.tracing import Tracing

    exporter = export.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(processing.SimpleSpanProcessor(exporter))
    yield Tracing(provider), exporter
    provider.shutdown()


async def test_a_publish_and_its_delivery_are_spans_of_one_trace(
    redis_server: EmbeddedServer, traced: tuple[Any, Any]
) -> None:
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="bot") as socket:
        running.gateway.tracing, exporter = traced
        await socket.subscribe("forest")
        ack = await socket.publish("forest", 1)
        await socket.take(1)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert spans.keys() == {"gamecast publish", "gamecast deliver"}
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert spans["gamecast deliver"].attributes["gamecast.position"] == ack["position"]
    assert spans["gamecast deliver"].attributes["gamecast.sender"] == "~bot"


async def test_a_publish_over_http_is_a_span_that_is_linked_to_its_caller(
    redis_server: EmbeddedServer, traced: tuple[Any, Any]
) -> None:
    caller = "0af7651916cd43dd8448eb211c80319c"
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        running.gateway.tracing, exporter = traced
        for traceparent in (f"00-{caller}-b7ad6b7169203331-01", "rubbish"):
            async with client.post(
                running.url + "/v1/regions/forest/events", json={"payload": 1}, headers={"traceparent": traceparent}
            ) as response:
                assert response.status == 200
    linked, alone = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in linked.links] == [caller]
    assert alone.links == ()
