"""Metrics, traces and the Grafana dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.embedded import EmbeddedServer
from gamecast.gateway import extensions
from tests.integration.gateway_clients import Socket, running_gateway

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


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
        there = set(await metrics_of(running.url)) | {"gamecast_link_frames"}  # one node has no links
    assert names <= there


async def test_a_publish_and_its_delivery_are_spans_of_one_trace(redis_server: EmbeddedServer) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processing = pytest.importorskip("opentelemetry.sdk.trace.export")
    from adapters.gateway.tracing import Tracing

    exporter = export.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(processing.SimpleSpanProcessor(exporter))
    async with running_gateway(redis_server.url) as running, Socket.open(running.url, name="bot") as socket:
        running.gateway.tracing = Tracing(provider)
        await socket.subscribe("forest")
        ack = await socket.publish("forest", 1)
        await socket.take(1)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert spans.keys() == {"gamecast publish", "gamecast deliver"}
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert spans["gamecast deliver"].attributes["gamecast.position"] == ack["position"]
    assert spans["gamecast deliver"].attributes["gamecast.sender"] == "bot"
    provider.shutdown()
