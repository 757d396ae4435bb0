"""The report of a run: one HTML file with the verdict first, then its figures, its course, and how it was run.

It has the style and the charts of the report of an analysis, and needs no network and no script.
"""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from analytics.report.axes import (
    Axis,
    axis_from_zero,
    delay_axis,
    duration_text,
    elapsed_axis,
    elapsed_text,
    number_text,
)
from analytics.report.charts import (
    Panel,
    dash,
    drawing,
    figure,
    hover_bands,
    hover_text,
    legend,
    legible,
    line,
    percent,
    stretched,
    x_axis,
)
from analytics.report.figures import at_most
from analytics.report.page import PAGE, STYLE, card
from analytics.report.tables import Tables
from gamecast.client.networks import redacted
from gamecast.version import __version__
from loadtest.conductor import Conductor
from loadtest.course import PERCENTILES, Span, percentiles_ms
from loadtest.judging import findings

HEADLINES = {"kept": "Kept", "broken": "Broken", "unknown": "Cannot be told"}
TOP_PX, DELAYS_PX, RATES_PX = 18, 170, 110
WHOLE_MIN = 6
"""With so many spans, rates leave out the first and the last one, in which the run began and ended."""
MORE = "not shown"
_STYLE = """
  header h1 { font-size: clamp(38px, 10vw, 60px); line-height: 1.1; margin: 4px 0 8px; }
  header h1 + p { font-size: clamp(16px, 4vw, 19px); }
  section { margin-top: 16px; }
  th { overflow-wrap: break-word; }
  code { font: 13px/1.5 ui-monospace, monospace; }
  pre { background: var(--sunk); border-radius: 6px; padding: 8px 12px; white-space: pre-wrap; margin: 10px 0; }
  .line.published { stroke: var(--mid); stroke-dasharray: 8 4; }"""


def write_page(conductor: Conductor, file: Path, *, locust: str | None = None) -> None:
    """Write the report of a run that is over. ``locust``: the file of locust's own report."""
    link = os.path.relpath(locust, file.parent) if locust else ""
    file.write_text(render(conductor, locust=link), encoding="utf-8")


def render(conductor: Conductor, *, locust: str = "") -> str:
    """Return the HTML. ``locust``: where locust's own report is, as seen from this one."""
    verdict, reason = verdict_of(conductor)
    tables = Tables()
    parts = [
        ("Over time", "".join(_charts(conductor))),
        ("Who or what broke" if verdict == "broken" else "What went wrong", "".join(_broken(conductor, tables))),
        ("What was checked", tables.table("Guarantees", list(_checks(conductor)), ("guarantee", "verdict", "counts"))),
        ("How it was run", "".join(_settings(conductor, tables))),
    ]
    contents = "".join(f"<h2>{title}</h2>{part}" for title, part in parts if part)
    if locust:
        contents += (
            f'<p><a href="{html.escape(Path(locust).as_posix())}">Locust’s own report</a> has each kind of request, by '
            "access path, and its failures.</p>"
        )
    return PAGE.substitute(
        title=html.escape(f"load test, {HEADLINES[verdict].lower()}"),
        style=STYLE + _STYLE,
        verdict=verdict,
        above=html.escape(f"gamecast loadtest · {conductor.options.run}" if conductor.options.run else "loadtest"),
        headline=HEADLINES[verdict],
        below=html.escape(legible(_short(conductor, reason))),
        turns="",
        cards="".join(_cards(conductor)),
        contents=f'<section aria-label="The run">{contents}</section>',
    )


def verdict_of(conductor: Conductor) -> tuple[str, str]:
    """Return kept, broken or unknown, and the reason in one sentence."""
    judgement = conductor.judgement
    assert judgement is not None
    if conductor.is_broken:
        first, *others = conductor.broken or ("a guarantee was violated",)
        return "broken", f"{first}{_more(others)}."
    if conductor.stopped_in_order:
        return "unknown", "The run was stopped before its end: its order was kept, and losses were not judged."
    if not judgement.fine:
        first, *others = judgement.incomplete
        return "unknown", f"Nothing is known to be broken, but reports are missing: {first}{_more(others)}."
    reason = f"All {judgement.verdict.deliveries:,} deliveries came once and in one order, and none is missing"
    if failed := conductor.ledger.failures.total():
        reason += f"; but {_counted(failed, 'request')} failed"
    return "kept", f"{reason}."


