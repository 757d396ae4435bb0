"""The promises through the recorder: what it dropped is said by audit and report, and causal order is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow")
from pyspark.sql import SparkSession

import adapters.presence
import gamecast
import gamecast.client.presence as presence_module
from analytics.jobs.analysis import Analysis, analyse
from analytics.report.report import render
from analytics.session.reading import read_sources
from cli.audit import audit
from cli.convert import convert
from gamecast.testing import memory_url
from launcher.ending import CANNOT_TELL
from tests.events import take
from tests.integration.spark_session import needs_spark
from tests.patience import patience

pytestmark = [needs_spark, pytest.mark.timeout(600)]

BURST = 400


async def record(directory: Path) -> None:
    """Record two servers; of a burst, rows of what was published and delivered are dropped."""
    recording = gamecast.Recording(directory, pending_rows_max=50, roll_s=0.1)
    url = memory_url(nodes=3)
    async with (
        gamecast.connect(url, name="a", record=recording) as a,
        gamecast.connect(url, name="b", record=recording) as b,
    ):

        async def play(events: int) -> None:
            for number in range(events):
                await asyncio.gather(*(client.publish(("forest", "river")[number % 2], number) for client in (a, b)))
                for client in (a, b):
                    await take(client, 2)
                await asyncio.sleep(0.02)

        for client in (a, b):
            await client.subscribe("forest", "river")
        await play(10)
        await asyncio.sleep(0.3)
        sent = [client.publish_async(("forest", "river")[n % 2], n) for n in range(BURST) for client in (a, b)]
        await asyncio.gather(*sent)
        for client in (a, b):
            await take(client, 2 * BURST)
        await asyncio.sleep(0.3)
        await play(10)
    found = a.recording()
    assert found is not None
    assert found.lost_rows["deliveries", "full"] > 0
    assert found.rolled_rows["deliveries"] > 0


def analysed(spark: SparkSession, directory: Path) -> Analysis:
    return analyse(spark, read_sources(spark, [directory]))


def test_rows_that_a_recorder_dropped_are_said_by_report_conversion_and_audit_and_nothing_is_called_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    session, logs = tmp_path / "session", tmp_path / "logs"
    asyncio.run(record(session))
    found = analysed(spark, session)
    dropped = found.unrecorded["deliveries: full"]
    assert dropped > 0
    assert any(f"{dropped:,} of deliveries: full" in note for note in found.notes)
    assert found.as_dict()["unrecorded"] == found.unrecorded
    assert found.audit.verdict == "unknown"
    told = {(each.subscriber, each.reason) for each in found.audit.unknown}
    assert ("", f"recorders dropped {dropped:,} rows of deliveries: full") in told
    for name in "ab":
        assert any(who == name and reason.endswith("deliveries are not recorded") for who, reason in told)
    page = render(found)
    assert "Not recorded completely: " in page
    assert f"recorders dropped {dropped:,} rows of deliveries: full" in page
    assert '<header class="kept"' not in page
    assert "Every promise was kept" not in page

    converted = CliRunner().invoke(convert, [str(session), str(logs), "--to", "log"])
    assert converted.exit_code == 0, converted.output
    assert f"the recorder dropped {dropped:,} rows of deliveries (full)" in converted.output
    audited = CliRunner().invoke(audit, [str(logs)])
    assert f"{dropped:,} indices missing between the lines" in audited.output
    assert "promises are kept" not in audited.output
    assert audited.exit_code == CANNOT_TELL


async def ring(directory: Path) -> None:
    """Record servers around a ring of regions; one publishes to its two in turn, and what is second is caused."""
    url, members = memory_url(nodes=3), {"one": "ab", "watcher": "ab", "other": "bc", "flood": "ca"}
    rounds, flooding = 60, 6
    casts = {name: gamecast.connect(url, name=name, ordering="causal", record=directory) for name in members}
    for name, client in casts.items():
        await client.open()
        await client.subscribe(*members[name])
    sent = []
    for number in range(rounds):
        flood = [casts["flood"].publish_async("a", number) for _ in range(flooding)]
        turn = ("a", "b") if number % 2 else ("b", "a")
        sent += [casts["one"].publish_async(region, number) for region in turn]
        if number % 6 == 5:
            await asyncio.gather(*flood)
    await asyncio.gather(*sent)
    for name, client in casts.items():
        of_region = {"a": rounds * (1 + flooding), "b": rounds, "c": 0}
        await take(client, sum(of_region[region] for region in members[name]))
        await client.close()


def test_a_causal_network_is_recorded_and_judged_causally(spark: SparkSession, tmp_path: Path) -> None:
    session = tmp_path / "session"
    asyncio.run(ring(session))
    found = analysed(spark, session)
    assert found.audit.causality is not None, "the session says that its order is causal"
    assert found.audit.causality.violations == 0
    assert found.audit.fine
    assert found.unrecorded == {}


async def play_with_history(directory: Path) -> None:
    """One has a and b; the other has a, and comes to b with its history, beside live events."""
    url = memory_url(nodes=2)
    async with (
        gamecast.connect(url, name="s1", record=directory) as one,
        gamecast.connect(url, name="s2", record=directory) as other,
    ):
        await one.subscribe("a", "b")
        await other.subscribe("a")
        for number in range(30):
            await one.publish("ab"[number % 2], number)
        await take(one, 30)
        await take(other, 15)
        await asyncio.sleep(0.2)
        await other.subscribe("b", since=0)
        for number in range(20):
            await one.publish("ab"[number % 2], number)
        await take(one, 20)
        assert sum(event.replayed for event in await take(other, 35)) >= 15


def test_what_comes_from_history_is_late_on_purpose_and_breaks_no_promise(spark: SparkSession, tmp_path: Path) -> None:
    session, logs = tmp_path / "session", tmp_path / "logs"
    asyncio.run(play_with_history(session))
    found = analysed(spark, session)
    assert (found.audit.verdict, found.audit.order.inversions, found.audit.losses.lost) == ("kept", 0, 0)
    assert found.deliveries == 100
    [delay] = [row["delay_ms"] for row in found.tables["subscriber_delays"] if row["subscriber"] == "s2"]
    assert delay < 150, "what was asked for later does not count as delayed"
    assert CliRunner().invoke(convert, [str(session), str(logs), "--to", "log"]).exit_code == 0
    audited = CliRunner().invoke(audit, [str(logs), "--json"])
    told = orjson.loads(audited.output)
    assert (told["verdict"], told["inversions"], told["lost"], told["deliveries"]) == ("unknown", 0, 0, 100), (
        audited.output
    )
    # Judged as if it were live, it would be out of order.
    for log in logs.iterdir():
        log.write_text(log.read_text().replace('"replayed":1', '"seen":1'))
    assert orjson.loads(CliRunner().invoke(audit, [str(logs), "--json"]).output)["inversions"] > 0


def test_an_event_of_several_regions_is_recorded_and_judged_in_each_of_them(tmp_path: Path) -> None:
    session, logs = tmp_path / "session", tmp_path / "logs"

    async def play() -> None:
        url = memory_url(nodes=3)
        async with (
            gamecast.connect(url, name="a", record=str(session)) as a,
            gamecast.connect(url, name="b", record=str(session)) as b,
        ):
            await a.subscribe("forest", "river")
            await b.subscribe("river", "hill")
            for number in range(30):
                await a.publish(("forest", "river"), number)
                await b.publish(("hill", "forest") if number % 2 else "river", number)
            await take(a, 60)
            await take(b, 60)

    asyncio.run(play())
    done = CliRunner().invoke(convert, [str(session), str(logs), "--to", "log"])
    assert done.exit_code == 0, done.output
    judged = CliRunner().invoke(audit, [str(logs), "--json"])
    assert judged.exit_code == 0, judged.output
    verdict = orjson.loads(judged.output)
    # a has 30 in forest and river, 15 in river, 15 in forest; b has 30 and 15 in river, 15 in hill
    assert (verdict["deliveries"], verdict["lost"], verdict["duplicated"]) == (150, 0, 0)


async def play_with_a_leave_by_others(directory: Path) -> None:
    """One is not heard of any more, and the others publish its leave; it closes in order all the same."""
    url = memory_url(nodes=2)
    casts = [gamecast.connect(url, name=name, record=directory) for name in "abc"]
    for client in casts:
        await client.open()
        await client.subscribe("forest", presence={"nick": client.name})
    for number in range(10):
        for client in casts:
            await client.publish("forest", number)
    quiet, other, third = casts
    assert quiet._presences is not None
    for task in quiet._presences._tasks:
        task.cancel()
    async with patience(20):
        while other.present("forest").keys() != {"a", "b", "c"}:
            await other.fetch(timeout=0.05)
        while "a" in other.present("forest"):
            await other.fetch(timeout=0.05)
    for client in (other, third, quiet):
        while await client.fetch(timeout=0.3):
            pass
    for client in casts:
        await client.close()


def test_a_leave_that_others_published_is_unexpected_neither_to_analyze_nor_to_audit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (adapters.presence, presence_module):
        monkeypatch.setattr(module, "PRESENT_MS", 600)
    monkeypatch.setattr(presence_module, "BEAT_S", 0.15)
    session, logs, back = tmp_path / "session", tmp_path / "logs", tmp_path / "back"
    asyncio.run(play_with_a_leave_by_others(session))
    found = analysed(spark, session)
    assert (found.audit.verdict, found.audit.losses.unexpected) == ("kept", 0), found.audit.unknown
    assert CliRunner().invoke(convert, [str(session), str(logs), "--to", "log"]).exit_code == 0
    told = orjson.loads(CliRunner().invoke(audit, [str(logs), "--json"]).output)
    assert (told["verdict"], told["unexpected"], told["lost"]) == ("kept", 0, 0), told["examples"]
    published = ["--published", f"{logs}/published.ndjson"]
    assert CliRunner().invoke(convert, [str(logs), str(back), "--to", "session", *published]).exit_code == 0
    again = analysed(spark, back)
    assert (again.audit.losses.unexpected, again.audit.losses.lost) == (0, 0)
