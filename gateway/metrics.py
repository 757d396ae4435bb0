"""The Prometheus metrics of a gateway. Labels have bounded values: regions beyond a limit are counted together."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGIONS_MAX = 100
OTHER = "(other)"


class BoundedLabels:
    """Keeps the first values as they are, and uses one name for the rest."""

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
            "gamecast_gateway_sessions", "Open WebSocket sessions and event streams.", registry=self.registry
        )
        self.kept_sessions = Gauge(
            "gamecast_gateway_kept_sessions",
            "Parked sessions: clients that disconnected and can resume.",
            registry=self.registry,
        )
        self.keys_broken = Gauge(
            "gamecast_gateway_keys_broken",
            "1 while the keys cannot be read and the previous keys stay valid.",
            registry=self.registry,
        )
        self._resumed = Counter(
            "gamecast_gateway_resumed_sessions",
            "Sessions that resumed a parked session.",
            registry=self.registry,
        )
        self._resent = Counter(
            "gamecast_gateway_resent_events", "Events that were sent again to resumed sessions.", registry=self.registry
        )
        self._published = Counter(
            "gamecast_gateway_published_events",
            "Events that were accepted for publishing.",
            ["region"],
            registry=self.registry,
        )
        self._published_bytes = Counter(
            "gamecast_gateway_published_bytes",
            "Encoded bytes of the payloads of published events.",
            registry=self.registry,
        )
        self._sent = Counter("gamecast_gateway_sent_events", "Events and gaps sent to clients.", registry=self.registry)
        self._refused = Counter(
            "gamecast_gateway_refusals", "Refused requests of clients.", ["code"], registry=self.registry
        )
        self._gaps = Counter("gamecast_gateway_gaps", "Gaps that were delivered to sessions.", registry=self.registry)
        self._deliveries = Histogram(
            "gamecast_gateway_delivery_seconds",
            "From publish, by the publisher's clock, to delivery at this gateway, replayed events included.",
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
            "Requests of clients that a hook decided, or should have decided.",
            ["hook", "outcome"],
            registry=self.registry,
        )
        self._hook_failures = Counter(
            "gamecast_gateway_hook_failures",
            "Calls of hooks without a valid answer from the game's backend.",
            ["hook", "reason"],
            registry=self.registry,
        )
        self._hook_breakers = Gauge(
            "gamecast_gateway_hook_breaker",
            "Circuit breaker of a hook: 0 closed, 1 open (the hook is not called), 0.5 the next call tests it.",
            ["hook"],
            registry=self.registry,
        )
        self._hook_seconds = Histogram(
            "gamecast_gateway_hook_seconds",
            "Duration of calls of hooks, until the answer or the failure.",
            ["hook"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )

    def hook_decided(self, hook: str, outcome: str) -> None:
        """Count the outcome of a request: ``allowed``, ``denied``; without an answer ``refused``, ``let-through``."""
        self._hook_calls.labels(hook, outcome).inc()

    def hook_failed(self, hook: str, reason: str) -> None:
        """Count a call without a valid answer."""
        self._hook_failures.labels(hook, reason).inc()

    def hook_breaker(self, hook: str, state: float) -> None:
        """Note the state of a circuit breaker."""
        self._hook_breakers.labels(hook).set(state)

    def hook_took(self, hook: str, took_s: float) -> None:
        """Count how long a call took."""
        self._hook_seconds.labels(hook).observe(took_s)

    def resumed(self, resent: int) -> None:
        """Count a session that resumed a parked session."""
        self._resumed.inc()
        self._resent.inc(resent)

    def published(self, region: str, payload_bytes: int) -> None:
        """Count a publish."""
        self._published.labels(self.regions.of(region)).inc()
        self._published_bytes.inc(payload_bytes)

    def delivered(self, region: str, took_s: float) -> None:
        """Count an event that arrived, once for this gateway."""
        self._deliveries.labels(self.regions.of(region)).observe(max(0.0, took_s))

    def gap(self) -> None:
        """Count a gap."""
        self._gaps.inc()

    def sent(self, events: int) -> None:
        """Count the events that were sent to a client."""
        self._sent.inc(events)

    def refused(self, code: str) -> None:
        """Count a refusal."""
        self._refused.labels(code).inc()

    def requested(self, route: str, status: int, took_s: float) -> None:
        """Count an HTTP request."""
        self._requests.labels(route, str(status)).observe(took_s)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