def _cards(conductor: Conductor) -> Iterator[str]:
    judgement, ledger = conductor.judgement, conductor.ledger
    assert judgement is not None
    verdict = judgement.verdict
    yield card("Events published", f"{judgement.published:,}")
    yield card("Delivered", f"{ledger.deliveries:,}")
    yield card("Lost", "not judged" if verdict.lost is None else f"{verdict.lost:,}", bad=verdict.lost or 0)
    yield card("Repeated", f"{verdict.duplicated:,}", bad=verdict.duplicated)
    yield card("Inversions", f"{verdict.inversions:,}", bad=verdict.inversions)
    delays = percentiles_ms(ledger.course.delays())
    for name in PERCENTILES:
        yield card(f"Delay {name}", at_most(delays[name]) if name in delays else "not known")
    seconds = conductor.played_s
    yield card("Published per second", number_text(judgement.published / seconds) if seconds else "not known")
    yield card("Delivered per second", number_text(ledger.deliveries / seconds) if seconds else "not known")
    failed = ledger.failures.total()
    yield card("Requests failed", f"{failed:,}", bad=failed)
    yield card("Seconds of load", f"{seconds:,.0f}")


def _charts(conductor: Conductor) -> Iterator[str]:
    """Yield the delays and the rates over time."""
    course = conductor.ledger.course
    spans = list(course.in_order())
    if not spans:
        yield "<p>Nothing was published or delivered.</p>"
        return
    began_s, width_s = spans[0][0], course.span_s
    x = elapsed_axis(spans[-1][0] - began_s + width_s)
    middles = [(second - began_s + width_s / 2, span) for second, span in spans]
    known = [(at, percentiles_ms(span.delays)) for at, span in middles]
    bottom = TOP_PX + DELAYS_PX
    panel = Panel(delay_axis([ms for _, of_span in known for ms in of_span.values()]), TOP_PX, DELAYS_PX)
    lines = "".join(line(_pieces([(at, each.get(name)) for at, each in known]), x, panel, name) for name in PERCENTILES)
    texts = [
        (at - width_s / 2, f"{elapsed_text(at - width_s / 2)}: " + (_delays_text(each) or "no deliveries"))
        for at, each in known
    ]
    highest = max((each["p99"], at) for at, each in known if each) if any(each for _, each in known) else None
    label = "Line chart of delays over time"
    if highest is not None:
        label += f"; p99 is highest after {elapsed_text(round(highest[1]))}, {duration_text(highest[0])}"
    contents = panel.grid() + x_axis(x, TOP_PX, bottom) + stretched(lines, bottom) + hover_bands(texts, x, bottom)
    contents += _violation(conductor, x, began_s, bottom)
    chart = legend((dash(name), f"{name} delay") for name in PERCENTILES)
    chart += drawing(contents, bottom + 34, label, kind="plot")
    yield figure(chart, "From when an event was due until a subscriber’s application had it.")
    yield _rates_chart(conductor, x, began_s, middles)


def _rates_chart(conductor: Conductor, x: Axis, began_s: int, middles: list[tuple[float, Span]]) -> str:
    width_s, bottom = conductor.ledger.course.span_s, TOP_PX + RATES_PX
    if len(middles) >= WHOLE_MIN:
        middles = middles[1:-1]
    rates = {
        "published": [(at, span.published / width_s) for at, span in middles],
        "cool": [(at, span.delays.total() / width_s) for at, span in middles],
    }
    highest = {name: max(rate for _, rate in of_name) for name, of_name in rates.items()}
    panel = Panel(axis_from_zero(max(highest.values()), number_text), TOP_PX, RATES_PX)
    lines = "".join(line([of_name], x, panel, name) for name, of_name in rates.items())
    texts = [
        (
            at - width_s / 2,
            (
                f"{elapsed_text(at - width_s / 2)}: published {number_text(published)}/s, delivered "
                f"{number_text(delivered)}/s"
            ),
        )
        for (at, published), (_, delivered) in zip(rates["published"], rates["cool"], strict=True)
    ]
    label = (
        f"Line chart of throughput over time; at most {number_text(highest['published'])} events/s published and "
        f"{number_text(highest['cool'])} deliveries/s"
    )
    contents = panel.grid() + x_axis(x, TOP_PX, bottom) + stretched(lines, bottom) + hover_bands(texts, x, bottom)
    contents += _violation(conductor, x, began_s, bottom)
    chart = legend([(dash("published"), "events/s published"), (dash("cool"), "deliveries/s to all subscribers")])
    return figure(chart + drawing(contents, bottom + 34, label, kind="plot"))


