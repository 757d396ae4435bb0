"""What is installed only where an extra of gamecast was asked for, and how its absence is told: in a line, with a cure.

Who needs an extra imports it when it is needed, within `needed_by`. What no such place foresees, the console script
tells likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from sequencing.errors import ExtraMissing

EXTRA_OF = {
    "networkx": "planner",
    "numpy": "planner",
    "scipy": "planner",
    "click": "cli",
    "rich": "cli",
    "aiohttp": "gateway",
    "cryptography": "gateway",
    "jwt": "gateway",
    "prometheus_client": "gateway",
    "pybreaker": "gateway",
    "opentelemetry": "tracing",
    "pyarrow": "recording",
    "plotly": "analytics",
    "pyspark": "analytics",
    "gevent": "loadtest",
    "locust": "loadtest",
    "websocket": "loadtest",
    "matplotlib": "plots",
}
"""Module → the extra that brings it; where several do, the smallest."""


@contextmanager
def needed_by(what: str, *, extra: str | None = None) -> Iterator[None]:
    """Import what comes with an extra in here; raises `ExtraMissing` where it is not installed.

    ``what``: who needs it, as the message begins: "the gateway", "--picture". ``extra``: that brings all of it, where
    that is not the one of `EXTRA_OF`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_from(error, what, extra=extra)
        if missing is None:
            raise
        raise missing from error


def missing_from(error: ModuleNotFoundError, what: str, *, extra: str | None = None) -> ExtraMissing | None:
    """Return how to tell of a failed import, None if no extra brings the module."""
    module = (error.name or "").partition(".")[0]
    return ExtraMissing.of(module, what, extra or EXTRA_OF[module]) if module in EXTRA_OF else None


def first_missing(extra: str, what: str, *, told: str | None = None) -> ExtraMissing | None:
    """Return how to tell that something of an extra is not installed, None if all is there; imports nothing.

    ``told``: the extra to name, where that is a larger one.
    """
    for module, brought_by in EXTRA_OF.items():
        if brought_by == extra and find_spec(module) is None:
            return ExtraMissing.of(module, what, told or extra)
    return None


def require(extra: str, what: str, *, told: str | None = None) -> None:
    """Raise `ExtraMissing` unless all of an extra is there: before work that would be in vain; imports nothing."""
    if (missing := first_missing(extra, what, told=told)) is not None:
        raise missing
