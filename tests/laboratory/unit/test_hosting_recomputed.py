"""The deliveries that the recorded match implies, computed once more from the CSV files by the documented rule.

Nothing of `demo` is used for that: plain Python, row by row.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

from demo.match.hosting import build_workload
from demo.match.trace import read_match
from tests.shared_data import BLACK_GOLD, needs_shared_data


def rows_of(file: Path) -> list[dict[str, str]]:
    data = file.read_bytes()
    text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def cells_seen(x: float, z: float, side: float, radius: float) -> set[tuple[int, int]]:
    """Return the cells with a point within the radius, by the nearest point of each."""
    seen = set()
    for i in range(math.floor((x - radius) / side) - 1, math.floor((x + radius) / side) + 2):
        for j in range(math.floor((z - radius) / side) - 1, math.floor((z + radius) / side) + 2):
            # The nearest point of the closed cell is not in the cell itself if it is on an upper edge.
            near_x, near_z = min(max(x, i * side), (i + 1) * side), min(max(z, j * side), (j + 1) * side)
            distance_squared = (x - near_x) ** 2 + (z - near_z) ** 2
            on_upper_edge = near_x == (i + 1) * side or near_z == (j + 1) * side
            if distance_squared < radius**2 or (distance_squared == radius**2 and not on_upper_edge):
                seen.add((i, j))
    return {(i, j) for i, j in seen if radius > 0}


@needs_shared_data
@pytest.mark.parametrize(
    ("side", "radius", "servers", "start", "end", "moves"),
    [(250, 100, 8, 0, 1e9, False), (500, 150, 5, 0, 1e9, False), (250, 100, 8, 1000, 1400, True)],
)
def test_the_recorded_match_implies_the_deliveries_that_the_rule_says(
    side: float, radius: float, servers: int, start: float, end: float, moves: bool
) -> None:
    players = [row["player"] for row in rows_of(BLACK_GOLD.with_name(BLACK_GOLD.name + "_players.csv"))]
    positions = rows_of(BLACK_GOLD.with_name(BLACK_GOLD.name + "_positions.csv.gz"))
    events = rows_of(BLACK_GOLD.with_name(BLACK_GOLD.name + "_events.csv.gz"))

    # Who is where: the last position before the window, unless the player has left since, then those in it.
    before: dict[str, dict[str, str]] = {}
    timeline = [(float(row["t_s"]), 0, row) for row in positions] + [
        (float(row["t_s"]), 1, row) for row in events if row["kind"] == "leave"
    ]
    for t, is_leave, row in sorted(timeline, key=lambda entry: entry[:2]):
        if t < start:
            if is_leave:
                before.pop(row["actor"], None)
            else:
                before[row["player"]] = row
    states = [*before.values(), *(row for row in positions if start <= float(row["t_s"]) < end)]

    # Who is hosted where.
    placed = [row for row in events if row["x_m"] and start <= float(row["t_s"]) < end]
    squad: dict[str, str] = {}
    for row in states:
        if squad.get(row["player"], "") == "":
            squad[row["player"]] = "" if row["squad"] in ("", "0") else f"{row['team']}/{row['squad']}"
    for row in placed:
        responsible = [name for name in (row["actor"], row["target"]) if name in players]
        if responsible:
            squad.setdefault(responsible[0], "")
    groups: dict[str, list[str]] = defaultdict(list)
    for name in players:
        if name in squad:
            groups[squad[name] or name].append(name)
    assert len(groups) >= servers
    load = [0] * servers
    server_of: dict[str, int] = {}
    for members in groups.values():
        least = load.index(min(load))
        load[least] += len(members)
        server_of.update(dict.fromkeys(members, least))

    # Who subscribes to what.
    regions: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for server, x, z in {(server_of[row["player"]], float(row["x_m"]), float(row["z_m"])) for row in states}:
        regions[server] |= cells_seen(x, z, side, radius)
    published = []
    for row in placed + ([row for row in positions if start <= float(row["t_s"]) < end] if moves else []):
        cell = math.floor(float(row["x_m"]) / side), math.floor(float(row["z_m"]) / side)
        names = [row["player"]] if "player" in row else [row["actor"], row["target"]]
        known = [name for name in names if name in server_of]
        publisher = server_of[known[0]] if known else zlib.crc32(f"cell:{cell[0]}:{cell[1]}".encode()) % servers
        regions[publisher].add(cell)
        published.append(cell)
    expected = [sum(cell in regions[server] for cell in published) for server in range(servers)]

    workload = build_workload(
        read_match(BLACK_GOLD),
        cell_m=side,
        radius_m=radius,
        servers=servers,
        start_s=start,
        duration_s=end - start,
        moves=moves,
    )
    assert len(workload.publications) == len(published)
    assert [len(workload.membership[server]) for server in workload.servers] == [
        len(regions[s]) for s in range(servers)
    ]
    assert list(workload.expected_deliveries().values()) == expected
    assert sum(expected) > len(published)
