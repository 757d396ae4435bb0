"""Recorded sessions: their schema, and the Spark jobs that judge them. Users import from here: ``gamecast.analytics``.

A name is found in its module when it is first asked for, so that importing this imports neither pyarrow nor pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analytics.schema import SCHEMA_VERSION as SCHEMA_VERSION
    from analytics.schema import TABLE_OF as TABLE_OF
    from analytics.schema import TABLES as TABLES
    from analytics.schema import Column as Column
    from analytics.schema import Table as Table

_MODULE_OF = {
    **dict.fromkeys(("SCHEMA_VERSION", "TABLES", "TABLE_OF", "Column", "Table"), "schema"),
}

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
