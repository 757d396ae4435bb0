"""`gamecast publish` and `gamecast tail`, as somebody types them: processes of their own on real servers."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import pytest
import redis

import gamecast.blocking
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from adapters.redis.control import SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from cli.main import main
from gamecast import Event
from sequencing.keyspace import NodeKeys
from tests.patience import scaled, wait_until

COMMAND = [sys.executable, "-m", "gamecast"]


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the test, and end it."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def tailing(server: EmbeddedServer, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `gamecast tail` and wait until it gets what is published from now on."""
    with running("tail", server.url, *arguments, **environment) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith(b"subscribed to "), said
        yield process


def plain(said: str | bytes) -> str:
    """Return what a command said, as if the network had begun with epoch 1."""
    text = said if isinstance(said, str) else said.decode()
    return re.sub(r"\b[0-9]{13}-(?=[0-9])", "1-", text)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Return what runs a command in this process, and returns its status, output and complaints."""

    def call(*arguments: str, typed: bytes = b"") -> tuple[int, str, str]:
        (tmp_path / "typed").write_bytes(typed)
        with (tmp_path / "typed").open() as standard_input, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", standard_input)
            patched.setattr(sys, "argv", ["gamecast", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        return int(ended.value.code or 0), *capfd.readouterr()

    return call


def waiting_bytes(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    size = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


def test_what_is_published_is_tailed_in_order(redis_server: EmbeddedServer, call: Call) -> None:
    url = redis_server.url
    with tailing(redis_server, "forest", "river", "--count", "7", "--json") as tail:
        receipts = ""
        for region, *rest in (
            ("forest", '{"a": [1, 2.5]}', "plain", "7", "--name", "ann"),
            ("forest", "--text", "--name", "bob", "--", "7", "-1"),
            ("river", '"two"', "1e400"),
        ):
            status, said_of_it, complained_of_it = call("publish", url, region, *rest)
            assert (status, complained_of_it) == (0, "")
            receipts += said_of_it
        said, complained = tail.communicate(timeout=scaled(10))
    assert (tail.returncode, complained) == (0, b"")
    events = [json.loads(line) for line in said.splitlines()]
    assert [event["payload"] for event in events] == [{"a": [1, 2.5]}, "plain", 7, "7", "-1", "two", "1e400"]
    assert [f"{event['region']} {event['position']}" for event in events] == receipts.splitlines()
    assert [event["sender"] for event in events[:4]] == ["ann", "ann", "ann", "bob"]
    assert re.fullmatch(r".+@.+-\d+", events[5]["sender"])
    first = events[0]
    assert (first["kind"], first["region"], first["base64"]) == ("event", "forest", False)
    assert first["position"] == f"{first['epoch']}-{first['sequence']}"
    assert [event["sequence"] - first["sequence"] for event in events[:5]] == [0, 1, 2, 3, 4]
    assert 0 < first["sent_at_ns"] <= first["delivered_at_ns"] + 10_000_000


def test_lines_of_standard_input_are_events(redis_server: EmbeddedServer, call: Call) -> None:
    lines = '1\nzwölf\r\n\n{"x"\nend'.encode()
    with tailing(redis_server, "a", "--count", "5", "--json") as tail:
        status, report, complained = call("publish", redis_server.url, "a", "--json", "--name", "ann", typed=lines)
        said, _ = tail.communicate(timeout=scaled(10))
    assert [json.loads(line)["payload"] for line in said.splitlines()] == [1, "zwölf", "", '{"x"', "end"]
    assert (status, complained) == (0, "")
    told = json.loads(report)
    epoch = told["first"]["epoch"]
    assert told == {
        "region": "a",
        "name": "ann",
        "published": 5,
        "failed": 0,
        "uncertain": 0,
        "error": None,
        "first": {"region": "a", "epoch": epoch, "sequence": 1, "position": f"{epoch}-1"},
        "last": {"region": "a", "epoch": epoch, "sequence": 5, "position": f"{epoch}-5"},
    }


def test_no_lines_are_no_events(redis_server: EmbeddedServer, call: Call) -> None:
    status, report, complained = call("publish", redis_server.url, "a", "--json")
    assert (status, complained) == (0, "")
    assert (json.loads(report)["published"], json.loads(report)["last"]) == (0, None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_line_is_published_when_it_comes_and_an_interrupt_tells_what_was(
    redis_server: EmbeddedServer, number: signal.Signals
) -> None:
    with running("publish", redis_server.url, "a") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for sequence in (1, 2):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert plain(process.stdout.readline()) == f"a 1-{sequence}\n"
        process.send_signal(number)
        _, complained = process.communicate(timeout=scaled(10))
    assert process.returncode == (130 if number is signal.SIGINT else 3)
    how = "interrupted" if number is signal.SIGINT else "stopped"
    assert plain(complained) == f"gamecast: {how}; 2 events published, the last as a 1-2\n"
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.zcard(ControlKeys.alive) == 0


def test_publishing_stops_when_nobody_reads_the_receipts(redis_server: EmbeddedServer) -> None:
    with running("publish", redis_server.url, "a") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"line\n")
        process.stdin.flush()
        assert process.wait(timeout=scaled(10)) == 3
        expected = "gamecast: standard output was closed; 1 event published, the last as a 1-1\n"
        assert plain(process.stderr.read()) == expected


def test_many_lines_are_published_in_their_order(redis_server: EmbeddedServer, call: Call) -> None:
    lines = b"".join(b"%d\n" % number for number in range(20_000))
    with tailing(redis_server, "a", "--count", "20000", "--json") as tail:
        status, receipts, _ = call("publish", redis_server.url, "a", typed=lines)
        said, _ = tail.communicate(timeout=scaled(20))
    assert status == 0
    assert plain(receipts).splitlines() == [f"a 1-{number}" for number in range(1, 20_001)]
    assert [json.loads(line)["payload"] for line in said.splitlines()] == list(range(20_000))


def test_people_get_a_line_for_each_event_and_no_escape_sequences(redis_server: EmbeddedServer) -> None:
    with tailing(redis_server, "a", "--count", "3") as tail:
        with gamecast.blocking.connect(redis_server.url, name="ann") as cast:
            cast.publish("a", {"text": "two words"})
            cast.publish("a", b"\x1b[2J")
            cast.publish("a", "\x1b[2J \x9b2J \u202e")
        said, _ = tail.communicate(timeout=scaled(10))
    clock = r"\d\d:\d\d:\d\d\.\d{3}"
    one, two, three = plain(said).splitlines()
    assert re.fullmatch(clock + r' a 1-1 ann {"text":"two words"}', one)
    assert re.fullmatch(clock + r" a 1-2 ann b'\\x1b\[2J'", two)
    assert re.fullmatch(clock + r' a 1-3 ann "\\u001b\[2J \\x9b2J \\u202e"', three)


def test_bytes_come_as_base64_and_a_gap_is_a_line(redis_server: EmbeddedServer) -> None:
    with tailing(redis_server, "a", "--count", "2", "--json") as tail:
        with gamecast.blocking.connect(redis_server.url, name="ann") as cast, redis.Redis.from_url(cast.url) as client:
            epoch = cast.publish("a", b"\x00\xff").epoch
            for last, meta, body in ((3, "0 2 1 2 s", "not a body"), (4, "0 1 1 4 s", "[0,[0],[4]]")):
                key = NodeKeys(SOLE_NODE).egress(epoch, "a")
                client.xadd(key, {"m": meta, "s": "", "b": body}, id=f"{epoch}-{last}")
        said, _ = tail.communicate(timeout=scaled(10))
    first, gap, last = map(json.loads, said.splitlines())
    assert (first["base64"], base64.b64decode(first["payload"])) == (True, b"\x00\xff")
    assert (gap["kind"], gap["region"], gap["epoch"]) == ("gap", "a", epoch)
    assert (gap["first_sequence"], gap["last_sequence"]) == (2, 3)
    assert "cannot be read" in gap["reason"]
    assert (last["payload"], last["base64"]) == (4, False)


def test_what_cannot_be_sent_is_told_with_what_was(redis_server: EmbeddedServer, call: Call) -> None:
    large = b"x" * 1_000_000
    status, said, complained = call("publish", redis_server.url, "a", typed=b"one\ntwo\n%b\nlater\n" % large)
    assert (status, plain(said)) == (2, "a 1-1\na 1-2\n")
    assert "standard input, line 3: has 1,000,002 bytes encoded" in complained
    assert plain(complained).endswith("; 2 events published, the last as a 1-2\n")
    status, said, complained = call("publish", redis_server.url, "a", typed=b"three\n\xff\nlater\n")
    assert (status, plain(said)) == (2, "a 1-3\n")
    assert "standard input, line 2: is not UTF-8" in complained
    endless = b"four\n" + b"y" * 3_000_000
    status, said, complained = call("publish", redis_server.url, "a", "--text", "--json", typed=endless)
    assert status == 2
    assert "standard input, line 2: is longer than" in complained
    report = json.loads(said)
    assert (report["published"], report["error"]["kind"], report["error"]["definite"]) == (1, "InvalidInput", True)


def test_of_payloads_of_which_one_cannot_be_sent_none_is(redis_server: EmbeddedServer, call: Call) -> None:
    status, said, complained = call("publish", redis_server.url, "a", "one", "\udcff")
    assert (status, said) == (2, "")
    assert "gamecast: payload 2: cannot be encoded" in complained
    status, said, complained = call("publish", redis_server.url, "a", "one", "x" * 1_000_000)
    assert (status, said) == (2, "")
    assert "gamecast: payload 2: has 1,000,002 bytes encoded, more than 1,000,000" in complained
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.dbsize() == 0


def test_a_server_that_fills_up_midway_is_told_with_what_was_published(redis_server: EmbeddedServer) -> None:
    with running("publish", redis_server.url, "a", "--json") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        with redis.Redis.from_url(redis_server.url) as client:
            wait_until(lambda: list(client.scan_iter("gamecast:*:egress:*:a")))
            client.config_set("maxmemory", "1")
        said, complained = process.communicate(b"two\n", timeout=scaled(10))
    assert process.returncode == 3
    assert re.fullmatch(
        r"gamecast: .*is full \(OOM\).*; 1 event published, the last as a 1-1, 1 not\n", plain(complained)
    )
    report = json.loads(said)
    assert (report["published"], report["failed"], report["uncertain"]) == (1, 1, 0)
    assert (report["error"]["kind"], report["error"]["retriable"]) == ("OutOfMemory", True)


def test_a_tail_that_comes_late_gets_what_is_published_from_then_on(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, name="ann") as cast:
        cast.subscribe("a", "b")
        for number in range(10):
            cast.publish("a", number)
        with tailing(redis_server, "a", "b", "--count", "20", "--json") as tail:
            for number in range(10, 30):
                cast.publish("ab"[number % 2], number)
            said, complained = tail.communicate(timeout=scaled(10))
        delivered = [event.payload for event in islice(cast, 30) if isinstance(event, Event)]
    assert (tail.returncode, complained) == (0, b"")
    seen = [json.loads(line)["payload"] for line in said.splitlines()]
    assert set(seen) == set(range(10, 30))
    assert seen == [payload for payload in delivered if payload >= 10]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tail_that_is_stopped_ends_well_and_leaves(redis_server: EmbeddedServer, number: signal.Signals) -> None:
    with tailing(redis_server, "a") as tail:
        tail.send_signal(number)
        said, complained = tail.communicate(timeout=scaled(10))
    assert (tail.returncode, said, complained) == (130 if number is signal.SIGINT else 0, b"", b"")
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.zcard(ControlKeys.alive) == 0


def test_a_tail_ends_when_its_time_is_over(
    redis_server: EmbeddedServer, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMECAST_TAIL_SECONDS", "0.1")
    assert call("tail", redis_server.url, "a")[:2] == (0, "")


def test_a_tail_ends_when_nobody_reads_it_any_more(redis_server: EmbeddedServer, call: Call) -> None:
    with tailing(redis_server, "a") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert call("publish", redis_server.url, "a", "one")[0] == 0
        assert tail.stdout.readline().endswith(b'"one"\n')
        tail.stdout.close()
        assert tail.wait(timeout=scaled(10)) == 0
        assert tail.stderr.read() == b""


def test_a_tail_whose_reader_pauses_can_be_stopped(redis_server: EmbeddedServer, call: Call) -> None:
    with tailing(redis_server, "a") as tail:
        assert call("publish", redis_server.url, "a", typed=b"\n".join([b"x" * 1000] * 500))[0] == 0
        assert tail.stdout is not None
        assert tail.stderr is not None
        wait_until(lambda: waiting_bytes(tail.stdout) >= 60_000)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(timeout=scaled(10)) == 130
        assert tail.stderr.read() == b""


@pytest.mark.parametrize("command", ["publish", "tail"])
def test_wrong_use_and_absent_servers_have_their_statuses(command: str, call: Call) -> None:
    rest = ("a", "1") if command == "publish" else ("a",)
    for url, expected, why in (
        ("http://x", 2, "unknown scheme"),
        ("memory://world", 2, "private network of this process"),
        ("embedded://", 2, "private network of the connection that opens it"),
        (f"redis://127.0.0.1:{free_port()}", 3, "is a server running there"),
    ):
        status, said, complained = call(command, url, *rest)
        assert (status, said) == (expected, ""), complained
        assert why in complained
        assert (complained.startswith("gamecast: "), complained.count("\n")) == (True, 1)
    assert call(command, "redis://127.0.0.1")[0] == 2
    status, _, complained = call(command, "redis://127.0.0.1", "a\nb", *rest[1:])
    assert (status, "must not contain control characters" in complained) == (2, True)


def test_a_wrong_password_is_said_and_not_shown(call: Call) -> None:
    with EmbeddedServer(password="open sesame") as server:
        for arguments in (("publish", "a", "1"), ("tail", "a")):
            wrong = server.url.replace("open%20sesame", "s3cret")
            status, said, complained = call(arguments[0], wrong, *arguments[1:])
            assert (status, said) == (3, "")
            assert "refused the user or the password" in complained
            assert "s3cret" not in complained
        status, said, complained = call("publish", server.url, "a", "1")
        assert (status, plain(said), complained) == (0, "a 1-1\n", "")


def test_keys_and_conditions_can_be_tried_by_hand(call: Call, redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    status, told, _ = call("publish", url, "forest", '{"by": "ana"}', "--key", "sword", "--only-if", "none")
    assert status == 0
    position = told.split()[-1]
    status, _, said = call("publish", url, "forest", '{"by": "bo"}', "--key", "sword", "--only-if", "none")
    assert status == 3
    assert f"is set at {position}, and was not to be set" in said
    assert call("publish", url, "forest", "null", "--key", "sword", "--only-if", position)[0] == 0
    assert call("publish", url, "forest", "1", "--only-if", "none")[0] == 2
    assert call("publish", url, "forest", "1", "--key", "sword", "--only-if", "soon")[0] == 2
    status, told, _ = call("tail", url, "forest", "--since", "0", "--count", "2", "--json")
    assert [(each["payload"], each["key"]) for each in map(json.loads, told.splitlines())] == [
        ({"by": "ana"}, "sword"),
        (None, "sword"),
    ]
    assert "sword=null" in call("tail", url, "forest", "--since", "0", "--count", "2")[1]


def test_events_of_several_regions_and_states_can_be_tried_by_hand(call: Call, redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    status, told, _ = call("publish", url, "forest", '"arrow"', "--also", "river", "--key", "arrow")
    assert status == 0
    forest, position, river, other = told.split()
    assert (forest, river) == ("forest", "river")
    assert call("publish", url, "forest", '"b"', "--also", "forest")[0] == 2
    status, told, _ = call("tail", url, "forest", "river", "--since", "0", "--count", "1", "--json")
    assert status == 0
    [event] = map(json.loads, told.splitlines())
    assert event["positions"] == {"forest": position, "river": other}
    line = call("tail", url, "forest", "river", "--since", "0", "--count", "1")[1]
    assert f"forest {position} river {other}" in line
    status, told, _ = call("tail", url, "forest", "hill", "--state", "--seconds", "1", "--json")
    assert status == 0
    [state] = map(json.loads, told.splitlines())
    assert (state["kind"], state["positions"].keys(), state["incomplete"]) == ("state", {"forest", "hill"}, [])
    arrow = state["values"]["forest"]["arrow"]
    assert (arrow["payload"], arrow["position"], state["values"]["hill"]) == ("arrow", position, {})
    told = call("tail", url, "forest", "hill", "--state", "--seconds", "1")[1]
    assert 'arrow="arrow"' in told
    assert ": 1 key\n" in told
    assert call("tail", url, "forest", "--state", "--since", "0")[0] == 2
