"""Recorded sessions: their schema, and the Spark jobs that judge them. Users import from here: ``gamecast.analytics``.

A name is found in its module when it is first asked for, so that importing this imports neither pyarrow nor pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analytics.analysis import Analysis as Analysis
    from analytics.analysis import Audit as Audit
    from analytics.analysis import analyse as analyse
    from analytics.causal import audit_causality as audit_causality
    from analytics.cells import add_up as add_up
    from analytics.clocks import ClockOffset as ClockOffset
    from analytics.clocks import ClockReport as ClockReport
    from analytics.clocks import estimate_offset as estimate_offset
    from analytics.clocks import estimate_offsets as estimate_offsets
    from analytics.clocks import offsets_from as offsets_from
    from analytics.completeness import audit_losses as audit_losses
    from analytics.load import measure_load as measure_load
    from analytics.numbering import number as number
    from analytics.order import audit_order as audit_order
    from analytics.order import audit_publishers as audit_publishers
    from analytics.order import audit_repetitions as audit_repetitions
    from analytics.probes import direct_from_probes as direct_from_probes
    from analytics.rates import read_session_rates as read_session_rates
    from analytics.reading import Sources as Sources
    from analytics.reading import read_sources as read_sources
    from analytics.report import write_report as write_report
    from analytics.runs import spread as spread
    from analytics.schema import SCHEMA_VERSION as SCHEMA_VERSION
    from analytics.schema import TABLE_OF as TABLE_OF
    from analytics.schema import TABLES as TABLES
    from analytics.schema import Column as Column
    from analytics.schema import Table as Table
    from analytics.session import Session as Session
    from analytics.session import read_session as read_session
    from analytics.slices import cut as cut
    from analytics.spark import open_spark as open_spark
    from analytics.stamp_audit import audit_stamps as audit_stamps
    from analytics.streaming import Following as Following
    from analytics.stretch import delay_histogram as delay_histogram
    from analytics.stretch import direct_from as direct_from
    from analytics.stretch import measure_stretch as measure_stretch

_MODULE_OF = {
    **dict.fromkeys(("ClockOffset", "ClockReport", "estimate_offset", "estimate_offsets", "offsets_from"), "clocks"),
    **dict.fromkeys(("SCHEMA_VERSION", "TABLES", "TABLE_OF", "Column", "Table"), "schema"),
    **dict.fromkeys(("Session", "read_session"), "session"),
    **dict.fromkeys(
        (
            "Analysis",
            "Audit",
            "analyse",
        ),
        "analysis",
    ),
    **dict.fromkeys(("add_up",), "cells"),
    **dict.fromkeys(("audit_causality",), "causal"),
    **dict.fromkeys(("audit_losses",), "completeness"),
    **dict.fromkeys(("measure_load",), "load"),
    **dict.fromkeys(("number",), "numbering"),
    **dict.fromkeys(
        (
            "audit_order",
            "audit_publishers",
            "audit_repetitions",
        ),
        "order",
    ),
    **dict.fromkeys(("direct_from_probes",), "probes"),
    **dict.fromkeys(("read_session_rates",), "rates"),
    **dict.fromkeys(
        (
            "Sources",
            "read_sources",
        ),
        "reading",
    ),
    **dict.fromkeys(("write_report",), "report"),
    **dict.fromkeys(("spread",), "runs"),
    **dict.fromkeys(("cut",), "slices"),
    **dict.fromkeys(("open_spark",), "spark"),
    **dict.fromkeys(("audit_stamps",), "stamp_audit"),
    **dict.fromkeys(("Following",), "streaming"),
    **dict.fromkeys(
        (
            "delay_histogram",
            "direct_from",
            "measure_stretch",
        ),
        "stretch",
    ),
}

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
