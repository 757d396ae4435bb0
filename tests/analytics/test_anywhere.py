"""Sessions wherever they lie: by URL, in a real S3 server, and in very many files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq
from click.testing import CliRunner
from pyarrow import fs
from pyspark.sql import SparkSession

from analytics.jobs.analysis import analyse
from analytics.session import reading
from analytics.session.compaction import compact_session
from analytics.session.reading import Sources, read_sources
from analytics.session.storage import StorageUnavailable, stored
from analytics.session.synthetic import World, write_session
from cli.analyze import analyze
from cli.compact import compact
from sequencing.errors import InvalidInput
from tests.integration.spark_session import needs_spark
from tests.patience import scaled

pytestmark = [needs_spark, pytest.mark.timeout(600)]
WORLD = World(subscribers=6, regions=4, regions_each=2, seed=5)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("anywhere") / "night one"
    return write_session(directory, WORLD, deliveries=900, faults=["loss"], deliveries_a_file=300).directory


@pytest.fixture(scope="module")
def s3(session: Path) -> Iterator[str]:
    """The URL of a bucket that has the session, in an S3 server of its own."""
    pytest.importorskip("moto.server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
            patched.setenv(f"AWS_{name}", value)
        try:
            until = time.monotonic() + scaled(60)
            while True:
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert time.monotonic() < until
                assert server.poll() is None
                time.sleep(0.1)
            system = fs.S3FileSystem(endpoint_override=f"127.0.0.1:{port}", scheme="http", allow_bucket_creation=True)
            system.create_dir("sessions")
            fs.copy_files(str(session), "sessions/night one", destination_filesystem=system)
            yield "sessions/night one"
        finally:
            server.terminate()
            server.wait(timeout=scaled(30))


def rows_of(sources: Sources) -> dict[str, list[str]]:
    """Return table → its rows: what figures are made of."""
    return {table: sorted(map(repr, sources[table].collect())) for table in sources.rows}


def figures(spark: SparkSession, *names: str | Path) -> dict[str, Any]:
    found = analyse(spark, read_sources(spark, names)).as_dict()
    found.pop("quarantine")
    return found


@pytest.fixture(scope="module")
def here(spark: SparkSession, session: Path) -> dict[str, list[str]]:
    """The rows of the session on this machine."""
    return rows_of(read_sources(spark, [session]))


def spoil(file: Path) -> None:
    """Damage the rows of a file, and leave its footer."""
    content = bytearray(file.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    for place in range(4, len(content) - 8 - footer, 7):
        content[place] ^= 0x5A
    file.write_bytes(content)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_session_in_an_object_store_gives_the_rows_of_its_copy_here(
    spark: SparkSession, here: dict[str, list[str]], s3: str, scheme: str
) -> None:
    sources = read_sources(spark, [f"{scheme}://{s3}"])
    assert all(file.is_local for files in sources.files.values() for file in files), "this Spark has no connector"
    assert rows_of(sources) == here
    assert len(here["deliveries"]) > 800


def test_a_file_url_is_the_path_in_it(session: Path) -> None:
    assert stored(f"file://{session}") == stored(f"file:{session}") == stored(session)
    assert stored(session).name == str(session)


def test_what_is_not_there_is_said_before_spark_starts(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (f"s3://{s3}/nothing", "s3a://no-such-bucket/x", "file:///no/such/place", "nowhere"):
        said = CliRunner().invoke(analyze, [name])
        assert isinstance(said.exception, InvalidInput), said.output
        assert str(said.exception).endswith("does not exist")
    with pytest.raises(InvalidInput, match="foo://"):
        stored("foo://host/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailable, match=r"s3://sessions/x cannot be listed"):
        stored("s3://sessions/x")


def test_a_copy_under_another_name_is_put_aside_and_each_file_is_hashed_once(
    spark: SparkSession, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from analytics.session import finding

    hashed: list[str] = []
    digest = finding.Finding._digest

    def counted(self: finding.Finding, file: Any) -> bytes:
        if file.name not in self._digests:
            hashed.append(file.name)
        return digest(self, file)

    monkeypatch.setattr(finding.Finding, "_digest", counted)
    read_sources(spark, [session])
    assert not hashed, "no two files look alike"
    copied = tmp_path / "copied"
    shutil.copytree(session, copied)
    [first, *_] = sorted((copied / "deliveries").rglob("*.parquet"))
    for number in range(4):
        shutil.copy(first, first.with_name(f"again-{number}.parquet"))
    found = read_sources(spark, [copied])
    assert [(each.reason, each.count) for each in found.quarantine.entries] == [
        ("the same content as another file, again-0.parquet", 4)
    ]
    assert len(hashed) == len(set(hashed)) == 5


@pytest.mark.parametrize("who", ["driver", "spark"])
def test_damage_inside_a_table_of_any_kind_is_found(
    spark: SparkSession, session: Path, tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if who == "spark":  # as for tables that are not little
        monkeypatch.setattr(reading, "LITTLE_BYTES", 0)
    copied = tmp_path / "copied"
    shutil.copytree(session, copied)
    [file, *_] = sorted((copied / "publishes").rglob("*.parquet"))
    spoil(file)
    found = read_sources(spark, [copied])
    assert [(each.reason, each.lacks) for each in found.quarantine.entries] == [("damaged inside", True)]


def test_a_compacted_session_gives_the_same_figures_from_few_files(
    spark: SparkSession, session: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(session, copied)
    [first, second, *_] = sorted((copied / "deliveries").rglob("*.parquet"))
    shutil.copy(first, first.with_name("again.parquet"))
    (first.parent / ".r-000001.parquet.partial").write_bytes(b"unfinished")
    (first.parent / "spoilt.parquet").write_bytes(second.read_bytes()[:-100])
    out = tmp_path / "compact"
    (tmp_path / ".compact.partial").mkdir()
    (tmp_path / ".compact.partial" / "left-by-a-killed-one").write_text("")

    said = CliRunner().invoke(compact, [str(copied), str(out)])
    assert said.exit_code == 0, said.output
    assert "left out:" in said.output
    before, after = figures(spark, copied), figures(spark, out)
    assert after.pop("quarantined") == 1, "the spoilt file, as before; the copy is left out"
    assert before.pop("quarantined") == 2
    assert before["verdict"] == after["verdict"]
    assert {each["reason"].partition("(")[0] for each in before.pop("unknown")} == {
        each["reason"].partition("(")[0] for each in after.pop("unknown")
    }
    told = [[(each["promise"], each["verdict"]) for each in each_of.pop("promises")] for each_of in (before, after)]
    assert told[0] == told[1]
    assert before == after
    assert len(list((out / "deliveries").rglob("compacted-*.parquet"))) == 1
    assert not list(tmp_path.glob(".*"))

    with pytest.raises(InvalidInput, match="is not empty"):
        compact_session(stored(copied), out)
    with pytest.raises(InvalidInput, match="is not a recorded session"):
        compact_session(stored(tmp_path / "nothing"), tmp_path / "new")


def test_very_many_small_files_are_put_together_before_spark_reads_them(
    spark: SparkSession, session: Path, here: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SMALL_FILES", 2)
    copied = tmp_path / "copied"
    shutil.copytree(session, copied)
    found = read_sources(spark, [copied])
    assert {len(files) for files in found.files.values()} == {1}
    rows = found.rows["deliveries"]
    assert rows_of(found) == here
    [file, *_] = sorted((copied / "deliveries").rglob("*.parquet"))
    events = pq.read_metadata(file).num_rows
    spoil(file)
    found = read_sources(spark, [copied])
    assert [(each.reason, each.lacks) for each in found.quarantine.entries] == [("damaged inside", True)]
    assert found.rows["deliveries"] == rows - events


def test_names_that_are_patterns_are_taken_as_they_are(
    spark: SparkSession, session: Path, here: dict[str, list[str]], tmp_path: Path
) -> None:
    odd = tmp_path / "n*ght [eu] {a,b}?"
    shutil.copytree(session, odd)
    (tmp_path / "n:ght\n").mkdir()
    assert rows_of(read_sources(spark, [odd])) == here
    assert stored(f"file://localhost{session}").name == str(session)
    assert stored(session.as_uri().replace(" ", "%20")).name == str(session)


def test_a_session_and_its_compacted_copy_are_not_analyzed_together(
    spark: SparkSession, session: Path, tmp_path: Path
) -> None:
    shutil.copytree(session, tmp_path / "session")
    compact_session(stored(session), tmp_path / "compacted")
    with pytest.raises(InvalidInput, match="is the compacted copy of"):
        read_sources(spark, [tmp_path])
    assert read_sources(spark, [tmp_path / "compacted"]).rows


def test_keys_that_lead_out_of_a_session_are_left_alone(s3: str, tmp_path: Path) -> None:
    place = stored(f"s3://{s3}")
    evil = "sessions/evil"
    fs.copy_files(place.place, evil, source_filesystem=place.system, destination_filesystem=place.system)
    boto3 = pytest.importorskip("boto3")
    store = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    store.put_object(Bucket="sessions", Key="evil/deliveries/../../pwned.txt", Body=b"x")
    store.put_object(Bucket="sessions", Key="pwned.txt", Body=b"x")
    made = compact_session(stored(f"s3://{evil}"), tmp_path / "out" / "compact")
    assert made.rows
    assert [file for file in tmp_path.rglob("*") if "pwned" in file.name] == []
    assert "the name leads out of the folder" in made.left_out.values()


def test_links_and_fifos_in_a_session_change_nothing_but_what_can_be_told(
    spark: SparkSession, session: Path, here: dict[str, list[str]], tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    shutil.copytree(session, hostile)
    (hostile / "deliveries" / "loop").symlink_to("..")
    (hostile / "deliveries" / "x-000001.parquet").symlink_to("/etc/passwd")
    (hostile / "deliveries" / "hour=2026-01-01T00").symlink_to(next((session / "deliveries").iterdir()))
    os.mkfifo(hostile / "deliveries" / "fifo.parquet")
    (tmp_path / "latest").symlink_to(hostile)
    sources = read_sources(spark, [tmp_path / "latest"])
    assert rows_of(sources) == here
    found = {entry.reason: (entry.count, entry.lacks) for entry in sources.quarantine.entries}
    assert found == {
        "a symbolic link: only regular files are read": (3, True),
        "a FIFO: only regular files are read": (1, True),
    }


def test_a_log_with_lines_that_cannot_be_used_cannot_be_called_kept(spark: SparkSession, tmp_path: Path) -> None:
    line = '{{"subscriber": "s1", "index": {0}, "event": "e{0}", "region": "r", "sender": "s2", "replayed": {1}}}'
    good = [line.format(number, "true" if number < 2 else "false") for number in range(5)]
    for name, lines, verdict in (
        ("good", good, "kept"),
        ("cut", [*good[:-1], good[-1][:20]], "unknown"),
        ("float", [*good, good[0].replace('"index": 0', '"index": 0.5')], "unknown"),
    ):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        sources = read_sources(spark, [file])
        assert any(each.lacks for each in sources.quarantine.entries) is (verdict == "unknown"), name
        if name != "float":  # judged as the one that was cut: by what it lacks
            found = analyse(spark, sources)
            # Nor can the one that is good: what was published is not known.
            assert found.audit.verdict == "unknown", (name, found.audit.unknown, found.audit.examples)
            assert (len(found.audit.unknown) == 1) is (verdict == "kept")
