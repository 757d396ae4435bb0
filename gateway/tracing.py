"""Traces along a frame's path, by OpenTelemetry, if it is installed and enabled.

A client's publish becomes a span. Each first delivery of an event by the gateway becomes another span in the same
trace, from the time of publishing. The event's position determines the trace id, so no payload carries it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from sequencing.errors import UsageError
from sequencing.extras import needed_by

SCOPE = "gamecast.gateway"
EXPORTERS = "opentelemetry_traces_exporter"
"""The entry point group in which exporters are installed."""
PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


class Tracing:
    """Makes spans; without OpenTelemetry, its constructor raises `UsageError`."""

    def __init__(self, provider: Any = None) -> None:
        """``provider``: a tracer provider; None follows the environment, see `environment_provider`.

        Raises `UsageError` if OpenTelemetry, or the exporter that the environment names, is not installed.
        """
        with needed_by("tracing"):
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = (provider or environment_provider()).get_tracer(SCOPE)

    def published(
        self, region: str, position: str, session: str, begun_ns: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """Note that the ingress acknowledged an event.

        ``headers``: with the ``traceparent`` to which the span is linked.
        """
        self._span("gamecast publish", region, position, begun_ns, {"gamecast.session": session}, headers)

    def delivered(self, event: Any) -> None:
        """Note that an event left its path and was delivered here."""
        position = f"{event.epoch}-{event.sequence}"
        self._span("gamecast deliver", event.region, position, event.sent_at_ns, {"gamecast.sender": event.sender})

    def _span(
        self,
        name: str,
        region: str,
        position: str,
        begun_ns: int,
        more: dict[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        context = self._trace.set_span_in_context(self._trace.NonRecordingSpan(self._parent(region, position)))
        attributes = {"gamecast.region": region, "gamecast.position": position, **more}
        now_ns = time.time_ns()
        caller = self._trace.get_current_span(self._propagator.extract(headers or {})).get_span_context()
        links = [self._trace.Link(caller)] if caller.is_valid else []
        span = self._tracer.start_span(
            name, context, attributes=attributes, links=links, start_time=min(begun_ns, now_ns)
        )
        span.end(now_ns)

    def _parent(self, region: str, position: str) -> Any:
        digest = hashlib.sha256(f"{region}\n{position}".encode()).digest()
        return self._trace.SpanContext(
            trace_id=int.from_bytes(digest[:16]) or 1,
            span_id=int.from_bytes(digest[16:24]) or 1,
            is_remote=True,
            trace_flags=self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED),
        )


def environment_provider() -> Any:
    """Return the current tracer provider, or one that exports as OpenTelemetry's own variables say.

    OpenTelemetry reads ``OTEL_TRACES_EXPORTER`` only in programs that its instrumentation starts; it reads all other
    variables by itself. Raises `UsageError`.
    """
    with needed_by("tracing"):
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # no provider is set
        names = map(str.strip, (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","))
        exporters = [_exporter(name) for name in names if name not in ("", "none")]
        provider = TracerProvider()
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter()))
    return provider


def _exporter(name: str) -> Any:
    wanted: tuple[str, ...] = (name,)
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        wanted = tuple(PROTOCOLS.values()) if not protocol else (PROTOCOLS.get(protocol, protocol),)
    for each in wanted:
        for entry in entry_points(group=EXPORTERS, name=each):
            return entry.load()
    known = ", ".join(sorted({entry.name for entry in entry_points(group=EXPORTERS)}))
    raise UsageError(
        f"the trace exporter {name!r} is not installed: pip install opentelemetry-exporter-otlp, or set "
        f"OTEL_TRACES_EXPORTER to another one, of {known}, none"
    )
