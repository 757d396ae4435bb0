"""The report: one HTML file with a page for producers and a page for engineers, pictures, and tables as CSV.

The HTML needs no network: the plotting library is inside it (some 4.5 MB).
"""

from __future__ import annotations

import csv
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analytics.jobs.analysis import Analysis
from analytics.report.figures import figures_of
from analytics.report.page import PAGE
from analytics.report.pictures import draw_pictures

ROWS_SHOWN = 15
REASONS_SHOWN = 3
_HEADS = {
    "deliveries_per_s": "deliveries/s",
    "events_per_s": "events/s",
    "delay_ms": "delay ms",
    "direct_ms": "direct ms",
    "held_ms": "held ms",
    "held_events": "events waiting",
    "mean_ms": "mean ms",
    "p50_ms": "median ms",
    "p99_ms": "99% ms",
}


def write_report(directory: Path, found: Analysis) -> list[Path]:
    """Write report.html, PNG pictures and CSV tables into a directory, which is created; return the files.

    Raises `OSError` if it cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = [directory / "report.html"]
    written[0].write_text(render(found), encoding="utf-8")
    written += draw_pictures(directory, found)
    written += write_tables(directory, found)
    return written


def write_tables(directory: Path, found: Analysis) -> list[Path]:
    """Write the tables as CSV; membership.csv and rates.csv are inputs of `gamecast plan`."""
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        **{f"stretch_{name}": rows for name, rows in found.tables.items() if name.startswith("by_")},
        "delays": found.tables["delays"],
        "stages": found.tables["stages"],
        "regions": found.load.regions,
        "subscribers": found.load.subscribers,
        "nodes": found.load.nodes,
        "order_by_region_pairs": list(_pairs(found)),
        "advice": [{**each.as_dict(), "regions": " ".join(each.regions)} for each in found.advice],
        "quarantine": [
            {**each, "examples": " ".join(map(str, each["examples"]))} for each in found.quarantine.as_dicts()
        ],
        "membership": [{"subscriber": who, "region": region} for who, region in found.membership],
        "rates": [{"region": row["region"], "rate": row["events_per_s"] or 0.0} for row in found.load.regions],
    }
    written = []
    for name, rows in tables.items():
        if not rows:
            continue
        file = directory / f"{name}.csv"
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        written.append(file)
    return written


def render(found: Analysis) -> str:
    """Return the HTML."""
    from plotly.offline import get_plotlyjs

    drawn = figures_of(found)
    verdict, headline = _verdict(found)
    sessions = ", ".join(found.sessions) or "delivery logs"
    return PAGE.substitute(
        plotly=get_plotlyjs(),
        sessions=html.escape(sessions),
        verdict=verdict,
        headline=html.escape(headline),
        headline_more=html.escape(_headline(found)),
        cards="".join(_cards(found)),
        producer="".join(_producer(found, drawn)),
        engineer="".join(_engineer(found, drawn)),
    )


def _verdict(found: Analysis) -> tuple[str, str]:
    """Return the CSS class of the header, and its text."""
    match found.audit.verdict:
        case "broken":
            return "broken", "A promise was broken."
        case "kept":
            return "kept", "Every promise was kept."
    return "unknown", "It cannot be told whether every promise was kept."


def _headline(found: Analysis) -> str:
    said = (
        f"{found.deliveries:,} deliveries to {found.subscribers:,} servers in {found.regions:,} regions, "
        f"over {_duration(found.load.seconds)}."
    )
    if not found.audit.fine:
        said += f" {found.audit.examples[0].describe()}."
    if unknown := found.audit.unknown:
        more = f", and {len(unknown) - REASONS_SHOWN:,} reasons more" if len(unknown) > REASONS_SHOWN else ""
        said += f" Not recorded completely: {'; '.join(map(str, unknown[:REASONS_SHOWN]))}{more}."
    return said


def _cards(found: Analysis) -> Iterator[str]:
    stretch, audit = found.stretch(), found.audit
    yield _card(
        "Order", "held" if not audit.order.cycles else f"{audit.order.inversions:,} inversions", bad=audit.order.cycles
    )
    lost = audit.losses.lost
    yield _card("Lost", "not known" if lost is None else f"{lost:,}", bad=lost or 0)
    yield _card("Twice", f"{audit.duplicated:,}", bad=audit.duplicated)
    yield _card("Detour in the median", f"× {stretch['p50']:.2f}" if stretch else "not known")
    delays = found.tables["subscriber_delays"]
    if delays:
        count = sum(row["deliveries"] for row in delays)
        mean = sum(row["delay_ms"] * row["deliveries"] for row in delays) / count
        yield _card("Mean delay", f"{mean:.1f} ms")
    yield _card("Put aside", f"{found.quarantine.total:,}")


def _card(title: str, value: str, *, bad: int = 0) -> str:
    kind = " bad" if bad else ""
    return f'<div class="card{kind}"><span>{html.escape(title)}</span><b>{html.escape(value)}</b></div>'


def _producer(found: Analysis, drawn: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>Who hurts?</h2>"
    if found.stretch() is None:
        yield "<p>How long the direct way would have taken is not known, so here is what deliveries took.</p>"
    else:
        yield (
            "<p>Each bar is a game server: how many times longer its events took than the direct way from who sent "
            "them. Long bars are players who notice.</p>"
        )
    yield drawn["hurts"]
    yield "<h2>Did the order hold?</h2>"
    yield from _order(found)
    yield "<h2>What should I move?</h2>"
    yield from _advice(found)
    yield "<h2>Where is it busy?</h2>" + drawn["hot"]


def _order(found: Analysis) -> Iterator[str]:
    audit = found.audit
    if audit.fine:
        held = "As far as it was recorded, yes" if audit.unknown else "Yes"
        yield (
            f"<p>{held}. In {audit.order.pairs_compared:,} pairs of regions that servers have in common, all of them "
            "saw one order, and everything once.</p>"
        )
        return
    yield "<p>No. An example of each kind:</p><ul>"
    yield from (
        f"<li><b>{html.escape(str(each.as_dict()['kind']).replace('_', ' '))}</b>: {html.escape(each.describe())}.</li>"
        for each in audit.examples
    )
    yield "</ul>"


def _advice(found: Analysis) -> Iterator[str]:
    if not found.advice:
        yield "<p>Nothing stands out.</p>"
        return
    rows = [{"do": each.do, "regions": each.named, "because": each.because} for each in found.advice]
    yield _table(rows, ("do", "regions", "because"))


def _engineer(found: Analysis, drawn: Mapping[str, str]) -> Iterator[str]:
    audit, load = found.audit, found.load
    if "cdf" in drawn:
        yield "<h2>Latency stretch of destinations</h2>" + drawn["cdf"]
    yield "<h2>Delay of deliveries</h2>" + drawn["delays"]
    if found.tables["by_path_nodes"]:
        yield "<h2>Stretch by length of the path</h2>"
        yield _table(found.tables["by_path_nodes"], ("nodes", "deliveries", "delay_ms", "direct_ms", "stretch"))
    if found.tables["by_region"]:
        worst = sorted(found.tables["by_region"], key=lambda row: -row["stretch"])
        yield "<h2>Stretch by region, worst first</h2>"
        yield _table(worst, ("region", "deliveries", "delay_ms", "direct_ms", "stretch", "uncertainty"))
        yield "<h2>Stretch by publisher and destination, worst first</h2>"
        yield _table(
            found.tables["by_pair"], ("publisher", "subscriber", "deliveries", "delay_ms", "direct_ms", "stretch")
        )
    if found.left_out:
        yield "<p>Left out of the stretch: " + html.escape(_listed(found.left_out)) + ".</p>"
    yield "<h2>Where the time goes</h2>"
    yield _table(found.tables["stages"], ("stage", "from", "to", "count", "mean_ms", "p50_ms", "p99_ms"))
    yield "<h2>Order</h2>"
    yield _table(
        [{"what": name.replace("_", " "), "count": count} for name, count in _counts(audit).items()], ("what", "count")
    )
    yield "<h3>Pairs of regions, worst first</h3>"
    yield _table(list(_pairs(found)), ("regions", "subscribers", "inversions", "first"))
    yield "<h2>Load</h2>"
    if load.nodes:
        yield "<p>The rule: no node carries more than the busiest subscriber receives, so no ratio is above 1.</p>"
        yield _table(load.nodes, ("node", "events", "events_per_s", "regions", "ratio"))
    yield _table(
        load.subscribers, ("subscriber", "deliveries", "deliveries_per_s", "regions", "held_ms", "held_events")
    )
    yield _table(load.regions, ("region", "events", "events_per_s", "subscribers", "publishers"))
    yield "<h2>Joins, gaps and epochs</h2>"
    facts = {f"joins: {name.replace('_', ' ')}": value for name, value in load.joins.items()}
    facts |= {f"gaps: {reason}": count for reason, count in load.gaps.items()}
    facts |= {f"epochs: {reason}": count for reason, count in load.epochs.items()}
    facts |= {f"not recorded: {what}": count for what, count in load.recorder_losses.items()}
    yield _table([{"what": what, "value": value} for what, value in facts.items()], ("what", "value"))
    yield "<h2>Put aside</h2>"
    rows = [{**each, "examples": ", ".join(map(str, each["examples"]))} for each in found.quarantine.as_dicts()]
    yield _table(rows, ("what", "reason", "count", "examples")) if rows else "<p>Nothing.</p>"
    yield "".join(f"<p>Note: {html.escape(note)}.</p>" for note in found.notes)


def _counts(audit: Any) -> dict[str, Any]:
    found = {name: value for name, value in audit.as_dict().items() if isinstance(value, int) or value is None}
    if audit.stamps is not None:
        stamps = audit.stamps.as_dict().items()
        found |= {f"stamps: {name}": value for name, value in stamps if name != "first"}
        if audit.stamps.first is not None:
            found["stamps: the first"] = audit.stamps.first
    return {name: "not known" if value is None else value for name, value in found.items() if name != "first"}


def _pairs(found: Analysis) -> Iterator[dict[str, Any]]:
    for pair in found.audit.order.pairs:
        first = pair.first.describe() if pair.first is not None else ""
        yield {
            "regions": " – ".join(pair.regions),
            "subscribers": pair.subscribers,
            "inversions": pair.inversions,
            "first": first,
        }


def _table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> str:
    if not rows:
        return "<p>Not recorded.</p>"
    columns = list(columns)
    numeric = {name for name in columns if all(_is_number(row.get(name)) for row in rows[:ROWS_SHOWN])}
    heads = [(' class="number"' if name in numeric else "", _HEADS.get(name, name)) for name in columns]
    head = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in heads)
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name)) for name in columns) + "</tr>" for row in list(rows)[:ROWS_SHOWN]
    )
    more = f'<p class="more">and {len(rows) - ROWS_SHOWN:,} more, in the CSV</p>' if len(rows) > ROWS_SHOWN else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>{more}'


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return '<td class="number">–</td>'
    if not _is_number(value):
        return f"<td>{html.escape(str(value))}</td>"
    return f'<td class="number">{value:,}</td>' if isinstance(value, int) else f'<td class="number">{value:,.2f}</td>'


def _listed(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} deliveries: {why}" for why, count in counts.items())


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
