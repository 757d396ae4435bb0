"""Recorded sessions: their schema, and the Spark jobs that judge them. Users import from here: ``gamecast.analytics``.

A name's module is imported at the first use of the name, so that importing this imports neither pyarrow nor pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis as Analysis
    from analytics.jobs.analysis import Audit as Audit
    from analytics.jobs.analysis import analyse as analyse
    from analytics.jobs.causal import audit_causality as audit_causality
    from analytics.jobs.cells import add_up as add_up
    from analytics.jobs.completeness import audit_losses as audit_losses
    from analytics.jobs.load import measure_load as measure_load
    from analytics.jobs.numbering import number as number
    from analytics.jobs.order import audit_order as audit_order
    from analytics.jobs.order import audit_publishers as audit_publishers
    from analytics.jobs.order import audit_repetitions as audit_repetitions
    from analytics.jobs.probes import direct_from_probes as direct_from_probes
    from analytics.jobs.slices import cut as cut
    from analytics.jobs.spark import open_spark as open_spark
    from analytics.jobs.stamp_audit import audit_stamps as audit_stamps
    from analytics.jobs.streaming import Following as Following
    from analytics.jobs.stretch import direct_from as direct_from
    from analytics.jobs.stretch import measure_stretch as measure_stretch
    from analytics.jobs.timeline import delay_histogram as delay_histogram
    from analytics.report.report import write_report as write_report
    from analytics.session.clocks import ClockOffset as ClockOffset
    from analytics.session.clocks import ClockReport as ClockReport
    from analytics.session.clocks import estimate_offset as estimate_offset
    from analytics.session.clocks import estimate_offsets as estimate_offsets
    from analytics.session.clocks import offsets_from as offsets_from
    from analytics.session.manifest import Session as Session
    from analytics.session.manifest import read_session as read_session
    from analytics.session.rates import read_session_rates as read_session_rates
    from analytics.session.reading import Sources as Sources
    from analytics.session.reading import read_sources as read_sources
    from analytics.session.runs import spread as spread
    from analytics.session.schema import SCHEMA_VERSION as SCHEMA_VERSION
    from analytics.session.schema import TABLE_OF as TABLE_OF
    from analytics.session.schema import TABLES as TABLES
    from analytics.session.schema import Column as Column
    from analytics.session.schema import Table as Table

_MODULE_OF = {
    **dict.fromkeys(
        (
            "Analysis",
            "Audit",
            "analyse",
        ),
        "jobs.analysis",
    ),
    **dict.fromkeys(("audit_causality",), "jobs.causal"),
    **dict.fromkeys(("add_up",), "jobs.cells"),
    **dict.fromkeys(("audit_losses",), "jobs.completeness"),
    **dict.fromkeys(("measure_load",), "jobs.load"),
    **dict.fromkeys(("number",), "jobs.numbering"),
    **dict.fromkeys(
        (
            "audit_order",
            "audit_publishers",
            "audit_repetitions",
        ),
        "jobs.order",
    ),
    **dict.fromkeys(("direct_from_probes",), "jobs.probes"),
    **dict.fromkeys(("cut",), "jobs.slices"),
    **dict.fromkeys(("open_spark",), "jobs.spark"),
    **dict.fromkeys(("audit_stamps",), "jobs.stamp_audit"),
    **dict.fromkeys(("Following",), "jobs.streaming"),
    **dict.fromkeys(
        (
            "direct_from",
            "measure_stretch",
        ),
        "jobs.stretch",
    ),
    **dict.fromkeys(("delay_histogram",), "jobs.timeline"),
    **dict.fromkeys(("write_report",), "report.report"),
    **dict.fromkeys(
        (
            "ClockOffset",
            "ClockReport",
            "estimate_offset",
            "estimate_offsets",
            "offsets_from",
        ),
        "session.clocks",
    ),
    **dict.fromkeys(
        (
            "Session",
            "read_session",
        ),
        "session.manifest",
    ),
    **dict.fromkeys(("read_session_rates",), "session.rates"),
    **dict.fromkeys(
        (
            "Sources",
            "read_sources",
        ),
        "session.reading",
    ),
    **dict.fromkeys(("spread",), "session.runs"),
    **dict.fromkeys(
        (
            "Column",
            "SCHEMA_VERSION",
            "TABLES",
            "TABLE_OF",
            "Table",
        ),
        "session.schema",
    ),
}
"""Name → its module, below this folder."""

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
