"""The two parts of the report's page: for producers, and for engineers."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from analytics.jobs.evidence import CAUSAL
from analytics.report.axes import duration_text
from analytics.report.figures import (
    at_most,
    delay_percentiles,
    delays_chart,
    hurts_chart,
    inversions_chart,
    regions_chart,
    server_delays_chart,
    stretch_chart,
)
from analytics.report.tables import Tables, region_pairs, text_of
from analytics.report.timeline import timeline_figure

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis, Audit

WORST_NAMED = 3
NOT_KNOWN = "How long the direct way would have taken is not known."

PROMISES = {
    "one order": "All servers see one order",
    "no cycles": "No cycles in the union of all orders",
    "each publisher's order": "Each publisher's events stay in its order",
    "nothing twice": "Nothing is delivered twice",
    "nothing lost": "Nothing is lost",
    "nothing else": "Nothing is delivered that was not published",
    CAUSAL: "Causes come before their effects",
}


def producer(analysis: Analysis, tables: Tables) -> Iterator[str]:
    """Yield what a producer wants to know, as HTML."""
    yield "<h3>Who hurts?</h3>"
    yield from _worst(analysis)
    yield hurts_chart(analysis)
    if picture := timeline_figure(analysis):
        yield "<h3>Over time</h3>" + picture
    yield "<h3>Did the order hold?</h3>"
    yield from _order(analysis)
    yield tables.table("What was checked", list(_checks(analysis.audit)), ("promise", "violations", "verdict"))
    yield inversions_chart(analysis)
    yield "<h3>How long do events take?</h3>"
    yield from _delays(analysis)
    yield "<h3>What should I move?</h3>"
    yield from _advice(analysis, tables)
    yield "<h3>Where is it busy?</h3>"
    yield "<p>The regions with the most events a second.</p>" + regions_chart(analysis)


def engineer(analysis: Analysis, tables: Tables) -> Iterator[str]:
    """Yield the figures behind it, as HTML."""
    yield "<h3>Delay of deliveries</h3>" + delays_chart(analysis)
    yield from _stretch(analysis, tables)
    yield "<h3>Where the time goes</h3>"
    columns = ["stage", "from", "to", "count", "mean_ms", "p50_ms", "p99_ms"]
    yield tables.table("Stages of the way", analysis.tables["stages"], columns)
    yield "<h3>Order</h3>"
    counts = [{"what": name.replace("_", " "), "count": number} for name, number in _counts(analysis.audit).items()]
    yield tables.table("Counts of the audit", counts, ("what", "count"))
    pairs = list(region_pairs(analysis))
    yield tables.table("Pairs of regions, worst first", pairs, ("regions", "subscribers", "inversions", "first"))
    yield from _load(analysis, tables)
    yield "<h3>Put aside</h3>"
    rows = [{**each, "examples": ", ".join(map(str, each["examples"]))} for each in analysis.quarantine.as_dicts()]
    yield (
        tables.table("What was left out, and why", rows, ("what", "reason", "count", "examples"))
        if rows
        else "<p>Nothing.</p>"
    )
    yield "".join(f"<p>Note: {text_of(note)}.</p>" for note in analysis.notes)


def _worst(analysis: Analysis) -> Iterator[str]:
    """Name the worst servers in a sentence, with their delays."""
    nearness = analysis.nearness()
    if nearness or analysis.stretch() is None:
        why = f"{nearness[0].upper()}{nearness[1:]}." if nearness else NOT_KNOWN
        yield f"<p>{why} Here is what deliveries took.</p>"
        slow = sorted(analysis.tables["subscriber_delays"], key=lambda row: -row["delay_ms"])[:WORST_NAMED]
        said = [f"{text_of(row['subscriber'])} ({duration_text(row['delay_ms'])} on average)" for row in slow]
    else:
        yield (
            "<p>Each bar is a game server: how many times longer its events took than the direct way from their "
            "publisher. Long bars are players who notice.</p>"
        )
        worst = sorted(analysis.tables["by_destination"], key=lambda row: -row["stretch"])[:WORST_NAMED]
        said = [
            f"{text_of(row['subscriber'])} ({duration_text(row['delay_ms'])} on average, where the direct way takes "
            f"{duration_text(row['direct_ms'])})"
            for row in worst
        ]
    if said:
        yield f"<p>Farthest off: {', '.join(said)}.</p>"


def _order(analysis: Analysis) -> Iterator[str]:
    audit = analysis.audit
    if audit.fine:
        held = "As far as it was recorded, yes" if audit.unknown else "Yes"
        pairs = f"{audit.order.pairs_compared:,} pair{'s' * (audit.order.pairs_compared != 1)}"
        yield (
            f"<p>{held}. In {pairs} of regions that servers have in common, all of them saw one order, and everything "
            "once.</p>"
        )
        return
    yield "<p>No. An example of each kind:</p><ul>"
    yield from (
        f"<li><b>{html.escape(str(each.as_dict()['kind']).replace('_', ' '))}</b>: {text_of(each.describe())}.</li>"
        for each in audit.examples
    )
    yield "</ul>"


def _checks(audit: Audit) -> Iterator[dict[str, Any]]:
    """Return each promise, how often it was broken, as far as it was recorded, and its verdict."""
    for promise in audit.promises:
        yield {
            "promise": PROMISES[promise.name],
            "violations": "not known" if promise.broken is None else f"{promise.broken:,}",
            "verdict": "cannot be told" if promise.verdict == "unknown" else promise.verdict,
        }


def _delays(analysis: Analysis) -> Iterator[str]:
    percentiles = delay_percentiles(analysis)
    if not percentiles:
        yield "<p>No delivery has times.</p>"
        return
    said = {name: at_most(ms).removeprefix("≤ ") for name, ms in percentiles.items()}
    yield (
        f"<p>From publish to delivery, half of the events took {said['p50']} or less, 95% took {said['p95']} or less, "
        f"and 99% took {said['p99']} or less. A server's own events are not counted.</p>"
    )
    if analysis.stretch() is not None and not analysis.nearness():
        yield "<p>The mean by server, slowest first:</p>" + server_delays_chart(analysis)


def _advice(analysis: Analysis, tables: Tables) -> Iterator[str]:
    if not analysis.advice:
        yield "<p>Nothing stands out.</p>"
        return
    rows = [{"do": each.do, "regions": each.named, "because": each.because} for each in analysis.advice]
    yield tables.table("Advice", rows, ("do", "regions", "because"))


def _stretch(analysis: Analysis, tables: Tables) -> Iterator[str]:
    if nearness := analysis.nearness():
        yield f"<h3>Latency stretch</h3><p>{nearness[0].upper()}{nearness[1:]}.</p>"
        return
    if analysis.tables["by_destination"]:
        yield "<h3>Latency stretch</h3>" + stretch_chart(analysis)
    if rows := analysis.tables["by_path_nodes"]:
        columns = ["nodes", "deliveries", "delay_ms", "direct_ms", "stretch"]
        yield tables.table("Stretch by length of the path", rows, columns)
    if analysis.tables["by_region"]:
        worst = sorted(analysis.tables["by_region"], key=lambda row: -row["stretch"])
        columns = ["region", "deliveries", "delay_ms", "direct_ms", "stretch", "uncertainty"]
        yield tables.table("Stretch by region, worst first", worst, columns)
        columns = ["publisher", "subscriber", "deliveries", "delay_ms", "direct_ms", "stretch"]
        yield tables.table("Stretch by publisher and destination, worst first", analysis.tables["by_pair"], columns)
    if analysis.left_out:
        yield f"<p>Left out of the stretch: {html.escape(_listed(analysis.left_out))}.</p>"


def _load(analysis: Analysis, tables: Tables) -> Iterator[str]:
    load = analysis.load
    yield "<h3>Load</h3>"
    if load.nodes:
        yield "<p>The rule: no node carries more than the busiest subscriber receives, so no ratio is above 1.</p>"
        yield tables.table("Nodes", load.nodes, ("node", "events", "events_per_s", "regions", "ratio"))
    columns = ["subscriber", "deliveries", "deliveries_per_s", "regions", "held_ms", "held_events"]
    yield tables.table("Subscribers, busiest first", load.subscribers, columns)
    columns = ["region", "events", "events_per_s", "subscribers", "publishers"]
    yield tables.table("Regions, busiest first", load.regions, columns)
    yield "<h3>Joins, gaps and epochs</h3>"
    facts = {f"joins: {name.replace('_', ' ')}": value for name, value in load.joins.items()}
    facts |= {f"gaps: {reason}": number for reason, number in load.gaps.items()}
    facts |= {f"epochs: {reason}": number for reason, number in load.epochs.items()}
    facts |= {f"not recorded: {what}": number for what, number in load.recorder_losses.items()}
    rows = [{"what": what, "value": value} for what, value in facts.items()]
    yield tables.table("What happened to subscribers and the plan", rows, ("what", "value"))


def _counts(audit: Audit) -> dict[str, Any]:
    counts: dict[str, Any] = {
        name: value for name, value in audit.as_dict().items() if isinstance(value, int) or value is None
    }
    if audit.stamps is not None:
        stamps = audit.stamps.as_dict().items()
        counts |= {f"stamps: {name}": value for name, value in stamps if name != "first"}
        if audit.stamps.first is not None:
            counts["stamps: the first"] = audit.stamps.first
    return {name: "not known" if value is None else value for name, value in counts.items() if name != "first"}


def _listed(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} deliveries: {why}" for why, count in counts.items())
