"""Traces along a frame's path by OpenTelemetry, where it is installed and asked for.

A client's publish becomes a span, and each first delivery of an event by the gateway another one in the same trace,
from when it was sent: the trace of an event is named by its place, so no payload has to carry it.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

from sequencing.errors import UsageError

SCOPE = "gamecast.gateway"


class Tracing:
    """Makes spans; without OpenTelemetry, `Tracing` cannot be made."""

    def __init__(self, provider: Any = None) -> None:
        """``provider``: a tracer provider; None takes the global one. Raises `UsageError` if it is not installed."""
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise UsageError("traces need OpenTelemetry: pip install 'gamecast[tracing]'") from error
        self._trace = trace
        self._tracer = (provider or trace.get_tracer_provider()).get_tracer(SCOPE)

    def published(self, region: str, position: str, session: str, begun_ns: int) -> None:
        """Note that the ingress has an event."""
        self._span("gamecast publish", region, position, begun_ns, {"gamecast.session": session})

    def delivered(self, event: Any) -> None:
        """Note that an event came out of its path and was delivered here."""
        position = f"{event.epoch}-{event.sequence}"
        self._span("gamecast deliver", event.region, position, event.sent_at_ns, {"gamecast.sender": event.sender})

    def _span(self, name: str, region: str, position: str, begun_ns: int, more: dict[str, str]) -> None:
        context = self._trace.set_span_in_context(self._trace.NonRecordingSpan(self._parent(region, position)))
        attributes = {"gamecast.region": region, "gamecast.position": position, **more}
        now_ns = time.time_ns()
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=min(begun_ns, now_ns))
        span.end(now_ns)

    def _parent(self, region: str, position: str) -> Any:
        digest = hashlib.sha256(f"{region}\n{position}".encode()).digest()
        return self._trace.SpanContext(
            trace_id=int.from_bytes(digest[:16]) or 1,
            span_id=int.from_bytes(digest[16:24]) or 1,
            is_remote=True,
            trace_flags=self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED),
        )
