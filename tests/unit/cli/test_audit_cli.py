"""`gamecast audit`: what it prints and with which status it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.audit import audit
from gamecast.recording.deliverylogwriter import DeliveryLogWriter
from launcher.ending import CANNOT_TELL
from sequencing.errors import InvalidInput


def record(directory: Path, subscriber: str, delivered: str) -> Path:
    """Write a log of events like ``a1``, region a."""
    file = directory / f"{subscriber}.jsonl"
    with DeliveryLogWriter(file, subscriber) as writer:
        for event in delivered.split():
            writer.write(event, event[0], "ann")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(audit, [str(argument) for argument in arguments])


def test_logs_that_agree_end_with_status_0(tmp_path: Path) -> None:
    result = run(record(tmp_path, "s1", "a1 b1 a2"), record(tmp_path, "s2", "a1 b1 a2"))
    assert result.exit_code == 0
    assert "6 deliveries by 2 subscribers in 2 regions, from 2 files" in result.stdout
    assert "The promises are kept" in result.stdout
    assert "give --published FILE" in result.stdout


def test_an_inversion_ends_with_status_1_and_is_named(tmp_path: Path) -> None:
    result = run(record(tmp_path, "s1", "a1 b1 a2"), record(tmp_path, "s2", "b1 a1 a2"))
    assert result.exit_code == 1
    assert "The promises are broken" in result.stdout
    assert "inversion: s1 delivered a1 (a) before b1 (b), s2 delivered b1 (b) before a1 (a)." in result.stdout


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    with DeliveryLogWriter(tmp_path / "x.jsonl", "[red]s1[/red]") as writer:
        writer.write("[bold]", ":smile:", "ann")
        writer.write("[bold]", ":smile:", "ann")
    assert "[red]s1[/red] delivered [bold] (:smile:) more than once" in run(tmp_path).stdout


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    record(tmp_path, "s1", "a1 b1 a2 a2")
    record(tmp_path, "s2", "b1 a1 a2")
    result = run(tmp_path, "--json", "--pairs")
    assert result.exit_code == 1
    assert result.stderr == ""
    found = json.loads(result.stdout)
    expected = {"subscribers": 2, "deliveries": 7, "regions": 2, "inversions": 1, "cycles": 1, "duplicated": 1}
    assert {key: found[key] for key in expected} == expected
    assert found["publisher_order_violations"] == 0
    assert "lost" not in found
    assert found["first"]["kind"] == "inversion"
    assert found["first"]["events"] == ["a1", "b1"]
    assert found["first"]["subscribers"] == ["s1", "s2"]
    assert found["pairs"] == [{"subscribers": ["s1", "s2"], "common": 3, "inversions": 1}]


def test_json_of_logs_that_agree_has_no_first(tmp_path: Path) -> None:
    record(tmp_path, "s1", "a1 b1")
    result = run(tmp_path, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["first"] is None


def test_losses_are_found_when_it_is_known_what_was_published(tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.write_text("".join(f'{{"event": "{event}", "region": "a"}}\n' for event in ("a1", "a2", "a3")))
    record(tmp_path, "s1", "a1 a2 a3")
    record(tmp_path, "s2", "a1 a3")
    result = run(tmp_path, "--published", published, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["lost"] == 1
    assert found["first"]["says"] == "s2 never delivered a2 (a)"
    assert "lost: s2 never delivered a2 (a)." in run(tmp_path, "--published", published).stdout


def test_pairs_of_subscribers_are_shown_on_request(tmp_path: Path) -> None:
    record(tmp_path, "s1", "a1 b1")
    record(tmp_path, "s2", "b1 a1")
    assert "s1 and s2" in run(tmp_path, "--pairs").stdout
    assert "s1 and s2" not in run(tmp_path).stdout


def test_missing_lines_are_pointed_out(tmp_path: Path) -> None:
    file = record(tmp_path, "s1", "a1 a2 a3")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + lines[2])
    result = run(file)
    assert result.exit_code == CANNOT_TELL
    assert "1 index missing between the lines" in result.stdout
    assert "promises are kept" not in result.stdout


def test_what_is_not_recorded_is_not_lost(tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.write_text("".join(f'{{"event": "{event}", "region": "a"}}\n' for event in ("a1", "a2", "a3")))
    file = record(tmp_path, "s1", "a1 a2 a3")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + lines[2])
    record(tmp_path, "s2", "a1 a2 a3")
    found = json.loads(run(tmp_path, "--published", published, "--json").stdout)
    assert (found["lost"], found["verdict"]) == (0, "unknown")
    assert found["unknown"] == ["1 index missing between the lines: the logs are incomplete, those of s1"]


def test_of_a_server_that_was_killed_nothing_is_due_after_its_last_line(tmp_path: Path) -> None:
    published = tmp_path / "published"
    placed = ({"event": f"a{n}", "region": "a", "position": f"1-{n}", "published_at_ns": n} for n in (1, 2, 3))
    published.write_text("".join(json.dumps(each) + "\n" for each in placed))
    stay = {"subscriber": "s1", "stay": "a", "from": 0, "joined_at_ns": 0}
    file = record(tmp_path, "s1", "a1")
    whole = file.read_text()
    file.write_text(whole + json.dumps(stay | {"open": True}) + "\n")
    result = run(file, "--published", published, "--json")
    assert result.exit_code == CANNOT_TELL
    assert json.loads(result.stdout)["lost"] == 0
    file.write_text(whole + json.dumps(stay) + "\n")
    result = run(file, "--published", published, "--json")
    assert (result.exit_code, json.loads(result.stdout)["lost"]) == (1, 2)


@pytest.mark.parametrize(("sender", "status", "unexpected"), [("killed", 4, 0), ("guest", 4, 0), ("s1", 1, 1)])
def test_what_was_not_recorded_may_have_been_published(
    tmp_path: Path, sender: str, status: int, unexpected: int
) -> None:
    published = tmp_path / "published"
    published.write_text('{"event": "a1", "region": "a", "position": "1-1", "published_at_ns": 1}\n')
    stay = {"stay": "a", "from": 0, "joined_at_ns": 0}
    for subscriber, is_open in (("s1", False), ("killed", True)):
        rows: list[dict[str, object]] = [
            {"subscriber": subscriber, "index": n, "event": event, "region": "a", "sender": who}
            for n, (event, who) in enumerate([("a1", "s1"), ("a2", sender)])
        ]
        end = {"open": True} if is_open else {"to": 2}
        rows = [*(rows[:1] if is_open else rows), {"subscriber": subscriber, **stay, **end}]
        (tmp_path / f"{subscriber}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    logs = [tmp_path / "s1.jsonl", tmp_path / "killed.jsonl"]
    result = run(*logs, "--published", published, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["unexpected"]) == (status, unexpected)
    reason = f"1 event of senders whose publishing was not recorded, or not to its end: {sender}"
    assert (reason in found["unknown"]) is (status == CANNOT_TELL)


def test_a_stay_that_ends_behind_the_last_line_shows_that_lines_are_missing(tmp_path: Path) -> None:
    file = record(tmp_path, "s1", "a1 a2")
    stay = {"subscriber": "s1", "stay": "a", "from": 0, "to": 9}
    file.write_text(file.read_text() + json.dumps(stay) + "\n")
    result = run(file, "--json")
    assert result.exit_code == CANNOT_TELL
    assert json.loads(result.stdout)["index_gaps"] == 7


def test_malformed_input_is_raised_for_the_command_line_to_report(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("nonsense\n")
    result = run(file, "--json")
    assert isinstance(result.exception, InvalidInput)
    assert f"{file}, line 1" in str(result.exception)
    assert result.stdout == ""


def test_a_call_without_files_is_wrong_use() -> None:
    result = run()
    assert result.exit_code == 2
    assert "FILE" in result.stderr


@pytest.mark.parametrize("option", ["--published", "--json", "--pairs"])
def test_help_names_every_option(option: str) -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert option in result.stdout
