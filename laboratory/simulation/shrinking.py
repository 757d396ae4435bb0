"""From a scenario that fails to a smaller one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from laboratory.simulation.engine import Weather
from laboratory.simulation.faultrun import Outcome, Scenario


def shrink(outcome: Outcome, run_faults: Callable[[Scenario], Outcome], *, runs_max: int = 200) -> Outcome:
    """Return the smallest outcome found, in at most ``runs_max`` runs, whose first violation is of the same kind."""
    kind, runs = _kind(outcome), 0
    smaller = True
    while smaller:
        smaller = False
        for scenario in _smaller(outcome.scenario):
            runs += 1
            if runs > runs_max:
                return outcome
            tried = run_faults(scenario)
            if _kind(tried) == kind:
                outcome, smaller = tried, True
                break
    return outcome


def _kind(outcome: Outcome) -> str | None:
    return outcome.violations[0].partition(":")[0] if outcome.violations else None


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with less in them, the boldest cut first."""
    calm = Weather(scenario.weather.latency_ms, 0.0)
    if scenario.weather != calm:
        yield replace(scenario, weather=calm)
        for what in ("jitter_ms", "lost_request", "lost_answer", "late"):
            if getattr(scenario.weather, what):
                yield replace(scenario, weather=replace(scenario.weather, **{what: 0.0}))
    for what, least in (
        ("crashes", 0),
        ("pauses", 0),
        ("cuts", 0),
        ("losses", 0),
        ("forgettings", 0),
        ("proposals", 0),
        ("managers", 1),
        ("relays", 1),
    ):
        if getattr(scenario, what) > least:
            yield _with(scenario, what, least)
            yield _with(scenario, what, getattr(scenario, what) - 1)
    for what, least in (("servers", 2), ("nodes", 1), ("regions", 2)):
        if getattr(scenario, what) > least:
            yield _with(scenario, what, getattr(scenario, what) - 1)
    if scenario.scattered:
        yield replace(scenario, scattered=False)
    if scenario.busy_ms > 50:
        yield replace(scenario, busy_ms=scenario.busy_ms * 0.75)


def _with(scenario: Scenario, what: str, value: int) -> Scenario:
    changes: dict[str, Any] = {what: value}
    return replace(scenario, **changes)
