"""Rows that are runs of events, as a session's files have them, expanded to one row for each event.

The events of a frame are delivered one after the other, at one time and to one subscriber. Files store that once. It
costs the recording server a small part of what a row per event would cost, and readers have more time. See
`analytics.session.schema.Runs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.session.schema import EVENTS, FILE_EVENTS, Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

    IntArray = npt.NDArray[np.int64]

RUN_EVENTS_MAX = 1024
"""Events of a row: a frame has 64 at most. A row that says more must not fill the memory."""
_PLACE = "_place"


def spread(rows: DataFrame, table: Table) -> DataFrame:
    """Return a row for each event, without the columns of runs.

    Keep other columns, and a table without runs as it is.
    """
    if table.runs is None:
        return rows
    from pyspark.sql import functions as fn

    runs = table.runs
    last = fn.greatest(fn.coalesce(fn.col(EVENTS), fn.lit(1)) - 1, fn.lit(0)).cast("int")
    placed = rows.withColumn(_PLACE, fn.explode(fn.sequence(fn.lit(0), last)))
    values = {name: (fn.col(name) + fn.col(_PLACE)).alias(name) for name in runs.numbered} | {
        name: fn.coalesce(fn.get(fn.col(each), fn.col(_PLACE)), fn.col(name)).alias(name)
        for name, each in runs.each.items()
    }
    left_out = {EVENTS, *runs.each.values()}
    return placed.select(*(values.get(name, fn.col(name)) for name in rows.columns if name not in left_out))


def stored_names(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that must be read so that `spread_arrow` can return these."""
    if table.runs is None:
        return names
    return tuple(dict.fromkeys((*names, EVENTS, *(table.runs.each[name] for name in names if name in table.runs.each))))


def spread_arrow(rows: pa.Table, table: Table) -> pa.Table:
    """Do the same as `spread`. A column that is there needs its columns of runs."""
    if table.runs is None:
        return rows
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    runs = table.runs
    events = pc.fill_null(rows[EVENTS], 1).to_numpy()
    if len(events) and not 0 <= events.min() <= events.max() <= RUN_EVENTS_MAX:
        raise ValueError(
            f"a row of {max(events.min(), events.max(), key=abs):,} events, and {RUN_EVENTS_MAX:,} are the most"
        )
    of_row = np.repeat(np.arange(len(events)), events)
    place = pa.array(np.arange(len(of_row)) - np.repeat(np.cumsum(events) - events, events))
    columns: dict[str, pa.ChunkedArray] = {}
    for name in rows.column_names:
        if name == EVENTS or name in runs.each.values():
            continue
        column = rows[name].take(pa.array(of_row))
        if name in runs.numbered:
            column = pc.add(column, place)
        elif name in runs.each:
            column = _each(column, rows[runs.each[name]], events)
        columns[name] = column
    return pa.table(columns)


def events_of(rows: pa.Table, table: Table) -> int:
    """Return how many events the rows are; in a table without runs, how many rows."""
    if table.runs is None:
        return int(rows.num_rows)
    import pyarrow.compute as pc

    return int(pc.sum(pc.fill_null(rows[EVENTS], 1)).as_py() or 0)


def events_in(footer: pq.FileMetaData) -> int:
    """Return how many events a Parquet file has, by its footer; in a table without runs, how many rows."""
    return int((footer.metadata or {}).get(FILE_EVENTS.encode(), footer.num_rows))


def _each(first: pa.ChunkedArray, lists: pa.ChunkedArray, events: IntArray) -> pa.ChunkedArray:
    """Return each event's own value from the row's list, or the first event's value if there is no list."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    if (lengths[lengths > 0] != events[lengths > 0]).any():
        raise ValueError("a list's length differs from the row's number of events")
    listed = pa.array(np.repeat(lengths > 0, events))
    values = pc.list_flatten(lists.combine_chunks())
    return pc.replace_with_mask(first.combine_chunks(), listed, values)
