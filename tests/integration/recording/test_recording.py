"""Recording for real: embedded Redis servers, killed processes, a disk with a limit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("pyarrow")
import pyarrow.dataset as pd
import pyarrow.parquet as pq

import gamecast
from adapters.redis.control import RedisControl
from analytics.session.clocks import estimate_offsets
from analytics.session.manifest import begin_session, read_session
from analytics.session.runs import events_of
from analytics.session.schema import DELIVERIES, PROBES, TABLE_OF
from gamecast.recording.outside import OutsideTap
from gamecast.recording.reading import SessionReader
from gamecast.recording.recorder import open_recorder
from laboratory.bench.peers.path import PathPeer
from laboratory.bench.workload import World, ring
from tests.patience import patience, scaled, until

PLAYER = Path(__file__).parents[1] / "recording_player.py"
ROOT = Path(__file__).parents[3]


def rows(directory: Path, table: str) -> list[dict[str, Any]]:
    reader = SessionReader.open(directory)
    found = [row for batch in reader.rows(TABLE_OF[table]) for row in batch.to_pylist()]
    assert reader.quarantined == {}
    return found


def player(directory: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PLAYER, directory, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


async def take(client: gamecast.Client, events: int) -> list[gamecast.Event]:
    taken: list[gamecast.Event] = []
    async with patience(30):
        while len(taken) < events:
            event = await anext(client)
            assert isinstance(event, gamecast.Event)
            taken.append(event)
    return taken


async def test_what_is_delivered_and_published_is_what_is_recorded(tmp_path: Path) -> None:
    session = tmp_path / "session"
    async with (
        gamecast.connect("embedded://?nodes=2", name="a", record=session) as a,
        gamecast.connect(a.url, name="b", record=session) as b,
    ):
        await a.subscribe("forest", "river")
        await b.subscribe("forest", "river")
        receipts = await asyncio.gather(
            *(client.publish_async(("forest", "river")[n % 2], "x" * n) for n in range(60) for client in (a, b))
        )
        of_a, of_b = await take(a, 120), await take(b, 120)
        await b.unsubscribe("river")
        plan = await a.plan()
    assert plan is not None
    for name, taken in (("a", of_a), ("b", of_b)):
        recorded = sorted((r for r in rows(session, "deliveries") if r["subscriber"] == name), key=lambda r: r["index"])
        assert [r["index"] for r in recorded] == list(range(120))
        found = [(r["region"], r["publisher"], r["epoch"], r["sequence"], r["sent_at_ns"]) for r in recorded]
        assert found == [(e.region, e.sender, e.epoch, e.sequence, e.sent_at_ns) for e in taken]
        assert [r["delivered_at_ns"] for r in recorded] == [e.delivered_at_ns for e in taken]
        assert all(r["sent_at_ns"] <= r["received_at_ns"] <= r["delivered_at_ns"] for r in recorded)
    published = rows(session, "publishes")
    assert sorted((r["region"], r["epoch"], r["sequence"]) for r in published) == sorted(map(tuple, receipts))
    assert sorted(r["bytes"] for r in published) == sorted(n + 2 for n in range(60) for _ in "ab")
    assert {r["outcome"] for r in published} == {"acknowledged"}
    frames = rows(session, "frames")
    assert sum(r["events"] for r in frames) == 120
    # Regions that end at one node have the order of its own numbers.
    assert plan.atoms == ()
    [numbers] = [[r["stamps"] for r in sorted(frames, key=lambda r: r["stamps"][0]["number"])]]
    assert all([stamp["atom"] for stamp in stamps] == [0] for stamps in numbers)
    assert len({stamps[0]["number"] for stamps in numbers}) == len({(r["region"], r["sequence"]) for r in frames})
    last = {(r["subscriber"], r["region"]): r for r in sorted(rows(session, "stays"), key=lambda r: r["revision"])}
    assert len(last) == 4
    assert all(r["asked_at_ns"] <= r["joined_at_ns"] <= r["left_at_ns"] for r in last.values())
    assert last["b", "river"]["to_index"] == 120
    first = {(r["subscriber"], r["region"]): (r["epoch"], r["sequence"]) for r in reversed(rows(session, "deliveries"))}
    begins = {key: (r["begin_epoch"], r["begin_sequence"] + 1) for key, r in last.items()}
    assert all(begins[key] <= position for key, position in first.items())
    assert {(r["since_epoch"], r["since_sequence"]) for r in last.values()} == {(None, None)}
    assert {r["epoch"] for r in rows(session, "epochs")} >= {plan.epoch}
    closed = {r["name"]: r["closed_at_ns"] for r in rows(session, "connections")}
    assert closed.keys() == {"a", "b"}
    assert None not in closed.values()
    assert read_session(session).url == a._network.url


async def test_plans_are_recorded_without_passwords(tmp_path: Path) -> None:
    from sequencing.plan import Plan

    recorder = open_recorder(
        gamecast.Recording(tmp_path / "s"), version="1", ordering="acyclic", url="redis://:secret@host"
    )
    recorder.planned(Plan(1, 1, "acyclic", {"n1": "redis://me:secret@there:1"}, {"forest": ("n1",)}, ()))
    recorder.release()
    everything = b"".join(file.read_bytes() for file in (tmp_path / "s").rglob("*") if file.is_file())
    assert b"secret" not in everything
    (row,) = rows(tmp_path / "s", "epochs")
    assert orjson.loads(row["plan"])["regions"] == {"forest": {"path": ["n1"]}}
    assert "secret" not in row["plan"]


def test_kill_9_loses_nothing_that_was_reported_as_rolled(tmp_path: Path) -> None:
    session = tmp_path / "session"
    rolled: list[Path] = []
    with player(session, 0.3) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rolled.append(Path(line.split()[1]))
            if sum("deliveries" in file.parts for file in rolled) == 3:
                break
        process.send_signal(signal.SIGKILL)
    counted = 0
    for file in rolled:
        counted += events_of(pq.read_table(file), DELIVERIES) if "deliveries" in file.parts else 0
    found = rows(session, "deliveries")  # and every visible file can be read
    assert len(found) >= counted > 0
    assert sorted(r["index"] for r in found) == list(range(len(found)))
    received = {(r["region"], r["epoch"], r["sequence"]) for r in rows(session, "receives")}
    assert received, "the tables are rolled together"
    (connection,) = {
        r["name"]: r for r in sorted(rows(session, "connections"), key=lambda r: r["noted_at_ns"])
    }.values()
    assert connection["closed_at_ns"] is None
    # Readers that know nothing of us leave out what was being written.
    seen = pd.dataset(session / "deliveries", partitioning="hive").to_table()
    assert events_of(seen, DELIVERIES) == len(found)


def test_a_full_disk_never_stops_the_game_and_what_it_cost_is_counted(tmp_path: Path) -> None:
    with player(tmp_path / "session", 60, 20_000, 16_384) as process:
        output = process.communicate(timeout=scaled(60))[0].splitlines()
    assert process.returncode == 0
    lost = {line.split()[1]: int(line.split()[3]) for line in output if line.startswith("lost")}
    (recorded,) = (int(line.split()[1]) for line in output if line.startswith("rows"))
    assert lost["deliveries"] == 20_000
    assert recorded == 0
    assert len(rows(tmp_path / "session", "stays")) > 0  # what fitted is there


def test_two_processes_record_into_one_session(tmp_path: Path) -> None:
    session = tmp_path / "session"
    begin_session(session, version="1", ordering="acyclic", url="")  # of a network that both could reach
    recorders: Sequence[Any] = [
        open_recorder(gamecast.Recording(session), version="1", ordering="acyclic", url="") for _ in range(2)
    ]
    assert recorders[0] is recorders[1], "one process has one recorder"
    code = (
        "import sys, gamecast; from gamecast.recording.recorder import open_recorder\n"
        "r = open_recorder(gamecast.Recording(sys.argv[1]), version='1', ordering='acyclic', url='')\n"
        "r.add('probes', {name: 1 if name.endswith('_ns') else 'x' for name in sys.argv[2].split()})\n"
        "r.release()"
    )
    command = [sys.executable, "-c", code, str(session), " ".join(PROBES.names)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    recorders[0].add("probes", {name: 2 if name.endswith("_ns") else "y" for name in PROBES.names})
    for recorder in recorders:
        recorder.release()
    assert sorted(r["sent_at_ns"] for r in rows(session, "probes")) == [1, 2]


async def test_an_opening_that_is_cancelled_leaves_no_recorder_that_later_recordings_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_opening, may_open = threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        is_opening.set()
        may_open.wait(10)
        return open_recorder(*arguments, **options)

    async with gamecast.connect("embedded://", name="first") as first:
        monkeypatch.setattr("gamecast.recording.attached.open_recorder", slow)
        opening = asyncio.create_task(gamecast.connect(first.url, name="a", record=tmp_path / "s").open())
        await until(is_opening.is_set)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        may_open.set()
        async with gamecast.connect(first.url, name="b", record=tmp_path / "s") as b:
            await b.publish("forest", 1)
    found = rows(tmp_path / "s", "publishes")
    assert [row["region"] for row in found] == ["forest"]
    assert not [thread for thread in threading.enumerate() if thread.name == "gamecast recorder"]


async def test_a_private_network_is_not_recorded_into_another_ones_session(tmp_path: Path) -> None:
    async with gamecast.connect("memory://one", name="a", record=tmp_path / "s"):
        pass
    with pytest.raises(gamecast.UsageError, match="another network"):
        async with gamecast.connect("memory://one", name="a", record=tmp_path / "s"):
            pass
    async with gamecast.connect("memory://one", name="a"):  # and nothing of it is left open
        pass


@pytest.mark.parametrize("what", ["a file", "other things"])
async def test_a_directory_that_cannot_be_recorded_into_is_said_at_once(tmp_path: Path, what: str) -> None:
    if what == "a file":
        (tmp_path / "s").write_text("")
    else:
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "holiday.jpg").write_text("")
    with pytest.raises(gamecast.UsageError, match=str(tmp_path / "s")):
        async with gamecast.connect("memory://refused", record=tmp_path / "s"):
            pass
    assert not any(thread.name == "gamecast recorder" for thread in __import__("threading").enumerate())


async def test_a_recorder_that_cannot_follow_drops_and_says_so_and_the_game_goes_on(tmp_path: Path) -> None:
    record = gamecast.Recording(tmp_path / "s", pending_rows_max=50)
    async with gamecast.connect("memory://slow", name="a", record=record) as client:
        await client.subscribe("forest")
        futures = [client.publish_async("forest", n) for n in range(2_000)]
        events = await take(client, 2_000)
        await asyncio.gather(*futures)
    found = client.recording()
    assert [event.payload for event in events] == list(range(2_000))
    assert found is not None
    recorded, lost = found.rolled_rows.get("deliveries", 0), found.lost_rows["deliveries", "full"]
    assert recorded + lost == 2_000
    assert {(r["table"], r["reason"]): r["rows"] for r in rows(tmp_path / "s", "losses")}["deliveries", "full"] == lost


async def test_a_clock_that_steps_back_leaves_the_order_and_files_by_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, back = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: real() - back)
    async with gamecast.connect("memory://steps", name="a", record=tmp_path / "s") as client:
        await client.subscribe("forest")
        await client.publish("forest", 1)
        await take(client, 1)
        back = 7_200_000_000_000
        await client.publish("forest", 2)
        await take(client, 1)
    found = sorted(rows(tmp_path / "s", "deliveries"), key=lambda r: r["index"])
    assert [r["index"] for r in found] == [0, 1]
    assert found[0]["delivered_at_ns"] > found[1]["delivered_at_ns"]
    assert len({file.parent.name for file in (tmp_path / "s" / "deliveries").rglob("*.parquet")}) == 2


async def tapped(world: World, url: str, directory: Path) -> tuple[OutsideTap, list[gamecast.Receipt]]:
    """Publish 60 events one by one in a network of paths, beside a tap."""
    control = RedisControl(url)
    record = gamecast.Recording(directory, host="here")
    recorder = open_recorder(record, version="1", ordering="acyclic", url=url)
    async with gamecast.connect(url, name=world.subscribers[0]) as client:
        regions = [world.regions[at] for at in world.members[0]]
        await client.subscribe(*regions)
        before = await control.newest()
        tap = OutsideTap(recorder, url)
        await tap.start()
        receipts = [await client.publish(regions[n % 3], n) for n in range(60)]
        await take(client, 60)
        await until(lambda: tap.frames >= 60)
        await tap.close()
        recorder.release()
        assert await control.newest() == before
    await control.close()
    return tap, receipts


def test_a_tap_from_outside_sees_every_frame_at_every_node_and_changes_nothing(tmp_path: Path) -> None:
    world = ring(4)
    with PathPeer("3 nodes", 3).site(world) as site:
        tap, receipts = asyncio.run(tapped(world, site.url, tmp_path / "s"))
    frames = rows(tmp_path / "s", "frames")
    assert sorted((r["region"], r["epoch"], r["sequence"]) for r in frames) == sorted(map(tuple, receipts))
    assert all(r["first_sent_at_ns"] < r["noted_at_ns"] for r in frames)
    passed: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows(tmp_path / "s", "stamps"):
        passed.setdefault((row["region"], row["epoch"], row["sequence"]), {})[row["hop"]] = row
        assert row["host"] == "here"
        assert row["hops"] == 3
        assert row["node"] == f"n{row['hop'] + 1}"
        assert row["not_before_ns"] is None or row["not_before_ns"] < row["stamped_at_ns"]
    unread = sum(r["rows"] for r in rows(tmp_path / "s", "losses") if r["table"] == "stamps")
    assert unread == tap.missed
    place = {(r.region, r.epoch, r.sequence): number for number, r in enumerate(receipts, start=1)}
    # What links brought and dropped again behind the last that was read there, nobody knows of.
    known = sum(max((place[event] for event, hops in passed.items() if hop in hops), default=0) for hop in (0, 1, 2))
    assert sum(map(len, passed.values())) + unread >= known > 60
    whole = [hops for hops in passed.values() if len(hops) == 3]
    assert whole
    # A busy tap may read a later node first; what each says of when it was stamped still fits.
    for hops in whole:
        for before, after in ((0, 1), (1, 2)):
            assert (hops[before]["not_before_ns"] or 0) <= hops[after]["stamped_at_ns"]
    asked = {r["target"] for r in rows(tmp_path / "s", "probes") if r["kind"] == "node"}
    assert asked == {"n1", "n2", "n3"}


async def test_a_tap_ends_while_the_network_is_busy_without_a_failure(tmp_path: Path) -> None:
    async with gamecast.connect("embedded://", name="busy") as client:
        await client.subscribe("forest")
        recorder = open_recorder(gamecast.Recording(tmp_path / "s"), version="1", ordering="acyclic", url=client.url)
        tap = OutsideTap(recorder, client.url)
        await tap.start()
        ended = asyncio.Event()

        async def publish() -> None:
            while not ended.is_set():
                await asyncio.gather(*(client.publish("forest", number) for number in range(5)))

        async def read() -> None:
            async for _ in client:
                pass

        working = [asyncio.create_task(publish()), asyncio.create_task(read())]
        await until(lambda: tap.frames >= 60)
        await tap.close()
        ended.set()
        await working[0]
        working[1].cancel()
        recorder.release()
    assert tap.failure is None


async def test_recording_servers_probe_each_other_and_their_one_clock_is_found_to_be_one(tmp_path: Path) -> None:
    async with gamecast.connect("embedded://", name="first") as first:
        # Two hosts by name, one clock in truth.
        here, there = (
            gamecast.Recording(tmp_path / name, host=name, probe_host="127.0.0.1", probe_s=0.05) for name in ("x", "y")
        )
        async with (
            gamecast.connect(first.url, name="a", record=here) as a,
            gamecast.connect(first.url, name="b", record=there) as b,
        ):
            ours = [client._recorder.prober for client in (a, b) if client._recorder is not None]
            assert len(ours) == 2
            await until(lambda: all(prober is not None and prober.returned >= 20 for prober in ours))
        assert await first._network.probe_addresses() == {}  # taken back
    probes = rows(tmp_path / "x", "probes") + rows(tmp_path / "y", "probes")
    assert {(r["origin"], r["target"]) for r in probes} == {("a", "b"), ("b", "a")}
    names = ("origin_host", "target_host", "sent_at_ns", "reached_at_ns", "answered_at_ns", "returned_at_ns")
    report = estimate_offsets(tuple(r[name] for name in names) for r in probes)
    (offset,) = report.offsets
    assert (offset.origin, offset.target, report.steps, report.discarded) == ("x", "y", 0, 0)
    assert abs(offset.offset_ns) <= offset.uncertainty_ns
