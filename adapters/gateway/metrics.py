"""What Prometheus is told of a gateway. Labels have bounded values: regions beyond some are counted together."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGIONS_MAX = 100
OTHER = "(other)"


class BoundedLabels:
    """The first so many values as they are, then one name for the rest."""

    def __init__(self, values_max: int = REGIONS_MAX) -> None:
        self._values: set[str] = set()
        self._values_max = values_max

    def of(self, value: str) -> str:
        """Return the label for a value."""
        if value in self._values:
            return value
        if len(self._values) >= self._values_max:
            return OTHER
        self._values.add(value)
        return value


class GatewayMetrics:
    """The counters of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.regions = BoundedLabels()
        self.sessions = Gauge(
            "gamecast_gateway_sessions", "WebSocket sessions and event streams that are open.", registry=self.registry
        )
        self.kept_sessions = Gauge(
            "gamecast_gateway_kept_sessions",
            "Clients that dropped and whose places are kept for them.",
            registry=self.registry,
        )
        self.keys_broken = Gauge(
            "gamecast_gateway_keys_broken",
            "1 while the keys cannot be read, and those of before count on.",
            registry=self.registry,
        )
        self._resumed = Counter(
            "gamecast_gateway_resumed_sessions",
            "Sessions that went on in a place that was kept.",
            registry=self.registry,
        )
        self._resent = Counter(
            "gamecast_gateway_resent_events", "Events that were sent to them once more.", registry=self.registry
        )
        self._published = Counter(
            "gamecast_gateway_published_events",
            "Events that were taken for publishing.",
            ["region"],
            registry=self.registry,
        )
        self._published_bytes = Counter(
            "gamecast_gateway_published_bytes", "Their payloads, encoded.", registry=self.registry
        )
        self._sent = Counter("gamecast_gateway_sent_events", "Events and gaps sent to clients.", registry=self.registry)
        self._refused = Counter(
            "gamecast_gateway_refusals", "What clients asked for and did not get.", ["code"], registry=self.registry
        )
        self._gaps = Counter("gamecast_gateway_gaps", "Gaps that sessions were told of.", registry=self.registry)
        self._deliveries = Histogram(
            "gamecast_gateway_delivery_seconds",
            "From publish, by the publisher's clock, to delivery at this gateway; history counts too.",
            ["region"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )
        self._requests = Histogram(
            "gamecast_gateway_request_seconds",
            "HTTP requests.",
            ["route", "status"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )
        self._hook_calls = Counter(
            "gamecast_gateway_hook_calls",
            "Requests of clients about which a hook decided, or should have.",
            ["hook", "outcome"],
            registry=self.registry,
        )
        self._hook_failures = Counter(
            "gamecast_gateway_hook_failures",
            "Calls of hooks that the game's backend did not answer as it should.",
            ["hook", "reason"],
            registry=self.registry,
        )
        self._hook_breakers = Gauge(
            "gamecast_gateway_hook_breaker",
            "Circuit breaker of a hook: 0 closed, 1 open (the hook is not called), 0.5 the next call tries it again.",
            ["hook"],
            registry=self.registry,
        )
        self._hook_seconds = Histogram(
            "gamecast_gateway_hook_seconds",
            "Calls of hooks, until their answer or their failure.",
            ["hook"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )

    def hook_decided(self, hook: str, outcome: str) -> None:
        """Count what became of a request: ``allowed``, ``denied``; without an answer ``refused``, ``let-through``."""
        self._hook_calls.labels(hook, outcome).inc()

    def hook_failed(self, hook: str, reason: str) -> None:
        """Count a call without an answer that makes sense."""
        self._hook_failures.labels(hook, reason).inc()

    def hook_breaker(self, hook: str, state: float) -> None:
        """Note the state of a circuit breaker."""
        self._hook_breakers.labels(hook).set(state)

    def hook_took(self, hook: str, took_s: float) -> None:
        """Count how long a call took."""
        self._hook_seconds.labels(hook).observe(took_s)

    def resumed(self, resent: int) -> None:
        """Count a session that went on in a place that was kept."""
        self._resumed.inc()
        self._resent.inc(resent)

    def published(self, region: str, payload_bytes: int) -> None:
        """Count a publish."""
        self._published.labels(self.regions.of(region)).inc()
        self._published_bytes.inc(payload_bytes)

    def delivered(self, region: str, took_s: float) -> None:
        """Count an event that came, once for this gateway."""
        self._deliveries.labels(self.regions.of(region)).observe(max(0.0, took_s))

    def gap(self) -> None:
        """Count a gap."""
        self._gaps.inc()

    def sent(self, events: int) -> None:
        """Count what a client was sent."""
        self._sent.inc(events)

    def refused(self, code: str) -> None:
        """Count a refusal."""
        self._refused.labels(code).inc()

    def requested(self, route: str, status: int, took_s: float) -> None:
        """Count an HTTP request."""
        self._requests.labels(route, str(status)).observe(took_s)

    def text(self) -> bytes:
        """Return all, as Prometheus reads it."""
        return generate_latest(self.registry)
