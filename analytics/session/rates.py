"""The event rate of each region of a recorded session; for `gamecast plan`, and without Spark."""

from __future__ import annotations

from pathlib import Path

from analytics.session.finding import finished_files
from analytics.session.runs import spread_arrow, stored_names
from analytics.session.schema import DELIVERIES, PUBLISHES, SESSION_FILE, Table
from analytics.session.storage import stored
from sequencing.errors import InvalidInput
from sequencing.extras import needed_by

NS_PER_S = 1e9


def read_session_rates(directory: Path) -> dict[str, float]:
    """Return events/s of each region, over the time from the session's first event to its last.

    Uses the rows of publishers if there are any, otherwise the distinct delivered events. Raises `InvalidInput` for an
    invalid session, one without events, and a damaged file, which it names.
    """
    with needed_by("reading a session"):
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds
    source = stored(directory)
    if not source.within(SESSION_FILE).is_file:
        raise InvalidInput(f"{directory} is not a recorded session: it has no {SESSION_FILE} that is a regular file")
    of_table, left_out = finished_files(source)

    def read(table: Table, *columns: str) -> pa.Table | None:
        for name, reason in left_out.items():
            if Path(name).relative_to(source.name).parts[0] == table.name:
                raise InvalidInput(f"{name} is {reason}")
        files = of_table.get(table.name, ())
        if not files:
            return None
        try:
            rows = ds.dataset([file.place for file in files], table.arrow_schema()).to_table(
                list(stored_names(table, columns))
            )
            spread = spread_arrow(rows, table)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInput(f"{directory}: a file of {table.name} cannot be read: {error}") from error
        return spread if len(spread) else None

    rows = read(PUBLISHES, "region", "sequence", "published_at_ns")
    if rows is not None:
        rows = rows.filter(pc.is_valid(rows["sequence"]))
        at = rows["published_at_ns"]
    else:
        rows = read(DELIVERIES, "region", "epoch", "sequence", "event", "delivered_at_ns")
        if rows is None:
            raise InvalidInput(f"{directory} has neither publishes nor deliveries")
        at = rows["delivered_at_ns"]
        rows = rows.group_by(["region", "epoch", "sequence", "event"]).aggregate([])
    least_and_most = pc.min_max(at).as_py()
    if not len(rows) or least_and_most["min"] is None or least_and_most["max"] <= least_and_most["min"]:
        raise InvalidInput(f"{directory} has no two events with different times, so there is no rate")
    seconds = (least_and_most["max"] - least_and_most["min"]) / NS_PER_S
    counts = rows.group_by("region").aggregate([([], "count_all")])
    pairs = zip(counts["region"].to_pylist(), counts["count_all"].to_pylist(), strict=True)
    return {region: count / seconds for region, count in sorted(pairs)}
