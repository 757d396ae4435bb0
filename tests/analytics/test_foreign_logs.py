"""Logs of other systems, with what was published beside them: `audit` and `analyze` say the same of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from click.testing import CliRunner

from cli.main import cli
from launcher.ending import BROKEN, CANNOT_TELL, DONE
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(600)]

EVENTS = [f"e{number}" for number in range(12)]


def call(*words: str | Path, status: int) -> Any:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done


def written(directory: Path, delivered: dict[str, list[str]], published: list[str]) -> tuple[Path, Path]:
    logs, beside = directory / "logs", directory / "published.jsonl"
    logs.mkdir(parents=True)
    for name, events in delivered.items():
        lines = (
            {"subscriber": name, "index": index, "event": event, "region": "forest", "sender": "s"}
            for index, event in enumerate(events)
        )
        (logs / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    beside.write_text("".join(json.dumps({"event": event, "region": "forest"}) + "\n" for event in published))
    return logs, beside


@pytest.mark.parametrize(
    ("delivered", "published", "lost", "unexpected"),
    [
        ({"a": EVENTS, "b": EVENTS}, EVENTS, 0, 0),
        ({"a": EVENTS, "b": EVENTS[:5] + EVENTS[6:]}, EVENTS, 1, 0),
        ({"a": EVENTS[:10], "b": EVENTS[:10]}, EVENTS, 4, 0),
        ({"a": EVENTS, "b": EVENTS}, EVENTS[1:], 0, 1),
    ],
    ids=["all", "one lost", "what nobody got", "of nobody"],
)
def test_audit_and_analyze_say_the_same(
    tmp_path: Path, delivered: dict[str, list[str]], published: list[str], lost: int, unexpected: int
) -> None:
    logs, beside = written(tmp_path, delivered, published)
    status = BROKEN if lost or unexpected else DONE
    told = json.loads(call("audit", logs, "--published", beside, "--json", status=status).stdout)
    assert told["lost"] == lost
    call("convert", logs, tmp_path / "session", "--to", "session", "--published", beside, status=DONE)
    figures = json.loads(call("analyze", tmp_path / "session", "--json", status=status).stdout)
    assert (figures["order"]["lost"], figures["order"]["unexpected"]) == (lost, unexpected)


def test_without_what_was_published_nobody_says_that_nothing_is_lost(tmp_path: Path) -> None:
    logs, _ = written(tmp_path, {"a": EVENTS, "b": EVENTS[:5]}, EVENTS)
    figures = json.loads(call("analyze", logs, "--json", status=CANNOT_TELL).stdout)
    assert (figures["verdict"], figures["order"]["lost"]) == ("unknown", None)
