"""The proxy that cuts and stalls, and the processes of a chaos run: nothing of them outlives who started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis

from adapters.embedded.server import EmbeddedServer
from laboratory.chaos.proxy import Proxy
from laboratory.processes.children import Child, Guard
from tests.patience import Deadline, scaled

WAIT_S_MAX = 10.0
TRIES_MAX = 20


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard(None)
    yield guard
    guard.close()


@pytest.fixture
def proxy(shared_redis: EmbeddedServer, guard: Guard, tmp_path: Path) -> Iterator[Proxy]:
    port = int(shared_redis.url.rpartition(":")[2])
    proxy = Proxy("proxy", port, ("one", "two"), tmp_path / "proxy.log", guard)
    proxy.start()
    yield proxy
    proxy.stop()


def client(proxy: Proxy, label: str = "one", timeout_s: float = 5.0) -> redis.Redis:
    return redis.Redis.from_url(proxy.url(label), socket_timeout=timeout_s, retry=None)


def test_what_is_said_passes_both_ways(proxy: Proxy) -> None:
    with client(proxy) as one, client(proxy, "two") as two:
        payload = os.urandom(1 << 20)
        one.set("chaos", payload)
        assert two.get("chaos") == payload
        one.delete("chaos")


def test_a_cut_comes_in_the_middle_of_a_reply_and_the_next_connection_works(proxy: Proxy) -> None:
    said = b""
    for _ in range(TRIES_MAX):  # a slow machine asks too late
        with closing(socket.create_connection(("127.0.0.1", proxy.ports["one"]), timeout=WAIT_S_MAX)) as raw:
            raw.sendall(b"PING\r\n")
            assert raw.recv(100) == b"+PONG\r\n"
            assert proxy.cut() == 1
            with suppress(ConnectionError):
                raw.sendall(b"PING\r\n")
                said = raw.recv(100)
                assert raw.recv(100) == b""
        if said:
            break
    assert said == b"+PO"
    with client(proxy) as another:
        assert another.ping()


def test_a_connection_on_which_nothing_is_said_is_cut_too(proxy: Proxy) -> None:
    with closing(socket.create_connection(("127.0.0.1", proxy.ports["one"]), timeout=WAIT_S_MAX)) as raw:
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        proxy.cut()
        with suppress(ConnectionResetError):
            assert raw.recv(100) == b""


def test_what_is_held_back_comes_later(proxy: Proxy) -> None:
    with client(proxy, timeout_s=0.2) as waiting:
        assert waiting.ping()
        proxy.hold()
        with pytest.raises(redis.exceptions.TimeoutError):
            waiting.ping()
        proxy.flow()
        assert waiting.ping()


def test_while_the_server_is_down_connections_end_and_later_they_work(guard: Guard, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        proxy = Proxy("proxy", int(server.url.rpartition(":")[2]), ("one",), tmp_path / "proxy.log", guard)
        proxy.start()
        try:
            with client(proxy) as one:
                assert one.ping()
                server.kill()
                with pytest.raises(redis.exceptions.ConnectionError):
                    one.ping()
                server.restart()
                assert one.ping()
        finally:
            proxy.stop()


def test_a_partition_leaves_a_server_alone_with_its_clients(guard: Guard, tmp_path: Path) -> None:
    at_once = {"repl-diskless-sync-delay": "0"}
    with EmbeddedServer(settings=at_once) as server, EmbeddedServer(settings=at_once) as replica:
        proxy = Proxy("proxy", int(server.url.rpartition(":")[2]), ("one",), tmp_path / "proxy.log", guard)
        proxy.start()
        try:
            with client(proxy, timeout_s=2 * WAIT_S_MAX) as one, redis.Redis.from_url(replica.url) as other:
                other.replicaof("127.0.0.1", proxy.ports["one"])
                one.set("before", 1)
                assert one.wait(1, int(WAIT_S_MAX * 1000)) == 1
                proxy.part()
                one.set("meanwhile", 1)
                assert one.wait(1, 500) == 0
                assert other.get("meanwhile") is None
                proxy.flow()
                assert one.wait(1, int(WAIT_S_MAX * 1000)) == 1
                assert other.get("meanwhile") == b"1"
        finally:
            proxy.stop()


def test_a_partition_keeps_sentinels_away(proxy: Proxy) -> None:
    with client(proxy, timeout_s=0.2) as sentinel, client(proxy, "two") as other:
        sentinel.client_setname("sentinel-0123abcd-cmd")
        proxy.part()
        with pytest.raises(redis.exceptions.TimeoutError):
            sentinel.ping()
        assert other.ping()
        proxy.flow()
        assert sentinel.ping()


def sleep_for_ever() -> None:
    print("asleep", flush=True)
    time.sleep(1000)


def test_a_child_is_stopped_killed_and_started_again(guard: Guard, tmp_path: Path) -> None:
    child = Child("sleeper", sleep_for_ever, (), tmp_path / "log", guard)
    assert not child.running
    child.start()
    first = child.pid
    assert child.running
    assert child.signal(signal.SIGSTOP)
    child.kill()
    assert not child.running
    assert child.ended() is None
    assert not child.signal(signal.SIGCONT)
    child.start()
    assert child.pid != first
    os.kill(child.pid, signal.SIGTERM)
    deadline = Deadline(WAIT_S_MAX)
    while child.running and not deadline.passed:
        time.sleep(0.01)
    assert child.ended() == -signal.SIGTERM


ABANDON = """
import os, signal, sys
from pathlib import Path
from laboratory.processes.children import Child, Guard
from tests.laboratory.integration.test_chaos_proxy import sleep_for_ever
directory = Path(sys.argv[1])
guard = Guard(directory)
children = [Child(f"c{number}", sleep_for_ever, (), directory / f"{number}.log", guard) for number in range(3)]
for child in children:
    child.start()
while not all((directory / f"{number}.log").exists() for number in range(3)):
    pass
children[0].signal(signal.SIGSTOP)
children[1].kill()
print(children[0].pid, children[2].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_children_and_files_end_with_a_parent_that_is_killed_also_those_that_are_stopped(tmp_path: Path) -> None:
    directory = tmp_path / "files"
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ABANDON, str(directory)], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline = Deadline(WAIT_S_MAX)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    while (any(map(alive, pids)) or directory.exists()) and not deadline.passed:
        time.sleep(0.02)
    assert not any(map(alive, pids))
    assert not directory.exists()


def alive(pid: int) -> bool:
    """Whether a process is there, and not just waiting to be waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
