"""The report: one HTML file with a part for producers and a part for engineers, pictures, and tables as CSV.

The HTML needs no network and no library: its charts are SVG, and its texts are texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

from analytics.jobs.analysis import Analysis
from analytics.report.charts import legible
from analytics.report.figures import at_most, delay_percentiles
from analytics.report.page import PAGE, PARTS, PARTS_STYLE, STYLE, card
from analytics.report.pictures import draw_pictures
from analytics.report.sections import engineer, producer
from analytics.report.tables import Tables, text_of, write_tables

REASONS_SHOWN = 3


def write_report(directory: Path, analysis: Analysis) -> list[Path]:
    """Write report.html, PNG pictures and CSV tables into a directory, which is created; return the files.

    Pictures need matplotlib, of the extra `plots`. Raises `OSError` if a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = [directory / "report.html"]
    written[0].write_text(render(analysis), encoding="utf-8")
    written += draw_pictures(directory, analysis)
    written += write_tables(directory, analysis)
    return written


def render(analysis: Analysis) -> str:
    """Return the HTML."""
    verdict, headline = _verdict(analysis)
    sessions = ", ".join(analysis.sessions) or "delivery logs"
    tables = Tables()
    return PAGE.substitute(
        title=html.escape(legible(sessions)),
        style=STYLE + PARTS_STYLE,
        verdict=verdict,
        above=f"gamecast analyze · {text_of(sessions)}",
        headline=html.escape(headline),
        below=html.escape(legible(_headline(analysis))),
        turns=_turns(analysis),
        cards="".join(_cards(analysis)),
        contents=PARTS.substitute(
            producer="".join(producer(analysis, tables)), engineer="".join(engineer(analysis, tables))
        ),
    )


def _verdict(analysis: Analysis) -> tuple[str, str]:
    """Return the CSS class of the header, and its text."""
    match analysis.audit.verdict:
        case "broken":
            return "broken", "A promise was broken."
        case "kept":
            return "kept", "Every promise was kept."
    return "unknown", "It cannot be told whether every promise was kept."


def _headline(analysis: Analysis) -> str:
    said = (
        f"{analysis.deliveries:,} deliveries to {analysis.subscribers:,} servers in {analysis.regions:,} regions, "
        f"over {_duration(analysis.load.seconds)}."
    )
    if not analysis.audit.fine:
        said += f" {analysis.audit.examples[0].describe()}."
    if unknown := analysis.audit.unknown:
        more = f", and {len(unknown) - REASONS_SHOWN:,} reasons more" if len(unknown) > REASONS_SHOWN else ""
        said += f" Not recorded completely: {'; '.join(map(str, unknown[:REASONS_SHOWN]))}{more}."
    return said


def _turns(analysis: Analysis) -> str:
    """Return the sentences of the moments at which the session changed, numbered as in the picture over time."""
    sentences = "".join(f"<li>{text_of(turn.describe())}</li>" for turn in analysis.turns)
    return f'<ol class="turns">{sentences}</ol>' if sentences else ""


def _cards(analysis: Analysis) -> Iterator[str]:
    stretch, audit = analysis.stretch(), analysis.audit
    yield card("Order", "broken" if audit.order.cycles else "held", bad=audit.order.cycles)
    lost = audit.losses.lost
    yield card("Lost", "not known" if lost is None else f"{lost:,}", bad=lost or 0)
    yield card("Delivered twice", f"{audit.duplicated:,}", bad=audit.duplicated)
    if not analysis.nearness():
        yield card("Detour in the median", f"× {stretch['p50']:.2f}" if stretch else "not known")
    for name, ms in delay_percentiles(analysis).items():
        yield card(f"Delay {name}", at_most(ms))
    yield card("Put aside", f"{analysis.quarantine.total:,}")


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} seconds"
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
