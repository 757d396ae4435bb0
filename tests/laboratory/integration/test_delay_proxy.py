"""The delay proxy: what passes through it is late by what was asked for, in order, and not slow."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from adapters.embedded.server import EmbeddedServer
from laboratory.processes.children import Guard
from laboratory.wan.delayproxy import DelayProxy, Leg
from tests.patience import slowness

WAIT_S_MAX = 30.0
TRIES = 10
"""A busy machine is late now and then; what is meant shows when it is not."""

Through = Callable[..., DelayProxy]


@pytest.fixture
def through(tmp_path: Path) -> Iterator[Through]:
    guard = Guard(None)
    proxies: list[DelayProxy] = []

    def make(**legs: Leg) -> DelayProxy:
        proxy = DelayProxy(legs, tmp_path / "proxy.log", guard)
        proxies.append(proxy)
        proxy.start()
        return proxy

    yield make
    for proxy in proxies:
        proxy.stop()
    guard.close()


def port_of(server: EmbeddedServer) -> int:
    return int(server.url.rpartition(":")[2])


def connected(proxy: DelayProxy, label: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.ports[label]), timeout=WAIT_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def round_trips_ms(connection: socket.socket, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began_s = time.perf_counter()
        connection.sendall(b"PING\r\n")
        assert connection.recv(64) == b"+PONG\r\n"
        found.append((time.perf_counter() - began_s) * 1000)
    return found


def test_a_round_trip_takes_what_both_ways_take_to_less_than_a_millisecond(
    shared_redis: EmbeddedServer, through: Through
) -> None:
    port = port_of(shared_redis)
    proxy = through(near=Leg(port, 0.3, 0.4), far=Leg(port, 20.6, 9.7))
    for label, expected_ms in (("near", 0.7), ("far", 30.3)):
        with closing(connected(proxy, label)) as connection:
            times_ms = round_trips_ms(connection, 40)[1:]
            assert min(times_ms) >= expected_ms - 0.01
            assert min(times_ms) < expected_ms + slowness()


def test_a_connection_opens_a_round_trip_before_it_first_answers(
    shared_redis: EmbeddedServer, through: Through
) -> None:
    proxy = through(far=Leg(port_of(shared_redis), 30.0, 20.0))
    firsts_ms = []
    for _ in range(TRIES):
        with closing(connected(proxy, "far")) as connection:
            firsts_ms += round_trips_ms(connection, 1)
    assert 98 < min(firsts_ms) < 100 + 5 * slowness()


def test_each_way_has_its_own_delay(through: Through) -> None:
    """One clock at both ends: the other end is this test."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        proxy = through(leg=Leg(server.getsockname()[1], 40.0, 5.0))
        with closing(connected(proxy, "leg")) as client:
            far_end, _ = server.accept()
            with closing(far_end):
                client.sendall(b"x")
                far_end.recv(1)  # the connection is open now
                for one, other, expected_ms in ((client, far_end, 40.0), (far_end, client, 5.0)):
                    took_ms = []
                    for _ in range(TRIES):
                        began_s = time.perf_counter()
                        one.sendall(b"x")
                        other.recv(1)
                        took_ms.append((time.perf_counter() - began_s) * 1000)
                    assert expected_ms - 0.01 < min(took_ms) < expected_ms + slowness()


def test_bytes_stay_in_order_and_a_far_way_is_as_wide_as_a_near_one(
    shared_redis: EmbeddedServer, through: Through
) -> None:
    """48 MiB there and back take a few round trips, not one for each of the 768 chunks that the proxy reads."""
    proxy = through(far=Leg(port_of(shared_redis), 50.0, 50.0))
    payload = os.urandom(48 << 20)
    with redis.Redis.from_url(proxy.url("far"), socket_timeout=WAIT_S_MAX, retry=None) as client:
        began_s = time.perf_counter()
        client.set("wide", payload)
        assert client.get("wide") == payload
        seconds = time.perf_counter() - began_s
        client.delete("wide")
    assert seconds < 10 * slowness()


def test_what_is_sent_in_pieces_arrives_in_the_same_rhythm(through: Through) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        proxy = through(leg=Leg(server.getsockname()[1], 60.0, 60.0))
        with closing(connected(proxy, "leg")) as client:
            far_end, _ = server.accept()
            with closing(far_end):
                sent_s: list[float] = []

                def send() -> None:
                    time.sleep(0.15)
                    for n in range(50):
                        sent_s.append(time.perf_counter())
                        client.sendall(bytes([n]))
                        time.sleep(0.004)

                sender = threading.Thread(target=send)
                sender.start()
                came: list[tuple[int, float]] = []
                while len(came) < 50:
                    data = far_end.recv(64)
                    came += [(byte, time.perf_counter()) for byte in data]
                sender.join()
    assert [byte for byte, _ in came] == list(range(50))
    late_ms = [(at_s - began_s) * 1000 - 60 for (_, at_s), began_s in zip(came, sent_s, strict=True)]
    assert min(late_ms) > -0.01
    assert min(late_ms) < slowness()
    assert statistics.median(late_ms) < 10.0 * slowness()  # what is late delays nothing after it


def test_what_was_said_before_a_close_still_arrives(through: Through) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        proxy = through(leg=Leg(server.getsockname()[1], 80.0, 80.0))
        client = connected(proxy, "leg")
        far_end, _ = server.accept()
        client.sendall(b"last words")
        client.close()
        far_end.settimeout(WAIT_S_MAX)
        with closing(far_end):
            assert far_end.recv(64) == b"last words"
