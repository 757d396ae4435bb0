"""Recorded sessions: their schema, and the Spark jobs that judge them. Users import from here: ``gamecast.analytics``.

A name is found in its module when it is first asked for, so that importing this imports neither pyarrow nor pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analytics.clocks import ClockOffset as ClockOffset
    from analytics.clocks import ClockReport as ClockReport
    from analytics.clocks import estimate_offset as estimate_offset
    from analytics.clocks import estimate_offsets as estimate_offsets
    from analytics.clocks import offsets_from as offsets_from
    from analytics.schema import SCHEMA_VERSION as SCHEMA_VERSION
    from analytics.schema import TABLE_OF as TABLE_OF
    from analytics.schema import TABLES as TABLES
    from analytics.schema import Column as Column
    from analytics.schema import Table as Table
    from analytics.session import Session as Session
    from analytics.session import read_session as read_session

_MODULE_OF = {
    **dict.fromkeys(("ClockOffset", "ClockReport", "estimate_offset", "estimate_offsets", "offsets_from"), "clocks"),
    **dict.fromkeys(("SCHEMA_VERSION", "TABLES", "TABLE_OF", "Column", "Table"), "schema"),
    **dict.fromkeys(("Session", "read_session"), "session"),
}

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
