"""The parts that need an extra of gamecast, and the error if it is not installed: one line that says what to do.

Code that needs an extra imports it when it is needed, within `needed_by`. The console script reports missing modules
that no such place foresees in the same way.
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
    "pyspark": "analytics",
    "ruptures": "analytics",
    "gevent": "loadtest",
    "locust": "loadtest",
    "websocket": "loadtest",
    "matplotlib": "plots",
    "channels": "channels",
    "msgpack": "channels",
    "socketio": "socketio",
}
"""Module → the extra that brings it; where several do, the smallest."""
LABORATORY = frozenset({"laboratory", "classic"})
"""The folders that another distribution brings, gamecast-lab."""


@contextmanager
def needed_by(what: str, *, extra: str | None = None) -> Iterator[None]:
    """Import modules of an extra in this context; raises `ExtraMissing` if one is not installed.

    ``what``: the part that needs it, as the message begins: "the gateway", "--picture". ``extra``: the one that brings
    all of it, if that is not the one of `EXTRA_OF`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_from(error, what, extra=extra)
        if missing is None:
            raise
        raise missing from error


def missing_from(error: ModuleNotFoundError, what: str, *, extra: str | None = None) -> ExtraMissing | None:
    """Return the error for a failed import, None if no extra brings the module."""
    if (error.name or "").removeprefix("gamecast.") in LABORATORY:
        return without_laboratory(what)
    module = (error.name or "").partition(".")[0]
    return ExtraMissing.of(module, what, extra or EXTRA_OF[module]) if module in EXTRA_OF else None


def without_laboratory(what: str) -> ExtraMissing:
    """Return the error for a part of gamecast-lab, which is not installed."""
    return ExtraMissing(f"{what} is of the laboratory: pip install gamecast-lab")


def first_missing(extra: str, what: str, *, told: str | None = None) -> ExtraMissing | None:
    """Return the error if a part of an extra is not installed, None if all are; imports nothing.

    ``told``: the extra to name, if that is a larger one.
    """
    for module, brought_by in EXTRA_OF.items():
        if brought_by == extra and find_spec(module) is None:
            return ExtraMissing.of(module, what, told or extra)
    return None


def require(extra: str, what: str, *, told: str | None = None) -> None:
    """Raise `ExtraMissing` unless all of an extra is installed: before work that would be in vain. Imports nothing."""
    if (missing := first_missing(extra, what, told=told)) is not None:
        raise missing
