"""Sessions that are drawn with faults of every kind: the verdict is what the drawing knows, and it has a reason."""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analytics.jobs.analysis import Audit, analyse
from analytics.session.reading import read_sources
from analytics.session.schema import FILE_RECORDER, FILE_SCHEMA, FILE_SESSION, SCHEMA_VERSION, SESSION_FILE, TABLE_OF
from cli.analyze import analyze
from launcher.ending import CANNOT_TELL
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(1500)]

DRAWN = int(os.environ.get("GAMECAST_DRAWN_SESSIONS", "1"))
DRAWN_FROM = int(os.environ.get("GAMECAST_DRAWN_FROM", "0"))
"""How many are drawn, and the first seed; each takes some seconds."""
BEGAN_NS = 1_790_000_000_000_000_000
KEPT, BROKEN, UNKNOWN = "kept", "broken", "unknown"

Row = dict[str, Any]


@dataclass
class World:
    """Servers, their regions, and all rows of their session; faults change the rows."""

    random: Random
    rows: dict[str, list[Row]] = field(default_factory=dict)
    spoilt: list[str] = field(default_factory=list)
    """Tables whose file is cut in half."""
    first_number: int = 1
    """The number in the names of files."""
    copied: list[str] = field(default_factory=list)
    """Tables whose file is there twice."""
    saved_again: bool = False
    """Whether the deliveries are there twice, in another encoding."""
    nulls: bool = False
    """Whether there is a file of deliveries with nulls where none may be."""

    def of(self, table: str, name: str) -> list[Row]:
        key = {"publishes": "publisher", "connections": "name"}.get(table, "subscriber")
        return [row for row in self.rows[table] if row[key] == name]

    def drop(self, table: str, lost: list[Row]) -> None:
        self.rows[table] = [row for row in self.rows[table] if not any(row is each for each in lost)]

    def anybody(self) -> str:
        """A subscriber that delivered enough to lose something."""
        names: list[str] = sorted({row["subscriber"] for row in self.rows["deliveries"]})
        return self.random.choice([name for name in names if len(self.of("deliveries", name)) > 12])

    def renumber(self, name: str) -> None:
        """Give a subscriber's deliveries the numbers that it would have counted."""
        mine = sorted(self.of("deliveries", name), key=lambda row: row["index"])
        before = [row["index"] for row in mine]
        stays = self.of("stays", name)
        ended = max((stay["to_index"] for stay in stays if stay["to_index"] is not None), default=None)
        for stay in stays:
            stay["from_index"] = bisect_left(before, stay["from_index"])
            if stay["to_index"] is not None:
                stay["to_index"] = len(mine) if stay["to_index"] == ended else bisect_left(before, stay["to_index"])
        for index, row in enumerate(mine):
            row["index"] = index


def drawn(random: Random) -> World:
    """A session in which everything was kept: one order, nothing lost, all closed."""
    regions = [f"r{n}" for n in range(random.randint(2, 4))]
    names = [f"s{n}" for n in range(random.randint(2, 5))]
    wants = {name: sorted(random.sample(regions, random.randint(1, len(regions)))) for name in names}
    world = World(
        random, {table: [] for table in ("deliveries", "publishes", "stays", "connections", "gaps", "losses")}
    )
    last = dict.fromkeys(regions, 0)
    indices = dict.fromkeys(names, 0)
    for turn in range(random.randint(80, 200)):
        publisher, region = random.choice(names), random.choice(regions)
        last[region] += 1
        at = BEGAN_NS + 2_000_000_000 + turn * 1_000_000
        event = {"region": region, "epoch": 1, "sequence": last[region]}
        publish = {"publisher": publisher, "host": "h", **event, "bytes": 1, "published_at_ns": at}
        world.rows["publishes"].append({**publish, "acknowledged_at_ns": at + 500, "outcome": "acknowledged"})
        for name in names:
            if region in wants[name]:
                delivery = {"subscriber": name, "incarnation": 1, "host": "h", "index": indices[name], **event}
                times = {"sent_at_ns": at, "received_at_ns": at + 1000, "delivered_at_ns": at + 2000}
                world.rows["deliveries"].append({**delivery, "publisher": publisher, **times})
                indices[name] += 1
    for name in names:
        for place, region in enumerate(wants[name]):
            stay = {"subscriber": name, "incarnation": 1, "host": "h", "stay": place, "revision": 2, "region": region}
            times = {"asked_at_ns": BEGAN_NS, "joined_at_ns": BEGAN_NS + 1000, "left_at_ns": BEGAN_NS + 10**11}
            places = {"from_index": 0, "to_index": indices[name], "epoch": 1, "noted_at_ns": BEGAN_NS + 10**11}
            world.rows["stays"].append({**stay, **times, **places})
        connection = {"name": name, "incarnation": 1, "host": "h", "recorder": name, "opened_at_ns": BEGAN_NS}
        world.rows["connections"].append(
            {**connection, "closed_at_ns": BEGAN_NS + 10**11, "noted_at_ns": BEGAN_NS + 10**11}
        )
    return world


