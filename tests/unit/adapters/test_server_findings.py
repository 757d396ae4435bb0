"""What the doctor finds of one server, and how it says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from adapters.redis.access import AccessState
from adapters.redis.examination import Finding
from adapters.redis.probe import _limit_of_readers, product_of
from adapters.redis.serverfindings import access_findings, server_findings, unread_findings
from cli import doctor as doctor_command
from cli.doctor import doctor
from tests.servers_seen import SERVER

FINE = replace(SERVER, version="7.2.4", loads_truncated=True)


def wrong(**fields: object) -> list[Finding]:
    return [each for each in server_findings("control", replace(FINE, **fields)) if each.level != "ok"]  # type: ignore[arg-type]


def test_a_good_server_is_fine() -> None:
    assert wrong() == []
    assert next(iter(server_findings("n1", FINE))).seen == "Redis 7.2.4"
    assert wrong(loads_truncated=None, output_bytes_max=None, idle_s_max=None) == [], "not reported, so not judged"


@pytest.mark.parametrize(
    ("info", "product"),
    [
        ({"redis_version": "7.2.4"}, "Redis"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.0"}, "Valkey 9.1.0"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.25.1"}, "Dragonfly 1.25.1"),
        ({"redis_version": "6.3.4", "executable": "/usr/bin/keydb-server"}, "KeyDB"),
    ],
)
def test_servers_are_known_by_name(info: dict[str, str], product: str) -> None:
    assert product_of(info) == product


def test_dragonfly_is_refused_by_name_with_the_reason() -> None:
    [found] = wrong(product="Dragonfly 1.25.1")
    assert (found.level, "Dragonfly 1.25.1, whose scripts cannot" in found.seen) == ("problem", True)


def test_a_valkey_without_its_lua_module_is_told_so() -> None:
    found = access_findings("control", AccessState("default", "EVAL: Could not find scripting engine 'lua'"))
    assert (found.level, found.seen.startswith("runs no Lua scripts")) == ("problem", True)
    assert "loadmodule" in found.advice


def test_settings_that_hurt_in_an_incident_are_named_with_their_cure() -> None:
    [found] = wrong(loads_truncated=False)
    assert (found.level, found.advice[:36]) == ("warning", "CONFIG SET aof-load-truncated yes, a")
    [found] = wrong(output_bytes_max=64_000_000)
    assert "disconnects readers for whom 64.0 MB wait" in found.seen
    assert wrong(append_only=False, loads_truncated=False)[0].seen.startswith("appendonly no")


def test_a_full_server_is_named_as_full_with_the_command_that_gives_it_more() -> None:
    [found] = wrong(memory_bytes=105 * 2**20, memory_bytes_max=100 * 2**20, refuses=("memory",))
    assert (found.level, found.seen) == ("problem", "is full, and refuses writes: 110.1 MB of 104.9 MB in use (105%)")
    assert found.advice.startswith("CONFIG SET maxmemory 158mb, and the same in redis.conf (its machine has 10.0 GB)")
    assert "--retention-events" in found.advice
    [found] = wrong(memory_bytes=99 * 2**20, memory_bytes_max=100 * 2**20)
    assert (found.level, "refuses writes" in found.seen) == ("problem", False)


def test_what_a_full_server_refuses_is_no_matter_of_other_programs_or_of_permissions() -> None:
    said = "MULTI: OOM command not allowed when used memory > 'maxmemory'."
    [found] = unread_findings("n1", [said])
    assert (found.level, "other programs" in found.advice, "accept writes" in found.advice) == ("problem", False, True)
    for user in ("default", "publisher"):
        found = access_findings("n1", AccessState(user, said))
        assert (found.level, found.advice[:28]) == ("problem", "this is no lack of permissio")


def test_a_server_that_refuses_writes_for_its_disk_or_its_replicas_is_a_problem_with_its_cure() -> None:
    [found] = wrong(refuses=("disk",))
    assert (found.level, "refuses writes" in found.seen, "BGSAVE" in found.advice) == ("problem", True, True)
    unread = ("stop-writes-on-bgsave-error",)
    found = next(
        each for each in wrong(refuses=("disk",), append_only=False, settings_unread=unread) if "disk" in each.seen
    )
    assert "unless stop-writes-on-bgsave-error is no, which it does not report" in found.seen
    [found] = wrong(refuses=("replicas",), writes_need=2)
    assert (found.level, found.seen[-26:]) == ("problem", "min-replicas-to-write is 2")
    [found] = wrong(refuses=("replicas",), writes_need=None)
    assert found.seen.endswith("min-replicas-to-write is not reported")


def test_a_server_that_closes_idle_connections_is_found() -> None:
    [found] = wrong(idle_s_max=300)
    assert (found.level, found.seen[:12], found.advice[:20]) == ("warning", "timeout 300:", "CONFIG SET timeout 0")


def test_what_a_user_may_not_read_is_said_to_be_unread() -> None:
    unread = ("appendfsync", "min-replicas-to-write", "timeout")
    [found] = wrong(appendfsync=None, settings_unread=unread, replicas=1, replicas_wanted=1, writes_need=None)
    assert found.seen == "does not report appendfsync, min-replicas-to-write, timeout to this user: not examined"
    assert "as a user who may run CONFIG GET" in found.advice
    [found] = wrong(settings_unread=("min-replicas-to-write", "timeout"), writes_need=0)
    assert found.seen.startswith("does not report timeout to")
    for fields in ({"memory_bytes": None}, {"memory_bytes_max": None}):
        [found] = wrong(**fields)
        assert (found.level, "not examined" in found.seen) == ("warning", True)


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", 0),
        ("slave 268435456 67108864 60 normal 1048576 0 0", 1_048_576),
        ("", 0),
        ("normal", 0),
        (None, None),
    ],
)
def test_the_limit_for_readers_is_that_of_normal_clients(limits: str | None, size: int | None) -> None:
    assert _limit_of_readers(limits) == size


def test_the_verdict_comes_first_and_last_and_what_is_wrong_before_what_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "words " * 40
    findings = [
        Finding("ok", "n1", "fine"),
        Finding("warning", "n2", long, long),
        Finding("problem", "n3", f"redis://{'x' * 100} is away", "start it"),
    ]

    async def found(_: str) -> list[Finding]:
        return findings

    monkeypatch.setattr(doctor_command, "findings_of", found)
    done = CliRunner().invoke(doctor, ["redis://127.0.0.1"])
    lines = done.output.splitlines()
    assert (done.exit_code, lines[0], lines[-1]) == (3, "1 problem, 1 warning", "1 problem, 1 warning")
    marks = [line[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert marks == ["\u2717", "!", "\u2713"]
    assert all(len(line) <= 80 for line in lines if "xxx" not in line)
