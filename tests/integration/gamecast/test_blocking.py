"""The public interface without ``await``."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import blocking
from tests.patience import scaled


@pytest.mark.parametrize("url", ["memory://blocking?nodes=2", "embedded://"])
def test_threads_publish_and_iterate_without_an_event_loop(url: str) -> None:
    with blocking.connect(url, name="server") as client:
        client.subscribe("forest", "river")
        assert client.publish("forest", "first").region == "forest"

        def publish_many() -> None:
            for receipt in [client.publish_async("river", number) for number in range(50)]:
                assert receipt.result(timeout=scaled(10)).region == "river"

        threads = [threading.Thread(target=publish_many) for _ in range(3)]
        for thread in threads:
            thread.start()
        seen: list[gamecast.Event] = []
        for event in client:
            assert isinstance(event, gamecast.Event), event
            seen.append(event)
            if len(seen) == 151:
                break
        for thread in threads:
            thread.join()
        river = [event.sequence for event in seen if event.region == "river"]
        assert river == list(range(river[0], river[0] + 150))
        assert client.statistics().published_events == 151
        plan = client.plan()
        assert plan is not None
        assert plan.paths.keys() == {"forest", "river"}
        with pytest.raises(gamecast.InvalidPayload):
            client.publish("forest", object())


def test_closing_from_another_thread_ends_iteration() -> None:
    client = blocking.connect("memory://closing").open()
    client.subscribe("forest")
    closer = threading.Timer(0.05, client.close)
    closer.start()
    assert list(client) == []
    closer.join()
    with pytest.raises(gamecast.NotConnected):
        client.publish("forest", 1)
    client.close()


def test_a_connection_that_cannot_open_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(gamecast.UsageError):
        blocking.connect("memory://").open()
    with pytest.raises(gamecast.Unreachable):
        blocking.connect("redis://127.0.0.1:1").open()
    assert threading.active_count() <= before


def test_a_tick_loop_takes_and_handlers_are_called_in_the_thread_that_runs_them() -> None:
    client, heard = blocking.connect("memory://ticking"), list[tuple[object, int]]()
    states: list[str] = []
    client.on_status(lambda state: states.append(state.name))
    with client:
        assert client.status.name == "connected"
        client.subscribe("a")
        assert client.fetch() == []
        for number in range(3):
            client.publish_nowait("a", number)
        taken = client.fetch(2, timeout=scaled(10))
        taken += client.fetch(timeout=scaled(10)) if len(taken) < 3 else []
        assert [event.payload for event in taken if isinstance(event, gamecast.Event)][:2] == [0, 1]

        @client.on("a")
        def hear(event: gamecast.Event) -> None:
            heard.append((event.payload, threading.get_ident()))
            if event.payload == "last":
                client.close()

        client.publish("a", "last")
        client.run()
    assert heard[-1] == ("last", threading.get_ident())
    assert client.recording() is None
    assert states == ["connected", "closed"]


def test_nothing_of_a_region_is_handed_out_once_it_is_left_and_nothing_of_others_is_lost() -> None:
    with blocking.connect("memory://leaving?nodes=3") as other, blocking.connect(other.url) as client:
        client.subscribe("a", "b")
        other.publish_batch([*(("a", number) for number in range(20)), ("b", "end")])
        for event in client:
            assert isinstance(event, gamecast.Event)
            break  # which takes no event away
        client.unsubscribe("a")
        other.publish("b", "more")
        taken: list[gamecast.Item] = []
        while len(taken) < 2:
            taken += client.fetch(timeout=scaled(10))
        assert [event.payload for event in taken if isinstance(event, gamecast.Event)] == ["end", "more"]


def test_a_handler_that_would_have_to_be_awaited_is_refused() -> None:
    with blocking.connect("memory://coroutines") as client:

        @client.on("a")
        async def hear(event: gamecast.Event) -> None: ...

        client.subscribe("a")
        client.publish("a", 1)
        with pytest.raises(gamecast.UsageError, match="plain function"), pytest.warns(RuntimeWarning, match="awaited"):
            client.run()


FORKING = """
import os, signal, sys
import gamecast
from gamecast import blocking

with blocking.connect(sys.argv[1]) as client:
    client.subscribe("a")
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(sys.argv[2]))
        with blocking.connect(sys.argv[1]) as another:
            another.publish("a", 1)
        for use in (lambda: client.publish("a", 2), client.close):
            try:
                use()
            except gamecast.UsageError as error:
                print(error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    client.publish("a", 3)
    taken = []
    while len(taken) < 2:
        taken += [event.payload for event in client.fetch(timeout=None)]
    print(taken)
"""


def test_a_fork_is_told_that_the_connection_is_not_its_own_and_may_open_another(redis_server: EmbeddedServer) -> None:
    program = [sys.executable, "-c", FORKING, redis_server.url, str(int(scaled(30)))]
    done = subprocess.run(program, capture_output=True, text=True, timeout=scaled(60), check=False)
    publishing, closing, taken = done.stdout.splitlines()
    assert "is a fork" in publishing, done
    assert "is a fork" in closing
    assert taken == "[1, 3]"


GREENLETS = """
import gevent
from gamecast import blocking
{patch_late}

def play(number):
    with blocking.connect("memory://greenlets", name=f"player-{{number}}") as client:
        client.subscribe("forest")
        client.publish("forest", number)
        return bool(client.fetch(timeout=10))

players = [gevent.spawn(play, number) for number in range(4)]
gevent.joinall(players)
print({{player.value if player.successful() else str(player.exception) for player in players}})
"""
PATCH = "from gevent import monkey; monkey.patch_all()"


@pytest.mark.parametrize(
    ("patch_early", "patch_late", "said"),
    [(PATCH, "", "{True}"), ("", PATCH, "before importing gamecast"), ("", "", "{True}")],
    ids=["patched before", "patched after", "not patched"],
)
def test_greenlets_share_connections_or_are_told_to_patch_before_importing(
    patch_early: str, patch_late: str, said: str
) -> None:
    program = patch_early + GREENLETS.format(patch_late=patch_late)
    if not patch_early and not patch_late:
        program = program.replace("range(4)", "range(1)")  # unpatched greenlets block each other by design
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    assert said in ran.stdout, ran.stderr