def _violation(conductor: Conductor, x: Axis, began_s: int, bottom: float) -> str:
    """Return the line at which the first violation was seen."""
    if conductor.broken_at_s is None:
        return ""
    at = conductor.broken_at_s - began_s
    place, side = percent(x, at), 'dx="-6" text-anchor="end"' if x.place(at) > 0.5 else 'dx="6"'
    said = hover_text(legible(_short(conductor, conductor.broken[0])))
    return (
        f'<g>{said}<line class="turn" x1="{place}" x2="{place}" y1="{TOP_PX - 2}" '
        f'y2="{bottom}"/><text class="strong" x="{place}" y="12" {side}>violation seen</text></g>'
    )


def _pieces(points: list[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    """Yield the pieces of a line, which breaks where a value is not known."""
    piece: list[tuple[float, float]] = []
    for at, value in points:
        if value is not None:
            piece.append((at, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _broken(conductor: Conductor, tables: Tables) -> Iterator[str]:
    """Yield the violations, the missing reports and the failed requests; nothing if there are none."""
    judgement, ledger = conductor.judgement, conductor.ledger
    assert judgement is not None
    rows = [{"what": "violation", "which": _short(conductor, each)} for each in conductor.broken]
    rows += [{"what": "missing", "which": _short(conductor, each)} for each in judgement.incomplete]
    rows += [{"what": "gap announced", "which": _short(conductor, f"{who}: {what}")} for who, what in ledger.gaps]
    if rows:
        yield tables.table("Violations and missing reports", rows, ("what", "which"), more=MORE)
    failures = [
        {"request": f"{kind} ({way})", "failed": count, "because": _short(conductor, because)}
        for (kind, way, because), count in ledger.failures.most_common()
    ]
    if failures:
        yield tables.table("Failed requests", failures, ("request", "failed", "because"), more=MORE)


def _checks(conductor: Conductor) -> Iterator[dict[str, str]]:
    assert conductor.judgement is not None
    for finding in findings(conductor.judgement):
        verdict = "not judged" if finding.kept is None else "kept" if finding.kept else "not kept"
        counts = finding.counts if finding.kept is not None else "–"
        yield {"guarantee": finding.guarantee, "verdict": verdict, "counts": counts}


def _settings(conductor: Conductor, tables: Tables) -> Iterator[str]:
    options, course, judgement = conductor.options, conductor.ledger.course, conductor.judgement
    assert judgement is not None
    began_s = next((second for second, _ in course.in_order()), None)
    if options.command:
        yield f"<pre><code>{html.escape(legible(options.command))}</code></pre>"
    workload = f"{options.workload}, seed {options.seed}"
    workload += f", {options.regions} regions" if options.workload != "trace" else f", {options.speed:g} times as fast"
    settings = {
        "users": conductor.users,
        "workload": workload + (f", {options.trace}" if options.trace else ""),
        "shape": options.shape,
        "rate": f"{options.rate:g} events/s of each user" if options.workload != "trace" else "that of the match",
        "length": f"{options.seconds:g} s, of which {conductor.played_s:.0f} s were run",
        "worker processes": str(conductor.workers),
        "counts as lost": f"after {options.late:g} s while it ran; it waited up to {options.settle:g} s at the end",
        "clock margin": f"{options.clock_margin:g} ms" if options.clock_margin else "",
        "planted": options.plant,
        "network": redacted(options.network),
        "gateway": redacted(options.gateway),
        "began": f"{datetime.fromtimestamp(began_s, UTC):%d %b %Y, %H:%M:%S} UTC" if began_s is not None else "",
        "judged": f"{_counted(judgement.looks, 'time')} while it ran, and once at its end",
        "machine": (
            f"{_counted(os.cpu_count() or 1, 'core')}, load {os.getloadavg()[0]:.1f} at its end; gamecast "
            f"{__version__}, Python {platform.python_version()}"
        ),
        "full names": f"begin with {options.run}-, which is left out above" if options.run else "",
    }
    rows = [{"setting": name, "value": value} for name, value in settings.items() if value]
    yield tables.table("Settings", rows, ("setting", "value"))


def _short(conductor: Conductor, text: str) -> str:
    """Return a text whose names of users and regions are without the run's, with which all of them begin."""
    run = conductor.options.run
    return text.replace(f"{run}-", "") if run else text


def _delays_text(known: dict[str, float]) -> str:
    return ", ".join(f"{name} {at_most(ms)}" for name, ms in known.items())


def _more(others: Sequence[str]) -> str:
    return f" (and {len(others):,} more)" if others else ""


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