def nothing(_: World) -> str:
    return KEPT


def a_loss(world: World) -> str:
    name = world.anybody()
    mine = world.of("deliveries", name)
    # Of a region of which more came after: what comes last before a leave may not be due.
    candidates = [row for row in mine[2:-8] if any(each["region"] == row["region"] for each in mine[-8:])]
    if not candidates:
        return KEPT
    world.drop("deliveries", [world.random.choice(candidates)])
    world.renumber(name)
    return BROKEN


def a_loss_that_is_told(world: World) -> str:
    before = {id(row): row for row in world.rows["deliveries"]}
    if a_loss(world) == KEPT:
        return KEPT
    [lost] = [row for key, row in before.items() if not any(id(each) == key for each in world.rows["deliveries"])]
    gap = {"subscriber": lost["subscriber"], "incarnation": 1, "host": "h", "region": lost["region"], "epoch": 1}
    numbers = {"first_sequence": lost["sequence"], "last_sequence": lost["sequence"], "index": 3}
    world.rows["gaps"].append({**gap, **numbers, "reason": "test", "announced_at_ns": lost["delivered_at_ns"]})
    return KEPT


def a_repetition(world: World) -> str:
    name = world.anybody()
    again = dict(world.random.choice(world.of("deliveries", name)))
    again["index"] = 10**6
    world.rows["deliveries"].append(again)
    world.renumber(name)
    return BROKEN


def a_swap(world: World) -> str:
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    for one, other in pairwise(mine):
        if one["region"] == other["region"] and one["publisher"] == other["publisher"]:
            for each in ("index", "received_at_ns", "delivered_at_ns"):
                one[each], other[each] = other[each], one[each]
            return BROKEN
    return KEPT


def an_event_of_nobody(world: World) -> str:
    row = dict(world.random.choice(world.of("deliveries", world.anybody())))
    region, name = row["region"], row["subscriber"]
    newest = max(each["sequence"] for each in world.rows["publishes"] if each["region"] == region)
    last = max(each["delivered_at_ns"] for each in world.of("deliveries", name))
    row |= {"sequence": newest + 1, "index": 10**6, "received_at_ns": last, "delivered_at_ns": last}
    world.rows["deliveries"].append(row)
    world.renumber(name)
    # Others of the region have not got it either: it was never published, so nothing is due.
    return BROKEN


