"""Print docs/metrics.md: the metrics of a gateway and of the network behind it, from the code that makes them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeGuard

from gateway import metrics, networkmetrics

KINDS = {
    "Gauge": "gauge",
    "Counter": "counter",
    "Histogram": "histogram",
    "_gauge": "gauge",
    "CounterMetricFamily": "counter",
    "HistogramMetricFamily": "histogram",
}
HEAD = f"""\
# Metrics

What `GET /metrics` of a gateway says, for Prometheus. This page is generated from the texts in
`gateway/metrics.py` and `networkmetrics.py`: `./dev docs` builds it.

Counters end with `_total` in what Prometheus reads, histograms with `_bucket`, `_count` and `_sum`. Regions beyond the
first {metrics.REGIONS_MAX} have one label together, `{metrics.OTHER}`. `deploy/prometheus/` has alerts, and
`docs/grafana-dashboard.json` a dashboard.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A metric, as the code declares it."""

    name: str
    kind: str
    labels: tuple[Any, ...]
    about: str


def main() -> int:
    """Print the page."""
    print(HEAD)
    for heading, module in (("The gateway", metrics), ("The network, and the gateway's part in it", networkmetrics)):
        print(f"## {heading}\n")
        print("| metric | kind | labels | |\n|---|---|---|---|")
        for found in declared(module):
            print(f"| `{found.name}` | {found.kind} | {', '.join(found.labels)} | {found.about} |")
        print()
    every = f"{networkmetrics.SURVEY_EVERY_S:.0f} s"
    print(f"The network is surveyed at most every {every}, when metrics are read. While it cannot be,")
    print("`gamecast_control_up` is 0, and there are no metrics of nodes, links, plans and regions.")
    return 0


def declared(module: ModuleType) -> Iterator[Found]:
    """Yield the metrics that a module declares, in the order of its lines."""
    calls = [each for each in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda each: each.lineno):
        kind = KINDS.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if kind is None or len(call.args) < 2:
            continue
        given: list[Any] = [value(part, module) for part in call.args[:2]]
        lists = [*call.args[2:], *(word.value for word in call.keywords if word.arg == "labels")]
        labels = [label.value for each in lists if isinstance(each, ast.List) for label in each.elts if _is_text(label)]
        if isinstance(given[0], str):
            yield Found(given[0], kind, tuple(labels), given[1])


def _is_text(part: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(part, ast.Constant) and isinstance(part.value, str)


def value(part: ast.expr, module: ModuleType) -> Any:
    """Return what a text of the code says, with the module's own constants; None for a name of its function."""
    if isinstance(part, ast.Name):
        return None
    return eval(compile(ast.Expression(part), "metrics", "eval"), vars(module))  # our own code


if __name__ == "__main__":
    sys.exit(main())
