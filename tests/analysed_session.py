"""An analysis made by hand, for tests of what shows it: Spark is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from analytics.jobs.advice import Advice
from analytics.jobs.analysis import Analysis, Audit
from analytics.jobs.completeness import Losses
from analytics.jobs.load import Load
from analytics.jobs.order import Order, RegionPair
from analytics.session.quarantine import Quarantine
from sequencing.checkers import Offence

STRANGE_NAMES = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    'Tom & Jerry &amp; "friends"',
    "price $x$ and $title",
    "a-server-with-a-name-that-is-very-long-" + "x" * 200 + "-and-ends-in-eu-west",
    "\u05e9\u05e8\u05ea \u0635\u0641\u062d\u0629",
    "two\nlines",
    "\u202ereversed",
)
"""Names as a game may choose them, and as somebody may who means harm."""


def analysed(
    servers: int = 12,
    *,
    names: tuple[str, ...] = (),
    direct: bool = True,
    broken: bool = False,
    minutes: int = 0,
) -> Analysis:
    """Return the analysis of a session; ``names`` come before invented ones, of servers and regions alike."""
    servers = max(servers, len(names))
    who = [*names, *(f"server-{number:03}" for number in range(len(names), servers))]
    regions = [*names, *(f"region-{number:03}" for number in range(len(names), servers))]
    offence = Offence("inversion", ("1-1", "2-1"), (regions[0], regions[1]), (who[0], who[1]))
    pairs = tuple(
        RegionPair("s", (one, other), 4, 3 - number if broken and number < 3 else 0, offence if broken else None)
        for number, (one, other) in enumerate(pairwise(regions))
    )
    cycles, first = (6, offence) if broken else (0, None)
    order = Order(cycles, cycles, cycles, first, None, pairs, len(pairs), 1, 1)
    losses = Losses(0, 0, None, ())
    quarantine = Quarantine()
    quarantine.add("file", "truncated", examples=names or ["a.parquet"])
    return Analysis(
        len(who),
        len(regions),
        100_000,
        {names[0] if names else "night/session": {}},
        _tables(who, regions, direct=direct, minutes=minutes),
        {"no direct way is known": 12} if direct else {},
        Audit(order, 0, 0, 0, losses, None, None, (offence,) if broken else ()),
        _load(who, regions),
        (Advice("merge", tuple(regions[:2]), "they have the same servers", 3.0),),
        quarantine,
        ("2 files were not finished: a recorder is still running, or was killed",),
        tuple(zip(who, regions, strict=True)),
    )


def _tables(who: list[str], regions: list[str], *, direct: bool, minutes: int) -> dict[str, list[dict[str, Any]]]:
    stretch = [
        {"subscriber": name, "stretch": 1.2 + 2.9 / (1 + number), "deliveries": 900,
         "delay_ms": 60.0 + 170 / (1 + number), "direct_ms": 56.0, "uncertainty": 0.01}
        for number, name in enumerate(who)
    ]  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {
        "by_destination": stretch if direct else [],
        "by_region": [{**row, "region": name} for row, name in zip(stretch, regions, strict=True)] if direct else [],
        "by_pair": [{**row, "publisher": who[0]} for row in stretch] if direct else [],
        "by_path_nodes": [{"nodes": 1, **stretch[0]}, {"nodes": 2, **stretch[1]}] if direct else [],
        "delays": _histogram(),
        "stages": [
            {"stage": "held for order, and in the inbox", "from": who[0], "to": who[1], "count": 800, "mean_ms": 0.7,
             "p50_ms": 0.3, "p99_ms": None}
        ],
        "subscriber_delays": [
            {name: row[name] for name in ("subscriber", "deliveries", "delay_ms")} for row in stretch
        ],
    }  # fmt: skip
    if minutes:
        tables["timeline"] = [_minute(number) for number in range(minutes)]
    return tables


def _histogram() -> list[dict[str, Any]]:
    """Return buckets from 0.5 ms to 500 ms, in steps of 4.4%, with most of the deliveries in the middle."""
    return [
        {"session": "s", "bucket": number, "up_to_ms": 2.0 ** (number / 16), "deliveries": 60 * (81 - abs(number - 60))}
        for number in range(-16, 140)
    ]


def _minute(number: int) -> dict[str, Any]:
    time = datetime(2026, 11, 26, 13, 35, tzinfo=UTC) + timedelta(minutes=number)
    late, silent = (4.0 if 20 <= number < 30 else 1.0), number == 12
    delays = {"p50_ms": 40 * late + number % 5, "p95_ms": 90 * late + number % 7, "p99_ms": 120 * late + number % 9}
    return {
        "minute": f"{time:%Y-%m-%dT%H:%M}",
        "events_per_s": 0.0 if silent else 75.0 + 10 * (number % 4),
        "deliveries": 0 if silent else 4500,
        **(dict.fromkeys(delays) if silent else delays),
        "joins": 2 if number % 17 == 0 else 0,
        "gaps": 1 if number in (21, 22) else 0,
    }


def _load(who: list[str], regions: list[str]) -> Load:
    joins: Mapping[str, Any] = {"joins": 12, "leaves": 3, "p50": 12.5}
    return Load(
        3600.0,
        [
            {"region": name, "events": 9000, "events_per_s": 300.0 / (1 + number), "subscribers": 4, "publishers": 3}
            for number, name in enumerate(regions)
        ],
        [
            {
                "subscriber": name,
                "deliveries": 9000,
                "deliveries_per_s": 2.5,
                "regions": 3,
                "held_ms": 0.7,
                "held_events": None,
            }
            for name in who
        ],
        [{"node": "n1", "events": 9000, "events_per_s": 2.5, "regions": 4, "ratio": 1.2}],
        joins,
        {"retention": 2},
        {"first": 1},
        {"deliveries: the buffer was full": 3},
    )