def rows_that_are_missing(world: World) -> str:
    mine = world.of("deliveries", world.anybody())
    world.drop("deliveries", world.random.sample(mine, max(1, len(mine) // 3)))
    return UNKNOWN


def the_end_is_missing(world: World) -> str:
    """As files that are missing would have it: the stays tell how many there were."""
    mine = world.of("deliveries", world.anybody())
    world.drop("deliveries", mine[-max(1, int(len(mine) * 0.79)) :])
    return UNKNOWN


def a_kill(world: World) -> str:
    """A server is killed: what came after its last roll is in no file."""
    name = world.anybody()
    mine = world.of("deliveries", name)
    upto = world.random.randint(6, len(mine) - 4)
    world.drop("deliveries", mine[upto:])
    for stay in world.of("stays", name):
        stay |= {"left_at_ns": None, "to_index": None, "revision": 1}
    for connection in world.of("connections", name):
        connection |= {"closed_at_ns": None, "noted_at_ns": mine[upto - 1]["delivered_at_ns"]}
    published = world.of("publishes", name)
    world.drop("publishes", [row for row in published if row["published_at_ns"] > mine[upto - 1]["delivered_at_ns"]])
    return UNKNOWN


def a_recorder_that_dropped(world: World) -> str:
    name = world.anybody()
    mine = world.of("publishes", name)
    if not mine:
        return KEPT
    world.drop("publishes", mine[:1])
    loss = {"recorder": name, "host": "h", "table": "publishes", "reason": "full", "rows": 1}
    world.rows["losses"].append({**loss, "noted_at_ns": BEGAN_NS})
    return UNKNOWN


def a_file_that_is_cut(world: World) -> str:
    world.spoilt.append("publishes")
    return UNKNOWN


def a_row_without_an_event(world: World) -> str:
    world.random.choice(world.rows["deliveries"])["sequence"] = None
    return UNKNOWN


def clocks_that_are_apart(world: World) -> str:
    """A server's clock is two seconds behind, and it comes when a part was published already."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    world.drop("deliveries", mine[:10])
    world.renumber(name)
    for row in (*world.of("deliveries", name), *world.of("stays", name)):
        row["host"] = "another"
    for stay in world.of("stays", name):
        stay["joined_at_ns"] = mine[10]["sent_at_ns"] - 2_000_000_000
    _forget_begins(world, name)
    return KEPT


def _forget_begins(world: World, name: str) -> None:
    for stay in world.of("stays", name):
        stay |= dict.fromkeys(("begin_epoch", "begin_sequence", "since_epoch", "since_sequence"))
    for row in world.of("deliveries", name):
        row["replayed"] = None


def a_clock_minutes_behind(world: World) -> str:
    """A server's clock is ten minutes behind those of the publishers, and its joins seem older than they are."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    world.drop("deliveries", mine[:10])
    world.renumber(name)
    apart = 600 * 10**9
    for row in world.of("deliveries", name):
        row["host"] = "behind"
        for time in ("received_at_ns", "delivered_at_ns"):
            row[time] -= apart
    for stay in world.of("stays", name):
        stay["host"] = "behind"
        stay["joined_at_ns"] = mine[9]["delivered_at_ns"] - apart
        stay["left_at_ns"] = None if stay["left_at_ns"] is None else stay["left_at_ns"] - apart
    _forget_begins(world, name)
    return KEPT


def a_clock_in_the_future(world: World) -> str:
    """A publisher's clock is years ahead."""
    name = world.random.choice(sorted({row["publisher"] for row in world.rows["publishes"]}))
    ahead = 5 * 365 * 86_400 * 10**9
    for row in world.of("publishes", name):
        row["host"] = "ahead"
        row["published_at_ns"] += ahead
        row["acknowledged_at_ns"] += ahead
    for row in world.of("connections", name):
        row["closed_at_ns"] = None if row["closed_at_ns"] is None else row["closed_at_ns"] + ahead
    for row in world.rows["deliveries"]:
        if row["publisher"] == name:
            row["sent_at_ns"] += ahead
    return KEPT


def a_return(world: World) -> str:
    """A server leaves a region, misses what is published there meanwhile, and comes back."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    first, last = sorted(world.random.sample(range(2, len(mine) - 2), 2))
    region = world.random.choice(mine)["region"]
    away = [row for row in mine[first:last] if row["region"] == region]
    [stay, *_] = [row for row in world.of("stays", name) if row["region"] == region]
    again = dict(stay)
    stay |= {"to_index": first, "left_at_ns": mine[first - 1]["delivered_at_ns"]}
    joined = mine[last - 1]["delivered_at_ns"]
    again |= {"stay": 100 + len(world.rows["stays"]), "from_index": last, "asked_at_ns": joined - 1000}
    world.rows["stays"].append(again | {"joined_at_ns": joined})
    world.drop("deliveries", away)
    world.renumber(name)
    return KEPT


def history_that_comes_late(world: World) -> str:
    """A server comes with since=…: what it had missed of a region comes late, beside live events of others."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    region = world.random.choice(mine)["region"]
    upto = world.random.randint(4, len(mine) - 2)
    early = [row for row in mine[:upto] if row["region"] == region]
    if len(early) == upto:
        return KEPT
    for place, row in enumerate([row for row in mine[:upto] if row["region"] != region] + early):
        row["index"] = place
    joined = mine[upto - 1]["delivered_at_ns"]
    for row in early:
        row |= {"replayed": 1, "received_at_ns": joined, "delivered_at_ns": joined + 10}
    for stay in world.of("stays", name):
        if stay["region"] == region and stay["from_index"] == 0:
            stay |= {"from_index": upto - len(early), "asked_at_ns": joined - 1000, "joined_at_ns": joined}
            stay |= {"since_epoch": 1, "since_sequence": early[0]["sequence"] - 1}
    return KEPT


def history_from_nowhere(world: World) -> str:
    """As recorders wrote it before they told where a history was to begin."""
    row = world.random.choice(world.rows["deliveries"])
    row["replayed"] = 1
    for stay in world.of("stays", row["subscriber"]):
        if stay["region"] == row["region"] and "since_epoch" in stay:
            return KEPT
    return UNKNOWN


def _begun_at(world: World, kind: str) -> tuple[list[Row], str]:
    """Have a subscriber begin behind an event of a region, by ``since`` or ``begin``; return what it delivers there."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    region = max({row["region"] for row in mine}, key=lambda each: sum(row["region"] == each for row in mine))
    theirs = [row for row in mine if row["region"] == region]
    place = len(theirs) // 2
    for stay in world.of("stays", name):
        if stay["region"] == region:
            stay |= {f"{kind}_epoch": 1, f"{kind}_sequence": theirs[place]["sequence"]}
            stay["joined_at_ns"] = theirs[place]["delivered_at_ns"]
    if kind == "since":
        for row in theirs[place + 1 :][:2]:
            row["replayed"] = 1
    world.drop("deliveries", theirs[: place + 1])
    return theirs[place + 1 :], name


def a_begin_that_is_told(world: World) -> str:
    _, name = _begun_at(world, world.random.choice(("begin", "since")))
    world.renumber(name)
    return KEPT


def a_begin_that_lacks_the_first(world: World) -> str:
    """As a replay, or a resumed connection, that has lost its oldest events."""
    theirs, name = _begun_at(world, world.random.choice(("begin", "since")))
    world.drop("deliveries", theirs[: world.random.randint(1, 3)])
    world.renumber(name)
    return BROKEN


def events_that_were_had_before(world: World) -> str:
    """A connection goes on behind a position, and is given again what came before that."""
    theirs, name = _begun_at(world, "since")
    again = {**theirs[0], "sequence": theirs[0]["sequence"] - 1, "index": theirs[0]["index"] - 0.5}
    [real] = [row for row in world.rows["publishes"] if all(row[key] == again[key] for key in ("region", "sequence"))]
    world.rows["deliveries"].append(again | {"publisher": real["publisher"], "sent_at_ns": real["published_at_ns"]})
    world.renumber(name)
    return BROKEN


def all_history_that_lacks_the_oldest(world: World) -> str:
    """It had expired, or was lost: nothing says which."""
    _, name = _begun_at(world, "since")
    for stay in world.of("stays", name):
        if "since_epoch" in stay:
            stay |= {"since_epoch": 0, "since_sequence": 0}
    world.renumber(name)
    return UNKNOWN


def all_history_and_nothing_delivered(world: World) -> str:
    theirs, name = _begun_at(world, "since")
    world.drop("deliveries", theirs)
    for stay in world.of("stays", name):
        if "since_epoch" in stay:  # it came when all was over
            stay |= {"since_epoch": 0, "since_sequence": 0, "joined_at_ns": stay["left_at_ns"] - 1000}
    world.renumber(name)
    return UNKNOWN


def a_gap_that_excuses_nothing_else(world: World) -> str:
    """One event was announced as missing, and of what came much later nothing was delivered, without a word."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    region = max({row["region"] for row in mine}, key=lambda each: sum(row["region"] == each for row in mine))
    theirs = [row for row in mine if row["region"] == region]
    gap = {"subscriber": name, "incarnation": 1, "host": "h", "region": region, "epoch": 1, "index": 0}
    numbers = {"first_sequence": theirs[0]["sequence"], "last_sequence": theirs[0]["sequence"]}
    world.rows["gaps"].append({**gap, **numbers, "reason": "test", "announced_at_ns": theirs[0]["delivered_at_ns"]})
    world.drop("deliveries", [theirs[0], *theirs[len(theirs) // 2 :]])
    world.renumber(name)
    return UNKNOWN


def history_that_is_delivered_twice(world: World) -> str:
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    row = mine[len(mine) // 2]
    for stay in world.of("stays", name):
        if stay["region"] == row["region"]:
            stay |= {"since_epoch": 1, "since_sequence": 0}
    world.rows["deliveries"].append({**row, "index": mine[-1]["index"] + 1, "replayed": 1})
    world.renumber(name)
    return BROKEN


def a_stay_in_which_nothing_was_published(world: World) -> str:
    """It was over before the first event: what came later was never due."""
    name = world.anybody()
    if not (stays := world.of("stays", name)):  # another fault has removed them
        return KEPT
    stay = dict(stays[0])
    times = {"asked_at_ns": BEGAN_NS, "joined_at_ns": BEGAN_NS + 1000, "left_at_ns": BEGAN_NS + 10**9}
    places = {"stay": 500, "from_index": 0, "to_index": 0, "begin_epoch": 1, "begin_sequence": 0}
    world.rows["stays"].append(stay | times | places | {"since_epoch": None, "since_sequence": None})
    return KEPT


def an_earlier_connection_that_is_missing(world: World) -> str:
    """It published in it: its files are not here, and those of its next connection are."""
    name = min({row["publisher"] for row in world.rows["deliveries"]})
    theirs = sorted(row["sent_at_ns"] for row in world.rows["deliveries"] if row["publisher"] == name)
    opened = theirs[len(theirs) // 2]
    for connection in world.of("connections", name):
        connection["opened_at_ns"] = opened + 2 * 10**9
    world.drop("publishes", [row for row in world.of("publishes", name) if row["published_at_ns"] < opened])
    return UNKNOWN


def somebody_whom_only_a_tap_saw(world: World) -> str:
    stay = dict(world.random.choice(world.rows["stays"]))
    places = {"from_index": None, "to_index": None, "stay": -1, "since_epoch": None, "since_sequence": None}
    world.rows["stays"].append(stay | places | {"subscriber": "unseen"})
    return UNKNOWN


def times_that_are_zeroed(world: World) -> str:
    world.random.choice(world.rows["deliveries"])["sent_at_ns"] = 0
    return UNKNOWN


def times_that_are_damaged(world: World) -> str:
    """Later than its publisher's next event of the region: only the publisher's own record shows that it is wrong."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    for one, other in pairwise(mine):
        if one["region"] == other["region"] and one["publisher"] == other["publisher"]:
            one["sent_at_ns"] = other["sent_at_ns"] + 1
            return UNKNOWN
    return KEPT


def stays_that_are_missing(world: World) -> str:
    """Without them, what came before a late joiner would be due to it."""
    name = world.anybody()
    world.drop("deliveries", sorted(world.of("deliveries", name), key=lambda row: row["index"])[:10])
    world.renumber(name)
    world.drop("stays", list(world.rows["stays"]))
    return UNKNOWN


def rows_of_a_subscriber_that_are_missing(world: World) -> str:
    name = world.anybody()
    for table in ("connections", "stays"):
        world.drop(table, world.of(table, name))
    return UNKNOWN


def publishes_that_are_missing(world: World) -> str:
    publisher = world.random.choice(world.rows["deliveries"])["publisher"]
    world.drop("publishes", world.of("publishes", publisher))
    return UNKNOWN


def a_file_that_is_missing_by_its_number(world: World) -> str:
    world.first_number = 2
    return UNKNOWN


def a_clock_set_back(world: World) -> str:
    """A game server's clock is set back by two seconds while it publishes and delivers."""
    name = world.random.choice(sorted({row["publisher"] for row in world.rows["publishes"]}))
    mine = [row for row in world.rows["deliveries"] if row["publisher"] == name]
    regions: dict[tuple[str, str], list[Row]] = {}
    for row in mine:
        regions.setdefault((row["subscriber"], row["region"]), []).append(row)
    pair = next((rows for rows in regions.values() if len(rows) > 1 and rows[0]["subscriber"] == name), None)
    if pair is None:
        return KEPT
    since = max(pair, key=lambda row: row["index"])["sent_at_ns"]
    for row in world.rows["deliveries"]:
        late = row["sent_at_ns"] >= since
        if row["subscriber"] == name and late:
            row["received_at_ns"] -= 2 * 10**9
            row["delivered_at_ns"] -= 2 * 10**9
        if row["publisher"] == name and late:
            row["sent_at_ns"] -= 2 * 10**9
    for row in world.of("publishes", name):
        if row["published_at_ns"] >= since:
            row["published_at_ns"] -= 2 * 10**9
            row["acknowledged_at_ns"] -= 2 * 10**9
    return UNKNOWN


def a_gap_without_an_end_and_a_loss_after_it(world: World) -> str:
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    region = max({row["region"] for row in mine}, key=lambda each: sum(row["region"] == each for row in mine))
    theirs = [row for row in mine if row["region"] == region]
    if len(theirs) < 8:
        return KEPT
    announced, lost = theirs[2], theirs[5]
    world.drop("deliveries", [announced, lost])
    world.renumber(name)
    gap = {"subscriber": name, "incarnation": 1, "host": "h", "region": region, "epoch": 1, "index": theirs[3]["index"]}
    numbers = {"first_sequence": announced["sequence"], "last_sequence": 0}
    world.rows["gaps"].append({**gap, **numbers, "reason": "test", "announced_at_ns": announced["delivered_at_ns"]})
    return BROKEN


def a_server_that_starves(world: World) -> str:
    """It stops to receive in the middle, and closes long after."""
    name = world.anybody()
    mine = sorted(world.of("deliveries", name), key=lambda row: row["index"])
    world.drop("deliveries", mine[len(mine) // 2 :])
    world.renumber(name)
    return UNKNOWN


def a_copy_of_a_file(world: World) -> str:
    world.copied.append(world.random.choice(sorted(table for table, rows in world.rows.items() if rows)))
    return KEPT


def files_of_a_publisher_that_are_missing(world: World) -> str:
    name = world.anybody()
    if not world.of("publishes", name):
        return KEPT
    heard = any(row["publisher"] == name and row["subscriber"] != name for row in world.rows["deliveries"])
    for table in ("publishes", "deliveries", "stays", "connections"):
        world.drop(table, world.of(table, name))
    return UNKNOWN if heard else KEPT


def a_server_that_delivers_nothing(world: World) -> str:
    """It is in its regions to the end, and its application gets none of what is published there."""
    name = world.anybody()
    world.drop("deliveries", world.of("deliveries", name))
    world.renumber(name)
    return UNKNOWN


def a_region_that_nobody_delivers(world: World) -> str:
    region = world.random.choice(world.rows["deliveries"])["region"]
    for name in sorted({row["subscriber"] for row in world.rows["deliveries"]}):
        world.drop("deliveries", [row for row in world.of("deliveries", name) if row["region"] == region])
        world.renumber(name)
    return UNKNOWN


def a_file_that_was_saved_again(world: World) -> str:
    """By other hands, so that its bytes are others: its records are the same."""
    world.saved_again = True
    return KEPT


def a_file_with_nulls(world: World) -> str:
    world.nulls = True
    return UNKNOWN


FAULTS: tuple[Callable[[World], str], ...] = (
    *(nothing, a_loss, a_loss_that_is_told, a_repetition, a_swap, an_event_of_nobody, rows_that_are_missing),
    *(
        a_row_without_an_event,
        clocks_that_are_apart,
        the_end_is_missing,
        a_kill,
        a_recorder_that_dropped,
        a_file_that_is_cut,
        files_of_a_publisher_that_are_missing,
    ),
    *(a_clock_minutes_behind, a_clock_in_the_future, a_return, history_that_comes_late, a_copy_of_a_file),
    *(
        stays_that_are_missing,
        rows_of_a_subscriber_that_are_missing,
        publishes_that_are_missing,
        a_file_that_is_missing_by_its_number,
        a_clock_set_back,
        a_gap_without_an_end_and_a_loss_after_it,
        a_server_that_starves,
    ),
    *(
        a_server_that_delivers_nothing,
        a_region_that_nobody_delivers,
        a_file_that_was_saved_again,
        a_file_with_nulls,
    ),
    *(history_from_nowhere, a_begin_that_is_told, a_begin_that_lacks_the_first, events_that_were_had_before),
    *(
        all_history_that_lacks_the_oldest,
        all_history_and_nothing_delivered,
        a_gap_that_excuses_nothing_else,
        history_that_is_delivered_twice,
        a_stay_in_which_nothing_was_published,
        an_earlier_connection_that_is_missing,
        somebody_whom_only_a_tap_saw,
        times_that_are_zeroed,
        times_that_are_damaged,
    ),
)


def write(world: World, directory: Path) -> None:
    """Write the session's files."""
    directory.mkdir(parents=True)
    document = {"schema": SCHEMA_VERSION, "session": directory.name, "began_at_ns": BEGAN_NS, "gamecast": "0"}
    (directory / SESSION_FILE).write_text(json.dumps({**document, "ordering": "acyclic", "url": "memory://drawn"}))
    notes = {FILE_SCHEMA: str(SCHEMA_VERSION), FILE_SESSION: directory.name, FILE_RECORDER: "drawn"}
    for table, rows in world.rows.items():
        if not rows:
            continue
        folder = directory / table / "hour=unknown"
        folder.mkdir(parents=True)
        schema = TABLE_OF[table].arrow_schema(notes)
        whole = [{name: row.get(name) for name in schema.names} for row in rows]
        file = folder / f"drawn-{world.first_number:06}.parquet"
        pq.write_table(pa.Table.from_pylist(whole, schema=schema), file)
        if table in world.spoilt:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        elif table == "deliveries" and world.saved_again:
            pq.write_table(pa.Table.from_pylist(whole, schema=schema), folder / "resaved.parquet", compression="gzip")
        elif table == "deliveries" and world.nulls:
            lax = pa.schema([each.with_nullable(True) for each in schema], metadata=schema.metadata)
            spoilt = [{**whole[-1], "index": None}, {**whole[-1], "region": None}]
            pq.write_table(pa.Table.from_pylist(spoilt, schema=lax), folder / "spoilt-000002.parquet")
        elif table in world.copied:
            shutil.copy(file, folder / "another-000007.parquet")


def judged(spark: SparkSession, world: World, directory: Path) -> Audit:
    write(world, directory)
    return analyse(spark, read_sources(spark, [directory])).audit


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_verdict(spark: SparkSession, tmp_path: Path, fault: Callable[[World], str]) -> None:
    world = drawn(Random(fault.__name__))
    expected = fault(world)
    found = judged(spark, world, tmp_path / "session")
    assert found.verdict == expected, (found.examples, found.unknown)
    assert bool(found.unknown) is (expected == UNKNOWN)


LAST = frozenset((rows_that_are_missing, times_that_are_zeroed, all_history_and_nothing_delivered))


@pytest.mark.parametrize("seed", range(DRAWN_FROM, DRAWN_FROM + DRAWN))
def test_several_faults_are_judged_by_the_gravest(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    world = drawn(random)
    # What others number again, or add, would hide these.
    faults = sorted(random.sample(FAULTS, random.randint(1, 3)), key=LAST.__contains__)
    told = [fault(world) for fault in faults]
    found = judged(spark, world, tmp_path / f"session-{seed}")
    names = [fault.__name__ for fault in faults]
    if UNKNOWN not in told:
        assert found.verdict == (BROKEN if BROKEN in told else KEPT), (seed, names, found.examples, found.unknown)
        assert not found.unknown, (seed, names, found.unknown)
    else:
        # What is broken may be in what is not recorded; but nothing is called broken without a reason.
        assert found.unknown, (seed, names)
        assert found.verdict == UNKNOWN or BROKEN in told, (seed, names, found.examples)


def _rolls(world: World) -> list[tuple[str, str, list[Row]]]:
    """Return (recorder, table, rows) of files, in the order in which recorders write them: each rolls twice."""
    files = []
    for name in sorted({row["name"] for row in world.rows["connections"]}):
        for half in (0, 1):
            for table in ("deliveries", "publishes", "stays", "gaps", "connections"):
                rows = world.of(table, name)
                part = rows[: len(rows) // 2] if not half else rows[len(rows) // 2 :]
                if part:
                    files.append((name, table, part))
    return files


@pytest.mark.parametrize("seed", range(DRAWN_FROM, DRAWN_FROM + DRAWN))
def test_whichever_files_are_missing_nothing_is_called_kept_or_broken_for_that(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(f"missing {seed}")
    world = drawn(random)
    fault = random.choice((nothing, nothing, a_loss, a_repetition, a_begin_that_lacks_the_first))
    told = fault(world)
    files = _rolls(world)
    gone = random.sample(range(len(files)), random.randint(1, 3))
    directory = tmp_path / f"session-{seed}"
    directory.mkdir()
    document = {"schema": SCHEMA_VERSION, "session": directory.name, "began_at_ns": BEGAN_NS, "gamecast": "0"}
    (directory / SESSION_FILE).write_text(json.dumps({**document, "ordering": "acyclic", "url": "memory://drawn"}))
    numbers = dict.fromkeys((recorder for recorder, _, _ in files), 0)
    for place, (recorder, table, rows) in enumerate(files):
        numbers[recorder] += 1
        if place in gone:
            continue
        notes = {FILE_SCHEMA: str(SCHEMA_VERSION), FILE_SESSION: directory.name, FILE_RECORDER: recorder}
        schema = TABLE_OF[table].arrow_schema(notes)
        folder = directory / table / "hour=unknown"
        folder.mkdir(parents=True, exist_ok=True)
        whole = [{name: row.get(name) for name in schema.names} for row in rows]
        file = folder / f"{recorder}-{numbers[recorder]:06}.parquet"
        pq.write_table(pa.Table.from_pylist(whole, schema=schema), file)
    found = analyse(spark, read_sources(spark, [directory])).audit
    missing = [files[place][:2] for place in gone]
    assert found.verdict == UNKNOWN or told == found.verdict == BROKEN, (seed, told, missing, found.examples)


def test_the_command_ends_with_4_and_says_why(tmp_path: Path) -> None:
    world = drawn(Random("command"))
    a_kill(world)
    write(world, tmp_path / "session")
    done = CliRunner().invoke(analyze, [str(tmp_path / "session")])
    assert done.exit_code == CANNOT_TELL, done.output
    assert "It cannot be told whether all promises were kept" in done.output
    assert "its end is not recorded: it was killed, or still runs" in done.output
    assert (tmp_path / "session-report" / "report.html").is_file()
    assert f"The report is {tmp_path / 'session-report' / 'report.html'}" in done.output
